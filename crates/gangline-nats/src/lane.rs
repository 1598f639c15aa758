//! A lane of the coordinator: the producer that leases items for the worker in its seat.
//!
//! A lane runs user code: it encodes inputs and decodes outputs. It sends events to the coordinator's thread through the
//! [`ClusterSession`], and gets news from the board. Without a worker, the lane is detached from the scheduler.

use std::sync::Arc;
use std::time::Duration;

use gangline::backend::{
    Backend, BatchLimits, Bell, Mutex, NextStep, ProducerSetup, Run, Shared, TimeLimits, Wanted,
    leave, lock, now,
};
use gangline::process::Recipe;
use gangline::{Error, Hook, Runner};
use gangline_scheduler::LeaseId;

use super::event::CoordinatorEvent;
use super::health::Fatal;
use super::lane_run::LaneRun;
use super::nats::Nats;
use super::session::{ClusterSession, cluster};
use super::wire::{BatchRule, BatchSizing, RunnerLoad};

/// The largest batch that a worker may choose. It gets twice as many items for each of its producers.
const MOST_CHOSEN: usize = 128;

/// What all lanes of a pool have in common.
#[derive(Debug)]
pub(crate) struct Cluster {
    nats: Nats,
    limits: TimeLimits,
    stack_size: Option<usize>,
    batch: Option<BatchLimits>,
    /// Opened by the first lane when it starts, and closed by that producer when it ends.
    session: Mutex<Option<Arc<ClusterSession>>>,
}

/// One lane, with a seat for a worker.
pub(crate) struct ClusterLane<R: Runner> {
    cluster: Arc<Cluster>,
    recipe: Recipe<R>,
    setup: ProducerSetup,
    lane: usize,
    shared: Shared,
}

impl Cluster {
    pub(crate) fn new(
        nats: Nats,
        limits: TimeLimits,
        stack_size: Option<usize>,
        batch: Option<BatchLimits>,
    ) -> Self {
        Cluster { nats, limits, stack_size, batch, session: Mutex::new(None) }
    }

    /// The number of items that the seated workers can have.
    pub(crate) fn capacity(&self) -> usize {
        let session = lock(&self.session);
        session.as_ref().map_or(0, |session| session.board.capacity())
    }

    fn load(&self, setup: &ProducerSetup) -> Result<RunnerLoad, Error> {
        let cfg = setup.cfg_as_text()?;
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        Ok(RunnerLoad {
            cfg,
            seed: setup.seed,
            item_nanos: self.limits.item.map(nanos),
            init_nanos: self.limits.init.map(nanos),
            stack_size: self.stack_size.map(|bytes| bytes as u64),
            batch: self.batch.map(|BatchLimits { rule, most_cost, most_padded }| BatchRule {
                most: match rule.is_chosen() {
                    true => rule.most().min(MOST_CHOSEN) as u64,
                    false => rule.most() as u64,
                },
                sizing: match (rule.is_chosen(), rule.chosen_latency()) {
                    (false, _) => BatchSizing::Given,
                    (true, None) => BatchSizing::Rate,
                    (true, Some(latency)) => BatchSizing::Latency { nanos: nanos(latency) },
                },
                // No worker sees the end of the input, so none waits without limit.
                wait_nanos: nanos(rule.wait().unwrap_or(self.nats.lease_time / 4)),
                most_cost,
                most_padded,
            }),
        })
    }

    /// The hook that workers call.
    fn hook(&self) -> Hook {
        self.batch.map_or(Hook::ProducerWork, |_| Hook::ProducerWorkBatch)
    }
}

impl<R: Runner> ClusterLane<R> {
    pub(crate) fn new(
        cluster: Arc<Cluster>,
        recipe: Recipe<R>,
        setup: ProducerSetup,
        shared: Shared,
    ) -> Self {
        let lane = setup.producer;
        ClusterLane { cluster, recipe, setup, lane, shared }
    }

    /// Connects, and waits until enough workers have joined.
    fn open(&self, wanted: &Wanted) -> Result<(), Error> {
        let load = self.cluster.load(&self.setup)?;
        let recipe = (self.recipe.items().name(), self.recipe.items().terms());
        let session = ClusterSession::open(&self.cluster.nats, recipe, load)?;
        let bell: Arc<dyn Bell> = session.board.clone();
        wanted.listen(&bell);
        let Nats { min_workers, wait_for, .. } = self.cluster.nats;
        let is_over = || wanted.gave_up_on(None);
        let here = session.board.wait_for(min_workers, wait_for, &is_over);
        if here < min_workers {
            session.send(CoordinatorEvent::TooFew);
            let error = match session.board.wait_for_fatal(&is_over) {
                Some(Fatal::NoWorkers) | None => cluster(session.too_few(here, min_workers)),
                Some(fatal) => session.error(fatal),
            };
            session.close();
            return Err(error);
        }
        *lock(&self.cluster.session) = Some(Arc::new(session));
        Ok(())
    }
}

impl<R: Runner> Backend<R::Input, R::Output> for ClusterLane<R> {
    fn start(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let since = now();
        let opened = if self.lane == 0 { self.open(wanted) } else { Ok(()) };
        self.shared.note_init(now() - since);
        opened?;
        self.shared.note_ready();
        Ok(())
    }

    fn is_ready(&self) -> bool {
        true
    }

    fn prepare(&mut self, _: &Run<R::Input, R::Output>, _: Option<LeaseId>) -> Result<(), Error> {
        Ok(())
    }

    fn work_on(&mut self, run: &Run<R::Input, R::Output>) -> NextStep {
        let session = lock(&self.cluster.session).clone();
        let session = session.expect("the first lane has opened it when the pool was built");
        let hook = self.cluster.hook();
        let in_run = LaneRun::new(run, &session, (&self.recipe, hook), &self.setup);
        in_run.work();
        leave(&self.shared)
    }

    fn end(&mut self) -> Result<(), Error> {
        self.shared.note_end();
        if self.setup.producer == 0
            && let Some(session) = lock(&self.cluster.session).take()
        {
            session.close();
        }
        Ok(())
    }

    fn end_in(&mut self, _: &Run<R::Input, R::Output>) -> Result<(), Error> {
        unreachable!("in a cluster, `build` refuses to recycle states")
    }
}

//! The keeper: the backend of one child process.

use std::sync::Arc;
use std::time::Duration;

use super::calls::Worked;
use super::frame::Kind;
use super::message::{self, Bye};
use super::recipe::Recipe;
use super::remote;
use super::waiting::{Answer, Interest, wait_for_answer};
use super::worker_process::{KeeperSettings, WorkerProcess, out_of_turn, refusal};
use crate::backend::threads::crashes::POISON;
use crate::backend::threads::handover::item_queue::ItemQueue;
use crate::backend::threads::leasing;
use crate::backend::threads::producer::site;
use crate::backend::threads::run::Run;
use crate::backend::threads::settle;
use crate::backend::threads::shared::Shared;
use crate::backend::{Backend, NextStep};
use crate::base::Hook;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::error::{Error, WorkerError};
use crate::observe::event_log::EventWriter;
use crate::runner::{ProducerSetup, Runner, Wanted};
use crate::scheduler::{Inputs, Lease, LeaseId, Readiness};

/// The producer's end of the hand-over.
type Desk<'a, R> = ItemQueue<'a, <R as Runner>::Input, <R as Runner>::Output>;

/// How long a process that has said goodbye may take to end.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

/// Keeps one child process, in which the hooks of one producer run.
pub(crate) struct Keeper<R: Runner> {
    worker: WorkerProcess<R>,
    /// The lane on which it takes part in runs.
    lane: usize,
    shared: Shared,
    /// Whether the child has its state.
    has_state: bool,
}

impl<R: Runner> Keeper<R> {
    /// Without a child.
    pub(crate) fn new(
        recipe: Recipe<R>,
        settings: Arc<KeeperSettings>,
        setup: ProducerSetup,
        shared: Shared,
    ) -> Self {
        let lane = setup.producer;
        let worker = WorkerProcess::new(recipe, settings, setup);
        Keeper { worker, lane, shared, has_state: false }
    }

    /// Starts the child if there is none, and has it call `producer_init`.
    fn make_state(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Error> {
        let since = now();
        let started = self.worker.start(interest);
        self.shared.note_init(now() - since);
        started?;
        self.has_state = true;
        self.shared.note_ready();
        Ok(())
    }

    /// Has the end of the run, and the end of each lease, ring the bell.
    fn listen_to(&self, run: &Run<R>) {
        self.worker.listen_to(&run.wanted.bells);
        self.worker.listen_to(&run.handover.dispatch.signals.bells);
    }

    fn readiness(&self) -> Readiness {
        match self.has_state {
            true => Readiness::Ready,
            false => Readiness::NeedsInit,
        }
    }

    fn lose_state(&mut self, run: &Run<R>) {
        if std::mem::take(&mut self.has_state) {
            run.handover.stats.state_lost(self.lane);
            self.shared.note_loss();
        }
    }

    fn lose_process(&mut self, run: &Run<R>) {
        self.worker.child = None;
        self.lose_state(run);
    }

    fn work_on_lease(
        &mut self,
        run: &Run<R>,
        mut lease: Lease,
        desk: &mut Desk<'_, R>,
        event_writer: &mut Option<EventWriter>,
    ) -> NextStep {
        // It may have ended since its last answer. That costs no attempt.
        if !self.worker.is_alive() {
            self.lose_process(run);
        }
        let producer = self.lane;
        if !self.has_state {
            let shared = self.shared.clone();
            let prepared = leasing::prepare_for(self, producer, &shared, run, &lease, desk);
            if let Err(next_step) = prepared {
                return next_step;
            }
        }
        let inputs = leasing::take_inputs(run, &mut lease, leasing::Clones::ToSpeculate, desk);
        let Some(inputs) = inputs else { return leasing::leave(run, producer) };
        if let Some(event_writer) = event_writer {
            event_writer.pause();
            event_writer.started_all(&lease.items, |item| run.name_of(item), lease.attempt);
        }
        let worked = self.worker.call(run, self.lane, &lease, &inputs);
        match &worked {
            Worked::Failed(error) if error.is_panic() => self.lose_state(run),
            Worked::Each(_) | Worked::Failed(_) => {}
            Worked::Crashed(_) => self.lose_process(run),
        }
        if let Some(event_writer) = event_writer {
            event_writer.finished_all(&lease.items);
        }
        desk.set_readiness(self.readiness());
        self.settle(run, &lease, inputs, worked, desk);
        leasing::leave(run, producer)
    }

    /// Reports the outcomes of a lease. The inputs of items that failed are kept for another attempt.
    fn settle(
        &self,
        run: &Run<R>,
        lease: &Lease,
        inputs: Vec<R::Input>,
        worked: Worked<R>,
        desk: &mut Desk<'_, R>,
    ) {
        let producer = self.lane;
        let mut inputs: Vec<_> = lease.items.iter().copied().zip(inputs).collect();
        let is_crash = matches!(worked, Worked::Crashed(_));
        let results = match worked {
            Worked::Each(results) => results,
            Worked::Failed(error) | Worked::Crashed(error) if lease.items.len() == 1 => {
                if is_crash && self.is_poison(run, lease) {
                    inputs.drain(..).for_each(drop_quietly);
                }
                vec![Err(error)]
            }
            Worked::Failed(error) | Worked::Crashed(error) => {
                let failed = settle::FailedBatch { error, kept: Inputs::Kept, inputs };
                for (item, fault) in settle::together(run, producer, lease, failed) {
                    settle::deliver(run, (item, Err(fault)), desk);
                }
                return;
            }
        };
        let is_last = lease.attempt > run.policy().retries;
        let mut spare = Vec::new();
        let mut kept = Vec::new();
        for ((item, input), result) in inputs.into_iter().zip(&results) {
            match result {
                Err(_) if !is_last || run.handover.dispatch.speculates() => {
                    kept.push((item, input));
                }
                _ => spare.push(input),
            }
        }
        run.handover.dispatch.keep_inputs(kept).into_iter().for_each(drop_quietly);
        if lease.attempt > 1 && (is_last || results.iter().any(Result::is_ok)) {
            lease.items.iter().for_each(|item| run.crashes.forget(*item));
        }
        settle::each(run, producer, lease, results, desk);
        spare.into_iter().for_each(drop_quietly);
    }

    /// Whether the item of a lease has ended too many processes to be tried again.
    fn is_poison(&self, run: &Run<R>, lease: &Lease) -> bool {
        let item = lease.items[0];
        let is_poison = run.crashes.note(item) >= POISON;
        if is_poison {
            run.crashes.forget(item);
        }
        is_poison
    }
}

impl<R: Runner> Backend<R> for Keeper<R> {
    fn start(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let kill_after = self.worker.settings.processes.kill_after;
        self.worker.hang_bell()?;
        self.worker.listen_to(&wanted.bells);
        self.make_state(&|| match wanted.gave_up_on(None) {
            true => Interest::Cancelled { kill_after },
            false => Interest::Wanted,
        })
    }

    fn take_lane(&mut self, lane: usize) {
        self.lane = lane;
    }

    fn is_ready(&self) -> bool {
        self.has_state
    }

    fn prepare(&mut self, run: &Run<R>, lease: Option<LeaseId>) -> Result<(), Error> {
        if self.has_state {
            return Ok(());
        }
        let producer = self.lane;
        self.worker.hang_bell()?;
        self.listen_to(run);
        let is_rebuilt = !self.shared.is_new();
        if is_rebuilt {
            run.handover.stats.rebuild_begins(producer);
        }
        let settings = self.worker.settings.clone();
        let prepared = self.make_state(&|| {
            let dispatch = &run.handover.dispatch;
            match () {
                () if dispatch.signals.is_abandoned(producer) => Interest::Abandoned,
                () if run.wanted.gave_up_on(None) => settings.cancelled(run),
                () if lease
                    .is_some_and(|id| dispatch.signals.flag(producer, Some(id)).is_set()) =>
                {
                    Interest::Revoked
                }
                () => Interest::Wanted,
            }
        });
        if is_rebuilt {
            run.handover.stats.rebuild_ends(producer);
        }
        if prepared.is_err() {
            self.shared.note_loss();
        }
        prepared
    }

    fn work_on(&mut self, run: &Run<R>) -> NextStep {
        self.listen_to(run);
        let producer = self.lane;
        let mut desk = ItemQueue::new(&run.handover, producer);
        let mut event_writer = run.event_log.writer(producer);
        let next_step = loop {
            desk.set_readiness(self.readiness());
            let Some(lease) = desk.next_lease() else { break leasing::leave(run, producer) };
            let next_step = self.work_on_lease(run, lease, &mut desk, &mut event_writer);
            if next_step != NextStep::On {
                break next_step;
            }
        };
        desk.leave();
        run.event_log.return_writer(producer, event_writer);
        next_step
    }

    fn end_in(&mut self, _: &Run<R>) -> Result<(), Error> {
        unreachable!("with child processes, `build` refuses to recycle states")
    }

    fn end(&mut self) -> Result<(), Error> {
        let (child, had_state) = (self.worker.child.take(), std::mem::take(&mut self.has_state));
        self.shared.note_end();
        let Some(mut child) = child.filter(|_| had_state) else { return Ok(()) };
        let producer = self.worker.setup.producer;
        if !child.is_alive() {
            tracing::warn!(producer, "a worker has ended by itself: {}", child.reap_gone());
            return Ok(());
        }
        let end = message::encode(Kind::End, usize::MAX, &());
        child.send(end.expect("an empty message can be encoded"));
        let call = self.worker.next_call();
        let (limit, bell) = (self.worker.settings.limits.end, self.worker.bell());
        let answer = wait_for_answer(&mut child, bell, call, limit, &|| Interest::Wanted);
        let (hook, site) = (Hook::ProducerEnd, site(&self.worker.setup, &[], None));
        let frame = match answer {
            Answer::Frame(frame) => frame,
            Answer::Died(source) => {
                return Err(Error::HookCrashed { hook, site: Box::new(site), source });
            }
            Answer::Damaged(source) => return Err(WorkerError::Frame { source }.into()),
            Answer::TimedOut => {
                let limit = limit.expect("only a limit is exceeded");
                return Err(Error::TimedOut { hook, site: Box::new(site), limit });
            }
        };
        if frame.kind != Kind::Bye {
            let source = out_of_turn(&frame);
            return Err(refusal(&frame).unwrap_or(WorkerError::Frame { source }).into());
        }
        let bye: Bye = message::decode(&frame).map_err(|source| WorkerError::Frame { source })?;
        child.reap(EXIT_WITHIN);
        match bye.failure {
            None => Ok(()),
            Some(failure) => Err(remote::error_of(&self.worker.recipe, (hook, site), failure)),
        }
    }
}

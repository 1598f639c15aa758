//! The keeper: the backend of one child process.

use std::sync::Arc;
use std::time::Duration;

use super::child::Child;
use super::frame::Kind;
use super::message::{self, Bye};
use super::recipe::Recipe;
use super::remote;
use super::shift::Shift;
use super::waiting::{Answer, Interest, wait_for_answer};
use super::worker_process::{KeeperSettings, WorkerProcess, out_of_turn, refusal};
use crate::backend::threads::producer::site;
use crate::backend::threads::run::Run;
use crate::backend::threads::shared::Shared;
use crate::backend::{Backend, NextStep};
use crate::base::Hook;
use crate::concurrency::now;
use crate::error::{Error, WorkerError};
use crate::runner::{ProducerSetup, Runner, Wanted};
use crate::scheduler::{LeaseId, Readiness};

/// How long a process that has said goodbye may take to end.
const EXIT_WITHIN: Duration = Duration::from_secs(2);

/// Keeps one child process, in which the hooks of one producer run.
pub(crate) struct Keeper<R: Runner> {
    pub(super) worker: WorkerProcess<R>,
    /// The lane on which it takes part in runs.
    pub(super) lane: usize,
    pub(super) shared: Shared,
    /// Whether the child has its state.
    pub(super) has_state: bool,
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
    pub(super) fn listen_to(&self, run: &Run<R>) {
        self.worker.listen_to(&run.wanted.bells);
        self.worker.listen_to(&run.handover.dispatch.bells);
    }

    pub(super) fn readiness(&self) -> Readiness {
        match self.has_state {
            true => Readiness::Ready,
            false => Readiness::NeedsInit,
        }
    }

    pub(super) fn lose_state(&mut self, run: &Run<R>) {
        if std::mem::take(&mut self.has_state) {
            run.handover.stats.state_lost(self.lane);
            self.shared.note_loss();
        }
    }

    pub(super) fn lose_process(&mut self, run: &Run<R>) {
        self.worker.child = None;
        self.lose_state(run);
    }

    /// The child that it sends items to.
    pub(super) fn child(&mut self) -> &mut Child {
        self.worker.child.as_mut().expect("a keeper has a child when it sends items")
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
                () if dispatch.is_abandoned(producer) => Interest::Abandoned,
                () if run.wanted.gave_up_on(None) => settings.cancelled(run),
                () if lease.is_some_and(|id| dispatch.flag(producer, Some(id)).is_set()) => {
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
        Shift::new(self, run).work()
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

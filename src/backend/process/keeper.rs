//! The keeper of one child process.

use std::sync::Arc;

use super::child::{Child, Traffic};
use super::recipe::Recipe;
use super::waiting::Interest;
use super::worker_process::{KeeperSettings, WorkerProcess};
use crate::backend::threads::run::Run;
use crate::backend::threads::shared::Shared;
use crate::concurrency::now;
use crate::error::Error;
use crate::observe::worker_report::WorkerReport;
use crate::runner::{ProducerSetup, Runner};
use crate::scheduler::Readiness;

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
    pub(super) fn make_state(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Error> {
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
        self.worker.listen_to(&run.handover.dispatch.signals.bells);
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
        self.note_worker(run, |_| {});
        self.worker.child = None;
        self.lose_state(run);
    }

    /// Adds to the figures of the run about the process.
    pub(super) fn note_worker(&mut self, run: &Run<R>, change: impl FnOnce(&mut WorkerReport)) {
        let child = self.worker.child.as_mut().map(|child| (child.pid(), child.take_traffic()));
        run.handover.stats.note_worker(self.lane, |worker| {
            if let Some((pid, Traffic { down, up })) = child {
                let before = worker.pid.replace(pid);
                worker.restarts += u64::from(before.is_some_and(|before| before != pid));
                worker.bytes_down += down;
                worker.bytes_up += up;
            }
            change(worker);
        });
    }

    /// The child that it sends items to.
    pub(super) fn child(&mut self) -> &mut Child {
        self.worker.child.as_mut().expect("a keeper has a child when it sends items")
    }
}

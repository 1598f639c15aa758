//! The keeper of one child process.

use std::sync::Arc;

use gangline_report::WorkerReport;
use gangline_scheduler::Readiness;

use super::child::{Child, Traffic};
use super::waiting::Interest;
use super::worker_process::{KeeperSettings, WorkerProcess};
use crate::backends::remote::item_codec::ItemCodec;
use crate::concurrency::now;
use crate::error::Error;
use crate::producers::lifetime::Lifetime;
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::runner::ProducerSetup;

/// Keeps one child process, in which the hooks of one producer run.
pub(crate) struct Keeper<I, T> {
    pub(super) worker: WorkerProcess<I, T>,
    pub(super) shared: Shared,
    /// Whether the child has its state.
    pub(super) has_state: bool,
    pub(super) lifetime: Lifetime,
}

impl<I, T> Keeper<I, T> {
    /// A keeper without a child: `start` starts it.
    pub(crate) fn new(
        codec: ItemCodec<I, T>,
        settings: Arc<KeeperSettings>,
        setup: ProducerSetup,
        shared: Shared,
    ) -> Self {
        let worker = WorkerProcess::new(codec, settings, setup);
        Keeper { worker, shared, has_state: false, lifetime: Lifetime::new() }
    }

    pub(super) fn producer(&self) -> usize {
        self.worker.setup.producer
    }

    /// Starts the child if there is none, and has it call `producer_init`.
    pub(super) fn make_state(&mut self, interest: &dyn Fn() -> Interest) -> Result<(), Error> {
        let since = now();
        let started = self.worker.start(interest);
        self.shared.note_init(now() - since);
        started?;
        self.has_state = true;
        self.lifetime.worked = 0;
        self.shared.note_ready();
        Ok(())
    }

    /// Has the wish that all producers end ring the bell, which is made if there is none.
    pub(super) fn hang_bell(&mut self) -> Result<(), Error> {
        self.worker.hang_bell()?;
        self.worker.listen_to(self.shared.terminating());
        Ok(())
    }

    /// Has the end of the run, and the end of each lease, ring the bell.
    pub(super) fn listen_to(&self, run: &Run<I, T>) {
        self.worker.listen_to(&run.wanted.bells);
        self.worker.listen_to(&run.handover.dispatch.signals.bells);
    }

    /// How many more items the state may see.
    pub(super) fn life_left(&self, run: &Run<I, T>) -> u64 {
        self.lifetime.span(run, &self.worker.setup).saturating_sub(self.lifetime.worked)
    }

    /// Whether `recycle_after` asks for another process before the next item.
    pub(super) fn is_due(&self, run: &Run<I, T>) -> bool {
        self.has_state && self.lifetime.is_over(run, &self.worker.setup)
    }

    pub(super) fn readiness(&self) -> Readiness {
        match self.has_state {
            true => Readiness::Ready,
            false => Readiness::NeedsInit,
        }
    }

    /// Notes that the child has no state any more, as after a panic.
    pub(super) fn lose_state(&mut self, run: &Run<I, T>) {
        if std::mem::take(&mut self.has_state) {
            run.handover.stats.state_lost(self.producer());
            self.shared.note_loss();
        }
    }

    /// Drops the child, which kills it if it runs, and notes that its state is gone.
    pub(super) fn lose_process(&mut self, run: &Run<I, T>) {
        self.note_worker(run, |_| {});
        self.worker.child = None;
        self.lose_state(run);
    }

    /// Adds to the figures of the run about the process.
    pub(super) fn note_worker(&mut self, run: &Run<I, T>, change: impl FnOnce(&mut WorkerReport)) {
        let child = self.worker.child.as_mut().map(|child| (child.pid(), child.take_traffic()));
        run.handover.stats.note_worker(self.producer(), |worker| {
            if let Some((pid, Traffic { down, up })) = child {
                worker.producers = 1;
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

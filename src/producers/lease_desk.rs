//! What a backend of another crate does in a run with the leases of one producer.

use std::sync::Arc;

use gangline_scheduler::{Lease, LeaseId, Next, Readiness, RunTime, Scheduler};

use crate::base::panic::drop_quietly;
use crate::concurrency::bell::Bell;
use crate::error::Error;
use crate::producers::seat_record::SeatRecord;
use crate::run::Run;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::settle;

/// The desk at which a backend leases items of a run for one producer, and settles them.
///
/// Each lease that it gives is ended once: it is [settled](LeaseDesk::settle) with an outcome, or
/// [released](LeaseDesk::release) if no hook has begun it. Ending a lease a second time, or one that the scheduler has
/// revoked meanwhile, changes nothing. All methods are called on the producer's own thread.
pub struct LeaseDesk<'a, I, T> {
    run: &'a Run<I, T>,
    producer: usize,
    queue: ItemQueue<'a, I, T>,
}

impl<'a, I, T> LeaseDesk<'a, I, T> {
    /// A desk for a producer. `readiness` says whether its state is there before it gets a lease.
    pub fn new(run: &'a Run<I, T>, producer: usize, readiness: Readiness) -> Self {
        let mut queue = ItemQueue::new(&run.handover, producer);
        queue.set_readiness(readiness);
        LeaseDesk { run, producer, queue }
    }

    /// A bell that wakes the producer where it [sleeps](LeaseDesk::sleep). It rings too when a lease is revoked, and when
    /// items are not wanted any more.
    pub fn bell(&self) -> Arc<dyn Bell> {
        let signals = &self.run.handover.dispatch.signals;
        let bell = signals.bell(self.producer);
        signals.bells.add(&bell);
        self.run.wanted.bells.add(&bell);
        bell
    }

    /// Asks for a lease, without waiting. With `Wait`, the producer is woken once there is one.
    pub fn try_lease(&self) -> Next {
        self.queue.try_lease()
    }

    /// Withdraws the request for a lease.
    pub fn stop_waiting(&self) {
        self.run.handover.dispatch.stop_waiting(self.producer);
    }

    /// Takes the inputs of a lease. `None` if the lease is over; then it is released.
    pub fn take_inputs(&self, lease: &Lease) -> Option<Vec<I>> {
        let inputs = self.run.handover.dispatch.take_inputs(lease);
        if inputs.is_none() {
            self.release(lease.id);
        }
        inputs
    }

    /// Keeps inputs, with their indices, for further attempts and copies of their items.
    pub fn keep_inputs(&self, inputs: Vec<(u64, I)>) {
        self.run.handover.dispatch.keep_inputs(inputs).into_iter().for_each(drop_quietly);
    }

    /// Gives a lease back without an attempt.
    pub fn release(&self, lease: LeaseId) {
        self.run.handover.dispatch.release(lease);
    }

    /// Ends a lease of one item with the outcome of its hook.
    pub fn settle(&mut self, lease: &Lease, worked: Result<T, Error>) {
        if lease.attempt > 1 && worked.is_ok() {
            self.run.crashes.forget(lease.items[0]);
        }
        settle::one(self.run, self.producer, lease, worked, &mut self.queue);
    }

    /// Counts a process that an item has ended, before its lease is settled. After too many, the item is not tried again:
    /// its kept input is dropped.
    pub fn note_crash(&self, item: u64) {
        if self.run.crashes.is_poison(item) {
            let dispatch = &self.run.handover.dispatch;
            let (spare, _) = dispatch.schedule(|state, _| state.inputs.remove(item));
            spare.into_iter().for_each(drop_quietly);
        }
    }

    /// Calls the scheduler, under its lock, and heeds what it decides.
    pub fn schedule<V>(&self, call: impl FnOnce(&mut Scheduler, RunTime) -> V) -> V {
        let dispatch = &self.run.handover.dispatch;
        let (value, events) = dispatch.schedule(|state, now| call(&mut state.scheduler, now));
        self.run.heed(events);
        value
    }

    /// Whether slow items get second copies.
    pub fn speculates(&self) -> bool {
        self.run.handover.dispatch.speculates()
    }

    /// Sleeps until the bell rings or there is a lease, at most until `until`. The producer lacks items.
    pub fn sleep_for_lease(&mut self, until: Option<RunTime>) {
        self.queue.sleep_for_lease(until, None);
    }

    /// Sleeps until the bell rings, at most until `until`. The producer waits for something else than items.
    pub fn sleep(&self, until: Option<RunTime>) {
        self.run.handover.dispatch.sleep(self.producer, until);
    }

    /// Whether the run waits for nothing of this producer any more.
    pub fn is_abandoned(&self) -> bool {
        self.run.handover.dispatch.signals.is_abandoned(self.producer)
    }

    /// Whether the run is over, or about to end.
    pub fn is_over(&self) -> bool {
        self.run.is_over()
    }

    /// Ends the run, with this error if it has none yet.
    pub fn abort_with(&self, error: Error) {
        self.run.abort_with(error);
    }

    /// Ends the run.
    pub fn abort(&self) {
        self.run.abort();
    }

    /// The key of an item, if keys are in use.
    pub fn key_of(&self, item: u64) -> Option<Arc<str>> {
        self.run.name_of(item)
    }

    /// Where the times and the attempts of the producer are recorded.
    pub fn record(&self) -> SeatRecord<'a> {
        SeatRecord::new(self.producer, &self.run.handover.stats, &self.run.event_log)
    }

    /// Leaves the run. The producer holds no lease.
    pub fn leave(self) {
        self.queue.leave();
    }
}

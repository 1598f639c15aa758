//! The run's scheduler behind a lock, with the inputs of tracked items.

use gangline_scheduler::ahead;
use gangline_scheduler::batch::{Batching, ChosenSize, DeviceBatches, Size};
use gangline_scheduler::expansion;
use gangline_scheduler::window::largest_batch;
use gangline_scheduler::{
    Activity, Bypass, Config, CopyCounts, Lease, LeaseId, Meta, Next, Priority, ProducerId,
    Readiness, RunTime, Scheduler, SchedulerEvent, Until, copies,
};

use crate::concurrency::atomic::{AtomicUsize, Ordering};
use crate::concurrency::{Mutex, lock};
use crate::run::handover::inputs::KeptInputs;
use crate::run::handover::signals::{Pending, Signals, Tracking};
use crate::run::run_clock::RunClock;
use crate::run::run_shape::CarriedOver;

/// The scheduler, and the state that its backend needs beside it.
#[derive(Debug)]
pub(crate) struct Dispatch<I> {
    state: Mutex<Tracked<I>>,
    /// How producers learn what the scheduler has decided.
    pub(crate) signals: Signals,
    speculates: bool,
    /// How producers form batches; `None` if they take single items.
    pub(super) batching: Option<Batching>,
    /// The number of items in the largest batch that a producer may soon take. The window follows it.
    largest_batch: AtomicUsize,
    pub(crate) clock: RunClock,
}

/// The state under the lock.
#[derive(Debug)]
pub(crate) struct Tracked<I> {
    pub(crate) scheduler: Scheduler,
    /// Inputs of items that no hook has, and copies of inputs that a hook has.
    pub(crate) inputs: KeptInputs<I>,
}

impl<I> Tracked<I> {
    /// Takes the inputs of all items, or none.
    fn take_inputs(&mut self, items: &[u64]) -> Option<Vec<I>> {
        let are_here = items.iter().all(|&item| self.inputs.has(item));
        are_here.then(|| items.iter().filter_map(|&item| self.inputs.take(item)).collect())
    }

    /// Keeps an input for another lease of its item. Returns a surplus one, and that of a settled item: nothing
    /// would take it out again.
    pub(crate) fn keep(&mut self, index: u64, input: I) -> Option<I> {
        if self.scheduler.items().is_settled(index) {
            return Some(input);
        }
        self.inputs.insert(index, input, self.scheduler.items().carriers(index))
    }
}

impl<I> Dispatch<I> {
    pub(super) fn new(config: Config, earlier: CarriedOver) -> Self {
        let CarriedOver { learned, lost, away, starting } = earlier;
        let (producers, speculates) = (config.producers, config.copy_after.is_some());
        let batching = config.batching;
        let tracking = tracking(&config);
        let clock = RunClock::new();
        let mut scheduler = Scheduler::new(config, learned, clock.now());
        lost.into_iter().for_each(|producer| scheduler.exclude(producer, Until::RunEnds));
        away.into_iter().for_each(|producer| scheduler.exclude(producer, Until::Joined));
        starting.into_iter().for_each(|producer| scheduler.exclude(producer, Until::Ready));
        Dispatch {
            batching,
            largest_batch: AtomicUsize::new(largest_batch(&scheduler)),
            state: Mutex::new(Tracked { scheduler, inputs: KeptInputs::default() }),
            signals: Signals::new(producers, tracking),
            speculates,
            clock,
        }
    }

    pub(crate) fn tracking(&self) -> Tracking {
        self.signals.tracking
    }

    /// Sleeps until the producer is woken, at most until `until`.
    pub(crate) fn sleep(&self, producer: ProducerId, until: Option<RunTime>) {
        self.signals.sleep(producer, until, &self.clock);
    }

    /// Takes all inputs that are left.
    pub(super) fn drain(&self) -> Vec<I> {
        let mut state = self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        state.inputs.remove_from(0)
    }
}

impl<I> Dispatch<I> {
    /// Calls the scheduler and wakes the producers that it names. Returns all other events to the caller.
    pub(crate) fn schedule<V>(
        &self,
        call: impl FnOnce(&mut Tracked<I>, RunTime) -> V,
    ) -> (V, Vec<SchedulerEvent>) {
        self.schedule_at(self.clock.now(), call)
    }

    pub(crate) fn schedule_at<V>(
        &self,
        now: RunTime,
        call: impl FnOnce(&mut Tracked<I>, RunTime) -> V,
    ) -> (V, Vec<SchedulerEvent>) {
        let mut state = lock(&self.state);
        let value = call(&mut state, now);
        if self.has_chosen_sizes() {
            self.largest_batch.store(largest_batch(&state.scheduler), Ordering::Relaxed);
        }
        let Pending { wakes, events } = self.signals.pass_on(&mut state.scheduler);
        drop(state);
        self.signals.wake_all(&wakes);
        (value, events)
    }

    /// [Calls](Dispatch::schedule) the scheduler for what causes no events but wake-ups.
    fn schedule_quietly<V>(&self, call: impl FnOnce(&mut Tracked<I>, RunTime) -> V) -> V {
        let (value, events) = self.schedule(call);
        debug_assert!(events.is_empty(), "{events:?}");
        value
    }

    /// Calls what causes no event and needs no time.
    fn with_state<V>(&self, call: impl FnOnce(&mut Tracked<I>) -> V) -> V {
        call(&mut lock(&self.state))
    }

    pub(super) fn offer(&self, index: u64, item: I, size: Size) {
        self.schedule_quietly(|state, now| {
            state.inputs.insert(index, item, 1);
            let meta = Meta { size, since: now, priority: Priority::Normal };
            state.scheduler.offer(index, meta, now);
        });
    }

    pub(super) fn lease(&self, producer: ProducerId, readiness: Readiness) -> Next {
        self.schedule_quietly(|state, now| state.scheduler.lease(producer, readiness, now))
    }

    pub(super) fn lease_ahead(&self, producer: ProducerId, most: usize) -> Vec<(Lease, Vec<I>)> {
        self.schedule_quietly(|state, now| {
            let leases = ahead::lease_ahead(&mut state.scheduler, producer, most, now);
            let mut leased = Vec::with_capacity(leases.len());
            for lease in leases {
                match state.take_inputs(&lease.items) {
                    Some(inputs) => leased.push((lease, inputs)),
                    // Some inputs are not wanted any more: see `take_inputs`.
                    None => state.scheduler.release(lease.id, now),
                }
            }
            leased
        })
    }

    /// Withdraws the producer's request for a lease: it has found an item by itself.
    pub(crate) fn stop_waiting(&self, producer: ProducerId) {
        self.schedule_quietly(|state, now| state.scheduler.stop_waiting(producer, now));
    }

    /// Makes the scheduler track the item, leased to the producer.
    pub(super) fn track(
        &self,
        (index, item): (u64, I),
        producer: ProducerId,
        readiness: Readiness,
    ) -> Lease {
        self.schedule_quietly(|state, now| {
            state.inputs.insert(index, item, 1);
            state.scheduler.track(index, producer, readiness, now)
        })
    }

    /// Takes the inputs of a lease. `None` if some are not wanted any more, or if the lease has expired: the next
    /// lease of these items needs them, and would be granted again and again without them.
    pub(crate) fn take_inputs(&self, Lease { id, items, .. }: &Lease) -> Option<Vec<I>> {
        self.with_state(|state| {
            state.scheduler.leases().is_held(*id).then(|| state.take_inputs(items)).flatten()
        })
    }

    /// Keeps these inputs for other leases of their items, and returns the surplus ones.
    pub(crate) fn keep_inputs(&self, inputs: Vec<(u64, I)>) -> Vec<I> {
        self.with_state(|state| {
            inputs.into_iter().filter_map(|(index, input)| state.keep(index, input)).collect()
        })
    }

    /// Gives up all items from `index` on, and returns their inputs.
    pub(crate) fn give_up_from(&self, index: u64) -> Vec<I> {
        self.schedule_quietly(|state, _| {
            state.scheduler.give_up_from(index);
            state.inputs.remove_from(index)
        })
    }

    pub(crate) fn release(&self, lease: LeaseId) {
        self.schedule_quietly(|state, now| state.scheduler.release(lease, now));
    }

    pub(super) fn abort_schedule(&self) {
        self.schedule_quietly(|state, _| state.scheduler.abort());
        // A producer without a worker has asked for nothing, so the scheduler does not wake it.
        self.signals.bells.ring();
    }

    /// Tells the scheduler that the input has ended.
    pub(super) fn note_input_end(&self) {
        if self.signals.tracking == Tracking::All {
            self.schedule_quietly(|state, now| state.scheduler.input_ended(now));
        }
    }

    /// Makes all retries due at once.
    pub(crate) fn end_backoff(&self) {
        self.schedule_quietly(|state, now| state.scheduler.end_backoff(now));
    }

    /// Tells the scheduler that items before this index are not to wait for later ones.
    pub(crate) fn hurry(&self, below: u64) {
        if self.signals.tracking == Tracking::All {
            self.schedule_quietly(|state, now| expansion::hurry(&mut state.scheduler, below, now));
        }
    }

    pub(super) fn note_feeder(&self, activity: Activity) {
        if self.signals.tracking == Tracking::All {
            self.schedule_quietly(|state, now| state.scheduler.feeder(activity, now));
        }
    }

    pub(super) fn note_consumer(&self, activity: Activity) {
        if self.speculates {
            self.schedule_quietly(|state, now| state.scheduler.consumer(activity, now));
        }
    }

    /// Whether producers start second copies of slow items.
    pub(crate) fn speculates(&self) -> bool {
        self.speculates
    }

    pub(crate) fn is_live(&self, producer: ProducerId) -> bool {
        self.with_state(|state| state.scheduler.health().is_live(producer))
    }

    /// Whether a producer has to ask the scheduler before it takes new items.
    pub(crate) fn is_careful(&self, producer: ProducerId) -> bool {
        self.with_state(|state| {
            state.scheduler.health().is_suspect(producer)
                || !state.scheduler.health().may_take_new(producer)
        })
    }

    pub(super) fn has_retries(&self) -> bool {
        self.with_state(|state| state.scheduler.has_retries())
    }

    pub(super) fn may_take_new(&self, producer: ProducerId) -> bool {
        self.with_state(|state| state.scheduler.health().may_take_new(producer))
    }

    /// Whether the result of the hook that the producer is in no longer counts.
    pub(crate) fn is_detached(&self, producer: ProducerId) -> bool {
        self.with_state(|state| state.scheduler.is_detached(producer))
    }

    /// What is learned about batches, for each place.
    pub(crate) fn learned(&self) -> Vec<DeviceBatches> {
        self.with_state(|state| state.scheduler.learned().to_vec())
    }

    /// The copies of slow calls so far.
    pub(crate) fn copies(&self) -> CopyCounts {
        self.with_state(|state| copies(&state.scheduler))
    }

    /// The batch size that was chosen for a producer, if sizes are chosen.
    pub(crate) fn chosen_size(&self, producer: ProducerId) -> Option<ChosenSize> {
        let batching = self.batching?;
        self.with_state(|state| batching.chosen(&state.scheduler.learned()[producer]))
    }

    /// The number of items in the largest batch that a producer may soon take.
    pub(super) fn largest_batch(&self) -> usize {
        self.largest_batch.load(Ordering::Relaxed)
    }

    /// Whether batch sizes are chosen while the run goes on.
    pub(super) fn has_chosen_sizes(&self) -> bool {
        self.batching.is_some_and(|batching| batching.rule.is_chosen())
    }
}

fn tracking(config: &Config) -> Tracking {
    // The deadline of an item is that of its lease.
    let is_timed = config.timeouts.item.is_some();
    let needs_leases = config.bypass == Bypass::Never;
    let is_grouped = config.batching.is_some() || config.copy_after.is_some();
    if is_timed || needs_leases || is_grouped { Tracking::All } else { Tracking::Failed }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::time::Duration;

    use gangline_scheduler::batch::Batch;
    use gangline_scheduler::{Copies, Inputs, Memory};

    use super::*;
    use crate::base::Order;
    use crate::policy::{Policy, Stragglers};
    use crate::run::run_settings::RunSettings;
    use crate::run::run_shape::{RunKind, RunShape};

    /// A producer learns that it was abandoned only after its lease has expired. If its rebuild fails in
    /// between, it drops the inputs of its lease.
    #[test]
    fn an_expired_lease_does_not_take_the_inputs_of_the_next() {
        let batching = Some(Batching::new(Batch::up_to(2)));
        let shape = RunShape {
            order: Order::Input,
            producers: 2,
            window: 4,
            batching,
            kind: Default::default(),
        };
        let config = RunSettings::<u64, u64>::default().scheduling(&shape);
        let dispatch = Dispatch::<u64>::new(config, CarriedOver::nothing(2));
        (0..2).for_each(|index| dispatch.offer(index, index, Size::ONE));
        let lease = |producer| match dispatch.lease(producer, Readiness::NeedsInit) {
            Next::Work(lease) => lease,
            other => panic!("{other:?}"),
        };
        let expired = lease(0);
        let (lost, _) = dispatch.schedule(|state, now| state.scheduler.producer_lost(0, now));
        assert_eq!(lost, Ok(()));
        assert_eq!(dispatch.take_inputs(&expired), None);
        assert_eq!(dispatch.take_inputs(&lease(1)), Some(vec![0, 1]));
    }

    /// A caller goes away while a producer has its item. The producer then used to keep the input for a lease that
    /// never came.
    #[test]
    fn the_input_of_a_withdrawn_item_is_not_kept() {
        let batching = Some(Batching::new(Batch::up_to(2)));
        let shape = RunShape {
            order: Order::Input,
            producers: 1,
            window: 4,
            batching,
            kind: RunKind::Service,
        };
        let config = RunSettings::<u64, u64>::default().scheduling(&shape);
        let dispatch = Dispatch::<u64>::new(config, CarriedOver::nothing(1));
        (0..2).for_each(|index| dispatch.offer(index, index, Size::ONE));
        let Next::Work(lease) = dispatch.lease(0, Readiness::Ready) else { panic!("both wait") };
        assert_eq!(dispatch.take_inputs(&lease), Some(vec![0, 1]));
        dispatch.schedule(|state, now| state.scheduler.withdraw(&[0], now));
        assert_eq!(dispatch.keep_inputs(vec![(0, 0), (1, 1)]), [0], "surplus");
        assert_eq!(dispatch.drain(), [1]);
    }

    /// Two producers work on copies of a batch, and both fail it. While the first clones the input of its part,
    /// the second used to find none, and gave up its own.
    #[test]
    fn each_copy_of_a_failed_batch_has_inputs_of_its_own() {
        let batching = Some(Batching::new(Batch::up_to(2)));
        let shape = RunShape {
            order: Order::Input,
            producers: 2,
            window: 4,
            batching,
            kind: Default::default(),
        };
        let policy = Policy { stragglers: Stragglers::Copy, ..Policy::default() };
        let settings = RunSettings::<u64, u64> { policy, ..RunSettings::default() };
        let dispatch = Dispatch::<u64>::new(settings.scheduling(&shape), CarriedOver::nothing(2));
        (0..2).for_each(|index| dispatch.offer(index, index, Size::ONE));
        dispatch.note_input_end();
        dispatch.note_consumer(Activity::Waiting);
        let lease = |producer, now| {
            let ask = |state: &mut Tracked<_>, now| {
                state.scheduler.lease(producer, Readiness::Ready, now)
            };
            match dispatch.schedule_at(now, ask).0 {
                Next::Work(lease) => lease,
                other => panic!("{other:?}"),
            }
        };
        let take = |lease: &Lease| {
            let inputs = dispatch.take_inputs(lease).expect("they are there");
            lease.items.iter().copied().zip(inputs).collect::<Vec<_>>()
        };
        let split = |lease: &Lease, inputs: Vec<(u64, u64)>| {
            dispatch.schedule(|state, now| {
                state.scheduler.fail_together(lease.id, Inputs::Kept, Memory::Sufficient, now);
                inputs.into_iter().for_each(|(index, input)| _ = state.keep(index, input));
            });
        };
        let whole = lease(0, RunTime::START);
        let inputs = take(&whole);
        dispatch.keep_inputs(inputs.clone());
        dispatch.schedule(|state, now| state.scheduler.begin(whole.id, Copies::Kept, now));
        let copy = lease(1, RunTime::START.after(Duration::from_secs(60)));
        let of_copy = take(&copy);
        dispatch.keep_inputs(of_copy.clone());
        split(&whole, inputs);
        split(&copy, of_copy);
        let (first, second) = (lease(0, RunTime::START), lease(1, RunTime::START));
        assert_eq!((&first.items[..], &second.items[..]), (&[0][..], &[0][..]));
        assert_eq!((take(&first), take(&second)), (vec![(0, 0)], vec![(0, 0)]));
    }
}

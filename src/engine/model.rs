//! Models of the hand-over: every party runs on a thread of its own, under thousands of schedules. A lost
//! wake-up shows as a deadlock, and a permit counted twice as an exceeded window.
//!
//! `RUSTFLAGS="--cfg shuttle" cargo test -p gangline --lib model` runs them.

mod batches;
mod gaps;
mod memory;
mod parts;
mod races;
mod slow_head;
mod stages;
mod stale;
mod trials;

use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::Backoff;
use gangline_scheduler::batch::{Batch, Batching, Size};
use gangline_scheduler::window::Window;
use gangline_scheduler::{FailureFacts, FailureVerdict, Inputs, Lease, Outcome};
use shuttle::scheduler::{PctScheduler, RandomScheduler};
use shuttle::sync::Mutex;
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread::{self, JoinHandle};

use super::collector::Collector;
use crate::base::Order;
use crate::concurrency::now;
use crate::error::Error;
use crate::policy::Policy;
use crate::run::handover::feeder::Feeder;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::handover::item_queue::NextItem;
use crate::run::handover::shared_budget::{Bounded, MemoryBound, StageBudget, share_budget};
use crate::run::handover::{Handover, WakeReason};
use crate::run::measures::Measured;
use crate::run::no_output::NoOutput;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::CarriedOver;
use crate::run::run_shape::RunShape;

/// The schedules of each kind that most models are run under.
const SCHEDULES: usize = 2_500;

/// The bytes of a thread's stack. Shuttle's own 32 KiB are too few where the compiler inlines less.
const STACK: usize = 128 << 10;

type Hub = Handover<u64, u64>;

pub(super) fn check(model: impl Fn() + Send + Sync + Clone + 'static) {
    explore(SCHEDULES, model);
}

/// Runs a model under random schedules, and under as many that change threads seldom. `MODEL_TIMES` multiplies
/// their number, for a machine that has a night.
pub(crate) fn explore(schedules: usize, model: impl Fn() + Send + Sync + Clone + 'static) {
    let times = std::env::var("MODEL_TIMES").map_or(1, |times| {
        times.parse().expect("MODEL_TIMES is the number by which schedules are multiplied")
    });
    let mut config = shuttle::Config::default();
    config.stack_size = STACK;
    let random = RandomScheduler::new(schedules * times);
    shuttle::Runner::new(random, config.clone()).run(model.clone());
    shuttle::Runner::new(PctScheduler::new(3, schedules * times), config).run(model);
}

fn hub(producers: usize, window: usize, batching: Option<Batching>) -> Hub {
    hub_with(Policy::default(), producers, window, batching)
}

fn hub_with(policy: Policy, producers: usize, window: usize, batching: Option<Batching>) -> Hub {
    let run_settings = RunSettings { policy, ..RunSettings::default() };
    hub_of(&run_settings, producers, window, batching)
}

fn hub_of(
    run_settings: &RunSettings<u64, u64>,
    producers: usize,
    window: usize,
    batching: Option<Batching>,
) -> Hub {
    let kind = Default::default();
    let shape = RunShape { order: Order::Input, producers, window, batching, kind };
    Hub::new(run_settings.scheduling(&shape), CarriedOver::nothing(producers))
}

fn inputs_of(hub: &Hub, lease: &Lease) -> Vec<u64> {
    hub.dispatch.take_inputs(lease).expect("they are wanted")
}

fn finish(hub: &Hub, lease: &Lease, outcomes: &[Outcome]) {
    hub.dispatch.schedule(|state, now| state.scheduler.finish(lease.id, outcomes, now));
}

/// Queues a retry of an item that a producer has failed.
fn try_again(hub: &Hub, seq: u64, item: u64) {
    let failure = FailureFacts { verdict: FailureVerdict::Retry, inputs: Inputs::Copied };
    hub.dispatch.schedule(|state, now| {
        state.inputs.insert(seq, item, 1);
        state.scheduler.decide(&[seq], failure, now);
    });
}

fn producers(hub: &Arc<Hub>, count: usize) -> Vec<JoinHandle<u64>> {
    let produce = |lane| {
        let hub = hub.clone();
        thread::spawn(move || {
            let mut item_queue = ItemQueue::new(&hub, lane);
            let mut worked = 0;
            let mut next = item_queue.next();
            while let Some(NextItem::Untracked(seq, item)) = next {
                worked += 1;
                next = item_queue.deliver_and_next(seq, Ok(item * 10));
            }
            worked
        })
    };
    (0..count).map(produce).collect()
}

/// Like [`producers`], with batches.
fn batch_producers(hub: &Arc<Hub>, count: usize, batching: Batching) -> Vec<JoinHandle<u64>> {
    let produce = |lane| {
        let hub = hub.clone();
        thread::spawn(move || {
            let mut item_queue = ItemQueue::new(&hub, lane);
            let mut worked = 0;
            while let Some(lease) = item_queue.next_lease() {
                assert!((1..=batching.rule.most()).contains(&lease.items.len()));
                // The run may have been aborted after the lease.
                let Some(inputs) = hub.dispatch.take_inputs(&lease) else { continue };
                finish(&hub, &lease, &vec![Outcome::Succeeded; inputs.len()]);
                for (seq, item) in lease.items.into_iter().zip(inputs) {
                    worked += 1;
                    item_queue.deliver(seq, Ok(item * 10));
                }
            }
            worked
        })
    };
    (0..count).map(produce).collect()
}

fn acquire(feeder: &mut Feeder<u64, u64>, hub: &Hub) -> bool {
    feeder.wait_for_permit(hub) && feeder.spend(hub)
}

/// Gives out `items` items and ends the input. Returns the number given out.
fn feed(hub: &Hub, items: u64, given: &AtomicU64) -> u64 {
    let mut feeder = Feeder::new(hub);
    let mut seq = 0;
    while seq < items && acquire(&mut feeder, hub) {
        given.fetch_add(1, Ordering::SeqCst);
        feeder.push(hub, seq);
        seq += 1;
    }
    hub.end(seq);
    seq
}

/// Consumes everything and returns it in the order of consumption. Ends early if the run is aborted.
fn collect(
    hub: &Hub,
    order: Order,
    window: Window,
    given: &AtomicU64,
    stop_after: u64,
) -> Vec<u64> {
    let mut collector = Collector::new(hub, order, window, now());
    let mut consumed = Vec::new();
    let mut total = None;
    while (consumed.len() as u64) < stop_after {
        if let Some((seq, result)) = collector.pop() {
            assert_eq!(result.unwrap(), seq * 10);
            let out = given.load(Ordering::SeqCst) - consumed.len() as u64;
            assert!(window.may_grow() || out <= window.size() as u64, "{out} items are out");
            consumed.push(seq);
            collector.done(hub);
            continue;
        }
        total = total.or_else(|| hub.total());
        if total == Some(collector.consumed()) {
            break;
        }
        collector.settle(hub);
        if collector.wait(&hub, total, None) == WakeReason::Aborted {
            break;
        }
    }
    hub.abort();
    consumed
}

fn run(order: Order, count: usize, window: usize, items: u64) {
    let hub = Arc::new(hub(count, window, None));
    let threads = producers(&hub, count);
    run_with(&hub, threads, order, window, items);
}

/// A hub whose items may take so much in memory.
struct BoundedHub {
    hub: Arc<Hub>,
    most: u64,
}

impl Bounded for BoundedHub {
    fn memory_bound(&self) -> Option<MemoryBound> {
        Some(MemoryBound { most: self.most, at_work: self.hub.at_work(), least: 1 })
    }

    fn share(&self, budget: StageBudget) {
        self.hub.permits.share(budget);
    }

    fn look_for_room(&self) {
        self.hub.permits.look_for_room();
    }
}

/// Runs items that take 1, 2, 3, 1, 2, ... bytes with a bound of 3 for those in flight.
fn run_bounded(count: usize, window: usize, items: u64) {
    let hub = Arc::new(hub(count, window, None));
    let bounded: Arc<dyn Bounded> = Arc::new(BoundedHub { hub: hub.clone(), most: 3 });
    share_budget(std::slice::from_ref(&bounded));
    let threads = producers(&hub, count);
    let measured = |seq| Measured { size: Size::ONE, bytes: 1 + seq % 3 };
    run_measured(&hub, threads, window, items, measured);
}

fn run_measured(
    hub: &Arc<Hub>,
    threads: Vec<JoinHandle<u64>>,
    window: usize,
    items: u64,
    measured: impl Fn(u64) -> Measured,
) {
    let given = Arc::new(AtomicU64::new(0));
    let consumer = {
        let (hub, given) = (hub.clone(), given.clone());
        let window = Window::fixed(window);
        thread::spawn(move || collect(&hub, Order::Input, window, &given, u64::MAX))
    };
    let mut feeder = Feeder::new(hub);
    for seq in 0..items {
        assert!(acquire(&mut feeder, hub));
        given.fetch_add(1, Ordering::SeqCst);
        feeder.push_measured(hub, seq, measured(seq));
    }
    assert_eq!(feeder.clear(hub), None);
    hub.end(items);
    assert_eq!(consumer.join().unwrap(), (0..items).collect::<Vec<_>>());
    assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), items);
}

fn run_with(
    hub: &Arc<Hub>,
    threads: Vec<JoinHandle<u64>>,
    order: Order,
    window: usize,
    items: u64,
) {
    let given = Arc::new(AtomicU64::new(0));
    let consumer = {
        let (hub, given) = (hub.clone(), given.clone());
        thread::spawn(move || collect(&hub, order, Window::fixed(window), &given, u64::MAX))
    };
    assert_eq!(feed(hub, items, &given), items);
    let mut consumed = consumer.join().unwrap();
    if order == Order::Completion {
        consumed.sort_unstable();
    }
    assert_eq!(consumed, (0..items).collect::<Vec<_>>(), "everything once, in order");
    assert_eq!(threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>(), items);
}

#[test]
fn serial() {
    check(|| run(Order::Input, 1, 1, 3));
}

#[test]
fn window_of_one_with_two_producers() {
    check(|| run(Order::Input, 2, 1, 3));
}

#[test]
fn ordered() {
    check(|| run(Order::Input, 2, 3, 6));
}

#[test]
fn unordered() {
    check(|| run(Order::Completion, 2, 3, 6));
}

#[test]
fn items_taken_together_are_stolen_back() {
    check(|| run(Order::Completion, 3, 8, 8));
}

#[test]
fn a_window_that_is_bounded_in_memory() {
    check(|| run_bounded(2, 4, 6));
}

#[test]
fn without_input() {
    check(|| run(Order::Input, 2, 2, 0));
}

/// The first item is held until all others were consumed. A producer that took others with it must lose them
/// to the other producer.
#[test]
fn a_slow_item_keeps_back_none_of_its_neighbours() {
    check(|| {
        let hub = Arc::new(hub(2, 5, None));
        let others = Arc::new((Mutex::new(0), shuttle::sync::Condvar::new()));
        let produce = |lane| {
            let (hub, others) = (hub.clone(), others.clone());
            thread::spawn(move || {
                let mut item_queue = ItemQueue::new(&hub, lane);
                let mut next = item_queue.next();
                while let Some(NextItem::Untracked(seq, item)) = next {
                    if seq == 0 {
                        let done = others.0.lock().unwrap();
                        drop(others.1.wait_while(done, |done| *done < 4).unwrap());
                    }
                    next = item_queue.deliver_and_next(seq, Ok(item * 10));
                }
            })
        };
        let threads: Vec<_> = (0..2).map(produce).collect();
        let given = Arc::new(AtomicU64::new(0));
        let feeder = {
            let (hub, given) = (hub.clone(), given.clone());
            thread::spawn(move || feed(&hub, 5, &given))
        };
        let mut collector = Collector::new(&hub, Order::Completion, Window::fixed(5), now());
        let mut consumed = 0;
        while consumed < 5 {
            match collector.pop() {
                Some((seq, _)) => {
                    consumed += 1;
                    collector.done(&hub);
                    assert!(seq != 0 || consumed == 5, "the slow item cannot come before the rest");
                    *others.0.lock().unwrap() += 1;
                    others.1.notify_all();
                }
                None => {
                    collector.settle(&hub);
                    collector.wait(&hub, hub.total(), None);
                }
            }
        }
        hub.abort();
        feeder.join().unwrap();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
}

/// The second item lasts until the result of the first was consumed, and the input does not end before. So
/// only the delivery can wake the collector.
#[test]
fn a_result_is_consumed_beside_a_slow_item() {
    check(|| {
        let hub = Arc::new(hub(1, 4, None));
        let consumed = Arc::new((Mutex::new(0), shuttle::sync::Condvar::new()));
        let producer = {
            let (hub, consumed) = (hub.clone(), consumed.clone());
            thread::spawn(move || {
                let mut item_queue = ItemQueue::new(&hub, 0);
                let mut next = item_queue.next();
                while let Some(NextItem::Untracked(seq, item)) = next {
                    if seq == 1 {
                        let count = consumed.0.lock().unwrap();
                        drop(consumed.1.wait_while(count, |count| *count == 0).unwrap());
                    }
                    next = item_queue.deliver_and_next(seq, Ok(item * 10));
                }
            })
        };
        let feeder = {
            let hub = hub.clone();
            thread::spawn(move || {
                let mut feeder = Feeder::new(&hub);
                for seq in 0..2 {
                    assert!(acquire(&mut feeder, &hub));
                    feeder.push(&hub, seq);
                }
            })
        };
        let mut collector = Collector::new(&hub, Order::Input, Window::fixed(4), now());
        while collector.consumed() < 2 {
            match collector.pop() {
                Some(_) => {
                    collector.done(&hub);
                    *consumed.0.lock().unwrap() += 1;
                    consumed.1.notify_all();
                }
                None => {
                    collector.settle(&hub);
                    collector.wait(&hub, None, None);
                }
            }
        }
        hub.abort();
        feeder.join().unwrap();
        producer.join().unwrap();
    });
}

/// The source yields an item only once all earlier ones were consumed.
#[test]
fn a_pausing_source_gets_everything_delivered() {
    check(|| {
        let hub = Arc::new(hub(2, 4, None));
        let consumed = Arc::new((Mutex::new(0u64), shuttle::sync::Condvar::new()));
        let threads = producers(&hub, 2);
        let consumer = {
            let (hub, consumed) = (hub.clone(), consumed.clone());
            thread::spawn(move || {
                let mut collector = Collector::new(&hub, Order::Input, Window::fixed(4), now());
                let mut total = None;
                loop {
                    if collector.pop().is_some() {
                        collector.done(&hub);
                        *consumed.0.lock().unwrap() += 1;
                        consumed.1.notify_all();
                        continue;
                    }
                    total = total.or_else(|| hub.total());
                    if total == Some(collector.consumed()) {
                        break;
                    }
                    collector.settle(&hub);
                    collector.wait(&hub, total, None);
                }
                hub.abort();
            })
        };
        let mut feeder = Feeder::new(&hub);
        for seq in 0..4 {
            assert!(acquire(&mut feeder, &hub));
            feeder.push(&hub, seq);
            if seq % 2 == 1 {
                let guard = consumed.0.lock().unwrap();
                drop(consumed.1.wait_while(guard, |consumed| *consumed <= seq).unwrap());
            }
        }
        hub.end(4);
        consumer.join().unwrap();
        threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() <= 4));
    });
}

/// Abort, halt or a consumer that stops, at any moment, wherever the other parties wait.
#[test]
fn ending_early_wakes_everybody() {
    #[derive(Clone, Copy)]
    enum How {
        Abort,
        Halt,
        StopAfter(u64),
    }
    for how in [How::Abort, How::Halt, How::StopAfter(0), How::StopAfter(2)] {
        check(move || {
            let hub = Arc::new(hub(2, 2, None));
            let given = Arc::new(AtomicU64::new(0));
            let threads = producers(&hub, 2);
            let stop_after = if let How::StopAfter(n) = how { n } else { u64::MAX };
            let consumer = {
                let (hub, given) = (hub.clone(), given.clone());
                let window = Window::fixed(2);
                thread::spawn(move || collect(&hub, Order::Input, window, &given, stop_after))
            };
            let ender = {
                let hub = hub.clone();
                thread::spawn(move || match how {
                    How::Abort => hub.abort(),
                    How::Halt => hub.halt(),
                    How::StopAfter(_) => {}
                })
            };
            let pulled = feed(&hub, 6, &given);
            let consumed = consumer.join().unwrap();
            ender.join().unwrap();
            threads.into_iter().for_each(|thread| assert!(thread.join().unwrap() <= 6));
            assert_eq!(consumed, (0..consumed.len() as u64).collect::<Vec<_>>(), "in order");
            if let How::Halt = how {
                assert_eq!(consumed.len() as u64, pulled, "what was given out is consumed");
            }
        });
    }
}

//! Models of answers that come after their lease has ended: another thread ends it while its producer is in a hook, and
//! the item goes to the other producer.

use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::Backoff;
use gangline_scheduler::window::Window;
use gangline_scheduler::{
    Begin, Copies, Expired, FailureFacts, FailureVerdict, Inputs, Lease, LeaseId, Outcome, RunTime,
    SchedulerEvent, Standing,
};
use shuttle::sync::atomic::{AtomicU64, Ordering};
use shuttle::thread;

use super::{Hub, check, collect, feed, hub_of};
use crate::base::Order;
use crate::concurrency::{Mutex, lock};
use crate::policy::Policy;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::run_settings::RunSettings;
use crate::run::time_limits::TimeLimits;

const ITEMS: u64 = 4;

struct Model {
    hub: Hub,
    /// How often an answer to each item counted.
    counted: [AtomicU64; ITEMS as usize],
    /// The leases that have been in hooks.
    in_hooks: Mutex<Vec<LeaseId>>,
}

fn hub() -> Hub {
    let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
    let policy = Policy { retries: 5, backoff, ..Policy::default() };
    let limits = TimeLimits { item: Some(Duration::from_millis(1)), ..TimeLimits::default() };
    let run_settings = RunSettings::<u64, u64> { policy, limits, ..RunSettings::default() };
    hub_of(&run_settings, 2, 3, None)
}

/// Begins the hook of a lease, is in it, and answers.
fn work_on(model: &Model, lease: &Lease, queue: &mut ItemQueue<'_, u64, u64>) {
    let (dispatch, id, item) = (&model.hub.dispatch, lease.id, lease.items[0]);
    // At once: an attempt that another thread ends has a copy of its input.
    let (input, _) = dispatch.schedule(|state, now| {
        if state.scheduler.begin(id, Copies::Kept, now) == Begin::Stale {
            return None;
        }
        let input = state.inputs.take(item)?;
        state.keep(item, input);
        Some(input)
    });
    let Some(input) = input else { return dispatch.release(id) };
    lock(&model.in_hooks).push(id);
    thread::yield_now();
    let (standing, _) = dispatch.schedule(|state, now| {
        let standing = state.scheduler.finish(id, &[Outcome::Succeeded], now)[0];
        if standing == Standing::Counts {
            state.inputs.remove(item).for_each(drop);
        }
        standing
    });
    if standing == Standing::Counts {
        model.counted[item as usize].fetch_add(1, Ordering::SeqCst);
        queue.deliver(item, Ok(input * 10));
    }
}

/// Runs with two producers, while another thread calls `end` twice at any moment.
fn run(end: fn(&Model)) {
    let model =
        Arc::new(Model { hub: hub(), counted: Default::default(), in_hooks: Mutex::default() });
    let produce = |lane| {
        let model = model.clone();
        thread::spawn(move || {
            let mut queue = ItemQueue::new(&model.hub, lane);
            while let Some(lease) = queue.next_lease() {
                work_on(&model, &lease, &mut queue);
                // It may have been abandoned in the hook, and takes part again.
                model.hub.dispatch.schedule(|state, _| state.scheduler.producer_joined(lane));
            }
            queue.leave();
        })
    };
    let mut threads: Vec<_> = (0..2).map(produce).collect();
    threads.push(thread::spawn({
        let model = model.clone();
        move || (0..2).for_each(|_| end(&model))
    }));
    let given = Arc::new(AtomicU64::new(0));
    let consumer = {
        let (model, given) = (model.clone(), given.clone());
        thread::spawn(move || collect(&model.hub, Order::Input, Window::fixed(3), &given, u64::MAX))
    };
    assert_eq!(feed(&model.hub, ITEMS, &given), ITEMS);
    assert_eq!(consumer.join().unwrap(), (0..ITEMS).collect::<Vec<_>>());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let counted = model.counted.each_ref().map(|counted| counted.load(Ordering::SeqCst));
    assert_eq!(counted, [1; ITEMS as usize]);
}

/// Every item in a hook has taken too long: its attempt has failed, and it is tried again.
fn time_out(Model { hub, .. }: &Model) {
    let late = RunTime::at(Duration::from_secs(1));
    let (_, events) =
        hub.dispatch.schedule_at(late, |state, now| state.scheduler.handle_timeout(now));
    for event in events {
        let SchedulerEvent::Expired(Expired { items, .. }) = event else { continue };
        if !items.is_empty() {
            let failure = FailureFacts { verdict: FailureVerdict::Retry, inputs: Inputs::Copied };
            hub.dispatch.schedule(|state, now| state.scheduler.decide(&items, failure, now));
        }
    }
}

/// The first producer is lost, and what it has goes to the other.
fn lose_producer(Model { hub, .. }: &Model) {
    let (lost, _) = hub.dispatch.schedule(|state, now| state.scheduler.producer_lost(0, now));
    lost.expect("the other is left");
}

/// The worker that had an item is taken for lost, and the item goes to another.
fn lose_worker(model: &Model) {
    let in_hook = lock(&model.in_hooks).pop();
    in_hook.into_iter().for_each(|lease| model.hub.dispatch.release(lease));
}

#[test]
fn an_answer_after_the_timeout_does_not_count() {
    check(|| run(time_out));
}

#[test]
fn an_answer_of_a_lost_producer_does_not_count() {
    check(|| run(lose_producer));
}

#[test]
fn an_answer_of_a_lost_worker_does_not_count() {
    check(|| run(lose_worker));
}

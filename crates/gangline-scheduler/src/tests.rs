//! Hand-written cases of the behaviour that users rely on.

mod batch_cases;
mod copy_cases;
mod producers_lost;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::batch::{Batch, Batching, DeviceBatches, Size};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const RETRY: FailureFacts =
    FailureFacts { verdict: FailureVerdict::Retry, inputs: Inputs::Copied };

pub(super) fn at(ms: u64) -> RunTime {
    RunTime::at(Duration::from_millis(ms))
}

pub(super) fn config(producers: usize) -> Config {
    Config {
        producers,
        places: None,
        order: Order::Input,
        window: 100,
        batching: None,
        on_error: OnError::Skip,
        retries: 0,
        backoff: Backoff { first: 10 * MS, most: 40 * MS },
        quarantine_after: None,
        copy_after: None,
        timeouts: Timeouts::default(),
        min_producers: 1,
        bypass: Bypass::Never,
        input: Input::MayCome,
    }
}

pub(super) fn batches(rule: Batch) -> Option<Batching> {
    Some(Batching::new(rule))
}

pub(super) fn scheduler(config: Config) -> Scheduler {
    let learned = vec![DeviceBatches::default(); config.producers];
    Scheduler::new(config, learned, RunTime::START)
}

/// A scheduler with this number of offered items.
pub(super) fn offered(config: Config, items: u64) -> Scheduler {
    let mut scheduler = scheduler(config);
    (0..items).for_each(|index| offer(&mut scheduler, index, at(0)));
    scheduler
}

/// The properties of an item of a run.
pub(super) fn meta(since: RunTime) -> Meta {
    Meta { size: Size::ONE, since, priority: Priority::Normal }
}

pub(super) fn offer(scheduler: &mut Scheduler, index: u64, now: RunTime) {
    scheduler.offer(index, meta(now), now);
}

pub(super) fn ask(scheduler: &mut Scheduler, producer: ProducerId, now: RunTime) -> Next {
    scheduler.lease(producer, Readiness::Ready, now)
}

#[track_caller]
pub(super) fn lease(scheduler: &mut Scheduler, producer: ProducerId, now: RunTime) -> Lease {
    match ask(scheduler, producer, now) {
        Next::Work(lease) => {
            assert_eq!(scheduler.begin(lease.id, Copies::Kept, now), Begin::Work);
            lease
        }
        other => panic!("{other:?} is no work"),
    }
}

/// Leases one item to `producer`, which fails it.
#[track_caller]
pub(super) fn fail(
    scheduler: &mut Scheduler,
    producer: ProducerId,
    now: RunTime,
) -> (u64, Decision) {
    let lease = lease(scheduler, producer, now);
    assert_eq!(scheduler.finish(lease.id, &[Outcome::Failed], now), [Standing::Counts]);
    (lease.items[0], scheduler.decide(&lease.items, RETRY, now))
}

#[track_caller]
pub(super) fn succeed(scheduler: &mut Scheduler, producer: ProducerId, now: RunTime) -> u64 {
    let lease = lease(scheduler, producer, now);
    assert_eq!(scheduler.finish(lease.id, &[Outcome::Succeeded], now), [Standing::Counts]);
    lease.items[0]
}

pub(super) fn events(scheduler: &mut Scheduler) -> Vec<SchedulerEvent> {
    std::iter::from_fn(|| scheduler.poll_event()).collect()
}

pub(super) fn wakes(scheduler: &mut Scheduler) -> Vec<ProducerId> {
    let woken = |event| match event {
        SchedulerEvent::Wake(producer) => Some(producer),
        _ => None,
    };
    events(scheduler).into_iter().filter_map(woken).collect()
}

/// Makes everything wait for items in hooks.
fn stand_still(scheduler: &mut Scheduler, now: RunTime) {
    scheduler.input_ended(now);
    scheduler.consumer(Activity::Waiting, now);
}

#[test]
fn items_are_leased_in_the_order_of_the_input() {
    let mut scheduler = offered(config(2), 3);
    assert_eq!(lease(&mut scheduler, 1, at(0)).items, [0]);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [1]);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [2]);
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
}

#[test]
fn a_new_item_wakes_one_producer() {
    let mut scheduler = scheduler(config(3));
    (0..3).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Wait));
    offer(&mut scheduler, 0, at(0));
    assert_eq!(wakes(&mut scheduler), [0]);
    scheduler.feeder(Activity::Waiting, at(0));
    assert!(wakes(&mut scheduler).is_empty(), "the first is about to take it");
    offer(&mut scheduler, 1, at(0));
    assert_eq!(wakes(&mut scheduler), [1], "the first takes one of them");
}

#[test]
fn a_failed_item_goes_to_another_producer_after_the_backoff() {
    let mut scheduler = offered(Config { retries: 1, ..config(2) }, 1);
    assert_eq!(fail(&mut scheduler, 0, at(0)), (0, Decision::Retry(at(10))));
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait, "it failed there");
    assert_eq!(ask(&mut scheduler, 1, at(5)), Next::WaitUntil(at(10)));
    let again = lease(&mut scheduler, 1, at(10));
    assert_eq!((again.items, again.attempt), (vec![0], 2));
}

#[test]
fn the_only_producer_tries_its_own_failures_again() {
    let mut scheduler = offered(Config { retries: 2, ..config(1) }, 1);
    assert_eq!(fail(&mut scheduler, 0, at(0)).1, Decision::Retry(at(10)));
    assert_eq!(fail(&mut scheduler, 0, at(10)).1, Decision::Retry(at(30)));
    assert_eq!(fail(&mut scheduler, 0, at(30)).1, Decision::Skip);
}

#[test]
fn what_is_tried_again_goes_before_new_items() {
    let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
    let mut scheduler = offered(Config { retries: 1, backoff, ..config(1) }, 5);
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 0);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0]);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [1]);
}

/// Leases one item to `producer`, which fails it and is to try it again.
#[track_caller]
fn fail_here(scheduler: &mut Scheduler, producer: ProducerId, now: RunTime) -> Decision {
    let lease = lease(scheduler, producer, now);
    scheduler.finish(lease.id, &[Outcome::Failed], now);
    let failure = FailureFacts { verdict: FailureVerdict::RetryHere, ..RETRY };
    scheduler.decide(&lease.items, failure, now)
}

#[test]
fn an_item_that_is_kept_waits_for_its_producer() {
    let mut scheduler = offered(Config { retries: 2, ..config(3) }, 2);
    assert_eq!(fail_here(&mut scheduler, 1, at(0)), Decision::Retry(at(10)));
    let other = lease(&mut scheduler, 1, at(0));
    for producer in [0, 2] {
        assert_eq!(ask(&mut scheduler, producer, at(10)), Next::Wait, "it is kept");
    }
    scheduler.finish(other.id, &[Outcome::Succeeded], at(11));
    assert_eq!(fail_here(&mut scheduler, 1, at(11)), Decision::Retry(at(31)));
    assert!(wakes(&mut scheduler).is_empty(), "1 asks by itself");
    assert_eq!(ask(&mut scheduler, 1, at(11)), Next::WaitUntil(at(31)));
    let last = lease(&mut scheduler, 1, at(31));
    assert_eq!((last.items, last.attempt), (vec![0], 3));
}

#[test]
fn an_item_that_was_kept_can_be_let_go() {
    let mut scheduler = offered(Config { retries: 3, ..config(2) }, 1);
    fail_here(&mut scheduler, 1, at(0));
    assert_eq!(fail(&mut scheduler, 1, at(10)).1, Decision::Retry(at(30)));
    assert_eq!(ask(&mut scheduler, 1, at(30)), Next::Wait, "another tries it");
    assert_eq!(lease(&mut scheduler, 0, at(30)).attempt, 3);
}

#[test]
fn failures_that_are_kept_quarantine_no_producer() {
    let quarantine_after = Some(1);
    let mut scheduler = offered(Config { retries: 1, quarantine_after, ..config(2) }, 3);
    assert_eq!(fail_here(&mut scheduler, 0, at(0)), Decision::Retry(at(10)));
    assert!(!scheduler.health().is_suspect(0) && scheduler.health().may_take_new(0));
    assert_eq!(succeed(&mut scheduler, 0, at(10)), 0);
    // The second failure, elsewhere, clears the suspicion of the first.
    assert_eq!(fail(&mut scheduler, 0, at(10)).1, Decision::Retry(at(10)), "the blame is open");
    assert!(scheduler.health().is_suspect(0));
    assert_eq!(fail_here(&mut scheduler, 1, at(10)), Decision::Skip);
    assert!(!scheduler.health().is_suspect(0));
}

#[test]
fn without_backoff_what_waits_is_due_and_so_is_what_fails_later() {
    let mut scheduler = offered(Config { retries: 2, ..config(2) }, 2);
    assert_eq!(fail(&mut scheduler, 0, at(0)).1, Decision::Retry(at(10)));
    let second = lease(&mut scheduler, 0, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(1)), Next::WaitUntil(at(10)));
    scheduler.end_backoff(at(1));
    assert_eq!(wakes(&mut scheduler), [1]);
    assert_eq!(fail(&mut scheduler, 1, at(1)), (0, Decision::Retry(at(1))));
    scheduler.finish(second.id, &[Outcome::Failed], at(2));
    assert_eq!(scheduler.decide(&second.items, RETRY, at(2)), Decision::Retry(at(2)));
    assert_eq!(lease(&mut scheduler, 0, at(2)).items, [0]);
    assert_eq!(lease(&mut scheduler, 1, at(2)).items, [1]);
}

#[test]
fn a_storm_of_retries_wakes_one_producer_for_each_item() {
    let mut scheduler = offered(Config { retries: 1, ..config(64) }, 100);
    let leases: Vec<_> = (0..100).map(|_| lease(&mut scheduler, 0, at(0))).collect();
    (1..64).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Wait));
    for lease in &leases {
        scheduler.finish(lease.id, &[Outcome::Failed], at(0));
        scheduler.decide(&lease.items, RETRY, at(0));
    }
    assert_eq!(wakes(&mut scheduler), [1], "one producer keeps the time");
    assert_eq!(ask(&mut scheduler, 1, at(1)), Next::WaitUntil(at(10)));
    let mut asking = vec![1];
    let mut woken = 0;
    for index in 0..63 {
        let producer = asking.pop().expect("one was woken");
        assert_eq!(lease(&mut scheduler, producer, at(10)).items, [index]);
        let more = wakes(&mut scheduler);
        woken += more.len();
        asking.extend(more);
    }
    assert!(woken <= 63, "{woken}");
}

#[test]
fn a_producer_that_takes_something_else_leaves_the_retry_to_a_sleeper() {
    let mut scheduler = offered(Config { retries: 1, ..config(3) }, 1);
    let first = lease(&mut scheduler, 0, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
    assert_eq!(ask(&mut scheduler, 2, at(0)), Next::Wait);
    scheduler.finish(first.id, &[Outcome::Failed], at(0));
    scheduler.decide(&first.items, RETRY, at(0));
    assert_eq!(wakes(&mut scheduler), [1]);
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::WaitUntil(at(10)));
    scheduler.stop_waiting(1, at(1));
    assert_eq!(wakes(&mut scheduler), [2]);
    assert_eq!(ask(&mut scheduler, 2, at(1)), Next::WaitUntil(at(10)));
}

#[test]
fn an_untracked_item_is_adopted_when_it_fails() {
    let mut scheduler = scheduler(Config { retries: 1, ..config(2) });
    scheduler.adopt(1_000_000, 0);
    assert_eq!(scheduler.decide(&[1_000_000], RETRY, at(0)), Decision::Retry(at(10)));
    let again = lease(&mut scheduler, 1, at(10));
    assert_eq!((again.items, again.attempt), (vec![1_000_000], 2));
}

#[test]
fn an_item_whose_input_is_gone_is_not_tried_again() {
    let mut scheduler = offered(Config { retries: 3, ..config(2) }, 1);
    let lease = lease(&mut scheduler, 0, at(0));
    scheduler.finish(lease.id, &[Outcome::Failed], at(0));
    let failure = FailureFacts { inputs: Inputs::Gone, ..RETRY };
    assert_eq!(scheduler.decide(&lease.items, failure, at(0)), Decision::Skip);
}

#[test]
fn the_first_failure_in_order_stands() {
    let mut scheduler = offered(Config { on_error: OnError::Stop, ..config(3) }, 9);
    let [early, _, late] = [0, 1, 2].map(|producer| lease(&mut scheduler, producer, at(0)));
    scheduler.finish(late.id, &[Outcome::Failed], at(0));
    assert_eq!(scheduler.decide(&late.items, RETRY, at(0)), Decision::Fail);
    assert_eq!(ask(&mut scheduler, 2, at(0)), Next::Wait, "nothing behind it is leased");
    scheduler.finish(early.id, &[Outcome::Failed], at(0));
    assert_eq!(scheduler.decide(&early.items, RETRY, at(0)), Decision::Fail);
}

#[test]
fn what_fails_behind_the_failure_is_stale() {
    let mut scheduler = offered(config(2), 9);
    let [_, second] = [0, 1].map(|producer| lease(&mut scheduler, producer, at(0)));
    scheduler.give_up_from(1);
    assert_eq!(scheduler.finish(second.id, &[Outcome::Failed], at(0)), [Standing::Stale]);
    assert_eq!(scheduler.decide(&[1], RETRY, at(0)), Decision::Discard);
}

#[test]
fn a_released_lease_spends_no_attempt() {
    let mut scheduler = offered(config(2), 1);
    let first = lease(&mut scheduler, 0, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
    scheduler.release(first.id, at(0));
    assert_eq!(wakes(&mut scheduler), [1]);
    let second = lease(&mut scheduler, 1, at(0));
    assert_eq!((second.items, second.attempt), (vec![0], 1));
    assert_eq!(scheduler.finish(first.id, &[Outcome::Succeeded], at(0)), [Standing::Stale]);
}

#[test]
fn what_is_withdrawn_has_no_verdict() {
    let mut scheduler = offered(Config { retries: 1, ..config(2) }, 4);
    let held = lease(&mut scheduler, 0, at(0));
    assert_eq!(fail(&mut scheduler, 1, at(0)).0, 1);
    scheduler.withdraw(&[0, 1, 2], at(0));
    assert!(
        events(&mut scheduler).contains(&SchedulerEvent::Revoke { lease: held.id, producer: 0 })
    );
    assert_eq!(scheduler.finish(held.id, &[Outcome::Succeeded], at(0)), [Standing::Stale]);
    assert_eq!(lease(&mut scheduler, 0, at(99)).items, [3]);
    assert_eq!(ask(&mut scheduler, 0, at(99)), Next::Wait);
}

#[test]
fn an_abort_wakes_every_producer_to_leave() {
    let mut scheduler = scheduler(config(3));
    (0..3).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Wait));
    scheduler.abort();
    assert_eq!(wakes(&mut scheduler), [0, 1, 2]);
    (0..3).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Leave));
    offer(&mut scheduler, 0, at(0));
    assert!(!scheduler.has_waiting_items());
}

#[test]
fn parts_behind_the_end_of_the_run_are_given_up() {
    for bound in [0, 2, 3] {
        let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(1) }, 4);
        let whole = lease(&mut scheduler, 0, at(0));
        scheduler.fail_together(whole.id, Inputs::Kept, Memory::Sufficient, at(0));
        scheduler.give_up_from(bound);
        assert_eq!(scheduler.has_waiting_items(), bound > 0);
        let mut left = vec![];
        while let Next::Work(lease) = ask(&mut scheduler, 0, at(0)) {
            scheduler.finish(lease.id, &vec![Outcome::Succeeded; lease.items.len()], at(0));
            left.extend(lease.items);
        }
        assert_eq!(left, (0..bound).collect::<Vec<_>>());
    }
}

#[test]
fn a_lease_is_held_until_it_ends() {
    let mut scheduler = offered(config(1), 1);
    let held = lease(&mut scheduler, 0, at(0));
    assert!(scheduler.leases().is_held(held.id));
    scheduler.finish(held.id, &[Outcome::Succeeded], at(0));
    assert!(!scheduler.leases().is_held(held.id));
}

#[test]
fn items_wait_in_the_input_for_another_attempt_or_in_parts() {
    let mut new = offered(config(1), 1);
    assert_eq!((new.has_waiting_items(), new.has_retries()), (true, false));
    let held = lease(&mut new, 0, at(0));
    assert_eq!((new.has_waiting_items(), new.has_retries()), (false, false));
    new.finish(held.id, &[Outcome::Succeeded], at(0));
    let mut failed = offered(Config { retries: 1, ..config(1) }, 1);
    fail(&mut failed, 0, at(0));
    assert_eq!((failed.has_waiting_items(), failed.has_retries()), (true, true));
    let mut split = offered(Config { batching: batches(Batch::of(2)), ..config(1) }, 2);
    let whole = lease(&mut split, 0, at(0));
    split.fail_together(whole.id, Inputs::Kept, Memory::Sufficient, at(0));
    assert_eq!((split.has_waiting_items(), split.has_retries()), (true, false));
}

#[test]
fn an_item_is_undecided_from_its_failure_until_the_decision() {
    let mut scheduler = offered(Config { retries: 1, ..config(1) }, 1);
    let held = lease(&mut scheduler, 0, at(0));
    assert!(!scheduler.items().is_unsettled(0) && !scheduler.items().is_undecided(0));
    scheduler.finish(held.id, &[Outcome::Failed], at(0));
    assert!(scheduler.items().is_unsettled(0) && scheduler.items().is_undecided(0));
    scheduler.decide(&[0], RETRY, at(0));
    assert!(scheduler.items().is_unsettled(0) && !scheduler.items().is_undecided(0));
    assert_eq!(succeed(&mut scheduler, 0, at(10)), 0);
    assert!(!scheduler.items().is_unsettled(0));
}

#[test]
fn nothing_is_kept_of_what_fails_behind_the_end() {
    let mut again = offered(Config { retries: 1, ..config(1) }, 1);
    fail(&mut again, 0, at(0));
    let second = lease(&mut again, 0, at(10));
    again.give_up_from(0);
    assert_eq!(again.finish(second.id, &[Outcome::Failed], at(11)), [Standing::Stale]);
    assert!(again.items().get(0).is_none());
    let mut copied = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut copied, 0, at(0));
    stand_still(&mut copied, at(0));
    let copy = lease(&mut copied, 1, at(10));
    copied.give_up_from(0);
    for lease in [slow, copy] {
        assert_eq!(copied.finish(lease.id, &[Outcome::Failed], at(11)), [Standing::Stale]);
    }
    assert!(copied.items().get(0).is_none());
    let mut lost = offered(config(2), 1);
    lease(&mut lost, 0, at(0));
    lost.give_up_from(0);
    lost.producer_lost(0, at(1)).expect("one is left");
    assert!(!lost.has_waiting_items());
}

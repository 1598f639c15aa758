//! Hand-written cases of the behaviour that users rely on.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::*;
use crate::batch::{Batch, Batching, DeviceBatches, Size};

pub(super) const MS: Duration = Duration::from_millis(1);
pub(super) const RETRY: Failure = Failure { verdict: Verdict::Retry, inputs: Inputs::Copied };

pub(super) fn at(ms: u64) -> RunTime {
    RunTime::at(Duration::from_millis(ms))
}

pub(super) fn config(producers: usize) -> Config {
    Config {
        producers,
        spares: 0,
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

pub(super) fn events(scheduler: &mut Scheduler) -> Vec<Event> {
    std::iter::from_fn(|| scheduler.poll_event()).collect()
}

pub(super) fn wakes(scheduler: &mut Scheduler) -> Vec<ProducerId> {
    let woken = |event| match event {
        Event::Wake(producer) => Some(producer),
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
    let failure = Failure { verdict: Verdict::RetryHere, ..RETRY };
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
fn an_item_whose_keeper_is_lost_goes_to_another_producer() {
    let mut scheduler = offered(Config { retries: 1, ..config(2) }, 1);
    fail_here(&mut scheduler, 1, at(0));
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
    assert_eq!(scheduler.producer_lost(1, at(1)), Ok(()));
    assert_eq!(wakes(&mut scheduler), [0]);
    assert_eq!(ask(&mut scheduler, 0, at(1)), Next::WaitUntil(at(10)));
    assert_eq!(lease(&mut scheduler, 0, at(10)).attempt, 2);
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
    let failure = Failure { inputs: Inputs::Gone, ..RETRY };
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
fn a_lost_producer_leaves_its_items_to_others() {
    let batching = batches(Batch::of(4));
    let mut scheduler = offered(Config { batching, ..config(2) }, 4);
    lease(&mut scheduler, 0, at(0));
    assert_eq!(scheduler.producer_lost(0, at(1)), Ok(()));
    assert_eq!(lease(&mut scheduler, 1, at(1)).items, [0, 1, 2, 3], "together, as they were");
    assert_eq!(ask(&mut scheduler, 0, at(1)), Next::Leave);
    assert_eq!(scheduler.producer_lost(1, at(1)), Err(TooFewProducers { live: 0 }));
    assert_eq!(scheduler.health().live(), 1, "the last one stays");
}

#[test]
fn an_item_that_takes_too_long_has_failed_and_its_late_answer_is_stale() {
    let timeouts = Timeouts { item: Some(10 * MS), step: MS, ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, retries: 1, ..config(2) }, 1);
    let late = lease(&mut scheduler, 0, at(0));
    assert_eq!(scheduler.poll_timeout(), Some(at(11)));
    scheduler.handle_timeout(at(10));
    assert_eq!(events(&mut scheduler), []);
    scheduler.handle_timeout(at(11));
    let [Event::Expired(expired)] = &events(&mut scheduler)[..] else { panic!("one event") };
    assert_eq!((expired.producer, &expired.items[..]), (0, &[0][..]));
    assert_eq!(scheduler.decide(&[0], RETRY, at(11)), Decision::Retry(at(21)));
    assert_eq!(scheduler.finish(late.id, &[Outcome::Succeeded], at(12)), [Standing::Stale]);
    assert_eq!(ask(&mut scheduler, 0, at(12)), Next::Leave);
    assert_eq!(succeed(&mut scheduler, 1, at(21)), 0);
}

#[test]
fn a_state_that_takes_too_long_costs_a_producer_and_no_item() {
    let timeouts = Timeouts { init: Some(10 * MS), ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, ..config(2) }, 1);
    let Next::Work(_) = scheduler.lease(0, Readiness::NeedsInit, at(0)) else { panic!("work") };
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
    scheduler.handle_timeout(at(10));
    let [Event::Expired(expired), Event::Wake(1)] = &events(&mut scheduler)[..] else {
        panic!("it expires, and the other is woken")
    };
    assert_eq!((expired.phase, expired.items.len()), (Phase::Preparing, 0));
    assert_eq!(lease(&mut scheduler, 1, at(10)).attempt, 1);
}

#[test]
fn the_deadline_of_an_item_starts_when_the_state_is_ready() {
    let timeouts = Timeouts { item: Some(10 * MS), ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, ..config(2) }, 1);
    let Next::Work(lease) = scheduler.lease(0, Readiness::NeedsInit, at(0)) else { panic!("work") };
    assert_eq!(scheduler.poll_timeout(), None);
    assert_eq!(scheduler.begin(lease.id, Copies::Missing, at(100)), Begin::Work);
    assert_eq!(scheduler.poll_timeout(), Some(at(110)));
}

#[test]
fn a_run_that_takes_too_long_abandons_what_does_not_notice() {
    let timeouts = Timeouts { run: Some(100 * MS), ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, ..config(2) }, 1);
    lease(&mut scheduler, 0, at(0));
    scheduler.handle_timeout(at(100));
    assert_eq!(events(&mut scheduler), [Event::RunTimedOut]);
    scheduler.abort();
    scheduler.handle_timeout(at(200));
    assert_eq!(events(&mut scheduler), [Event::Abandon(0)]);
}

#[test]
fn a_producer_that_does_not_come_back_from_an_earlier_run_in_time_joins_when_it_does() {
    let timeouts = Timeouts { item: Some(10 * MS), ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, retries: 1, ..config(2) }, 1);
    scheduler.expect(1, Absence::EarlierRun, at(0));
    assert_eq!(fail(&mut scheduler, 0, at(0)).1, Decision::Retry(at(10)));
    let again = lease(&mut scheduler, 0, at(10));
    assert_eq!(again.attempt, 2, "nothing waits for the other");
    scheduler.handle_timeout(at(10));
    let [Event::Expired(expired)] = &events(&mut scheduler)[..] else { panic!("one event") };
    assert_eq!((expired.producer, expired.lease), (1, None));
    assert!(!scheduler.health().is_live(1), "nothing waits for it");
    assert!(scheduler.producer_joined(1));
    assert!(scheduler.health().is_live(1));
}

#[test]
fn a_producer_that_comes_back_takes_part() {
    let mut scheduler = offered(config(2), 2);
    for absence in [Absence::EarlierRun, Absence::Init] {
        scheduler.expect(1, absence, at(0));
        assert!(scheduler.producer_joined(1));
        lease(&mut scheduler, 1, at(0));
    }
}

#[test]
fn an_idle_producer_copies_what_another_is_slow_at() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(3) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait, "more may come");
    stand_still(&mut scheduler, at(1));
    assert_eq!(wakes(&mut scheduler), [1]);
    assert_eq!(ask(&mut scheduler, 1, at(1)), Next::WaitUntil(at(10)));
    let copy = lease(&mut scheduler, 1, at(10));
    assert_eq!((&copy.items[..], copy.attempt), (&[0][..], 1));
    assert_eq!(ask(&mut scheduler, 2, at(30)), Next::Wait, "there is no third start");
    assert_eq!(scheduler.finish(copy.id, &[Outcome::Succeeded], at(12)), [Standing::Counts]);
    assert!(
        events(&mut scheduler).contains(&Event::Revoke { lease: slow.id, producer: 0 }),
        "the slow one has lost"
    );
    assert_eq!(scheduler.finish(slow.id, &[Outcome::Succeeded], at(20)), [Standing::Stale]);
}

#[test]
fn a_copy_comes_after_what_waits() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 2);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0]);
    stand_still(&mut scheduler, at(0));
    assert_eq!(lease(&mut scheduler, 1, at(20)).items, [1], "0 is slow, but 1 waits");
}

#[test]
fn a_copy_that_succeeds_after_an_abort_revokes_the_other() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(1));
    let copy = lease(&mut scheduler, 1, at(10));
    scheduler.abort();
    assert!(!scheduler.is_detached(0), "the end of the run waits for it");
    assert_eq!(scheduler.finish(copy.id, &[Outcome::Succeeded], at(11)), [Standing::Stale]);
    assert_eq!(events(&mut scheduler), [Event::Revoke { lease: slow.id, producer: 0 }]);
    assert!(scheduler.is_detached(0));
}

#[test]
fn an_error_of_one_copy_waits_for_the_other() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(1));
    let copy = lease(&mut scheduler, 1, at(10));
    assert_eq!(scheduler.finish(copy.id, &[Outcome::Failed], at(11)), [Standing::Deferred]);
    assert_eq!(ask(&mut scheduler, 1, at(30)), Next::Wait, "it does not copy it again");
    assert_eq!(scheduler.finish(slow.id, &[Outcome::Failed], at(40)), [Standing::Counts]);
    assert_eq!(scheduler.decide(&[0], RETRY, at(40)), Decision::Skip);
}

#[test]
fn nothing_waits_for_a_producer_that_has_lost() {
    let copy_after = Some(10 * MS);
    let mut scheduler = offered(Config { copy_after, retries: 1, ..config(2) }, 2);
    let slow = lease(&mut scheduler, 0, at(0));
    let other = lease(&mut scheduler, 1, at(0));
    stand_still(&mut scheduler, at(0));
    scheduler.finish(other.id, &[Outcome::Failed], at(0));
    scheduler.decide(&other.items, RETRY, at(0));
    let copy = lease(&mut scheduler, 1, at(10));
    assert_eq!(copy.items, slow.items, "its own failure goes elsewhere");
    scheduler.finish(copy.id, &[Outcome::Succeeded], at(11));
    assert_eq!(lease(&mut scheduler, 1, at(11)).items, [1], "or is tried again here");
}

#[test]
fn a_copy_that_has_not_begun_when_the_item_is_done_does_not_begin() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(0));
    let copy = scheduler.lease(1, Readiness::NeedsInit, at(10));
    let Next::Work(copy) = copy else { panic!("{copy:?}") };
    scheduler.finish(slow.id, &[Outcome::Succeeded], at(11));
    assert_eq!(events(&mut scheduler), [], "its `producer_init` does not give up");
    assert_eq!(scheduler.begin(copy.id, Copies::Kept, at(12)), Begin::Stale);
    scheduler.release(copy.id, at(12));
    assert!(!scheduler.has_waiting_items());
}

#[test]
fn items_that_cannot_be_copied_are_not() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    assert_eq!(scheduler.begin(slow.id, Copies::Missing, at(0)), Begin::Work);
    stand_still(&mut scheduler, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(50)), Next::Wait);
}

#[test]
fn a_producer_on_the_slow_gpu_copies_once_the_others_are_slow_too() {
    let gpus = [&[0][..], &[0], &[]].map(|gpus| gpus.iter().copied().collect());
    let places: Arc<[Gpus]> = gpus.into();
    let config = Config { places: Some(places), copy_after: Some(10 * MS), ..config(3) };
    let mut scheduler = offered(config, 1);
    lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(100)), Next::Wait, "the CPU is idle");
    assert_eq!(lease(&mut scheduler, 2, at(100)).items, [0]);
    offer(&mut scheduler, 1, at(100));
    assert_eq!(succeed(&mut scheduler, 1, at(100)), 1);
}

#[test]
fn each_copy_of_a_batch_may_fail_other_items() {
    use Outcome::{Failed, Succeeded};
    use Standing::{Counts, Deferred, Stale};
    let config = Config { batching: batches(Batch::of(3)), copy_after: Some(10 * MS), ..config(2) };
    let mut scheduler = offered(config, 3);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(0));
    let copy = lease(&mut scheduler, 1, at(40));
    let standings = scheduler.finish(copy.id, &[Succeeded, Failed, Failed], at(41));
    assert_eq!(standings, [Counts, Deferred, Deferred]);
    assert!(
        !events(&mut scheduler).contains(&Event::Revoke { lease: slow.id, producer: 0 }),
        "it is still wanted"
    );
    let standings = scheduler.finish(slow.id, &[Failed, Succeeded, Failed], at(50));
    assert_eq!(standings, [Stale, Counts, Counts]);
    assert_eq!(scheduler.decide(&[2], RETRY, at(50)), Decision::Skip);
}

#[test]
fn a_guilty_item_of_a_batch_is_found_by_halves() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(8)), ..config(1) }, 8);
    let mut calls = Vec::new();
    scheduler.input_ended(at(0));
    while let Next::Work(lease) = ask(&mut scheduler, 0, at(0)) {
        calls.push(lease.items.len());
        if !lease.items.contains(&5) {
            scheduler.finish(lease.id, &vec![Outcome::Succeeded; lease.items.len()], at(0));
            continue;
        }
        let came = scheduler.fail_together(lease.id, Inputs::Kept, Memory::Sufficient, at(0));
        if let Together::Failed(items) = came {
            assert_eq!(items, [5]);
            assert_eq!(scheduler.decide(&items, RETRY, at(0)), Decision::Skip);
        }
    }
    assert_eq!(calls, [8, 4, 4, 2, 1, 1, 2]);
}

#[test]
fn a_batch_that_does_not_fit_is_split_without_blame() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(10)), ..config(1) }, 20);
    let mut calls = Vec::new();
    while let Next::Work(lease) = ask(&mut scheduler, 0, at(0)) {
        calls.push(lease.items.len());
        match lease.items.len() > 3 {
            true => {
                let came = scheduler.fail_together(lease.id, Inputs::Kept, Memory::Short, at(0));
                assert_eq!(came, Together::Split(lease.items));
            }
            false => {
                let outcomes = vec![Outcome::Succeeded; lease.items.len()];
                scheduler.finish(lease.id, &outcomes, at(0));
            }
        }
    }
    assert_eq!(calls[..7], [10, 5, 2, 2, 2, 2, 2]);
    assert_eq!(calls[7..], [2; 5], "later batches are as small");
    assert_eq!(scheduler.learned()[0].memory(), Some(2));
}

#[test]
fn a_batch_without_its_inputs_fails_together() {
    let config = Config { batching: batches(Batch::of(3)), retries: 1, ..config(2) };
    let mut scheduler = offered(config, 3);
    let lease = lease(&mut scheduler, 0, at(0));
    let came = scheduler.fail_together(lease.id, Inputs::Copied, Memory::Sufficient, at(0));
    assert_eq!(came, Together::Failed(vec![0, 1, 2]));
    assert_eq!(scheduler.decide(&[0, 1, 2], RETRY, at(0)), Decision::Retry(at(10)));
    assert_eq!(succeed(&mut scheduler, 1, at(10)), 0, "each by itself");
}

#[test]
fn idle_producers_take_parts_that_their_owner_comes_to_later() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(2) }, 4);
    let whole = lease(&mut scheduler, 0, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
    scheduler.fail_together(whole.id, Inputs::Kept, Memory::Sufficient, at(0));
    assert!(wakes(&mut scheduler).is_empty(), "its owner goes on at once");
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1]);
    assert_eq!(wakes(&mut scheduler), [1]);
    assert_eq!(lease(&mut scheduler, 1, at(0)).items, [2, 3]);
}

#[test]
fn a_batch_waits_until_it_is_full_or_nothing_more_can_come() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(2) }, 3);
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
    scheduler.feeder(Activity::Waiting, at(0));
    assert_eq!(wakes(&mut scheduler), [0]);
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1, 2]);
}

#[test]
fn one_producer_keeps_the_time_of_a_batch() {
    let batching = batches(Batch::of(4).within(5 * MS));
    let mut scheduler = scheduler(Config { batching, ..config(3) });
    (0..3).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Wait));
    offer(&mut scheduler, 0, at(1));
    assert_eq!(wakes(&mut scheduler), [0]);
    assert_eq!(ask(&mut scheduler, 0, at(1)), Next::WaitUntil(at(6)));
    assert_eq!(ask(&mut scheduler, 1, at(1)), Next::Wait);
    offer(&mut scheduler, 1, at(2));
    assert!(wakes(&mut scheduler).is_empty());
    assert_eq!(lease(&mut scheduler, 0, at(6)).items, [0, 1]);
}

#[test]
fn a_producer_whose_items_succeed_elsewhere_is_quarantined() {
    let mut scheduler = offered(Config { quarantine_after: Some(2), ..config(2) }, 9);
    assert_eq!(fail(&mut scheduler, 0, at(0)).1, Decision::Retry(at(0)));
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 1);
    assert!(!scheduler.health().may_take_new(0));
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 0);
    assert_eq!(events(&mut scheduler), []);
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 1);
    assert_eq!(events(&mut scheduler), [Event::Quarantined(0, 0), Event::Wake(0)]);
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Leave);
}

#[test]
fn a_bad_item_costs_no_producer_its_place() {
    let mut scheduler = offered(Config { quarantine_after: Some(1), ..config(2) }, 9);
    assert_eq!(fail(&mut scheduler, 0, at(0)), (0, Decision::Retry(at(0))));
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
    assert_eq!(fail(&mut scheduler, 1, at(0)), (0, Decision::Skip));
    assert_eq!(wakes(&mut scheduler), [0], "it is not suspected any more");
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [1]);
}

#[test]
fn the_last_producer_is_never_suspended() {
    let mut scheduler = offered(Config { quarantine_after: Some(1), ..config(1) }, 9);
    for item in 0..9 {
        assert_eq!(fail(&mut scheduler, 0, at(0)), (item, Decision::Skip));
    }
}

#[test]
fn a_quarantined_producer_that_cannot_build_its_state_leaves_its_item_to_others() {
    let mut scheduler = offered(Config { quarantine_after: Some(1), ..config(2) }, 2);
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 0);
    let other = scheduler.track(7, 0, Readiness::NeedsInit, at(0));
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 0);
    assert!(events(&mut scheduler).contains(&Event::Quarantined(0, 0)));
    assert_eq!(scheduler.producer_lost(0, at(0)), Ok(()));
    assert_eq!(lease(&mut scheduler, 1, at(0)).items, other.items);
}

#[test]
fn too_few_producers_are_reported() {
    let config = Config { quarantine_after: Some(1), min_producers: 2, ..config(2) };
    let mut scheduler = offered(config, 1);
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 0);
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 0);
    let few = Event::TooFewProducers { live: 1 };
    assert_eq!(events(&mut scheduler), [Event::Quarantined(0, 0), few]);
}

#[test]
fn what_is_withdrawn_has_no_verdict() {
    let mut scheduler = offered(Config { retries: 1, ..config(2) }, 4);
    let held = lease(&mut scheduler, 0, at(0));
    assert_eq!(fail(&mut scheduler, 1, at(0)).0, 1);
    scheduler.withdraw(&[0, 1, 2], at(0));
    assert!(events(&mut scheduler).contains(&Event::Revoke { lease: held.id, producer: 0 }));
    assert_eq!(scheduler.finish(held.id, &[Outcome::Succeeded], at(0)), [Standing::Stale]);
    assert_eq!(lease(&mut scheduler, 0, at(99)).items, [3]);
    assert_eq!(ask(&mut scheduler, 0, at(99)), Next::Wait);
}

#[test]
fn a_suspected_producer_tracks_what_it_takes() {
    let mut scheduler = scheduler(Config { quarantine_after: Some(2), ..config(2) });
    scheduler.adopt(3, 0);
    assert_eq!(scheduler.decide(&[3], RETRY, at(0)), Decision::Retry(at(0)));
    assert!(scheduler.health().is_suspect(0) && scheduler.health().may_take_new(0));
    let next = scheduler.track(4, 0, Readiness::Ready, at(0));
    assert_eq!(scheduler.finish(next.id, &[Outcome::Succeeded], at(0)), [Standing::Counts]);
    assert!(!scheduler.health().is_suspect(0), "it has failed none in a row");
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
fn a_copied_item_that_is_withdrawn_is_revoked_at_each_producer_once() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(0));
    let copy = lease(&mut scheduler, 1, at(10));
    events(&mut scheduler);
    scheduler.withdraw(&[0], at(11));
    let revoked = events(&mut scheduler);
    for (lease, producer) in [(slow.id, 0), (copy.id, 1)] {
        assert!(revoked.contains(&Event::Revoke { lease, producer }), "{revoked:?}");
    }
    scheduler.withdraw(&[0], at(12));
    assert_eq!(events(&mut scheduler), [], "it is known already");
    for lease in [slow.id, copy.id] {
        assert_eq!(scheduler.finish(lease, &[Outcome::Succeeded], at(13)), [Standing::Stale]);
    }
    assert!(scheduler.items().get(0).is_none(), "nothing is kept of it");
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
fn a_producer_that_is_excluded_leaves() {
    for until in [Until::Joined, Until::Ready, Until::RunEnds] {
        let mut scheduler = offered(config(2), 1);
        scheduler.exclude(0, until);
        assert!(!scheduler.health().is_available(0));
        assert_eq!(scheduler.health().is_live(0), until == Until::Ready, "{until:?}");
        assert_eq!(scheduler.producer_joined(0), until != Until::RunEnds, "{until:?}");
        assert_eq!(succeed(&mut scheduler, 1, at(0)), 0, "the other goes on");
    }
}

#[test]
fn a_state_that_is_rebuilt_has_the_time_of_a_state() {
    let timeouts =
        Timeouts { item: Some(10 * MS), init: Some(100 * MS), step: MS, ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, ..config(2) }, 1);
    let held = lease(&mut scheduler, 0, at(0));
    scheduler.rebuild(held.id, at(5));
    scheduler.handle_timeout(at(50));
    assert_eq!(events(&mut scheduler), [], "the time of the item does not go on");
    scheduler.handle_timeout(at(106));
    let [Event::Expired(expired), ..] = &events(&mut scheduler)[..] else { panic!("it expires") };
    assert_eq!(expired.phase, Phase::Preparing);
    scheduler.rebuild(held.id, at(107));
    assert_eq!(scheduler.finish(held.id, &[Outcome::Succeeded], at(108)), [Standing::Stale]);
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
fn a_lease_is_shared_while_another_covers_its_item() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    assert!(!scheduler.is_shared(slow.id));
    assert_eq!(scheduler.items().carriers(0), 1, "it has no record");
    stand_still(&mut scheduler, at(0));
    let copy = lease(&mut scheduler, 1, at(10));
    assert!(scheduler.is_shared(slow.id) && scheduler.is_shared(copy.id));
    assert_eq!(scheduler.items().carriers(0), 2);
    events(&mut scheduler);
    scheduler.finish(copy.id, &[Outcome::Failed], at(11));
    assert_eq!(events(&mut scheduler), [], "the slow one goes on");
    assert!(scheduler.is_shared(slow.id), "the error of the other waits");
    assert!(scheduler.is_shared(copy.id), "it has ended");
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
fn a_lost_producer_puts_back_only_what_is_still_wanted() {
    let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(2) }, 4);
    lease(&mut scheduler, 0, at(0));
    scheduler.give_up_from(2);
    scheduler.producer_lost(0, at(1)).unwrap();
    assert_eq!(lease(&mut scheduler, 1, at(1)).items, [0, 1]);
    assert_eq!(ask(&mut scheduler, 1, at(1)), Next::Wait);
}

#[test]
fn the_hook_that_a_producer_is_absent_in_is_known_until_it_joins() {
    let mut scheduler = offered(config(2), 1);
    scheduler.expect(0, Absence::EarlierRun, at(0));
    assert_eq!(scheduler.producers.deadlines.absence(0), Some(Absence::EarlierRun));
    assert_eq!(scheduler.producers.deadlines.absence(1), None);
    assert!(scheduler.producer_joined(0));
    assert_eq!(scheduler.producers.deadlines.absence(0), None);
}

#[test]
fn one_producer_is_woken_for_a_batch() {
    let mut scheduler = scheduler(Config { batching: batches(Batch::of(4)), ..config(2) });
    (0..2).for_each(|producer| assert_eq!(ask(&mut scheduler, producer, at(0)), Next::Wait));
    (0..4).for_each(|index| offer(&mut scheduler, index, at(0)));
    assert_eq!(wakes(&mut scheduler), [0]);
    scheduler.feeder(Activity::Waiting, at(0));
    assert!(wakes(&mut scheduler).is_empty(), "it takes all of them");
}

#[test]
fn a_lost_producer_is_replaced_once_and_not_after_the_end() {
    let replaced = |is_aborted| {
        let mut scheduler = scheduler(Config { spares: 1, ..config(2) });
        if is_aborted {
            scheduler.abort();
        }
        scheduler.producer_lost(0, at(0)).expect("one is left");
        let by = [0; 2].map(|lost| scheduler.take_replacement(lost));
        (scheduler.health().is_live(0), by)
    };
    assert_eq!(replaced(false), (true, [Some(1), None]));
    assert_eq!(replaced(true), (false, [None, None]));
}

#[test]
fn a_run_that_takes_too_long_abandons_each_producer_in_a_hook() {
    let timeouts = Timeouts { run: Some(100 * MS), ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, ..config(3) }, 2);
    for producer in [1, 2] {
        lease(&mut scheduler, producer, at(0));
    }
    scheduler.handle_timeout(at(100));
    scheduler.handle_timeout(at(200));
    let found = events(&mut scheduler);
    let abandoned = [0, 1, 2].map(|producer| found.contains(&Event::Abandon(producer)));
    assert_eq!(abandoned, [false, true, true]);
}

#[test]
fn the_time_of_a_call_that_lost_delays_no_copy() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(0));
    let copy = lease(&mut scheduler, 1, at(10));
    scheduler.finish(copy.id, &[Outcome::Succeeded], at(12));
    scheduler.finish(slow.id, &[Outcome::Succeeded], at(1_000));
    offer(&mut scheduler, 1, at(1_000));
    assert_eq!(lease(&mut scheduler, 0, at(1_000)).items, [1]);
    assert_eq!(ask(&mut scheduler, 1, at(1_000)), Next::WaitUntil(at(1_010)));
}

#[test]
fn no_producer_is_woken_for_copies_that_the_run_does_not_make() {
    let mut scheduler = offered(config(2), 1);
    lease(&mut scheduler, 0, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(0)), Next::Wait);
    stand_still(&mut scheduler, at(0));
    assert_eq!(events(&mut scheduler), []);
}

#[test]
fn nothing_is_copied_while_the_feeder_or_the_consumer_works() {
    let mut scheduler = offered(Config { copy_after: Some(10 * MS), ..config(2) }, 1);
    lease(&mut scheduler, 0, at(0));
    scheduler.consumer(Activity::Waiting, at(0));
    assert_eq!(ask(&mut scheduler, 1, at(20)), Next::Wait, "more may come");
    scheduler.consumer(Activity::Working, at(20));
    scheduler.input_ended(at(20));
    assert_eq!(ask(&mut scheduler, 1, at(20)), Next::Wait, "the consumer has results");
}

#[test]
fn a_copy_has_only_the_items_that_are_wanted() {
    let copied = |give_up: fn(&mut Scheduler)| {
        let batching = batches(Batch::of(2));
        let mut scheduler = offered(Config { batching, copy_after: Some(10 * MS), ..config(2) }, 2);
        lease(&mut scheduler, 0, at(0));
        stand_still(&mut scheduler, at(0));
        give_up(&mut scheduler);
        lease(&mut scheduler, 1, at(50)).items
    };
    assert_eq!(copied(|_| {}), [0, 1]);
    assert_eq!(copied(|scheduler| scheduler.withdraw(&[0], at(1))), [1]);
    assert_eq!(copied(|scheduler| scheduler.give_up_from(1)), [0]);
}

#[test]
fn another_attempt_at_an_item_is_shared_with_no_producer_and_may_be_copied() {
    let config = Config { retries: 1, copy_after: Some(10 * MS), ..config(3) };
    let mut scheduler = offered(config, 1);
    assert_eq!(fail(&mut scheduler, 0, at(0)).1, Decision::Retry(at(10)));
    let again = lease(&mut scheduler, 1, at(10));
    assert!(!scheduler.is_shared(again.id));
    stand_still(&mut scheduler, at(10));
    assert_eq!(lease(&mut scheduler, 2, at(50)).items, [0]);
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

#[test]
fn what_is_withdrawn_from_a_batch_or_its_parts_is_not_tried_again() {
    for is_split in [false, true] {
        let mut scheduler = offered(Config { batching: batches(Batch::of(4)), ..config(1) }, 4);
        let whole = lease(&mut scheduler, 0, at(0));
        let split = |scheduler: &mut Scheduler| {
            scheduler.fail_together(whole.id, Inputs::Kept, Memory::Sufficient, at(0))
        };
        let mut came = is_split.then(|| split(&mut scheduler));
        scheduler.withdraw(&[2], at(0));
        let items = match came.get_or_insert_with(|| split(&mut scheduler)) {
            Together::Split(items) => items.clone(),
            other => panic!("{other:?} is no split"),
        };
        assert_eq!(items, if is_split { vec![0, 1, 2, 3] } else { vec![0, 1, 3] });
        let mut left = vec![];
        while let Next::Work(lease) = ask(&mut scheduler, 0, at(0)) {
            left.extend(lease.items);
        }
        assert_eq!(left, [0, 1, 3]);
    }
}

#[test]
fn a_batch_without_extent_that_does_not_fit_is_halved() {
    let mut batching = Batching::new(Batch::of(4));
    batching.limit_cost(10);
    let mut scheduler = scheduler(Config { batching: Some(batching), ..config(1) });
    for index in 0..4 {
        let size = Size { cost: 0, padded: 1 };
        scheduler.offer(index, Meta { size, ..meta(at(0)) }, at(0));
    }
    let whole = lease(&mut scheduler, 0, at(0));
    scheduler.fail_together(whole.id, Inputs::Kept, Memory::Short, at(0));
    assert_eq!(lease(&mut scheduler, 0, at(0)).items, [0, 1]);
}

#[test]
fn a_producer_takes_part_again_when_the_last_of_its_revoked_hooks_returns() {
    let mut scheduler = offered(config(2), 2);
    let both = [0; 2].map(|producer| lease(&mut scheduler, producer, at(0)));
    scheduler.withdraw(&[0, 1], at(1));
    for (lease, is_available) in both.iter().zip([false, true]) {
        scheduler.finish(lease.id, &[Outcome::Succeeded], at(2));
        assert_eq!(scheduler.health().is_available(0), is_available);
    }
}

#[test]
fn an_item_that_was_withdrawn_does_not_count_by_the_copy_of_a_batch_that_failed() {
    let config = Config { batching: batches(Batch::of(2)), copy_after: Some(10 * MS), ..config(2) };
    let mut scheduler = offered(config, 2);
    let slow = lease(&mut scheduler, 0, at(0));
    stand_still(&mut scheduler, at(0));
    let copy = lease(&mut scheduler, 1, at(50));
    scheduler.withdraw(&[0], at(51));
    let came = scheduler.fail_together(slow.id, Inputs::Kept, Memory::Sufficient, at(52));
    assert_eq!(came, Together::Split(vec![1]));
    let standings = scheduler.finish(copy.id, &[Outcome::Succeeded; 2], at(53));
    assert_eq!(standings, [Standing::Stale, Standing::Counts]);
}

/// A run with this window, and how many items are leased to each producer, in turns.
fn shares(rule: Batch, window: usize, producers: usize, turns: usize) -> Vec<usize> {
    let mut batching = Batching::new(rule);
    batching.limit_to_window(window, producers);
    let config = Config { batching: Some(batching), window, ..config(producers) };
    let mut scheduler = offered(config, window as u64);
    let mut next = window as u64;
    let mut sizes = vec![];
    let mut leased = VecDeque::new();
    for turn in 0..turns {
        if turn >= producers {
            let Lease { id, items, .. } = leased.pop_front().expect("each producer has one");
            scheduler.finish(id, &vec![Outcome::Succeeded; items.len()], at(turn as u64));
            items.iter().for_each(|_| {
                offer(&mut scheduler, next, at(turn as u64));
                next += 1;
            });
        }
        let next_lease = lease(&mut scheduler, turn % producers, at(turn as u64));
        sizes.push(next_lease.items.len());
        leased.push_back(next_lease);
    }
    sizes
}

#[test]
fn a_window_just_above_a_batch_makes_no_batches_of_one() {
    assert_eq!(shares(Batch::up_to(32), 33, 2, 6), [16; 6]);
    assert_eq!(shares(Batch::up_to(32), 33, 1, 3), [32; 3]);
}

proptest::proptest! {
    #[test]
    fn batches_that_do_not_wait_are_even_in_every_window(
        most in 1..40_usize, producers in 1..6_usize, more in 0..80_usize,
    ) {
        let window = most.max(producers) + more;
        let even = most.min(window / producers);
        proptest::prop_assert_eq!(shares(Batch::up_to(most), window, producers, 12), [even; 12]);
    }
}

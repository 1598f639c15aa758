//! Producers that are lost, late, suspended or excluded.

use super::*;

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
    let [SchedulerEvent::Expired(expired)] = &events(&mut scheduler)[..] else {
        panic!("one event")
    };
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
    let [SchedulerEvent::Expired(expired), SchedulerEvent::Wake(1)] = &events(&mut scheduler)[..]
    else {
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
    assert_eq!(events(&mut scheduler), [SchedulerEvent::RunTimedOut]);
    scheduler.abort();
    scheduler.handle_timeout(at(200));
    assert_eq!(events(&mut scheduler), [SchedulerEvent::Abandon(0)]);
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
    let [SchedulerEvent::Expired(expired)] = &events(&mut scheduler)[..] else {
        panic!("one event")
    };
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
fn a_producer_whose_items_succeed_elsewhere_is_quarantined() {
    let mut scheduler = offered(Config { quarantine_after: Some(2), ..config(2) }, 9);
    assert_eq!(fail(&mut scheduler, 0, at(0)).1, Decision::Retry(at(0)));
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 1);
    assert!(!scheduler.health().may_take_new(0));
    assert_eq!(ask(&mut scheduler, 0, at(0)), Next::Wait);
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 0);
    assert_eq!(events(&mut scheduler), []);
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 1);
    assert_eq!(events(&mut scheduler), [SchedulerEvent::Quarantined(0), SchedulerEvent::Wake(0)]);
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
    assert!(events(&mut scheduler).contains(&SchedulerEvent::Quarantined(0)));
    assert_eq!(scheduler.producer_lost(0, at(0)), Ok(()));
    assert_eq!(lease(&mut scheduler, 1, at(0)).items, other.items);
}

#[test]
fn too_few_producers_are_reported() {
    let config = Config { quarantine_after: Some(1), min_producers: 2, ..config(2) };
    let mut scheduler = offered(config, 1);
    assert_eq!(fail(&mut scheduler, 0, at(0)).0, 0);
    assert_eq!(succeed(&mut scheduler, 1, at(0)), 0);
    let few = SchedulerEvent::TooFewProducers { live: 1 };
    assert_eq!(events(&mut scheduler), [SchedulerEvent::Quarantined(0), few]);
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
    let [SchedulerEvent::Expired(expired), ..] = &events(&mut scheduler)[..] else {
        panic!("it expires")
    };
    assert_eq!(expired.phase, Phase::Preparing);
    scheduler.rebuild(held.id, at(107));
    assert_eq!(scheduler.finish(held.id, &[Outcome::Succeeded], at(108)), [Standing::Stale]);
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
fn a_run_that_takes_too_long_abandons_each_producer_in_a_hook() {
    let timeouts = Timeouts { run: Some(100 * MS), ..Timeouts::default() };
    let mut scheduler = offered(Config { timeouts, ..config(3) }, 2);
    for producer in [1, 2] {
        lease(&mut scheduler, producer, at(0));
    }
    scheduler.handle_timeout(at(100));
    scheduler.handle_timeout(at(200));
    let found = events(&mut scheduler);
    let abandoned = [0, 1, 2].map(|producer| found.contains(&SchedulerEvent::Abandon(producer)));
    assert_eq!(abandoned, [false, true, true]);
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

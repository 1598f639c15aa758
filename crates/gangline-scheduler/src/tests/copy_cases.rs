//! Copies of slow items, and shared leases.

use super::*;

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
        events(&mut scheduler).contains(&SchedulerEvent::Revoke { lease: slow.id, producer: 0 }),
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
    assert_eq!(events(&mut scheduler), [SchedulerEvent::Revoke { lease: slow.id, producer: 0 }]);
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
        !events(&mut scheduler).contains(&SchedulerEvent::Revoke { lease: slow.id, producer: 0 }),
        "it is still wanted"
    );
    let standings = scheduler.finish(slow.id, &[Failed, Succeeded, Failed], at(50));
    assert_eq!(standings, [Stale, Counts, Counts]);
    assert_eq!(scheduler.decide(&[2], RETRY, at(50)), Decision::Skip);
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
        assert!(revoked.contains(&SchedulerEvent::Revoke { lease, producer }), "{revoked:?}");
    }
    scheduler.withdraw(&[0], at(12));
    assert_eq!(events(&mut scheduler), [], "it is known already");
    for lease in [slow.id, copy.id] {
        assert_eq!(scheduler.finish(lease, &[Outcome::Succeeded], at(13)), [Standing::Stale]);
    }
    assert!(scheduler.items().get(0).is_none(), "nothing is kept of it");
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

//! Models of speculation: two producers work on one item, since the first is slow.
//!
//! The clock of a model stands still, so every item is slow at once.

use gangline_scheduler::batch::Batch;

use super::trials::{Fails, PASSES, Played, Scene, Slow, Until, all_ok_but, check};
use crate::policy::Stragglers;

const RACES: Scene = Scene { stragglers: Stragglers::Copy, ..PASSES };

const fn stuck(item: u64) -> Option<Slow> {
    Some(Slow { item, until: Until::Left, fails: |_| false })
}

fn all_ok(scene: Scene) {
    check(move || assert_eq!(scene.play().seen, all_ok_but(scene.items, &[])));
}

/// Idle producers must be woken when nothing else goes on. The first call ends once its lease is revoked.
#[test]
fn an_item_that_is_stuck_is_done_by_another() {
    all_ok(Scene { slow: stuck(0), window: 2, items: 3, ..RACES });
}

#[test]
fn the_last_item_that_is_stuck_is_done_by_another() {
    all_ok(Scene { slow: stuck(2), items: 3, ..RACES });
}

#[test]
fn the_only_item_that_is_stuck_is_done_by_one_of_two_others() {
    all_ok(Scene { producers: 3, slow: stuck(0), items: 1, ..RACES });
}

/// A producer on the same GPU leaves the item to the other GPU, or helps once that one is in a call too.
#[test]
fn an_item_that_is_stuck_on_a_gpu_of_two_is_done_by_somebody() {
    for gpus in [&[0, 0, 1], &[0, 1, 0], &[0, 1, 1]] {
        let scene = Scene { producers: 3, gpus: Some(gpus), slow: stuck(0), ..RACES };
        all_ok(Scene { window: 2, items: 3, ..scene });
        all_ok(Scene { items: 1, ..scene });
    }
}

/// The producers on the other GPU fail what they help with, or are abandoned.
#[test]
fn an_item_that_is_slow_on_a_gpu_beside_others_that_fail() {
    let fails: Fails = |producer, _| producer == 2;
    let scene = Scene { producers: 3, gpus: Some(&[0, 0, 1]), window: 2, items: 3, ..RACES };
    all_ok(Scene { retries: 2, fails, ..scene });
    all_ok(Scene { quarantine_after: Some(1), fails, ..scene });
    check(move || {
        let Played { run, seen, .. } = Scene { looks: 5, ..scene }.play();
        let items: Vec<_> = seen.iter().map(|&(item, _)| item).collect();
        let all = if run.has_fatal_error() { seen.len() as u64 } else { scene.items };
        assert_eq!(items, (0..all).collect::<Vec<_>>());
    });
}

#[test]
fn items_that_two_work_on_are_consumed_once() {
    all_ok(Scene { producers: 3, window: 2, ..RACES });
}

/// A failure of one copy counts only if the other copy fails too.
#[test]
fn a_producer_that_fails_what_it_helps_with() {
    let fails: Fails = |producer, _| producer == 1;
    let scene = Scene { window: 2, items: 3, fails, ..RACES };
    check(move || {
        let items: Vec<_> = scene.play().seen.into_iter().map(|(item, _)| item).collect();
        assert_eq!(items, [0, 1, 2], "each once, failed or not");
    });
}

/// The next attempt goes to another producer than the last.
#[test]
fn a_producer_that_fails_what_can_be_tried_again() {
    let fails: Fails = |producer, _| producer == 1;
    all_ok(Scene { window: 2, items: 3, retries: 1, fails, ..RACES });
}

/// The first producer to be abandoned may be the helper.
#[test]
fn producers_that_are_written_off_beside_others_at_the_same_item() {
    let scene = Scene { producers: 3, window: 2, items: 3, looks: 5, ..RACES };
    check(move || {
        let Played { run, seen, .. } = scene.play();
        let items: Vec<_> = seen.iter().map(|&(item, _)| item).collect();
        let all = if run.has_fatal_error() { seen.len() as u64 } else { scene.items };
        assert_eq!(items, (0..all).collect::<Vec<_>>());
    });
}

/// The revoked call lasts until every producer that the end of the run waits for has left.
#[test]
fn the_run_does_not_wait_for_the_one_that_has_lost() {
    for producers in [2, 3] {
        let slow = Some(Slow { item: 1, until: Until::Over, fails: |_| false });
        let scene = Scene { producers, slow, items: 3, ..RACES };
        check(move || {
            let Played { seen, calls, .. } = scene.play();
            assert_eq!((seen, calls), (all_ok_but(3, &[]), 2), "a third does not help");
        });
    }
}

/// The other copy may finish first even after the cancel.
#[test]
fn a_run_that_is_cancelled_does_not_wait_for_the_one_that_loses() {
    let slow = Some(Slow { item: 0, until: Until::Over, fails: |_| false });
    let scene = Scene { slow, is_cancelled: true, items: 2, ..RACES };
    check(move || assert_eq!(scene.play().calls, 2));
}

/// Either of the two calls may finish first.
#[test]
fn an_error_counts_only_if_the_other_fails_too() {
    let cases: [(fn(u64) -> bool, bool); 4] =
        [(|_| false, true), (|call| call == 1, true), (|call| call == 2, true), (|_| true, false)];
    for (fails, is_ok) in cases {
        let slow = Some(Slow { item: 1, until: Until::Another, fails });
        let scene = Scene { slow, items: 3, ..RACES };
        check(move || {
            let Played { seen, calls, .. } = scene.play();
            assert_eq!(seen, [(0, true), (1, is_ok), (2, true)]);
            assert_eq!(calls, 2);
        });
    }
}

#[test]
fn what_both_have_failed_is_tried_again() {
    let slow = Some(Slow { item: 1, until: Until::Another, fails: |call| call <= 2 });
    all_ok(Scene { slow, retries: 1, items: 3, ..RACES });
}

fn batches(items: usize) -> Scene {
    Scene { batch: Some(Batch::of(items)), window: 2 * items, ..RACES }
}

#[test]
fn a_batch_that_is_stuck_is_done_by_another() {
    for item in [0, 1, 4] {
        all_ok(Scene { slow: stuck(item), items: 5, ..batches(2) });
    }
}

#[test]
fn batches_that_two_work_on_are_consumed_once() {
    all_ok(Scene { producers: 3, items: 5, ..batches(2) });
}

/// A single retry runs beside another producer that may finish some of the items first.
#[test]
fn a_producer_that_fails_one_of_a_batch() {
    for retries in [0, 1] {
        let fails: Fails = |producer, item| producer == 1 && item == 1;
        let scene = Scene { items: 4, retries, fails, ..batches(2) };
        check(move || {
            let seen = scene.play().seen;
            let items: Vec<_> = seen.iter().map(|&(item, _)| item).collect();
            assert_eq!(items, [0, 1, 2, 3], "each once");
            let failed = seen.iter().filter(|(_, is_ok)| !is_ok).map(|&(item, _)| item);
            // A second attempt does not help: it needs the other producer, which may still be in a revoked
            // call.
            assert!(failed.clone().all(|item| item == 1), "{seen:?}");
        });
    }
}

/// Others do the parts that the stuck producer has put off. Only the revocation of its lease ends its call.
#[test]
fn a_producer_that_is_stuck_in_part_of_a_batch() {
    // The batch is split because its first item fails on every producer.
    let fails: Fails = |_, item| item == 0;
    let scene = Scene { slow: stuck(1), fails, items: 5, ..batches(4) };
    check(move || assert_eq!(scene.play().seen, all_ok_but(5, &[0])));
}

#[test]
fn producers_that_are_written_off_beside_others_at_the_same_batch() {
    let scene = Scene { producers: 3, items: 5, looks: 5, ..batches(2) };
    check(move || {
        let Played { run, seen, .. } = scene.play();
        let items: Vec<_> = seen.iter().map(|&(item, _)| item).collect();
        let all = if run.has_fatal_error() { seen.len() as u64 } else { scene.items };
        assert_eq!(items, (0..all).collect::<Vec<_>>());
    });
}

#[test]
fn the_run_does_not_wait_for_the_batch_that_has_lost() {
    for producers in [2, 3] {
        let slow = Some(Slow { item: 1, until: Until::Over, fails: |_| false });
        let scene = Scene { producers, slow, items: 3, ..batches(2) };
        check(move || {
            let Played { seen, calls, .. } = scene.play();
            assert_eq!((seen, calls), (all_ok_but(3, &[]), 2), "a third does not help");
        });
    }
}

/// Both lose their states for good at item 0, after the batch was split, and so release item 1. The third may
/// take it at any moment.
#[test]
fn what_both_have_handed_on_is_tried_by_the_third() {
    let cases: [(Fails, bool); 2] = [(|_, _| false, true), (|_, item| item == 1, false)];
    for (fails, is_ok) in cases {
        let slow = Some(Slow { item: 0, until: Until::Another, fails: |call| call <= 2 });
        let loses = |call| call > 2;
        let scene = Scene { producers: 3, items: 2, slow, loses, fails, ..batches(2) };
        check(move || assert_eq!(scene.play().seen, [(0, false), (1, is_ok)]));
    }
}

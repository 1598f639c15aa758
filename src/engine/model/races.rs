//! Models of items that two producers work on, since one of them is slow.
//!
//! The clock of a model stands still, so that every item is slow at once.

use super::trials::{Fails, PASSES, Scene, all_ok_but, check};
use crate::policy::Stragglers;

const RACES: Scene = Scene { stragglers: Stragglers::Copy, ..PASSES };

fn all_ok(scene: Scene) {
    check(move || assert_eq!(scene.play().1, all_ok_but(scene.items, &[])));
}

/// Whoever is asleep when everything stands still has to be woken: the call ends when it has lost.
#[test]
fn an_item_that_is_stuck_is_done_by_another() {
    all_ok(Scene { stuck: Some(0), window: 2, items: 3, ..RACES });
}

#[test]
fn the_last_item_that_is_stuck_is_done_by_another() {
    all_ok(Scene { stuck: Some(2), items: 3, ..RACES });
}

#[test]
fn the_only_item_that_is_stuck_is_done_by_one_of_two_others() {
    all_ok(Scene { producers: 3, stuck: Some(0), items: 1, ..RACES });
}

#[test]
fn items_that_two_work_on_are_consumed_once() {
    all_ok(Scene { producers: 3, window: 2, ..RACES });
}

/// An error of one of the two counts only if the other fails too.
#[test]
fn a_producer_that_fails_what_it_helps_with() {
    let fails: Fails = |worker, _| worker == 1;
    let scene = Scene { window: 2, items: 3, fails, ..RACES };
    check(move || {
        let items: Vec<_> = scene.play().1.into_iter().map(|(item, _)| item).collect();
        assert_eq!(items, [0, 1, 2], "each once, failed or not");
    });
}

/// The next attempt is another producer's, whoever else was at the item before.
#[test]
fn a_producer_that_fails_what_can_be_tried_again() {
    let fails: Fails = |worker, _| worker == 1;
    all_ok(Scene { window: 2, items: 3, retries: 1, fails, ..RACES });
}

/// The first to be written off may be the one that helps.
#[test]
fn producers_that_are_written_off_beside_others_at_the_same_item() {
    let scene = Scene { producers: 3, window: 2, items: 3, looks: 5, ..RACES };
    check(move || {
        let (run, seen) = scene.play();
        let items: Vec<_> = seen.iter().map(|&(item, _)| item).collect();
        let all = if run.is_doomed() { seen.len() as u64 } else { scene.items };
        assert_eq!(items, (0..all).collect::<Vec<_>>());
    });
}

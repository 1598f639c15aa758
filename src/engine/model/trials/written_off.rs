//! Producers that are written off.

use super::*;

/// The producer on the other GPU may be abandoned; the items that wait for it go on then.
#[test]
fn a_gpu_that_is_written_off_while_items_wait_for_it() {
    let fails: Fails = |producer, _| producer != 1;
    let gpus = Some(&[0, 1, 0][..]);
    check_written_off(Scene {
        producers: 3,
        gpus,
        quarantine_after: Some(2),
        fails,
        looks: 5,
        ..PASSES
    });
}

/// Whichever producer is abandoned, and whenever: each of its items is done by others or fails, once.
fn check_written_off(scene: Scene) {
    check(move || {
        let Played { run, seen, .. } = scene.play();
        let items: Vec<_> = seen.iter().map(|&(item, _)| item).collect();
        let all = if run.has_fatal_error() { seen.len() as u64 } else { scene.items };
        assert_eq!(items, (0..all).collect::<Vec<_>>());
    });
}

#[test]
fn producers_that_are_written_off_at_an_item() {
    check_written_off(Scene { looks: 5, ..PASSES });
}

#[test]
fn producers_that_are_written_off_at_an_item_that_can_be_tried_again() {
    check_written_off(Scene { producers: 3, looks: 5, retries: 1, ..PASSES });
}

/// After a batch was split, its producer may be abandoned while it works on one part and owns the other.
#[test]
fn producers_that_are_written_off_at_a_batch() {
    let batch = Some(Batch::of(3));
    check_written_off(Scene { looks: 5, batch, fails: |_, item| item == 2, ..PASSES });
}

use super::*;

/// Works on batches at the ceiling, on a device with room for `room`. Returns the number that ran out of
/// memory.
fn work(ceiling: &mut Ceiling, batches: usize, room: u64) -> usize {
    let mut fell_short = 0;
    for _ in 0..batches {
        let extent = ceiling.extent().unwrap_or(64).min(64);
        if extent > room {
            ceiling.fell_short(extent);
            fell_short += 1;
        } else {
            ceiling.went_well(extent);
        }
    }
    fell_short
}

#[test]
fn it_falls_to_what_works() {
    let mut ceiling = Ceiling::default();
    assert_eq!(ceiling.extent(), None);
    assert_eq!(work(&mut ceiling, 4, 10), 3, "64, 32 and 16 do not fit");
    assert_eq!(ceiling.extent(), Some(8));
}

#[test]
fn one_item_is_always_tried() {
    let mut ceiling = Ceiling::default();
    ceiling.fell_short(1);
    assert_eq!(ceiling.extent(), Some(1));
}

#[test]
fn an_item_above_the_ceiling_does_not_raise_it() {
    let mut ceiling = Ceiling::default();
    ceiling.fell_short(20);
    ceiling.fell_short(100);
    assert_eq!(ceiling.extent(), Some(10));
}

#[test]
fn items_that_cost_nothing_teach_nothing() {
    let mut ceiling = Ceiling::default();
    ceiling.fell_short(0);
    assert_eq!(ceiling.extent(), None);
}

#[test]
fn it_rises_slowly_and_seldom_too_far() {
    let mut ceiling = Ceiling::default();
    let short = work(&mut ceiling, 10_000, 10);
    assert!((9..=10).contains(&ceiling.extent().unwrap()), "{ceiling:?}");
    assert!(short < 12, "{short} of 10,000 batches fell short");
}

#[test]
fn what_went_well_before_is_forgotten_when_it_no_longer_does() {
    let mut ceiling = Ceiling::default();
    work(&mut ceiling, 100, 40);
    assert!(ceiling.extent() >= Some(32));
    assert!(work(&mut ceiling, 10, 5) < 8);
    assert!(ceiling.extent() <= Some(5));
}

#[test]
fn memory_that_comes_back_is_used_again() {
    let mut ceiling = Ceiling::default();
    work(&mut ceiling, 100, 4);
    work(&mut ceiling, 10_000, 64);
    assert!(ceiling.extent() >= Some(64), "{ceiling:?}");
}

#[test]
fn small_batches_prove_nothing() {
    let mut ceiling = Ceiling::default();
    ceiling.fell_short(32);
    (0..1_000).for_each(|_| ceiling.went_well(3));
    assert_eq!(ceiling.extent(), Some(16));
}

#[test]
fn batches_near_the_ceiling_raise_it_by_an_eighth() {
    for (extent, raised) in [(69, 80), (70, 90), (80, 90)] {
        let mut ceiling = Ceiling::default();
        ceiling.fell_short(160);
        (0..FIRST_PATIENCE).for_each(|_| ceiling.went_well(extent));
        assert_eq!(ceiling.extent(), Some(raised), "{extent} of 80");
    }
}

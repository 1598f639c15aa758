use proptest::prelude::*;

use super::*;

/// The sizes of consecutive takes from `items` items that are all available at the start.
fn shares(producers: usize, items: usize, most: usize) -> Vec<usize> {
    let mut shares = Shares::new(producers, most);
    let mut here = items;
    std::iter::from_fn(|| {
        let taken = shares.offer(here);
        shares.take(taken);
        here -= taken;
        Some(taken).filter(|&taken| taken > 0)
    })
    .collect()
}

#[test]
fn each_producer_takes_its_share_at_once() {
    assert_eq!(shares(2, 64, 100), [32, 32]);
    assert_eq!(shares(3, 64, 100), [21, 21, 21, 1]);
}

#[test]
fn the_last_of_many_are_shared_too() {
    assert_eq!(shares(2, 64, 20), [20, 20, 12, 12]);
    assert_eq!(shares(3, 190, 30), [30, 30, 30, 30, 30, 30, 3, 3, 3, 1]);
}

#[test]
fn fewer_items_than_producers_go_to_one_each() {
    assert_eq!(shares(4, 3, 100), [1, 1, 1]);
    assert_eq!(shares(4, 7, 100), [1; 7]);
}

#[test]
fn one_that_takes_less_leaves_the_rest_of_its_share() {
    let mut shares = Shares::new(2, 64);
    assert_eq!(shares.offer(64), 32);
    shares.take(8);
    assert_eq!(shares.offer(56), 32);
    shares.take(32);
    assert_eq!(shares.offer(24), 24);
}

#[test]
fn what_comes_meanwhile_is_shared_when_the_rest_is_taken() {
    let mut shares = Shares::new(2, 64);
    assert_eq!(shares.offer(0), 0);
    assert_eq!(shares.offer(8), 4);
    shares.take(4);
    assert_eq!(shares.offer(104), 4);
    shares.take(4);
    assert_eq!(shares.offer(100), 50);
}

proptest! {
    /// Otherwise a producer whose results are held back for order could fill the window with a single
    /// take.
    #[test]
    fn nobody_takes_more_than_a_share_of_the_window_at_once(
        producers in 1_usize..9,
        window in 1_usize..100,
        steps in prop::collection::vec((0_usize..100, 1_usize..100), 1..100),
    ) {
        let mut shares = Shares::new(producers, 64);
        let mut here = 0;
        for (come, most) in steps {
            here = window.min(here + come);
            let taken = shares.offer(here).min(most);
            prop_assert!(taken <= here && taken <= (window / producers).clamp(1, 64));
            prop_assert_eq!(taken == 0, here == 0);
            shares.take(taken);
            here -= taken;
        }
    }
}

use super::*;
use proptest::prelude::*;

#[test]
fn bins_get_coarser_as_time_goes_on_and_lose_nothing() {
    let mut bins = Bins::new(1, 4);
    for at in [0, 1_024, 3_000] {
        bins.spread(0, at, at, 1);
    }
    assert_eq!(bins.clone().until(4_095), (Duration::from_nanos(1_024), vec![vec![1, 1, 1, 0]]));
    bins.spread(0, 4_096, 4_096, 1);
    assert_eq!(bins.clone().until(4_097), (Duration::from_nanos(2_048), vec![vec![2, 1, 1]]));
    assert_eq!(bins.clone().until(1 << 30).1[0].len(), 2, "bins without amounts are kept");
    bins.spread(0, LATEST, LATEST, 1);
    assert_eq!((bins.sum(0), bins.rows[0].len()), (5, 3));
}

#[test]
fn a_time_is_shared_out_among_its_bins() {
    let mut bins = Bins::new(2, 4);
    bins.add_time(1, 1_000, 3_000);
    assert_eq!(bins.until(3_000).1, [[0, 0, 0], [24, 1_024, 952]]);
}

#[test]
fn an_amount_is_shared_out_among_the_bins_of_its_time() {
    let mut bins = Bins::new(1, 4);
    bins.spread(0, 512, 3_584, 12);
    assert_eq!(bins.clone().until(4_000).1, [[2, 4, 4, 2]]);
    bins.spread(0, 4_000, 4_000, 7);
    assert_eq!(bins.until(4_000).1, [[2, 4, 4, 9]]);
}

#[test]
fn no_time_is_too_long() {
    assert_eq!(nanos(Duration::MAX), LATEST);
    assert_eq!(nanos(Duration::from_millis(1)), 1_000_000);
}

proptest! {
    #[test]
    fn nothing_that_is_shared_out_is_lost(
        amounts in proptest::collection::vec((0u64..1 << 50, 0u64..1 << 40, 0..u64::MAX >> 8), 1..50),
    ) {
        let mut bins = Bins::of_counts(1, 8);
        for &(from, lasted, amount) in &amounts {
            bins.spread(0, from, from + lasted, amount);
        }
        prop_assert_eq!(bins.sum(0), amounts.iter().map(|&(_, _, amount)| amount).sum::<u64>());
        prop_assert!(bins.rows[0].len() <= 8);
    }

    #[test]
    fn times_add_up_whatever_their_width(
        times in proptest::collection::vec((0u64..1 << 50, 0u64..1 << 40), 1..50),
    ) {
        let mut bins = Bins::new(1, 8);
        for &(from, lasted) in &times {
            bins.add_time(0, from, from + lasted);
        }
        prop_assert_eq!(bins.sum(0), times.iter().map(|&(_, lasted)| lasted).sum::<u64>());
        prop_assert!(bins.rows[0].len() <= 8);
    }
}

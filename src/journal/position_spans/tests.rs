use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn span(first: u64, last: u64) -> PositionSpan {
    PositionSpan { first, last, hash: None }
}

#[test]
fn neighbours_become_one() {
    let mut spans = PositionSpans::default();
    assert!(spans.insert(span(0, 9)) && spans.insert(span(20, 29)) && spans.insert(span(10, 19)));
    assert_eq!(spans.find(15), Some(span(0, 29)));
    assert_eq!((spans.find(30), spans.last()), (None, Some(29)));
}

#[test]
fn neighbours_with_hashes_stay_apart() {
    let mut spans = PositionSpans::default();
    let [a, b] =
        [(0, 9), (10, 10)].map(|(first, last)| PositionSpan { hash: Some(7), ..span(first, last) });
    assert!(spans.insert(a) && spans.insert(b));
    assert_eq!((spans.find(9), spans.find(10)), (Some(a), Some(b)));
}

#[test]
fn the_last_position_of_all_is_one_too() {
    let mut spans = PositionSpans::default();
    assert!(spans.insert(span(u64::MAX, u64::MAX)) && spans.insert(span(0, u64::MAX - 1)));
    assert_eq!(spans.find(7).map(|span| span.positions()), Some(u64::MAX));
    assert!(!spans.insert(span(3, 3)));
}

#[test]
fn each_item_and_its_place_count() {
    let of = |hashes: [u64; 3]| hashes.iter().fold(0, |h, &hash| fold(h, hash));
    let all = [[1, 2, 3], [2, 1, 3], [1, 2, 4], [0, 2, 3], [3, 2, 1]].map(of);
    assert_eq!(all.iter().collect::<BTreeSet<_>>().len(), all.len());
}

/// Journals of other versions have them.
#[test]
fn hashes_are_folded_by_split_mix_64() {
    // The first outputs of its reference implementation for the seed 1234567.
    let states =
        [1, 2].map(|n: u64| 1_234_567_u64.wrapping_add(n.wrapping_mul(0x9E37_79B9_7F4A_7C15)));
    let outputs = states.map(|state| fold(0, state));
    assert_eq!(outputs, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973]);
}

#[test]
fn spans_with_hashes_end_where_positions_are_missing() {
    let mut items = [(6, 1), (4, 2), (7, 3)];
    assert_eq!(hashed_spans_of(&mut items), [(4, 4, fold(0, 2)), (6, 7, fold(fold(0, 1), 3))]);
}

proptest! {
    #[test]
    fn spans_are_the_set_of_their_positions(
        tried in proptest::collection::vec((0u64..60, 0u64..6), 0..40),
    ) {
        let (mut spans, mut set) = (PositionSpans::default(), BTreeSet::new());
        for (first, more) in tried {
            let is_new = (first..=first + more).all(|position| !set.contains(&position));
            prop_assert_eq!(spans.insert(span(first, first + more)), is_new);
            if is_new {
                set.extend(first..=first + more);
            }
        }
        for position in 0..70 {
            prop_assert_eq!(spans.find(position).is_some(), set.contains(&position));
        }
        let mut positions: Vec<u64> = set.iter().copied().collect();
        let whole = spans_of(&mut positions);
        let held: Vec<_> = spans.spans.iter().map(|(first, (last, _))| (*first, *last)).collect();
        prop_assert_eq!(whole, held, "as few spans as there can be");
    }
}

//! Sets of positions, as spans.

use std::collections::BTreeMap;

/// Positions from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Span {
    pub(super) first: u64,
    pub(super) last: u64,
    /// The folded hashes of the items, in the order of their positions; `None` without hashes.
    pub(super) hash: Option<u64>,
}

/// Spans that do not overlap.
///
/// Without hashes, adjacent spans are joined, so items done in order take no memory. With hashes each
/// committed span stays by itself, since only whole spans can be checked.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Spans {
    /// Keyed by the first position: the last, and the hash.
    spans: BTreeMap<u64, (u64, Option<u64>)>,
}

impl Span {
    pub(super) fn contains(&self, position: u64) -> bool {
        (self.first..=self.last).contains(&position)
    }

    pub(super) fn positions(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

impl Spans {
    /// Adds a span; fails if it overlaps another or is empty.
    #[must_use]
    pub(super) fn insert(&mut self, span: Span) -> bool {
        if span.first > span.last || self.has_any_of(span) {
            return false;
        }
        let Span { first, last, hash } = match span.hash {
            None => self.joined(span),
            Some(_) => span,
        };
        self.spans.insert(first, (last, hash));
        true
    }

    /// Returns the span that contains the position.
    pub(super) fn find(&self, position: u64) -> Option<Span> {
        self.at_or_before(position).filter(|span| span.contains(position))
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.spans.values().next_back().map(|(last, _)| *last)
    }

    fn has_any_of(&self, span: Span) -> bool {
        self.at_or_before(span.last).is_some_and(|before| before.last >= span.first)
    }

    /// Joins the span with its neighbours, which are removed.
    fn joined(&mut self, mut span: Span) -> Span {
        let before = span.first.checked_sub(1).and_then(|position| self.find(position));
        if let Some(before) = before.filter(|before| before.hash.is_none()) {
            self.spans.remove(&before.first);
            span.first = before.first;
        }
        let after = span.last.checked_add(1).and_then(|position| self.spans.get(&position));
        if let Some(&(last, None)) = after {
            self.spans.remove(&(span.last + 1));
            span.last = last;
        }
        span
    }

    fn at_or_before(&self, position: u64) -> Option<Span> {
        let (&first, &(last, hash)) = self.spans.range(..=position).next_back()?;
        Some(Span { first, last, hash })
    }
}

/// Folds a hash into the hash of consecutive items, which starts at 0.
///
/// One-to-one in either argument, so that one item that changed is always noticed.
pub(super) fn fold(hashes: u64, hash: u64) -> u64 {
    // The finaliser of SplitMix64.
    let mut x = hashes.rotate_left(1) ^ hash;
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

/// Makes spans of positions, which are sorted first.
pub(super) fn spans_of(positions: &mut [u64]) -> Vec<(u64, u64)> {
    positions.sort_unstable();
    positions.chunk_by(|a, b| b - a == 1).map(|run| (run[0], run[run.len() - 1])).collect()
}

/// The same, of positions with hashes.
pub(super) fn hashed_spans_of(items: &mut [(u64, u64)]) -> Vec<(u64, u64, u64)> {
    items.sort_unstable();
    items
        .chunk_by(|a, b| b.0 - a.0 == 1)
        .map(|run| (run[0].0, run[run.len() - 1].0, run.iter().fold(0, |h, item| fold(h, item.1))))
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    fn span(first: u64, last: u64) -> Span {
        Span { first, last, hash: None }
    }

    #[test]
    fn neighbours_become_one() {
        let mut spans = Spans::default();
        assert!(
            spans.insert(span(0, 9)) && spans.insert(span(20, 29)) && spans.insert(span(10, 19))
        );
        assert_eq!(spans.find(15), Some(span(0, 29)));
        assert_eq!((spans.find(30), spans.last()), (None, Some(29)));
    }

    #[test]
    fn neighbours_with_hashes_stay_apart() {
        let mut spans = Spans::default();
        let [a, b] =
            [(0, 9), (10, 10)].map(|(first, last)| Span { hash: Some(7), ..span(first, last) });
        assert!(spans.insert(a) && spans.insert(b));
        assert_eq!((spans.find(9), spans.find(10)), (Some(a), Some(b)));
    }

    #[test]
    fn the_last_position_of_all_is_one_too() {
        let mut spans = Spans::default();
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

    proptest! {
        #[test]
        fn spans_are_the_set_of_their_positions(
            tried in proptest::collection::vec((0u64..60, 0u64..6), 0..40),
        ) {
            let (mut spans, mut set) = (Spans::default(), BTreeSet::new());
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
}

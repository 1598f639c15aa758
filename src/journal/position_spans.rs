//! Sets of positions, as spans.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

/// Positions from `first` to `last`, both included.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PositionSpan {
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
pub(super) struct PositionSpans {
    /// Keyed by the first position: the last, and the hash.
    spans: BTreeMap<u64, (u64, Option<u64>)>,
}

impl PositionSpan {
    pub(super) fn contains(&self, position: u64) -> bool {
        (self.first..=self.last).contains(&position)
    }

    pub(super) fn positions(&self) -> u64 {
        (self.last - self.first).saturating_add(1)
    }
}

impl PositionSpans {
    /// Adds a span; fails if it overlaps another or is empty.
    #[must_use]
    pub(super) fn insert(&mut self, span: PositionSpan) -> bool {
        if span.first > span.last || self.has_any_of(span) {
            return false;
        }
        let PositionSpan { first, last, hash } = match span.hash {
            None => self.joined(span),
            Some(_) => span,
        };
        self.spans.insert(first, (last, hash));
        true
    }

    /// Returns the span that contains the position.
    pub(super) fn find(&self, position: u64) -> Option<PositionSpan> {
        self.at_or_before(position).filter(|span| span.contains(position))
    }

    pub(super) fn last(&self) -> Option<u64> {
        self.spans.values().next_back().map(|(last, _)| *last)
    }

    fn has_any_of(&self, span: PositionSpan) -> bool {
        self.at_or_before(span.last).is_some_and(|before| before.last >= span.first)
    }

    /// Joins the span with its neighbours, which are removed.
    fn joined(&mut self, mut span: PositionSpan) -> PositionSpan {
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

    fn at_or_before(&self, position: u64) -> Option<PositionSpan> {
        let (&first, &(last, hash)) = self.spans.range(..=position).next_back()?;
        Some(PositionSpan { first, last, hash })
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

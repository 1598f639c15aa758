//! The parents that are open in an expansion: a permit for each, and the parent of each part.
//!
//! It holds indices and names, and no value of the user's.

use std::collections::VecDeque;
use std::sync::Arc;

use gangline_scheduler::IndexMap;

use crate::base::Order;
use crate::concurrency::atomic::{AtomicBool, AtomicUsize, Ordering};
use crate::concurrency::{Condvar, Mutex, lock, wait};
use crate::error::Error;
use crate::runner::OpenItems;

/// The open parents of one expansion in one run.
///
/// Parts are counted from 0 over all parents. The index after the last part of a parent is that of its end.
#[derive(Debug)]
pub(crate) struct OpenParents {
    state: Mutex<ParentInFlight>,
    returned: Condvar,
    /// The number of open parents that have failed. While it is 0, producers take no lock.
    failed: AtomicUsize,
    /// What a failed part means for its parent.
    holes: Holes,
}

/// What a failed part means for its parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Holes {
    /// The parent fails with it, and its other parts are withdrawn.
    #[default]
    Fail,
    /// The failure is gathered in the part's place.
    Gathered,
}

#[derive(Debug)]
struct ParentInFlight {
    free: usize,
    is_closed: bool,
    /// In the order of their parts.
    spans: VecDeque<ParentSpan>,
}

/// One open parent.
#[derive(Debug)]
struct ParentSpan {
    /// The index of its first part.
    first: u64,
    name: ItemPath,
    /// Parts behind this index are withdrawn.
    failed_at: u64,
}

/// An item, named by the one that it is a part of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ItemPath {
    pub(crate) item: u64,
    pub(crate) key: Option<Arc<str>>,
    /// The part's index in that item. `None` for the item itself.
    pub(crate) part: Option<u64>,
}

/// A stage of parts.
#[derive(Debug)]
pub(crate) struct PartStage {
    open: Arc<OpenParents>,
    /// The index of a part in the first stage of the expansion. `None` where it is its index in this stage.
    origins: Option<Mutex<IndexMap<u64>>>,
    /// Whether its results are gathered.
    is_last: AtomicBool,
}

impl ItemPath {
    /// The path of a part of this item.
    pub(crate) fn part(&self, part: u64) -> Self {
        ItemPath { part: Some(part), ..self.clone() }
    }

    /// The error of this item.
    pub(crate) fn failed(self, source: Error) -> Error {
        let ItemPath { item, key, part } = self;
        Error::PartFailed { item, key, part, source: Box::new(source) }
    }
}

impl OpenParents {
    /// For at most `most` open parents.
    pub(crate) fn new(most: usize, holes: Holes) -> Self {
        OpenParents {
            state: Mutex::new(ParentInFlight {
                free: most,
                is_closed: false,
                spans: VecDeque::new(),
            }),
            returned: Condvar::new(),
            failed: AtomicUsize::new(0),
            holes,
        }
    }

    pub(crate) fn holes(&self) -> Holes {
        self.holes
    }

    /// Takes a permit for one parent, if there is one.
    pub(crate) fn try_take(&self) -> bool {
        let mut state = lock(&self.state);
        let is_free = state.free > 0 && !state.is_closed;
        state.free -= usize::from(is_free);
        is_free
    }

    /// Waits for a permit for one parent. Returns `false` if no more parents are wanted.
    pub(crate) fn take(&self) -> bool {
        let mut state = lock(&self.state);
        while state.free == 0 && !state.is_closed {
            state = wait(&self.returned, state);
        }
        if state.is_closed {
            return false;
        }
        state.free -= 1;
        true
    }

    /// Wakes the thread that waits for a permit: no more parents are wanted.
    pub(crate) fn close(&self) {
        lock(&self.state).is_closed = true;
        self.returned.notify_all();
    }

    /// Opens a parent. Its first part has the index `first`.
    pub(crate) fn open(&self, first: u64, name: ItemPath) {
        let span = ParentSpan { first, name, failed_at: u64::MAX };
        lock(&self.state).spans.push_back(span);
    }

    /// Forgets a parent that is gathered, and returns its permit.
    pub(crate) fn end(&self, first: u64) {
        let mut state = lock(&self.state);
        let place = state.spans.binary_search_by_key(&first, |span| span.first);
        let span = place.ok().and_then(|place| state.spans.remove(place));
        if span.is_some_and(|span| span.failed_at != u64::MAX) {
            self.failed.fetch_sub(1, Ordering::Relaxed);
        }
        state.free += 1;
        drop(state);
        self.returned.notify_one();
    }

    /// Withdraws the parts of a parent behind this one.
    pub(crate) fn fail_behind(&self, part: u64) {
        let mut state = lock(&self.state);
        let Some(span) = state.span_of(part) else { return };
        if span.failed_at == u64::MAX {
            self.failed.fetch_add(1, Ordering::Relaxed);
        }
        span.failed_at = span.failed_at.min(part);
    }

    /// Whether the parent of this part has failed at an earlier part.
    pub(crate) fn is_withdrawn(&self, part: u64) -> bool {
        self.has_failed()
            && lock(&self.state).span_of(part).is_some_and(|span| span.failed_at < part)
    }

    fn has_failed(&self) -> bool {
        self.failed.load(Ordering::Relaxed) > 0
    }

    /// The parts before this index are those that the oldest open parent waits for. `all` is the number of
    /// indices used.
    pub(crate) fn oldest_end(&self, all: u64) -> u64 {
        lock(&self.state).spans.get(1).map_or(all, |span| span.first)
    }

    fn name_of(&self, part: u64) -> Option<ItemPath> {
        let mut state = lock(&self.state);
        let span = state.span_of(part)?;
        Some(span.name.part(part - span.first))
    }
}

impl ParentInFlight {
    fn span_of(&mut self, part: u64) -> Option<&mut ParentSpan> {
        let place = self.spans.partition_point(|span| span.first <= part);
        self.spans.get_mut(place.checked_sub(1)?)
    }
}

impl PartStage {
    /// The first stage of an expansion.
    pub(crate) fn new(open: Arc<OpenParents>) -> Self {
        PartStage { open, origins: None, is_last: AtomicBool::new(false) }
    }

    /// The stage behind this one, which gives out its results in this order.
    pub(crate) fn next(&self, order: Order) -> Self {
        let is_mixed = self.origins.is_some() || order == Order::Completion;
        let (open, origins) = (self.open.clone(), is_mixed.then(Mutex::default));
        PartStage { open, origins, is_last: AtomicBool::new(false) }
    }

    /// Notes that the results of this stage are gathered.
    pub(crate) fn be_last(&self) {
        self.is_last.store(true, Ordering::Relaxed);
    }

    /// Whether the results of this stage are gathered. If not, marks must pass it.
    pub(crate) fn is_last(&self) -> bool {
        self.is_last.load(Ordering::Relaxed)
    }

    /// Whether indices of this stage are those of the first stage of the expansion.
    pub(crate) fn keeps_indices(&self) -> bool {
        self.origins.is_none()
    }

    /// The index of a part in the first stage of the expansion; `None` once it is forgotten.
    pub(crate) fn origin(&self, seq: u64) -> Option<u64> {
        match &self.origins {
            None => Some(seq),
            Some(origins) => lock(origins).get(&seq).copied(),
        }
    }

    /// Records the index that an item of this stage had in the first stage of the expansion.
    pub(crate) fn enter(&self, seq: u64, origin: Option<u64>) {
        if let (Some(origins), Some(origin)) = (&self.origins, origin) {
            lock(origins).insert(seq, origin);
        }
    }

    /// Forgets an item that the next stage has taken.
    pub(crate) fn forget(&self, seq: u64) {
        if let Some(origins) = &self.origins {
            lock(origins).remove(&seq);
        }
    }

    /// Withdraws the other parts of the parent of a part that failed, unless its failure is gathered.
    pub(crate) fn fail(&self, seq: u64) {
        if self.open.holes == Holes::Fail
            && let Some(origin) = self.origin(seq)
        {
            self.open.fail_behind(origin);
        }
    }

    pub(crate) fn is_withdrawn(&self, seq: u64) -> bool {
        self.open.has_failed()
            && self.origin(seq).is_some_and(|origin| self.open.is_withdrawn(origin))
    }

    /// The name of a part.
    pub(crate) fn name_of(&self, seq: u64) -> Option<ItemPath> {
        self.open.name_of(self.origin(seq)?)
    }
}

impl OpenItems for PartStage {
    fn is_open(&self, item: u64) -> bool {
        !self.is_withdrawn(item)
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    fn path(item: u64) -> ItemPath {
        ItemPath { item, key: None, part: None }
    }

    #[test]
    fn a_part_is_named_by_its_parent_and_withdrawn_with_it() {
        let open = Arc::new(OpenParents::new(2, Holes::Fail));
        assert!(open.try_take() && open.try_take() && !open.try_take());
        open.open(0, path(7));
        open.open(4, path(8));
        let stage = PartStage::new(open.clone());
        assert_eq!(stage.name_of(6), Some(path(8).part(2)));
        stage.fail(1);
        let withdrawn: Vec<_> = (0..8).filter(|&part| stage.is_withdrawn(part)).collect();
        assert_eq!(withdrawn, [2, 3]);
        assert_eq!(open.oldest_end(9), 4);
        open.end(0);
        assert!(!open.has_failed() && open.try_take());
        assert_eq!(open.oldest_end(9), 9);
    }

    #[test]
    fn behind_an_unordered_stage_parts_keep_their_names() {
        let open = Arc::new(OpenParents::new(1, Holes::Fail));
        open.open(0, path(5));
        let later = PartStage::new(open.clone()).next(Order::Completion).next(Order::Input);
        later.enter(0, Some(2));
        assert_eq!(later.name_of(0), Some(path(5).part(2)));
        later.forget(0);
        assert_eq!(later.origin(0), None);
    }
}

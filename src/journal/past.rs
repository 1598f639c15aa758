//! The work of earlier runs, and the plan for this one.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use super::Mode;
use super::fingerprint::KeyKind;
use super::journal_error::JournalError;
use super::journal_key::JournalKey;
use super::line::{AnyCommit, Commit, NamedOccurrence};
use super::position_spans::{PositionSpan, PositionSpans, fold};

/// The plan for an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ItemPlan {
    Run,
    /// It is not worked on: it is done, or only failed items are wanted.
    AlreadyDone,
}

/// The work of earlier runs, with the mode of this one.
#[derive(Debug)]
pub(crate) struct Past {
    recorded: Recorded,
    mode: Mode,
    path: PathBuf,
    walk: Option<Walk>,
}

/// The contents of all commits of a journal.
///
/// Positions take memory for each span, names for each name.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Recorded {
    done_positions: PositionSpans,
    /// With their hashes, or 0 without hashes. Failures are few.
    failed_positions: BTreeMap<u64, u64>,
    names: HashMap<Box<str>, NameMarks>,
    note: Option<Vec<u8>>,
    commits: u64,
    done: u64,
    failed: u64,
}

/// The outcomes of the items of one name. There is rarely more than one.
#[derive(Debug, Default, PartialEq, Eq)]
struct NameMarks {
    first: NameMark,
    #[expect(clippy::box_collection, reason = "16 bytes less for each of many names")]
    others: Option<Box<BTreeMap<u32, NameMark>>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum NameMark {
    #[default]
    Unknown,
    Done,
    Failed,
}

/// A commit that this crate never writes: an item in it was done before.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Contradiction;

/// The span that is being compared with the input, hash by hash.
#[derive(Debug)]
struct Walk {
    span: PositionSpan,
    next: u64,
    hashes: u64,
}

impl Past {
    pub(super) fn new(recorded: Recorded, mode: Mode, path: PathBuf) -> Self {
        Past { recorded, mode, path, walk: None }
    }

    /// Decides what to do with the next item of the input.
    ///
    /// Hashes are checked here, so items by position come in input order, all of them from the first. Of
    /// items that were committed together, a change shows at the last of them.
    ///
    /// # Errors
    ///
    /// [`JournalError::ItemChanged`].
    pub(crate) fn decide(&mut self, key: &JournalKey) -> Result<ItemPlan, JournalError> {
        if let JournalKey::HashedPosition { position, hash } = *key {
            self.check(position, hash)?;
        }
        Ok(match self.mode {
            _ if self.is_done(key) => ItemPlan::AlreadyDone,
            Mode::RerunFailed if !self.is_failed(key) => ItemPlan::AlreadyDone,
            _ => ItemPlan::Run,
        })
    }

    /// Describes what is wrong with an input that ended after this number of items.
    ///
    /// # Errors
    ///
    /// [`JournalError::InputShorter`], if items are identified by position.
    pub(crate) fn check_length(&self, items: u64) -> Result<(), JournalError> {
        match self.recorded.last_position() {
            Some(recorded) if recorded >= items => {
                Err(JournalError::InputShorter { path: self.path.clone(), items, recorded })
            }
            _ => Ok(()),
        }
    }

    pub(crate) fn is_done(&self, key: &JournalKey) -> bool {
        match key {
            JournalKey::Position(position) | JournalKey::HashedPosition { position, .. } => {
                self.is_in_walk(*position) || self.recorded.done_positions.find(*position).is_some()
            }
            JournalKey::Name { name, occurrence } => {
                self.recorded.mark(name, *occurrence) == NameMark::Done
            }
        }
    }

    /// Returns whether it failed, and no later run has done it.
    pub(crate) fn is_failed(&self, key: &JournalKey) -> bool {
        match key {
            JournalKey::Position(position) | JournalKey::HashedPosition { position, .. } => {
                self.recorded.failed_positions.contains_key(position)
            }
            JournalKey::Name { name, occurrence } => {
                self.recorded.mark(name, *occurrence) == NameMark::Failed
            }
        }
    }

    /// Returns the last note that was committed.
    pub(crate) fn last_note(&self) -> Option<&[u8]> {
        self.recorded.note.as_deref()
    }

    /// Returns the number of items that are done.
    #[cfg(test)]
    pub(crate) fn done(&self) -> u64 {
        self.recorded.done
    }

    /// Returns the number of items that failed and are not done.
    #[cfg(test)]
    pub(crate) fn failed(&self) -> u64 {
        self.recorded.failed
    }

    fn is_in_walk(&self, position: u64) -> bool {
        self.walk.as_ref().is_some_and(|walk| walk.span.contains(position))
    }

    fn check(&mut self, position: u64, hash: u64) -> Result<(), JournalError> {
        if !self.is_in_walk(position) {
            let span = self.recorded.done_positions.find(position);
            self.walk = span.map(|span| Walk { span, next: span.first, hashes: 0 });
        }
        let changed = match &mut self.walk {
            Some(walk) => walk.step(position, hash),
            None => self.recorded.failed_otherwise(position, hash),
        };
        match changed {
            Some(PositionSpan { first, last, .. }) => {
                Err(JournalError::ItemChanged { path: self.path.clone(), first, last })
            }
            None => Ok(()),
        }
    }
}

impl Walk {
    /// Adds one item; returns the span if this is its last item and the hashes differ.
    fn step(&mut self, position: u64, hash: u64) -> Option<PositionSpan> {
        if position != self.next {
            return None;
        }
        self.hashes = fold(self.hashes, hash);
        self.next = position.wrapping_add(1);
        let has_changed = position == self.span.last && Some(self.hashes) != self.span.hash;
        has_changed.then_some(self.span)
    }
}

impl Recorded {
    /// Adds the contents of a commit. After an error the value is unusable.
    pub(super) fn add(&mut self, keys: KeyKind, json: &[u8]) -> Result<(), Contradiction> {
        let note = match AnyCommit::decode(keys, json).ok_or(Contradiction)? {
            AnyCommit::Positions(commit) => self.add_positions(commit)?,
            AnyCommit::Hashed(commit) => self.add_hashed(commit)?,
            AnyCommit::Names(commit) => self.add_names(commit)?,
        };
        self.note = note.or(self.note.take());
        self.commits += 1;
        Ok(())
    }

    pub(super) fn commits(&self) -> u64 {
        self.commits
    }

    pub(super) fn done(&self) -> u64 {
        self.done
    }

    pub(super) fn failed(&self) -> u64 {
        self.failed
    }

    fn add_positions(&mut self, mut commit: Commit<(u64, u64), u64>) -> Added {
        for &(first, last) in &commit.done {
            self.add_span(PositionSpan { first, last, hash: None })?;
        }
        for &position in &commit.failed {
            self.add_failed(position, 0)?;
        }
        commit.note().map_err(|()| Contradiction)
    }

    fn add_hashed(&mut self, mut commit: Commit<(u64, u64, u64), (u64, u64)>) -> Added {
        for &(first, last, hash) in &commit.done {
            self.add_span(PositionSpan { first, last, hash: Some(hash) })?;
        }
        for &(position, hash) in &commit.failed {
            self.add_failed(position, hash)?;
        }
        commit.note().map_err(|()| Contradiction)
    }

    fn add_names(&mut self, mut commit: Commit<NamedOccurrence<'_>, NamedOccurrence<'_>>) -> Added {
        for named in &commit.done {
            self.add_name(named, NameMark::Done)?;
        }
        for named in &commit.failed {
            self.add_name(named, NameMark::Failed)?;
        }
        commit.note().map_err(|()| Contradiction)
    }

    fn add_span(&mut self, span: PositionSpan) -> Result<(), Contradiction> {
        if !self.done_positions.insert(span) {
            return Err(Contradiction);
        }
        let failed: Vec<_> = self
            .failed_positions
            .range(span.first..=span.last)
            .map(|(position, _)| *position)
            .collect();
        for position in &failed {
            self.failed_positions.remove(position);
        }
        self.failed -= failed.len() as u64;
        self.done = self.done.saturating_add(span.positions());
        Ok(())
    }

    fn add_failed(&mut self, position: u64, hash: u64) -> Result<(), Contradiction> {
        if self.done_positions.find(position).is_some() {
            return Err(Contradiction);
        }
        self.failed += u64::from(self.failed_positions.insert(position, hash).is_none());
        Ok(())
    }

    fn add_name(&mut self, named: &NamedOccurrence<'_>, is: NameMark) -> Result<(), Contradiction> {
        let mark = self.mark_mut(named);
        let was = std::mem::replace(mark, is);
        if was == NameMark::Done {
            return Err(Contradiction);
        }
        self.done += u64::from(is == NameMark::Done);
        self.failed += u64::from(is == NameMark::Failed);
        self.failed -= u64::from(was == NameMark::Failed);
        Ok(())
    }

    fn mark_mut(&mut self, named: &NamedOccurrence<'_>) -> &mut NameMark {
        // Most names are new; this looks them up only once.
        let marks = self.names.entry(named.name.as_ref().into()).or_default();
        match named.occurrence {
            1 => &mut marks.first,
            other => marks.others.get_or_insert_default().entry(other).or_default(),
        }
    }

    fn mark(&self, name: &str, occurrence: u32) -> NameMark {
        let Some(marks) = self.names.get(name) else { return NameMark::Unknown };
        match occurrence {
            1 => marks.first,
            other => {
                let others = marks.others.as_ref();
                others.and_then(|others| others.get(&other)).copied().unwrap_or_default()
            }
        }
    }

    fn last_position(&self) -> Option<u64> {
        self.done_positions.last().max(self.failed_positions.keys().next_back().copied())
    }

    /// Returns the position, if it failed with another hash.
    fn failed_otherwise(&self, position: u64, hash: u64) -> Option<PositionSpan> {
        let was = *self.failed_positions.get(&position)?;
        (was != hash).then_some(PositionSpan { first: position, last: position, hash: Some(was) })
    }
}

/// The note of a commit that was added.
type Added = Result<Option<Vec<u8>>, Contradiction>;

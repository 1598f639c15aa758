//! When to commit records: a rule without a clock.

use std::time::{Duration, Instant};

/// The records since the last commit, and when they are due.
#[derive(Debug)]
pub(crate) struct Group {
    most: usize,
    within: Duration,
    records: usize,
    /// The time of the first of them.
    since: Option<Instant>,
}

impl Group {
    /// Makes a rule: due at `most` records, or when the first is `within` old.
    pub(crate) fn new(most: usize, within: Duration) -> Self {
        Group { most, within, records: 0, since: None }
    }

    /// Adds one record, at `now`.
    pub(crate) fn add(&mut self, now: Instant) {
        self.records += 1;
        self.since.get_or_insert(now);
    }

    pub(crate) fn len(&self) -> usize {
        self.records
    }

    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.records >= self.most || self.due_at().is_some_and(|due| now >= due)
    }

    /// Returns the latest time to commit; `None` without records, or if the time cannot be represented.
    pub(crate) fn due_at(&self) -> Option<Instant> {
        self.since?.checked_add(self.within)
    }

    pub(crate) fn clear(&mut self) {
        self.records = 0;
        self.since = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn a_group_is_due_when_it_is_full() {
        let (mut group, now) = (Group::new(3, 50 * MS), Instant::now());
        let due: Vec<_> = (0..4).map(|_| (group.is_due(now), group.add(now)).0).collect();
        assert_eq!(due, [false, false, false, true]);
    }

    #[test]
    fn a_group_is_due_when_its_first_is_old() {
        let (mut group, start) = (Group::new(1_000, 50 * MS), Instant::now());
        assert_eq!(group.due_at(), None);
        group.add(start);
        group.add(start + 40 * MS);
        assert_eq!(group.due_at(), Some(start + 50 * MS));
        assert!(!group.is_due(start + 49 * MS));
        assert!(group.is_due(start + 50 * MS));
        group.clear();
        assert_eq!((group.len(), group.is_due(start + 90 * MS)), (0, false));
        group.add(start + 90 * MS);
        assert_eq!(group.due_at(), Some(start + 140 * MS));
    }

    #[test]
    fn a_time_without_end_is_never_reached() {
        let (mut group, now) = (Group::new(2, Duration::MAX), Instant::now());
        group.add(now);
        assert_eq!((group.due_at(), group.is_due(now + 1_000 * MS)), (None, false));
    }
}

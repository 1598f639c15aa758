//! What waits to be sent while an earlier message is under way, and then goes in one message.

use std::collections::VecDeque;
use std::time::Instant;

/// Collects values for messages that hold several, so that an idle connection delays nothing, and a busy one gets large
/// groups.
///
/// One group is under way at a time, and a further one for each that is full before the first has arrived: over a slow
/// connection, large values do not wait for each other.
#[derive(Debug)]
pub(super) struct MessageGroups<T> {
    /// With the number of bytes of each in a message.
    waiting: VecDeque<(T, usize)>,
    bytes: usize,
    /// The largest number of bytes of a group of several.
    most: usize,
    under_way: usize,
    /// When what waits is sent, if no group is under way then.
    due: Option<Instant>,
}

impl<T> MessageGroups<T> {
    pub(super) fn new(most: usize) -> Self {
        MessageGroups { waiting: VecDeque::new(), bytes: 0, most, under_way: 0, due: None }
    }

    /// Adds a value. It waits for others until `due`, and no longer than those before it.
    pub(super) fn add(&mut self, value: T, bytes: usize, due: Instant) {
        self.waiting.push_back((value, bytes));
        self.bytes += bytes;
        self.due.get_or_insert(due);
    }

    /// Takes the next group that is to be sent now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Vec<T>> {
        let is_due = self.under_way == 0 && self.due.is_some_and(|due| due <= now);
        (is_due || self.bytes >= self.most).then(|| self.take()).flatten()
    }

    /// Takes the next group, also while another is under way.
    pub(super) fn take(&mut self) -> Option<Vec<T>> {
        if self.waiting.is_empty() {
            return None;
        }
        let mut left = self.most;
        let mut fits = |&(_, bytes): &(T, usize)| {
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        // One that is larger than a group goes alone.
        let count = self.waiting.iter().take_while(|it| fits(it)).count().max(1);
        self.under_way += 1;
        let group = self.waiting.drain(..count).map(|(value, bytes)| {
            self.bytes -= bytes;
            value
        });
        let group = group.collect();
        if self.waiting.is_empty() {
            self.due = None;
        }
        Some(group)
    }

    /// A group has arrived. What waits may wait for others until `due`.
    pub(super) fn arrived(&mut self, due: Instant) {
        self.under_way = self.under_way.saturating_sub(1);
        self.due = self.due.map(|_| due);
    }

    /// Whether a value waits.
    pub(super) fn has(&self, is_it: impl Fn(&T) -> bool) -> bool {
        self.waiting.iter().any(|(value, _)| is_it(value))
    }

    /// Has what waits wait for no others.
    pub(super) fn hurry(&mut self, now: Instant) {
        self.due = self.due.map(|due| due.min(now));
    }

    /// When `next` is to be asked again.
    pub(super) fn next_time(&self) -> Option<Instant> {
        self.due.filter(|_| self.under_way == 0)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn what_is_added_while_a_group_is_under_way_goes_together() {
        let now = Instant::now();
        let mut groups = MessageGroups::new(100);
        groups.add('a', 10, now);
        assert_eq!(groups.next(now), Some(vec!['a']), "none is under way");
        groups.add('b', 10, now);
        groups.add('c', 10, now);
        assert_eq!((groups.next(now), groups.next_time()), (None, None));
        groups.arrived(now);
        assert_eq!(groups.next(now), Some(vec!['b', 'c']));
        groups.arrived(now);
        assert_eq!((groups.next(now), groups.next_time()), (None, None));
    }

    #[test]
    fn a_full_group_does_not_wait() {
        let now = Instant::now();
        let mut groups = MessageGroups::new(100);
        groups.add('a', 10, now);
        assert_eq!(groups.next(now), Some(vec!['a']));
        groups.add('b', 60, now);
        assert_eq!(groups.next(now), None);
        groups.add('c', 60, now);
        assert_eq!(groups.next(now), Some(vec!['b']), "the two are more than a group");
        assert_eq!(groups.next(now), None);
        groups.add('d', 500, now);
        assert_eq!(groups.next(now), Some(vec!['c']));
        assert_eq!(groups.next(now), Some(vec!['d']), "larger than a group");
    }

    #[test]
    fn a_value_waits_for_others_until_it_is_due() {
        let now = Instant::now();
        let due = now + Duration::from_millis(2);
        let mut groups = MessageGroups::new(100);
        groups.add('a', 10, due);
        groups.add('b', 10, due + Duration::from_millis(1));
        assert_eq!((groups.next(now), groups.next_time()), (None, Some(due)));
        assert_eq!(groups.next(due), Some(vec!['a', 'b']));
        groups.add('c', 10, due);
        groups.arrived(due + Duration::from_millis(2));
        assert_eq!(groups.next(due), None, "others may come since the last has arrived");
        groups.hurry(due);
        assert_eq!(groups.next(due), Some(vec!['c']));
    }
}

//! What waits to be sent while an earlier message is under way, and then goes in one message.

use std::collections::VecDeque;

/// Collects values for messages that hold several, so that a sender that is idle delays nothing, and one that is busy sends
/// large groups.
///
/// A *sender* is a task that takes groups until none is left. There is one, and another for each group that is full before
/// the first has taken it: over a slow connection, large values do not wait for each other.
#[derive(Debug)]
pub(super) struct MessageGroups<T> {
    /// With the number of bytes of each in a message.
    waiting: VecDeque<(T, usize)>,
    bytes: usize,
    /// The largest number of bytes of a group of several.
    most: usize,
    senders: usize,
}

impl<T> MessageGroups<T> {
    pub(super) fn new(most: usize) -> Self {
        MessageGroups { waiting: VecDeque::new(), bytes: 0, most, senders: 0 }
    }

    /// Adds a value. Returns whether the caller has to start a sender.
    pub(super) fn add(&mut self, value: T, bytes: usize) -> bool {
        self.waiting.push_back((value, bytes));
        self.bytes += bytes;
        let starts = self.senders == 0 || self.bytes >= self.most;
        self.senders += usize::from(starts);
        starts
    }

    /// The next group of a sender. `None` ends the sender.
    pub(super) fn take(&mut self) -> Option<Vec<T>> {
        let mut left = self.most;
        let mut fits = |&(_, bytes): &(T, usize)| {
            let fits = bytes <= left;
            left = left.saturating_sub(bytes);
            fits
        };
        // One that is larger than a group goes alone.
        let count = self.waiting.iter().take_while(|it| fits(it)).count().max(1);
        if self.waiting.is_empty() {
            self.senders -= 1;
            return None;
        }
        let group = self.waiting.drain(..count).map(|(value, bytes)| {
            self.bytes -= bytes;
            value
        });
        Some(group.collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_added_while_a_group_is_under_way_goes_together() {
        let mut groups = MessageGroups::new(100);
        assert!(groups.add('a', 10), "none is under way");
        assert_eq!(groups.take(), Some(vec!['a']));
        assert!(!groups.add('b', 10) && !groups.add('c', 10));
        assert_eq!(groups.take(), Some(vec!['b', 'c']));
        assert_eq!(groups.take(), None);
        assert!(groups.add('d', 10), "the sender has ended");
    }

    #[test]
    fn a_full_group_does_not_wait() {
        let mut groups = MessageGroups::new(100);
        assert!(groups.add('a', 10));
        assert_eq!(groups.take(), Some(vec!['a']));
        assert!(!groups.add('b', 60));
        assert!(groups.add('c', 60), "a second sender takes what is full");
        assert_eq!((groups.take(), groups.take()), (Some(vec!['b']), Some(vec!['c'])));
        assert!(groups.add('d', 100));
        assert!(groups.add('e', 500), "larger than a group");
        assert_eq!((groups.take(), groups.take()), (Some(vec!['d']), Some(vec!['e'])));
        // Of four senders, each ends.
        assert_eq!([(); 4].map(|()| groups.take()), [const { None }; 4]);
        assert!(groups.add('f', 1));
    }
}

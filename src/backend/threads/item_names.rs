//! What the items are called that are out.

use std::collections::HashMap;
use std::sync::Arc;

use crate::journal::{Key, Names};

/// What items are called and known by, from being pulled until the collector is done with them.
#[derive(Debug, Default)]
pub(crate) struct ItemNames {
    names: Names,
    /// By index. No queue: behind a slow item any number may come and go.
    entries: HashMap<u64, Entry>,
}

/// What is known of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    /// What it is called; of several with one name those after the first have their number with it.
    pub(crate) shown: Option<Arc<str>>,
    pub(crate) key: Key,
}

impl ItemNames {
    /// What an item is called that comes next.
    pub(crate) fn call(&mut self, name: &str) -> Entry {
        let occurrence = self.names.number(name);
        let name: Arc<str> = name.into();
        let shown = match occurrence {
            1 => name.clone(),
            number => format!("{name}#{number}").into(),
        };
        Entry { shown: Some(shown), key: Key::Name { name, occurrence } }
    }

    /// An item is out.
    pub(crate) fn enter(&mut self, seq: u64, entry: Entry) {
        self.entries.insert(seq, entry);
    }

    /// What an item is called that is out.
    pub(crate) fn shown(&self, seq: u64) -> Option<Arc<str>> {
        self.entries.get(&seq)?.shown.clone()
    }

    /// What an item is known by that is out.
    pub(crate) fn key(&self, seq: u64) -> Option<Key> {
        Some(self.entries.get(&seq)?.key.clone())
    }

    /// The collector is done with an item.
    pub(crate) fn strike(&mut self, seq: u64) {
        self.entries.remove(&seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_are_called_what_they_are_until_they_are_done_with() {
        let mut roll = ItemNames::default();
        for (seq, name) in [(0, "a"), (1, "b"), (4, "a")] {
            let entry = roll.call(name);
            roll.enter(seq, entry);
        }
        let called = |roll: &ItemNames, seq| roll.shown(seq).map(|name| name.to_string());
        assert_eq!(called(&roll, 1).as_deref(), Some("b"));
        assert_eq!(called(&roll, 3), None);
        assert_eq!(called(&roll, 4).as_deref(), Some("a#2"));
        assert_eq!(roll.key(4), Some(Key::Name { name: "a".into(), occurrence: 2 }));
        roll.strike(1);
        assert_eq!(called(&roll, 1), None);
        roll.strike(0);
        assert_eq!(called(&roll, 4).as_deref(), Some("a#2"));
        roll.strike(4);
        roll.strike(4);
        let entry = roll.call("a");
        roll.enter(u64::MAX, entry);
        assert_eq!(called(&roll, u64::MAX).as_deref(), Some("a#3"));
        assert!(roll.entries.len() == 1, "only what is out takes room");
    }
}

//! The names and journal keys of items in flight.

use std::sync::Arc;

use gangline_scheduler::IndexMap;

use crate::journal::{JournalKey, JournalNames};

/// The names and journal keys of items, from being pulled until the collector has finished them.
#[derive(Debug, Default)]
pub(crate) struct ItemNames {
    /// `None` without a journal: only that has to tell items of one name apart in all of the run.
    occurrences: Option<JournalNames>,
    /// By index. Not a queue, since any number of items may pass a slow one.
    entries: IndexMap<ItemEntry>,
}

/// The name and key of an item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ItemEntry {
    /// Its name. With a journal, items of one name after the first have their number appended.
    pub(crate) shown: Option<Arc<str>>,
    pub(crate) key: JournalKey,
    /// Its index in the input, if this is a later stage of a pipeline.
    pub(crate) input: Option<u64>,
}

impl ItemNames {
    /// Names items for a journal, which keeps all names of the run.
    pub(crate) fn for_journal() -> Self {
        ItemNames { occurrences: Some(JournalNames::default()), ..ItemNames::default() }
    }

    /// Assigns a name and key to the next item.
    pub(crate) fn call(&mut self, name: &str) -> ItemEntry {
        let occurrence = self.occurrences.as_mut().map_or(1, |names| names.number(name));
        let name: Arc<str> = name.into();
        let shown = match occurrence {
            1 => name.clone(),
            number => format!("{name}#{number}").into(),
        };
        ItemEntry { shown: Some(shown), key: JournalKey::Name { name, occurrence }, input: None }
    }

    /// Stores the entry of an item in flight.
    pub(crate) fn enter(&mut self, seq: u64, entry: ItemEntry) {
        self.entries.insert(seq, entry);
    }

    /// Shows an item in flight by a name of this stage; its journal key stays.
    pub(crate) fn rename(&mut self, seq: u64, shown: Option<Arc<str>>) {
        if let Some(entry) = self.entries.get_mut(&seq) {
            entry.shown = shown;
        }
    }

    /// The index in the input of an item in flight, in a later stage of a pipeline.
    pub(crate) fn input(&self, seq: u64) -> Option<u64> {
        self.entries.get(&seq)?.input
    }

    /// Takes out the entry of an item that the next stage gets.
    pub(crate) fn take(&mut self, seq: u64) -> Option<ItemEntry> {
        self.entries.remove(&seq)
    }

    /// The name of an item in flight.
    pub(crate) fn shown(&self, seq: u64) -> Option<Arc<str>> {
        self.entries.get(&seq)?.shown.clone()
    }

    /// The journal key of an item in flight.
    pub(crate) fn key(&self, seq: u64) -> Option<JournalKey> {
        Some(self.entries.get(&seq)?.key.clone())
    }

    /// Forgets an item that the collector has finished.
    pub(crate) fn remove_name(&mut self, seq: u64) {
        self.entries.remove(&seq);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn items_of_one_name_are_numbered_for_a_journal() {
        let mut item_names = ItemNames::for_journal();
        for (seq, name) in [(0, "a"), (1, "b"), (4, "a")] {
            let entry = item_names.call(name);
            item_names.enter(seq, entry);
        }
        let called =
            |item_names: &ItemNames, seq| item_names.shown(seq).map(|name| name.to_string());
        assert_eq!(called(&item_names, 1).as_deref(), Some("b"));
        assert_eq!(called(&item_names, 3), None);
        assert_eq!(called(&item_names, 4).as_deref(), Some("a#2"));
        assert_eq!(item_names.key(4), Some(JournalKey::Name { name: "a".into(), occurrence: 2 }));
        item_names.remove_name(1);
        assert_eq!(called(&item_names, 1), None);
        item_names.remove_name(0);
        assert_eq!(called(&item_names, 4).as_deref(), Some("a#2"));
        item_names.remove_name(4);
        item_names.remove_name(4);
        let entry = item_names.call("a");
        item_names.enter(u64::MAX, entry);
        assert_eq!(called(&item_names, u64::MAX).as_deref(), Some("a#3"));
        assert!(item_names.entries.len() == 1, "only items in flight take room");
    }

    #[test]
    fn without_a_journal_names_are_shown_as_given() {
        let mut item_names = ItemNames::default();
        for _ in 0..2 {
            assert_eq!(item_names.call("a").shown.as_deref(), Some("a"));
        }
    }
}

//! The plans of a resumed run for its input, from records: for tests.

use std::time::Instant;

use proptest::prelude::*;

use super::fake_disk::{FakeDisk, resume};
use super::{
    ItemPlan, JournalError, JournalFile, JournalKey, JournalNames, JournalOutcome, JournalRecord,
    KeyKind, Past,
};

/// Items of an input, each with its outcome: none, done or failed.
fn inputs<T: Clone + std::fmt::Debug>(
    item: impl Strategy<Value = T>,
) -> impl Strategy<Value = Vec<(T, Option<JournalOutcome>)>> {
    let outcome = prop_oneof![
        4 => Just(Some(JournalOutcome::Done)),
        1 => Just(Some(JournalOutcome::Failed)),
        1 => Just(None),
    ];
    proptest::collection::vec((item, outcome), 0..60)
}

/// In any order, in groups of any size.
fn write(keys: KeyKind, records: &[JournalRecord], groups: &[usize]) -> FakeDisk {
    let disk = FakeDisk::default();
    let (mut journal, _) = disk.open_by(&resume(), keys).unwrap();
    let mut records = records.iter().cloned();
    for size in groups {
        take(&mut journal, records.by_ref().take(*size));
    }
    take(&mut journal, records);
    disk
}

fn take(journal: &mut JournalFile, records: impl Iterator<Item = JournalRecord>) {
    let now = Instant::now();
    records.for_each(|record| journal.record(record, now));
    journal.commit(None).unwrap();
}

fn records(
    keys: &[JournalKey],
    outcomes: impl Iterator<Item = Option<JournalOutcome>>,
) -> Vec<JournalRecord> {
    let both = keys.iter().cloned().zip(outcomes);
    both.filter_map(|(key, outcome)| Some(JournalRecord { key, outcome: outcome? })).collect()
}

fn reopen(disk: &FakeDisk, keys: KeyKind, rerun: bool) -> Past {
    let journal = if rerun { resume().rerun_failed() } else { resume() };
    disk.open_by(&journal, keys).unwrap().1
}

fn hashed(hashes: impl IntoIterator<Item = u64>) -> Vec<JournalKey> {
    (0..)
        .zip(hashes)
        .map(|(position, hash)| JournalKey::HashedPosition { position, hash })
        .collect()
}

proptest! {
    #[test]
    fn items_are_planned_by_what_became_of_them(
        (input, order) in inputs(any::<u64>()).prop_flat_map(|input| {
            let order: Vec<usize> = (0..input.len()).collect();
            (Just(input), Just(order).prop_shuffle())
        }),
        groups in proptest::collection::vec(1usize..12, 0..8),
        rerun: bool,
    ) {
        let keys = hashed(input.iter().map(|item| item.0));
        let shuffled: Vec<JournalKey> = order.iter().map(|i| keys[*i].clone()).collect();
        let records = records(&shuffled, order.iter().map(|i| input[*i].1));
        let disk = write(KeyKind::HashedPosition, &records, &groups);
        let mut past = reopen(&disk, KeyKind::HashedPosition, rerun);
        for (key, (_, outcome)) in keys.iter().zip(&input) {
            let runs = if rerun { *outcome == Some(JournalOutcome::Failed) } else { *outcome != Some(JournalOutcome::Done) };
            prop_assert_eq!(past.decide(key).unwrap() == ItemPlan::Run, runs);
        }
        let is_known = |outcome| move |item: &&(u64, Option<JournalOutcome>)| item.1 == Some(outcome);
        prop_assert_eq!(past.done(), input.iter().filter(is_known(JournalOutcome::Done)).count() as u64);
        prop_assert_eq!(past.failed(), input.iter().filter(is_known(JournalOutcome::Failed)).count() as u64);
    }

    /// A change that is detected is found before the next item outside its group is run.
    #[test]
    fn one_changed_item_is_noticed(
        input in inputs(any::<u64>()),
        groups in proptest::collection::vec(1usize..12, 0..8),
        change in (any::<prop::sample::Index>(), 1u64..),
    ) {
        prop_assume!(!input.is_empty());
        let keys = hashed(input.iter().map(|item| item.0));
        let records = records(&keys, input.iter().map(|item| item.1));
        let disk = write(KeyKind::HashedPosition, &records, &groups);
        let changed = change.0.index(input.len());
        let hashes = input.iter().enumerate().map(|(i, item)| if i == changed { item.0 ^ change.1 } else { item.0 });
        let mut past = reopen(&disk, KeyKind::HashedPosition, false);
        let noticed = hashed(hashes).iter().find_map(|key| past.decide(key).err());
        match noticed {
            None => prop_assert_eq!(input[changed].1, None),
            Some(JournalError::ItemChanged { first, last, .. }) => {
                prop_assert!((first..=last).contains(&(changed as u64)));
                let group = &input[first as usize..=last as usize];
                prop_assert!(group.iter().all(|item| item.1 == input[changed].1), "known together");
            }
            Some(error) => panic!("{error}"),
        }
    }

    #[test]
    fn names_are_known_wherever_they_are_in_the_input(
        input in inputs(prop::sample::select(vec!["", "a", "b", "c \"d\"\n", "\u{e4}", "\0"])),
        groups in proptest::collection::vec(1usize..12, 0..8),
        rotation in any::<prop::sample::Index>(),
    ) {
        let numbered = |names: &[&str]| {
            let mut numbers = JournalNames::default();
            let key = |name: &&str| JournalKey::Name { name: (*name).into(), occurrence: numbers.number(name) };
            names.iter().map(key).collect::<Vec<JournalKey>>()
        };
        let mut names: Vec<&str> = input.iter().map(|item| item.0).collect();
        let records = records(&numbered(&names), input.iter().map(|item| item.1));
        let disk = write(KeyKind::Name, &records, &groups);
        if !names.is_empty() {
            let rotation = rotation.index(names.len());
            names.rotate_left(rotation);
        }
        let mut past = reopen(&disk, KeyKind::Name, false);
        for key in numbered(&names) {
            let outcome = records.iter().find(|record| record.key == key).map(|record| record.outcome);
            prop_assert_eq!(past.decide(&key).unwrap() == ItemPlan::AlreadyDone, outcome == Some(JournalOutcome::Done));
            prop_assert_eq!(past.is_failed(&key), outcome == Some(JournalOutcome::Failed));
        }
    }
}

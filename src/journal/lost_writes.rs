//! Rows G5 and G9 of the catalogue of faults, and every way to lose what was not synced.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::fake_disk::{
    DiskCall, FakeDisk, Faults, commit, done, failed, line_ends, outcomes, resume, sample,
};
use super::{Journal, JournalError, JournalKey, JournalOutcome, JournalRecord, KeyKind};

#[test]
fn a_commit_is_one_write_and_one_sync() {
    let disk = FakeDisk::default();
    let (mut journal, _) = disk.open(&Journal::at("j")).unwrap();
    let header = disk.contents().bytes.len();
    assert_eq!(
        disk.contents().calls,
        [
            DiskCall::Cut(0),
            DiskCall::Sync,
            DiskCall::Write(header),
            DiskCall::Sync,
            DiskCall::SyncName
        ]
    );
    disk.contents().calls.clear();
    commit(&mut journal, (0..1_000).map(done), None).unwrap();
    let line = disk.contents().bytes.len() - header;
    assert_eq!(disk.contents().calls, [DiskCall::Write(line), DiskCall::Sync]);
    assert_eq!(line, "01234567 {\"done\":[[0,999]]}\n".len());
}

#[test]
fn nothing_new_is_not_written() {
    let disk = FakeDisk::default();
    let (mut journal, _) = disk.open(&resume()).unwrap();
    disk.contents().calls.clear();
    journal.commit(None).unwrap();
    assert_eq!(disk.contents().calls, []);
    journal.commit(Some(b"only a note")).unwrap();
    assert_eq!(disk.open(&resume()).unwrap().1.last_note(), Some(&b"only a note"[..]));
}

#[test]
fn what_was_not_committed_is_not_there() {
    let disk = FakeDisk::default();
    let (mut journal, _) = disk.open(&resume()).unwrap();
    commit(&mut journal, [done(0)], None).unwrap();
    journal.record(done(1), Instant::now());
    assert_eq!(journal.pending(), 1);
    drop(journal);
    let (_, past) = disk.open(&resume()).unwrap();
    assert_eq!(outcomes(&past, 2), [Some(JournalOutcome::Done), None]);
}

#[test]
fn a_torn_tail_is_cut_off_and_synced_before_anything_is_written() {
    let bytes = sample();
    let whole = line_ends(&bytes)[3];
    let disk = FakeDisk::holding(&bytes[..whole + 20]);
    let (mut journal, _) = disk.open(&resume()).unwrap();
    assert_eq!(disk.contents().calls, [DiskCall::Cut(whole as u64), DiskCall::Sync]);
    commit(&mut journal, [done(19)], None).unwrap();
    let (_, past) = disk.open(&resume()).unwrap();
    assert_eq!(
        outcomes(&past, 20)[10..],
        [None, None, None, None, None, None, None, None, None, Some(JournalOutcome::Done)]
    );
}

#[test]
fn short_writes_are_gone_on_with() {
    let disk = FakeDisk::default();
    disk.contents().faults = Faults { at_once: Some(7), ..Faults::default() };
    let (mut journal, _) = disk.open(&resume()).unwrap();
    commit(&mut journal, (0..5).map(done), Some(b"note")).unwrap();
    assert_eq!(disk.open(&resume()).unwrap().1.done(), 5);
}

/// Whatever is left of the line that did not fit.
#[test]
fn g5_on_a_full_disk_a_commit_fails_and_the_journal_stays_valid() {
    let line = "01234567 {\"done\":[[5,9]]}\n".len();
    for room in 0..line {
        let disk = FakeDisk::default();
        let (mut journal, _) = disk.open(&resume()).unwrap();
        commit(&mut journal, (0..5).map(done), None).unwrap();
        let full_at = disk.contents().bytes.len() + room;
        disk.contents().faults = Faults { full_at: Some(full_at), ..Faults::default() };
        let error = commit(&mut journal, (5..10).map(done), None).unwrap_err();
        assert!(matches!(error, JournalError::Io { operation: "written", .. }), "{error}");
        disk.contents().faults = Faults::default();
        let error = journal.commit(None).unwrap_err();
        assert!(
            matches!(error, JournalError::Broken { .. }),
            "also when there is room again: {error}"
        );
        assert_eq!(disk.open(&resume()).unwrap().1.done(), 5);
    }
}

#[test]
fn g5_a_journal_that_cannot_be_begun_is_refused_and_can_be_later() {
    for room in 0..40 {
        let disk = FakeDisk::default();
        disk.contents().faults = Faults { full_at: Some(room), ..Faults::default() };
        let error = disk.open(&resume()).unwrap_err();
        assert!(matches!(error, JournalError::Io { operation: "written", .. }), "{error}");
        disk.contents().faults = Faults::default();
        assert_eq!(disk.open(&resume()).unwrap().1.done(), 0);
    }
}

#[test]
fn g9_after_a_sync_that_failed_nothing_is_ever_written_again() {
    let disk = FakeDisk::default();
    let (mut journal, _) = disk.open(&resume()).unwrap();
    disk.contents().faults = Faults { syncs_fail: true, ..Faults::default() };
    let error = commit(&mut journal, [done(0)], None).unwrap_err();
    assert!(matches!(error, JournalError::Io { operation: "synced", .. }), "{error}");
    disk.contents().faults = Faults::default();
    disk.contents().calls.clear();
    for _ in 0..2 {
        let error = commit(&mut journal, [done(1)], Some(b"note")).unwrap_err();
        assert!(matches!(error, JournalError::Broken { .. }), "{error}");
    }
    assert_eq!(disk.contents().calls, []);
}

#[test]
fn g9_a_journal_whose_beginning_is_not_on_the_disk_is_refused() {
    let disk = FakeDisk::default();
    disk.contents().faults = Faults { syncs_fail: true, ..Faults::default() };
    let error = disk.open(&resume()).unwrap_err();
    assert!(matches!(error, JournalError::Io { operation: "synced", .. }), "{error}");
}

#[test]
fn a_note_that_is_too_large_costs_no_record() {
    let disk = FakeDisk::default();
    let (mut journal, _) = disk.open(&resume()).unwrap();
    let note = vec![b'x'; (64 << 10) + 1];
    let error = commit(&mut journal, [done(0)], Some(&note)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "a note of 65537 bytes is too large, 65536 are allowed: keep the rest in a file"
    );
    journal.commit(Some(&note[1..])).unwrap();
    let (_, past) = disk.open(&resume()).unwrap();
    assert_eq!((past.done(), past.last_note()), (1, Some(&note[1..])));
}

#[test]
fn long_names_are_due_before_a_line_is_too_long() {
    let disk = FakeDisk::default();
    let journal = resume().commit_items(usize::MAX);
    let (mut file, _) = disk.open_by(&journal, KeyKind::Name).unwrap();
    let (mut records, now) = (0, Instant::now());
    while !file.is_due(now) && records < 200 {
        records += 1;
        let name = "\u{1}".repeat(10_000).into();
        let key = JournalKey::Name { name, occurrence: records };
        file.record(JournalRecord { key, outcome: JournalOutcome::Done }, now);
    }
    assert_eq!(records, 105);
    file.commit(None).unwrap();
    assert!(!file.is_due(now));
    assert_eq!(disk.open_by(&journal, KeyKind::Name).unwrap().1.done(), 105);
}

#[test]
fn what_is_too_long_for_a_line_is_refused_and_nothing_is_broken() {
    let disk = FakeDisk::default();
    let (mut file, _) = disk.open_by(&resume(), KeyKind::Name).unwrap();
    let written = disk.contents().bytes.len();
    let name = "x".repeat(16 << 20).into();
    let key = JournalKey::Name { name, occurrence: 1 };
    file.record(JournalRecord { key, outcome: JournalOutcome::Done }, Instant::now());
    let error = file.commit(None).unwrap_err();
    assert!(matches!(error, JournalError::TooLong { limit: 16_777_215, .. }), "{error}");
    assert_eq!(disk.contents().bytes.len(), written);
}

#[test]
#[should_panic(expected = "does not know items by keys like")]
fn a_key_of_another_kind_is_our_bug() {
    let (mut journal, _) = FakeDisk::default().open(&resume()).unwrap();
    let key = JournalKey::Name { name: "a".into(), occurrence: 1 };
    journal.record(JournalRecord { key, outcome: JournalOutcome::Done }, Instant::now());
}

#[test]
fn commits_are_due_as_the_user_said() {
    let disk = FakeDisk::default();
    let rule = Journal::at("j").commit_items(0).commit_every(Duration::from_secs(1));
    let (mut journal, _) = disk.open(&rule).unwrap();
    let now = Instant::now();
    assert_eq!((journal.is_due(now), journal.due_at()), (false, None));
    journal.record(done(0), now);
    assert_eq!((journal.is_due(now), journal.due_at()), (true, Some(now + Duration::from_secs(1))));
}

#[derive(Debug, Clone)]
enum CrashStep {
    /// Items that were not there before, done or failed, and a note.
    Commit(Vec<JournalOutcome>, Option<Vec<u8>>),
    /// Items, done or failed, without a commit.
    Record(Vec<JournalOutcome>),
    /// Some that failed are done.
    Rerun,
    Reopen,
    /// A commit during which the power fails: what is left of its line, in thousandths, and from where to where
    /// there are zeros in that.
    Crash {
        items: Vec<JournalOutcome>,
        left: usize,
        hole: (usize, usize),
    },
}

fn steps() -> impl Strategy<Value = Vec<CrashStep>> {
    let outcome = prop_oneof![4 => Just(JournalOutcome::Done), 1 => Just(JournalOutcome::Failed)];
    let items = || proptest::collection::vec(outcome.clone(), 0..20);
    let note = proptest::option::of(proptest::collection::vec(any::<u8>(), 0..20));
    let hole = prop_oneof![3 => Just((0, 0)), 1 => (0usize..=1_000, 0usize..=1_000)];
    let step = prop_oneof![
        4 => (items(), note).prop_map(|(items, note)| CrashStep::Commit(items, note)),
        1 => items().prop_map(CrashStep::Record),
        1 => Just(CrashStep::Rerun),
        1 => Just(CrashStep::Reopen),
        2 => (items(), 0usize..=1_000, hole).prop_map(|(items, left, hole)| CrashStep::Crash { items, left, hole }),
    ];
    proptest::collection::vec(step, 0..25)
}

/// What a journal should know.
#[derive(Debug, Clone, Default, PartialEq)]
struct Known {
    outcomes: Vec<Option<JournalOutcome>>,
    note: Option<Vec<u8>>,
}

const MANY: u64 = 600;

proptest! {
    #[test]
    fn after_any_crashes_it_knows_what_was_committed(steps in steps()) {
        let disk = FakeDisk::default();
        let mut committed = Known { outcomes: vec![None; MANY as usize], note: None };
        let mut recorded = committed.clone();
        let mut next = 0..MANY;
        let (mut journal, _) = disk.open(&resume()).unwrap();
        for step in steps {
            let mut record = |journal: &mut super::JournalFile, known: &mut Known, items: Vec<JournalOutcome>| {
                for outcome in items {
                    let position = next.next().unwrap();
                    known.outcomes[position as usize] = Some(outcome);
                    journal.record(if outcome == JournalOutcome::Done { done(position) } else { failed(position) }, Instant::now());
                }
            };
            match step {
                CrashStep::Commit(items, note) => {
                    record(&mut journal, &mut recorded, items);
                    journal.commit(note.as_deref()).unwrap();
                    recorded.note = note.or(recorded.note);
                    committed = recorded.clone();
                }
                CrashStep::Record(items) => record(&mut journal, &mut recorded, items),
                CrashStep::Rerun => {
                    for (position, outcome) in (0..).zip(&mut recorded.outcomes) {
                        let is_committed = committed.outcomes[position as usize].is_some();
                        if is_committed && *outcome == Some(JournalOutcome::Failed) {
                            journal.record(done(position), Instant::now());
                            *outcome = Some(JournalOutcome::Done);
                        }
                    }
                }
                CrashStep::Reopen => {
                    let (opened, past) = disk.open(&resume()).unwrap();
                    journal = opened;
                    recorded = committed.clone();
                    prop_assert_eq!(outcomes(&past, MANY), &*committed.outcomes);
                    prop_assert_eq!(past.last_note(), committed.note.as_deref());
                }
                CrashStep::Crash { items, left, hole } => {
                    record(&mut journal, &mut recorded, items);
                    disk.contents().faults.syncs_fail = true;
                    let failed = commit(&mut journal, [], None).is_err();
                    let is_whole = {
                        let mut contents = disk.contents();
                        contents.faults = Faults::default();
                        let (synced, length) = (contents.synced, contents.bytes.len());
                        let line = length - synced;
                        let at = |thousandths: usize| line * thousandths / 1_000;
                        contents.bytes.truncate(synced + at(left));
                        let (from, to) = (at(hole.0.min(left)), at(hole.1.min(left)));
                        if from < to {
                            contents.bytes[synced + from..synced + to].fill(0);
                        }
                        let end = contents.bytes.len();
                        contents.synced = end;
                        from >= to && left == 1_000
                    };
                    if failed && is_whole {
                        committed = recorded.clone();
                    }
                    let (opened, past) = disk.open(&resume()).unwrap();
                    journal = opened;
                    recorded = committed.clone();
                    prop_assert_eq!(outcomes(&past, MANY), &*committed.outcomes);
                    prop_assert_eq!(past.last_note(), committed.note.as_deref());
                }
            }
        }
    }
}

//! Rows G1, G2, G3 and G8 of the catalogue of faults: bytes that are not as they were written.

use proptest::prelude::*;

use super::any_bytes::read_any_bytes;
use super::fake_disk::{FakeDisk, any_bytes, line_ends, outcomes, resume, sample};
use super::line::LONGEST_LINE;
use super::{Journal, JournalError, JournalOutcome, Repair};

/// What the first `commits` of the sample say.
fn expected(commits: usize) -> (Vec<Option<JournalOutcome>>, Option<Vec<u8>>) {
    let bytes = sample();
    let end = line_ends(&bytes)[commits];
    opened(&bytes[..end]).unwrap()
}

type Opened = Result<(Vec<Option<JournalOutcome>>, Option<Vec<u8>>), JournalError>;

/// What a resumed run would know, which is also what the next one would.
fn opened(bytes: &[u8]) -> Opened {
    let disk = FakeDisk::holding(bytes);
    let known = |past: super::Past| (outcomes(&past, 20), past.last_note().map(<[u8]>::to_vec));
    let first = known(disk.open(&resume())?.1);
    assert_eq!(first, known(disk.open(&resume())?.1));
    Ok(first)
}

#[test]
fn the_sample_says_what_it_should() {
    let of = |commits| {
        let (outcomes, note) = expected(commits);
        let letter = |outcome: Option<JournalOutcome>| match outcome {
            Some(JournalOutcome::Done) => 'd',
            Some(JournalOutcome::Failed) => 'f',
            None => '-',
        };
        (outcomes.into_iter().map(letter).collect::<String>(), note)
    };
    assert_eq!(of(0), ("--------------------".into(), None));
    assert_eq!(of(1), ("ddddd---------------".into(), Some(b"five".to_vec())));
    assert_eq!(of(2), ("dddddfd--d----------".into(), Some(b"five".to_vec())));
    assert_eq!(of(3), ("dddddddd-d----------".into(), Some(vec![0xff])));
    assert_eq!(of(4), ("dddddddd-dd-f-------".into(), Some(b"end".to_vec())));
}

#[test]
fn g1_cut_at_every_byte_it_knows_what_was_committed_by_then() {
    let bytes = sample();
    let ends = line_ends(&bytes);
    for cut in 0..=bytes.len() {
        let commits = ends.iter().filter(|end| **end <= cut).count().saturating_sub(1);
        assert_eq!(opened(&bytes[..cut]).unwrap(), expected(commits), "cut at {cut}");
    }
}

#[test]
fn g1_what_failed_before_a_torn_line_is_run_again() {
    let bytes = sample();
    let disk = FakeDisk::holding(&bytes[..bytes.len() - 1]);
    let (_, past) = disk.open(&Journal::at("j").rerun_failed()).unwrap();
    assert_eq!(outcomes(&past, 20), expected(3).0);
}

/// No line that this crate writes is so long, so it is not the rest of one.
#[test]
fn bytes_as_many_as_the_longest_line_are_no_torn_line() {
    let longest = |beginning: &[u8]| {
        let mut bytes = beginning.to_vec();
        bytes.resize(LONGEST_LINE, b'x');
        bytes
    };
    let header = opened(&longest(b"gangline-journal 1 ")).unwrap_err();
    assert!(matches!(header, JournalError::Header { .. }), "{header}");
    let whole = sample();
    let commit = opened(&[whole.clone(), longest(b"")].concat()).unwrap_err();
    assert!(matches!(commit, JournalError::Corrupt { at, .. } if at == whole.len() as u64));
}

/// Of a write that broke off some blocks may be there and others not.
#[test]
fn g1_a_last_line_with_holes_counts_for_nothing() {
    let bytes = sample();
    let begin = line_ends(&bytes)[3];
    for from in begin..bytes.len() {
        for to in from + 1..=bytes.len() {
            let mut bytes = bytes.clone();
            bytes[from..to].fill(0);
            assert_eq!(opened(&bytes).unwrap(), expected(3), "zeros from {from} to {to}");
        }
    }
}

#[test]
fn g2_with_any_bit_flipped_it_is_refused_or_the_last_commit_is_dropped() {
    let whole = sample();
    let ends = line_ends(&whole);
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let line = ends.iter().filter(|end| **end <= bit / 8).count();
        match opened(&bytes) {
            Ok(known) => {
                assert_eq!((line, known), (4, expected(3)), "bit {bit}");
            }
            Err(JournalError::Corrupt { at, .. }) => {
                assert_eq!(at as usize, ends[line - 1], "bit {bit}: where that line begins");
            }
            Err(
                JournalError::Header { .. }
                | JournalError::NoJournal { .. }
                | JournalError::Format { .. },
            ) => assert_eq!(line, 0, "bit {bit}"),
            Err(error) => panic!("bit {bit}: {error}"),
        }
    }
}

#[test]
fn g3_zeros_before_the_last_line_are_refused_where_they_begin() {
    let whole = sample();
    let ends = line_ends(&whole);
    let (first, last) = (ends[0], ends[3]);
    for from in first..last {
        for to in from + 1..last {
            let mut bytes = whole.clone();
            bytes[from..to].fill(0);
            let line_begin = ends.iter().rev().find(|end| **end <= from).unwrap();
            match opened(&bytes) {
                Err(JournalError::Corrupt { at, .. }) => assert_eq!(at as usize, *line_begin),
                other => panic!("zeros from {from} to {to}: {other:?}"),
            }
        }
    }
}

#[test]
fn lines_that_were_moved_or_come_from_another_file_are_refused() {
    let (bytes, other) = (sample(), sample());
    let ends = line_ends(&bytes);
    let lines: Vec<&[u8]> = bytes.split_inclusive(|byte| *byte == b'\n').collect();
    let left_out = [lines[0], lines[1], lines[3], lines[4]].concat();
    let twice = [lines[0], lines[1], lines[1], lines[2]].concat();
    let swapped = [lines[0], lines[2], lines[1], lines[3]].concat();
    let at = |bytes: &[u8]| match opened(bytes) {
        Err(JournalError::Corrupt { at, .. }) => at as usize,
        other => panic!("{other:?}"),
    };
    assert_eq!([&left_out, &twice, &swapped].map(|bytes| at(bytes)), [ends[1], ends[1], ends[0]]);
    let (bytes, other) = (&bytes[..ends[2]], &other[line_ends(&other)[0]..]);
    assert_eq!(at(&[bytes, other].concat()), ends[2], "one journal appended to another");
}

#[test]
fn g8_another_format_is_refused_with_both_versions() {
    let text = String::from_utf8(sample()).unwrap();
    for format in ["0", "2", "10"] {
        let other = text.replace("journal 1 ", &format!("journal {format} "));
        let error = opened(other.as_bytes()).unwrap_err();
        assert!(matches!(error, JournalError::Format { known: 1, .. }));
        let text = error.to_string();
        assert!(
            text.contains(&format!(
                "has format {format}, and this version of gangline reads format 1"
            )),
            "{text}"
        );
    }
}

#[test]
fn what_is_no_journal_is_left_alone() {
    for bytes in
        [&b"x"[..], b"{\"a\":1}\n", b"\n", &[0; 5000], b"gangline-journal\n", b"gangline-journey"]
    {
        let disk = FakeDisk::holding(bytes);
        let error = disk.open(&resume()).unwrap_err();
        assert!(matches!(error, JournalError::NoJournal { .. }), "{error}");
        let error = disk.open(&Journal::at("j")).unwrap_err();
        assert!(matches!(error, JournalError::Exists { .. }), "{error}");
        assert_eq!(disk.contents().bytes, bytes);
    }
}

#[test]
fn a_refused_journal_is_left_as_it_is() {
    let mut bytes = sample();
    let middle = line_ends(&bytes)[1] + 3;
    bytes[middle] ^= 1;
    let disk = FakeDisk::holding(&bytes);
    assert!(disk.open(&resume()).is_err());
    assert!(disk.contents().calls.is_empty());
}

#[test]
fn a_torn_line_is_cut_off_and_what_is_before_it_is_counted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("j");
    let bytes = sample();
    let torn = &bytes[..bytes.len() - 1];
    let whole = line_ends(torn)[3];
    std::fs::write(&path, torn).unwrap();
    let repair = Journal::at(&path).repair().unwrap();
    let Repair { kept_bytes, kept_commits, done, failed, lost_bytes, lost_commits, lost_items } =
        repair;
    assert_eq!((kept_bytes, kept_commits), (whole as u64, 3));
    assert_eq!((done, failed), (9, 0));
    assert_eq!((lost_bytes, lost_commits, lost_items), ((torn.len() - whole) as u64, 0, 0));
    assert_eq!(std::fs::read(&path).unwrap(), torn[..whole]);
    std::fs::write(&path, &bytes).unwrap();
    let repair = Journal::at(&path).repair().unwrap();
    assert_eq!((repair.done, repair.failed, repair.lost_bytes), (10, 1, 0));
}

#[test]
fn a_path_through_a_file_is_not_a_missing_journal() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let error = |path: &std::path::Path| Journal::at(path).repair().unwrap_err();
    let io = error(&file.join("j"));
    assert!(matches!(io, JournalError::Io { operation: "opened", .. }), "{io}");
    assert!(matches!(error(&dir.path().join("j")), JournalError::Missing { .. }));
}

proptest! {
    #[test]
    fn any_bytes_are_a_journal_or_none(bytes in any_bytes()) {
        read_any_bytes(&bytes);
    }

    /// What a fuzzer would find with the sample to start from.
    #[test]
    fn a_journal_with_bytes_changed_holds_together(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        insert in (any::<prop::sample::Index>(), any_bytes()),
    ) {
        let mut bytes = sample();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        read_any_bytes(&bytes);
        let at = insert.0.index(bytes.len());
        bytes.splice(at..at, insert.1);
        read_any_bytes(&bytes);
    }

    /// Past the checksums: made of what lines are made of.
    #[test]
    fn json_that_was_made_up_holds_together(
        keys in prop::sample::select(vec!["position", "position and hash", "name"]),
        lines in proptest::collection::vec(proptest::collection::vec(prop::sample::select(vec![
            "{", "}", "[", "]", ",", ":", "\"done\"", "\"failed\"", "\"note\"", "\"note_hex\"", "0", "1", "7",
            "[0,3]", "[4,4,9]", "18446744073709551615", "{\"done\":[", "]}", "\"a\"", "[\"a\",2]", "-1",
        ]), 0..12), 0..6),
    ) {
        let header = format!(r#"{{"id":1,"run":{{"runner":null,"keys":"{keys}","cfg":{{}}}}}}"#);
        let lines = lines.iter().map(|parts| parts.concat());
        read_any_bytes([header].into_iter().chain(lines).collect::<Vec<_>>().join("\n").as_bytes());
    }
}

//! A journal of any bytes: for the fuzzer, and for tests that make bytes up.

use std::path::PathBuf;

use super::journal_key::JournalKey;
use super::line::Header;
use super::past::Past;
use super::scan::{Scan, ScanEnding, scan};
use super::{KeyKind, Mode};

/// Reads any bytes as a journal, as they are and with the checksums put right, and checks that what is made of
/// them holds together.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    check(bytes);
    let sealed = resealed(bytes);
    check(&sealed);
    check_cut(&sealed, bytes.iter().map(|byte| usize::from(*byte)).sum());
    check_decisions(&sealed, bytes);
}

fn read(bytes: &[u8]) -> Scan {
    scan(bytes).expect("memory can be read")
}

fn check(bytes: &[u8]) {
    let found = read(bytes);
    let whole = &bytes[..usize::try_from(found.whole).expect("it is in memory")];
    let again = read(whole);
    assert_eq!(
        (&again.ending, again.whole),
        (&ScanEnding::Clean, found.whole),
        "what is whole is clean"
    );
    if matches!(found.ending, ScanEnding::Clean | ScanEnding::TornTail { .. }) {
        assert_eq!(found.recorded, again.recorded, "a torn tail says nothing");
    }
    if let Some((_, seal)) = found.header {
        let appended = read(&[whole, &seal.close(found.whole, b"{}")].concat());
        assert_eq!(appended.ending, ScanEnding::Clean, "a line can be appended to what is whole");
        assert_eq!(appended.recorded.commits(), again.recorded.commits() + 1);
    }
}

/// Of a journal that was written without a fault, what is before any byte is what had been written by then.
fn check_cut(whole: &[u8], at: usize) {
    if read(whole).ending != ScanEnding::Clean {
        return;
    }
    let (before, _) = whole.split_at(at % (whole.len() + 1));
    let found = read(before);
    let lines = before.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
    assert_eq!(found.whole, lines as u64, "whole lines are kept");
    let lost = (before.len() - lines) as u64;
    match found.ending {
        ScanEnding::Clean => assert_eq!(lost, 0),
        ending => assert_eq!(ending, ScanEnding::TornTail { lost }, "the rest was being written"),
    }
    assert_eq!(found.recorded, read(&whole[..lines]).recorded, "a torn tail says nothing");
}

/// Two runs that read the same journal decide the same, whatever the input, and an item that is done did not fail.
fn check_decisions(bytes: &[u8], input: &[u8]) {
    let found = read(bytes);
    let Some((header, _)) = found.header else { return };
    if matches!(found.ending, ScanEnding::Corrupt(_)) {
        return;
    }
    let keys = header.run.keys();
    for mode in [Mode::Resume, Mode::RerunFailed] {
        let past = || Past::new(read(bytes).recorded, mode, PathBuf::from("j"));
        let (mut first, mut second) = (past(), past());
        for (position, byte) in (0..).zip(input.iter().take(40)) {
            let key = key(keys, position, *byte);
            let (one, other) = (first.decide(&key), second.decide(&key));
            assert_eq!(format!("{one:?}"), format!("{other:?}"), "two runs decide the same");
            assert!(!(first.is_done(&key) && first.is_failed(&key)));
        }
        let (one, other) = (first.check_length(3), second.check_length(3));
        assert_eq!(format!("{one:?}"), format!("{other:?}"), "two runs decide the same");
    }
}

fn key(keys: KeyKind, position: u64, byte: u8) -> JournalKey {
    match keys {
        KeyKind::Position => JournalKey::Position(position),
        KeyKind::HashedPosition => JournalKey::HashedPosition { position, hash: u64::from(byte) },
        KeyKind::Name => JournalKey::Name {
            name: char::from(byte).to_string().into(),
            occurrence: u32::from(byte % 2) + 1,
        },
    }
}

/// With the lines of these bytes in the places of the JSON of a header and of commits.
fn resealed(bytes: &[u8]) -> Vec<u8> {
    let mut lines = bytes.split(|byte| *byte == b'\n');
    let (mut file, seal) = Header::seal_any(lines.next().unwrap_or_default());
    for json in lines {
        file.extend(seal.close(file.len() as u64, json));
    }
    file
}

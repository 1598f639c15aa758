use serde_json::json;

use super::*;
use crate::journal::Journal;

fn done(key: JournalKey) -> JournalRecord {
    JournalRecord { key, outcome: JournalOutcome::Done }
}

fn failed(key: JournalKey) -> JournalRecord {
    JournalRecord { key, outcome: JournalOutcome::Failed }
}

fn encoded(
    keys: KeyKind,
    records: impl IntoIterator<Item = JournalRecord>,
    note: Option<&[u8]>,
) -> String {
    let mut pending = PendingRecords::new(keys);
    records.into_iter().for_each(|record| pending.push(record));
    String::from_utf8(pending.encode(note)).unwrap()
}

#[test]
fn positions_are_written_as_spans_in_whatever_order_they_came() {
    let positions = [5, 3, 4, 9, 0].map(|position| done(JournalKey::Position(position)));
    let records = positions.into_iter().chain([failed(JournalKey::Position(1))]);
    let json = encoded(KeyKind::Position, records, Some(b"at 7"));
    assert_eq!(json, r#"{"done":[[0,0],[3,5],[9,9]],"failed":[1],"note":"at 7"}"#);
}

#[test]
fn hashes_of_a_span_are_folded() {
    let key = |position, hash| JournalKey::HashedPosition { position, hash };
    let records = [done(key(1, 20)), done(key(0, 10)), failed(key(7, 30))];
    let json = encoded(KeyKind::HashedPosition, records, None);
    let both = super::super::position_spans::fold(super::super::position_spans::fold(0, 10), 20);
    assert_eq!(json, format!(r#"{{"done":[[0,1,{both}]],"failed":[[7,30]]}}"#));
}

#[test]
fn names_that_came_again_have_their_number() {
    let key = |name: &str, occurrence| JournalKey::Name { name: name.into(), occurrence };
    let json = encoded(KeyKind::Name, [done(key("a", 1)), done(key("\u{e4}\n", 2))], None);
    assert_eq!(json, "{\"done\":[\"a\",[\"\u{e4}\\n\",2]]}");
    let Some(AnyCommit::Names(commit)) = AnyCommit::decode(KeyKind::Name, json.as_bytes()) else {
        panic!("{json}");
    };
    assert_eq!(commit.done[1], NamedOccurrence { name: "\u{e4}\n".into(), occurrence: 2 });
}

#[test]
fn a_note_is_kept_byte_for_byte() {
    for note in [&b""[..], b"text \"\n\0", &[0xff, 0x00, 0x80]] {
        let json = encoded(KeyKind::Position, [], Some(note));
        let commit = AnyCommit::decode(KeyKind::Position, json.as_bytes());
        let Some(AnyCommit::Positions(mut commit)) = commit else { panic!("{json}") };
        assert_eq!(commit.note(), Ok(Some(note.to_vec())), "{json}");
    }
    assert_eq!(from_hex("0"), None);
    assert_eq!(from_hex("0g"), None);
}

#[test]
fn a_header_comes_back_and_says_what_is_wrong_with_another() {
    let run = Fingerprint::new(&Journal::at("j"), json!({"x": 0.1}), KeyKind::Name);
    let header = Header::new(run);
    let (line, seal) = header.encode();
    let line = line.strip_suffix(b"\n").unwrap();
    assert_eq!(Header::decode(line), Ok((header, seal)));
    let newer = String::from_utf8(line.to_vec()).unwrap().replace("journal 1 ", "journal 2 ");
    assert_eq!(Header::decode(newer.as_bytes()), Err(NoHeader::Format(2)));
    assert_eq!(Header::decode(&line[1..]), Err(NoHeader::NoJournal));
    assert_eq!(Header::decode(&line[..40]), Err(NoHeader::Damaged));
}

#[test]
fn a_line_belongs_to_its_place_and_its_file() {
    let line = Seal(1).close(100, b"{}");
    let line = line.strip_suffix(b"\n").unwrap();
    assert_eq!(Seal(1).open(100, line), Some(&b"{}"[..]));
    assert_eq!(Seal(1).open(101, line), None);
    assert_eq!(Seal(2).open(100, line), None);
    let upper = line.to_ascii_uppercase();
    assert!(upper == line || Seal(1).open(100, &upper).is_none(), "one way to write a checksum");
    assert!(Seal(1).opens_early(100, &[line, b"\x0b", line].concat()));
    for torn in [line, &line[..line.len() - 1], &[line, b"\0"].concat(), b""] {
        assert!(!Seal(1).opens_early(100, torn));
    }
}

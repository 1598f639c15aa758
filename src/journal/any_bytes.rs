//! A journal of any bytes: for the fuzzer, and for tests that make bytes up.

use super::line::Header;
use super::scan::{Ending, scan};

/// Reads any bytes as a journal, as they are and with the checksums put right, and checks that what is made of
/// them holds together.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    check(bytes);
    check(&resealed(bytes));
}

fn check(bytes: &[u8]) {
    let read = |bytes: &[u8]| scan(bytes).expect("memory can be read");
    let found = read(bytes);
    let whole = &bytes[..usize::try_from(found.whole).expect("it is in memory")];
    let again = read(whole);
    assert_eq!(
        (&again.ending, again.whole),
        (&Ending::Clean, found.whole),
        "what is whole is clean"
    );
    if matches!(found.ending, Ending::Clean | Ending::TornTail { .. }) {
        assert_eq!(found.recorded, again.recorded, "a torn tail says nothing");
    }
    if let Some((_, seal)) = found.header {
        let appended = read(&[whole, &seal.close(found.whole, b"{}")].concat());
        assert_eq!(appended.ending, Ending::Clean, "a line can be appended to what is whole");
        assert_eq!(appended.recorded.commits(), again.recorded.commits() + 1);
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

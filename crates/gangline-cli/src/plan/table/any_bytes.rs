//! Tables of any bytes: for the fuzzer, and for tests that make bytes up.

use std::ffi::OsString;
use std::io::{self, Cursor, Read};
use std::os::unix::ffi::OsStrExt;

use super::{InputTable, count};
use crate::plan::quotes::BYTE_ORDER_MARK;
use crate::plan::rows::Row;

/// Reads any bytes as a table, and checks that what is made of them holds together.
///
/// The first byte chooses the delimiter, the second the size of the pieces in which the file is read.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    let [delimiter, piece, file @ ..] = bytes else { return };
    let delimiter = b",;\t|"[usize::from(delimiter % 4)];
    let found = TableContent::of(file, delimiter, usize::MAX);
    let piece = usize::from(*piece) + 1;
    assert_eq!(
        found,
        TableContent::of(file, delimiter, piece),
        "pieces of {piece} bytes change nothing"
    );
    let has_nul = |field: &OsString| field.as_bytes().contains(&0);
    assert!(!found.rows.iter().flatten().any(has_nul), "a NUL cannot be passed to a program");
    match &found.error {
        Some(error) => assert!(error.contains("some-file"), "the file is named: {error}"),
        None => check_whole(&found, file, delimiter),
    }
}

/// What is read of a file.
#[derive(Debug, PartialEq)]
struct TableContent {
    names: Row,
    rows: Vec<Row>,
    /// Why no more is read.
    error: Option<String>,
}

impl TableContent {
    fn of(file: &[u8], delimiter: u8, piece: usize) -> TableContent {
        let file = PiecewiseFile { file: Cursor::new(file.to_vec()), piece };
        let mut table = InputTable::over(file, "some-file".to_owned(), delimiter);
        let mut found = TableContent { names: Row::new(), rows: vec![], error: None };
        match table.names() {
            Ok(names) => found.names = names,
            Err(error) => {
                found.error = Some(error.to_string());
                return found;
            }
        }
        for row in table.rows() {
            match row {
                Ok(row) => found.rows.push(row),
                Err(error) => {
                    found.error = Some(error.to_string());
                    break;
                }
            }
        }
        found
    }
}

/// Every row has a field for each name, and is the same once it was written and read again.
fn check_whole(found: &TableContent, file: &[u8], delimiter: u8) {
    assert_eq!(count(file, delimiter), Some(found.rows.len()), "the rows are counted");
    assert!(found.rows.iter().all(|row| row.len() == found.names.len()));
    // The first name may begin like the mark that was taken off.
    let start = BYTE_ORDER_MARK.to_vec();
    let mut writer = csv::WriterBuilder::new().delimiter(delimiter).from_writer(start);
    // Without names there are no rows, and a record without fields cannot be written.
    for row in [&found.names].into_iter().chain(&found.rows).filter(|row| !row.is_empty()) {
        let fields = row.iter().map(|field| field.as_bytes());
        writer.write_record(fields).expect("memory takes all that is written to it");
    }
    let written = writer.into_inner().expect("memory takes all that is written to it");
    assert_eq!(&TableContent::of(&written, delimiter, usize::MAX), found, "read again");
}

/// A file that comes in pieces, as from a pipe.
struct PiecewiseFile {
    file: Cursor<Vec<u8>>,
    piece: usize,
}

impl Read for PiecewiseFile {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = buffer.len().min(self.piece);
        self.file.read(&mut buffer[..most])
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_byte_order_mark_that_comes_in_pieces_is_no_part_of_a_name() {
        for piece in 1..5 {
            let found = TableContent::of("\u{feff}a,b\n1,2\n".as_bytes(), b',', piece);
            assert_eq!(found.names, ["a", "b"], "pieces of {piece} bytes");
            assert_eq!(found.rows, [["1", "2"]]);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_table_or_an_error_that_names_it(bytes in vec(any::<u8>(), 0..60)) {
            read_any_bytes(&bytes);
        }

        /// Made of what tables are made of.
        #[test]
        fn tables_that_were_made_up_hold_together(
            delimiter in 0_u8..4,
            piece in 0_u8..8,
            parts in vec(prop::sample::select(vec![
                "a", "b", "\"", "\"", ",", ",", ";", "\t", "|", "\n", "\r", "\r\n", " ", "\0", "\u{feff}", "é", "\\",
            ]), 0..24),
        ) {
            read_any_bytes(&[&[delimiter, piece], parts.concat().as_bytes()].concat());
        }
    }
}

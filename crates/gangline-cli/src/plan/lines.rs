//! A file that is a list of inputs.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;

use crate::plan::gate::Gate;
use crate::plan::input_error::{InputError, LONGEST, Problem, name_of};
use crate::plan::until_closed::UntilClosed;

/// The pieces of a file between separators. The last needs no separator after it. A byte order mark at the
/// beginning belongs to none.
pub(crate) struct LineReader {
    reader: BufReader<UntilClosed>,
    separator: Separator,
    name: String,
    number: u64,
    has_ended: bool,
    /// The number of pieces that are left, if they were counted.
    left: Option<usize>,
}

/// What ends a piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
    /// A line feed, and a carriage return before it.
    LineEnd,
    Byte(u8),
}

impl Separator {
    fn byte(self) -> u8 {
        match self {
            Separator::LineEnd => b'\n',
            Separator::Byte(byte) => byte,
        }
    }
}

impl LineReader {
    /// `-` is standard input.
    pub(crate) fn open(
        path: &Path,
        separator: Separator,
        gate: &Arc<Gate>,
    ) -> Result<LineReader, InputError> {
        let name = name_of(path);
        match UntilClosed::open(path, gate) {
            Ok(file) => {
                let reader = BufReader::new(file);
                Ok(LineReader { reader, separator, name, number: 0, has_ended: false, left: None })
            }
            Err(error) => Err(InputError { source: name, problem: Problem::Io(error) }),
        }
    }

    /// Counts the pieces, if the file can be read twice.
    pub(crate) fn counted(self, path: &Path) -> LineReader {
        let is_regular = fs::metadata(path).is_ok_and(|file| file.is_file());
        let left = is_regular.then(|| count(path, self.separator.byte()).ok()).flatten();
        LineReader { left, ..self }
    }

    fn read(&mut self) -> Result<Option<OsString>, Problem> {
        let mut line = Vec::new();
        // Room for a byte order mark, one byte more than allowed, and a line end.
        let most = (LONGEST + 1 + BYTE_ORDER_MARK.len() + 2) as u64;
        let mut reader = (&mut self.reader).take(most);
        if reader.read_until(self.separator.byte(), &mut line).map_err(Problem::Io)? == 0 {
            return Ok(None);
        }
        if self.number == 0 && line.starts_with(BYTE_ORDER_MARK) {
            line.drain(..BYTE_ORDER_MARK.len());
            // The file has nothing but the mark.
            if line.is_empty() {
                return Ok(None);
            }
        }
        self.number += 1;
        if line.pop_if(|last| *last == self.separator.byte()).is_some()
            && self.separator == Separator::LineEnd
        {
            line.pop_if(|last| *last == b'\r');
        }
        match line {
            line if line.len() > LONGEST => Err(Problem::TooLong(self.number)),
            line if line.contains(&0) => Err(Problem::Nul(self.number)),
            line => Ok(Some(OsString::from_vec(line))),
        }
    }
}

impl Iterator for LineReader {
    type Item = Result<OsString, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.has_ended {
            return None;
        }
        let line = self.read();
        self.has_ended = !matches!(line, Ok(Some(_)));
        self.left = self.left.map(|left| left.saturating_sub(1));
        line.map_err(|problem| InputError { source: self.name.clone(), problem }).transpose()
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        // The file may have become shorter or longer since.
        (self.left.unwrap_or(0), self.left)
    }
}

/// Begins a text of UTF-8 that some editors and spreadsheets write.
pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn count(path: &Path, separator: u8) -> io::Result<usize> {
    let mut reader = BufReader::new(File::open(path)?);
    let mut count = 0;
    loop {
        match reader.skip_until(separator)? {
            0 => return Ok(count),
            _ => count += 1,
        }
    }
}

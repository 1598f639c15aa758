//! A file that is a table with the names of its columns in the first record.

#[cfg(any(test, fuzzing))]
pub(crate) mod any_bytes;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::gate::Gate;
use crate::plan::input_error::{InputError, LONGEST, Problem, name_of};
use crate::plan::quotes::{BYTE_ORDER_MARK, Misquote, Quotes};
use crate::plan::rows::{Counted, Row, Rows};
use crate::plan::until_closed::UntilClosed;

pub(crate) struct InputTable {
    reader: csv::Reader<Quoted>,
    allowance: Arc<AtomicU64>,
    name: String,
    /// The number of records, if they were counted.
    count: Option<usize>,
}

impl InputTable {
    pub(crate) fn open(
        path: &Path,
        delimiter: u8,
        gate: &Arc<Gate>,
    ) -> Result<InputTable, InputError> {
        let name = name_of(path);
        match UntilClosed::open(path, gate) {
            Ok(file) => Ok(InputTable::over(file, name, delimiter)),
            Err(error) => Err(InputError { source: name, problem: Problem::Io(error) }),
        }
    }

    fn over(file: impl Read + Send + 'static, name: String, delimiter: u8) -> InputTable {
        let allowance = Arc::new(AtomicU64::new(LONGEST as u64));
        let file = Allowed { file: Box::new(file), allowance: Arc::clone(&allowance) };
        let quotes = Quotes::new(delimiter);
        let file = Quoted { file, quotes, misquote: None, has_begun: false };
        let reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(file);
        InputTable { reader, allowance, name, count: None }
    }

    /// Counts the records, if the file can be read twice.
    pub(crate) fn counted(self, path: &Path, delimiter: u8) -> InputTable {
        let is_regular = fs::metadata(path).is_ok_and(|file| file.is_file());
        let count = is_regular.then(|| count(File::open(path).ok()?, delimiter)).flatten();
        InputTable { count, ..self }
    }

    /// The names of the columns, checked later.
    pub(crate) fn names(&mut self) -> Result<Row, InputError> {
        let failed = |problem| InputError { source: self.name.clone(), problem };
        let header = self.reader.byte_headers().map_err(|error| failed(Problem::Csv(error)))?;
        Ok(header.iter().map(|name| OsString::from_vec(name.to_vec())).collect())
    }

    pub(crate) fn rows(self) -> Rows {
        let InputTable { reader, allowance, name, count } = self;
        let rows = (1..).zip(reader.into_byte_records()).map(move |(number, record)| {
            allowance.store(LONGEST as u64, Ordering::Relaxed);
            let failed = |problem| InputError { source: name.clone(), problem };
            let record = record.map_err(|error| failed(Problem::Csv(error)))?;
            match record.iter().any(|field| field.contains(&0)) {
                true => Err(failed(Problem::Nul(number))),
                false => {
                    Ok(record.iter().map(|field| OsString::from_vec(field.to_vec())).collect())
                }
            }
        });
        match count {
            Some(count) => Box::new(Counted::new(rows, (count, Some(count)))),
            None => Box::new(rows),
        }
    }
}

/// The number of records, if all of them can be read.
fn count(file: impl Read, delimiter: u8) -> Option<usize> {
    let mut reader = csv::ReaderBuilder::new().delimiter(delimiter).from_reader(file);
    let mut record = csv::ByteRecord::new();
    let mut count = 0;
    while reader.read_byte_record(&mut record).ok()? {
        count += 1;
    }
    Some(count)
}

/// A table with checked quotes. Records before a fault are read first, so they are jobs.
struct Quoted {
    file: Allowed,
    quotes: Quotes,
    misquote: Option<Misquote>,
    has_begun: bool,
}

impl Quoted {
    /// Reads the first piece. The parser looks for a byte order mark in that one only, and takes nothing behind the mark
    /// for the end of the file. So the piece has the whole mark and more.
    fn begin(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.has_begun = true;
        let mut read = self.file.read(buffer)?;
        while (1..=BYTE_ORDER_MARK.len()).contains(&read)
            && BYTE_ORDER_MARK.starts_with(&buffer[..read])
        {
            match self.file.read(&mut buffer[read..])? {
                0 => break,
                more => read += more,
            }
        }
        Ok(read)
    }
}

impl Read for Quoted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(misquote) = self.misquote {
            return Err(io::Error::other(misquote));
        }
        let read = if self.has_begun { self.file.read(buffer)? } else { self.begin(buffer)? };
        if read == 0 && !buffer.is_empty() {
            self.quotes.finish().map_err(io::Error::other)?;
        }
        match self.quotes.check(&buffer[..read]) {
            Ok(()) => Ok(read),
            Err((0, misquote)) => Err(io::Error::other(misquote)),
            Err((before, misquote)) => {
                self.misquote = Some(misquote);
                Ok(before)
            }
        }
    }
}

/// A file with a limit on reading, which the caller raises per record: an unclosed quote would make the rest
/// one record.
struct Allowed {
    file: Box<dyn Read + Send>,
    allowance: Arc<AtomicU64>,
}

impl Read for Allowed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let allowed = self.allowance.load(Ordering::Relaxed);
        let read = self.file.read(buffer)? as u64;
        match allowed.checked_sub(read) {
            Some(left) => self.allowance.store(left, Ordering::Relaxed),
            None => {
                return Err(io::Error::other(format!(
                    "a record is longer than {LONGEST} bytes: is a quote not closed?"
                )));
            }
        }
        Ok(read as usize)
    }
}

//! The sources of jobs.

use std::ffi::OsString;
use std::fmt;
use std::io::{self, BufRead, BufReader, Read};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::plan::gate::Gate;
use crate::plan::job::{Job, Needs};
use crate::plan::quotes::{Misquote, Quotes};
use crate::plan::template::Template;
use crate::plan::until_closed::UntilClosed;

/// The maximum size of an input in bytes. It is far more than any program accepts as an argument, and far
/// less than a large file without line ends.
const LONGEST: usize = 1 << 20;

/// The jobs of a run, in order.
pub(crate) type Jobs = Box<dyn Iterator<Item = Result<Job, InputError>> + Send>;

/// Why there is no next job.
#[derive(Debug)]
pub(crate) struct InputError {
    source: String,
    problem: Problem,
}

#[derive(Debug)]
enum Problem {
    Io(io::Error),
    Csv(csv::Error),
    TooLong(u64),
    Nul(u64),
    NoColumns,
    ColumnTwice(String),
    /// Counted from 1.
    ColumnWithoutName(usize),
    Changed,
}

/// The separator of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Separator {
    Newline,
    Nul,
}

/// Texts from the command line, each an input.
pub(crate) fn arguments(arguments: Vec<OsString>, command: Arc<Template>) -> Jobs {
    jobs(arguments.into_iter().map(Ok), command)
}

/// The lines of a file, or of standard input.
pub(crate) fn lines(lines: Lines, command: Arc<Template>) -> Jobs {
    jobs(lines, command)
}

fn jobs(
    inputs: impl Iterator<Item = Result<OsString, InputError>> + Send + 'static,
    command: Arc<Template>,
) -> Jobs {
    let numbered = (1..).zip(inputs);
    Box::new(numbered.map(move |(number, input)| {
        let command = Arc::clone(&command);
        Ok(Job { number, fields: Arc::from([input?]), command, needs: Needs::Slot, turn: None })
    }))
}

/// A table with the names of the columns in its first record.
pub(crate) struct Table {
    reader: csv::Reader<Quoted>,
    allowance: Arc<AtomicU64>,
    name: String,
    columns: Vec<OsString>,
}

impl Table {
    pub(crate) fn open(path: &Path, gate: &Arc<Gate>) -> Result<Table, InputError> {
        let name = name_of(Some(path));
        let failed = |problem| InputError { source: name.clone(), problem };
        let file =
            UntilClosed::open(Some(path), gate).map_err(|error| failed(Problem::Io(error)))?;
        let allowance = Arc::new(AtomicU64::new(LONGEST as u64));
        let file = Allowed { file, allowance: Arc::clone(&allowance) };
        let file = Quoted { file, quotes: Quotes::new(), misquote: None };
        let mut reader = csv::ReaderBuilder::new().from_reader(file);
        let header = reader.byte_headers().map_err(|error| failed(Problem::Csv(error)))?;
        let columns = header.iter().map(|name| name.strip_prefix(BYTE_ORDER_MARK).unwrap_or(name));
        let columns: Vec<OsString> =
            columns.map(|name| OsString::from_vec(name.to_vec())).collect();
        match twice(&columns) {
            Some(column) => return Err(failed(Problem::ColumnTwice(column))),
            None if columns.is_empty() => return Err(failed(Problem::NoColumns)),
            None => {}
        }
        if let Some(at) = columns.iter().position(|name| name.is_empty()) {
            return Err(failed(Problem::ColumnWithoutName(at + 1)));
        }
        Ok(Table { reader, allowance, name, columns })
    }

    pub(crate) fn columns(&self) -> &[OsString] {
        &self.columns
    }

    pub(crate) fn jobs(self, command: Arc<Template>) -> Jobs {
        let Table { reader, allowance, name, .. } = self;
        let records = (1..).zip(reader.into_byte_records());
        Box::new(records.map(move |(number, record)| {
            allowance.store(LONGEST as u64, Ordering::Relaxed);
            let failed = |problem| InputError { source: name.clone(), problem };
            let record = record.map_err(|error| failed(Problem::Csv(error)))?;
            let fields: Arc<[OsString]> =
                record.iter().map(|field| OsString::from_vec(field.to_vec())).collect();
            match fields.iter().any(|field| field.as_bytes().contains(&0)) {
                true => Err(failed(Problem::Nul(number))),
                false => Ok(Job {
                    number,
                    fields,
                    command: Arc::clone(&command),
                    needs: Needs::Slot,
                    turn: None,
                }),
            }
        }))
    }
}

/// A table with checked quotes. Records before a fault are read first, so they are jobs.
struct Quoted {
    file: Allowed,
    quotes: Quotes,
    misquote: Option<Misquote>,
}

impl Read for Quoted {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Some(misquote) = self.misquote {
            return Err(io::Error::other(misquote));
        }
        let read = self.file.read(buffer)?;
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
    file: UntilClosed,
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

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn twice(columns: &[OsString]) -> Option<String> {
    let again = |(i, name): &(usize, &OsString)| columns[..*i].contains(name);
    columns.iter().enumerate().find(again).map(|(_, name)| name.to_string_lossy().into_owned())
}

fn name_of(path: Option<&Path>) -> String {
    match path.filter(|path| *path != Path::new("-")) {
        Some(path) => path.display().to_string(),
        None => "standard input".into(),
    }
}

/// The pieces of a file between separators. The last needs no separator after it.
pub(crate) struct Lines {
    reader: BufReader<UntilClosed>,
    separator: Separator,
    name: String,
    number: u64,
    ended: bool,
}

impl Lines {
    /// `None` is standard input, as is the path `-`.
    pub(crate) fn open(
        path: Option<&Path>,
        separator: Separator,
        gate: &Arc<Gate>,
    ) -> Result<Lines, InputError> {
        let name = name_of(path);
        match UntilClosed::open(path, gate) {
            Ok(file) => {
                let reader = BufReader::new(file);
                Ok(Lines { reader, separator, name, number: 0, ended: false })
            }
            Err(error) => Err(InputError { source: name, problem: Problem::Io(error) }),
        }
    }

    /// Whether a user types them at a terminal.
    pub(crate) fn are_typed(&self) -> bool {
        self.reader.get_ref().is_terminal()
    }

    fn read(&mut self) -> Result<Option<OsString>, Problem> {
        let end = match self.separator {
            Separator::Newline => b'\n',
            Separator::Nul => 0,
        };
        let mut line = Vec::new();
        // One byte more than allowed, and the separator.
        let mut reader = (&mut self.reader).take(LONGEST as u64 + 2);
        if reader.read_until(end, &mut line).map_err(Problem::Io)? == 0 {
            return Ok(None);
        }
        self.number += 1;
        if line.last() == Some(&end) {
            line.pop();
        }
        match line {
            line if line.len() > LONGEST => Err(Problem::TooLong(self.number)),
            line if line.contains(&0) => Err(Problem::Nul(self.number)),
            line => Ok(Some(OsString::from_vec(line))),
        }
    }
}

impl Iterator for Lines {
    type Item = Result<OsString, InputError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended {
            return None;
        }
        let line = self.read();
        self.ended = !matches!(line, Ok(Some(_)));
        line.map_err(|problem| InputError { source: self.name.clone(), problem }).transpose()
    }
}

impl InputError {
    /// For a file that differs when it is read a second time.
    pub(crate) fn changed(path: &Path) -> InputError {
        InputError { source: path.display().to_string(), problem: Problem::Changed }
    }
}

impl fmt::Display for InputError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let source = crate::plain::Plain(&self.source);
        match &self.problem {
            Problem::Io(_) => write!(f, "{source} cannot be read"),
            Problem::Csv(_) => write!(f, "{source} is not a table of comma-separated values"),
            Problem::TooLong(number) => {
                write!(f, "input {number} of {source} is longer than {LONGEST} bytes")
            }
            Problem::Nul(number) => write!(
                f,
                "input {number} of {source} has a NUL in it, which cannot be passed to a program; if NULs \
                 separate the inputs, use -0"
            ),
            Problem::Changed => write!(f, "{source} was changed while it was read"),
            Problem::NoColumns => write!(f, "{source} has no column names in its first line"),
            Problem::ColumnTwice(column) => write!(f, "{source} has two columns {column:?}"),
            Problem::ColumnWithoutName(number) => {
                write!(f, "{source} has no name for column {number} in its first line")
            }
        }
    }
}

impl std::error::Error for InputError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.problem {
            Problem::Io(error) => Some(error),
            Problem::Csv(error) => Some(error),
            _ => None,
        }
    }
}

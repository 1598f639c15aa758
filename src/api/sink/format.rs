//! How outputs are written.

use std::fmt::Display;
use std::io::Write;

use serde::Serialize;

use super::error::{SinkError, clip};
use super::finite::check_finite;
use crate::error::{BoxError, Result};

/// How a [`Sink`](crate::sink::Sink) writes outputs of the type `O`.
///
/// Implement it for a format of your own:
///
/// ```
/// use gangline::sink::{Format, Sink};
/// use gangline::{OrderedRunner, Result, map};
///
/// /// Each number as four bytes.
/// struct Binary;
///
/// impl Format<f32> for Binary {
///     fn encode(&self, output: &f32, to: &mut Vec<u8>) -> Result<()> {
///         to.extend_from_slice(&output.to_le_bytes());
///         Ok(())
///     }
/// }
///
/// # fn main() -> Result<()> {
/// # let path = std::env::temp_dir().join(format!("gangline-binary-{}", std::process::id()));
/// let halves = map(|_| Ok(()), |_, (), x: f32| Ok(x / 2.0));
/// OrderedRunner::new(halves.sink(Sink::new(&path, Binary)), 2)?.run([1.0, 2.0])?;
/// assert_eq!(std::fs::read(&path)?, [0, 0, 0, 63, 0, 0, 128, 63]);
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
pub trait Format<O: ?Sized>: Send + Sync {
    /// Appends one output to `to`.
    ///
    /// # Errors
    ///
    /// If the output cannot be written in this format. Then what was appended is dropped.
    fn encode(&self, output: &O, to: &mut Vec<u8>) -> Result<()>;
}

/// A line of text for each output: see [`lines`](crate::sink::lines).
#[derive(Debug, Clone, Copy)]
pub struct Lines;

/// A line of JSON for each output: see [`jsonl`](crate::sink::jsonl).
#[derive(Debug, Clone, Copy)]
pub struct JsonLines;

/// A line of JSON for each output, with NaN and infinities as `null`: see
/// [`non_finite_as_null`](crate::sink::Sink::non_finite_as_null).
#[derive(Debug, Clone, Copy)]
pub struct NullableJsonLines;

/// A row of a table for each output: see [`csv`](crate::sink::csv()).
#[cfg(feature = "csv")]
#[cfg_attr(docsrs, doc(cfg(feature = "csv")))]
#[derive(Debug, Clone)]
pub struct Csv {
    columns: Vec<String>,
    /// The row of the columns, as it is written.
    header: Vec<u8>,
}

impl<O: Display + ?Sized> Format<O> for Lines {
    fn encode(&self, output: &O, to: &mut Vec<u8>) -> Result<()> {
        let start = to.len();
        write!(to, "{output}")?;
        if to[start..].contains(&b'\n') {
            let text = clip(&String::from_utf8_lossy(&to[start..]));
            return Err(SinkError::LineBreak { text }.into());
        }
        to.push(b'\n');
        Ok(())
    }
}

impl<O: Serialize + ?Sized> Format<O> for JsonLines {
    fn encode(&self, output: &O, to: &mut Vec<u8>) -> Result<()> {
        let start = to.len();
        NullableJsonLines.encode(output, to)?;
        // The check costs as much as encoding, so only outputs with a null are checked.
        if to[start..].windows(4).any(|bytes| bytes == b"null") {
            check_finite(output).map_err(no_json)?;
        }
        Ok(())
    }
}

impl<O: Serialize + ?Sized> Format<O> for NullableJsonLines {
    fn encode(&self, output: &O, to: &mut Vec<u8>) -> Result<()> {
        serde_json::to_writer(&mut *to, output).map_err(no_json)?;
        to.push(b'\n');
        Ok(())
    }
}

fn no_json(error: impl Into<BoxError>) -> SinkError {
    SinkError::Encode { format: "JSON", source: error.into() }
}

#[cfg(feature = "csv")]
impl Csv {
    pub(super) fn new(columns: Vec<String>) -> Self {
        let mut csv = Csv { columns, header: Vec::new() };
        csv.header = csv.rows(None::<()>).expect("a row of texts can be written");
        csv
    }

    /// The row of the columns, as it is written.
    pub(super) fn header(&self) -> &[u8] {
        &self.header
    }

    /// The header, and `row` if there is one. They are written together, since the writer compares the numbers
    /// of fields.
    fn rows(&self, row: Option<impl Serialize>) -> Result<Vec<u8>, csv::Error> {
        let mut csv = csv::WriterBuilder::new();
        let mut csv = csv.has_headers(false).buffer_capacity(1 << 10).from_writer(Vec::new());
        if !self.columns.is_empty() {
            csv.write_record(&self.columns)?;
        }
        row.into_iter().try_for_each(|row| csv.serialize(row))?;
        csv.into_inner().map_err(|error| error.into_error().into())
    }
}

#[cfg(feature = "csv")]
impl<O: Serialize + ?Sized> Format<O> for Csv {
    fn encode(&self, output: &O, to: &mut Vec<u8>) -> Result<()> {
        let rows = self
            .rows(Some(output))
            .map_err(|error| SinkError::Encode { format: "CSV", source: cause(error) })?;
        to.extend_from_slice(&rows[self.header.len()..]);
        Ok(())
    }
}

/// The writer calls the header "the previous record".
#[cfg(feature = "csv")]
fn cause(error: csv::Error) -> BoxError {
    match *error.kind() {
        csv::ErrorKind::UnequalLengths { expected_len, len, .. } => {
            format!("fields of the output: {len}, columns of the header: {expected_len}").into()
        }
        _ => error.into(),
    }
}

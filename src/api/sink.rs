//! Ready-made consumers: outputs in a file, whole and exactly once.
//!
//! A [`Sink`] writes each output of a run to a file, in the order of the run. [`lines`] writes texts, [`jsonl`]
//! writes JSON, and `csv` (feature `csv`) writes tables. A runner of closures takes one with
//! [`Map::sink`](crate::closures::Map::sink):
//!
//! ```
//! use gangline::{Journal, OrderedRunner, map, sink};
//!
//! # fn main() -> gangline::Result<()> {
//! # let folder = std::env::temp_dir().join(format!("gangline-sink-{}", std::process::id()));
//! # std::fs::create_dir(&folder)?;
//! let squares = map(|_| Ok(()), |_, (), x: u64| Ok(x * x));
//! let mut pool = OrderedRunner::builder(squares.sink(sink::lines(folder.join("squares.txt"))))
//!     .devices(2)
//!     .journal(Journal::at(folder.join("squares.journal")).resume())
//!     .build()?;
//! assert_eq!(pool.run(0..4)?.outputs, 4);
//! assert_eq!(std::fs::read_to_string(folder.join("squares.txt"))?, "0\n1\n4\n9\n");
//! # std::fs::remove_dir_all(&folder)?;
//! # Ok(())
//! # }
//! ```
//!
//! # What the file holds, and when
//!
//! | run | the file |
//! |---|---|
//! | without a [journal](crate::Builder::journal) | appears when the run has succeeded, and replaces an earlier one; until then, and after a failure, nothing has changed |
//! | with one | grows while the run lasts; after a failure, a kill or a power cut the next run cuts off what was not committed, and goes on |
//!
//! With a journal each output is in the file exactly once. In input order the file is the same, byte for byte,
//! as that of an uninterrupted run, as long as no item fails. Delete the journal and the file together: a new
//! journal begins a new file.
//!
//! An output that cannot be written in its format fails the run, unless [`classify`](crate::Builder::classify)
//! skips the error; the file is as it was before. After a failed write, for instance on a full disk, nothing
//! more is written or committed.
//!
//! # In a hand-written consumer
//!
//! [`Sink::open`] gives a [`Writer`], which is a good consumer state:
//!
//! ```
//! use gangline::sink::{self, JsonLines, Sink, Writer, Written};
//! use gangline::{ConsumerContext, OrderedRunner, ProducerContext, Result, Runner};
//!
//! struct Lengths {
//!     sink: Sink<JsonLines>,
//! }
//!
//! impl Runner for Lengths {
//!     type Input = String;
//!     type Output = (String, usize);
//!     type ProducerState = ();
//!     type ConsumerState = Writer<JsonLines>;
//!     type Summary = Written;
//!
//!     fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
//!         Ok(())
//!     }
//!     fn producer_work(&self, _: &ProducerContext<'_>, (): &mut (), text: String) -> Result<(String, usize)> {
//!         let length = text.len();
//!         Ok((text, length))
//!     }
//!     fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Writer<JsonLines>> {
//!         Ok(self.sink.open(cx)?)
//!     }
//!     fn consumer_work(
//!         &self,
//!         cx: &ConsumerContext<'_>,
//!         file: &mut Writer<JsonLines>,
//!         output: (String, usize),
//!     ) -> Result<()> {
//!         file.write(cx, &output)
//!     }
//!     // Needed with a journal: called before each commit.
//!     fn consumer_flush(&self, _: &ConsumerContext<'_>, file: &mut Writer<JsonLines>) -> Result<()> {
//!         Ok(file.flush()?)
//!     }
//!     fn consumer_end(&self, _: &ConsumerContext<'_>, file: Writer<JsonLines>) -> Result<Written> {
//!         Ok(file.finish()?)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! # let path = std::env::temp_dir().join(format!("gangline-lengths-{}", std::process::id()));
//! let runner = Lengths { sink: sink::jsonl(&path) };
//! OrderedRunner::new(runner, 2)?.run(["one".to_owned(), "three".to_owned()])?;
//! assert_eq!(std::fs::read_to_string(&path)?, "[\"one\",3]\n[\"three\",5]\n");
//! # std::fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! ```
//!
//! The writer keeps the length of the file in the run's [note](ConsumerContext::note). A consumer with a note
//! of its own, or with two files, uses [`Sink::open_at`], [`Writer::append`] and [`Writer::length`] instead.
//!
//! # A file or a folder for each item
//!
//! Where each item has a file or folder of its own, a producer writes it with [`atomic_file`] or [`atomic_dir`]:
//! it is there whole, or not at all.

mod atomic;
mod disk;
mod error;
mod file;
mod finite;
mod format;
mod home_file;
mod runner;

use std::path::PathBuf;

#[cfg(doc)]
use crate::runner::ConsumerContext;

pub use self::atomic::{AtomicDir, AtomicFile, atomic_dir, atomic_file};
pub use self::error::SinkError;
pub use self::file::{Sink, Writer, Written};
#[cfg(feature = "csv")]
#[cfg_attr(docsrs, doc(cfg(feature = "csv")))]
pub use self::format::Csv;
pub use self::format::{Format, JsonLines, Lines, NullableJsonLines};
pub use self::runner::ToSink;

/// Writes each output as a line of text, with its [`Display`](std::fmt::Display).
///
/// An output with a line break in its text is an error: write such texts with [`jsonl`]. The
/// [module](crate::sink) has an example.
///
/// ```
/// use gangline::{OrderedRunner, map, sink};
///
/// # let path = std::env::temp_dir().join(format!("gangline-lines-{}", std::process::id()));
/// let squares = map(|_| Ok(()), |_, (), x: u64| Ok(x * x)).sink(sink::lines(&path));
/// OrderedRunner::new(squares, 2)?.run(0..4)?;
/// assert_eq!(std::fs::read_to_string(&path)?, "0\n1\n4\n9\n");
/// # std::fs::remove_file(&path)?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub fn lines(path: impl Into<PathBuf>) -> Sink<Lines> {
    Sink::new(path, Lines)
}

/// Writes each output as a line of JSON, with its [`Serialize`](serde::Serialize).
///
/// JSON has no NaN and no infinities. An output with one is an error that names it, unless
/// [`non_finite_as_null`](Sink::non_finite_as_null) is called.
///
/// ```
/// use gangline::{OrderedRunner, map, sink};
///
/// # fn main() -> gangline::Result<()> {
/// # let path = std::env::temp_dir().join(format!("gangline-jsonl-{}", std::process::id()));
/// let lengths = map(|_| Ok(()), |_, (), text: &str| Ok((text.to_owned(), text.len())));
/// OrderedRunner::new(lengths.sink(sink::jsonl(&path)), 2)?.run(["one", "three"])?;
/// assert_eq!(std::fs::read_to_string(&path)?, "[\"one\",3]\n[\"three\",5]\n");
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
pub fn jsonl(path: impl Into<PathBuf>) -> Sink<JsonLines> {
    Sink::new(path, JsonLines)
}

/// Writes a table: `header`, then a row for each output, with its [`Serialize`](serde::Serialize).
///
/// A row is a struct, a tuple, or a list of values. One that has not as many fields as the header is an
/// error. If the header is empty, none is written, and rows may have any number of fields. Fields are quoted
/// where that is needed, and rows end with `\n`.
///
/// ```
/// use gangline::{OrderedRunner, map, sink};
///
/// # fn main() -> gangline::Result<()> {
/// # let path = std::env::temp_dir().join(format!("gangline-csv-{}", std::process::id()));
/// let lengths = map(|_| Ok(()), |_, (), text: &str| Ok((text.to_owned(), text.len())));
/// let table = sink::csv(&path, ["text", "length"]);
/// OrderedRunner::new(lengths.sink(table), 2)?.run(["one", "two, three"])?;
/// assert_eq!(std::fs::read_to_string(&path)?, "text,length\none,3\n\"two, three\",10\n");
///
/// let lengths = map(|_| Ok(()), |_, (), text: &str| Ok(text.len()));
/// let table = sink::csv(&path, ["text", "length"]);
/// let error = OrderedRunner::new(lengths.sink(table), 2)?.run(["one"]).unwrap_err();
/// assert!(format!("{error:#}").ends_with("fields of the output: 1, columns of the header: 2"));
/// # std::fs::remove_file(&path)?;
/// # Ok(())
/// # }
/// ```
#[cfg(feature = "csv")]
#[cfg_attr(docsrs, doc(cfg(feature = "csv")))]
pub fn csv(
    path: impl Into<PathBuf>,
    header: impl IntoIterator<Item = impl Into<String>>,
) -> Sink<Csv> {
    let format = Csv::new(header.into_iter().map(Into::into).collect());
    let header = format.header().to_vec();
    Sink::new(path, format).header(header)
}

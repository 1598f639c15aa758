//! The file that a run writes.

use std::fmt;
use std::fs::{self, File, TryLockError};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::atomic::{AtomicFile, atomic_file};
use super::disk::sync_folder_of;
use super::error::{SinkError, clip};
use super::format::{Format, JsonLines, NullableJsonLines};
use super::home_file::HomeFile;
use crate::base::absolute;
use crate::error::Result;
use crate::runner::ConsumerContext;

/// A file that outputs are written to, and the format: made by [`lines`](crate::sink::lines),
/// [`jsonl`](crate::sink::jsonl) and `csv`. Nothing is opened before a run.
///
/// See the [module](crate::sink) for what the file holds, and when.
pub struct Sink<F> {
    path: PathBuf,
    header: Arc<[u8]>,
    format: Arc<F>,
}

/// The open file of one run: see [`Sink::open`].
pub struct Writer<F> {
    format: Arc<F>,
    path: PathBuf,
    out: Out,
    /// The length of the file with all that was written.
    length: u64,
    outputs: u64,
    /// What one output is encoded into, before any of it reaches the file.
    encoded: Vec<u8>,
    health: Health,
}

/// What a run wrote: the summary of a runner with a [`Sink`].
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Written {
    /// The number of outputs written by this run; those of earlier runs that it went on with are not counted.
    pub outputs: u64,
    /// The length of the file, in bytes.
    pub length: u64,
    /// The file.
    pub path: PathBuf,
}

enum Out {
    /// The file of a run without a journal. It gets its name at the end.
    Aside(AtomicFile),
    InPlace(Locked),
}

/// A file that no other run writes to.
struct Locked(HomeFile);

/// Whether the length is that of what the file holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Health {
    Sound,
    /// A write failed, and part of it may be in the file.
    Broken,
}

impl Sink<JsonLines> {
    /// Writes NaN and infinities as `null`. Without this call they are errors, since a reader could not tell them from
    /// a missing value.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map, sink};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("gangline-nan-{}", std::process::id()));
    /// let roots = || map(|_| Ok(()), |_, (), x: f64| Ok((x, x.sqrt())));
    /// let error = OrderedRunner::new(roots().sink(sink::jsonl(&path)), 2)?.run([4.0, -1.0]).unwrap_err();
    /// assert_eq!(error.item(), Some(1));
    ///
    /// let file = sink::jsonl(&path).non_finite_as_null();
    /// OrderedRunner::new(roots().sink(file), 2)?.run([4.0, -1.0])?;
    /// assert_eq!(std::fs::read_to_string(&path)?, "[4.0,2.0]\n[-1.0,null]\n");
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn non_finite_as_null(self) -> Sink<NullableJsonLines> {
        let Sink { path, header, .. } = self;
        Sink { path, header, format: Arc::new(NullableJsonLines) }
    }
}

impl<F> Sink<F> {
    /// Makes a sink with a [`Format`] of your own, which has an example.
    ///
    /// A relative path is looked up in the current directory of this call.
    pub fn new(path: impl Into<PathBuf>, format: F) -> Self {
        Sink { path: absolute(path.into()), header: Arc::new([]), format: Arc::new(format) }
    }

    /// Sets what the file begins with. The default is nothing, or the header of a table.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map, sink};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("gangline-header-{}", std::process::id()));
    /// let squares = map(|_| Ok(()), |_, (), x: u64| Ok(x * x));
    /// let file = sink::lines(&path).header("# squares\n");
    /// OrderedRunner::new(squares.sink(file), 2)?.run([3])?;
    /// assert_eq!(std::fs::read_to_string(&path)?, "# squares\n9\n");
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    pub fn header(mut self, header: impl Into<Vec<u8>>) -> Self {
        self.header = header.into().into();
        self
    }

    /// Returns the path of the file, from the root.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Opens the file for one run: for [`consumer_init`](crate::Runner::consumer_init).
    ///
    /// With a journal, the file is cut to the length in its last [note](ConsumerContext::last_note), and goes
    /// on from there. Without one, a new file is begun, which replaces the old one when it is
    /// [finished](Writer::finish).
    ///
    /// # Errors
    ///
    /// [`SinkError`]: if the file cannot be opened, is in use by another run, or is not the file of the
    /// journal.
    pub fn open(&self, cx: &ConsumerContext<'_>) -> Result<Writer<F>, SinkError> {
        if cx.has_journal() {
            return self.open_at(noted(cx.last_note())?);
        }
        let mut file = atomic_file(&self.path)?;
        let header = &*self.header;
        file.write_all(header).map_err(SinkError::io("written", &self.path))?;
        Ok(self.writer(Out::Aside(file), header.len() as u64))
    }

    /// Opens the file, cuts it to `length` bytes, and goes on from there; 0 begins it anew. For consumers that
    /// keep the length in a [note](ConsumerContext::note) of their own.
    ///
    /// # Errors
    ///
    /// The errors of [`open`](Sink::open).
    pub fn open_at(&self, length: u64) -> Result<Writer<F>, SinkError> {
        let path = &self.path;
        let old = fs::metadata(path).ok();
        // Checked before it is opened: opening a pipe would wait for its reader.
        if old.as_ref().is_some_and(|old| !old.is_file()) {
            return Err(SinkError::NotAFile { path: path.clone() });
        }
        let opened = File::options().read(true).write(true).create(true).truncate(false).open(path);
        let mut file = Locked::new(opened.map_err(SinkError::io("opened", path))?, path)?;
        if old.is_none() {
            sync_folder_of(path)?;
        }
        let length = cut(file.0.get_mut(), path, length, &self.header)?;
        Ok(self.writer(Out::InPlace(file), length))
    }

    fn writer(&self, out: Out, length: u64) -> Writer<F> {
        Writer {
            format: self.format.clone(),
            path: self.path.clone(),
            out,
            length,
            outputs: 0,
            encoded: Vec::new(),
            health: Health::Sound,
        }
    }
}

impl<F> Writer<F> {
    /// Writes an output, and [notes](ConsumerContext::note) the length of the file: for
    /// [`consumer_work`](crate::Runner::consumer_work).
    ///
    /// # Errors
    ///
    /// The errors of [`append`](Writer::append).
    pub fn write<O: ?Sized>(&mut self, cx: &ConsumerContext<'_>, output: &O) -> Result<()>
    where
        F: Format<O>,
    {
        self.append(output)?;
        match cx.has_journal() {
            true => cx.note(self.length.to_string()),
            false => Ok(()),
        }
    }

    /// Writes an output, and leaves the note to the caller: see [`length`](Writer::length).
    ///
    /// # Errors
    ///
    /// If the output cannot be written in this format: then the file is as before. [`SinkError::Io`] if it
    /// cannot be written: then every later call fails too.
    pub fn append<O: ?Sized>(&mut self, output: &O) -> Result<()>
    where
        F: Format<O>,
    {
        self.check()?;
        self.encoded.clear();
        self.format.encode(output, &mut self.encoded)?;
        let written = match &mut self.out {
            Out::Aside(file) => file.write_all(&self.encoded),
            Out::InPlace(file) => file.0.write_all(&self.encoded),
        };
        self.broken_by(written, "written")?;
        self.length += self.encoded.len() as u64;
        self.outputs += 1;
        Ok(())
    }

    /// Returns the length of the file with all outputs so far, in bytes.
    pub fn length(&self) -> u64 {
        self.length
    }

    /// Puts what was written on the disk: for [`consumer_flush`](crate::Runner::consumer_flush). Without a
    /// journal, [`finish`](Writer::finish) does that.
    ///
    /// # Errors
    ///
    /// [`SinkError::Io`], as every later call then.
    pub fn flush(&mut self) -> Result<(), SinkError> {
        self.check()?;
        let Out::InPlace(file) = &mut self.out else { return Ok(()) };
        let synced = file.0.flush().and_then(|()| file.0.get_ref().sync_data());
        self.broken_by(synced, "synced")
    }

    /// Completes the file: for [`consumer_end`](crate::Runner::consumer_end). Without a journal it gets its
    /// name only now.
    ///
    /// # Errors
    ///
    /// [`SinkError::Io`] if it cannot be written, synced or renamed.
    pub fn finish(mut self) -> Result<Written, SinkError> {
        self.flush()?;
        if let Out::Aside(file) = self.out {
            file.commit()?;
        }
        Ok(Written { outputs: self.outputs, length: self.length, path: self.path })
    }

    fn check(&self) -> Result<(), SinkError> {
        match self.health {
            Health::Sound => Ok(()),
            Health::Broken => Err(SinkError::Broken { path: self.path.clone() }),
        }
    }

    fn broken_by(
        &mut self,
        result: std::io::Result<()>,
        operation: &'static str,
    ) -> Result<(), SinkError> {
        result.map_err(|source| {
            self.health = Health::Broken;
            SinkError::io(operation, &self.path)(source)
        })
    }
}

impl Locked {
    fn new(file: File, path: &Path) -> Result<Self, SinkError> {
        match file.try_lock() {
            Ok(()) => Ok(Locked(HomeFile::new(BufWriter::with_capacity(1 << 16, file)))),
            Err(TryLockError::WouldBlock) => Err(SinkError::InUse { path: path.to_owned() }),
            Err(TryLockError::Error(source)) => Err(SinkError::io("locked", path)(source)),
        }
    }
}

/// Unlocks it, since closing is not enough: a child process that another thread starts may have it open too.
impl Drop for Locked {
    fn drop(&mut self) {
        // A forked child shares the lock with its parent.
        if !self.0.is_ours() {
            return;
        }
        // Errors do not matter: what no commit knows of is cut off by the next run.
        let _ = self.0.flush();
        let _ = self.0.get_ref().unlock();
    }
}

/// Reads the length in a note.
fn noted(note: Option<&[u8]>) -> Result<u64, SinkError> {
    let Some(note) = note else { return Ok(0) };
    let text = String::from_utf8_lossy(note);
    text.parse().map_err(|_| SinkError::Note { note: clip(&text) })
}

/// Cuts off what is behind `length`, and writes the header of a new file. Returns the length then.
fn cut(file: &mut File, path: &Path, length: u64, header: &[u8]) -> Result<u64, SinkError> {
    let found = file.metadata().map_err(SinkError::io("read", path))?.len();
    if found < length {
        return Err(SinkError::TooShort { path: path.to_owned(), length: found, noted: length });
    }
    if length > 0 && !begins_with(file, header).map_err(SinkError::io("read", path))? {
        let header = String::from_utf8_lossy(header).trim_end().to_owned();
        return Err(SinkError::Header { path: path.to_owned(), header: clip(&header) });
    }
    let mut write = || {
        file.set_len(length)?;
        file.seek(SeekFrom::Start(length))?;
        if length == 0 { file.write_all(header) } else { Ok(()) }
    };
    write().map_err(SinkError::io("written", path))?;
    Ok(length.max(header.len() as u64))
}

fn begins_with(file: &mut File, header: &[u8]) -> std::io::Result<bool> {
    let mut begin = Vec::new();
    file.take(header.len() as u64).read_to_end(&mut begin)?;
    Ok(begin == header)
}

impl<F> Clone for Sink<F> {
    fn clone(&self) -> Self {
        Sink { path: self.path.clone(), header: self.header.clone(), format: self.format.clone() }
    }
}

impl<F> fmt::Debug for Sink<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sink").field("path", &self.path).finish_non_exhaustive()
    }
}

impl<F> fmt::Debug for Writer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut f = f.debug_struct("Writer");
        f.field("path", &self.path).field("length", &self.length).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::sink::lines;

    #[test]
    fn after_a_failed_write_nothing_more_is_written_or_committed() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("out");
        let mut writer = lines(&path).open_at(0).unwrap();
        writer.append("good").unwrap();
        writer.flush().unwrap();
        let read_only = File::open(&path).unwrap();
        writer.out = Out::InPlace(Locked(HomeFile::new(BufWriter::with_capacity(0, read_only))));
        let error = writer.append("lost").unwrap_err();
        let error = error.downcast_ref().unwrap();
        assert!(matches!(error, SinkError::Io { operation: "written", .. }), "{error}");
        assert_eq!(writer.length(), 5);

        let good = File::options().append(true).open(&path).unwrap();
        writer.out = Out::InPlace(Locked(HomeFile::new(BufWriter::new(good))));
        let error = writer.append("more").unwrap_err();
        assert!(matches!(error.downcast_ref().unwrap(), SinkError::Broken { .. }), "{error}");
        assert!(matches!(writer.flush().unwrap_err(), SinkError::Broken { .. }));
        assert!(matches!(writer.finish().unwrap_err(), SinkError::Broken { .. }));
        assert_eq!(fs::read_to_string(&path).unwrap(), "good\n");
    }
}

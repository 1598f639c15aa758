//! What a worker prints: lines for a function of the user or for `tracing`, and the end for errors.

use std::fmt;
use std::io::{ErrorKind, PipeReader, Read};
use std::sync::Arc;

use crate::base::panic::catch;

/// The number of bytes that are kept for an error.
const KEPT: usize = 4 << 10;
/// A line that is longer is handed on in pieces.
const LONGEST_LINE: usize = 16 << 10;
/// The lines of a Rust backtrace that are kept for an error: with more of them, the message of the
/// panic, which stands before them, would not be among the last bytes.
const BACKTRACE_LINES: usize = 12;

/// Where the lines of workers go.
#[derive(Clone, Default)]
pub(super) enum PrintSink {
    /// Events of `tracing`.
    #[default]
    Log,
    Function(Arc<PrintFunction>),
}

/// Takes the number of a producer, and what its process has printed.
type PrintFunction = dyn Fn(usize, &[u8]) + Send + Sync;

/// The reading end of a worker's standard output and error.
#[derive(Debug)]
pub(super) struct PrintedPipe {
    pub(super) pipe: PipeReader,
    producer: usize,
    sink: PrintSink,
    is_open: bool,
    lines: OutputLines,
}

/// Cuts lines out of bytes, and keeps the end.
#[derive(Debug, Default)]
struct OutputLines {
    line: Vec<u8>,
    tail: Vec<u8>,
    /// The lines of the backtrace that is being printed, so far.
    backtrace_lines: Option<usize>,
}

impl PrintSink {
    /// Hands on a message of this library about a worker, where the worker's lines go.
    pub(super) fn warn(&self, producer: usize, text: &str) {
        match self {
            PrintSink::Log => tracing::warn!(producer, "{text}"),
            PrintSink::Function(_) => self.take(producer, format!("gangline: {text}\n").as_bytes()),
        }
    }

    pub(super) fn take(&self, producer: usize, line: &[u8]) {
        match self {
            PrintSink::Log => {
                let line = String::from_utf8_lossy(line.strip_suffix(b"\n").unwrap_or(line));
                tracing::info!(target: "gangline::worker", producer, "{line}");
            }
            PrintSink::Function(function) => {
                if let Err(message) = catch(|| function(producer, line)) {
                    tracing::warn!(producer, %message, "the function for printed lines panicked");
                }
            }
        }
    }
}

impl fmt::Debug for PrintSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PrintSink::Log => "Log",
            PrintSink::Function(_) => "Function",
        })
    }
}

impl PrintedPipe {
    /// `pipe` does not block.
    pub(super) fn new(pipe: PipeReader, producer: usize, sink: PrintSink) -> Self {
        let lines = OutputLines::default();
        PrintedPipe { pipe, producer, sink, is_open: true, lines }
    }

    /// Whether more may come.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Hands on what is there now. A process that prints on does not keep it.
    pub(super) fn read(&mut self) {
        if !self.is_open {
            return;
        }
        let there = rustix::io::ioctl_fionread(&self.pipe).unwrap_or(0);
        let mut left = usize::try_from(there).unwrap_or(usize::MAX);
        let mut bytes = [0; 4096];
        loop {
            match self.pipe.read(&mut bytes) {
                Ok(0) => self.is_open = false,
                Ok(length) => {
                    left = left.saturating_sub(length);
                    let (producer, sink) = (self.producer, &self.sink);
                    self.lines.add(&bytes[..length], &|line| sink.take(producer, line));
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
            if left == 0 || !self.is_open {
                break;
            }
        }
        if !self.is_open {
            self.finish_line();
        }
    }

    /// Hands a function what was printed before an answer that has come, also a line without its end.
    pub(super) fn read_before_answer(&mut self) {
        // A log is for whole lines, and may have them later.
        if matches!(self.sink, PrintSink::Function(_)) {
            if rustix::io::ioctl_fionread(&self.pipe).is_ok_and(|there| there > 0) {
                self.read();
            }
            self.finish_line();
        }
    }

    /// Hands on the last of what was printed by a process that has ended.
    pub(super) fn read_rest(&mut self) {
        self.read();
        self.finish_line();
    }

    fn finish_line(&mut self) {
        let (producer, sink) = (self.producer, &self.sink);
        self.lines.finish(&|line| sink.take(producer, line));
    }

    /// The last of what was printed, at most 4 KiB.
    pub(super) fn tail(&self) -> String {
        String::from_utf8_lossy(&self.lines.tail).into_owned()
    }
}

impl OutputLines {
    /// Calls `sink` with each whole line, with its end.
    fn add(&mut self, bytes: &[u8], sink: &dyn Fn(&[u8])) {
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if piece.ends_with(b"\n") || self.line.len() >= LONGEST_LINE {
                self.finish(sink);
            }
        }
    }

    fn finish(&mut self, sink: &dyn Fn(&[u8])) {
        if !self.line.is_empty() {
            sink(&self.line);
            self.keep();
            self.line.clear();
        }
    }

    fn keep(&mut self) {
        self.backtrace_lines = match self.backtrace_lines {
            _ if self.line.starts_with(b"stack backtrace:") => Some(0),
            Some(lines) if self.line.starts_with(b" ") => Some(lines + 1),
            _ => None,
        };
        if self.backtrace_lines.is_none_or(|lines| lines <= BACKTRACE_LINES) {
            self.tail.extend_from_slice(&self.line);
            let surplus = self.tail.len().saturating_sub(KEPT);
            self.tail.drain(..surplus);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use super::*;

    #[test]
    fn lines_are_cut_however_they_arrive() {
        let logged = RefCell::new(vec![]);
        let log = |line: &[u8]| logged.borrow_mut().push(String::from_utf8(line.into()).unwrap());
        let mut lines = OutputLines::default();
        for piece in ["one\ntw", "o", "\n\nthree"] {
            lines.add(piece.as_bytes(), &log);
        }
        assert_eq!(*logged.borrow(), ["one\n", "two\n", "\n"]);
        lines.finish(&log);
        assert_eq!(logged.borrow().last().unwrap(), "three");
        assert_eq!(lines.tail, b"one\ntwo\n\nthree");
    }

    #[test]
    fn what_is_kept_has_a_bound() {
        let mut lines = OutputLines::default();
        for _ in 0..100 {
            lines.add(&[b'x'; 1000], &|_| ());
        }
        lines.add(b"the end", &|_| ());
        lines.finish(&|_| ());
        assert_eq!(lines.tail.len(), KEPT);
        assert!(lines.tail.ends_with(b"xthe end"));
        assert!(lines.line.len() < LONGEST_LINE);
    }

    #[test]
    fn a_backtrace_does_not_push_out_the_message() {
        let mut lines = OutputLines::default();
        lines.add(b"it broke\nstack backtrace:\n", &|_| ());
        (0..200).for_each(|n| lines.add(format!("  {n}: a_function\n").as_bytes(), &|_| ()));
        lines.add(b"note: some details are omitted\n", &|_| ());
        let kept = String::from_utf8_lossy(&lines.tail);
        assert!(kept.starts_with("it broke\nstack backtrace:\n  0: a_function\n"), "{kept}");
        assert!(kept.ends_with("  11: a_function\nnote: some details are omitted\n"), "{kept}");
    }
}

//! What a worker prints: lines for `tracing`, and the end for errors.

use std::io::{PipeReader, Read};

/// The number of bytes that are kept for an error.
const KEPT: usize = 4 << 10;
/// A line that is longer is logged in pieces.
const LONGEST_LINE: usize = 16 << 10;

/// The reading end of a worker's standard output and error.
#[derive(Debug)]
pub(super) struct PrintedPipe {
    pub(super) pipe: PipeReader,
    producer: usize,
    is_open: bool,
    lines: OutputLines,
}

/// Cuts lines out of bytes, and keeps the end.
#[derive(Debug, Default)]
struct OutputLines {
    line: Vec<u8>,
    tail: Vec<u8>,
}

impl PrintedPipe {
    /// `pipe` does not block.
    pub(super) fn new(pipe: PipeReader, producer: usize) -> Self {
        PrintedPipe { pipe, producer, is_open: true, lines: OutputLines::default() }
    }

    /// Whether more may come.
    pub(super) fn is_open(&self) -> bool {
        self.is_open
    }

    /// Logs what is there now.
    pub(super) fn read(&mut self) {
        let producer = self.producer;
        let log = |line: &[u8]| {
            let line = String::from_utf8_lossy(line);
            tracing::info!(target: "gangline::worker", producer, "{line}");
        };
        let mut bytes = [0; 4096];
        while self.is_open {
            match self.pipe.read(&mut bytes) {
                Ok(0) => self.is_open = false,
                Ok(length) => self.lines.add(&bytes[..length], &log),
                Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => break,
                Err(_) => self.is_open = false,
            }
        }
        if !self.is_open {
            self.lines.finish(&log);
        }
    }

    /// The last of what was printed, at most 4 KiB.
    pub(super) fn tail(&self) -> String {
        String::from_utf8_lossy(&self.lines.tail).into_owned()
    }
}

impl OutputLines {
    fn add(&mut self, bytes: &[u8], log: &dyn Fn(&[u8])) {
        self.tail.extend_from_slice(bytes);
        let surplus = self.tail.len().saturating_sub(KEPT);
        self.tail.drain(..surplus);
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if let Some(line) = self.line.strip_suffix(b"\n") {
                log(line);
                self.line.clear();
            } else if self.line.len() >= LONGEST_LINE {
                self.finish(log);
            }
        }
    }

    fn finish(&mut self, log: &dyn Fn(&[u8])) {
        if !self.line.is_empty() {
            log(&self.line);
            self.line.clear();
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
        assert_eq!(*logged.borrow(), ["one", "two", ""]);
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
        assert_eq!(lines.tail.len(), KEPT);
        assert!(lines.tail.ends_with(b"xthe end"));
        assert!(lines.line.len() < LONGEST_LINE);
    }
}

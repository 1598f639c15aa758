//! Writes the outputs of jobs.

use std::io::{self, IsTerminal, Write};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::execute::process::OutputStream;
use crate::output::capture::Captured;
use crate::output::message_queue::MessageQueue;
use crate::output::stdio;
use crate::output::tagged::Tagged;

/// Standard output and standard error, one job at a time.
#[derive(Debug)]
pub(crate) struct Terminal {
    /// Held during a write, so that outputs are never mixed.
    turn: Mutex<()>,
    stdout: Control,
    stderr: Control,
    lines: ProgressLines,
    failures: FailureMessages,
    /// Set if no thread waits for the reader of standard error.
    queue: Option<Arc<MessageQueue>>,
}

/// Whether messages about jobs that failed are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FailureMessages {
    Shown,
    Quiet,
}

/// The treatment of control characters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Control {
    /// They are escaped, since a terminal would obey them.
    Escaped,
    AsIs,
}

/// Whether progress lines are on the terminal and must be suspended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressLines {
    Shown,
    None,
}

/// The treatment of control characters on a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OnTerminal {
    Escape,
    Raw,
}

impl Terminal {
    pub(crate) fn new(
        on_terminal: OnTerminal,
        lines: ProgressLines,
        failures: FailureMessages,
    ) -> Terminal {
        let control = |is_terminal| match (on_terminal, is_terminal) {
            (OnTerminal::Escape, true) => Control::Escaped,
            _ => Control::AsIs,
        };
        Terminal {
            turn: Mutex::new(()),
            stdout: control(io::stdout().is_terminal()),
            stderr: control(io::stderr().is_terminal()),
            lines,
            failures,
            queue: None,
        }
    }

    /// Writes to standard error on a thread of its own, so that a reader that stops reading blocks no other.
    pub(crate) fn with_queue(self) -> io::Result<Terminal> {
        Ok(Terminal { queue: Some(MessageQueue::start(stdio::stderr())?), ..self })
    }

    /// Waits until all messages in the queue are written, at most for this time.
    pub(crate) fn finish(&self, most: Duration) {
        if let Some(queue) = &self.queue {
            queue.finish(most);
        }
    }

    /// Writes all output of a job, with the tag before each line.
    pub(crate) fn write_captured(
        &self,
        tag: Option<&[u8]>,
        stdout: &Captured,
        stderr: &Captured,
    ) -> io::Result<()> {
        if stdout.is_empty() && stderr.is_empty() {
            return Ok(());
        }
        let _turn = self.turn();
        self.on_screen(|| {
            self.write_to(OutputStream::Stdout, |writer| {
                stdout.write_to(&mut Tagged::new(tag, writer))
            })?;
            self.write_to(OutputStream::Stderr, |writer| {
                stderr.write_to(&mut Tagged::new(tag, writer))
            })
        })
    }

    /// Writes whole lines of a job's output, with the tag before each.
    pub(crate) fn write(
        &self,
        tag: Option<&[u8]>,
        channel: OutputStream,
        bytes: &[u8],
    ) -> io::Result<()> {
        let _turn = self.turn();
        self.on_screen(|| {
            self.write_to(channel, |writer| Tagged::new(tag, writer).write_all(bytes))
        })
    }

    /// Prints a message of the program.
    pub(crate) fn tell(&self, line: &str) {
        // If standard error is gone, no other way to report remains.
        let _ = self.write(None, OutputStream::Stderr, format!("gangline: {line}\n").as_bytes());
    }

    /// Prints a message about jobs that failed, which records and logs have too.
    pub(crate) fn tell_failure(&self, line: &str) {
        if self.failures == FailureMessages::Shown {
            self.tell(line);
        }
    }

    fn on_screen(&self, write: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
        match self.lines {
            ProgressLines::Shown => gangline::Progress::suspend(write),
            ProgressLines::None => write(),
        }
    }

    fn write_to(
        &self,
        channel: OutputStream,
        write: impl FnOnce(&mut dyn Write) -> io::Result<()>,
    ) -> io::Result<()> {
        let (control, mut stream) = match channel {
            OutputStream::Stdout => (self.stdout, stdio::stdout()),
            OutputStream::Stderr => (self.stderr, stdio::stderr()),
        };
        let mut queue = self.queue.as_deref();
        let writer: &mut dyn Write = match (channel, &mut queue) {
            (OutputStream::Stderr, Some(queue)) => queue,
            _ => &mut stream,
        };
        match control {
            Control::AsIs => write(writer)?,
            Control::Escaped => {
                let mut escaped = Escape::new(&mut *writer);
                write(&mut escaped)?;
                escaped.finish(self.lines)?;
            }
        }
        writer.flush()
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().expect("nothing panics with the lock held")
    }
}

/// Escapes control characters, and bytes that are not UTF-8; line ends and tabs stay.
pub(crate) struct Escape<W: Write> {
    writer: W,
    /// The start of an incomplete character.
    unfinished: Vec<u8>,
    /// The last byte written.
    last: Option<u8>,
}

impl<W: Write> Escape<W> {
    fn new(writer: W) -> Self {
        Escape { writer, unfinished: Vec::new(), last: None }
    }

    /// Leftover bytes are not a character. Ends the line, since progress lines begin on a new one.
    fn finish(mut self, lines: ProgressLines) -> io::Result<()> {
        let rest = std::mem::take(&mut self.unfinished);
        write!(self.writer, "{}", rest.escape_ascii())?;
        match (lines, self.last) {
            (ProgressLines::Shown, Some(last)) if last != b'\n' => self.writer.write_all(b"\n"),
            _ => Ok(()),
        }
    }
}

impl<W: Write> Write for Escape<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.last = bytes.last().copied().or(self.last);
        let mut text = std::mem::take(&mut self.unfinished);
        text.extend_from_slice(bytes);
        for chunk in text.utf8_chunks() {
            self.writer.write_all(shown(chunk.valid()).as_bytes())?;
            let invalid = chunk.invalid();
            let is_last = text.ends_with(invalid) && is_beginning(invalid);
            match is_last && std::ptr::eq(invalid.as_ptr_range().end, text.as_ptr_range().end) {
                true => self.unfinished = invalid.to_vec(),
                false => write!(self.writer, "{}", invalid.escape_ascii())?,
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

fn shown(text: &str) -> String {
    let mut shown = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '\n' | '\t' => shown.push(character),
            character if character.is_control() => shown.extend(character.escape_default()),
            character => shown.push(character),
        }
    }
    shown
}

/// Whether more bytes could complete a character.
fn is_beginning(bytes: &[u8]) -> bool {
    matches!(str::from_utf8(bytes), Err(error) if error.error_len().is_none())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&[u8]], shown: &str) {
        let mut written = Vec::new();
        let mut escape = Escape::new(&mut written);
        pieces.iter().for_each(|piece| escape.write_all(piece).unwrap());
        escape.finish(ProgressLines::None).unwrap();
        assert_eq!(String::from_utf8(written).unwrap(), shown);
    }

    #[test]
    fn a_terminal_is_shown_what_it_would_do() {
        check(&[b"a\x1b[31mb\r\n\tc\x07"], "a\\u{1b}[31mb\\r\n\tc\\u{7}");
        check(&["\u{9b}31m".as_bytes()], "\\u{9b}31m");
    }

    #[test]
    fn a_character_in_two_pieces_is_one() {
        check(&[b"\xc3", b"\xa4\xe2\x82", b"\xac"], "ä€");
        check(&[b"\xc3x\xff", b"\xe2\x82"], "\\xc3x\\xff\\xe2\\x82");
    }
}

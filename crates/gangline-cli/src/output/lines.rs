//! A stream in whole lines.

use std::io;

/// The start of an incomplete line.
#[derive(Debug, Default)]
pub(crate) struct LineBuffer(Vec<u8>);

/// Longer lines are passed on in pieces, since a program may never print a line end.
const LONGEST: usize = 1 << 20;

impl LineBuffer {
    /// Passes all complete lines to `write` at once.
    pub(crate) fn push(
        &mut self,
        bytes: &[u8],
        write: impl FnOnce(&[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        let end = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |newline| newline + 1);
        let (whole, rest) = bytes.split_at(end);
        if whole.is_empty() && self.0.len() + rest.len() <= LONGEST {
            self.0.extend_from_slice(rest);
            return Ok(());
        }
        let mut lines = std::mem::take(&mut self.0);
        match whole {
            [] => lines.extend_from_slice(rest),
            whole => {
                lines.extend_from_slice(whole);
                self.0 = rest.to_vec();
            }
        }
        write(&lines)
    }

    /// Passes on the rest as a line, so that the output of another job does not continue it.
    pub(crate) fn finish(&mut self, write: impl FnOnce(&[u8]) -> io::Result<()>) -> io::Result<()> {
        let mut line = std::mem::take(&mut self.0);
        if line.is_empty() {
            return Ok(());
        }
        line.push(b'\n');
        write(&line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: &[&str], written: &[&str]) {
        let mut buffer = LineBuffer::default();
        let mut found = Vec::new();
        let mut write = |line: &[u8]| {
            found.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        };
        for piece in pieces {
            buffer.push(piece.as_bytes(), &mut write).unwrap();
        }
        buffer.finish(&mut write).unwrap();
        assert_eq!(found, written);
    }

    #[test]
    fn lines_are_given_whole() {
        check(&["a", "b\nc", "\n"], &["ab\n", "c\n"]);
        check(&["a\nb\nc"], &["a\nb\n", "c\n"]);
        check(&[""], &[]);
    }

    #[test]
    fn a_line_without_end_is_given_in_pieces() {
        let half = "x".repeat(LONGEST / 2 + 1);
        check(&[&half, &half], &[&half.repeat(2), "\n"][..1]);
    }
}

//! A text before each line.

use std::io::{self, Write};

/// Writes the tag and a tab before each line.
pub(crate) struct Tagged<'a> {
    tag: Option<&'a [u8]>,
    writer: &'a mut dyn Write,
    is_at_start: bool,
}

impl<'a> Tagged<'a> {
    pub(crate) fn new(tag: Option<&'a [u8]>, writer: &'a mut dyn Write) -> Tagged<'a> {
        Tagged { tag, writer, is_at_start: true }
    }
}

impl Write for Tagged<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(tag) = self.tag else { return self.writer.write(bytes) };
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            if self.is_at_start {
                self.writer.write_all(tag)?;
                self.writer.write_all(b"\t")?;
            }
            self.writer.write_all(line)?;
            self.is_at_start = line.ends_with(b"\n");
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.writer.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_line_has_the_tag_once() {
        let mut written = Vec::new();
        let mut tagged = Tagged::new(Some(b"x"), &mut written);
        for piece in ["a\nb", "c", "\n", "\n", "d"] {
            tagged.write_all(piece.as_bytes()).unwrap();
        }
        assert_eq!(String::from_utf8(written).unwrap(), "x\ta\nx\tbc\nx\t\nx\td");
    }
}

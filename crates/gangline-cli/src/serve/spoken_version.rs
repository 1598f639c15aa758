//! The version of HTTP that a caller speaks, at the end of the first line of its connection.

/// The end of the first line, as far as it has come.
#[derive(Debug, Default)]
pub(crate) struct SpokenVersion {
    end: Vec<u8>,
    is_whole: bool,
}

/// The longest end that is kept: a space, `HTTP/2.0` and a carriage return.
const LONGEST: usize = 10;

impl SpokenVersion {
    /// Reads further bytes of the connection.
    pub(crate) fn read(&mut self, bytes: &[u8]) {
        if self.is_whole {
            return;
        }
        // Line ends before a request are ignored, as HTTP asks for.
        let blank = bytes.iter().take_while(|&&byte| byte == b'\r' || byte == b'\n').count();
        let bytes = if self.end.is_empty() { &bytes[blank..] } else { bytes };
        let length = bytes.iter().position(|&byte| byte == b'\n');
        self.is_whole = length.is_some();
        self.end.extend_from_slice(&bytes[..length.unwrap_or(bytes.len())]);
        self.end.drain(..self.end.len().saturating_sub(LONGEST));
    }

    /// Whether the line names a version of HTTP with another first number than 1.
    pub(crate) fn is_of_other_version(&self) -> bool {
        let line = self.end.strip_suffix(b"\r").unwrap_or(&self.end);
        let Some((_, [b' ', b'H', b'T', b'T', b'P', b'/', major, b'.', minor])) =
            line.split_last_chunk::<9>()
        else {
            return false;
        };
        self.is_whole && *major != b'1' && major.is_ascii_digit() && minor.is_ascii_digit()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_version_is_that_of_the_spoken_version() {
        for (is_other, text) in [
            (true, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
            (true, "\r\n\nGET / HTTP/3.0\n"),
            (true, "GET /a HTTP/0.9\r\nhost: a"),
            (false, "GET / HTTP/1.1\r\n\r\nGET / HTTP/2.0\r\n\r\n"),
            (false, "GET / HTTP/1.2\r\n"),
            (false, "GET / HTTP/2.0"),
            (false, "GET /HTTP/2.0\r\n"),
            (false, "GET / HTTP/2\r\n"),
            (false, "GET / HTTP/x.0\r\n"),
            (false, "\x16\x03\x01\x02\0\x01\n"),
            (false, ""),
        ] {
            let mut line = SpokenVersion::default();
            line.read(text.as_bytes());
            assert_eq!(line.is_of_other_version(), is_other, "{text:?}");
        }
    }
}

//! Checks the quotes of a table while it is read.
//!
//! The parser of the `csv` crate accepts every text: at the end of the file it closes an open quote by itself, and
//! it appends text behind a closing quote to the field. Both hide a forgotten quote, which swallows rows.

use std::fmt;

/// Where a quote is at fault, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Misquote {
    fault: QuoteFault,
    /// Lines and columns count from 1; columns are in characters.
    line: u64,
    column: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteFault {
    /// The file ended inside quotes that were opened here.
    Unclosed,
    /// Text follows the closing quote of a field; the opening quote stands here.
    TextBehind,
}

/// Tracks the quotes of a text that arrives in pieces.
#[derive(Debug)]
pub(crate) struct Quotes {
    state: QuoteState,
    line: u64,
    column: u64,
    /// The position of the last opening quote.
    opened: (u64, u64),
    after_return: bool,
    /// The number of skipped bytes of a byte order mark; all of them after the first other byte.
    skipped: usize,
    delimiter: u8,
}

pub(crate) const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QuoteState {
    FieldStart,
    Unquoted,
    Quoted,
    /// After a quote inside quotes; it ends the field unless another quote follows.
    QuoteInQuoted,
}

impl Quotes {
    pub(crate) fn new(delimiter: u8) -> Quotes {
        Quotes {
            state: QuoteState::FieldStart,
            line: 1,
            column: 1,
            opened: (1, 1),
            after_return: false,
            skipped: 0,
            delimiter,
        }
    }

    /// Checks the next piece. Returns the fault, and the number of bytes before it.
    pub(crate) fn check(&mut self, piece: &[u8]) -> Result<(), (usize, Misquote)> {
        for (at, &byte) in piece.iter().enumerate() {
            if BYTE_ORDER_MARK.get(self.skipped) == Some(&byte) {
                self.skipped += 1;
                continue;
            }
            self.skipped = BYTE_ORDER_MARK.len();
            self.state = match (self.state, byte) {
                (QuoteState::FieldStart, b'"') => {
                    self.opened = (self.line, self.column);
                    QuoteState::Quoted
                }
                (QuoteState::Quoted, b'"') => QuoteState::QuoteInQuoted,
                (QuoteState::Quoted, _) | (QuoteState::QuoteInQuoted, b'"') => QuoteState::Quoted,
                (_, b'\n' | b'\r') => QuoteState::FieldStart,
                (_, byte) if byte == self.delimiter => QuoteState::FieldStart,
                (QuoteState::QuoteInQuoted, _) => {
                    return Err((at, self.fault(QuoteFault::TextBehind)));
                }
                (QuoteState::FieldStart | QuoteState::Unquoted, _) => QuoteState::Unquoted,
            };
            self.advance(byte);
        }
        Ok(())
    }

    /// Checks the end of the text.
    pub(crate) fn finish(&self) -> Result<(), Misquote> {
        match self.state {
            QuoteState::Quoted => Err(self.fault(QuoteFault::Unclosed)),
            QuoteState::FieldStart | QuoteState::Unquoted | QuoteState::QuoteInQuoted => Ok(()),
        }
    }

    fn fault(&self, fault: QuoteFault) -> Misquote {
        let (line, column) = self.opened;
        Misquote { fault, line, column }
    }

    fn advance(&mut self, byte: u8) {
        let is_continuation = byte & 0b1100_0000 == 0b1000_0000;
        match byte {
            b'\n' if self.after_return => {}
            b'\n' | b'\r' => {
                self.line += 1;
                self.column = 1;
            }
            _ if is_continuation => {}
            _ => self.column += 1,
        }
        self.after_return = byte == b'\r';
    }
}

impl fmt::Display for Misquote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Misquote { fault, line, column } = self;
        match fault {
            QuoteFault::Unclosed => {
                write!(f, "the quote opened at line {line}, column {column} is never closed")?;
            }
            QuoteFault::TextBehind => write!(
                f,
                "text follows the closing quote of the field at line {line}, column {column}"
            )?,
        }
        f.write_str("; a quote inside a quoted field is written twice")
    }
}

impl std::error::Error for Misquote {}

#[cfg(test)]
mod tests {
    use super::*;

    /// The fault found in `text`, whatever pieces it comes in.
    #[track_caller]
    fn check(text: &str, expected: Option<(QuoteFault, u64, u64)>) {
        for size in 1..=text.len().max(1) {
            let mut quotes = Quotes::new(b',');
            let mut pieces = text.as_bytes().chunks(size);
            let found = pieces.find_map(|piece| quotes.check(piece).err());
            let found = found.map(|(_, misquote)| misquote).or_else(|| quotes.finish().err());
            let found = found.map(|found| (found.fault, found.line, found.column));
            assert_eq!(found, expected, "{text:?} in pieces of {size}");
        }
    }

    #[test]
    fn balanced_quotes_pass() {
        for text in ["", "a,b\n1,2", "\"\"", "a\n\"x\"\"y\"\n", "\"1\n2\",3\r\n", "a\"b,c\"\n"] {
            check(text, None);
        }
    }

    #[test]
    fn an_open_quote_is_found_where_it_stands() {
        check("a,b\n1,\"2\n3,4\n", Some((QuoteFault::Unclosed, 2, 3)));
        check("a,b\r\n1,2\r\nü,\"", Some((QuoteFault::Unclosed, 3, 3)));
        check("a\n\"x\"\"", Some((QuoteFault::Unclosed, 2, 1)));
        check("\u{feff}\"a,b", Some((QuoteFault::Unclosed, 1, 1)));
    }

    #[test]
    fn text_behind_a_closing_quote_is_found() {
        check("a,b\n1,\"2\n3,\"4\n5,6\n", Some((QuoteFault::TextBehind, 2, 3)));
        check("\"a\" ,b\n", Some((QuoteFault::TextBehind, 1, 1)));
    }

    #[test]
    fn what_stands_before_a_fault_is_counted() {
        assert_eq!(Quotes::new(b',').check(b"a,\"b\"c").unwrap_err().0, 5);
    }
}

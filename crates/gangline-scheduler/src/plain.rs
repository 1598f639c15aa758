//! Untrusted texts, escaped so that a terminal only displays them.

use std::fmt::{self, Write as _};

/// A text on one line; characters that a terminal would interpret are escaped.
pub struct Plain<'a>(pub &'a str);

/// The same, with its line breaks: messages of panics have several lines.
pub struct PlainLines<'a>(pub &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| write_seen(f, c))
    }
}

impl fmt::Display for PlainLines<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\n' | '\t' => f.write_char(c),
            c => write_seen(f, c),
        })
    }
}

/// Writes a character, or its escape if a terminal would interpret it.
pub fn write_seen(f: &mut impl fmt::Write, c: char) -> fmt::Result {
    match c {
        '\n' | '\r' | '\t' => write!(f, "{}", c.escape_default()),
        c if is_acted_upon(c) => write!(f, "{}", c.escape_unicode()),
        c => f.write_char(c),
    }
}

/// Whether a terminal or a page would interpret this character: control characters, and those that reverse or
/// hide text.
pub fn is_acted_upon(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_terminal_sees_nothing_to_interpret() {
        let text = "\u{1b}[2Jä\n\u{202e}gpj.exe\u{7}\0";
        assert_eq!(Plain(text).to_string(), r"\u{1b}[2Jä\n\u{202e}gpj.exe\u{7}\u{0}");
    }

    #[test]
    fn line_breaks_are_kept() {
        assert_eq!(
            PlainLines("left: 1\n\tright: 2\r\u{1b}").to_string(),
            "left: 1\n\tright: 2\\r\\u{1b}"
        );
    }
}

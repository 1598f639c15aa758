//! Texts of others on one line, written so that a terminal only draws them.

use std::fmt::{self, Write as _};

/// A text on one line, with what a terminal would act upon written out, as the library's errors have it.
pub(crate) struct Plain<'a>(pub(crate) &'a str);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '\n' | '\r' | '\t' => write!(f, "{}", c.escape_default()),
            c if is_acted_upon(c) => write!(f, "{}", c.escape_unicode()),
            c => f.write_char(c),
        })
    }
}

/// The longest beginning of a text that has at most `bytes` bytes.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

/// Control characters, and those that turn or hide the text around them.
fn is_acted_upon(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{feff}')
        || matches!(c, '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}')
        || matches!(c, '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_ends_between_two_characters() {
        assert_eq!(["äöü", "ä", ""].map(|text| beginning(text, 3)), ["ä", "ä", ""]);
        assert_eq!(beginning("äöü", 4), "äö");
    }

    #[test]
    fn a_terminal_sees_nothing_to_act_upon() {
        let text = "\u{1b}[2Jä\n\u{202e}gpj.exe\u{7}\0";
        assert_eq!(Plain(text).to_string(), r"\u{1b}[2Jä\n\u{202e}gpj.exe\u{7}\u{0}");
    }
}

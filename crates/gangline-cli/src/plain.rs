//! Untrusted texts as messages show them.

pub(crate) use gangline_scheduler::plain::Plain;

/// The longest beginning of a text that has at most `bytes` bytes.
pub(crate) fn beginning(text: &str, bytes: usize) -> &str {
    let end = (0..=bytes.min(text.len())).rev().find(|&end| text.is_char_boundary(end));
    &text[..end.unwrap_or(0)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_beginning_ends_between_two_characters() {
        assert_eq!(["äöü", "ä", ""].map(|text| beginning(text, 3)), ["ä", "ä", ""]);
        assert_eq!(beginning("äöü", 4), "äö");
    }
}

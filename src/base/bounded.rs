//! Cuts texts of the user to a length that can be kept for each of thousands of failures.

/// The largest length of a text in bytes, including the note of how much was cut off.
const LONGEST: usize = 8 * 1_024;

/// Room for the note.
const NOTE: usize = 48;

/// Cuts a text between two characters, and says how much was cut off.
pub(crate) fn bounded(mut text: String) -> String {
    if text.len() > LONGEST {
        let most = LONGEST - NOTE;
        let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let cut = text.len() - end;
        text.truncate(end);
        text.push_str(&format!(" ... ({cut} more bytes)"));
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_without_end_is_cut_between_characters() {
        for (character, times) in [("a", 100_000), ("ä", 50_000), ("🦀", 3_000), ("a\n", LONGEST)]
        {
            let text = character.repeat(times);
            let cut = bounded(text.clone());
            assert!((LONGEST - 2 * NOTE..=LONGEST).contains(&cut.len()), "{}", cut.len());
            let (kept, note) = cut.split_once(" ... (").unwrap();
            assert!(text.starts_with(kept));
            assert_eq!(note, format!("{} more bytes)", text.len() - kept.len()));
            assert_eq!(bounded(cut.clone()), cut, "once is enough");
        }
        assert_eq!(bounded("a".repeat(LONGEST)).len(), LONGEST);
    }
}

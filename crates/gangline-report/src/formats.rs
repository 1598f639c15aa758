//! Formats of numbers, times and users' texts in reports.

use std::borrow::Cow;
use std::fmt::{self, Write as _};

use gangline_scheduler::plain::write_seen;
use serde::{Deserialize, Serialize};

use super::vocabulary::Words;
pub(super) use gangline_scheduler::HumanDuration as Time;
pub(super) use gangline_scheduler::plain::Plain;

/// A sentence clips texts of users to this many characters: about two lines.
pub(super) const LONGEST_TEXT: usize = 160;

/// A report keeps this many characters of a text that many of its entries have.
pub(super) const LONGEST_KEPT: usize = 200;

/// The largest length of a text in bytes, including the note of how much was cut off.
const LONGEST: usize = 8 * 1_024;

/// Room for the note.
const NOTE: usize = 48;

/// A text of the user's, escaped for a page; invisible characters are written out.
pub(super) struct Html<'a>(pub(super) &'a str);

/// A number with thousands separators: `12,345`.
pub(super) struct Count(pub(super) u64);

/// A number of bytes: `12.3 MB`.
pub(super) struct Bytes(pub(super) u64);

/// A share from 0 to 1 in per cent: `97 %`.
#[doc(hidden)]
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize)]
pub struct Percent(pub f64);

/// A number with its noun: `1 item`, `2 items`.
pub(super) struct Many(pub(super) u64, pub(super) &'static str);

/// How often: `once`, `2 times`.
pub(super) struct Times(pub(super) u64);

impl fmt::Display for Times {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            1 => f.write_str("once"),
            times => write!(f, "{} times", Count(times)),
        }
    }
}

impl fmt::Display for Html<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|c| match c {
            '&' => f.write_str("&amp;"),
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '"' => f.write_str("&quot;"),
            '\'' => f.write_str("&#39;"),
            c => write_seen(f, c),
        })
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = self.0.to_string();
        for (index, digit) in digits.chars().enumerate() {
            if index > 0 && (digits.len() - index).is_multiple_of(3) {
                f.write_char(',')?;
            }
            f.write_char(digit)?;
        }
        Ok(())
    }
}

impl fmt::Display for Bytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = ["kB", "MB", "GB", "TB", "PB", "EB"];
        let mut bytes = self.0 as f64;
        let Some(unit) = units.into_iter().find(|_| {
            bytes /= 1_000.0;
            // 999.96 kB would be shown as 1000.0 kB.
            bytes < 999.95
        }) else {
            unreachable!("a u64 is less than 19 EB")
        };
        match self.0 {
            ..1_000 => write!(f, "{} B", self.0),
            _ => write!(f, "{bytes:.1} {unit}"),
        }
    }
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let percent = self.0 * 100.0;
        match percent {
            0.0 => f.write_str("0 %"),
            ..0.5 => f.write_str("<1 %"),
            _ => write!(f, "{percent:.0} %"),
        }
    }
}

impl fmt::Display for Many {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Many(count, noun) = self;
        write!(f, "{} {noun}{}", Count(*count), if *count == 1 { "" } else { "s" })
    }
}

/// Counts the entries that a list omits, if there are any.
pub(super) fn more(more: u64, noun: &'static str) -> Option<String> {
    let plural = if more == 1 { "" } else { "s" };
    (more > 0).then(|| format!("and {} more {noun}{plural}", Count(more)))
}

/// Appends formatted text.
macro_rules! push {
    ($to:expr, $($what:tt)*) => {
        $to.push_str(&format!($($what)*))
    };
}
pub(super) use push;

/// Formats items per second in three digits.
pub(super) fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..9.995 => format!("{rate:.2}"),
        ..99.95 => format!("{rate:.1}"),
        _ => Count(rate.round() as u64).to_string(),
    }
}

/// Names an item, with its key if it has one. The key is shortened to this many characters.
pub(super) fn item(words: &Words, item: u64, key: Option<&str>, most: usize) -> String {
    let noun = words.item;
    match key {
        Some(key) => format!("{noun} {item} ({})", shortened(key, most)),
        None => format!("{noun} {item}"),
    }
}

/// Names a part by its item, or an item that is no part.
pub(super) fn part(
    words: &Words,
    index: u64,
    key: Option<&str>,
    most: usize,
    parts: &[u64],
) -> String {
    let mut name = item(words, index, key, most);
    parts.iter().for_each(|part| name.push_str(&format!(", part {part}")));
    name
}

/// An error of Python without the traceback behind it: its first lines say what happened. A traceback without frames
/// says the same again.
pub(super) fn before_traceback(error: &str) -> &str {
    let traceback = error.split_once("\n\nTraceback (most recent call last):");
    let again = || error.split_once("\n\n").filter(|(said, again)| again.ends_with(said));
    traceback.or_else(again).map_or(error, |(said, _)| said)
}

/// The first `most` characters of a text.
pub(super) fn clipped(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{} ...", &text[..end]),
        None => text.to_owned(),
    }
}

/// Cuts a text of the user between two characters, so that it can be kept for each of thousands of failures. Says how
/// much was cut off.
pub fn bounded(mut text: String) -> String {
    if text.len() > LONGEST {
        let most = LONGEST - NOTE;
        let end = (0..=most).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
        let cut = text.len() - end;
        text.truncate(end);
        text.push_str(&format!(" ... ({cut} more bytes)"));
    }
    text
}

/// Shortens a text to `most` characters, in the middle: paths that belong together differ at their end.
pub fn shortened(text: &str, most: usize) -> Cow<'_, str> {
    const GAP: &str = "...";
    if text.char_indices().nth(most).is_none() {
        return text.into();
    }
    let kept = most.saturating_sub(GAP.len());
    let (first, last) = (kept / 3, kept - kept / 3);
    let first = text.char_indices().nth(first).map_or("", |(end, _)| &text[..end]);
    let last = text.char_indices().rev().take(last).last().map_or("", |(start, _)| &text[start..]);
    format!("{first}{GAP}{last}").into()
}

/// The sentence with a capital first letter.
pub(super) fn capitalised(sentence: &str) -> String {
    let mut chars = sentence.chars();
    let first = chars.next().map(|first| first.to_ascii_uppercase());
    first.into_iter().chain(chars).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_is_escaped() {
        let text = "<script>'\"&amp;\u{0}</script>";
        let escaped = "&lt;script&gt;&#39;&quot;&amp;amp;\\u{0}&lt;/script&gt;";
        assert_eq!(Html(text).to_string(), escaped);
    }

    #[test]
    fn numbers_have_thousands_separators() {
        let texts = [0, 999, 1_000, 12_345, 1_234_567].map(|n| Count(n).to_string());
        assert_eq!(texts, ["0", "999", "1,000", "12,345", "1,234,567"]);
    }

    #[test]
    fn bytes_have_a_unit_that_suits_them() {
        let numbers = [0, 999, 1_000, 12_345, 999_949, 999_950, 1_999_999_999, u64::MAX];
        let texts = numbers.map(|n| Bytes(n).to_string());
        let expected =
            ["0 B", "999 B", "1.0 kB", "12.3 kB", "999.9 kB", "1.0 MB", "2.0 GB", "18.4 EB"];
        assert_eq!(texts, expected);
    }

    #[test]
    fn a_small_share_is_not_shown_as_zero() {
        let texts = [0.0, 0.001, 0.5, 0.999, 1.0].map(|share| Percent(share).to_string());
        assert_eq!(texts, ["0 %", "<1 %", "50 %", "100 %", "100 %"]);
    }

    #[test]
    fn a_traceback_is_left_out() {
        let traceback = "Traceback (most recent call last):\n  File \"a.py\"";
        assert_eq!(before_traceback(&format!("bad 2\nworse\n\n{traceback}")), "bad 2\nworse");
        assert_eq!(before_traceback(traceback), traceback);
        assert_eq!(before_traceback("a\n\nb"), "a\n\nb");
        assert_eq!(before_traceback("Bad: a\n\nmodule.Bad: a"), "Bad: a");
    }

    #[test]
    fn a_text_is_clipped_between_characters() {
        assert_eq!(clipped("äöü", 3), "äöü");
        assert_eq!(clipped("äöü", 2), "äö ...");
    }

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

    #[test]
    fn a_text_is_shortened_in_its_middle() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("/data/grid3/hole_0074.tif", 18), "/data...e_0074.tif");
        assert_eq!(shortened("abcdef", 2), "...");
    }
}

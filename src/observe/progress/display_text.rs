//! Formats texts, times and rates for the display.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::time::Duration;

use gangline_report::{Colors, Ink};

use crate::base::HumanDuration;
use crate::base::plain::{Plain, is_acted_upon};

/// An untrusted text on one line, without characters that a terminal would obey.
pub(super) fn printable(text: &str) -> Cow<'_, str> {
    match text.contains(is_acted_upon) {
        true => Cow::Owned(Plain(text).to_string()),
        false => Cow::Borrowed(text),
    }
}

/// The first `most` characters of a text.
pub(super) fn clipped(text: &str, most: usize) -> Cow<'_, str> {
    match text.char_indices().nth(most) {
        Some((end, _)) => Cow::Owned(format!("{}...", &text[..end])),
        None => Cow::Borrowed(text),
    }
}

/// `1 item`, `2 items`.
pub(super) fn items(items: u64) -> String {
    match items {
        1 => "1 item".to_owned(),
        _ => format!("{items} items"),
    }
}

/// A time that counts up or down on a display.
pub(super) fn duration(lasted: Duration) -> String {
    format!("{:.1}", HumanDuration(lasted))
}

/// `617/s`, `3.2/s`, `7.5/min`, `1.5/h`.
pub(super) fn rate(per_second: f64) -> String {
    match per_second {
        100.0.. => format!("{per_second:.0}/s"),
        0.1.. => format!("{per_second:.1}/s"),
        0.002.. => format!("{:.1}/min", 60.0 * per_second),
        _ => format!("{:.1}/h", 3_600.0 * per_second),
    }
}

/// `[#####---------------]`, or `None` if fewer than twelve columns are left for it.
pub(super) fn bar(done: u64, total: u64, columns: usize, colors: Colors) -> Option<String> {
    const FEWEST: usize = 10;
    let cells = columns.checked_sub(2).filter(|cells| *cells >= FEWEST)?;
    let full = if total == 0 {
        cells
    } else {
        // In 128 bits, since a `size_hint` may be any number.
        (cells as u128 * u128::from(done.min(total)) / u128::from(total)) as usize
    };
    let done = colors.paint(Ink::Good, "#".repeat(full));
    let left = colors.paint(Ink::Faint, "-".repeat(cells - full));
    Some(format!("[{done}{left}]"))
}

/// ` 98 %`, or a placeholder for an unknown share.
pub(super) fn share(share: Option<f64>) -> String {
    let mut text = String::new();
    match share {
        Some(share) => write!(text, "{:>3.0} %", 100.0 * share),
        None => write!(text, "  ? %"),
    }
    .expect("writing to a string does not fail");
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_a_terminal_obeys_is_escaped_and_nothing_else() {
        assert_eq!(printable("C:\\ä \"日本\" e\u{301}.tif"), "C:\\ä \"日本\" e\u{301}.tif");
        assert_eq!(
            printable("a\nb\tc\x1b[2J\u{9b}1m\u{202e}"),
            "a\\nb\\tc\\u{1b}[2J\\u{9b}1m\\u{202e}"
        );
    }

    proptest! {
        #[test]
        fn no_text_moves_the_cursor(text in any::<String>()) {
            let shown = printable(&text);
            prop_assert!(!shown.contains(char::is_control));
            prop_assert_eq!(printable(&shown), shown.clone());
        }

        #[test]
        fn a_bar_has_one_width(done in any::<u64>(), total in any::<u64>()) {
            for columns in [12, 22, 200] {
                let bar = bar(done, total, columns, Colors::Off).unwrap();
                prop_assert_eq!(bar.len(), columns);
                prop_assert_eq!(bar.contains('-'), done < total);
            }
            prop_assert_eq!(bar(done, total, 11, Colors::Off), None);
        }
    }

    #[test]
    fn a_text_is_clipped_between_characters() {
        assert_eq!(clipped("äöü", 3), "äöü");
        assert_eq!(clipped("äöüß", 3), "äöü...");
    }

    #[test]
    fn rates_are_said_in_the_unit_that_fits() {
        let rates = [617.3, 3.21, 0.125, 0.001, 0.0].map(rate);
        assert_eq!(rates, ["617/s", "3.2/s", "0.1/s", "3.6/h", "0.0/h"]);
    }
}

//! Small values that errors, settings and events share. They import nothing of this crate.

mod hook;
mod limits;
pub(crate) mod memory;
pub(crate) mod panic;
#[cfg(feature = "futures")]
pub(crate) mod quiet_waker;

pub use self::hook::Hook;
pub use self::limits::{MaxFailures, Measure, TimeLimit};
pub use self::panic::PanicMessage;
use std::borrow::Cow;
use std::path::{self, PathBuf};

pub(crate) use gangline_scheduler::HumanDuration;
#[doc(inline)]
pub use gangline_scheduler::Order;
pub(crate) use gangline_scheduler::causes::{self, debug_with_causes};
pub(crate) use gangline_scheduler::plain;

/// Any error, as hooks return it: `?` turns the errors of candle, `std::io`, anyhow, eyre and
/// [`CfgNode`](crate::CfgNode) into it.
///
/// It implements no `Error` itself, as any `Box<dyn Error>`. So where a function returns a `Result` of anyhow or eyre, `?`
/// takes an [`Error`](crate::Error) of gangline, and a `BoxError` needs a conversion that keeps its causes:
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// fn factor(text: &str) -> gangline::Result<u64> {
///     Ok(text.parse()?)
/// }
///
/// fn with_anyhow() -> anyhow::Result<()> {
///     let factor = factor("3").map_err(anyhow::Error::from_boxed)?;
///     let work = move |x: u64| {
///         anyhow::ensure!(x < 9, "{x} is too large");
///         Ok(x * factor)
///     };
///     let scaled = map(|_| Ok(()), move |_, (), x| Ok(work(x)?)); // a hook returns any error
///     assert_eq!(OrderedRunner::new(scaled, 2)?.run(0..3)?, [0, 3, 6]);
///     Ok(())
/// }
///
/// fn with_eyre() -> eyre::Result<()> {
///     let factor = factor("3").map_err(|error| eyre::eyre!(error))?;
///     let work = move |x: u64| {
///         eyre::ensure!(x < 9, "{x} is too large");
///         Ok(x * factor)
///     };
///     let scaled = map(|_| Ok(()), move |_, (), x| Ok(work(x)?));
///     assert_eq!(OrderedRunner::new(scaled, 2)?.run(0..3)?, [0, 3, 6]);
///     Ok(())
/// }
/// # with_anyhow().unwrap();
/// # with_eyre().unwrap();
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a hook.
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

/// The largest length of a text in bytes, including the note of how much was cut off.
const LONGEST: usize = 8 * 1_024;

/// Room for the note.
const NOTE: usize = 48;

/// Cuts a text of the user between two characters, so that it can be kept for each of thousands of failures. Says how
/// much was cut off.
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

/// Shortens a text to `most` characters, in the middle: paths that belong together differ at their end.
pub(crate) fn shortened(text: &str, most: usize) -> Cow<'_, str> {
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

/// Returns the path from the root, so that a later change of the current directory does not change what it names. If
/// the current directory is gone, the path stays relative.
pub(crate) fn absolute(path: PathBuf) -> PathBuf {
    path::absolute(&path).unwrap_or(path)
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

    #[test]
    fn a_text_is_shortened_in_its_middle() {
        assert_eq!(shortened("äöü", 3), "äöü");
        assert_eq!(shortened("/data/grid3/hole_0074.tif", 18), "/data...e_0074.tif");
        assert_eq!(shortened("abcdef", 2), "...");
    }
}

//! The option `--batch`: how many inputs a worker gets at once.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use gangline::Batch;

use super::number::at_least_one;

/// The largest list with `--batch auto`. Models seldom gain by more, and inputs are kept until their list is answered.
const MOST_CHOSEN: usize = 256;

/// The largest list that a worker gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ListSize {
    /// `auto`, or `auto:64`: what is best for the worker, by the times of its lists, and at most this.
    Auto(usize),
    /// `8`
    AtMost(usize),
}

impl ListSize {
    /// The size of the largest list that may be sent.
    pub(crate) fn most(self) -> usize {
        match self {
            ListSize::Auto(most) => most,
            ListSize::AtMost(most) => most,
        }
    }

    /// The places that a producer's lists take in the window.
    pub(crate) fn places(self) -> usize {
        match self {
            // The size is at most half of what the window has for each producer.
            ListSize::Auto(most) => 2 * most,
            ListSize::AtMost(most) => most,
        }
    }

    /// The rule of a run, whose lists wait this long for more inputs.
    pub(crate) fn within(self, wait: Duration) -> Batch {
        match self {
            ListSize::Auto(most) => Batch::auto().at_most(most).within(wait),
            ListSize::AtMost(most) => Batch::of(most).within(wait),
        }
    }

    /// The rule of a service. A free worker gets what is there, or waits this long for more.
    pub(crate) fn of_what_is_there(self, wait: Duration) -> Batch {
        let rule = match self {
            ListSize::Auto(most) => Batch::auto().at_most(most),
            ListSize::AtMost(most) => Batch::up_to(most),
        };
        if wait.is_zero() { rule } else { rule.within(wait) }
    }
}

impl FromStr for ListSize {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let size = match text.split_once(':') {
            None if text == "auto" => Ok(ListSize::Auto(MOST_CHOSEN)),
            Some(("auto", most)) => at_least_one(most).map(ListSize::Auto),
            _ => at_least_one(text).map(ListSize::AtMost),
        };
        size.map_err(|_| "write a number from 1 to 65536, without a sign, auto, or auto:NUMBER")
    }
}

impl fmt::Display for ListSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            ListSize::Auto(MOST_CHOSEN) => f.write_str("auto"),
            ListSize::Auto(most) => write!(f, "auto:{most}"),
            ListSize::AtMost(most) => write!(f, "{most}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_or_auto() {
        for (text, size) in [
            ("auto", ListSize::Auto(256)),
            ("auto:16", ListSize::Auto(16)),
            ("8", ListSize::AtMost(8)),
        ] {
            assert_eq!(text.parse(), Ok(size));
            assert_eq!(size.to_string(), text);
        }
        for text in ["0", "+8", "Auto", "8.5", "", "auto:", "auto:0", "auto:-1", "8:auto"] {
            assert!(text.parse::<ListSize>().is_err(), "{text}");
        }
    }

    #[test]
    fn auto_leaves_the_size_to_the_library() {
        let time = Duration::from_millis(5);
        let rules = [ListSize::Auto(256), ListSize::AtMost(8)].map(|size| size.within(time));
        assert_eq!(
            rules.map(|rule| rule.to_string()),
            ["auto, at most 256 within 5 ms", "8 within 5 ms"]
        );
        let rule = ListSize::Auto(256).of_what_is_there(Duration::ZERO);
        assert_eq!((rule.to_string().as_str(), rule.most()), ("auto, at most 256", 256));
    }
}

//! The limits that a builder takes: of failures, of times, and of what is measured of items.

use std::fmt;

/// How many items may fail before the run does: [`Builder::max_failures`](crate::Builder::max_failures).
///
/// ```
/// use gangline::error::MaxFailures;
///
/// let ten = MaxFailures::from(10);
/// let one_in_twenty = MaxFailures::share(0.05);
/// ```
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MaxFailures(Most);

#[derive(Debug, Clone, Copy, PartialEq)]
enum Most {
    Number(u64),
    Share(f64),
}

/// From how many items on a share of them means something.
const FIRST_JUDGED: u64 = 100;

impl MaxFailures {
    /// Up to that share of the items, from 0 to 1, judged at each failure from the hundredth item on, and
    /// at the end.
    ///
    /// Another number is refused when the runner is built.
    pub fn share(share: f64) -> Self {
        MaxFailures(Most::Share(share))
    }

    /// What was given as a share and is none.
    pub(crate) fn bad_share(&self) -> Option<f64> {
        match self.0 {
            Most::Share(share) if !(0.0..=1.0).contains(&share) => Some(share),
            _ => None,
        }
    }

    /// Whether `failed` of the `items` that are done with are too many.
    pub(crate) fn are_exceeded(&self, failed: u64, items: u64, at_end: bool) -> bool {
        match self.0 {
            Most::Number(most) => failed > most,
            Most::Share(share) => {
                // Divided: a quotient is rounded as the number that the user wrote.
                let is_judged = items > 0 && (at_end || items >= FIRST_JUDGED);
                is_judged && failed as f64 / items as f64 > share
            }
        }
    }
}

/// At most this number of items.
impl From<u64> for MaxFailures {
    fn from(items: u64) -> Self {
        MaxFailures(Most::Number(items))
    }
}

/// Writes the limit as in `at most 5 % may fail`: `5 %`, or a number.
impl fmt::Display for MaxFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Most::Number(most) => write!(f, "{most}"),
            // 100 times 0.29 is not 29.
            Most::Share(share) => write!(f, "{} %", (share * 1e8).round() / 1e6),
        }
    }
}

/// A timeout that a [`Builder`](crate::Builder) takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeLimit {
    /// [`Builder::item_timeout`](crate::Builder::item_timeout).
    Item,
    /// [`Builder::init_timeout`](crate::Builder::init_timeout).
    Init,
    /// [`Builder::run_timeout`](crate::Builder::run_timeout).
    Run,
    /// [`Builder::end_timeout`](crate::Builder::end_timeout).
    End,
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeLimit::Item => "item_timeout",
            TimeLimit::Init => "init_timeout",
            TimeLimit::Run => "run_timeout",
            TimeLimit::End => "end_timeout",
        })
    }
}

/// What is measured of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Measure {
    /// What it adds to a batch: [`Builder::max_batch_cost`](crate::Builder::max_batch_cost).
    Cost,
    /// What the items of a batch are padded to: [`Builder::max_padded_size`](crate::Builder::max_padded_size).
    Padded,
    /// What it takes in memory, or its output: [`Builder::window_memory`](crate::Builder::window_memory).
    Memory,
}

impl fmt::Display for Measure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Measure::Cost => "cost",
            Measure::Padded => "padded size",
            Measure::Memory => "memory",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_failures_is_the_most_that_may_be() {
        let most = MaxFailures::from(2);
        let exceeded = [0, 1, 2, 3].map(|failed| most.are_exceeded(failed, 10, false));
        assert_eq!(exceeded, [false, false, false, true]);
    }

    #[test]
    fn a_share_is_judged_from_a_hundred_items_on_and_at_the_end() {
        let most = MaxFailures::share(0.05);
        assert!(!most.are_exceeded(99, 99, false));
        assert!(most.are_exceeded(99, 99, true));
        assert!(!most.are_exceeded(5, 100, false));
        assert!(most.are_exceeded(6, 100, false));
        assert!(!most.are_exceeded(0, 0, true), "no item, no failure");
        assert!(!MaxFailures::share(0.29).are_exceeded(29, 100, false), "29 of 100 are 0.29");
    }

    #[test]
    fn a_share_is_between_none_and_all() {
        for share in [-0.1, 1.1, f64::NAN, f64::INFINITY] {
            assert!(MaxFailures::share(share).bad_share().is_some(), "{share}");
        }
        assert_eq!(MaxFailures::share(1.0).bad_share(), None);
    }
}

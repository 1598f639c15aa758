//! The report of a check of lists.

use std::fmt;
use std::time::Duration;

use crate::base::causes::WithCauses;
use crate::base::debug_with_causes;
use crate::error::Result;

/// The report of a check of lists: its faults, and the times of lists of each size.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct BatchReport {
    /// The number of samples.
    pub samples: usize,
    /// The samples that have no answer alone, by position, each with its error.
    pub failing: Vec<(usize, String)>,
    /// The faults, in the order in which they were found. At most 100 are kept.
    pub faults: Vec<BatchFault>,
    /// The sizes that were asked, ascending.
    pub sizes: Vec<BatchSize>,
    /// Whether two samples have different answers, so that the order could be checked.
    pub(super) has_two_answers: bool,
    /// Whether lists with a failing sample were asked.
    pub(super) has_failing_lists: bool,
}

/// A difference that breaks a [law](BatchLaw).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchFault {
    /// The kind of the fault.
    pub kind: BatchFaultKind,
    /// The position of the sample.
    pub sample: usize,
    /// The size of the list, 1 for a sample that was asked alone.
    pub size: usize,
    /// The failing sample that was in the same list.
    pub beside: Option<usize>,
    /// Both answers, or the error.
    pub text: String,
}

/// The kinds of faults.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BatchFaultKind {
    /// The runner did not get ready.
    NotReady,
    /// No sample has an answer alone, so there is nothing to compare with. This is the error of the first.
    NoAnswer,
    /// A sample that was asked alone twice has two answers.
    Unrepeatable,
    /// A sample has another answer in a list than alone.
    Differs,
    /// A sample has the answer of another one of its list.
    Swapped {
        /// The position of the other sample.
        other: usize,
    },
    /// A sample that has an answer alone fails in a list.
    Fails,
    /// A list failed as a whole, although each of its samples has an answer alone.
    ListFails,
    /// A sample that fails alone has an answer in a list.
    Passes,
}

/// The laws that a runner has to keep.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum BatchLaw {
    /// At least one sample has an answer.
    Answered,
    /// A sample that is asked alone twice has one answer.
    Repeatable,
    /// In lists a sample has the answer that it has alone.
    Equal,
    /// Each answer belongs to its own sample.
    Ordered,
    /// A sample that fails does so in lists too, and no other sample of its list fails or has another answer.
    Contained,
}

/// Whether a law holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LawState {
    /// It holds for all samples that were asked.
    Held,
    /// A fault says where it does not hold.
    Broken,
    /// The samples cannot show it: none fails, all have the same answer, or the largest list has one sample.
    Unchecked,
}

/// The times of the lists of one size.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BatchSize {
    /// The number of samples in a list.
    pub size: usize,
    /// The number of lists that were answered whole.
    pub lists: usize,
    /// The time of the fastest list; `None` if none was answered whole.
    pub least: Option<Duration>,
    /// Whether the device had memory for all of them.
    pub fits: bool,
}

/// The error of a check: a law is broken.
pub struct BrokenBatches {
    /// The report with the faults.
    pub report: BatchReport,
}

const MOST_FAULTS: usize = 100;

/// A size is advised if it reaches this share of the best rate.
const ENOUGH: f64 = 0.95;

impl BatchLaw {
    /// All laws, in the order in which they are checked.
    pub const ALL: &'static [BatchLaw] = &[
        BatchLaw::Answered,
        BatchLaw::Repeatable,
        BatchLaw::Equal,
        BatchLaw::Ordered,
        BatchLaw::Contained,
    ];
}

impl BatchFault {
    /// Returns the law that the fault breaks.
    pub fn law(&self) -> BatchLaw {
        match self.kind {
            BatchFaultKind::NotReady | BatchFaultKind::NoAnswer => BatchLaw::Answered,
            BatchFaultKind::Unrepeatable => BatchLaw::Repeatable,
            BatchFaultKind::Passes => BatchLaw::Contained,
            _ if self.beside.is_some() => BatchLaw::Contained,
            BatchFaultKind::Swapped { .. } => BatchLaw::Ordered,
            BatchFaultKind::Differs | BatchFaultKind::Fails | BatchFaultKind::ListFails => {
                BatchLaw::Equal
            }
        }
    }
}

impl BatchSize {
    /// Returns the samples per second in the fastest list, or `None` if no list was answered whole.
    pub fn rate(&self) -> Option<f64> {
        let seconds = self.least?.as_secs_f64().max(f64::MIN_POSITIVE);
        Some(self.size as f64 / seconds)
    }
}

impl BatchReport {
    pub(super) fn of(samples: usize) -> BatchReport {
        BatchReport {
            samples,
            failing: Vec::new(),
            faults: Vec::new(),
            sizes: Vec::new(),
            has_two_answers: false,
            has_failing_lists: false,
        }
    }

    /// Returns whether no law is broken. One that could not be checked is not broken.
    pub fn has_held(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns whether a law holds.
    pub fn law(&self, law: BatchLaw) -> LawState {
        if self.faults.iter().any(|fault| fault.law() == law) {
            return LawState::Broken;
        }
        let has_lists = self.sizes.iter().any(|size| size.size > 1 && size.lists > 0);
        let is_checked = match law {
            BatchLaw::Answered => true,
            BatchLaw::Repeatable => self.failing.len() < self.samples,
            BatchLaw::Equal => has_lists,
            BatchLaw::Ordered => has_lists && self.has_two_answers,
            BatchLaw::Contained => self.has_failing_lists,
        };
        if is_checked { LawState::Held } else { LawState::Unchecked }
    }

    /// Returns the size of lists to use: the smallest with at least 95 % of the best rate.
    ///
    /// Sizes from the first at which a law is broken, or memory runs out, are not considered. If a failing sample harms
    /// others, or answers cannot be repeated, it is 1.
    pub fn advised(&self) -> usize {
        let bounds_all =
            |fault: &BatchFault| !matches!(fault.law(), BatchLaw::Equal | BatchLaw::Ordered);
        if self.faults.iter().any(bounds_all) {
            return 1;
        }
        let largest = self.largest_sound();
        let sizes = self.sizes.iter().filter(|size| size.size <= largest);
        let rates: Vec<(usize, f64)> =
            sizes.filter_map(|size| Some((size.size, size.rate()?))).collect();
        let best = rates.iter().map(|(_, rate)| *rate).fold(0.0, f64::max);
        rates.iter().find(|(_, rate)| *rate >= ENOUGH * best).map_or(1, |(size, _)| *size)
    }

    /// The largest size below the first at which memory runs out, or a law is broken without a failing sample.
    pub(super) fn largest_sound(&self) -> usize {
        let broken = self.faults.iter().filter(|fault| fault.beside.is_none());
        let broken = broken.map(|fault| fault.size).filter(|size| *size > 1).min();
        let is_sound =
            |size: &&BatchSize| size.fits && broken.is_none_or(|broken| size.size < broken);
        self.sizes.iter().take_while(is_sound).last().map_or(1, |size| size.size)
    }

    pub(super) fn add(&mut self, fault: BatchFault) {
        if self.faults.len() < MOST_FAULTS {
            self.faults.push(fault);
        }
    }

    pub(super) fn not_ready(&mut self, error: &(dyn std::error::Error + 'static)) {
        let (kind, text) = (BatchFaultKind::NotReady, WithCauses(error).to_string());
        self.add(BatchFault { kind, sample: 0, size: 1, beside: None, text });
    }

    pub(super) fn into_result(self) -> Result<BatchReport, BrokenBatches> {
        if self.has_held() { Ok(self) } else { Err(BrokenBatches { report: self }) }
    }
}

/// One sentence, in which samples are counted from 0.
impl fmt::Display for BatchFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let BatchFault { kind, sample, size, beside, text } = self;
        match kind {
            BatchFaultKind::NotReady => return write!(f, "the runner is not ready: {text}"),
            BatchFaultKind::NoAnswer => return write!(f, "no sample has an answer: {text}"),
            BatchFaultKind::Unrepeatable => {
                return write!(f, "sample {sample} has two answers alone: {text}");
            }
            BatchFaultKind::ListFails => {
                write!(f, "a list of {size} from sample {sample} on fails")?;
            }
            BatchFaultKind::Differs => {
                write!(f, "sample {sample} has another answer in a list of {size}")?;
            }
            BatchFaultKind::Swapped { other } => {
                write!(f, "sample {sample} has the answer of sample {other} in a list of {size}")?;
            }
            BatchFaultKind::Fails => write!(f, "sample {sample} fails in a list of {size}")?,
            BatchFaultKind::Passes => {
                write!(f, "sample {sample} has an answer in a list of {size}, and fails alone")?;
            }
        }
        match beside {
            Some(beside) if beside != sample => {
                write!(f, " with sample {beside}, which fails: {text}")
            }
            _ => write!(f, ": {text}"),
        }
    }
}

impl fmt::Display for BrokenBatches {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let faults = &self.report.faults;
        match faults.split_first() {
            None => f.write_str("lists do not hold"),
            Some((first, [])) => write!(f, "{first}"),
            Some((first, others)) => write!(f, "{first}; and {} more", others.len()),
        }
    }
}

debug_with_causes!(BrokenBatches);

impl std::error::Error for BrokenBatches {}

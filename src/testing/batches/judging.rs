//! Asks lists of samples, and judges their answers.

use std::time::Duration;

use super::report::{BatchFault, BatchFaultKind, BatchReport, BatchSize};
use crate::error::{OutputCount, Result};

/// The answers to a list of samples.
#[derive(Debug, Clone)]
pub struct AnsweredList<T> {
    /// For each sample of the list, in the order of the list: the answer, or the error.
    pub answers: Vec<Result<T, String>>,
    /// The end of the list as a whole.
    pub end: ListEnd,
}

/// The end of a list as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ListEnd {
    /// It was answered as one list, in this time.
    Whole(Duration),
    /// It failed as a whole, for this reason. Its samples were asked again in parts.
    Failed(String),
    /// The device has no memory for a list of this size. Its samples were asked again in parts.
    OutOfMemory,
}

/// How the answer of a sample alone differs from another one.
pub(super) type Differs<T> = dyn Fn(&T, &T) -> Option<String> + Send + Sync;

/// Samples that are asked for, by position.
#[derive(Debug, Clone, Copy)]
pub(super) enum Query<'a> {
    Alone(usize),
    List(&'a [usize]),
}

type Ask<'a, T> = dyn FnMut(Query<'_>) -> Result<AnsweredList<T>> + 'a;

/// A check in progress.
pub(super) struct Judging<'a, T> {
    differs: &'a Differs<T>,
    ask: &'a mut Ask<'a, T>,
    report: &'a mut BatchReport,
    /// The answer of each sample alone.
    alone: Vec<Result<T, String>>,
    /// The samples that have one answer alone.
    good: Vec<usize>,
}

/// A list, and the sample in it that fails alone, if any.
#[derive(Debug, Clone, Copy)]
struct Question<'a> {
    list: &'a [usize],
    beside: Option<usize>,
}

/// The least number of lists for each size. The time of the fastest is the time of the size.
const LEAST_LISTS: usize = 3;

/// The total time of the lists of one size. Lists of fast workers are asked more often until they reach it.
const ENOUGH_TIME: Duration = Duration::from_millis(100);
const MOST_LISTS: usize = 50;

/// The largest number of failing samples that are put into lists.
const MOST_FAILING: usize = 8;

/// The size of a list with a failing sample, which has room for it at the beginning, within and at the end.
const FAILING_LIST: usize = 4;

impl<'a, T> Judging<'a, T> {
    pub(super) fn new(
        differs: &'a Differs<T>,
        ask: &'a mut Ask<'a, T>,
        report: &'a mut BatchReport,
    ) -> Self {
        Judging { differs, ask, report, alone: Vec::new(), good: Vec::new() }
    }

    /// Asks each sample alone twice, then lists of ascending sizes, then lists with a failing sample.
    pub(super) fn judge(mut self, most: usize) -> Result<()> {
        self.ask_alone()?;
        if self.good.is_empty() {
            return Ok(());
        }
        for size in sizes(most) {
            if !self.ask_size(size)? {
                break;
            }
        }
        // At a size that is broken without a failing sample, a list with one shows nothing.
        self.ask_failing(self.report.largest_sound().min(FAILING_LIST))
    }

    fn ask_alone(&mut self) -> Result<()> {
        for sample in 0..self.report.samples {
            let first = self.one(sample)?;
            self.alone.push(first);
        }
        for sample in 0..self.report.samples {
            let second = self.one(sample)?;
            let text = match (&self.alone[sample], second) {
                (Ok(first), Ok(second)) => (self.differs)(first, &second),
                (Err(_), Err(error)) => {
                    self.report.failing.push((sample, error));
                    continue;
                }
                (Ok(_), Err(error)) => Some(format!("an answer, then an error: {error}")),
                (Err(error), Ok(_)) => Some(format!("an error, then an answer: {error}")),
            };
            match text {
                None => self.good.push(sample),
                Some(text) => self.fault(BatchFaultKind::Unrepeatable, sample, 1, text),
            }
        }
        if self.good.is_empty() && self.report.faults.is_empty() {
            let first = self.report.failing.first().map(|(_, error)| error.clone());
            let text = first.unwrap_or_else(|| "there are no samples".to_owned());
            self.fault(BatchFaultKind::NoAnswer, 0, 1, text);
        }
        let first = self.good.first().copied();
        self.report.has_two_answers =
            first.is_some_and(|first| self.good.iter().any(|&other| self.is_other(first, other)));
        Ok(())
    }

    fn one(&mut self, sample: usize) -> Result<Result<T, String>> {
        let mut answered = self.answered(Query::Alone(sample), 1)?;
        Ok(answered.answers.remove(0))
    }

    /// Asks, and checks that there are as many answers as samples.
    fn answered(&mut self, asked: Query<'_>, inputs: usize) -> Result<AnsweredList<T>> {
        let answered = (self.ask)(asked)?;
        match answered.answers.len() {
            outputs if outputs == inputs => Ok(answered),
            outputs => Err(OutputCount { inputs, outputs }.into()),
        }
    }

    /// Asks lists of good samples, each sample at least once. Returns whether the device had memory for them.
    fn ask_size(&mut self, size: usize) -> Result<bool> {
        let good = self.good.clone();
        let least = if size == 1 { 0 } else { good.len().div_ceil(size) }.max(LEAST_LISTS);
        let mut found = BatchSize { size, lists: 0, least: None, fits: true };
        let (mut asked, mut total) = (0, Duration::ZERO);
        while asked < least || (total < ENOUGH_TIME && asked < MOST_LISTS) {
            // Each round begins one sample later, so that a sample is not always in the same place.
            let begin = asked * size + asked * size / good.len();
            let list: Vec<usize> = (begin..begin + size).map(|at| good[at % good.len()]).collect();
            let faults = self.report.faults.len();
            match self.list(Question { list: &list, beside: None })? {
                ListEnd::Whole(took) => {
                    total += took;
                    found.lists += 1;
                    found.least = Some(found.least.map_or(took, |least: Duration| least.min(took)));
                }
                ListEnd::OutOfMemory => {
                    found.fits = false;
                    break;
                }
                ListEnd::Failed(_) => {}
            }
            asked += 1;
            // After the first fault, the least number of lists is enough: a slow worker need not show it again.
            if self.report.faults.len() > faults && asked >= LEAST_LISTS {
                break;
            }
        }
        let fits = found.fits;
        self.report.sizes.push(found);
        Ok(fits)
    }

    /// Puts each failing sample at three places of a list of good ones.
    fn ask_failing(&mut self, size: usize) -> Result<()> {
        let failing: Vec<usize> =
            self.report.failing.iter().map(|(sample, _)| *sample).take(MOST_FAILING).collect();
        if size < 2 {
            return Ok(());
        }
        for bad in failing {
            let mut places = vec![0, size / 2, size - 1];
            places.dedup();
            for place in places {
                let good = self.good.iter().cycle().copied();
                let mut list: Vec<usize> = good.take(size - 1).collect();
                list.insert(place, bad);
                self.report.has_failing_lists = true;
                self.list(Question { list: &list, beside: Some(bad) })?;
            }
        }
        Ok(())
    }

    fn list(&mut self, question: Question<'_>) -> Result<ListEnd> {
        let Question { list, beside } = question;
        let AnsweredList { answers, end } = self.answered(Query::List(list), list.len())?;
        let (size, before) = (list.len(), self.report.faults.len());
        for (&sample, answer) in list.iter().zip(answers) {
            if let Some((kind, text)) = self.judge_answer(question, sample, answer) {
                self.report.add(BatchFault { kind, sample, size, beside, text });
            }
        }
        // If one of its samples has a fault, that says what is wrong.
        if let (ListEnd::Failed(text), None) = (&end, beside)
            && self.report.faults.len() == before
        {
            self.fault(BatchFaultKind::ListFails, list[0], size, text.clone());
        }
        Ok(end)
    }

    fn judge_answer(
        &self,
        question: Question<'_>,
        sample: usize,
        answer: Result<T, String>,
    ) -> Option<(BatchFaultKind, String)> {
        match (&self.alone[sample], answer) {
            (Err(_), Err(_)) => None,
            (Err(error), Ok(_)) => Some((BatchFaultKind::Passes, error.clone())),
            (Ok(_), Err(error)) => Some((BatchFaultKind::Fails, error)),
            (Ok(alone), Ok(listed)) => {
                let text = (self.differs)(alone, &listed)?;
                let is_its_own = |other: usize| match &self.alone[other] {
                    Ok(alone) => (self.differs)(alone, &listed).is_none(),
                    Err(_) => false,
                };
                let other = question.list.iter().copied().find(|&other| is_its_own(other));
                let kind = match other {
                    Some(other) => BatchFaultKind::Swapped { other },
                    None => BatchFaultKind::Differs,
                };
                Some((kind, text))
            }
        }
    }

    /// Whether two samples have different answers alone.
    fn is_other(&self, one: usize, other: usize) -> bool {
        match (&self.alone[one], &self.alone[other]) {
            (Ok(one), Ok(other)) => (self.differs)(one, other).is_some(),
            _ => false,
        }
    }

    fn fault(&mut self, kind: BatchFaultKind, sample: usize, size: usize, text: String) {
        self.report.add(BatchFault { kind, sample, size, beside: None, text });
    }
}

/// Returns the sizes to ask: 1, 2, 4 and so on, and the largest.
fn sizes(most: usize) -> Vec<usize> {
    let powers = std::iter::successors(Some(1_usize), |size| size.checked_mul(2));
    powers.take_while(|&size| size < most).chain([most]).collect()
}

#[cfg(test)]
mod tests {
    use super::sizes;

    #[test]
    fn the_largest_size_is_one_of_them() {
        assert_eq!(sizes(1), [1]);
        assert_eq!(sizes(6), [1, 2, 4, 6]);
        assert_eq!(sizes(8), [1, 2, 4, 8]);
    }
}

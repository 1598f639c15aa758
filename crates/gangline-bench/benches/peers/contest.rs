//! Compares subjects by interleaved runs.

use crate::subject::Subject;
use crate::work::Work;

/// The times of several subjects, one per round each.
///
/// Subjects take turns, so that other load on the machine affects all alike.
pub struct Heats {
    times: Vec<Vec<f64>>,
}

impl Heats {
    /// In nanoseconds per item.
    pub fn of_items(
        subjects: &mut [Box<dyn Subject>],
        items: u64,
        work: Work,
        rounds: usize,
    ) -> Self {
        let mut round = || -> Vec<f64> {
            subjects.iter_mut().map(|subject| once(subject.as_mut(), items, work)).collect()
        };
        let rounds: Vec<_> = (0..rounds).map(|_| round()).collect();
        Self::of_rounds(&rounds)
    }

    pub fn of<const N: usize>(rounds: usize, mut round: impl FnMut() -> [f64; N]) -> Self {
        let rounds: Vec<_> = (0..rounds).map(|_| round()).collect();
        Self::of_rounds(&rounds)
    }

    fn of_rounds<R: AsRef<[f64]>>(rounds: &[R]) -> Self {
        let subjects = 0..rounds.first().map_or(0, |round| round.as_ref().len());
        let of = |subject: usize| rounds.iter().map(|round| round.as_ref()[subject]).collect();
        Self { times: subjects.map(of).collect() }
    }

    /// The shortest time of a subject.
    pub fn least(&self, subject: usize) -> f64 {
        self.times[subject].iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The middle one of a subject's times.
    pub fn median(&self, subject: usize) -> f64 {
        median(self.times[subject].clone())
    }

    /// How many times as fast a subject is as another: the median of what it was in each round.
    pub fn ratio(&self, subject: usize, peer: usize) -> f64 {
        let rounds = self.times[subject].iter().zip(&self.times[peer]);
        median(rounds.map(|(time, other)| other / time).collect())
    }
}

pub fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let low = if values.len() % 2 == 1 { middle } else { middle - 1 };
    (values[low] + values[middle]) / 2.0
}

/// In nanoseconds per item.
pub fn once(subject: &mut dyn Subject, items: u64, work: Work) -> f64 {
    let items = subject.capacity(items);
    let outcome = subject.run(items, work);
    assert_eq!(outcome.sum, work.sum(items), "the sum of {}", subject.kind().name());
    outcome.elapsed.as_secs_f64() * 1e9 / items as f64
}

//! How long the attempts of a run take: their 95th percentile.

use std::time::Duration;

/// The number of latest attempts that count fully. After each such number, all counts are halved.
const LATEST: u32 = 8_192;
/// One attempt in this number is above the percentile.
const ONE_IN: u32 = 20;
/// The steps between two powers of two: a step is 3 % wide.
const STEPS: u64 = 32;

/// The times of the latest attempts, counted in steps of 3 %.
#[derive(Debug, Default)]
pub(super) struct AttemptTimes {
    steps: Vec<u16>,
    count: u32,
    /// The step of the percentile, and the number of attempts above it.
    at: usize,
    above: u32,
}

/// What became of the earlier counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Aging {
    Kept,
    Halved,
}

impl AttemptTimes {
    /// The number of attempts, of which earlier ones may count less.
    pub(super) fn count(&self) -> u32 {
        self.count
    }

    /// The time that one attempt in twenty exceeds, rounded up by at most 3 %. The maximum of fewer than twenty.
    pub(super) fn p95(&self) -> Option<Duration> {
        (self.count > 0).then(|| Duration::from_nanos(end_of(self.at)))
    }

    /// Counts an attempt.
    pub(super) fn note(&mut self, took: Duration) -> Aging {
        let aging = if self.count >= LATEST { self.halve() } else { Aging::Kept };
        let step = step_of(u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
        if self.steps.len() <= step {
            self.steps.resize(step + 1, 0);
        }
        self.steps[step] += 1;
        self.count += 1;
        self.above += u32::from(step > self.at);
        self.move_to_percentile();
        aging
    }

    fn halve(&mut self) -> Aging {
        self.steps.iter_mut().for_each(|count| *count /= 2);
        let sum = |steps: &[u16]| steps.iter().copied().map(u32::from).sum();
        (self.count, self.above) = (sum(&self.steps), sum(&self.steps[self.at + 1..]));
        Aging::Halved
    }

    /// Moves to the lowest step that at most one attempt in twenty is above.
    fn move_to_percentile(&mut self) {
        let most = self.count / ONE_IN;
        while self.above > most {
            self.at += 1;
            self.above -= u32::from(self.steps[self.at]);
        }
        while self.at > 0 && self.above + u32::from(self.steps[self.at]) <= most {
            self.above += u32::from(self.steps[self.at]);
            self.at -= 1;
        }
    }
}

/// The step of a time: exact below `STEPS` nanoseconds, then `STEPS` steps for each doubling.
fn step_of(nanos: u64) -> usize {
    let shift = (nanos / STEPS).checked_ilog2().unwrap_or(0);
    (u64::from(shift) * STEPS + (nanos >> shift)) as usize
}

/// The largest time of a step.
fn end_of(step: usize) -> u64 {
    let step = step as u64;
    let shift = (step / STEPS).saturating_sub(1);
    let within = step - shift * STEPS;
    (((u128::from(within) + 1) << shift) - 1).try_into().unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    fn times(all: impl IntoIterator<Item = Duration>) -> AttemptTimes {
        let mut times = AttemptTimes::default();
        all.into_iter().for_each(|it| _ = times.note(it));
        times
    }

    fn is_about(found: Option<Duration>, exact: Duration) -> bool {
        let ratio = found.expect("there are some").as_secs_f64() / exact.as_secs_f64();
        (1.0..1.033).contains(&ratio)
    }

    #[test]
    fn a_percentile_is_exceeded_by_its_share() {
        assert_eq!(times([]).p95(), None);
        assert!(is_about(times((1..=19).map(|it| it * MS)).p95(), 19 * MS));
        assert!(is_about(times((1..=1_000).map(|it| it * MS)).p95(), 950 * MS));
        assert!(is_about(times((1..=1_000).rev().map(|it| it * MS)).p95(), 950 * MS));
    }

    #[test]
    fn few_slow_attempts_do_not_move_it() {
        let slow = |it| if it % 50 == 0 { 1_000 * MS } else { 20 * MS };
        assert!(is_about(times((1..=1_000).map(slow)).p95(), 20 * MS));
    }

    #[test]
    fn the_latest_attempts_count_most() {
        let mut times = times((0..8_192).map(|_| MS));
        assert_eq!(times.note(MS), Aging::Halved);
        assert_eq!((times.count(), times.note(MS)), (4_097, Aging::Kept));
        (0..8_192).for_each(|_| _ = times.note(10 * MS));
        assert!(is_about(times.p95(), 10 * MS));
        assert!(times.count() <= LATEST);
    }

    #[test]
    fn every_time_is_in_its_step() {
        let ends = (0..64).flat_map(|bit| [(1_u64 << bit) - 1, 1 << bit, (1 << bit) + 1]);
        for nanos in ends.chain([33, 1_000, 123_456_789, u64::MAX]) {
            let step = step_of(nanos);
            assert!(end_of(step) >= nanos, "{nanos}");
            assert!(step == 0 || end_of(step - 1) < nanos, "{nanos}");
        }
    }
}

//! The batch size of one device, learned while it works.
//!
//! The size doubles from one item. Each doubling is a *candidate*, measured against the size before it. If its first
//! batch is faster per item, it is accepted. If not, more batches of both sizes are measured. A candidate is refused if
//! it is slower, or if the device runs out of memory; then sizes between the two are tried. A line is fitted to all
//! times. Growth stops at the size at which, by this line, the fixed time is 4 %, or at the limit of the latency.
//!
//! After that, an occasional smaller batch keeps the line known. Old batches fade, so the line follows changes.

#[cfg(test)]
mod tests;

use std::time::Duration;

use super::ceiling::Ceiling;
use super::timings::{BatchSums, BatchTime, TimeLine, Timings};

/// The share of the fixed time at the chosen size. The smaller batches and the noise of the times cost some more, and
/// the rate stays within 5 % of the best.
const FIXED_SHARE: f64 = 0.04;
/// If a refused size promises less than this in addition, none below it is tried.
const WORTHWHILE: f64 = 0.03;
/// The minimum number of batches from one smaller batch to the next. Those have a half, a quarter and an eighth of the
/// size in turn.
const PROBE_IN: f64 = 16.0;
/// A smaller batch costs no more than the fixed time. This number bounds the cost to 0.4 % of the time.
const PROBE_COST: f64 = 256.0;
/// The first smaller batches come this many times as often: the first times of a device that warms up are too long.
const FIRST_PROBES: f64 = 4.0;
/// The number of these first smaller batches.
const FIRST: u32 = 6;
/// The batches measured at each size while the fixed time is most of a batch. They cost little while a device warms up.
const WHILE_SMALL: f64 = 3.0;
/// The number of consecutive batches that show a change rather than noise. Each takes at least 1.5 times the expected
/// time, or each less than 0.67 times.
const CHANGED: i32 = 4;
/// The number of batches after which a size that was slower is tried again.
const SLOW_PATIENCE: u32 = 512;
/// The number of batches after which a candidate is judged even if the difference is within the noise.
const ENOUGH: f64 = 8.0;

/// What is learned about the batches of one device.
#[derive(Debug, Clone, Default)]
pub struct DeviceBatches {
    /// The limit of its memory.
    pub(crate) memory: Ceiling,
    tuner: Tuner,
}

/// The size chosen for a device, and the reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChosenSize {
    /// The number of items, or the cost or padded size if that is bounded.
    pub size: u64,
    /// The time of a batch, once two sizes are known.
    pub time: Option<BatchTime>,
    /// What keeps the size from being larger.
    pub bound: SizeBound,
}

/// What keeps a batch from being larger.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "snake_case"))]
pub enum SizeBound {
    /// Larger batches would not be faster, or have not been tried yet.
    #[default]
    Rate,
    /// The device ran out of memory with larger batches.
    Memory,
    /// The size is the largest allowed.
    Limit,
    /// Larger batches would exceed the latency.
    Latency,
}

/// The limits of the size, which do not depend on the device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Bounds {
    pub(crate) most: u64,
    /// How long a batch may take.
    pub(crate) within: Option<Duration>,
    pub(crate) start: FirstGrowth,
}

/// How the size begins to grow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FirstGrowth {
    /// With several batches of each small size, for a device that warms up.
    Slow,
    /// With one, since calls may be waiting.
    Quick,
}

#[derive(Debug, Clone)]
struct Tuner {
    timings: Timings,
    size: u64,
    /// The measured batches of that size.
    sums: BatchSums,
    candidate: Option<Candidate>,
    /// The smallest size that was refused.
    refused: Option<u64>,
    /// The limit below the sizes that were slower than smaller ones.
    slow: Ceiling,
    scatter: Scatter,
    /// Items in an extent of one.
    density: f64,
    since_probe: u32,
    probes: u32,
    /// The number of consecutive batches that took much longer than expected; negative if they took much less time.
    surprises: i32,
}

/// A larger size that is being measured.
#[derive(Debug, Clone, Copy)]
struct Candidate {
    size: u64,
    sums: BatchSums,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Judgement {
    Accepted,
    Refused,
    Open,
}

/// How much the times of equal batches differ.
#[derive(Debug, Clone, Copy)]
struct Scatter {
    count: f64,
    squares: f64,
}

impl Default for Tuner {
    fn default() -> Self {
        Tuner {
            timings: Timings::default(),
            size: 1,
            sums: BatchSums::default(),
            candidate: None,
            refused: None,
            slow: Ceiling::patient(SLOW_PATIENCE),
            // The scatter is as if two batches had differed by 15 %.
            scatter: Scatter { count: 2.0, squares: 2.0 * 0.15 * 0.15 },
            density: 1.0,
            since_probe: 0,
            probes: 0,
            surprises: 0,
        }
    }
}

impl Scatter {
    fn add(&mut self, share: f64) {
        let left = if self.count >= 64.0 { 63.0 / 64.0 } else { 1.0 };
        self.count = self.count * left + 1.0;
        self.squares = self.squares * left + share.min(1.0).powi(2);
    }

    /// The standard deviation of the ratio of two means.
    fn of_ratio(&self, first: f64, second: f64) -> f64 {
        (self.squares / self.count * (1.0 / first + 1.0 / second)).sqrt()
    }
}

impl DeviceBatches {
    /// The limit learned from out-of-memory failures; `None` until the device has run out of memory.
    pub fn memory(&self) -> Option<u64> {
        self.memory.extent()
    }

    /// The size that was chosen.
    pub(crate) fn size(&self, bounds: Bounds) -> ChosenSize {
        let line = self.tuner.timings.line();
        let size = self.tuner.size.min(bounds.most);
        let wanted = self.tuner.wanted(bounds);
        let bound = if self.memory.extent().is_some() && wanted > size {
            SizeBound::Memory
        } else if size == bounds.most && wanted >= size {
            SizeBound::Limit
        } else if bounds.within.is_some() && wanted < u64::MAX {
            SizeBound::Latency
        } else {
            SizeBound::Rate
        };
        ChosenSize { size, time: line.map(|line| line.time()), bound }
    }

    /// The extent of the next batch. Its first item has waited for `waited`.
    pub(crate) fn next(&self, bounds: Bounds, waited: Duration) -> u64 {
        let Tuner { size, sums, candidate, probes, .. } = &self.tuner;
        let next = match candidate {
            Some(candidate) if sums.count < candidate.sums.count => *size,
            Some(candidate) => candidate.size,
            None if self.tuner.is_probe_due() => size >> (1 + probes % 3),
            None => *size,
        };
        let next = match bounds.within {
            // Calls come faster than batches within the latency serve them. The latency is exceeded already, so larger
            // batches are used for their higher rate.
            Some(within) if waited > within => next.max(self.tuner.within(waited, &self.memory)),
            _ => next,
        };
        next.clamp(1, bounds.most)
    }

    /// The largest number of items in the device's next batches.
    pub(crate) fn most_items(&self, bounds: Bounds) -> u64 {
        let Tuner { size, candidate, density, .. } = &self.tuner;
        let size = candidate.map_or(*size, |candidate| candidate.size).min(bounds.most);
        (size as f64 * density).ceil() as u64
    }

    /// The items that the device does per nanosecond, if that is known.
    pub(crate) fn rate(&self) -> Option<f64> {
        self.tuner.sums.rate().map(|rate| rate * self.tuner.density)
    }

    /// Records a batch that succeeded.
    pub(crate) fn took(&mut self, extent: u64, items: u64, took: Duration, bounds: Bounds) {
        let DeviceBatches { memory, tuner } = self;
        let nanos = took.as_nanos().max(1) as f64;
        let extent = extent.max(1);
        let density = items as f64 / extent as f64;
        let is_allowed = memory.extent().is_none_or(|most| extent <= most)
            && tuner.refused.is_none_or(|refused| extent < refused);
        if items == 1 && extent > tuner.size && is_allowed {
            // A batch cannot be smaller than one item, so this size is measured next. The item also bounds how many
            // like it fit into an extent.
            (tuner.size, tuner.sums, tuner.candidate) =
                (extent.min(bounds.most).max(1), BatchSums::default(), None);
            tuner.density = tuner.density.min(density);
        }
        tuner.density += (density - tuner.density) / 4.0;
        tuner.measure(extent, nanos);
        if let Some(candidate) = tuner.candidate {
            match tuner.judge(&candidate, bounds) {
                Judgement::Open => {}
                Judgement::Accepted => {
                    tuner.accept(candidate);
                    memory.raise_to(candidate.size);
                }
                Judgement::Refused => {
                    tuner.slow.fell_short(candidate.size);
                    tuner.refuse(candidate.size);
                    tuner.look_beyond(candidate, bounds);
                }
            }
        }
        tuner.plan(memory, bounds);
    }

    /// Records a batch that ran out of memory.
    pub(crate) fn fell_short(&mut self, extent: u64, bounds: Bounds) {
        if extent == 0 {
            return;
        }
        self.memory.fell_short(extent);
        let DeviceBatches { memory, tuner } = self;
        if extent <= tuner.size {
            tuner.size = memory.extent().map_or(1, |most| most.min(extent / 2).max(1));
            tuner.sums = BatchSums::default();
        }
        tuner.refuse(extent);
        tuner.plan(memory, bounds);
    }
}

impl Tuner {
    /// Adds a batch to the sums of its size.
    fn measure(&mut self, extent: u64, nanos: f64) {
        let share = match &mut self.candidate {
            // A candidate is not yet part of the line: it may be slow for another reason than its size.
            Some(it) if extent > self.size.midpoint(it.size) => it.sums.add(extent, nanos),
            _ => {
                self.look_for_change(extent, nanos);
                self.timings.add(extent, nanos);
                let is_small = extent < self.size - self.size / 4;
                if is_small || self.is_probe_due() {
                    (self.since_probe, self.probes) = (0, self.probes + 1);
                } else {
                    self.since_probe += 1;
                }
                if is_small {
                    return;
                }
                self.slow.went_well(self.size);
                self.sums.add(extent, nanos)
            }
        };
        share.into_iter().for_each(|share| self.scatter.add(share));
    }

    /// Forgets all times after a change, which old ones would hide.
    fn look_for_change(&mut self, extent: u64, nanos: f64) {
        let Some(line) = self.timings.line() else { return };
        self.surprises = match nanos / line.nanos(extent) {
            1.5.. => self.surprises.max(0) + 1,
            ..0.67 => self.surprises.min(0) - 1,
            _ => 0,
        };
        if self.surprises.abs() == CHANGED {
            self.forget();
            (self.sums, self.candidate) = (BatchSums::default(), None);
        }
    }

    /// Forgets the times of all sizes, and measures a smaller one next.
    fn forget(&mut self) {
        (self.timings, self.surprises) = (Timings::default(), 0);
        self.since_probe = PROBE_IN as u32;
    }

    fn is_probe_due(&self) -> bool {
        let share = self.timings.line().map_or(0.0, |line| line.fixed_share(self.size));
        let every = (share * PROBE_COST).max(PROBE_IN);
        let often = if self.probes < FIRST { FIRST_PROBES } else { 1.0 };
        f64::from(self.since_probe) * often >= every && self.size > 1
    }

    /// The number of batches that a size needs before a larger one is tried.
    fn least_count(&self, bounds: Bounds) -> f64 {
        let is_small = self.timings.line().is_none_or(|line| line.fixed_share(self.size) > 0.5);
        if is_small && bounds.start == FirstGrowth::Slow { WHILE_SMALL } else { 1.0 }
    }

    fn judge(&self, candidate: &Candidate, bounds: Bounds) -> Judgement {
        let (Some(new), Some(old)) = (candidate.sums.rate(), self.sums.rate()) else {
            return if candidate.sums.count > 0.0 { Judgement::Accepted } else { Judgement::Open };
        };
        let (ratio, count) = (new / old, candidate.sums.count);
        // The first batch of a size may include a compilation. Below a refused size, less is needed to refuse.
        let is_below = self.refused.is_some_and(|refused| candidate.size < refused);
        let least = if is_below { 1.0 } else { 2.0 };
        let deviation = self.scatter.of_ratio(count, self.sums.count);
        if ratio >= 1.0 {
            let is_enough = count >= self.least_count(bounds);
            if is_enough { Judgement::Accepted } else { Judgement::Open }
        } else if count >= least && ratio < 0.98 - 2.5 * deviation {
            Judgement::Refused
        } else if count < ENOUGH {
            Judgement::Open
        } else if ratio < 0.99 - deviation {
            Judgement::Refused
        } else {
            Judgement::Accepted
        }
    }

    fn accept(&mut self, Candidate { size, sums }: Candidate) {
        let gain = sums.rate().zip(self.sums.rate()).map(|(new, old)| new / old);
        if gain.is_some_and(|gain| gain > 1.25 * size as f64 / self.size as f64) {
            // No size alone makes such a difference.
            self.forget();
        }
        self.timings.merge(size, sums);
        (self.size, self.sums, self.candidate) = (size, sums, None);
        self.refused = self.refused.filter(|&refused| refused > size);
        self.slow.went_well(size);
        self.slow.raise_to(size);
    }

    fn refuse(&mut self, size: u64) {
        self.candidate = None;
        self.refused = Some(self.refused.map_or(size, |refused| refused.min(size)));
    }

    /// Tries twice a refused size too, if that could be the fastest: the fixed time may grow at a size.
    fn look_beyond(&mut self, Candidate { size, sums }: Candidate, bounds: Bounds) {
        let is_first = size == self.size * 2 && size <= bounds.most / 2 && bounds.within.is_none();
        let may_be_faster =
            sums.rate().zip(self.sums.rate()).is_some_and(|(new, old)| new * 2.0 > old);
        if is_first && may_be_faster {
            self.candidate = Some(Candidate { size: size * 2, sums: BatchSums::default() });
        }
    }

    /// The size that the measured times ask for.
    fn wanted(&self, bounds: Bounds) -> u64 {
        let Some(line) = self.timings.line() else { return u64::MAX };
        match bounds.within {
            Some(within) => line.most_within(within.as_nanos() as f64).max(1),
            None => rounded(line.least_with(FIXED_SHARE)).max(1),
        }
    }

    /// The largest size that takes no longer than this, and that was not refused.
    fn within(&self, time: Duration, memory: &Ceiling) -> u64 {
        let most = self.timings.line().map_or(0, |line| line.most_within(time.as_nanos() as f64));
        let refused = self.refused.map_or(u64::MAX, |refused| refused - 1);
        most.min(refused).min(memory.extent().unwrap_or(u64::MAX))
    }

    /// Chooses the next size.
    fn plan(&mut self, memory: &Ceiling, bounds: Bounds) {
        let wanted = self.wanted(bounds).min(bounds.most);
        let slack = if bounds.within.is_some() { self.size / 8 } else { self.size / 5 * 2 };
        if wanted < self.size - slack {
            (self.size, self.candidate) = (wanted, None);
            self.sums = self.timings.of(wanted);
            return;
        }
        let is_beyond = |it: Candidate| self.refused.is_some_and(|refused| it.size > refused);
        let may_begin = !self.is_probe_due() && self.sums.count >= self.least_count(bounds);
        let next = wanted.min(self.size.saturating_mul(2)).min(self.untried(memory));
        match self.candidate {
            Some(candidate) if candidate.sums.count > 0.0 || is_beyond(candidate) => {}
            None if !may_begin => {}
            _ if next <= self.size => self.candidate = None,
            _ => self.candidate = Some(Candidate { size: next, sums: BatchSums::default() }),
        }
    }

    /// The largest size that was not refused, or that is to be tried again.
    fn untried(&self, memory: &Ceiling) -> u64 {
        let Some(refused) = self.refused else { return u64::MAX };
        // Both rise again after many batches.
        let again = [memory, &self.slow].map(|ceiling| ceiling.extent().unwrap_or(u64::MAX));
        let again = again[0].min(again[1]);
        let gap = refused.saturating_sub(self.size);
        let share = |line: TimeLine| line.fixed_share(self.size);
        let gain = self.timings.line().map_or(1.0, share) * gap as f64 / refused as f64;
        if gain > WORTHWHILE { (self.size + gap / 2).max(again) } else { again.max(self.size) }
    }
}

/// Rounds up to three binary digits, so that the size is a multiple of 8 from 32 on: devices work in such steps.
fn rounded(size: u64) -> u64 {
    let digits = size.max(1).ilog2().saturating_sub(2);
    size.div_ceil(1 << digits).saturating_mul(1 << digits)
}

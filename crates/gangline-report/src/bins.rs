//! Sums over time in a bounded number of bins.

#[cfg(test)]
mod tests;

use std::time::Duration;

/// Rows of equal bins; their width doubles when time passes the last bin.
///
/// Widths are powers of two of nanoseconds, so that the bin of a moment is a shift and not a division.
#[derive(Debug, Clone)]
pub(super) struct Bins {
    shift: u32,
    most: usize,
    rows: Vec<Vec<u64>>,
}

/// About a microsecond, so that short runs show detail too.
const FIRST_SHIFT: u32 = 10;

/// 67 ms: in narrower bins, counts taken every 50 ms would leave every other bin empty.
const FIRST_SHIFT_OF_COUNTS: u32 = 26;

/// 36 years. Later moments are counted as this one, so that no sum of times overflows.
const LATEST: u64 = 1 << 60;

/// Nanoseconds, capped at `LATEST`.
pub(super) fn nanos(time: Duration) -> u64 {
    let nanos = time.as_secs().saturating_mul(1_000_000_000);
    nanos.saturating_add(u64::from(time.subsec_nanos())).min(LATEST)
}

impl Bins {
    /// Returns rows of at most `most` bins, a power of two.
    pub(super) fn new(rows: usize, most: usize) -> Self {
        Self::with_shift(FIRST_SHIFT, rows, most)
    }

    /// Returns rows for amounts that are counted every 50 ms.
    pub(super) fn of_counts(rows: usize, most: usize) -> Self {
        Self::with_shift(FIRST_SHIFT_OF_COUNTS, rows, most)
    }

    fn with_shift(shift: u32, rows: usize, most: usize) -> Self {
        debug_assert!(most.is_power_of_two() && most > 1);
        Bins { shift, most, rows: vec![Vec::new(); rows] }
    }

    fn width(&self) -> Duration {
        Duration::from_nanos(1 << self.shift)
    }

    /// Shares an amount evenly among the bins of a time span; each bin gets a whole number.
    pub(super) fn spread(&mut self, row: usize, from: u64, to: u64, amount: u64) {
        self.reach(to);
        let (mut moment, mut shared) = (from, 0);
        while moment < to {
            let bin = moment >> self.shift;
            moment = ((bin + 1) << self.shift).min(to);
            let due = u128::from(amount) * u128::from(moment - from) / u128::from(to - from);
            *self.bin(row, bin) += due as u64 - shared;
            shared = due as u64;
        }
        *self.bin(row, to >> self.shift) += amount - shared;
    }

    /// Adds a time span to the bins that it overlaps.
    pub(super) fn add_time(&mut self, row: usize, from: u64, to: u64) {
        self.reach(to);
        let mut from = from;
        while from < to {
            let bin = from >> self.shift;
            let until = ((bin + 1) << self.shift).min(to);
            *self.bin(row, bin) += until - from;
            from = until;
        }
    }

    /// Returns the bins of all rows, up to the one that contains `end`.
    pub(super) fn until(mut self, end: u64) -> (Duration, Vec<Vec<u64>>) {
        self.reach(end);
        let longest = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let count = longest.max(end.div_ceil(1 << self.shift) as usize);
        self.rows.iter_mut().for_each(|row| row.resize(count, 0));
        (self.width(), self.rows)
    }

    pub(super) fn sum(&self, row: usize) -> u64 {
        self.rows[row].iter().sum()
    }

    fn bin(&mut self, row: usize, bin: u64) -> &mut u64 {
        let (row, bin) = (&mut self.rows[row], bin as usize);
        if row.len() <= bin {
            row.resize(bin + 1, 0);
        }
        &mut row[bin]
    }

    fn reach(&mut self, at: u64) {
        while at >> self.shift >= self.most as u64 {
            self.shift += 1;
            self.rows.iter_mut().for_each(halve);
        }
    }
}

fn halve(row: &mut Vec<u64>) {
    let pairs = row.len().div_ceil(2);
    for pair in 0..pairs {
        row[pair] = row[2 * pair] + row.get(2 * pair + 1).copied().unwrap_or(0);
    }
    row.truncate(pairs);
}

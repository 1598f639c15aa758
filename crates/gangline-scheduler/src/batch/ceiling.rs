//! The largest batch that fits into a device's memory, as far as it is known.

#[cfg(test)]
mod tests;

/// The initial number of successful batches at the ceiling before it rises.
const FIRST_PATIENCE: u32 = 32;
/// The maximum of that number. A batch that is too large costs about as much as one that succeeds.
const MOST_PATIENCE: u32 = 4_096;

/// The batch limit learned from the out-of-memory failures of one device.
///
/// A failure lowers it to half of the failed extent, or to a larger extent below it that has succeeded. After
/// a number of successful batches at the ceiling, it rises by an eighth. If that proves too much, the number
/// doubles.
///
/// This is additive increase and multiplicative decrease, as in TCP's congestion control (RFC 5681), with
/// exponential backoff.
#[derive(Debug, Clone, Copy)]
pub struct Ceiling {
    /// `None` until the device has run out of memory.
    extent: Option<u64>,
    /// The largest extent that has succeeded since.
    proven: u64,
    /// The number of consecutive successful batches at the ceiling.
    streak: u32,
    patience: u32,
}

/// That of a device that has not run out of memory.
impl Default for Ceiling {
    fn default() -> Self {
        Ceiling::patient(FIRST_PATIENCE)
    }
}

impl Ceiling {
    /// A ceiling that rises after this number of successful batches.
    pub(crate) fn patient(patience: u32) -> Self {
        Ceiling { extent: None, proven: 0, streak: 0, patience }
    }

    /// The limit; `None` until the device has run out of memory.
    pub fn extent(&self) -> Option<u64> {
        self.extent
    }

    /// Lowers the ceiling after a batch of this extent ran out of memory.
    pub(crate) fn fell_short(&mut self, extent: u64) {
        // An extent of 0 cannot be the cause. A single item is tried even above the ceiling; its failure must
        // not raise the ceiling.
        if extent == 0 || self.extent.is_some_and(|ceiling| extent > ceiling) {
            return;
        }
        let half = (extent / 2).max(1);
        self.extent = Some(if (half..extent).contains(&self.proven) {
            self.patience = self.patience.saturating_mul(2).min(MOST_PATIENCE);
            self.proven
        } else {
            self.proven = 0;
            half
        });
        self.streak = 0;
    }

    /// Raises the ceiling to an extent that was tried although it is above.
    pub(crate) fn raise_to(&mut self, extent: u64) {
        self.proven = self.proven.max(extent);
        self.extent = self.extent.map(|ceiling| ceiling.max(extent));
    }

    /// Counts a successful batch of this extent.
    pub(crate) fn went_well(&mut self, extent: u64) {
        self.proven = self.proven.max(extent);
        let Some(ceiling) = self.extent else { return };
        // Items of many sizes seldom make a batch of exactly the ceiling.
        if extent < ceiling - ceiling / 8 {
            return;
        }
        self.streak += 1;
        if self.streak >= self.patience {
            self.streak = 0;
            self.extent = Some(ceiling.saturating_add((ceiling / 8).max(1)));
        }
    }
}

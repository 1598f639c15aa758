//! Which producers may have items in their inboxes.

use crossbeam_utils::CachePadded;

use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::run::handover::lane::ProducerLane;

/// A bit for each lane: whether its inbox may have items.
///
/// Each producer looks through the inboxes of all others before it sleeps. With hundreds of producers most
/// inboxes are empty, since each holds one long item in its hook and no more. To look at every inbox would cost
/// an item more with each further producer.
///
/// The owner sets its bit before it notifies others of the items, and clears it when it finds its inbox empty.
#[derive(Debug)]
pub(super) struct Stocked(Box<[CachePadded<AtomicU64>]>);

const BITS: usize = u64::BITS as usize;

impl Stocked {
    pub(super) fn new(lanes: usize) -> Self {
        Stocked((0..lanes.div_ceil(BITS)).map(|_| CachePadded::default()).collect())
    }

    /// Notes that the owner of `lane` has put items into its inbox.
    pub(super) fn set(&self, lane: usize) {
        if !self.has(lane) {
            self.word(lane).fetch_or(bit(lane), Ordering::Relaxed);
        }
    }

    /// Notes that the owner of `lane` has found its inbox empty.
    pub(super) fn clear(&self, lane: usize) {
        if self.has(lane) {
            self.word(lane).fetch_and(!bit(lane), Ordering::Relaxed);
        }
    }

    pub(super) fn has(&self, lane: usize) -> bool {
        self.word(lane).load(Ordering::Relaxed) & bit(lane) != 0
    }

    /// A lane with items in its inbox, if there is one `but` this.
    pub(super) fn find<I, T>(
        &self,
        lanes: &[CachePadded<ProducerLane<I, T>>],
        but: usize,
    ) -> Option<usize> {
        self.set_lanes().find(|&lane| lane != but && !lanes[lane].inbox.is_empty())
    }

    /// The lanes with a set bit.
    fn set_lanes(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().flat_map(|(word, bits)| {
            let mut left = bits.load(Ordering::Relaxed);
            std::iter::from_fn(move || {
                let lowest = left.trailing_zeros() as usize;
                left &= left.checked_sub(1)?;
                Some(word * BITS + lowest)
            })
        })
    }

    fn word(&self, lane: usize) -> &AtomicU64 {
        &self.0[lane / BITS]
    }
}

fn bit(lane: usize) -> u64 {
    1 << (lane % BITS)
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn each_lane_has_a_bit_of_its_own() {
        let stocked = Stocked::new(130);
        let set = [0, 1, 63, 64, 127, 129];
        set.into_iter().for_each(|lane| stocked.set(lane));
        stocked.set(63);
        assert_eq!(stocked.set_lanes().collect::<Vec<_>>(), set);
        stocked.clear(63);
        stocked.clear(2);
        assert_eq!(stocked.set_lanes().collect::<Vec<_>>(), [0, 1, 64, 127, 129]);
        assert_eq!([stocked.has(63), stocked.has(64), stocked.has(128)], [false, true, false]);
    }
}

//! The neighbours that a producer watches for items behind a slow one.

use std::time::{Duration, Instant};

use super::Handover;

/// The maximum number of neighbours that a producer looks at each time.
const WATCHED: usize = 64;
/// The interval between looks, since each costs both sides a little.
const INTERVAL: Duration = Duration::from_micros(50);
/// The progress of a lane that had nothing to steal.
const UNSEEN: u64 = u64::MAX;

/// The neighbours that a producer watches.
#[derive(Debug)]
pub(super) struct Neighbours {
    /// The progress of [`WATCHED`] lanes from `from` on, at the last look.
    seen: Vec<u64>,
    from: usize,
    looked_at: Option<Instant>,
}

impl Neighbours {
    pub(super) fn new(lanes: usize) -> Self {
        Neighbours { seen: vec![UNSEEN; WATCHED.min(lanes)], from: 0, looked_at: None }
    }

    /// Whether it is time for a look.
    pub(super) fn are_due(&self, now: Instant) -> bool {
        self.looked_at.is_none_or(|then| now - then >= INTERVAL)
    }

    /// The lanes with items that have made no progress since the last look.
    pub(super) fn standing_still<I, T>(
        &self,
        handover: &Handover<I, T>,
    ) -> impl Iterator<Item = usize> {
        self.watched(handover.lanes()).zip(&self.seen).filter_map(|(lane, &seen)| {
            let stands_still =
                handover.stocked.has(lane) && handover.lanes[lane].progress() == seen;
            stands_still.then_some(lane)
        })
    }

    /// Notes that nothing was found at this time, and moves on to the next lanes: with more than [`WATCHED`]
    /// producers, only some are looked at each time.
    pub(super) fn move_on<I, T>(&mut self, handover: &Handover<I, T>, now: Instant) {
        self.looked_at = Some(now);
        self.from = (self.from + self.seen.len()) % handover.lanes();
        let progress = |lane: usize| match handover.stocked.has(lane) {
            true => handover.lanes[lane].progress(),
            false => UNSEEN,
        };
        let lanes = self.watched(handover.lanes());
        self.seen.iter_mut().zip(lanes).for_each(|(seen, lane)| *seen = progress(lane));
    }

    fn watched(&self, lanes: usize) -> impl Iterator<Item = usize> + use<> {
        (0..lanes).cycle().skip(self.from).take(self.seen.len())
    }
}

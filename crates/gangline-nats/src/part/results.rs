//! The results of a part: they are published in groups, and their items are acknowledged once a group is stored.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::groups::MessageGroups;
use crate::wire;
use crate::wire::ItemResult;

/// The largest number of bytes of a group of results. A larger one would hold up what follows.
const GROUP: usize = 64 << 10;
/// The longest time for which a result waits for others of its group.
const LINGER: Duration = Duration::from_millis(2);
/// A shorter wait would take as long.
const LEAST_LINGER: Duration = Duration::from_millis(1);

/// A result with its encoded output.
#[derive(Debug)]
pub(super) struct FinishedItem {
    pub(super) result: ItemResult,
    pub(super) output: Vec<u8>,
}

/// The results that are not stored yet.
#[derive(Debug)]
pub(super) struct ResultGroups {
    waiting: MessageGroups<FinishedItem>,
    /// The publications of each group that is under way, by the number of the group.
    under_way: BTreeMap<u64, Vec<u64>>,
    /// The number of groups so far.
    count: u64,
    /// How long results may wait for others: an eighth of the time of the last hook.
    linger: Duration,
    /// The place of the last result in the stream of results.
    last_place: u64,
    /// The largest number of bytes of a value in a message.
    most_inline: usize,
}

impl ResultGroups {
    pub(super) fn new(most_inline: usize) -> Self {
        ResultGroups {
            waiting: MessageGroups::new(most_inline.min(GROUP)),
            under_way: BTreeMap::new(),
            count: 0,
            linger: Duration::ZERO,
            last_place: 0,
            most_inline,
        }
    }

    /// Adds a result, whose hook took this long.
    pub(super) fn add(&mut self, finished: FinishedItem, busy: Duration, at: Instant) {
        let FinishedItem { result, output } = &finished;
        // The coordinator reads an object before it acknowledges the message, so no other result waits for that.
        let bytes = match result.object {
            Some(_) => self.most_inline,
            None => wire::encode(result).len() + output.len(),
        };
        let linger = (busy / 8).min(LINGER);
        self.linger = if linger < LEAST_LINGER { Duration::ZERO } else { linger };
        self.waiting.add(finished, bytes, at + self.linger);
    }

    /// Takes the next group that is to be published now, with its number. If no other hook runs, no result waits for others.
    pub(super) fn next(&mut self, now: Instant, begun: usize) -> Option<(u64, Vec<FinishedItem>)> {
        if begun == 0 {
            self.waiting.hurry(now);
        }
        let group = self.waiting.next(now)?;
        self.count += 1;
        let publications = group.iter().map(|it| it.result.publication).collect();
        self.under_way.insert(self.count, publications);
        Some((self.count, group))
    }

    /// The broker has stored a group at a place, or does not. Returns the publications of the group.
    pub(super) fn stored(&mut self, group: u64, place: Option<u64>, at: Instant) -> Vec<u64> {
        self.last_place = self.last_place.max(place.unwrap_or(0));
        let Some(publications) = self.under_way.remove(&group) else { return vec![] };
        self.waiting.arrived(at + self.linger);
        publications
    }

    pub(super) fn last_place(&self) -> u64 {
        self.last_place
    }

    pub(super) fn next_time(&self) -> Option<Instant> {
        self.waiting.next_time()
    }
}

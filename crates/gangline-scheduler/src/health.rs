//! Which producers are live, and whether an item or its producer is to blame for a failure.

#[cfg(test)]
mod tests;

use std::sync::Arc;

use super::gpus::Gpus;
use super::lease::ProducerId;

/// The producers of a run, with the failures that each is suspected of.
///
/// An item that failed is tried by other producers. If one of them succeeds, the item is cleared; if enough
/// of them fail, the item is to blame. A producer with several open failures in a row gets no new items:
/// a device that fails fast would otherwise go through the whole input. Once that number of them is cleared,
/// the producer is to blame and is quarantined.
#[derive(Debug)]
pub struct ProducerHealth {
    /// The number of producers that have to fail an item to blame it (at least two), and of items to blame a
    /// producer.
    quarantine_after: Option<usize>,
    producers: Vec<ProducerRecord>,
    /// The devices of each place; `None` where no two producers share a GPU.
    places: Option<Arc<[Gpus]>>,
    /// The number of suspects of all producers together.
    suspects: usize,
    /// Changes whenever the answers of [`may_try`](ProducerHealth::may_try) may change.
    version: u64,
}

#[derive(Debug, Default)]
struct ProducerRecord {
    presence: Presence,
    /// The items that it failed since its last success.
    suspects: Vec<Suspect>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Presence {
    #[default]
    Available,
    /// It is in a hook whose result does not count. Nothing may wait for it.
    Detached,
    /// It takes no part, but joins when the hook that it is in returns.
    Absent,
    Lost,
}

impl Presence {
    /// Whether it counts as a producer of the run.
    fn is_live(self) -> bool {
        matches!(self, Presence::Available | Presence::Detached)
    }
}

#[derive(Debug)]
struct Suspect {
    item: u64,
    /// Whether another producer succeeded with it.
    is_cleared: bool,
}

/// What is to blame for the failures of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Blame {
    /// Not known until another producer has tried the item.
    Open,
    Item,
}

/// How much an attempt of a producer shows about an item that others failed; the best evidence first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Evidence {
    /// The producer shares no GPU with any of them.
    Independent,
    /// The producer lacks a GPU that all of them have.
    LacksCommonGpu,
    Another,
    /// The producer is one of them.
    Repeated,
}

impl ProducerHealth {
    pub(super) fn new(
        producers: usize,
        quarantine_after: Option<usize>,
        places: Option<Arc<[Gpus]>>,
    ) -> Self {
        ProducerHealth {
            quarantine_after,
            producers: (0..producers).map(|_| ProducerRecord::default()).collect(),
            places,
            suspects: 0,
            version: 0,
        }
    }

    pub(super) fn version(&self) -> u64 {
        self.version
    }

    pub(super) fn live(&self) -> usize {
        self.producers.iter().filter(|it| it.presence.is_live()).count()
    }

    /// Whether a producer counts as one of the run.
    pub fn is_live(&self, producer: ProducerId) -> bool {
        self.producers[producer].presence.is_live()
    }

    /// Whether a producer may take new items.
    pub fn may_take_new(&self, producer: ProducerId) -> bool {
        self.is_live(producer) && !self.is_suspended(producer)
    }

    /// Whether other parties may wait for this producer.
    pub(super) fn is_available(&self, producer: ProducerId) -> bool {
        self.producers[producer].presence == Presence::Available
    }

    fn available(&self) -> impl Iterator<Item = ProducerId> {
        (0..self.producers.len()).filter(|&producer| self.is_available(producer))
    }

    /// Whether a producer may try an item that `tried` have failed.
    ///
    /// It has to be another one, if there is one. With quarantine, no available producer
    /// may have better [`Evidence`]. Some available producer always may.
    pub(super) fn may_try(&self, producer: ProducerId, tried: &[ProducerId]) -> bool {
        if self.quarantine_after.is_none() {
            return !tried.contains(&producer) || !self.has_another_than(tried);
        }
        let own = self.evidence(producer, tried);
        self.available().all(|other| own <= self.evidence(other, tried))
    }

    /// For each producer, whether it [may try](ProducerHealth::may_try) an item that `tried` have failed. Only
    /// `keeper` may, while it is available.
    pub(super) fn all_that_may_try(
        &self,
        tried: &[ProducerId],
        keeper: Option<ProducerId>,
    ) -> Vec<bool> {
        let keeper = keeper.filter(|&keeper| self.is_available(keeper));
        let may_try = |producer| match keeper {
            Some(keeper) => producer == keeper,
            None => self.is_live(producer) && self.may_try(producer, tried),
        };
        (0..self.producers.len()).map(may_try).collect()
    }

    fn evidence(&self, producer: ProducerId, tried: &[ProducerId]) -> Evidence {
        if tried.contains(&producer) {
            Evidence::Repeated
        } else if tried.iter().all(|&other| !self.share_gpu(producer, other)) {
            Evidence::Independent
        } else if self.lacks_a_gpu_of_all(producer, tried) {
            Evidence::LacksCommonGpu
        } else {
            Evidence::Another
        }
    }

    /// Whether a GPU that all of `tried` have, and `producer` has not, could be the cause.
    fn lacks_a_gpu_of_all(&self, producer: ProducerId, tried: &[ProducerId]) -> bool {
        let (Some(places), [first, rest @ ..]) = (&self.places, tried) else { return false };
        let mut common =
            places[*first].iter().filter(|&gpu| rest.iter().all(|&it| places[it].has(gpu)));
        common.any(|gpu| !places[producer].has(gpu))
    }

    fn share_gpu(&self, one: ProducerId, other: ProducerId) -> bool {
        self.places.as_ref().is_some_and(|places| places[one].overlap(&places[other]))
    }

    fn has_another_than(&self, tried: &[ProducerId]) -> bool {
        self.available().any(|producer| !tried.contains(&producer))
    }

    /// The producers that should help `slow` before `helper` does: `helper` shares a GPU with `slow`, and
    /// they do not.
    pub(super) fn better_helpers(
        &self,
        helper: ProducerId,
        slow: ProducerId,
    ) -> impl Iterator<Item = ProducerId> {
        let shares = self.share_gpu(helper, slow);
        self.available()
            .filter(move |&other| shares && other != slow && !self.share_gpu(other, slow))
    }

    /// Records that the last of `tried` has failed `item`; the others failed it before.
    pub(super) fn failed(&mut self, item: u64, tried: &[ProducerId]) -> Blame {
        let Some(least) = self.quarantine_after else { return Blame::Item };
        let producer = *tried.last().expect("a producer has failed it");
        let suspects = &mut self.producers[producer].suspects;
        if suspects.iter().all(|suspect| suspect.item != item) {
            suspects.push(Suspect { item, is_cleared: false });
            self.suspects += 1;
        }
        // One failure cannot tell whether the item or its producer is to blame. Nor can failures of all
        // producers on one GPU.
        let lacks_evidence = tried.len() < least.max(2) && self.has_another_than(tried);
        if lacks_evidence || self.available().any(|other| self.lacks_a_gpu_of_all(other, tried)) {
            return Blame::Open;
        }
        self.blame_item(item);
        Blame::Item
    }

    /// Clears the suspicion of `item`: it is to blame, or it is no longer wanted.
    pub(super) fn blame_item(&mut self, item: u64) {
        if self.suspects == 0 {
            return;
        }
        for producer in &mut self.producers {
            producer.suspects.retain(|suspect| suspect.item != item);
        }
        self.count_suspects();
    }

    /// Records that a producer succeeded with `item`. Returns the producers that this shows to be to blame;
    /// they are lost.
    ///
    /// At least one producer is left: the one that succeeded.
    pub(super) fn succeeded(&mut self, item: u64, producer: ProducerId) -> Vec<ProducerId> {
        let Some(least) = self.quarantine_after.filter(|_| self.suspects > 0) else {
            return vec![];
        };
        self.producers[producer].suspects.clear();
        let mut guilty = Vec::new();
        for (other, it) in self.producers.iter_mut().enumerate() {
            let found = it.suspects.iter_mut().find(|suspect| suspect.item == item);
            found.into_iter().for_each(|suspect| suspect.is_cleared = true);
            let cleared = it.suspects.iter().filter(|suspect| suspect.is_cleared).count();
            if it.presence.is_live() && cleared >= least {
                guilty.push(other);
            }
        }
        self.count_suspects();
        guilty.iter().for_each(|&producer| self.lose(producer));
        guilty
    }

    /// Failures no longer have consequences for producers.
    pub(super) fn forgive_all(&mut self) {
        self.quarantine_after = None;
        self.producers.iter_mut().for_each(|producer| producer.suspects.clear());
        self.suspects = 0;
        self.version += 1;
    }

    /// Whether a producer gets no new items, while the blame for its failures is open.
    pub(super) fn is_suspended(&self, producer: ProducerId) -> bool {
        let suspects = self.producers[producer].suspects.len();
        self.quarantine_after.is_some_and(|least| suspects >= least)
            && self.has_another_than(&[producer])
    }

    /// Whether a producer has failed since its last success.
    pub fn is_suspect(&self, producer: ProducerId) -> bool {
        !self.producers[producer].suspects.is_empty()
    }

    /// Whether any producer has failed since its last success.
    pub(super) fn has_suspects(&self) -> bool {
        self.suspects > 0
    }

    /// Notes that the producer is in a hook whose result does not count.
    pub(super) fn detach(&mut self, producer: ProducerId) {
        self.change(producer, Presence::Detached);
    }

    /// Excludes the producer from the run until it rejoins.
    pub(super) fn leave(&mut self, producer: ProducerId) {
        self.change(producer, Presence::Absent);
        self.producers[producer].suspects.clear();
        self.count_suspects();
    }

    /// Notes that this hook has returned.
    pub(super) fn rejoin(&mut self, producer: ProducerId) {
        self.change(producer, Presence::Available);
    }

    /// Removes the producer from the run.
    pub(super) fn lose(&mut self, producer: ProducerId) {
        self.change(producer, Presence::Lost);
        self.producers[producer].suspects.clear();
        self.count_suspects();
    }

    fn change(&mut self, producer: ProducerId, presence: Presence) {
        let now = &mut self.producers[producer].presence;
        if *now != presence && *now != Presence::Lost {
            *now = presence;
            self.version += 1;
        }
    }

    fn count_suspects(&mut self) {
        self.suspects = self.producers.iter().map(|producer| producer.suspects.len()).sum();
    }
}

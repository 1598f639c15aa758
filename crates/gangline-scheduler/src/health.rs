//! Which producers are live, and whether an item or its producer is to blame for a failure.

use std::sync::Arc;

use super::gpus::Gpus;
use super::lease::{Generation, ProducerId};

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
    producers: Vec<Producer>,
    /// The devices of each place; `None` where no two producers share a GPU.
    places: Option<Arc<[Gpus]>>,
    /// The number of producers that may still replace lost ones.
    spares: usize,
    /// The number of suspects of all producers together.
    suspects: usize,
    /// Changes whenever the answers of [`may_try`](ProducerHealth::may_try) may change.
    version: u64,
}

#[derive(Debug, Default)]
struct Producer {
    presence: Presence,
    /// The items that it failed since its last success.
    suspects: Vec<Suspect>,
    generation: Generation,
    successor: Successor,
}

/// Whether another producer is to take the place of a lost one, which may still be in a hook.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Successor {
    #[default]
    None,
    /// Nothing starts it yet.
    Due,
    /// It has not joined yet.
    Starting,
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
    /// Without replacements.
    #[cfg(test)]
    pub(super) fn without_spares(
        producers: usize,
        quarantine_after: Option<usize>,
        places: Option<Arc<[Gpus]>>,
    ) -> Self {
        Self::new((producers, 0), quarantine_after, places)
    }

    pub(super) fn new(
        (producers, spares): (usize, usize),
        quarantine_after: Option<usize>,
        places: Option<Arc<[Gpus]>>,
    ) -> Self {
        ProducerHealth {
            quarantine_after,
            producers: (0..producers).map(|_| Producer::default()).collect(),
            places,
            spares,
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

    /// Whether the latest producer of the place is live and has joined.
    pub(super) fn is_present(&self, producer: ProducerId) -> bool {
        self.is_live(producer) && !self.awaits_successor(producer)
    }

    /// Whether a producer may take new items.
    pub fn may_take_new(&self, producer: ProducerId) -> bool {
        self.is_present(producer) && !self.is_suspended(producer)
    }

    /// Whether a producer that was lost as this generation has been replaced.
    pub fn is_replaced(&self, producer: ProducerId, generation: Generation) -> bool {
        let Producer { generation: latest, successor, .. } = self.producers[producer];
        generation < latest - Generation::from(successor == Successor::Due)
    }

    /// Which of the producers of its place in the run the producer is.
    pub fn generation(&self, producer: ProducerId) -> Generation {
        self.producers[producer].generation
    }

    /// Whether the producer is lost, and the one that is to replace it has not joined yet.
    pub(super) fn awaits_successor(&self, producer: ProducerId) -> bool {
        self.producers[producer].successor != Successor::None
    }

    pub(super) fn can_replace(&self) -> bool {
        self.spares > 0
    }

    /// Removes the producer for good, and has another join in its place. That one counts as a producer of the run at
    /// once, but nothing waits for it until it joins.
    pub(super) fn replace(&mut self, producer: ProducerId) {
        if !self.can_replace() {
            return;
        }
        self.spares -= 1;
        self.lose(producer);
        let it = &mut self.producers[producer];
        (it.presence, it.successor) = (Presence::Detached, Successor::Due);
        it.generation += 1;
        self.version += 1;
    }

    /// The generation of the producer to start in the place of this one, once.
    pub(super) fn take_replacement(&mut self, producer: ProducerId) -> Option<Generation> {
        let is_live = self.is_live(producer);
        let it = &mut self.producers[producer];
        let is_due = is_live && it.successor == Successor::Due;
        is_due.then(|| {
            it.successor = Successor::Starting;
            it.generation
        })
    }

    /// Notes that the latest producer of the place is here.
    pub(super) fn join(&mut self, producer: ProducerId) {
        self.producers[producer].successor = Successor::None;
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
        let is_lost = self.awaits_successor(producer);
        let suspects = &mut self.producers[producer].suspects;
        // The failures of a lost producer say nothing of the one that replaces it.
        if !is_lost && suspects.iter().all(|suspect| suspect.item != item) {
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
        if !self.awaits_successor(producer) {
            self.change(producer, Presence::Available);
        }
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

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;

    fn quarantining(producers: usize) -> ProducerHealth {
        ProducerHealth::without_spares(producers, Some(2), None)
    }

    fn without(producers: usize, quarantine_after: usize, lost: ProducerId) -> ProducerHealth {
        let mut health = ProducerHealth::without_spares(producers, Some(quarantine_after), None);
        health.lose(lost);
        health
    }

    /// Producers with these GPUs.
    fn on(gpus: &[&[usize]], quarantine_after: Option<usize>) -> ProducerHealth {
        let places = gpus.iter().map(|gpus| gpus.iter().copied().collect()).collect();
        ProducerHealth::without_spares(gpus.len(), quarantine_after, Some(places))
    }

    #[test]
    fn a_lost_producer_is_replaced_in_its_place_once() {
        let mut health = ProducerHealth::new((2, 1), Some(1), None);
        health.replace(1);
        assert!(!health.can_replace() && health.is_live(1) && !health.is_available(1));
        assert!(!health.is_replaced(1, 0), "nothing has taken it yet");
        health.failed(3, &[1]);
        assert!(!health.is_suspect(1), "the lost one has failed it");
        assert_eq!((health.take_replacement(1), health.take_replacement(1)), (Some(1), None));
        assert!(health.is_replaced(1, 0) && !health.is_replaced(1, 1));
        health.rejoin(1);
        assert!(!health.is_available(1), "the lost one has returned from a hook");
        health.join(1);
        health.rejoin(1);
        assert!(health.is_available(1) && health.generation(1) == 1);
        health.replace(1);
        assert!(health.is_live(1), "no other can be started, so the scheduler loses it");
    }

    #[test]
    fn helpers_that_share_no_gpu_with_the_slow_producer_are_better() {
        let health = on(&[&[0], &[0], &[1], &[]], None);
        assert_eq!(health.better_helpers(1, 0).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(health.better_helpers(2, 0).count(), 0, "it shares none itself");
    }

    #[test]
    fn the_version_changes_when_failures_are_forgiven() {
        let mut health = quarantining(2);
        let before = health.version();
        health.forgive_all();
        assert_ne!(health.version(), before);
    }

    #[test]
    fn what_is_forgiven_suspends_no_producer() {
        let mut health = quarantining(2);
        assert!(!health.has_suspects());
        health.failed(3, &[0]);
        health.failed(4, &[0]);
        assert!(health.has_suspects() && health.is_suspended(0));
        health.forgive_all();
        assert!(!health.has_suspects() && !health.is_suspect(0) && !health.is_suspended(0));
        assert!(health.succeeded(3, 1).is_empty(), "and quarantines none");
    }

    #[test]
    fn a_producer_that_leaves_or_is_lost_is_no_suspect() {
        for remove in [ProducerHealth::lose, ProducerHealth::leave] {
            let mut health = quarantining(3);
            health.failed(3, &[0]);
            remove(&mut health, 0);
            assert!(!health.has_suspects());
        }
    }

    #[test]
    fn an_item_that_two_producers_fail_is_to_blame() {
        let mut health = quarantining(3);
        assert_eq!(health.failed(7, &[0]), Blame::Open);
        assert_eq!(health.failed(7, &[0, 1]), Blame::Item);
        assert!(!health.is_suspect(0) && !health.is_suspect(1));
    }

    #[test]
    fn an_item_has_no_more_producers_to_fail_than_there_are() {
        let mut health = without(3, 5, 2);
        assert_eq!(health.failed(7, &[0]), Blame::Open);
        assert_eq!(health.failed(7, &[0, 1]), Blame::Item);
        health.lose(1);
        assert_eq!(health.failed(8, &[0]), Blame::Item, "no other is live");
    }

    #[test]
    fn a_producer_whose_items_are_done_by_others_is_to_blame() {
        let mut health = quarantining(2);
        health.failed(3, &[0]);
        assert!(!health.is_suspended(0));
        health.failed(4, &[0]);
        assert!(health.is_suspended(0), "no third item, until it is known");
        assert!(health.succeeded(3, 1).is_empty());
        assert_eq!(health.succeeded(4, 1), [0]);
        assert!(!health.is_live(0));
        assert_eq!(health.live(), 1);
    }

    #[test]
    fn after_one_failure_it_takes_another_producer_to_say_whose_fault_it_is() {
        let mut health = ProducerHealth::without_spares(3, Some(1), None);
        assert_eq!(health.failed(3, &[0]), Blame::Open);
        assert!(health.is_suspended(0));
        assert_eq!(health.succeeded(3, 1), [0]);
        assert_eq!(health.failed(4, &[1]), Blame::Open);
        assert_eq!(health.failed(4, &[1, 2]), Blame::Item);
        assert_eq!(health.live(), 2);
    }

    #[test]
    fn bad_items_in_a_row_are_not_held_against_a_producer() {
        let mut health = quarantining(2);
        for item in 0..10 {
            assert_eq!(health.failed(item, &[0]), Blame::Open);
            assert_eq!(health.failed(item, &[0, 1]), Blame::Item);
        }
        assert_eq!(health.live(), 2);
        assert!(!health.is_suspended(0) && !health.is_suspended(1));
    }

    #[test]
    fn a_producer_that_is_done_with_an_item_has_failed_none_in_a_row() {
        let mut health = quarantining(2);
        health.failed(3, &[0]);
        assert!(health.succeeded(4, 0).is_empty());
        health.failed(5, &[0]);
        assert!(health.succeeded(3, 1).is_empty());
        assert!(health.succeeded(5, 1).is_empty(), "3 and 5 are not in a row");
        assert_eq!(health.live(), 2);
    }

    #[test]
    fn the_last_one_is_never_suspended() {
        let mut health = without(2, 1, 1);
        assert_eq!(health.failed(0, &[0]), Blame::Item);
        assert_eq!(health.failed(1, &[0]), Blame::Item);
        assert!(!health.is_suspended(0));
    }

    #[test]
    fn nothing_waits_for_a_producer_that_is_away() {
        let mut health = ProducerHealth::without_spares(2, Some(1), None);
        assert_eq!(health.failed(3, &[0]), Blame::Open);
        assert!(health.is_suspended(0));
        health.detach(1);
        assert!(!health.is_suspended(0) && health.may_try(0, &[0]));
        assert_eq!(health.failed(4, &[0]), Blame::Item);
        assert_eq!(health.live(), 2, "it takes part");
        health.rejoin(1);
        assert!(health.is_suspended(0) && !health.may_try(0, &[0]));
    }

    fn may_try(health: &ProducerHealth, tried: &[usize]) -> Vec<usize> {
        health.available().filter(|&producer| health.may_try(producer, tried)).collect()
    }

    #[test]
    fn producers_of_one_gpu_are_one_witness_against_an_item() {
        let mut health = on(&[&[0], &[1], &[1], &[1]], Some(2));
        assert_eq!(health.failed(7, &[1]), Blame::Open);
        assert_eq!(may_try(&health, &[1]), [0]);
        assert_eq!(health.failed(7, &[1, 2]), Blame::Open, "2 had begun when 0 was away");
        assert_eq!(health.failed(7, &[1, 2, 3]), Blame::Open);
        assert_eq!(health.failed(7, &[1, 2, 3, 0]), Blame::Item);
    }

    #[test]
    fn where_all_are_of_one_gpu_they_are_all_the_witnesses_there_are() {
        let mut health = on(&[&[0], &[1], &[1], &[1]], Some(2));
        health.lose(0);
        assert_eq!(health.failed(7, &[1]), Blame::Open);
        assert_eq!(may_try(&health, &[1]), [2, 3]);
        assert_eq!(health.failed(7, &[1, 2]), Blame::Item);
    }

    #[test]
    fn once_all_gpus_have_failed_an_item_any_other_producer_tries_it() {
        let mut health = on(&[&[0], &[0], &[1], &[1]], Some(3));
        assert_eq!(health.failed(7, &[0]), Blame::Open);
        assert_eq!(may_try(&health, &[0]), [2, 3]);
        assert_eq!(health.failed(7, &[0, 3]), Blame::Open);
        assert_eq!(may_try(&health, &[0, 3]), [1, 2]);
        assert_eq!(health.failed(7, &[0, 3, 1]), Blame::Item);
    }

    #[test]
    fn a_producer_with_none_of_their_gpus_goes_before_one_with_some() {
        let mut health = on(&[&[0], &[0, 1], &[1], &[0]], Some(2));
        assert_eq!(health.failed(7, &[0]), Blame::Open);
        assert_eq!(may_try(&health, &[0]), [2]);
        assert_eq!(health.failed(7, &[0, 1]), Blame::Open, "2 was away: it may be GPU 0");
        assert_eq!(may_try(&health, &[0, 1]), [2], "it is not on all of theirs");
        assert_eq!(may_try(&health, &[1]), [0, 2, 3]);
        assert_eq!(health.failed(7, &[0, 1, 2]), Blame::Item, "no GPU is common to them");
    }

    #[test]
    fn without_quarantine_any_other_producer_tries_an_item() {
        let health = on(&[&[0], &[0], &[0], &[]], None);
        assert_eq!(may_try(&health, &[0]), [1, 2, 3]);
        assert_eq!(may_try(&health, &[0, 1, 2, 3]), [0, 1, 2, 3]);
    }

    proptest! {
        /// Runs failing producers and bad items in any schedule. Some producer can always go on, and no good
        /// producer is quarantined. Every good item is done as long as there are good producers, and few bad
        /// ones or a lost GPU.
        #[test]
        fn the_guilty_one_is_found(
            producers in proptest::collection::vec((0u32..8, 0usize..8), 1..6),
            lost in 0u32..8,
            bad_items in proptest::collection::vec(any::<bool>(), 1..30),
            quarantine_after in 1usize..4,
            schedule in proptest::collection::vec(0usize..6, 0..400),
        ) {
            // The GPUs of each producer as bits; one producer in eight fails by itself.
            let gpus = |&(gpus, _): &(u32, usize)| (0..3).filter(|n| gpus >> n & 1 == 1).collect();
            let places = Some(producers.iter().map(gpus).collect());
            let is_one_lost = lost.count_ones() == 1 && producers.iter().all(|&(_, by_itself)| by_itself > 0);
            let is_good = |(gpus, by_itself): (u32, usize)| gpus & lost == 0 && by_itself > 0;
            let producers: Vec<bool> = producers.into_iter().map(is_good).collect();
            let mut health = ProducerHealth::without_spares(producers.len(), Some(quarantine_after), places);
            let mut fresh: VecDeque<u64> = (0..bad_items.len() as u64).collect();
            let mut again: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            let mut done = BTreeMap::new();
            let in_turn = (0..producers.len()).cycle().take(20 * producers.len() * bad_items.len());
            for producer in schedule.into_iter().map(|turn| turn % producers.len()).chain(in_turn) {
                if !health.is_live(producer) {
                    continue;
                }
                let retry = again.iter().find(|(_, tried)| health.may_try(producer, tried));
                let retry = retry.map(|(&item, tried)| (item, tried.clone()));
                let mut new = || fresh.pop_front().map(|item| (item, vec![]));
                let next = match retry {
                    Some(retry) => Some(retry),
                    None if health.is_suspended(producer) => None,
                    None => new(),
                };
                let Some((item, mut tried)) = next else { continue };
                again.remove(&item);
                if producers[producer] && !bad_items[item as usize] {
                    done.insert(item, true);
                    let guilty = health.succeeded(item, producer);
                    prop_assert!(guilty.iter().all(|&guilty| !producers[guilty]));
                    continue;
                }
                tried.retain(|&other| other != producer);
                tried.push(producer);
                match health.failed(item, &tried) {
                    Blame::Open => _ = again.insert(item, tried),
                    Blame::Item => _ = done.insert(item, false),
                }
            }
            prop_assert!(health.live() > 0);
            prop_assert_eq!(done.len(), bad_items.len(), "every item has an end");
            let bad_producers = producers.iter().filter(|&&is_good| !is_good).count();
            let has_good = bad_producers < producers.len();
            if has_good && (is_one_lost || quarantine_after.max(2) > bad_producers) {
                for (item, is_bad) in bad_items.iter().enumerate() {
                    prop_assert_eq!(done[&(item as u64)], !is_bad, "item {}", item);
                }
            }
        }
    }
}

//! Which producers are there, and whose fault a failure is.

use std::sync::Arc;

use crate::device::Place;

/// The producers of one run, with what each is suspected of.
///
/// An item that fails is tried by others, until one of them is done with it, which clears the item, or so
/// many have failed it that it is the item's own fault. A producer that fails one item after the other is
/// given no new ones until it is known which of these were to blame: a device that fails fast would
/// otherwise go through the whole input. Once so many of them were cleared in a row it is the producer's fault.
#[derive(Debug)]
pub(crate) struct Roster {
    /// How many producers have to fail an item, two at least, and how many items a producer, to be to blame.
    /// `None` where nobody asks.
    quarantine_after: Option<usize>,
    producers: Vec<Standing>,
    /// Where each producer is. `None` where nobody shares a GPU.
    places: Option<Arc<[Place]>>,
}

#[derive(Debug, Default)]
struct Standing {
    is_gone: bool,
    /// It is still in a call that nobody waits for, so nothing may wait for it.
    is_away: bool,
    /// The items that it failed since it was last done with one.
    suspects: Vec<Suspect>,
}

#[derive(Debug)]
struct Suspect {
    item: u64,
    /// Another producer was done with it.
    is_cleared: bool,
}

/// Whose fault the failure of an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// That is known once another producer has tried it.
    Open,
    Item,
}

/// What a producer's word is worth against an item that others have failed, the best first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Witness {
    /// It shares no GPU with any of them.
    Elsewhere,
    /// It does not have a GPU that all of them have.
    NotOnAll,
    Another,
    /// It is one of them.
    Again,
}

impl Roster {
    /// `gone`: those that do not take part.
    pub(crate) fn new(
        producers: usize,
        quarantine_after: Option<usize>,
        gone: impl IntoIterator<Item = usize>,
    ) -> Self {
        let mut roster = Roster {
            quarantine_after,
            producers: (0..producers).map(|_| Standing::default()).collect(),
            places: None,
        };
        gone.into_iter().for_each(|producer| roster.remove(producer));
        roster
    }

    /// With producers that may share GPUs: one that is gone fails an item for all of them, so that they are no
    /// better witnesses against it than one of them.
    pub(crate) fn with_places(self, places: Arc<[Place]>) -> Self {
        debug_assert_eq!(places.len(), self.producers.len(), "each producer has one");
        Roster { places: Some(places), ..self }
    }

    /// How many producers are there.
    pub(crate) fn here(&self) -> usize {
        self.producers.iter().filter(|producer| !producer.is_gone).count()
    }

    pub(crate) fn is_here(&self, producer: usize) -> bool {
        !self.producers[producer].is_gone
    }

    /// Whether `producer` is one of those that may try an item that `tried` have failed: another producer, if
    /// there is one, and where it is asked whose fault that was, the best witness there is. Somebody always may.
    pub(crate) fn may_try(&self, producer: usize, tried: &[usize]) -> bool {
        if self.quarantine_after.is_none() {
            return !tried.contains(&producer) || !self.has_another_than(tried);
        }
        let own = self.witness(producer, tried);
        self.there().all(|other| own <= self.witness(other, tried))
    }

    fn witness(&self, producer: usize, tried: &[usize]) -> Witness {
        if tried.contains(&producer) {
            Witness::Again
        } else if tried.iter().all(|&other| !self.share_gpu(producer, other)) {
            Witness::Elsewhere
        } else if self.lacks_a_gpu_of_all(producer, tried) {
            Witness::NotOnAll
        } else {
            Witness::Another
        }
    }

    /// Whether a GPU that is gone could be why all of `tried` have failed an item, and `producer` does not have it.
    fn lacks_a_gpu_of_all(&self, producer: usize, tried: &[usize]) -> bool {
        let (Some(places), [first, rest @ ..]) = (&self.places, tried) else { return false };
        let mut common =
            places[*first].gpus().filter(|&gpu| rest.iter().all(|&it| places[it].has(gpu)));
        common.any(|gpu| !places[producer].has(gpu))
    }

    fn share_gpu(&self, one: usize, other: usize) -> bool {
        self.places.as_ref().is_some_and(|places| places[one].shares_gpu(&places[other]))
    }

    /// Whether there is a producer that is none of `tried`, and not away.
    fn has_another_than(&self, tried: &[usize]) -> bool {
        self.there().any(|producer| !tried.contains(&producer))
    }

    /// Those who are to help `slow` before `producer` does, since it shares a GPU with it and they do not.
    pub(crate) fn better_helpers(
        &self,
        producer: usize,
        slow: usize,
    ) -> impl Iterator<Item = usize> {
        let shares = self.share_gpu(producer, slow);
        self.there().filter(move |&other| shares && other != slow && !self.share_gpu(other, slow))
    }

    /// Those that something may wait for.
    fn there(&self) -> impl Iterator<Item = usize> {
        let producers = self.producers.iter().enumerate();
        let there = producers.filter(|(_, producer)| !producer.is_gone && !producer.is_away);
        there.map(|(producer, _)| producer)
    }

    /// The last of `tried` has failed `item`; those before it did so before.
    pub(crate) fn failed(&mut self, item: u64, tried: &[usize]) -> Fault {
        let Some(most) = self.quarantine_after else { return Fault::Item };
        let producer = *tried.last().expect("somebody has failed it");
        let suspects = &mut self.producers[producer].suspects;
        if suspects.iter().all(|suspect| suspect.item != item) {
            suspects.push(Suspect { item, is_cleared: false });
        }
        // One producer's word against an item says nothing of which of the two it is. Nor does that of all
        // producers on one GPU.
        let has_few_witnesses = tried.len() < most.max(2) && self.has_another_than(tried);
        if has_few_witnesses || self.there().any(|other| self.lacks_a_gpu_of_all(other, tried)) {
            return Fault::Open;
        }
        self.blame(item);
        Fault::Item
    }

    /// `item` was to blame for its failures, or nobody asks any more.
    pub(crate) fn blame(&mut self, item: u64) {
        for producer in &mut self.producers {
            producer.suspects.retain(|suspect| suspect.item != item);
        }
    }

    /// A producer was done with `item`. The producers that are to blame for failures, if that shows it,
    /// which take part no more. The last one never is: there was another to show it.
    pub(crate) fn succeeded(&mut self, item: u64, producer: usize) -> Vec<usize> {
        self.producers[producer].suspects.clear();
        let Some(most) = self.quarantine_after else { return vec![] };
        let mut guilty = Vec::new();
        for (number, producer) in self.producers.iter_mut().enumerate() {
            let found = producer.suspects.iter_mut().find(|suspect| suspect.item == item);
            found.into_iter().for_each(|suspect| suspect.is_cleared = true);
            let cleared = producer.suspects.iter().filter(|suspect| suspect.is_cleared).count();
            if !producer.is_gone && cleared >= most {
                guilty.push(number);
            }
        }
        guilty.iter().for_each(|&producer| self.remove(producer));
        guilty
    }

    /// Nobody asks any more whose fault a failure is.
    pub(crate) fn forgive(&mut self) {
        self.quarantine_after = None;
    }

    /// Whether a producer takes no new items, since it is not known whose fault its failures are.
    pub(crate) fn is_suspended(&self, producer: usize) -> bool {
        let suspects = self.producers[producer].suspects.len();
        self.quarantine_after.is_some_and(|most| suspects >= most)
            && self.has_another_than(&[producer])
    }

    /// Whether a producer has failed what it last worked on.
    pub(crate) fn is_suspect(&self, producer: usize) -> bool {
        !self.producers[producer].suspects.is_empty()
    }

    /// A producer has lost a race for an item, and is still at it.
    pub(crate) fn leave(&mut self, producer: usize) {
        self.producers[producer].is_away = true;
    }

    /// It is not at it any more. Whether it was away.
    pub(crate) fn come_back(&mut self, producer: usize) -> bool {
        std::mem::take(&mut self.producers[producer].is_away)
    }

    /// A producer takes part no more.
    pub(crate) fn remove(&mut self, producer: usize) {
        self.producers[producer] = Standing { is_gone: true, ..Standing::default() };
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, VecDeque};

    use proptest::prelude::*;

    use super::*;
    use crate::device::{Device, Devices};

    fn roster(producers: usize) -> Roster {
        Roster::new(producers, Some(2), [])
    }

    #[test]
    fn an_item_that_two_producers_fail_is_to_blame() {
        let mut roster = roster(3);
        assert_eq!(roster.failed(7, &[0]), Fault::Open);
        assert_eq!(roster.failed(7, &[0, 1]), Fault::Item);
        assert!(!roster.is_suspect(0) && !roster.is_suspect(1));
    }

    #[test]
    fn an_item_has_no_more_producers_to_fail_than_there_are() {
        let mut roster = Roster::new(3, Some(5), [2]);
        assert_eq!(roster.failed(7, &[0]), Fault::Open);
        assert_eq!(roster.failed(7, &[0, 1]), Fault::Item);
        roster.remove(1);
        assert_eq!(roster.failed(8, &[0]), Fault::Item, "nobody else is there");
    }

    #[test]
    fn a_producer_whose_items_are_done_by_others_is_to_blame() {
        let mut roster = roster(2);
        roster.failed(3, &[0]);
        assert!(!roster.is_suspended(0));
        roster.failed(4, &[0]);
        assert!(roster.is_suspended(0), "no third item, until it is known");
        assert!(roster.succeeded(3, 1).is_empty());
        assert_eq!(roster.succeeded(4, 1), [0]);
        assert!(!roster.is_here(0));
        assert_eq!(roster.here(), 1);
    }

    #[test]
    fn after_one_failure_it_takes_another_producer_to_say_whose_fault_it_is() {
        let mut roster = Roster::new(3, Some(1), []);
        assert_eq!(roster.failed(3, &[0]), Fault::Open);
        assert!(roster.is_suspended(0));
        assert_eq!(roster.succeeded(3, 1), [0]);
        assert_eq!(roster.failed(4, &[1]), Fault::Open);
        assert_eq!(roster.failed(4, &[1, 2]), Fault::Item);
        assert_eq!(roster.here(), 2);
    }

    #[test]
    fn bad_items_in_a_row_are_not_held_against_a_producer() {
        let mut roster = roster(2);
        for item in 0..10 {
            assert_eq!(roster.failed(item, &[0]), Fault::Open);
            assert_eq!(roster.failed(item, &[0, 1]), Fault::Item);
        }
        assert_eq!(roster.here(), 2);
        assert!(!roster.is_suspended(0) && !roster.is_suspended(1));
    }

    #[test]
    fn a_producer_that_is_done_with_an_item_has_failed_none_in_a_row() {
        let mut roster = roster(2);
        roster.failed(3, &[0]);
        assert!(roster.succeeded(4, 0).is_empty());
        roster.failed(5, &[0]);
        assert!(roster.succeeded(3, 1).is_empty());
        assert!(roster.succeeded(5, 1).is_empty(), "3 and 5 are not in a row");
        assert_eq!(roster.here(), 2);
    }

    #[test]
    fn the_last_one_is_never_suspended() {
        let mut roster = Roster::new(2, Some(1), [1]);
        assert_eq!(roster.failed(0, &[0]), Fault::Item);
        assert_eq!(roster.failed(1, &[0]), Fault::Item);
        assert!(!roster.is_suspended(0));
    }

    #[test]
    fn nothing_waits_for_a_producer_that_is_away() {
        let mut roster = Roster::new(2, Some(1), []);
        assert_eq!(roster.failed(3, &[0]), Fault::Open);
        assert!(roster.is_suspended(0));
        roster.leave(1);
        assert!(!roster.is_suspended(0) && roster.may_try(0, &[0]));
        assert_eq!(roster.failed(4, &[0]), Fault::Item);
        assert_eq!(roster.here(), 2, "it takes part");
        assert!(roster.come_back(1) && !roster.come_back(1));
        assert!(roster.is_suspended(0) && !roster.may_try(0, &[0]));
    }

    fn places(devices: &str) -> Arc<[Place]> {
        devices.parse::<Devices>().unwrap().places_with_gpus().unwrap()
    }

    fn may_try(roster: &Roster, tried: &[usize]) -> Vec<usize> {
        roster.there().filter(|&producer| roster.may_try(producer, tried)).collect()
    }

    #[test]
    fn producers_of_one_gpu_are_one_witness_against_an_item() {
        let mut roster = roster(4).with_places(places("cuda:0,cuda:1*3"));
        assert_eq!(roster.failed(7, &[1]), Fault::Open);
        assert_eq!(may_try(&roster, &[1]), [0]);
        assert_eq!(roster.failed(7, &[1, 2]), Fault::Open, "2 had begun when 0 was away");
        assert_eq!(roster.failed(7, &[1, 2, 3]), Fault::Open);
        assert_eq!(roster.failed(7, &[1, 2, 3, 0]), Fault::Item);
    }

    #[test]
    fn where_all_are_of_one_gpu_they_are_all_the_witnesses_there_are() {
        let mut roster = roster(4).with_places(places("cuda:0,cuda:1*3"));
        roster.remove(0);
        assert_eq!(roster.failed(7, &[1]), Fault::Open);
        assert_eq!(may_try(&roster, &[1]), [2, 3]);
        assert_eq!(roster.failed(7, &[1, 2]), Fault::Item);
    }

    #[test]
    fn once_all_gpus_have_failed_an_item_any_other_producer_tries_it() {
        let mut roster = Roster::new(4, Some(3), []).with_places(places("cuda:0*2,cuda:1*2"));
        assert_eq!(roster.failed(7, &[0]), Fault::Open);
        assert_eq!(may_try(&roster, &[0]), [2, 3]);
        assert_eq!(roster.failed(7, &[0, 3]), Fault::Open);
        assert_eq!(may_try(&roster, &[0, 3]), [1, 2]);
        assert_eq!(roster.failed(7, &[0, 3, 1]), Fault::Item);
    }

    #[test]
    fn who_has_none_of_their_gpus_is_asked_before_who_has_one_less() {
        let chain = places("cuda:0,cuda:0+cuda:1,cuda:1,cuda:0");
        let mut roster = roster(4).with_places(chain);
        assert_eq!(roster.failed(7, &[0]), Fault::Open);
        assert_eq!(may_try(&roster, &[0]), [2]);
        assert_eq!(roster.failed(7, &[0, 1]), Fault::Open, "2 was away: it may be GPU 0");
        assert_eq!(may_try(&roster, &[0, 1]), [2], "it is not on all of theirs");
        assert_eq!(may_try(&roster, &[1]), [0, 2, 3]);
        assert_eq!(roster.failed(7, &[0, 1, 2]), Fault::Item, "no GPU is common to them");
    }

    #[test]
    fn where_nobody_asks_whose_fault_it_is_any_other_producer_tries_an_item() {
        let roster = Roster::new(4, None, []).with_places(places("cuda:0*3,cpu"));
        assert_eq!(may_try(&roster, &[0]), [1, 2, 3]);
        assert_eq!(may_try(&roster, &[0, 1, 2, 3]), [0, 1, 2, 3]);
    }

    proptest! {
        /// Producers that fail everything and items that everybody fails, in any schedule: somebody can
        /// always go on, every good item is done while there are good producers and few bad ones, or one GPU is
        /// gone, and no good producer is quarantined.
        #[test]
        fn whoever_is_to_blame_is_found(
            producers in proptest::collection::vec((0u32..8, 0usize..8), 1..6),
            lost in 0u32..8,
            bad_items in proptest::collection::vec(any::<bool>(), 1..30),
            quarantine_after in 1usize..4,
            schedule in proptest::collection::vec(0usize..6, 0..400),
        ) {
            // The GPUs of each as bits; those that fail by themselves are one in eight.
            let place = |&(gpus, _): &(u32, usize)| match (0..3).filter(|n| gpus >> n & 1 == 1) {
                none if none.clone().next().is_none() => vec![Device::Cpu],
                some => some.map(|n| Device::Cuda(n as usize)).collect(),
            };
            let devices = Devices::from_places(producers.iter().map(place)).unwrap();
            let is_one_lost = lost.count_ones() == 1 && producers.iter().all(|&(_, by_itself)| by_itself > 0);
            let is_good = |(gpus, by_itself): (u32, usize)| gpus & lost == 0 && by_itself > 0;
            let producers: Vec<bool> = producers.into_iter().map(is_good).collect();
            let mut roster = Roster::new(producers.len(), Some(quarantine_after), []);
            if let Some(places) = devices.places_with_gpus() {
                roster = roster.with_places(places);
            }
            let mut fresh: VecDeque<u64> = (0..bad_items.len() as u64).collect();
            let mut again: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
            let mut done = BTreeMap::new();
            let in_turn = (0..producers.len()).cycle().take(20 * producers.len() * bad_items.len());
            for producer in schedule.into_iter().map(|turn| turn % producers.len()).chain(in_turn) {
                if !roster.is_here(producer) {
                    continue;
                }
                let retry = again.iter().find(|(_, tried)| roster.may_try(producer, tried));
                let retry = retry.map(|(&item, tried)| (item, tried.clone()));
                let mut new = || fresh.pop_front().map(|item| (item, vec![]));
                let next = match retry {
                    Some(retry) => Some(retry),
                    None if roster.is_suspended(producer) => None,
                    None => new(),
                };
                let Some((item, mut tried)) = next else { continue };
                again.remove(&item);
                if producers[producer] && !bad_items[item as usize] {
                    done.insert(item, true);
                    let guilty = roster.succeeded(item, producer);
                    prop_assert!(guilty.iter().all(|&guilty| !producers[guilty]));
                    continue;
                }
                tried.retain(|&other| other != producer);
                tried.push(producer);
                match roster.failed(item, &tried) {
                    Fault::Open => _ = again.insert(item, tried),
                    Fault::Item => _ = done.insert(item, false),
                }
            }
            prop_assert!(roster.here() > 0);
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

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;

use super::*;

fn quarantining(producers: usize) -> ProducerHealth {
    ProducerHealth::new(producers, Some(2), None)
}

fn without(producers: usize, quarantine_after: usize, lost: ProducerId) -> ProducerHealth {
    let mut health = ProducerHealth::new(producers, Some(quarantine_after), None);
    health.lose(lost);
    health
}

/// Producers with these GPUs.
fn on(gpus: &[&[usize]], quarantine_after: Option<usize>) -> ProducerHealth {
    let places = gpus.iter().map(|gpus| gpus.iter().copied().collect()).collect();
    ProducerHealth::new(gpus.len(), quarantine_after, Some(places))
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
    let mut health = ProducerHealth::new(3, Some(1), None);
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
    let mut health = ProducerHealth::new(2, Some(1), None);
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
        let mut health = ProducerHealth::new(producers.len(), Some(quarantine_after), places);
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

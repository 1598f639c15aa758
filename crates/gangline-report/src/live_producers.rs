//! The producers of a run that were not lost: their names, number and mean times.

use std::borrow::Cow;
use std::time::Duration;

use super::formats::Many;
use super::producer_report::share;
use super::vocabulary::{ITEMS, WORKERS, Words};
use crate::totals::{ProducerTotals, Totals};

/// Returns the words for a run: that of a cluster has workers.
pub(super) fn words(totals: &Totals) -> &'static Words {
    if totals.producers.iter().any(is_of_cluster) { &WORKERS } else { &ITEMS }
}

/// Returns the share of their time that producers spent in this way. Lost producers do not count, unless all were lost.
pub(super) fn mean(totals: &Totals, of: impl Fn(&ProducerTotals) -> Duration) -> f64 {
    let every_one_was_lost = totals.producers.iter().all(is_lost);
    let counted = || totals.producers.iter().filter(|it| every_one_was_lost || !is_lost(it));
    let time = |it| of(it).min(presence(it, totals));
    share(counted().map(time).sum(), counted().map(|it| presence(it, totals)).sum())
}

/// Returns the totals without the seats that no worker has had.
pub(super) fn without_vacant(totals: &Totals) -> Cow<'_, Totals> {
    if !totals.producers.iter().any(ProducerTotals::is_vacant) {
        return Cow::Borrowed(totals);
    }
    let mut totals = totals.clone();
    totals.producers.retain(|producer| !producer.is_vacant());
    Cow::Owned(totals)
}

/// Says how many producers were lost.
pub(super) fn lost(totals: &Totals) -> String {
    let lost = totals.producers.iter().filter(|producer| is_lost(producer)).count();
    match lost {
        0 => String::new(),
        1 => format!("; 1 of {} was lost during the run", all_producers(totals)),
        _ => format!("; {} of {} were lost during the run", lost, all_producers(totals)),
    }
}

/// Names the producers that averages are taken over.
pub(super) fn producers(totals: &Totals) -> String {
    let all = totals.producers.len();
    let lost = totals.producers.iter().filter(|producer| is_lost(producer)).count();
    let Words { producer: one, producers: many, .. } = words(totals);
    match all - lost {
        // If every producer was lost, averages are over all.
        0 if all > 1 => format!("the {all} {many}"),
        0 => format!("the {one}"),
        1 if lost == 0 => format!("the {one}"),
        1 => format!("the remaining {one}"),
        left if lost == 0 => format!("the {left} {many}"),
        left => format!("the {left} remaining {many}"),
    }
}

pub(super) fn all_producers(totals: &Totals) -> Many {
    Many(totals.producers.len() as u64, words(totals).producer)
}

pub(super) fn is_of_cluster(producer: &ProducerTotals) -> bool {
    producer.worker.as_ref().is_some_and(|worker| worker.host.is_some())
}

/// Returns the time that a producer took part. A worker of a cluster may join in the middle of a run.
fn presence(producer: &ProducerTotals, totals: &Totals) -> Duration {
    match is_of_cluster(producer) {
        true => producer.working + producer.rebuilding + producer.waiting,
        false => totals.lasted,
    }
}

fn is_lost(producer: &ProducerTotals) -> bool {
    let worker = producer.worker.as_ref();
    let has_lost_worker = worker.is_some_and(|worker| worker.lost.is_some());
    producer.quarantined.is_some() || producer.abandoned || has_lost_worker
}

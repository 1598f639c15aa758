//! The producers of a run that were not lost: their names, number and mean times.

use std::borrow::Cow;
use std::time::Duration;

use super::conclusion::{Team, TeamPlace};
use super::producer_report::share;
use crate::totals::{ProducerTotals, Totals};

/// Counts the producers of a run.
pub(super) fn team(totals: &Totals) -> Team {
    let producers = || totals.producers.iter();
    let place = match () {
        () if producers().any(is_of_cluster) => TeamPlace::Cluster,
        () if producers().any(|it| it.worker.is_some()) => TeamPlace::Processes,
        () => TeamPlace::Threads,
    };
    let lost = producers().filter(|producer| is_lost(producer)).count() as u64;
    Team { all: totals.producers.len() as u64, lost, place }
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

pub(super) fn is_of_cluster(producer: &ProducerTotals) -> bool {
    producer.worker.as_ref().is_some_and(|worker| worker.host.is_some())
}

/// Returns the time that a producer took part. A worker of a cluster may join in the middle of a run.
fn presence(producer: &ProducerTotals, totals: &Totals) -> Duration {
    match is_of_cluster(producer) {
        true => producer.working + producer.rebuilding + producer.waiting + producer.aside.dead,
        false => totals.lasted,
    }
}

fn is_lost(producer: &ProducerTotals) -> bool {
    let worker = producer.worker.as_ref();
    let has_lost_worker = worker.is_some_and(|worker| worker.lost.is_some());
    producer.quarantined.is_some() || producer.abandoned || has_lost_worker
}

//! The producers of a run that were not lost: their names, number and mean times.

use std::time::Duration;

use super::conclusion::{Team, TeamPlace};
use super::producer_report::{ProducerReport, share};
use super::run_report::RunReport;

/// Counts the producers of a run.
pub(super) fn team(run: &RunReport) -> Team {
    let producers = || run.producers.iter();
    let place = match () {
        () if producers().any(is_of_cluster) => TeamPlace::Cluster,
        () if producers().any(|it| it.worker.is_some()) => TeamPlace::Processes,
        () => TeamPlace::Threads,
    };
    let lost = producers().filter(|producer| producer.is_lost()).count() as u64;
    Team { all: run.producers.len() as u64, lost, place }
}

/// Returns the share of their time that producers spent in this way. Lost producers do not count, unless all were lost.
pub(super) fn mean(run: &RunReport, of: impl Fn(&ProducerReport) -> Duration) -> f64 {
    let every_one_was_lost = run.producers.iter().all(ProducerReport::is_lost);
    let counted = || run.producers.iter().filter(|it| every_one_was_lost || !it.is_lost());
    let time = |it| of(it).min(presence(it, run));
    share(counted().map(time).sum(), counted().map(|it| presence(it, run)).sum())
}

pub(super) fn is_of_cluster(producer: &ProducerReport) -> bool {
    producer.worker.as_ref().is_some_and(|worker| worker.host.is_some())
}

/// Returns the time in which the window was full and the producer had no item.
///
/// The producer notes what it lacks when it begins to wait, and the window may fill a moment later. So the result is at
/// least the time by which its waits and those of the source must overlap.
pub(super) fn held_up(producer: &ProducerReport, run: &RunReport) -> Duration {
    let both = run.source_waiting + producer.waiting;
    producer.times.order.max(both.saturating_sub(run.lasted))
}

/// Returns the time that a producer took part. A worker of a cluster may join in the middle of a run.
fn presence(producer: &ProducerReport, run: &RunReport) -> Duration {
    match is_of_cluster(producer) {
        true => producer.working + producer.rebuilding + producer.waiting + producer.times.dead,
        false => run.lasted,
    }
}

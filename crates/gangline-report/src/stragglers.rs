//! Producers and items that held up the others.

use std::collections::BTreeSet;
use std::time::Duration;

use super::formats::{Time, item};
use super::producer_report::ProducerReport;
use super::run_report::{RunReport, StageReport};
use super::slowest::SlowItem;

/// A producer that takes much longer for an item than the others.
pub(super) struct SlowProducer {
    pub(super) producer: usize,
    median: Duration,
    others: Duration,
}

/// A producer is slow from this multiple of the others' median on.
const SLOW_PRODUCER: f64 = 1.5;

/// An item is slow from this multiple of the median on, if it took this share of the run too.
const SLOW_ITEM: f64 = 3.0;
const LEAST_SHARE: f64 = 0.02;

const MOST_ITEMS: usize = 5;
const MOST_PRODUCERS: usize = 5;

/// The largest number of producers of which all are shown at once. Of more, only the notable ones are: at most
/// `MOST_PRODUCERS` that were lost or slow, and `FEW` of each other kind.
const MOST_SHOWN: usize = 16;
const FEW: usize = 2;

/// With fewer items, the median is chance.
const FEWEST_ITEMS: u64 = 5;

/// Returns the slow producers, at most five, the slowest first. The stages of a pipeline are not compared with
/// each other.
pub(super) fn slow_producers(report: &RunReport) -> Vec<SlowProducer> {
    let numbered: Vec<_> = report.producers.iter().enumerate().collect();
    let stages = numbered.chunk_by(|one, other| one.1.stage == other.1.stage);
    let mut slow: Vec<SlowProducer> = stages.flat_map(slow_of).collect();
    slow.sort_by(|one, other| other.multiple().total_cmp(&one.multiple()));
    slow.truncate(MOST_PRODUCERS);
    slow
}

/// Returns the slow ones of these producers.
fn slow_of(producers: &[(usize, &ProducerReport)]) -> Vec<SlowProducer> {
    let median = |producer: &ProducerReport| {
        producer.latency.filter(|latency| latency.count >= FEWEST_ITEMS).map(|latency| latency.p50)
    };
    let medians = producers.iter().filter_map(|(n, producer)| Some((median(producer)?, *n)));
    let mut medians: Vec<(Duration, usize)> = medians.collect();
    medians.sort();
    // The lower half, so that one of two producers can be slow.
    let Some(&(others, _)) = medians.get(medians.len().saturating_sub(1) / 2) else {
        return vec![];
    };
    let slow =
        medians.into_iter().map(|(median, producer)| SlowProducer { producer, median, others });
    slow.rev().take_while(|slow| slow.multiple() >= SLOW_PRODUCER).collect()
}

impl SlowProducer {
    /// How many times the median of the others it takes.
    fn multiple(&self) -> f64 {
        times(self.median, self.others)
    }
}

/// Returns the numbers of all producers, and how many of them are shown at once. If that is not all, they are the lost
/// ones, the slowest, the fastest, and those that failed most or worked least; the others follow.
pub(super) fn notable_first(report: &RunReport) -> (Vec<usize>, usize) {
    let producers = &report.producers;
    if producers.len() <= MOST_SHOWN {
        return ((0..producers.len()).collect(), producers.len());
    }
    let by = |rank: &dyn Fn(&ProducerReport) -> Option<Duration>| {
        let ranked = producers.iter().enumerate().filter_map(|(n, it)| Some((rank(it)?, n)));
        let mut ranked: Vec<_> = ranked.collect();
        ranked.sort();
        ranked.into_iter().map(|(_, producer)| producer).collect::<Vec<_>>()
    };
    // The mean without item events, which give no median.
    let fastest = by(&|it| match it.latency {
        Some(latency) => Some(latency.p50),
        None => it.working.checked_div(u32::try_from(it.items).ok()?),
    });
    let failed = by(&|it| (it.failed > 0).then(|| Duration::from_nanos(it.failed)));
    let mut shown = BTreeSet::new();
    let lost = (0..producers.len()).filter(|&n| producers[n].is_lost());
    shown.extend(lost.take(MOST_PRODUCERS));
    shown.extend(slow_producers(report).into_iter().map(|slow| slow.producer));
    shown.extend(fastest.iter().rev().take(FEW).chain(fastest.iter().take(FEW)));
    shown.extend(failed.iter().rev().take(FEW));
    shown.extend(by(&|it| Some(it.working)).iter().take(FEW));
    let others = (0..producers.len()).filter(|producer| !shown.contains(producer));
    (shown.iter().copied().chain(others).collect(), shown.len())
}

/// Returns the items that took much longer than others, at most five, the slowest first.
pub(super) fn slow_items(report: &RunReport) -> Vec<&SlowItem> {
    let is_slow = |slow: &&SlowItem| {
        median(report, slow).is_some_and(|median| times(slow.took, median) >= SLOW_ITEM)
            && times(slow.took, report.lasted) >= LEAST_SHARE
    };
    report.slowest.iter().filter(is_slow).take(MOST_ITEMS).collect()
}

/// Returns the median of the attempts that this one is compared with: of the run, or in a pipeline of its stage.
fn median(report: &RunReport, slow: &SlowItem) -> Option<Duration> {
    let latency = report.latency.or_else(|| stage_of(report, slow.producer).0.latency)?;
    (latency.count >= FEWEST_ITEMS).then_some(latency.p50)
}

/// Returns the report that has the attempts of a producer, and its number there. In a pipeline it is that of its stage,
/// each of which counts its producers from 0.
pub(super) fn stage_of(report: &RunReport, mut producer: usize) -> (&RunReport, usize) {
    for StageReport { report, .. } in &report.stages {
        match producer.checked_sub(report.producers.len()) {
            None => return (report, producer),
            Some(later) => producer = later,
        }
    }
    (report, producer)
}

/// Describes the stragglers of a run, one sentence each, with keys of at most `key` characters.
pub(super) fn sentences(report: &RunReport, key: usize) -> Vec<String> {
    let words = report.words();
    let (producer, producers) = (words.producer, words.producers);
    let slow_producers = slow_producers(report).into_iter().map(|slow| {
        format!(
            "straggler: {producer} {} ({}) takes {} per {}, {:.1} times the median of the {producers}",
            slow.producer,
            report.producers[slow.producer].place,
            Time(slow.median),
            words.item,
            slow.multiple(),
        )
    });
    let items = slow_items(report).into_iter().map(|slow| {
        let median = median(report, slow).unwrap_or_default();
        format!(
            "straggler: {} took {} on {producer} {}, {:.1} times the median",
            item(words, slow.item, slow.key.as_deref(), key),
            Time(slow.took),
            slow.producer,
            times(slow.took, median),
        )
    });
    slow_producers.chain(items).collect()
}

fn times(of: Duration, whole: Duration) -> f64 {
    of.as_secs_f64() / whole.as_secs_f64().max(1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::PlayedRun;

    /// Two producers with items of these times, in milliseconds.
    fn played(first: [u64; 6], second: [u64; 6]) -> RunReport {
        let mut run = PlayedRun::new(2);
        let mut item = 0;
        for (producer, times) in [first, second].into_iter().enumerate() {
            let mut at = 0;
            for took in times {
                run.start(at, producer, item, 1);
                at += took * 1_000;
                run.finish(at, producer, item);
                item += 1;
            }
        }
        run.end(100_000)
    }

    #[test]
    fn an_even_run_has_no_stragglers() {
        let report = played([10, 11, 12, 13, 14, 15], [15, 14, 13, 12, 11, 10]);
        assert!(sentences(&report, 20).is_empty());
    }

    #[test]
    fn a_slow_producer_is_named() {
        let report = played([10; 6], [16; 6]);
        let says = "straggler: producer 1 (cuda:1) takes 16.0 ms per item, 1.6 times the median of the producers";
        assert_eq!(sentences(&report, 20), [says]);
    }

    #[test]
    fn of_many_producers_the_notable_come_first() {
        let all = |producers| notable_first(&PlayedRun::new(producers).end(1_000));
        assert_eq!(all(16), ((0..16).collect(), 16));
        let mut report = PlayedRun::new(64).end(1_000);
        for (number, producer) in report.producers.iter_mut().enumerate() {
            producer.items = 10;
            producer.working = Duration::from_secs(100 + number as u64);
        }
        report.producers[20].abandoned = true;
        report.producers[30].failed = 5;
        report.producers[40].working = Duration::from_secs(1_000);
        report.producers[50].working = Duration::from_secs(1);
        let (order, shown) = notable_first(&report);
        assert_eq!(order[..shown], [0, 20, 30, 40, 50, 63]);
        assert_eq!(order[shown..][..3], [1, 2, 3]);
        let every: BTreeSet<_> = order.iter().collect();
        assert_eq!((every.len(), order.len()), (64, 64));
    }

    #[test]
    fn a_slow_item_is_named() {
        let report = played([10; 6], [10, 10, 40, 10, 10, 10]);
        let says = "straggler: item 8 (key 8) took 40.0 ms on producer 1, 4.0 times the median";
        assert_eq!(sentences(&report, 20), [says]);
    }

    #[test]
    fn an_item_of_a_pipeline_is_compared_with_its_stage() {
        let stage =
            |report: &RunReport| StageReport { name: "same".to_owned(), report: report.clone() };
        let slow = played([16; 6], [16; 6]);
        let mut report = played([10; 6], [10, 10, 40, 10, 10, 10]);
        let quick = stage(&report);
        report.latency = None;
        report.stages = vec![quick.clone(), stage(&slow)];
        let says = "straggler: item 8 (key 8) took 40.0 ms on producer 1, 4.0 times the median";
        assert_eq!(sentences(&report, 20), [says]);

        report.stages = vec![stage(&slow), quick];
        assert!(slow_items(&report).is_empty(), "it is quick in the stage of that producer");
    }
}

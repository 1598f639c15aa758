//! Attempts and failures over time.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::formats::{LONGEST_KEPT, clipped, shortened};
use super::report_lane::LaneWork;
use crate::failure::Failure;
use crate::seconds;

/// One attempt at one item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Span {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if the builder has a [key](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.key); at
    /// most 200 characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The producer's number.
    pub producer: usize,
    /// The attempt; the first is 1.
    pub attempt: u32,
    /// When the attempt began, from the start of the run.
    #[serde(with = "seconds")]
    pub start: Duration,
    /// How long the attempt took, without the time that its hook
    /// [counted](https://docs.rs/gangline/latest/gangline/struct.ProducerContext.html#method.count_as) as no work. Items of
    /// a batch begin and end together.
    #[serde(with = "seconds")]
    pub took: Duration,
    /// Whether the attempt had not ended when the report was made or the run ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_open: bool,
}

/// A failure, a retry, a rebuilt state, or the loss of a producer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Incident {
    /// When it happened, from the start of the run.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// The kind.
    pub kind: IncidentKind,
    /// The number of the producer, if it happened on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer: Option<usize>,
    /// The item's index in the input, if it concerns an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// How long it took, up to `at`, if it has a duration.
    #[serde(with = "seconds", skip_serializing_if = "Duration::is_zero")]
    pub took: Duration,
    /// The error, or the reason for the quarantine; at most 200 characters.
    pub text: String,
}

/// The kind of an incident.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IncidentKind {
    /// An item failed for good.
    #[default]
    Failed,
    /// An attempt failed and was followed by another.
    Retried,
    /// A producer called `producer_init` again, since it had lost its state to a panic or to the end of its child process.
    Rebuilt,
    /// A producer was quarantined because its device failed.
    Quarantined,
    /// A producer was abandoned because it did not return in time.
    Abandoned,
    /// Another producer was started in the place of a lost one.
    Replaced,
    /// A worker of a cluster was lost.
    WorkerLost,
}

impl IncidentKind {
    pub(super) fn text(self) -> &'static str {
        match self {
            IncidentKind::Failed => "failed",
            IncidentKind::Retried => "retried",
            IncidentKind::Rebuilt => "producer_init again",
            IncidentKind::Quarantined => "quarantined",
            IncidentKind::Abandoned => "abandoned",
            IncidentKind::Replaced => "replaced",
            IncidentKind::WorkerLost => "worker lost",
        }
    }
}

/// Counts of attempts, in equal steps of the logarithm of their times.
pub(super) struct AttemptCounts {
    /// The powers of ten between which the times are, in seconds.
    pub(super) from: i32,
    pub(super) until: i32,
    pub(super) counts: Vec<u64>,
}

/// Fewer attempts have no distribution: the list of the slowest has most of them.
const FEWEST: usize = 10;

/// Narrower columns could not be distinguished.
const MOST_COLUMNS: i32 = 120;
const MOST_COLUMNS_OF_A_POWER: i32 = 24;

/// The bounds on kept spans, and on incidents that may be as many as items.
pub(super) const MOST_SPANS: usize = 100_000;
pub(super) const MOST_INCIDENTS: usize = 10_000;

/// The spans so far. At the bound they take 6 MB and the space of their keys.
#[derive(Debug, Default)]
pub(super) struct RecordedSpans {
    kept: Vec<(usize, LaneWork, u64)>,
    pub(super) left_out: u64,
}

impl RecordedSpans {
    /// Keeps an attempt that took `took` nanoseconds, if there is room.
    pub(super) fn keep(&mut self, producer: usize, mut work: LaneWork, took: u64) {
        if self.kept.len() < MOST_SPANS {
            work.key = work.key.as_ref().map(short);
            self.kept.push((producer, work, took));
        } else {
            self.left_out += 1;
        }
    }

    pub(super) fn report(&self) -> Vec<Span> {
        self.kept.iter().map(|(producer, work, took)| span(*producer, work, *took)).collect()
    }

    pub(super) fn room(&self) -> usize {
        MOST_SPANS - self.kept.len()
    }
}

/// Returns the span of an attempt that took `took` nanoseconds.
pub(super) fn span(producer: usize, work: &LaneWork, took: u64) -> Span {
    Span {
        item: work.item,
        key: work.key.as_ref().map(|key| short(key).to_string()),
        producer,
        attempt: work.attempt,
        // Mostly the time aside comes first, as that for `--load` does.
        start: Duration::from_nanos(work.start.saturating_add(work.aside)),
        took: Duration::from_nanos(took),
        is_open: false,
    }
}

impl AttemptCounts {
    /// Returns `None` if too few attempts have ended.
    pub(super) fn of(spans: &[Span]) -> Option<AttemptCounts> {
        let ended = spans.iter().filter(|span| !span.is_open);
        let logarithm = |span: &Span| span.took.as_secs_f64().max(1e-9).log10();
        let times: Vec<f64> = ended.map(logarithm).collect();
        if times.len() < FEWEST {
            return None;
        }
        let least = times.iter().copied().fold(f64::INFINITY, f64::min);
        let most = times.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let (from, until) = (least.floor() as i32, most.floor() as i32 + 1);
        let powers = until - from;
        let columns = (MOST_COLUMNS / powers).clamp(1, MOST_COLUMNS_OF_A_POWER);
        let mut counts = vec![0; (powers * columns) as usize];
        let last = counts.len() - 1;
        for time in times {
            let column = ((time - f64::from(from)) * f64::from(columns)) as usize;
            counts[column.min(last)] += 1;
        }
        Some(AttemptCounts { from, until, counts })
    }
}

/// The incidents so far.
#[derive(Debug, Default)]
pub(super) struct Incidents {
    pub(super) kept: Vec<Incident>,
    with_items: usize,
    pub(super) left_out: u64,
}

impl Incidents {
    /// Keeps a failure, if there is room.
    pub(super) fn keep_failure(&mut self, at: Duration, kind: IncidentKind, failure: &Failure) {
        if self.with_items == MOST_INCIDENTS {
            self.left_out += 1;
            return;
        }
        self.with_items += 1;
        let (producer, item) = (failure.producer, failure.item);
        let text = clipped(failure.essence(), LONGEST_KEPT);
        self.kept.push(Incident { at, kind, producer, item, text, ..Incident::default() });
    }

    /// Keeps a rebuilt state, if there is room.
    pub(super) fn keep_rebuild(&mut self, at: Duration, producer: usize, took: Duration) {
        if self.with_items == MOST_INCIDENTS {
            self.left_out += 1;
            return;
        }
        self.with_items += 1;
        let (kind, producer) = (IncidentKind::Rebuilt, Some(producer));
        self.kept.push(Incident { at, kind, producer, took, ..Incident::default() });
    }

    /// Keeps the loss of a producer, which happens at most once to each.
    pub(super) fn keep_loss(
        &mut self,
        at: Duration,
        kind: IncidentKind,
        producer: usize,
        why: &str,
    ) {
        let text = clipped(why, LONGEST_KEPT);
        let producer = Some(producer);
        self.kept.push(Incident { at, kind, producer, text, ..Incident::default() });
    }
}

/// Clips a key to a length of which many can be kept.
pub(super) fn short(key: &Arc<str>) -> Arc<str> {
    // Counts bytes, since their number is stored; few keys are as long.
    if key.len() <= LONGEST_KEPT { Arc::clone(key) } else { shortened(key, LONGEST_KEPT).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_and_their_keys_are_bounded() {
        let mut spans = RecordedSpans::default();
        let work = LaneWork { key: Some("ä".repeat(100_000).into()), ..LaneWork::default() };
        (0..MOST_SPANS + 5).for_each(|_| spans.keep(0, work.clone(), 1));
        assert_eq!((spans.kept.len(), spans.left_out), (MOST_SPANS, 5));
        let key = spans.kept[0].1.key.clone().unwrap();
        assert_eq!(key.chars().count(), LONGEST_KEPT);
    }

    #[test]
    fn failures_are_bounded_and_lost_producers_are_kept_beyond() {
        let mut incidents = Incidents::default();
        let failure = Failure { error: "e".repeat(10_000), ..Failure::default() };
        for _ in 0..MOST_INCIDENTS + 5 {
            incidents.keep_failure(Duration::ZERO, IncidentKind::Failed, &failure);
        }
        incidents.keep_loss(Duration::ZERO, IncidentKind::Quarantined, 1, "gone");
        assert_eq!((incidents.kept.len(), incidents.left_out), (MOST_INCIDENTS + 1, 5));
        assert_eq!(incidents.kept[0].text.len(), LONGEST_KEPT + " ...".len());
    }

    fn spans(millis: &[u64]) -> Vec<Span> {
        let took = millis.iter().map(|it| Duration::from_millis(*it));
        took.map(|took| Span { took, ..Span::default() }).collect()
    }

    #[test]
    fn each_ended_attempt_is_counted_once_between_powers_of_ten() {
        let mut spans = spans(&[2, 2, 2, 20, 20, 50, 50, 50, 50, 999]);
        spans.push(Span { is_open: true, ..spans[0].clone() });
        let found = AttemptCounts::of(&spans).unwrap();
        assert_eq!((found.from, found.until), (-3, 0));
        assert_eq!(found.counts.iter().sum::<u64>(), 10);
        let peaks: Vec<u64> = found.counts.into_iter().filter(|it| *it > 0).collect();
        assert_eq!(peaks, [3, 2, 4, 1]);
    }

    #[test]
    fn few_equal_and_extreme_times_are_no_fault() {
        assert!(AttemptCounts::of(&spans(&[1; 9])).is_none());
        assert_eq!(AttemptCounts::of(&spans(&[1; 10])).unwrap().counts.iter().sum::<u64>(), 10);
        let mut extreme = spans(&[0; 10]);
        extreme[0].took = Duration::MAX;
        let found = AttemptCounts::of(&extreme).unwrap();
        let counts: Vec<u64> = found.counts.into_iter().filter(|it| *it > 0).collect();
        assert_eq!(counts, [9, 1]);
    }
}

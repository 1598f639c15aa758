//! What happened when: attempts at items, and what went wrong.

use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::lane::Work;
use super::seconds;
use super::text::clipped;
use crate::failure::Failure;

/// One attempt at one item.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Span {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if [keys](crate::Builder::key) were asked for; the first 200 characters of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// The producer's number.
    pub producer: usize,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// When it began, from the beginning of the run.
    #[serde(with = "seconds")]
    pub start: Duration,
    /// How long it took. The items of a batch begin and end together.
    #[serde(with = "seconds")]
    pub took: Duration,
    /// Whether it had not ended when the report was made, or the run ended.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub is_open: bool,
}

/// Something that went wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Incident {
    /// When, from the beginning of the run.
    #[serde(with = "seconds")]
    pub at: Duration,
    /// What.
    pub kind: IncidentKind,
    /// The number of the producer on which, if on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub producer: Option<usize>,
    /// The item's index in the input, if it is of an item.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub item: Option<u64>,
    /// What the error says, or why the producer was quarantined; the first 200 characters of it.
    pub text: String,
}

/// What went wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum IncidentKind {
    /// An item failed, and its error stands.
    #[default]
    Failed,
    /// An attempt at an item failed, and there was to be another.
    Retried,
    /// A producer takes no more items: its device failed.
    Quarantined,
    /// A producer that did not return in time was written off.
    Abandoned,
}

impl IncidentKind {
    pub(super) fn text(self) -> &'static str {
        match self {
            IncidentKind::Failed => "failed",
            IncidentKind::Retried => "retried",
            IncidentKind::Quarantined => "quarantined",
            IncidentKind::Abandoned => "abandoned",
        }
    }
}

/// At most so many spans are kept, and so many incidents with items.
pub(super) const MOST_SPANS: usize = 100_000;
pub(super) const MOST_INCIDENTS: usize = 10_000;

/// So many characters are kept of a text that is there as often as there are items.
const LONGEST: usize = 200;

/// The spans so far. As many as there may be of them take 6 MB, and their keys.
#[derive(Debug, Default)]
pub(super) struct Spans {
    kept: Vec<(usize, Work, u64)>,
    pub(super) left_out: u64,
}

impl Spans {
    /// Keeps an attempt that took so many nanoseconds, if there is room.
    pub(super) fn keep(&mut self, producer: usize, mut work: Work, took: u64) {
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

/// The span of an attempt that took so many nanoseconds.
pub(super) fn span(producer: usize, work: &Work, took: u64) -> Span {
    Span {
        item: work.item,
        key: work.key.as_ref().map(|key| short(key).to_string()),
        producer,
        attempt: work.attempt,
        start: Duration::from_nanos(work.start),
        took: Duration::from_nanos(took),
        is_open: false,
    }
}

/// What went wrong so far.
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
        let said = failure.causes.last().unwrap_or(&failure.error);
        self.kept.push(Incident { at, kind, producer, item, text: clipped(said, LONGEST) });
    }

    /// Keeps what became of a producer. That happens once to each.
    pub(super) fn keep_loss(
        &mut self,
        at: Duration,
        kind: IncidentKind,
        producer: usize,
        why: &str,
    ) {
        let text = clipped(why, LONGEST);
        self.kept.push(Incident { at, kind, producer: Some(producer), item: None, text });
    }
}

/// A key of a length that many of can be kept.
pub(super) fn short(key: &Arc<str>) -> Arc<str> {
    // In bytes, since that is known: few keys are as long.
    if key.len() <= LONGEST { Arc::clone(key) } else { clipped(key, LONGEST).into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_have_a_bound_and_so_have_their_keys() {
        let mut spans = Spans::default();
        let work = Work { key: Some("ä".repeat(100_000).into()), ..Work::default() };
        (0..MOST_SPANS + 5).for_each(|_| spans.keep(0, work.clone(), 1));
        assert_eq!((spans.kept.len(), spans.left_out), (MOST_SPANS, 5));
        let key = spans.kept[0].1.key.clone().unwrap();
        assert_eq!(key.chars().count(), LONGEST + " ...".len());
    }

    #[test]
    fn failures_have_a_bound_and_lost_producers_come_on_top() {
        let mut incidents = Incidents::default();
        let failure = Failure { error: "e".repeat(10_000), ..Failure::default() };
        for _ in 0..MOST_INCIDENTS + 5 {
            incidents.keep_failure(Duration::ZERO, IncidentKind::Failed, &failure);
        }
        incidents.keep_loss(Duration::ZERO, IncidentKind::Quarantined, 1, "gone");
        assert_eq!((incidents.kept.len(), incidents.left_out), (MOST_INCIDENTS + 1, 5));
        assert_eq!(incidents.kept[0].text.len(), LONGEST + " ...".len());
    }
}

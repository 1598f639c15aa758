//! The part of a report about the calls of a service.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::bins::nanos;
use super::formats::{Count, Many, Time};
use super::latency::{Distribution, Latencies};

/// How long callers of a service waited for their answers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct CallReport {
    /// The calls that were answered by a producer, with an output or an error.
    pub answered: u64,
    /// The calls that missed their deadline, also those that had no place in the queue yet.
    pub late: u64,
    /// From the time that a call had its place in the queue to its answer; `None` if no call was answered.
    pub latency: Option<Latencies>,
}

/// The calls of a service so far. It takes up to 40 KB.
#[doc(hidden)]
#[derive(Debug, Default)]
pub struct AnswerTimes {
    latency: Option<Box<Distribution>>,
    late: u64,
}

impl AnswerTimes {
    /// A call was answered after this time.
    pub fn answered(&mut self, took: Duration) {
        self.latency.get_or_insert_default().record(nanos(took));
    }

    /// A call has missed its deadline.
    pub fn missed(&mut self) {
        self.late += 1;
    }

    /// The report up to now.
    pub fn report(&self) -> CallReport {
        let latency = self.latency.as_ref().and_then(|it| it.latencies());
        CallReport { answered: latency.map_or(0, |it| it.count), late: self.late, latency }
    }
}

impl CallReport {
    /// Says how the calls fared; `None` if there was none.
    pub(crate) fn sentence(&self) -> Option<String> {
        let all = self.answered.saturating_add(self.late);
        let answered = self.latency.map(|it| {
            format!("answered in {} (median), {} (99th percentile)", Time(it.p50), Time(it.p99))
        });
        let late = (self.late > 0).then(|| {
            format!("{} of {} missed their deadline", Count(self.late), Many(all, "call"))
        });
        let parts: Vec<_> = late.into_iter().chain(answered).collect();
        (!parts.is_empty()).then(|| format!("calls: {}", parts.join("; ")))
    }
}

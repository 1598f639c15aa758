//! The report of a run, a value that can be kept, shown and compared.
//!
//! A [`RunReport`] says where the time of a run went, how its items ended, and what to change. It can be
//! written as text for a terminal (`Display`), as [JSON](RunReport::to_json), as a
//! [page](RunReport::to_html), and as a [trace](RunReport::to_trace) for Perfetto. Only JSON can be read
//! back.

mod bins;
mod bottleneck;
mod failures;
mod html;
mod json;
mod lane;
mod latency;
mod producer;
#[cfg(test)]
mod properties;
mod recorder;
mod retries;
#[cfg(test)]
mod samples;
mod seconds;
mod slowest;
mod span;
mod terminal;
mod text;
mod timeline;
mod trace;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::bottleneck::Bottleneck;
pub use self::latency::Latencies;
pub use self::producer::ProducerReport;
pub(crate) use self::recorder::Recorder;
pub use self::retries::{Retried, RetryOutcome, RetryReport};
pub use self::slowest::SlowItem;
pub use self::span::{Incident, IncidentKind, Span};
pub use self::timeline::{Throughput, Timeline};
use super::account::Account;
pub use super::failure::Failure;
use crate::base::Order;
use crate::error::{Error, Result};

/// The result of a run in numbers: time, items, producers and failures.
///
/// Measurements per item (latencies, timeline, slowest items, spans) need item events, which
/// [`timeline`](crate::Builder::timeline) turns on. Everything else is always measured, and costs a clock
/// reading only where a thread waits. In JSON, times are numbers of seconds.
///
/// Its size is bounded for every run. The documentation of each list states its maximum length, and a number
/// beside the list counts the entries that did not fit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunReport {
    /// The description of the work that the builder was given, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How the run ended, or that it is in progress.
    pub ending: Ending,
    /// The error that ended the run, as text with its causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What limited the run.
    pub bottleneck: Bottleneck,
    /// The bottleneck as a sentence, with its reasons and what to change.
    pub conclusion: String,
    /// The [devices used](crate::Devices::fallbacks) instead of others that are not available, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// The order in which results were consumed.
    pub order: Order,
    /// The exact number of items in the input, if its `size_hint` gives it.
    pub items: Option<u64>,
    /// How many items ended in each way. While the run lasts, only items that events have reported.
    pub account: Account,
    /// From the start to the end of the run. While the run lasts, to the last event seen.
    #[serde(with = "seconds")]
    pub lasted: Duration,
    /// The size of the window at the end of the run.
    pub window: u64,
    /// How long the feeder was inside the source. For a later stage of a pipeline: how long the stage before
    /// delivered nothing.
    #[serde(with = "seconds")]
    pub source_working: Duration,
    /// How long the feeder did not ask the source because the window was full.
    #[serde(with = "seconds")]
    pub source_waiting: Duration,
    /// How long the consumer worked. For `outputs`: how long the caller did not ask for a result; for a stage
    /// before another: how long the next stage took none.
    #[serde(with = "seconds")]
    pub consumer_working: Duration,
    /// How long the consumer waited with no result available.
    #[serde(with = "seconds")]
    pub consumer_waiting: Duration,
    /// How long the consumer waited for one item while later results were ready: the head of line was
    /// blocked.
    #[serde(with = "seconds")]
    pub head_stalled: Duration,
    /// The items that blocked the head of line for the longest, longest first. At most 20.
    pub stalls: Vec<Stall>,
    /// Whether the consumer's thread was abandoned because it did not return in time.
    pub consumer_abandoned: bool,
    /// The producers, in the order of their numbers.
    pub producers: Vec<ProducerReport>,
    /// Latency of items over all producers. `None` without item events.
    pub latency: Option<Latencies>,
    /// The attempts that took the longest, slowest first. At most 20.
    pub slowest: Vec<SlowItem>,
    /// The final failures, in input order: the first 10,000 reported, or fewer if their text exceeds 16 MiB.
    pub failures: Vec<Failure>,
    /// How many final failures are not in `failures`.
    pub failures_left_out: u64,
    /// Which items were retried, and how they ended.
    pub retries: RetryReport,
    /// How many items were consumed in each bin of time. Empty unless [`timeline`](crate::Builder::timeline)
    /// or an [`observer`](crate::Builder::observer) is set.
    pub throughput: Throughput,
    /// When each producer worked. `None` without item events.
    pub timeline: Option<Timeline>,
    /// How many item events were lost because observers were too slow. Measurements per item lack them.
    pub events_lost: u64,
    /// The attempts at items, in the order in which they ended: at most the first 100,000.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    /// How many attempts are not in `spans`.
    pub spans_left_out: u64,
    /// Failures, retries and lost producers over time: the first 10,000 failures and retries, and every lost
    /// producer.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub incidents: Vec<Incident>,
    /// How many failures and retries are not in `incidents`.
    pub incidents_left_out: u64,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Ending {
    /// The run is in progress, or there has been none.
    #[default]
    InProgress,
    /// All input was consumed, or the consumer or a [token](crate::CancelToken::drain) asked for an early
    /// end.
    Finished,
    /// An error ended the run.
    Failed,
    /// The run was cancelled.
    Cancelled,
}

/// An item that blocked the head of line: the consumer waited for it while later results were ready.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stall {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if the builder has a [key](crate::Builder::key) and an item event carried it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long the consumer waited.
    #[serde(with = "seconds")]
    pub lasted: Duration,
}

impl RunReport {
    /// Returns the report as JSON, one line per field and per element of a list.
    ///
    /// [`from_json`](Self::from_json) restores an equal report, to the nanosecond in runs of up to 48 days.
    /// Later versions may add fields.
    pub fn to_json(&self) -> String {
        json::to_text(self)
    }

    /// Reads a report that [`to_json`](Self::to_json) wrote. Missing fields get their defaults; unknown ones
    /// are ignored.
    ///
    /// # Errors
    ///
    /// [`Error::Report`] if the text is not JSON or not a report; its cause gives the position.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let mut json = serde_json::Deserializer::from_str(json);
        let report = serde_path_to_error::deserialize(&mut json).map_err(bad)?;
        json.end().map_err(bad)?;
        Ok(report)
    }

    /// Returns whether a run has begun. A pool that has had no run has a report too.
    fn has_begun(&self) -> bool {
        self.ending != Ending::InProgress || !self.producers.is_empty()
    }

    /// Returns the report as one self-contained HTML page: no script, no other file.
    ///
    /// It shows the first 1,000 failures, the first 1,000 retried items, and the first 256 producers.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// Returns the report in Chrome's trace format, for <https://ui.perfetto.dev> and `chrome://tracing`. It
    /// shows what each producer worked on over time, and each failure.
    ///
    /// The items of a batch are one span. Without item events, the trace has failures only.
    pub fn to_trace(&self) -> String {
        trace::to_text(self)
    }

    /// Returns how many threads were abandoned: producers and the consumer, if they did not return in time.
    pub fn threads_abandoned(&self) -> u64 {
        let producers = self.producers.iter().filter(|producer| producer.abandoned).count();
        producers as u64 + u64::from(self.consumer_abandoned)
    }

    /// Returns whether the run had item events, which latencies and the timeline need.
    pub fn has_item_events(&self) -> bool {
        self.timeline.is_some()
    }
}

/// How many items a shortened list does not show.
fn left_out(shown: usize, of: usize, more: u64) -> u64 {
    (of.saturating_sub(shown) as u64).saturating_add(more)
}

fn bad(source: impl std::error::Error + Send + Sync + 'static) -> Error {
    Error::Report { source: source.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::error::Error as _;

    #[test]
    fn other_text_is_an_error_with_its_position() {
        let cause = |json: &str| {
            let error = RunReport::from_json(json).unwrap_err();
            assert_eq!(
                error.to_string(),
                "not a run report; give the JSON that `RunReport::to_json` writes"
            );
            error.source().unwrap().to_string()
        };
        assert!(cause(r#"{"account": {"ok": -1}}"#).starts_with("account.ok: "));
        assert!(cause(r#"{"lasted": -1.5}"#).contains("-1.5 is not a valid number of seconds"));
        assert!(cause("{} {}").contains("trailing characters"));
        assert!(cause("").contains("EOF"));
    }

    #[test]
    fn missing_fields_have_defaults_and_unknown_ones_are_ignored() {
        let report = RunReport::from_json(r#"{"window": 7, "from_the_future": [1]}"#).unwrap();
        assert_eq!(report, RunReport { window: 7, ..RunReport::default() });
    }

    #[test]
    fn an_inconsistent_report_is_shown() {
        let most = u64::MAX;
        let json = format!(
            r#"{{"lasted": 1e19, "account": {{"ok": {most}, "failed": 0, "already_done": 0, "cancelled": 0}},
            "producers": [{{"busy": 7e300}}], "failures_left_out": {most}, "spans_left_out": {most},
            "timeline": {{"bin": 1e19, "busy_ns": [[{most}, {most}], [1]]}},
            "throughput": {{"bin": 1e-9, "items": [{most}, {most}]}},
            "spans": [{{"producer": {most}, "start": 1e19, "took": 1e19}}],
            "incidents": [{{"producer": 0, "at": 1e19}}, {{"producer": {most}}}]}}"#
        );
        let mut report = RunReport::from_json(&json).unwrap();
        for lasted in [report.lasted, Duration::ZERO, Duration::from_nanos(1)] {
            report.lasted = lasted;
            let texts = [report.to_string(), report.to_html(), report.to_trace(), report.to_json()];
            assert!(texts.iter().all(|text| !text.contains("NaN")), "{texts:?}");
        }
    }
}

//! What a run came to, as a value that can be kept, shown and compared.
//!
//! A [`RunReport`] says where the time of a run went, what became of its items, and what to change. It is
//! written as text for a terminal (`Display`), as [JSON](RunReport::to_json) and back, as a
//! [page](RunReport::to_html), and as a [trace](RunReport::to_trace) for Perfetto.

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
use crate::account::Account;
use crate::error::{Error, Result};
use crate::failure::Failure;
use crate::order::Order;

/// What a run came to.
///
/// What was measured per item (latencies, timeline, slowest items, spans) is there only if the run had
/// item events, as [`timeline`](crate::Builder::timeline) asks for. All else is measured where somebody
/// waits. In JSON, times are numbers of seconds.
///
/// It is bounded whatever the run: of each list the documentation says how long it may be, and a number
/// beside it what was left out.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct RunReport {
    /// What the user calls the work, if anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// How the run ended, if it did.
    pub ending: Ending,
    /// The error that ended it, as text with its causes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
    /// What limited the run.
    pub bottleneck: Bottleneck,
    /// The same as a sentence, with its reasons and with what to change.
    pub conclusion: String,
    /// The [devices used](crate::Devices::fallbacks) in the place of others that are not there, and why.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub fallbacks: Vec<String>,
    /// The order in which results were consumed.
    pub order: Order,
    /// How many items the input said that it has.
    pub items: Option<u64>,
    /// What became of the items. While the run lasts, as far as it has been told.
    pub account: Account,
    /// From beginning to end. While the run lasts, until the last that was told of it.
    #[serde(with = "seconds")]
    pub lasted: Duration,
    /// How many items the window held at the end.
    pub window: u64,
    /// How long the source was asked for items, its own time among it. Of a later stage of a pipeline: how
    /// long nothing came out of the stage before.
    #[serde(with = "seconds")]
    pub source_working: Duration,
    /// How long the source was not asked, since the window was full.
    #[serde(with = "seconds")]
    pub source_waiting: Duration,
    /// How long the consumer had something to do. Of a stream: how long nobody asked it for results; of a
    /// stage before another: how long that took none.
    #[serde(with = "seconds")]
    pub consumer_working: Duration,
    /// How long the consumer waited with nothing there.
    #[serde(with = "seconds")]
    pub consumer_waiting: Duration,
    /// How long it waited for one item, with results of later ones there: the ordered window stood still.
    #[serde(with = "seconds")]
    pub head_stalled: Duration,
    /// The items that it waited for the longest, the worst first. At most 20.
    pub stalls: Vec<Stall>,
    /// Whether the consumer's thread was abandoned, since it did not return in time.
    pub consumer_abandoned: bool,
    /// The producers, in the order of their numbers.
    pub producers: Vec<ProducerReport>,
    /// How long producers worked on items, over all producers. `None` without item events.
    pub latency: Option<Latencies>,
    /// The items that were worked on for the longest, the slowest first. At most 20.
    pub slowest: Vec<SlowItem>,
    /// The failures that stood, in the order of the input: the first 10,000 that were told, or as many as
    /// have 16 MiB of text.
    pub failures: Vec<Failure>,
    /// How many failures that stood are not in `failures`.
    pub failures_left_out: u64,
    /// What was tried again.
    pub retries: RetryReport,
    /// How many items were consumed when. Of no items where neither [`timeline`](crate::Builder::timeline) nor
    /// an [`observer`](crate::Builder::observer) asks for it.
    pub throughput: Throughput,
    /// When each producer worked. `None` without item events.
    pub timeline: Option<Timeline>,
    /// How many item events were lost, since they came faster than they could be told. What is measured
    /// per item lacks them.
    pub events_lost: u64,
    /// The attempts at items, in the order in which they ended: the first 100,000 that were told.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub spans: Vec<Span>,
    /// How many attempts are not in `spans`.
    pub spans_left_out: u64,
    /// What went wrong when: the first 10,000 failures and retries, and every producer that was lost.
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
    /// It has not: the report is of a run in progress, or of none.
    #[default]
    InProgress,
    /// Its input was consumed, or as much of it as the consumer or a [token](crate::CancelToken::drain)
    /// wanted.
    Finished,
    /// An error ended it.
    Failed,
    /// It was cancelled.
    Cancelled,
}

/// An item that the consumer waited for, with results of later ones there.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[non_exhaustive]
pub struct Stall {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if [keys](crate::Builder::key) were asked for and item events told it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// How long.
    #[serde(with = "seconds")]
    pub lasted: Duration,
}

impl RunReport {
    /// The report as JSON, with a line for each field and each element of a list.
    ///
    /// [`from_json`](Self::from_json) makes the same report of it, to the nanosecond in runs of up to 48
    /// days. Fields may be added in later versions.
    pub fn to_json(&self) -> String {
        json::to_text(self)
    }

    /// The report that [`to_json`](Self::to_json) wrote. Fields that are missing have their defaults;
    /// unknown ones are passed over.
    ///
    /// # Errors
    ///
    /// [`Error::Report`], whose cause says where it is not JSON or not a report.
    pub fn from_json(json: &str) -> Result<Self, Error> {
        let mut json = serde_json::Deserializer::from_str(json);
        let report = serde_path_to_error::deserialize(&mut json).map_err(bad)?;
        json.end().map_err(bad)?;
        Ok(report)
    }

    /// Whether it is the report of a run: a runner that has had none has one too.
    fn has_begun(&self) -> bool {
        self.ending != Ending::InProgress || !self.producers.is_empty()
    }

    /// The report as one page of HTML that needs nothing else: no script, no other file.
    ///
    /// Of the failures and of the items that were tried again it shows the first 1,000 each, and of the
    /// producers the first 256.
    pub fn to_html(&self) -> String {
        html::page(self)
    }

    /// The report as a trace in Chrome's JSON format, which <https://ui.perfetto.dev> and
    /// `chrome://tracing` open: what each producer worked on when, and what went wrong when.
    ///
    /// Items that were worked on as a batch are one span. Without item events only what went wrong is in it.
    pub fn to_trace(&self) -> String {
        trace::to_text(self)
    }

    /// How many threads were abandoned: those of producers that did not return in time, and that of the
    /// consumer if it did not.
    pub fn threads_abandoned(&self) -> u64 {
        let producers = self.producers.iter().filter(|producer| producer.abandoned).count();
        producers as u64 + u64::from(self.consumer_abandoned)
    }

    /// Whether there were item events, so that latencies and the timeline can be known.
    pub fn has_item_events(&self) -> bool {
        self.timeline.is_some()
    }
}

/// How many items a list shows that cannot show all.
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
    fn what_is_no_report_is_an_error_that_says_where() {
        let cause = |json: &str| {
            let error = RunReport::from_json(json).unwrap_err();
            assert_eq!(error.to_string(), "this is not the report of a run");
            error.source().unwrap().to_string()
        };
        assert!(cause(r#"{"account": {"ok": -1}}"#).starts_with("account.ok: "));
        assert!(cause(r#"{"lasted": -1.5}"#).contains("-1.5 seconds are no time"));
        assert!(cause("{} {}").contains("trailing characters"));
        assert!(cause("").contains("EOF"));
    }

    #[test]
    fn what_is_missing_has_its_default_and_what_is_unknown_is_passed_over() {
        let report = RunReport::from_json(r#"{"window": 7, "from_the_future": [1]}"#).unwrap();
        assert_eq!(report, RunReport { window: 7, ..RunReport::default() });
    }

    #[test]
    fn a_report_that_no_run_wrote_is_shown_all_the_same() {
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

//! The report of a run, a value that can be kept, shown and compared.
//!
//! A [`RunReport`] says where the time of a run went, how its items ended, and what to change. It can be
//! written as text for a terminal (`Display`), as [JSON](RunReport::to_json), as a
//! [page](RunReport::to_html), and as a [trace](RunReport::to_trace) for Perfetto. Only JSON can be read
//! back.
//!
//! A part of [gangline](https://docs.rs/gangline), published in step with it: use `gangline::report`. It needs no run, and no
//! thread, channel, clock or file.
//!
//! # Which file decides what
//!
//! | question | file |
//! |---|---|
//! | what is in a report, and in its JSON? | `run_report`, `producer_report` and a file for each other part |
//! | what is recorded of a run, of which events? | `recorder`, with `report_lane` for a producer |
//! | what did the time of a producer go to? | `time_kind` |
//! | what limited the run, and what is advised? | `bottleneck`; of a pipeline, `bottleneck_stage`; they make the value `conclusion` |
//! | how is it said, for items, jobs or the Python package? | `wording`, with the nouns of `vocabulary` |
//! | what would other settings have made of it? | `what_if` |
//! | what is shown, in which order? | `outline`; of two reports, `comparison` |
//! | how is it shown? | `styled` as text, `page` as HTML, `trace` as a trace |

mod account;
mod advice;
#[cfg(any(test, fuzzing))]
mod any_bytes;
mod batch_choice;
mod bins;
mod bottleneck;
mod bottleneck_stage;
mod call_report;
mod causes;
mod comparison;
#[doc(hidden)]
pub mod conclusion;
mod copy_report;
mod document;
mod failure;
mod formats;
mod gpu_load;
mod head_cost;
mod kept_failures;
mod latency;
mod live_producers;
mod outline;
mod page;
mod producer_report;
#[cfg(test)]
mod properties;
mod provenance;
mod recorded_times;
mod recorder;
mod report_json;
mod report_lane;
mod retries;
mod run_report;
#[cfg(any(test, fuzzing))]
mod samples;
#[cfg(test)]
mod schema;
mod seconds;
mod sentences;
mod slowest;
mod span;
mod split_report;
#[doc(hidden)]
pub mod stages;
mod stragglers;
mod styled;
mod text_style;
mod time_kind;
mod timeline;
mod trace;
mod vocabulary;
mod what_if;
mod wording;

use std::fmt;

#[doc(inline)]
pub use gangline_scheduler::HumanDuration;
#[doc(inline)]
pub use gangline_scheduler::batch::SizeBound;
use serde::Deserialize;

pub use self::account::{Account, Destination, Ending, Origin};
pub use self::batch_choice::BatchChoice;
#[doc(hidden)]
pub use self::call_report::AnswerTimes;
pub use self::call_report::CallReport;
pub use self::comparison::Comparison;
pub use self::conclusion::Bottleneck;
use self::conclusion::Conclusion;
pub use self::copy_report::CopyReport;
pub use self::failure::{BatchRange, Failure};
#[doc(hidden)]
pub use self::formats::{bounded, shortened};
pub use self::gpu_load::{GpuLoad, GpuSample};
pub use self::latency::Latencies;
use self::outline::{LONGEST_KEY, outline, summary};
use self::page::{page, page_part};
#[doc(hidden)]
pub use self::producer_report::share;
pub use self::producer_report::{ProducerReport, WorkerReport};
pub use self::provenance::Provenance;
#[doc(hidden)]
pub use self::recorder::Recorder;
#[doc(hidden)]
pub use self::report_json::NOT_A_REPORT;
pub use self::report_json::ReportError;
use self::report_json::{VERSION, Versioned};
#[doc(hidden)]
pub use self::report_lane::{ItemsInHand, LaneWork};
pub use self::retries::{Retried, RetryOutcome, RetryReport};
#[doc(hidden)]
pub use self::run_report::{BACKOFF, NO_WINDOW};
pub use self::run_report::{RunReport, StageReport, Stall};
pub use self::slowest::SlowItem;
pub use self::span::{Incident, IncidentKind, Span};
#[doc(hidden)]
pub use self::split_report::CallInput;
pub use self::split_report::SplitReport;
use self::styled::Styled;
pub use self::text_style::{Colors, TextStyle};
#[doc(hidden)]
pub use self::text_style::{Ink, wrapped};
pub use self::time_kind::{HeldBackBy, TimeAccount, TimeKind, TimeSpan};
#[doc(hidden)]
pub use self::time_kind::{SpentIn, SpentTime};
pub use self::timeline::{KindTimeline, Throughput, Timeline};
#[doc(hidden)]
pub use self::vocabulary::Vocabulary;
pub use self::what_if::{Prediction, RefusedSetting, Settings};

/// What the fuzzer calls.
#[cfg(fuzzing)]
#[doc(hidden)]
pub use self::any_bytes::read_any_bytes;

impl RunReport {
    /// Gives the conclusion, its advice and the texts of failures in the report, and in those of its stages, these words.
    ///
    /// The conclusion of a report that an earlier version wrote, without its data, stays as it is.
    pub fn speak(&mut self, vocabulary: Vocabulary) {
        if vocabulary != self.vocabulary {
            wording::name_failures(self, vocabulary);
            self.vocabulary = vocabulary;
            if self.findings != Conclusion::default() {
                self.conclude(self.findings.clone());
            }
        }
        self.stages.iter_mut().for_each(|stage| stage.report.speak(vocabulary));
    }

    /// Gives the report a conclusion, in its words.
    #[doc(hidden)]
    pub fn conclude(&mut self, findings: Conclusion) {
        self.bottleneck = findings.bottleneck();
        self.conclusion = wording::text(&findings, self.vocabulary);
        self.advice = wording::settings(&findings, self.vocabulary);
        self.findings = findings;
    }

    /// Returns the conclusion as data.
    #[doc(hidden)]
    pub fn findings(&self) -> &Conclusion {
        &self.findings
    }

    /// Compares this report with a later one: times, rates, shares, failures and settings.
    pub fn compare<'a>(&'a self, after: &'a RunReport) -> Comparison<'a> {
        Comparison::new(self, after)
    }

    /// Predicts how long this run would have taken with other settings.
    ///
    /// The scheduler runs once more in virtual time, over the recorded attempts. Each item takes the time that it took,
    /// and the source and the consumer take their mean time for an item. The time of a batch follows from its size, by
    /// the recorded batches. The scheduler also runs with the settings that the run had: the difference to the recorded
    /// time is taken for overhead, which grows with the prediction.
    ///
    /// Producers are taken to be independent: hooks that share a core, a disk or a GPU get slower with more of them, which
    /// no report shows.
    ///
    /// A prediction needs a report with item events
    /// ([`timeline`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.timeline)) of a whole run of
    /// one pool, with at most 100,000 attempts. A setting is [refused](Prediction::refused) if the report does not show
    /// its effect: for example a batch larger than the recorded ones, or more retries where items failed for good.
    pub fn what_if(&self, settings: &Settings) -> Prediction {
        what_if::recorded::predict(self, settings)
    }

    /// Returns the report as text in a style, such as that of the terminal. Columns of the table of producers
    /// that do not fit are omitted.
    ///
    /// [`TextStyle`] has an example.
    pub fn styled(&self, style: TextStyle) -> impl fmt::Display {
        // A line has room for a sentence beside the key.
        let key = (style.columns / 2).min(LONGEST_KEY);
        Styled { document: outline(self, key), style }
    }

    /// Returns the report as JSON, one line per field and per element of a list.
    ///
    /// [`from_json`](Self::from_json) restores an equal report, to the nanosecond in runs of up to 48 days.
    ///
    /// The form is described by the JSON Schema in `docs/report.schema.json`. Its number is the field
    /// `version`, now 1. It changes if a field goes or changes its meaning; fields may be added without.
    pub fn to_json(&self) -> String {
        report_json::to_text(&Versioned::new(self))
    }

    /// Reads a report that [`to_json`](Self::to_json) wrote. Missing fields get their defaults; unknown ones
    /// are ignored.
    ///
    /// ```
    /// # mod gangline { pub mod report { pub use gangline_report::*; } }
    /// use gangline::report::RunReport;
    ///
    /// # fn main() -> Result<(), gangline::report::ReportError> {
    /// # let before = RunReport::default().to_json();
    /// # let after = r#"{"ending": "finished", "lasted": 12.5}"#;
    /// // The texts of two files.
    /// let (before, after) = (RunReport::from_json(&before)?, RunReport::from_json(after)?);
    /// println!("{after}\n{}", before.compare(&after));
    /// assert!(after.to_html().starts_with("<!DOCTYPE html>"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// If the text is not JSON or not a report, in which case the cause of the error gives the position; or if it has a
    /// later `version`.
    pub fn from_json(json: &str) -> Result<Self, ReportError> {
        let form: Form = serde_json::from_str(json).map_err(ReportError::new)?;
        if let Some(version) = form.version.filter(|version| *version > VERSION) {
            return Err(ReportError::new(LaterVersion(version)));
        }
        let mut json = serde_json::Deserializer::from_str(json);
        let report = serde_path_to_error::deserialize(&mut json).map_err(ReportError::new)?;
        json.end().map_err(ReportError::new)?;
        Ok(report)
    }

    /// Returns the report as one self-contained HTML page: no script, no other file.
    ///
    /// It shows the first 1,000 causes of failures with 1,000 items each, the first 1,000 retried items, and the first 256 producers.
    pub fn to_html(&self) -> String {
        page(&outline(self, LONGEST_KEY))
    }

    /// Returns the main parts of the report as one HTML element, to be shown within a page of yours, such as a notebook:
    /// how the run ended, what limited it, stages, failures and producers.
    ///
    /// It has its own style, which applies to nothing else, no script, and no other file. Its colours suit light and dark
    /// pages.
    pub fn to_html_summary(&self) -> String {
        page_part(&summary(self, LONGEST_KEY))
    }

    /// Returns the report in Chrome's trace format, for <https://ui.perfetto.dev> and `chrome://tracing`. It
    /// shows what each producer worked on over time, and each failure.
    ///
    /// The items of a batch are one span, and so is each `producer_init` that rebuilt a lost state. Without item
    /// events, which [`timeline`](https://docs.rs/gangline/latest/gangline/struct.Builder.html#method.timeline) turns
    /// on, the trace has an event that says so, failures, and rebuilt states. Each stage of a pipeline is a process of
    /// its own.
    pub fn to_trace(&self) -> String {
        match self.stages.is_empty() {
            true => trace::to_text([(None, self)]),
            false => trace::to_text(
                self.stages.iter().map(|stage| (Some(stage.name.as_str()), &stage.report)),
            ),
        }
    }
}

/// Returns the reports of the stages of a pipeline as one trace: see [`RunReport::to_trace`].
///
/// Each stage is a process of its own, named by its description or `stage 2`.
///
/// ```
/// # mod gangline { pub mod report { pub use gangline_report::*; } }
/// use gangline::report::{RunReport, trace_of_stages};
///
/// # let (first, second) = (RunReport::default(), RunReport::default());
/// let trace = trace_of_stages([&first, &second]);
/// assert!(trace.contains("gangline: stage 2"));
/// ```
pub fn trace_of_stages<'a>(
    stages: impl IntoIterator<Item = &'a RunReport, IntoIter: Clone>,
) -> String {
    trace::to_text(stages.into_iter().map(|report| (None, report)))
}

/// Formats the report in short, in 80 columns without colours: the account, the bottleneck, the producers (of more
/// than 16, those that stand out), and ten causes of failures. Control characters in texts are escaped.
/// [`RunReport::styled`] suits a terminal.
impl fmt::Display for RunReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.styled(TextStyle::plain()).fmt(f)
    }
}

/// Adds to the conclusion of a run that its window limited what a larger one would have gained.
#[doc(hidden)]
pub fn quote_larger_window(report: &mut RunReport) {
    what_if::recorded::quote(report);
}

#[derive(Deserialize)]
struct Form {
    version: Option<u64>,
}

#[derive(Debug, thiserror::Error)]
#[error(
    "its version is {0}; this version of gangline reads version {VERSION}, so read it with a later one"
)]
struct LaterVersion(u64);

#[cfg(test)]
mod tests {
    use std::error::Error as _;
    use std::time::Duration;

    use super::*;

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
    fn a_report_of_a_later_form_is_refused() {
        let text = RunReport::default().to_json();
        assert!(text.starts_with("{\n  \"version\": 1,\n"), "{text}");
        let later = text.replacen("\"version\": 1,", "\"version\": 2,", 1);
        let error = RunReport::from_json(&later).unwrap_err();
        assert!(error.source().unwrap().to_string().starts_with("its version is 2"), "{error:?}");
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

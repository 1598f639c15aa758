//! Reports of the library, in the words of the package.

use gangline::RunReport;
use gangline::report::Vocabulary;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

/// What happened, at the time when it was asked for.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativeReport(RunReport);

/// The words of the library's conclusions, and those of the package. Of two that begin alike, the longer comes first.
const WORDS: &[(&str, &str)] = &[
    (" (`batch`, with a runner that implements `producer_work_batch`)", " (`batch=\"auto\"`)"),
    (
        "let the run choose the size of batches (`batch(Batch::auto())`)",
        "let the pool choose the size of lists (`batch=\"auto\"`)",
    ),
    ("return an error instead (which keeps the state)", "return an error instead"),
    (", or let a second producer copy slow items (`speculate()`)", ""),
    (", or, if items are slow by chance, let a second producer copy them (`speculate()`)", ""),
    ("the caller of `outputs`", "the caller"),
    ("the caller of the outputs", "the caller"),
    ("the consumer", "the caller"),
    ("`consumer_work`", "the loop over the records"),
    ("`producer_work_batch`", "`work`"),
    ("`producer_work`", "`work`"),
    ("`producer_init`", "`load`"),
    ("an `Err`", "an exception"),
    ("`backoff`", "`retry_delay`"),
    ("the hook", "`work`"),
    ("`UnorderedRunner`", "`order=\"completion\"`"),
    ("`batch(Batch::auto())`", "`batch=\"auto\"`"),
    ("`batch(Batch::up_to(", "`batch=("),
    ("`devices(", "`workers=("),
    ("`window(n)`", "`window`"),
    ("`window_memory`", "`window`"),
    ("`window(", "`window=("),
    ("batches", "lists"),
    ("producers", "workers"),
    ("producer", "worker"),
];

impl NativeReport {
    pub(crate) fn new(mut report: RunReport) -> Self {
        if report.vocabulary == Vocabulary::Items {
            speak(&mut report);
        }
        NativeReport(report)
    }
}

#[pymethods]
impl NativeReport {
    /// Reads what `json` has returned.
    #[staticmethod]
    fn of_json(text: &str) -> PyResult<Self> {
        let report = RunReport::from_json(text);
        report.map(NativeReport::new).map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// The report for a terminal.
    fn text(&self) -> String {
        self.0.to_string()
    }

    /// The report as a page.
    fn html(&self) -> String {
        self.0.to_html()
    }

    /// The main parts of the page as one element.
    fn html_summary(&self) -> String {
        self.0.to_html_summary()
    }

    fn json(&self) -> String {
        self.0.to_json()
    }

    /// The names and the reports of the stages of a pipeline.
    fn stages(&self) -> Vec<(String, NativeReport)> {
        let stages = self.0.stages.iter();
        stages.map(|stage| (stage.name.clone(), NativeReport(stage.report.clone()))).collect()
    }
}

/// Gives a report, and those of its stages, the words of the package.
fn speak(report: &mut RunReport) {
    report.vocabulary = Vocabulary::Workers;
    report.conclusion = in_words(&report.conclusion);
    let lost = report.producers.iter_mut().map(|producer| &mut producer.quarantined);
    for error in lost.chain([&mut report.error]).flatten() {
        *error = with_named_place(error);
    }
    report.stages.iter_mut().for_each(|stage| speak(&mut stage.report));
}

/// An error of a hook, whose place is before the first colon.
fn with_named_place(error: &str) -> String {
    let Some((place, text)) = error.split_once(": ") else { return error.to_owned() };
    let names = [
        ("producer_work_batch", "work"),
        ("producer_work", "work"),
        ("producer_init", "load"),
        ("producer_end", "end"),
        ("(producer ", "(worker "),
    ];
    let place = names.iter().fold(place.to_owned(), |it, (from, to)| it.replace(from, to));
    format!("{place}: {text}")
}

/// A conclusion in the words of the package. What it quotes stays as it is: names of stages, and errors.
fn in_words(conclusion: &str) -> String {
    let mut said = String::new();
    let mut rest = conclusion;
    while !rest.is_empty() {
        let (own, quoted) = rest.split_at(rest.find('"').unwrap_or(rest.len()));
        let replaced = WORDS.iter().fold(own.to_owned(), |it, (from, to)| it.replace(from, to));
        said.push_str(&without_calls(&without_memory(&replaced)));
        let length = quoted_length(quoted);
        said.push_str(&quoted[..length]);
        rest = &quoted[length..];
    }
    said
}

/// The length of the quoted text at the beginning, as `Debug` writes it.
fn quoted_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.char_indices().skip(1).find(|&(_, character)| {
        let is_end = character == '"' && !is_escaped;
        is_escaped = character == '\\' && !is_escaped;
        is_end
    });
    end.map_or(text.len(), |(at, _)| at + 1)
}

/// Advises a larger window in place of one in bytes, which the package does not have.
fn without_memory(text: &str) -> String {
    let Some((before, after)) = text.split_once("`window_memory(") else { return text.to_owned() };
    let after = after.split_once('`').map_or(after, |(_, after)| after);
    let bound = after.strip_prefix(", half of the ").and_then(|it| it.split_once(", but not more"));
    format!("{before}a larger `window`{}", bound.map_or(after, |(_, after)| after))
}

/// Writes `window=(64)` as `window=64`.
fn without_calls(text: &str) -> String {
    let mut written = String::new();
    let mut rest = text;
    while let Some((before, value)) = rest.split_once("=(") {
        let length = value.find(|it: char| !it.is_ascii_digit()).unwrap_or(value.len());
        written.push_str(&format!("{before}={}", &value[..length]));
        rest = value[length..].trim_start_matches(')');
    }
    written + rest
}

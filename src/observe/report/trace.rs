//! The report as a trace for Perfetto.

use std::time::Duration;

use serde::Serialize;

use super::run_report::RunReport;
use super::span::{Incident, Span};

/// Chrome's Trace Event Format, as an object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace<'a> {
    trace_events: Vec<Event<'a>>,
    display_time_unit: &'static str,
    other_data: Other<'a>,
}

#[derive(Serialize)]
struct Other<'a> {
    conclusion: &'a str,
    spans_left_out: u64,
    events_lost: u64,
}

#[derive(Default, Serialize)]
struct Event<'a> {
    name: String,
    /// `M` names something, `X` is a span, `i` is an instant.
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    pid: u32,
    tid: usize,
    /// In microseconds, like `dur`.
    #[serde(skip_serializing_if = "Option::is_none")]
    ts: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    dur: Option<f64>,
    /// The extent of an instant: its `t`hread or its `p`rocess.
    #[serde(rename = "s", skip_serializing_if = "Option::is_none")]
    scope: Option<&'static str>,
    args: Args<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Args<'a> {
    Name {
        name: String,
    },
    Order {
        sort_index: usize,
    },
    Item {
        item: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        key: Option<&'a str>,
        attempt: u32,
    },
    Batch {
        items: Vec<u64>,
        #[serde(skip_serializing_if = "Vec::is_empty")]
        keys: Vec<&'a str>,
        attempt: u32,
    },
    Incident {
        #[serde(skip_serializing_if = "Option::is_none")]
        item: Option<u64>,
        text: &'a str,
    },
}

impl Default for Args<'_> {
    fn default() -> Self {
        Args::Order { sort_index: 0 }
    }
}

pub(super) fn to_text(report: &RunReport) -> String {
    let mut trace_events = names(report);
    // Attempts of different producers may be interleaved.
    let mut spans: Vec<&Span> = report.spans.iter().collect();
    spans.sort_by_key(|span| batch_of(span));
    let batches = spans.chunk_by(|one, other| batch_of(one) == batch_of(other));
    trace_events.extend(batches.map(lasted));
    trace_events.extend(report.incidents.iter().map(moment));
    let trace = Trace {
        trace_events,
        display_time_unit: "ms",
        other_data: Other {
            conclusion: &report.conclusion,
            spans_left_out: report.spans_left_out,
            events_lost: report.events_lost,
        },
    };
    serde_json::to_string(&trace).expect("texts and finite numbers are JSON")
}

/// The thread number of a producer; 0 is for events of no producer.
fn thread(producer: Option<usize>) -> usize {
    producer.map_or(0, |producer| producer.saturating_add(1))
}

fn names<'a>(report: &RunReport) -> Vec<Event<'a>> {
    let process = match &report.description {
        Some(description) => format!("gangline: {description}"),
        None => "gangline".to_owned(),
    };
    let name = |what: &str, tid, args| Event {
        name: what.to_owned(),
        ph: "M",
        tid,
        args,
        pid: 1,
        ..Event::default()
    };
    let mut names = vec![name("process_name", 0, Args::Name { name: process })];
    names.push(name("thread_name", 0, Args::Name { name: "run".to_owned() }));
    for (index, producer) in report.producers.iter().enumerate() {
        let tid = thread(Some(index));
        let text = format!("producer {index} ({})", producer.place);
        names.push(name("thread_name", tid, Args::Name { name: text }));
        names.push(name("thread_sort_index", tid, Args::Order { sort_index: tid }));
    }
    names
}

/// Attempts with the same value were one batch.
fn batch_of(span: &Span) -> (usize, Duration, Duration, bool) {
    (span.producer, span.start, span.took, span.is_open)
}

fn lasted<'a>(batch: &[&'a Span]) -> Event<'a> {
    let first = batch[0];
    let key = |span: &&'a Span| span.key.as_deref();
    let attempt = first.attempt;
    let (name, args) = match batch {
        [span] => {
            let name = key(span).map_or_else(|| format!("item {}", span.item), str::to_owned);
            (name, Args::Item { item: span.item, key: key(span), attempt })
        }
        batch => {
            let items = batch.iter().map(|span| span.item).collect();
            let keys = batch.iter().filter_map(key).collect();
            (format!("batch of {}", batch.len()), Args::Batch { items, keys, attempt })
        }
    };
    Event {
        name,
        ph: "X",
        cat: Some(if first.is_open { "open" } else { "item" }),
        pid: 1,
        tid: thread(Some(first.producer)),
        ts: Some(micros(first.start)),
        dur: Some(micros(first.took)),
        scope: None,
        args,
    }
}

fn moment(incident: &Incident) -> Event<'_> {
    Event {
        name: incident.kind.text().to_owned(),
        ph: "i",
        cat: Some("incident"),
        pid: 1,
        tid: thread(incident.producer),
        ts: Some(micros(incident.at)),
        dur: None,
        scope: Some(if incident.producer.is_some() { "t" } else { "p" }),
        args: Args::Incident { item: incident.item, text: &incident.text },
    }
}

fn micros(time: Duration) -> f64 {
    time.as_nanos() as f64 / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::report::samples::{Told, eventful, failure};
    use serde_json::{Value, json};

    fn events(report: &RunReport, ph: &str) -> Vec<Value> {
        let trace: Value = serde_json::from_str(&report.to_trace()).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        events.iter().filter(|event| event["ph"] == ph).cloned().collect()
    }

    #[test]
    fn items_are_spans_on_their_producers_threads() {
        let mut played = Told::new(2);
        played.start(1_500, 1, 7, 2);
        played.finish(4_000, 1, 7);
        let report = played.end(5_000);
        let expected = json!([{
            "name": "key 7", "ph": "X", "cat": "item", "pid": 1, "tid": 2, "ts": 1500.0, "dur": 2500.0,
            "args": {"item": 7, "key": "key 7", "attempt": 2},
        }]);
        assert_eq!(json!(events(&report, "X")), expected);
        let names = json!(events(&report, "M"));
        assert_eq!(names[0]["args"]["name"], "gangline");
        assert!(names.to_string().contains("producer 1 (cuda:1)"));
    }

    #[test]
    fn a_batch_is_one_span_although_other_items_end_in_between() {
        let mut played = Told::new(2);
        for producer in [0, 1] {
            [0, 2]
                .into_iter()
                .for_each(|item| played.start(100, producer, item + producer as u64, 1));
        }
        [(0, 0), (1, 1), (0, 2), (1, 3)]
            .into_iter()
            .for_each(|(producer, item)| played.finish(900, producer, item));
        let spans = events(&played.end(1_000), "X");
        let played: Vec<_> =
            spans.iter().map(|span| (&span["name"], &span["args"]["items"])).collect();
        assert_eq!(
            played,
            [(&json!("batch of 2"), &json!([0, 2])), (&json!("batch of 2"), &json!([1, 3]))]
        );
    }

    #[test]
    fn failures_are_instants() {
        let mut played = Told::new(1);
        played.fail(2_000, failure(3, 0, 1, "\u{1b} bad \"x\""));
        played.tell(
            3_000,
            &crate::observe::event::Event::ProducerQuarantined {
                producer: 0,
                reason: "gone".into(),
            },
        );
        let moments = events(&played.end(4_000), "i");
        let expected = json!([
            {
                "name": "failed", "ph": "i", "cat": "incident", "pid": 1, "tid": 1, "ts": 2000.0, "s": "t",
                "args": {"item": 3, "text": "\u{1b} bad \"x\""},
            },
            {
                "name": "quarantined", "ph": "i", "cat": "incident", "pid": 1, "tid": 1, "ts": 3000.0, "s": "t",
                "args": {"text": "gone"},
            },
        ]);
        assert_eq!(json!(moments), expected);
    }

    #[test]
    fn a_trace_states_what_it_lacks() {
        let trace: Value = serde_json::from_str(&eventful(2).to_trace()).unwrap();
        assert_eq!(trace["otherData"]["spans_left_out"], 0);
        assert!(trace["otherData"]["conclusion"].as_str().unwrap().starts_with("The order"));
    }
}

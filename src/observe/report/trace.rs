//! The report as a trace for Perfetto.

use std::cmp::Reverse;
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
    other_data: Other,
}

#[derive(Serialize)]
struct Other {
    conclusion: String,
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
    /// The stage of the pipeline, from 1.
    pid: usize,
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
    Note {
        note: &'static str,
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

/// The name of the event in a trace that lacks item events, so that an empty track explains itself.
const NO_ITEM_EVENTS: &str = "no items: call `.timeline()` on the builder";

/// A span on a producer's thread, in nanoseconds.
struct Extent<'a> {
    thread: usize,
    from: u128,
    until: u128,
    event: Event<'a>,
}

/// Writes the trace of the stages of a pipeline, or of one run. A stage without a name has that of its report.
pub(super) fn to_text<'a>(
    stages: impl IntoIterator<Item = (Option<&'a str>, &'a RunReport)> + Clone,
) -> String {
    let each = || stages.clone().into_iter().map(|(_, report)| report);
    let conclusions: Vec<&str> = each().map(|report| report.conclusion.as_str()).collect();
    let numbered = stages.clone().into_iter().zip(1..);
    let trace = Trace {
        trace_events: numbered
            .flat_map(|((name, report), pid)| events(name, report, pid))
            .collect(),
        display_time_unit: "ms",
        other_data: Other {
            conclusion: conclusions.join(" "),
            spans_left_out: each().map(|report| report.spans_left_out).fold(0, u64::saturating_add),
            events_lost: each().map(|report| report.events_lost).fold(0, u64::saturating_add),
        },
    };
    serde_json::to_string(&trace).expect("texts and finite numbers are JSON")
}

fn events<'a>(name: Option<&str>, report: &'a RunReport, pid: usize) -> Vec<Event<'a>> {
    let mut events = names(name, report, pid);
    if !report.has_item_events() {
        events.push(no_item_events());
    }
    // Attempts of different producers may be interleaved.
    let mut spans: Vec<&Span> = report.spans.iter().collect();
    spans.sort_by_key(|span| batch_of(span));
    let batches = spans.chunk_by(|one, other| batch_of(one) == batch_of(other));
    let rebuilds = report.incidents.iter().filter(|incident| !incident.took.is_zero());
    events.extend(nested(batches.map(lasted).chain(rebuilds.map(rebuilt)).collect()));
    let moments = report.incidents.iter().filter(|incident| incident.took.is_zero());
    events.extend(moments.map(moment));
    events.into_iter().map(|event| Event { pid, ..event }).collect()
}

/// Sorts spans so that each comes before those inside it. Perfetto discards a span that overlaps another
/// partly; the earlier one then ends where the later one begins. Only times that were noted one after the
/// other, with a pause in between, overlap like that.
fn nested(mut extents: Vec<Extent<'_>>) -> Vec<Event<'_>> {
    extents.sort_by_key(|extent| (extent.thread, extent.from, Reverse(extent.until)));
    let mut around: Vec<usize> = Vec::new();
    for next in 0..extents.len() {
        let Extent { thread, from, until, .. } = extents[next];
        around.retain(|&outer| {
            let outer = &mut extents[outer];
            if outer.thread == thread && outer.until < until {
                outer.until = outer.until.min(from);
            }
            outer.thread == thread && outer.until > from
        });
        around.push(next);
    }
    extents.into_iter().map(Extent::event).collect()
}

impl<'a> Extent<'a> {
    fn event(self) -> Event<'a> {
        Event {
            ph: "X",
            tid: self.thread,
            ts: Some(micros(self.from)),
            dur: Some(micros(self.until - self.from)),
            ..self.event
        }
    }
}

/// The thread number of a producer; 0 is for events of no producer.
fn thread(producer: Option<usize>) -> usize {
    producer.map_or(0, |producer| producer.saturating_add(1))
}

fn names<'a>(name: Option<&str>, report: &RunReport, pid: usize) -> Vec<Event<'a>> {
    let process = match name.or(report.description.as_deref()) {
        Some(description) => format!("gangline: {description}"),
        None if pid > 1 => format!("gangline: stage {pid}"),
        None => "gangline".to_owned(),
    };
    let name = |what: &str, tid, args| Event {
        name: what.to_owned(),
        ph: "M",
        tid,
        args,
        ..Event::default()
    };
    let mut names = vec![name("process_name", 0, Args::Name { name: process })];
    names.push(name("process_sort_index", 0, Args::Order { sort_index: pid }));
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

fn lasted<'a>(batch: &[&'a Span]) -> Extent<'a> {
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
    let cat = Some(if first.is_open { "open" } else { "item" });
    let event = Event { name, cat, args, ..Event::default() };
    let (from, took) = (first.start.as_nanos(), first.took.as_nanos());
    Extent { thread: thread(Some(first.producer)), from, until: from + took, event }
}

fn rebuilt(incident: &Incident) -> Extent<'_> {
    let event = Event {
        name: "producer_init".to_owned(),
        cat: Some("init"),
        args: Args::Note { note: "a panic had cost the producer its state" },
        ..Event::default()
    };
    let until = incident.at.as_nanos();
    let from = until.saturating_sub(incident.took.as_nanos());
    Extent { thread: thread(incident.producer), from, until, event }
}

fn no_item_events<'a>() -> Event<'a> {
    Event {
        name: NO_ITEM_EVENTS.to_owned(),
        ph: "i",
        cat: Some("note"),
        tid: thread(None),
        ts: Some(micros(0)),
        scope: Some("p"),
        args: Args::Note {
            note: "without item events, a trace has failures and lost producers only",
        },
        ..Event::default()
    }
}

fn moment(incident: &Incident) -> Event<'_> {
    Event {
        name: incident.kind.text().to_owned(),
        ph: "i",
        cat: Some("incident"),
        tid: thread(incident.producer),
        ts: Some(micros(incident.at.as_nanos())),
        scope: Some(if incident.producer.is_some() { "t" } else { "p" }),
        args: Args::Incident { item: incident.item, text: &incident.text },
        ..Event::default()
    }
}

/// Readers multiply by 1,000 and drop the fraction. Half a nanosecond more makes that the exact number.
fn micros(nanos: u128) -> f64 {
    (nanos as f64 + 0.5) / 1e3
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};

    use crate::observe::report::samples::{Told, eventful, failure};
    use proptest::prelude::*;
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
            "name": "key 7", "ph": "X", "cat": "item", "pid": 1, "tid": 2, "ts": 1500.0005, "dur": 2500.0005,
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
        let mut moments = events(&played.end(4_000), "i");
        moments.retain(|event| event["cat"] == "incident");
        let expected = json!([
            {
                "name": "failed", "ph": "i", "cat": "incident", "pid": 1, "tid": 1, "ts": 2000.0005, "s": "t",
                "args": {"item": 3, "text": "\u{1b} bad \"x\""},
            },
            {
                "name": "quarantined", "ph": "i", "cat": "incident", "pid": 1, "tid": 1, "ts": 3000.0005, "s": "t",
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

    /// What a reader of the trace knows: whole nanoseconds, by thread.
    fn read_back(report: &RunReport) -> BTreeMap<(u64, u64), Vec<(u64, u64)>> {
        let mut threads = BTreeMap::<_, Vec<_>>::new();
        for span in events(report, "X") {
            let nanos = |field: &str| (span[field].as_f64().unwrap() * 1_000.0) as u64;
            let thread = (span["pid"].as_u64().unwrap(), span["tid"].as_u64().unwrap());
            threads.entry(thread).or_default().push((nanos("ts"), nanos("ts") + nanos("dur")));
        }
        threads
    }

    fn assert_nested(report: &RunReport) {
        for (thread, spans) in read_back(report) {
            let mut around: Vec<(u64, u64)> = Vec::new();
            for span in spans {
                around.retain(|around| around.1 > span.0);
                let fits = around.iter().all(|around| around.0 <= span.0 && span.1 <= around.1);
                assert!(fits, "{thread:?}: {span:?} overlaps one of {around:?} partly");
                around.push(span);
            }
        }
    }

    fn report_of(spans: impl IntoIterator<Item = (u64, u64)>) -> RunReport {
        let span = |(item, (start, took))| Span {
            item,
            start: Duration::from_nanos(start),
            took: Duration::from_nanos(took),
            ..Span::default()
        };
        RunReport { spans: (0..).zip(spans).map(span).collect(), ..RunReport::default() }
    }

    proptest! {
        /// A rounded end would lie behind the next beginning.
        #[test]
        fn spans_that_touch_do_not_overlap(
            start in 0u64..4_000_000_000_000_000,
            times in prop::collection::vec(1u64..5_000, 1..50),
        ) {
            let mut at = start;
            let spans: Vec<_> = times.iter().map(|&took| {
                at += took;
                (at - took, took)
            }).collect();
            let report = report_of(spans.clone());
            assert_nested(&report);
            let exact: Vec<_> = spans.iter().map(|&(start, took)| (start, start + took)).collect();
            prop_assert_eq!(&read_back(&report)[&(1, 1)], &exact);
        }

        #[test]
        fn any_spans_are_nested(
            spans in prop::collection::vec((0u64..1_000, 0u64..200), 0..50),
        ) {
            assert_nested(&report_of(spans));
        }
    }

    #[test]
    fn a_rebuilt_state_is_a_span() {
        let mut played = Told::new(1);
        played.start(0, 0, 0, 1);
        played.finish(1_000, 0, 0);
        let took = Duration::from_micros(2_000);
        let ready =
            crate::observe::event::Event::ProducerReady { producer: 0, took, is_rebuilt: true };
        played.tell(3_500, &ready);
        let report = played.end(4_000);
        assert_nested(&report);
        let init = &events(&report, "X")[1];
        assert_eq!((&init["name"], &init["ts"]), (&json!("producer_init"), &json!(1500.0005)));
        assert!(events(&report, "i").is_empty());
    }

    #[test]
    fn a_trace_without_item_events_says_how_to_have_them() {
        let quiet = Told::new(1).end(1_000);
        assert_eq!(events(&quiet, "i")[0]["name"], NO_ITEM_EVENTS);
        assert!(!eventful(1).to_trace().contains(NO_ITEM_EVENTS));
    }

    #[test]
    fn each_stage_is_a_process() {
        let reports = [Told::new(1).end(1_000), eventful(2)];
        let trace: Value =
            serde_json::from_str(&to_text(reports.iter().map(|report| (None, report)))).unwrap();
        let events = trace["traceEvents"].as_array().unwrap();
        let pids: BTreeSet<_> = events.iter().map(|event| event["pid"].as_u64()).collect();
        assert_eq!(pids, [Some(1), Some(2)].into());
    }
}

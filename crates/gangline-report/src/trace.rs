//! The report as a trace for Perfetto.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde::Serialize;

use super::run_report::RunReport;
use super::span::{Incident, Span};
use super::time_kind::{TimeKind, TimeSpan};

/// Chrome's Trace Event Format, as an object.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Trace<'a> {
    trace_events: Vec<TraceEvent<'a>>,
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
struct TraceEvent<'a> {
    name: String,
    /// `M` names something, `X` is a span, `i` is an instant.
    ph: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    cat: Option<&'static str>,
    /// The stage of the pipeline, from 1.
    pid: usize,
    tid: usize,
    /// The time in microseconds, like `dur`.
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
    event: TraceEvent<'a>,
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

fn events<'a>(name: Option<&str>, report: &'a RunReport, pid: usize) -> Vec<TraceEvent<'a>> {
    let mut tracks = Tracks::default();
    // Attempts of different producers may be interleaved.
    let mut spans: Vec<&Span> = report.spans.iter().collect();
    spans.sort_by_key(|span| batch_of(span));
    let batches = spans.chunk_by(|one, other| batch_of(one) == batch_of(other));
    let batches = batches.map(|batch| tracks.place(report, lasted(batch)));
    let rebuilds = report.incidents.iter().filter(|incident| !incident.took.is_zero());
    let spent = report.time_spans.iter().filter(|span| span.kind != TimeKind::Loading).map(spent);
    let extents = nested(batches.chain(rebuilds.map(rebuilt)).chain(spent).collect());
    let mut events = names(name, report, pid);
    events.extend(tracks.names(report));
    if report.lacks_item_events() {
        events.push(no_item_events());
    }
    events.extend(extents);
    let moments = report.incidents.iter().filter(|incident| incident.took.is_zero());
    events.extend(moments.map(moment));
    events.into_iter().map(|event| TraceEvent { pid, ..event }).collect()
}

/// Assigns the overlapping items of a worker with several producers to separate threads of a trace.
#[derive(Default)]
struct Tracks {
    /// By row, the time until which each of its threads is in use.
    until: BTreeMap<usize, Vec<u128>>,
    /// The row of each further thread. Their numbers follow those of the first threads of all rows.
    further: Vec<usize>,
    /// The numbers of the threads of each row.
    threads: BTreeMap<usize, Vec<usize>>,
}

impl Tracks {
    /// Puts an extent on the first free thread of its row. Extents have to come in the order of their beginnings.
    fn place<'a>(&mut self, report: &RunReport, mut extent: Extent<'a>) -> Extent<'a> {
        let row = extent.thread - 1;
        let worker = report.producers.get(row).and_then(|it| it.worker.as_ref());
        if worker.is_none_or(|worker| worker.producers < 2) {
            return extent;
        }
        let until = self.until.entry(row).or_default();
        let threads = self.threads.entry(row).or_insert_with(|| vec![extent.thread]);
        let free = until.iter().position(|until| *until <= extent.from);
        let track = free.unwrap_or(until.len());
        until.resize(until.len().max(track + 1), 0);
        until[track] = extent.until;
        if track == threads.len() {
            self.further.push(row);
            threads.push(report.producers.len() + self.further.len());
        }
        extent.thread = threads[track];
        extent
    }

    fn names<'a>(&self, report: &RunReport) -> Vec<TraceEvent<'a>> {
        let mut names = Vec::new();
        for (&row, threads) in &self.threads {
            let place = &report.producers[row].place;
            for (track, &tid) in threads.iter().enumerate().skip(1) {
                let text = format!("producer {row} ({place}), item {} at a time", track + 1);
                names.push(meta("thread_name", tid, Args::Name { name: text }));
                let sort_index = row + 1;
                names.push(meta("thread_sort_index", tid, Args::Order { sort_index }));
            }
        }
        names
    }
}

/// Sorts spans so that each comes before those inside it. Perfetto discards a span that overlaps another
/// partly; the earlier one then ends where the later one begins. Only times that were noted one after the
/// other, with a pause in between, overlap like that.
fn nested(mut extents: Vec<Extent<'_>>) -> Vec<TraceEvent<'_>> {
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
    fn event(self) -> TraceEvent<'a> {
        TraceEvent {
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

fn names<'a>(name: Option<&str>, report: &RunReport, pid: usize) -> Vec<TraceEvent<'a>> {
    let process = match name.or(report.description.as_deref()) {
        Some(description) => format!("gangline: {description}"),
        None if pid > 1 => format!("gangline: stage {pid}"),
        None => "gangline".to_owned(),
    };
    let mut names = vec![meta("process_name", 0, Args::Name { name: process })];
    names.push(meta("process_sort_index", 0, Args::Order { sort_index: pid }));
    names.push(meta("thread_name", 0, Args::Name { name: "run".to_owned() }));
    for (index, producer) in report.producers.iter().enumerate() {
        let tid = thread(Some(index));
        let text = format!("{} {index} ({})", report.words().producer, producer.place);
        names.push(meta("thread_name", tid, Args::Name { name: text }));
        names.push(meta("thread_sort_index", tid, Args::Order { sort_index: tid }));
    }
    names
}

/// Names or sorts a process or a thread.
fn meta<'a>(what: &str, tid: usize, args: Args<'a>) -> TraceEvent<'a> {
    TraceEvent { name: what.to_owned(), ph: "M", tid, args, ..TraceEvent::default() }
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
    let event = TraceEvent { name, cat, args, ..TraceEvent::default() };
    let (from, took) = (first.start.as_nanos(), first.took.as_nanos());
    Extent { thread: thread(Some(first.producer)), from, until: from + took, event }
}

fn rebuilt(incident: &Incident) -> Extent<'_> {
    let event = TraceEvent {
        name: "producer_init".to_owned(),
        cat: Some("init"),
        args: Args::Note { note: "the producer had lost its state" },
        ..TraceEvent::default()
    };
    let until = incident.at.as_nanos();
    let from = until.saturating_sub(incident.took.as_nanos());
    Extent { thread: thread(incident.producer), from, until, event }
}

/// A time that was no work. That of loading has its incident.
fn spent<'a>(span: &TimeSpan) -> Extent<'a> {
    let event = TraceEvent {
        name: span.kind.text().to_owned(),
        cat: Some("wait"),
        args: Args::Note { note: "no item was worked on" },
        ..TraceEvent::default()
    };
    let from = span.start.as_nanos();
    Extent { thread: thread(Some(span.producer)), from, until: from + span.took.as_nanos(), event }
}

fn no_item_events<'a>() -> TraceEvent<'a> {
    TraceEvent {
        name: NO_ITEM_EVENTS.to_owned(),
        ph: "i",
        cat: Some("note"),
        tid: thread(None),
        ts: Some(micros(0)),
        scope: Some("p"),
        args: Args::Note {
            note: "without item events, a trace has failures and lost producers only",
        },
        ..TraceEvent::default()
    }
}

fn moment(incident: &Incident) -> TraceEvent<'_> {
    TraceEvent {
        name: incident.kind.text().to_owned(),
        ph: "i",
        cat: Some("incident"),
        tid: thread(incident.producer),
        ts: Some(micros(incident.at.as_nanos())),
        scope: Some(if incident.producer.is_some() { "t" } else { "p" }),
        args: Args::Incident { item: incident.item, text: &incident.text },
        ..TraceEvent::default()
    }
}

/// Readers multiply by 1,000 and drop the fraction. Half a nanosecond more makes that the exact number.
fn micros(nanos: u128) -> f64 {
    (nanos as f64 + 0.5) / 1e3
}

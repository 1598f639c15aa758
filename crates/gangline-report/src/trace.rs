//! The report as a trace for Perfetto.

#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use super::run_report::RunReport;
use super::span::{Incident, Span};
use super::time_kind::TimeKind;

/// The name of the event in a trace that lacks item events, so that an empty track explains itself.
const NO_ITEM_EVENTS: &str = "no items: call `.timeline()` on the builder";

/// A span on a producer's thread, in nanoseconds.
struct Extent<'a> {
    thread: usize,
    from: u128,
    until: u128,
    shown: SpanContent<'a>,
}

/// What a producer did.
enum SpanContent<'a> {
    /// Attempts at the items of a batch, or at one item.
    Attempts(&'a [&'a Span]),
    /// It made another state.
    Rebuilt,
    Spent(TimeKind),
}

/// Writes the trace of the stages of a pipeline, or of one run, in Chrome's Trace Event Format. A stage without a name has
/// that of its report.
pub(super) fn to_text<'a>(
    stages: impl IntoIterator<Item = (Option<&'a str>, &'a RunReport)> + Clone,
) -> String {
    let each = || stages.clone().into_iter().map(|(_, report)| report);
    let conclusions: Vec<&str> = each().map(|report| report.conclusion.as_str()).collect();
    let other = json!({
        "conclusion": conclusions.join(" "),
        "spans_left_out": each().map(|it| it.spans_left_out).fold(0, u64::saturating_add),
        "events_lost": each().map(|it| it.events_lost).fold(0, u64::saturating_add),
    });
    let numbered = stages.clone().into_iter().zip(1..);
    let events: Vec<String> =
        numbered.flat_map(|((name, report), pid)| events(name, report, pid)).collect();
    let events = events.join(",\n");
    format!("{{\"traceEvents\":[{events}],\"displayTimeUnit\":\"ms\",\"otherData\":{other}}}")
}

/// The events of a stage. `ph` is `M` for a name, `X` for a span and `i` for an instant; `pid` is the number of the stage,
/// and times are in microseconds.
fn events(name: Option<&str>, report: &RunReport, pid: usize) -> Vec<String> {
    let mut tracks = Tracks::default();
    // Attempts of different producers may be interleaved.
    let mut spans: Vec<&Span> = report.spans.iter().collect();
    spans.sort_by_key(|span| batch_of(span));
    let batches = spans.chunk_by(|one, other| batch_of(one) == batch_of(other));
    let batches = batches.map(|batch| tracks.place(report, Extent::of_batch(batch)));
    let rebuilds = report.incidents.iter().filter(|incident| !incident.took.is_zero());
    let rebuilds = rebuilds.map(|it| {
        let from = it.at.saturating_sub(it.took);
        Extent::new(thread(it.producer), from, it.at - from, SpanContent::Rebuilt)
    });
    // A time of loading has its incident.
    let spent = report.time_spans.iter().filter(|span| span.kind != TimeKind::Loading);
    let spent = spent.map(|it| {
        Extent::new(thread(Some(it.producer)), it.start, it.took, SpanContent::Spent(it.kind))
    });
    let extents = nested(batches.chain(rebuilds).chain(spent).collect());
    let moments = report.incidents.iter().filter(|incident| incident.took.is_zero());
    let events = names(name, report, pid).into_iter().chain(tracks.names(report));
    let events = events.chain(report.lacks_item_events().then(no_item_events));
    let events = events.chain(extents.iter().map(Extent::event)).chain(moments.map(moment));
    let with_pid = |mut event: Value| {
        event["pid"] = pid.into();
        event.to_string()
    };
    events.map(with_pid).collect()
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

    fn names(&self, report: &RunReport) -> Vec<Value> {
        let mut names = Vec::new();
        for (&row, threads) in &self.threads {
            let place = &report.producers[row].place;
            for (track, &tid) in threads.iter().enumerate().skip(1) {
                let text = format!("producer {row} ({place}), item {} at a time", track + 1);
                names.extend(named_thread(tid, &text, row + 1));
            }
        }
        names
    }
}

/// Sorts spans so that each comes before those inside it. Perfetto discards a span that overlaps another
/// partly; the earlier one then ends where the later one begins. Only times that were noted one after the
/// other, with a pause in between, overlap like that.
fn nested(mut extents: Vec<Extent<'_>>) -> Vec<Extent<'_>> {
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
    extents
}

impl<'a> Extent<'a> {
    fn new(thread: usize, from: Duration, took: Duration, shown: SpanContent<'a>) -> Self {
        let (from, took) = (from.as_nanos(), took.as_nanos());
        Extent { thread, from, until: from + took, shown }
    }

    fn of_batch(batch: &'a [&'a Span]) -> Self {
        let Span { producer, start, took, .. } = *batch[0];
        Extent::new(thread(Some(producer)), start, took, SpanContent::Attempts(batch))
    }

    fn event(&self) -> Value {
        let (name, cat, args) = match self.shown {
            SpanContent::Attempts(batch) => {
                let cat = if batch[0].is_open { "open" } else { "item" };
                let (name, args) = attempts(batch);
                (name, cat, args)
            }
            SpanContent::Rebuilt => {
                let args = json!({"note": "the producer had lost its state"});
                ("producer_init".to_owned(), "init", args)
            }
            SpanContent::Spent(kind) => {
                (kind.text().to_owned(), "wait", json!({"note": "no item was worked on"}))
            }
        };
        let (ts, dur) = (micros(self.from), micros(self.until - self.from));
        let tid = self.thread;
        json!({"name": name, "ph": "X", "cat": cat, "tid": tid, "ts": ts, "dur": dur, "args": args})
    }
}

/// The name and the arguments of a batch, or of one item.
fn attempts(batch: &[&Span]) -> (String, Value) {
    let attempt = batch[0].attempt;
    let keys: Vec<&str> = batch.iter().filter_map(|span| span.key.as_deref()).collect();
    let (name, mut args) = match batch {
        [Span { item, .. }] => {
            let name = keys.first().map_or_else(|| format!("item {item}"), |key| (*key).to_owned());
            (name, json!({"item": item, "key": keys.first(), "attempt": attempt}))
        }
        batch => {
            let items: Vec<u64> = batch.iter().map(|span| span.item).collect();
            let args = json!({"items": items, "keys": keys, "attempt": attempt});
            (format!("batch of {}", batch.len()), args)
        }
    };
    if let (true, Some(args)) = (keys.is_empty(), args.as_object_mut()) {
        args.retain(|name, _| !name.starts_with("key"));
    }
    (name, args)
}

/// The thread number of a producer; 0 is for events of no producer.
fn thread(producer: Option<usize>) -> usize {
    producer.map_or(0, |producer| producer.saturating_add(1))
}

fn names(name: Option<&str>, report: &RunReport, pid: usize) -> Vec<Value> {
    let process = match name.or(report.description.as_deref()) {
        Some(description) => format!("gangline: {description}"),
        None if pid > 1 => format!("gangline: stage {pid}"),
        None => "gangline".to_owned(),
    };
    let mut names = vec![
        meta("process_name", 0, json!({"name": process})),
        meta("process_sort_index", 0, json!({"sort_index": pid})),
        meta("thread_name", 0, json!({"name": "run"})),
    ];
    for (index, producer) in report.producers.iter().enumerate() {
        let tid = thread(Some(index));
        let text = format!("{} {index} ({})", report.words().producer, producer.place);
        names.extend(named_thread(tid, &text, tid));
    }
    names
}

fn named_thread(tid: usize, name: &str, sort_index: usize) -> [Value; 2] {
    let order = meta("thread_sort_index", tid, json!({"sort_index": sort_index}));
    [meta("thread_name", tid, json!({"name": name})), order]
}

/// Names or sorts a process or a thread.
fn meta(what: &str, tid: usize, args: Value) -> Value {
    json!({"name": what, "ph": "M", "tid": tid, "args": args})
}

/// Attempts with the same value were one batch.
fn batch_of(span: &Span) -> (usize, Duration, Duration, bool) {
    (span.producer, span.start, span.took, span.is_open)
}

fn no_item_events() -> Value {
    let note = "without item events, a trace has failures and lost producers only";
    let (tid, ts) = (thread(None), micros(0));
    let args = json!({"note": note});
    json!({"name": NO_ITEM_EVENTS, "ph": "i", "cat": "note", "tid": tid, "ts": ts, "s": "p", "args": args})
}

fn moment(incident: &Incident) -> Value {
    // The extent of an instant: its thread or its process.
    let extent = if incident.producer.is_some() { "t" } else { "p" };
    let (tid, ts) = (thread(incident.producer), micros(incident.at.as_nanos()));
    let name = incident.kind.text();
    let mut args = json!({"text": incident.text});
    if let Some(item) = incident.item {
        args["item"] = item.into();
    }
    json!({"name": name, "ph": "i", "cat": "incident", "tid": tid, "ts": ts, "s": extent, "args": args})
}

/// Readers multiply by 1,000 and drop the fraction. Half a nanosecond more makes that the exact number.
fn micros(nanos: u128) -> f64 {
    (nanos as f64 + 0.5) / 1e3
}

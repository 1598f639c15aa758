//! The content of the display, derived from events without a clock or a terminal.

#[cfg(test)]
mod tests;

use std::time::Duration;

use gangline_report::{Account, Colors, Ending, Failure, Ink, RunReport};
use textwrap::core::display_width;

use super::display_text::{bar, clipped, duration, items, printable, rate, share};
use super::producer_watch::ProducerWatch;
use super::rate::Rate;
use crate::observe::event::Event;

/// The state of the display of a run.
#[derive(Debug, Clone, Default)]
pub(super) struct ProgressBoard {
    /// The name of the run; empty if it has none.
    desc: String,
    /// The number of failures that are shown.
    most_failures: usize,
    colors: Colors,
    now: Duration,
    /// The number of items.
    items: Option<u64>,
    counts: OutcomeCounts,
    retried: u64,
    /// The number of items that the consumer has come to.
    delivered: u64,
    /// The item that the consumer waits for while the results of later ones are ready.
    awaited: Option<u64>,
    rate: Rate,
    producers: Vec<ProducerWatch>,
    /// The number of workers, in a cluster.
    workers: Option<usize>,
    last_failure: Option<String>,
}

/// The items with an outcome, delivered or not.
#[derive(Debug, Clone, Default)]
struct OutcomeCounts {
    /// The number of items that producers succeeded at.
    succeeded: u64,
    failed: u64,
    /// The failures of the consumer, and those of no item: no attempt ended with them.
    of_no_attempt: u64,
    already_done: u64,
}

/// The figures beside a bar get a width of a multiple of this, so that the bar stands still while they change.
const FIGURES_STEP: usize = 8;

/// A narrower display lacks the shares of the time, and has no room for them beside the names of items.
const LEAST_WITH_SHARES: usize = 60;

/// A head of two lines leaves this number, with one line for the producers.
const LEAST_FOR_TWO: usize = 3;

/// Error texts are clipped to this many characters; the report has them in full.
const LONGEST_ERROR: usize = 1_000;

impl OutcomeCounts {
    fn succeed(&mut self, items: u64) {
        self.succeeded = self.succeeded.saturating_add(items);
    }

    fn fail(&mut self, failure: &Failure) {
        self.failed += 1;
        self.of_no_attempt += u64::from(!failure.is_of_attempt());
    }

    fn done(&self) -> u64 {
        let failed = self.failed - self.of_no_attempt;
        self.succeeded.saturating_add(failed).saturating_add(self.already_done)
    }
}

impl ProgressBoard {
    pub(super) fn new(desc: &str, most_failures: usize) -> Self {
        ProgressBoard {
            desc: printable(desc).into_owned(),
            most_failures,
            ..ProgressBoard::default()
        }
    }

    pub(super) fn colors(self, colors: Colors) -> Self {
        ProgressBoard { colors, ..self }
    }

    /// Applies an event. Returns a message to show at once, if any.
    pub(super) fn observe(&mut self, at: Duration, event: &Event) -> Option<String> {
        if let Event::RunStarted { items, producers, .. } = event {
            let producers = producers.iter().map(|place| ProducerWatch::new(place)).collect();
            let empty = ProgressBoard::new(&self.desc, self.most_failures).colors(self.colors);
            *self = ProgressBoard { items: *items, producers, ..empty };
        }
        self.pass(at);
        match event {
            Event::ItemsDone { items } => {
                self.counts.succeed(*items);
                self.rate.add(at, *items);
            }
            Event::ItemsDelivered { items } => {
                self.delivered = self.delivered.saturating_add(*items);
                self.awaited = None;
            }
            Event::HeadOfLineBlocked { item, .. } => self.awaited = Some(*item),
            Event::ItemAlreadyDone { .. } | Event::ItemEndedEarlier { failure: None } => {
                self.counts.already_done += 1;
            }
            Event::ItemRetried { .. } => self.retried += 1,
            Event::ItemFailed { failure } | Event::ItemEndedEarlier { failure: Some(failure) } => {
                return self.fail(at, failure);
            }
            Event::EventsLost { .. } => {
                self.producers.iter_mut().for_each(ProducerWatch::note_missed_events);
            }
            Event::RunStarted { fallbacks, .. } => {
                return (!fallbacks.is_empty())
                    .then(|| self.named(one_line(&fallbacks.join("; "))));
            }
            Event::WorkerJoined { producer, place, .. } => {
                self.workers = Some(self.workers.unwrap_or(0) + 1);
                let watch = self.producers.get_mut(*producer);
                watch.into_iter().for_each(|watch| *watch = ProducerWatch::of_worker(place, at));
            }
            Event::WorkerLeft { producer, lost, .. } => {
                self.workers = self.workers.map(|workers| workers.saturating_sub(1));
                return self.empty(*producer, lost.as_deref());
            }
            Event::RunEnded { .. }
            | Event::ItemsRead { .. }
            | Event::WindowFull { .. }
            | Event::ItemsConsumed { .. }
            | Event::ProducerWaited { .. }
            | Event::ProducerRecycled { .. } => {}
            Event::ProducerReady { .. }
            | Event::ItemStarted { .. }
            | Event::ItemFinished { .. }
            | Event::HookPaused { .. }
            | Event::ProducerQuarantined { .. }
            | Event::ProducerAbandoned { .. }
            | Event::ProducerReplaced { .. } => return self.produce(at, event),
        }
        None
    }

    /// Takes the number of items from `total`, unless it is known.
    pub(super) fn expect(&mut self, total: impl FnOnce() -> Option<u64>) {
        self.items = self.items.or_else(total);
    }

    /// Advances the time.
    pub(super) fn pass(&mut self, at: Duration) {
        // Events arrive slightly out of order, and the displayed time must not run backwards.
        self.now = self.now.max(at);
    }

    /// Returns the lines of the run and its producers: at least one, at most `most`. The bar makes the first as
    /// wide as `columns`.
    pub(super) fn lines(&self, most: usize, columns: usize) -> Vec<String> {
        let mut lines = self.head(columns, most);
        lines.extend(self.held_up().map(|text| format!("  {text}")).filter(|_| lines.len() < most));
        let room = most.saturating_sub(lines.len());
        let producers = self.producers.iter().enumerate().filter(|(_, watch)| !watch.is_vacant());
        let producers: Vec<_> = producers.collect();
        let one_by_one = match producers.len() {
            all if all <= room => all,
            _ => room.saturating_sub(1),
        };
        let (shown, rest) = producers.split_at(one_by_one);
        lines.extend(self.producers(shown, columns));
        if !rest.is_empty() && room > 0 {
            lines.push(self.sum_of(rest));
        }
        lines
    }

    /// Returns the run as one line of a log.
    pub(super) fn line(&self) -> String {
        let mut parts = self.figures();
        parts.extend(self.held_up());
        self.named(parts.join(", "))
    }

    /// Returns the result of the run as one line. `account` is that of all stages of a pipeline.
    pub(super) fn result(&self, totals: &RunReport, account: Account) -> String {
        let worked_on = account.ok.saturating_add(account.failed);
        let done = worked_on.saturating_add(account.already_done);
        let mut parts = match totals.ending {
            Ending::Cancelled => vec![self.paint(Ink::Warning, "cancelled")],
            Ending::Failed => vec![self.paint(Ink::Bad, "failed")],
            _ => Vec::new(),
        };
        parts.push(format!("{} in {}", self.count(done), duration(totals.lasted)));
        if worked_on > 0 && !totals.lasted.is_zero() {
            parts.push(rate(worked_on as f64 / totals.lasted.as_secs_f64()));
        }
        push_count(&mut parts, self.retried, "retried");
        self.push_failed(&mut parts, account.failed);
        push_count(&mut parts, account.already_done, "already done");
        let text = self.named(parts.join(", "));
        let error = totals.error.as_deref().filter(|_| totals.ending == Ending::Failed);
        match error.map(one_line) {
            // The last failure shown has the same text.
            Some(error) if self.last_failure.as_ref() == Some(&error) => text,
            Some(error) => format!("{text}: {error}"),
            None => text,
        }
    }

    fn fail(&mut self, at: Duration, failure: &Failure) -> Option<String> {
        self.counts.fail(failure);
        if failure.is_of_attempt() {
            self.rate.add(at, 1);
        }
        let most = self.most_failures as u64;
        if self.counts.failed > most {
            // Without any, there are no further ones.
            let is_next = most > 0 && self.counts.failed == most + 1;
            return is_next
                .then(|| self.named("further failures are counted, not shown".to_owned()));
        }
        let error = one_line(&failure.to_string());
        self.last_failure = Some(error.clone());
        Some(self.named(error))
    }

    /// Applies an event of a producer.
    fn produce(&mut self, at: Duration, event: &Event) -> Option<String> {
        let (Event::ProducerReady { producer, .. }
        | Event::ItemStarted { producer, .. }
        | Event::ItemFinished { producer, .. }
        | Event::HookPaused { producer, .. }
        | Event::ProducerQuarantined { producer, .. }
        | Event::ProducerAbandoned { producer }
        | Event::ProducerReplaced { producer }) = event
        else {
            return None;
        };
        let watch = self.producers.get_mut(*producer)?;
        match event {
            Event::ItemStarted { item, key, attempt, .. } => {
                watch.starts(at, *item, key.as_ref(), *attempt);
            }
            Event::ItemFinished { item, .. } => watch.finishes(at, *item),
            Event::HookPaused { took, .. } => watch.note_pause(at, *took),
            Event::ProducerQuarantined { reason, .. } => {
                return self.lose(*producer, "out of service", reason);
            }
            Event::ProducerAbandoned { .. } => {
                return self.lose(*producer, "abandoned", "it did not return in time");
            }
            // It calls `producer_init`, and says when it is ready.
            Event::ProducerReplaced { .. } => {}
            _ => watch.set_ready(at),
        }
        None
    }

    /// Removes the line of a worker that has left its seat. Returns a message if the worker was lost.
    fn empty(&mut self, producer: usize, lost: Option<&str>) -> Option<String> {
        // A worker that was quarantined before keeps its line.
        let watch = self.producers.get_mut(producer).filter(|watch| !watch.is_lost())?;
        let place = std::mem::replace(watch, ProducerWatch::new("")).place;
        let why = one_line(lost?);
        Some(self.named(format!("worker {place} is lost: {why}")))
    }

    fn lose(&mut self, producer: usize, how: &str, why: &str) -> Option<String> {
        let watch = self.producers.get_mut(producer)?;
        let why = one_line(why);
        watch.set_out_of_use(&format!("{how}: {why}"));
        let message = format!("producer {producer} on {} is {how}: {why}", watch.place);
        Some(self.named(message))
    }

    /// The name, a bar and the figures; the figures have a line of their own if they leave a bar too little.
    fn head(&self, columns: usize, most: usize) -> Vec<String> {
        let mut figures = self.figures();
        // The rate goes first, then the time to the end.
        while figures.len() > 1 && width_of(&figures) + 2 > columns {
            figures.remove(1);
        }
        let figures = figures.join("  ");
        let mut parts = Vec::new();
        let mut room = columns;
        if !self.desc.is_empty() {
            parts.push(self.paint(Ink::Strong, &self.desc));
            room = room.saturating_sub(display_width(&self.desc) + 2);
        }
        let Some(total) = self.total(self.counts.done()) else {
            parts.push(figures);
            return vec![parts.join("  ")];
        };
        let beside = display_width(&figures).next_multiple_of(FIGURES_STEP) + 2;
        let draw = |room| bar(self.counts.done(), total, room, self.colors);
        match draw(room.saturating_sub(beside)) {
            None if most >= LEAST_FOR_TWO => {
                parts.extend(draw(room));
                vec![parts.join("  "), format!("  {figures}")]
            }
            bar => {
                parts.extend(bar);
                parts.push(figures);
                vec![parts.join("  ")]
            }
        }
    }

    fn paint(&self, ink: Ink, text: &str) -> String {
        self.colors.paint(ink, text).to_string()
    }

    fn push_failed(&self, parts: &mut Vec<String>, failed: u64) {
        if failed > 0 {
            parts.push(self.paint(Ink::Bad, &format!("{failed} failed")));
        }
    }

    fn figures(&self) -> Vec<String> {
        let done = self.counts.done();
        let mut parts = vec![format!("{} in {}", self.count(done), duration(self.now))];
        if let Some(per_second) = self.rate.per_second(self.now) {
            parts.push(rate(per_second));
        }
        let left = self.total(done).map(|total| total - done).filter(|left| *left > 0);
        if let Some(time) = left.and_then(|left| self.rate.time_for(left, self.now)) {
            parts.push(format!("{} left", duration(time)));
        }
        if let Some(workers) = self.workers {
            parts.push(format!("{workers} {}", if workers == 1 { "worker" } else { "workers" }));
        }
        push_count(&mut parts, self.retried, "retried");
        self.push_failed(&mut parts, self.counts.failed);
        push_count(&mut parts, self.counts.already_done, "already done");
        parts
    }

    fn producers(
        &self,
        shown: &[(usize, &ProducerWatch)],
        columns: usize,
    ) -> impl Iterator<Item = String> {
        let longest = |text: fn(&ProducerWatch) -> String| {
            shown.iter().map(|(_, watch)| text(watch).chars().count()).max().unwrap_or(0)
        };
        let digits = shown.last().map_or(0, |(number, _)| *number).to_string().len();
        let place = longest(|watch| watch.place.clone());
        let done = longest(|watch| watch.items.to_string());
        shown.iter().map(move |&(number, watch)| {
            let mut line = format!(
                "  {number:>digits$}  {:<place$}  {:>done$} {:<5}  ",
                watch.place,
                watch.items,
                if watch.items == 1 { "item" } else { "items" },
            );
            if columns >= LEAST_WITH_SHARES {
                line += &format!("{} busy  ", share(share_of([watch], self.now)));
            }
            let room = columns.saturating_sub(display_width(&line));
            let line = line + &watch.doing(self.now, room);
            if watch.is_lost() { self.paint(Ink::Bad, &line) } else { line }
        })
    }

    fn sum_of(&self, rest: &[(usize, &ProducerWatch)]) -> String {
        let done = items(rest.iter().map(|(_, watch)| watch.items).sum());
        let busy = share(share_of(rest.iter().map(|it| it.1), self.now));
        format!("  and {} more: {done}, {} busy", rest.len(), busy.trim_start())
    }

    /// Says how many items are done and how many delivered, and names the item that holds the others up.
    fn held_up(&self) -> Option<String> {
        let item = self.awaited?;
        let mut watches = self.producers.iter();
        let reason = match watches.find_map(|watch| watch.works_on(item, self.now)) {
            Some((name, time)) => format!("{name} has run for {}", duration(time)),
            None => format!("waiting for item {item}"),
        };
        Some(format!("{} done, {} delivered ({reason})", self.counts.done(), self.delivered))
    }

    /// The total, unless the input announced too few items.
    fn total(&self, done: u64) -> Option<u64> {
        self.items.filter(|items| done <= *items)
    }

    fn count(&self, done: u64) -> String {
        match self.total(done) {
            Some(total) => format!("{done}/{total}"),
            None => items(done),
        }
    }

    fn named(&self, text: String) -> String {
        match self.desc.as_str() {
            "" => text,
            desc => format!("{desc}: {text}"),
        }
    }
}

/// The width of figures, with two spaces between each.
fn width_of(figures: &[String]) -> usize {
    figures.iter().map(|it| display_width(it) + 2).sum::<usize>().saturating_sub(2)
}

fn push_count(parts: &mut Vec<String>, count: u64, of_what: &str) {
    if count > 0 {
        parts.push(format!("{count} {of_what}"));
    }
}

fn share_of<'a>(watches: impl IntoIterator<Item = &'a ProducerWatch>, at: Duration) -> Option<f64> {
    let (mut busy, mut known) = (Duration::ZERO, Duration::ZERO);
    for watch in watches {
        let (b, k) = watch.busy(at);
        busy += b;
        known += k;
    }
    (!known.is_zero()).then(|| busy.as_secs_f64() / known.as_secs_f64())
}

fn one_line(error: &str) -> String {
    clipped(&printable(error), LONGEST_ERROR).into_owned()
}

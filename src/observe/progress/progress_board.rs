//! The content of the display, derived from events without a clock or a terminal.

use std::time::Duration;

use textwrap::core::display_width;

use super::display_text::{bar, clipped, duration, items, printable, rate, share};
use super::producer_watch::ProducerWatch;
use super::rate::Rate;
use crate::observe::event::{Event, Totals};
use crate::observe::failure::Failure;
use crate::observe::text_style::{Colors, Ink};

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
    /// The number of items that producers succeeded at.
    succeeded: u64,
    failed: u64,
    /// Of the failures, those of the consumer, and those of no item: no attempt ended with them.
    of_no_attempt: u64,
    already_done: u64,
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

/// The figures beside a bar get a width of a multiple of this, so that the bar stands still while they change.
const FIGURES_STEP: usize = 8;

/// A head of two lines leaves this number, with one line for the producers.
const LEAST_FOR_TWO: usize = 3;

/// Error texts are clipped to this many characters; the report has them in full.
const LONGEST_ERROR: usize = 1_000;

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
                self.succeeded = self.succeeded.saturating_add(*items);
                self.rate.add(at, *items);
            }
            Event::ItemsDelivered { items } => {
                self.delivered = self.delivered.saturating_add(*items);
                self.awaited = None;
            }
            Event::HeadOfLineBlocked { item, .. } => self.awaited = Some(*item),
            Event::ItemAlreadyDone { .. } | Event::ItemEndedEarlier { failure: None } => {
                self.already_done += 1;
            }
            Event::ItemRetried { .. } => self.retried += 1,
            Event::ItemFailed { failure } | Event::ItemEndedEarlier { failure: Some(failure) } => {
                return self.fail(at, failure);
            }
            Event::EventsLost { .. } => {
                self.producers.iter_mut().for_each(ProducerWatch::may_miss_events);
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
            Event::WorkerLeft { producer, lost } => {
                self.workers = self.workers.map(|workers| workers.saturating_sub(1));
                return self.empty(*producer, lost.as_deref());
            }
            Event::RunEnded { .. }
            | Event::WindowFull { .. }
            | Event::ItemsConsumed { .. }
            | Event::ProducerRecycled { .. } => {}
            Event::ProducerReady { .. }
            | Event::ItemStarted { .. }
            | Event::ItemFinished { .. }
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
        lines.extend(self.producers(shown));
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

    /// Returns the result of the run as one line.
    pub(super) fn result(&self, totals: &Totals) -> String {
        let account = totals.pipeline.unwrap_or(totals.account);
        let worked_on = account.ok.saturating_add(account.failed);
        let done = worked_on.saturating_add(account.already_done);
        let mut parts = match totals {
            Totals { cancelled: true, .. } => vec![self.paint(Ink::Warning, "cancelled")],
            Totals { error: Some(_), .. } => vec![self.paint(Ink::Bad, "failed")],
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
        match totals.error.as_deref().filter(|_| !totals.cancelled).map(one_line) {
            // The last failure shown has the same text.
            Some(error) if self.last_failure.as_ref() == Some(&error) => text,
            Some(error) => format!("{text}: {error}"),
            None => text,
        }
    }

    fn fail(&mut self, at: Duration, failure: &Failure) -> Option<String> {
        self.failed += 1;
        match failure.is_of_attempt() {
            true => self.rate.add(at, 1),
            false => self.of_no_attempt += 1,
        }
        let most = self.most_failures as u64;
        if self.failed > most {
            // Without any, there are no further ones.
            let is_next = most > 0 && self.failed == most + 1;
            return is_next
                .then(|| self.named("further failures are counted, not shown".to_owned()));
        }
        let error = one_line(&with_causes(failure));
        self.last_failure = Some(error.clone());
        Some(self.named(error))
    }

    /// Applies an event of a producer.
    fn produce(&mut self, at: Duration, event: &Event) -> Option<String> {
        let (Event::ProducerReady { producer, .. }
        | Event::ItemStarted { producer, .. }
        | Event::ItemFinished { producer, .. }
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
            Event::ProducerQuarantined { reason, .. } => {
                return self.lose(*producer, "out of service", reason);
            }
            Event::ProducerAbandoned { .. } => {
                return self.lose(*producer, "abandoned", "it did not return in time");
            }
            _ => watch.is_ready(at),
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
        watch.is_out_of_use(&format!("{how}: {why}"));
        let message = format!("producer {producer} on {} is {how}: {why}", watch.place);
        Some(self.named(message))
    }

    /// The name, a bar and the figures; the figures have a line of their own if they leave a bar too little.
    fn head(&self, columns: usize, most: usize) -> Vec<String> {
        let figures = self.figures().join("  ");
        let mut parts = Vec::new();
        let mut room = columns;
        if !self.desc.is_empty() {
            parts.push(self.paint(Ink::Strong, &self.desc));
            room = room.saturating_sub(display_width(&self.desc) + 2);
        }
        let Some(total) = self.total(self.done()) else {
            parts.push(figures);
            return vec![parts.join("  ")];
        };
        let beside = display_width(&figures).next_multiple_of(FIGURES_STEP) + 2;
        let draw = |room| bar(self.done(), total, room, self.colors);
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
        let done = self.done();
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
        self.push_failed(&mut parts, self.failed);
        push_count(&mut parts, self.already_done, "already done");
        parts
    }

    fn producers(&self, shown: &[(usize, &ProducerWatch)]) -> impl Iterator<Item = String> {
        let longest = |text: fn(&ProducerWatch) -> String| {
            shown.iter().map(|(_, watch)| text(watch).chars().count()).max().unwrap_or(0)
        };
        let digits = shown.last().map_or(0, |(number, _)| *number).to_string().len();
        let place = longest(|watch| watch.place.clone());
        let done = longest(|watch| watch.items.to_string());
        shown.iter().map(move |&(number, watch)| {
            let line = format!(
                "  {number:>digits$}  {:<place$}  {:>done$} {:<5}  {} busy  {}",
                watch.place,
                watch.items,
                if watch.items == 1 { "item" } else { "items" },
                share(share_of([watch], self.now)),
                watch.doing(self.now),
            );
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
        Some(format!("{} done, {} delivered ({reason})", self.done(), self.delivered))
    }

    /// The items with an outcome, succeeded or failed, delivered or not.
    fn done(&self) -> u64 {
        let failed = self.failed - self.of_no_attempt;
        self.succeeded.saturating_add(failed).saturating_add(self.already_done)
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

/// Like the alternate form of [`Error`](crate::Error): many errors already include their cause.
fn with_causes(failure: &Failure) -> String {
    let mut text = failure.error.clone();
    for cause in &failure.causes {
        if !text.ends_with(cause.as_str()) {
            text = text + ": " + cause;
        }
    }
    text
}

fn one_line(error: &str) -> String {
    clipped(&printable(error), LONGEST_ERROR).into_owned()
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::observe::progress::tests::{
        done, ended, failed, finished, ms, started, starts, totals,
    };

    fn board(events: &[(u64, Event)]) -> ProgressBoard {
        let mut board = ProgressBoard::new("Segmenting", 2);
        for (at, event) in events {
            board.observe(ms(*at), event);
        }
        board
    }

    #[test]
    fn a_run_and_its_producers_have_a_line_each() {
        let mut board = board(&[
            (0, started(Some(8), &["cuda:0", "cpu"])),
            (0, Event::ProducerReady { producer: 0, took: ms(9), is_rebuilt: false }),
            (0, starts(0, 0, Some("a.tif"))),
            (0, starts(1, 1, None)),
            (2_000, finished(0, 0)),
            (2_000, done(1)),
            (2_000, starts(2, 0, Some("b.tif"))),
            (4_000, finished(2, 0)),
        ]);
        board.pass(ms(5_000));
        let lines = [
            "Segmenting  [#####-------------------------------------]  1/8 in 5.0 s  0.2/s  36 s left",
            "  0  cuda:0  2 items   80 % busy  waiting",
            "  1  cpu     0 items  100 % busy  item 1, 5.0 s",
        ];
        assert_eq!(board.lines(18, 90), lines);
        assert_eq!(board.line(), "Segmenting: 1/8 in 5.0 s, 0.2/s, 36 s left");
    }

    #[test]
    fn the_workers_of_a_cluster_are_counted() {
        let joined = |producer| Event::WorkerJoined {
            producer,
            host: "a".into(),
            place: format!("a/{producer}").into(),
        };
        let mut events = vec![(0, started(Some(8), &["cpu", "cpu"])), (0, joined(0))];
        assert_eq!(board(&events).line(), "Segmenting: 0/8 in 0.0 s, 1 worker");
        events.push((5, joined(1)));
        assert_eq!(board(&events).line(), "Segmenting: 0/8 in 0.0 s, 2 workers");
        events.extend([0, 1].map(|producer| (9, Event::WorkerLeft { producer, lost: None })));
        assert_eq!(board(&events).line(), "Segmenting: 0/8 in 0.0 s, 0 workers");
    }

    #[test]
    fn one_slow_item_does_not_hide_those_behind_it() {
        let blocked = |item| Event::HeadOfLineBlocked { item, lasted: ms(100) };
        let mut events = vec![
            (0, started(Some(150), &["cpu", "cpu"])),
            (0, starts(0, 0, None)),
            (0, starts(1, 1, Some("b.tif"))),
            (400, blocked(0)),
            (5_600, done(148)),
            (5_600, failed(7, "bad")),
        ];
        let line = "Segmenting: 149/150 in 5.6 s, 26.6/s, 0.0 s left, 1 failed, \
                    149 done, 0 delivered (item 0 has run for 5.6 s)";
        assert_eq!(board(&events).line(), line);
        let lines = board(&events).lines(9, 90);
        assert_eq!(lines[1], "  149 done, 0 delivered (item 0 has run for 5.6 s)");
        assert_eq!(lines.len(), 4);
        assert_eq!(board(&events).lines(1, 90).len(), 1);
        events.push((5_600, Event::ItemsDelivered { items: 1 }));
        assert!(!board(&events).line().contains("delivered"), "the next one is not slow");
        events.push((5_700, blocked(1)));
        let line = board(&events).line();
        assert!(line.ends_with("149 done, 1 delivered (b.tif has run for 5.7 s)"), "{line}");
        events.push((5_700, finished(1, 1)));
        let line = board(&events).line();
        assert!(line.ends_with("149 done, 1 delivered (waiting for item 1)"), "{line}");
    }

    #[test]
    fn only_seats_with_a_worker_have_a_line() {
        let joined = |seat: usize| Event::WorkerJoined {
            producer: seat,
            host: "node".into(),
            place: format!("node/{seat}").into(),
        };
        let mut board = board(&[(0, started(Some(8), &["", "", ""])), (1_000, joined(1))]);
        board.observe(ms(1_000), &starts(0, 1, None));
        board.observe(ms(2_000), &starts(1, 1, None));
        board.pass(ms(3_000));
        let line = "  1  node/1  0 items  100 % busy  item 0 and 1 more, 2.0 s";
        assert_eq!(board.lines(9, 90)[1..], [line]);
        board.observe(ms(3_000), &finished(0, 1));
        board.pass(ms(5_000));
        let line = "  1  node/1  1 item   100 % busy  item 1, 3.0 s";
        assert_eq!(board.lines(9, 90)[1..], [line]);
        board.observe(ms(5_000), &finished(1, 1));
        board.pass(ms(9_000));
        let line = "  1  node/1  2 items   50 % busy  waiting";
        assert_eq!(board.lines(9, 90)[1..], [line]);
        let left =
            |lost: Option<&str>| Event::WorkerLeft { producer: 1, lost: lost.map(Into::into) };
        let message = board.observe(ms(9_000), &left(Some("silent")));
        assert_eq!(message.as_deref(), Some("Segmenting: worker node/1 is lost: silent"));
        assert_eq!(board.lines(9, 90).len(), 1);
        assert_eq!(board.observe(ms(9_000), &joined(2)), None);
        assert_eq!(board.observe(ms(9_500), &left(None)), None);
        assert_eq!(board.lines(9, 90).len(), 2);
    }

    #[test]
    fn the_bar_takes_the_room_that_the_figures_leave() {
        let board = board(&[(0, started(Some(4), &["cpu"])), (1_000, done(2))]);
        let head = |columns| board.lines(1, columns).remove(0);
        for columns in [50, 80, 81, 200] {
            let width = head(columns).chars().count();
            assert!((columns - FIGURES_STEP..=columns).contains(&width), "{width} of {columns}");
        }
        let narrow = ["Segmenting  [########--------]", "  2/4 in 1.0 s  2.0/s  1.0 s left"];
        assert_eq!(board.lines(3, 30)[..2], narrow);
        assert_eq!(head(30), "Segmenting  2/4 in 1.0 s  2.0/s  1.0 s left", "there is one line");
    }

    #[test]
    fn failures_and_lost_producers_are_red() {
        let quarantined = Event::ProducerQuarantined { producer: 0, reason: "gone".into() };
        let events =
            [(0, started(Some(4), &["cpu"])), (1_000, failed(0, "bad")), (1_000, quarantined)];
        let mut board = ProgressBoard::new("", 2).colors(Colors::On);
        for (at, event) in &events {
            board.observe(ms(*at), event);
        }
        let lines = board.lines(2, 80);
        assert!(lines[0].ends_with("\u{1b}[31m1 failed\u{1b}[0m"), "{lines:?}");
        assert!(lines[0].contains("\u{1b}[32m#"), "{lines:?}");
        assert!(lines[1].starts_with("\u{1b}[31m  0  cpu"), "{lines:?}");
        let error = Totals { error: Some("bad".to_owned()), ..totals(0, 1, 9) };
        assert!(board.result(&error).starts_with("\u{1b}[31mfailed\u{1b}[0m, 1/4"));
    }

    #[test]
    fn a_total_that_is_known_late_is_shown_from_then_on() {
        let events = [(0, started(None, &["cpu"])), (0, done(5))];
        let mut board = board(&events);
        board.expect(|| None);
        assert!(board.line().starts_with("Segmenting: 5 items in"), "{}", board.line());
        board.expect(|| Some(10));
        board.expect(|| unreachable!("it is known"));
        assert!(board.line().starts_with("Segmenting: 5/10 in"), "{}", board.line());
    }

    #[test]
    fn a_display_that_shows_no_failures_shows_no_further_ones() {
        let mut board = ProgressBoard::new("", 0);
        assert_eq!(board.observe(Duration::ZERO, &failed(1, "no")), None);
    }

    #[test]
    fn without_a_total_or_a_name_there_is_a_count() {
        let mut board = ProgressBoard::new("", 1);
        board.observe(ms(0), &started(None, &["cpu"]));
        board.observe(ms(10_000), &done(20));
        assert_eq!(board.lines(1, 80), ["20 items in 10 s  2.0/s"]);
        assert_eq!(board.line(), "20 items in 10 s, 2.0/s");
    }

    #[test]
    fn an_input_that_said_too_few_or_none_is_counted() {
        let line = |events: &[(u64, Event)]| board(events).lines(1, 50).remove(0);
        let few = line(&[(0, started(Some(1), &["cpu"])), (1_000, done(2))]);
        assert_eq!(few, "Segmenting  2 items in 1.0 s  2.0/s");
        let none = line(&[(0, started(Some(0), &["cpu"]))]);
        assert_eq!(none, "Segmenting  [##################]  0/0 in 0.0 s");
    }

    #[test]
    fn failed_and_already_done_items_count_as_finished() {
        let retry = Event::ItemRetried { failure: Arc::default() };
        let board = board(&[
            (0, started(Some(10), &["cpu"])),
            (0, Event::ItemAlreadyDone { item: 0 }),
            (0, Event::ItemAlreadyDone { item: 1 }),
            (500, retry),
            (1_000, failed(2, "bad")),
            (1_000, done(1)),
        ]);
        // Items that are already done take no time, so they do not count for the rate.
        let line =
            "Segmenting: 4/10 in 1.0 s, 2.0/s, 2.9 s left, 1 retried, 1 failed, 2 already done";
        assert_eq!(board.line(), line);
    }

    #[test]
    fn failures_of_the_consumer_or_of_no_item_count_no_further_item() {
        let fails = |item, hook: Option<&str>| {
            let hook = hook.map(str::to_owned);
            let failure = Failure { item, hook, ..Failure::default() };
            Event::ItemFailed { failure: Arc::new(failure) }
        };
        let board = board(&[
            (0, started(Some(10), &["cpu"])),
            (500, fails(Some(0), Some("consumer_work"))),
            (1_000, done(4)),
            (1_000, fails(Some(4), Some("producer_work_batch"))),
            (1_000, fails(Some(1), Some("consumer_work"))),
            (1_000, fails(None, None)),
        ]);
        let line = "Segmenting: 5/10 in 1.0 s, 5.0/s, 0.9 s left, 4 failed";
        assert_eq!(board.line(), line);
    }

    #[test]
    fn the_first_failures_are_shown() {
        let mut board = board(&[(0, started(Some(10), &["cpu"]))]);
        let told: Vec<Option<String>> =
            (0..4).map(|item| board.observe(ms(item), &failed(item, "bad\n"))).collect();
        let told: Vec<Option<&str>> = told.iter().map(Option::as_deref).collect();
        let expected = [
            Some("Segmenting: producer_work failed for item 0: bad\\n"),
            Some("Segmenting: producer_work failed for item 1: bad\\n"),
            Some("Segmenting: further failures are counted, not shown"),
            None,
        ];
        assert_eq!(told, expected);
    }

    #[test]
    fn the_result_is_taken_from_the_totals() {
        let board = board(&[(0, started(Some(10), &["cpu"])), (1, failed(3, "bad"))]);
        let result = |change: fn(&mut Totals)| {
            let mut totals = totals(8, 1, 4_000);
            change(&mut totals);
            board.result(&totals)
        };
        assert_eq!(result(|_| ()), "Segmenting: 9/10 in 4.0 s, 2.2/s, 1 failed");
        let cancelled = |totals: &mut Totals| {
            (totals.cancelled, totals.error) = (true, Some("cancelled".to_owned()));
        };
        let text = "Segmenting: cancelled, 9/10 in 4.0 s, 2.2/s, 1 failed";
        assert_eq!(result(cancelled), text);
        let text = "Segmenting: failed, 9/10 in 4.0 s, 2.2/s, 1 failed";
        let told = |totals: &mut Totals| {
            totals.error = Some("producer_work failed for item 3: bad".to_owned());
        };
        assert_eq!(result(told), text, "it was shown when it happened");
        let another = |totals: &mut Totals| totals.error = Some("no\ndisk".to_owned());
        assert_eq!(result(another), format!("{text}: no\\ndisk"));
    }

    #[test]
    fn producers_without_room_are_summed_up() {
        let places = vec!["cpu"; 1_000];
        let mut board = board(&[(0, started(None, &places))]);
        for producer in 0..1_000 {
            board.observe(ms(0), &starts(producer as u64, producer, None));
            board.observe(ms(1_000), &finished(producer as u64, producer));
        }
        board.pass(ms(4_000));
        let lines = board.lines(4, 80);
        assert_eq!(lines.len(), 4);
        assert_eq!(lines[1], "  0  cpu  1 item    25 % busy  waiting");
        assert_eq!(lines[3], "  and 998 more: 998 items, 25 % busy");
        let lengths = [0, 1, 2, 3, 1_001, 2_000].map(|most| board.lines(most, 80).len());
        assert_eq!(lengths, [1, 1, 2, 3, 1_001, 1_001]);
        assert_eq!(board.lines(2, 80)[1], "  and 1000 more: 1000 items, 25 % busy");
    }

    #[test]
    fn a_lost_producer_is_shown_with_the_reason() {
        let mut board = board(&[(0, started(None, &["cuda:0", "cuda:1"]))]);
        let quarantined =
            Event::ProducerQuarantined { producer: 1, reason: "fell off\nthe bus".into() };
        let told = board.observe(ms(5), &quarantined);
        let text = "Segmenting: producer 1 on cuda:1 is out of service: fell off\\nthe bus";
        assert_eq!(told.as_deref(), Some(text));
        assert!(board.lines(9, 80)[2].ends_with("out of service: fell off\\nthe bus"));
        let told = board.observe(ms(5), &Event::ProducerAbandoned { producer: 0 }).unwrap();
        assert!(told.contains("abandoned"), "{told}");
    }

    #[test]
    fn a_new_run_starts_empty() {
        let mut used = board(&[
            (0, started(Some(2), &["cpu", "cpu"])),
            (70_000, failed(0, "bad")),
            (70_000, starts(1, 1, None)),
            (80_000, ended(totals(0, 1, 80_000))),
        ]);
        let again = started(Some(3), &["cpu"]);
        used.observe(ms(0), &again);
        assert_eq!(used.lines(9, 80), board(&[(0, again)]).lines(9, 80));
    }

    /// Any event of a run with one producer, in any order.
    fn any_event() -> impl Strategy<Value = Event> {
        let producer = 0_usize..4;
        prop_oneof![
            (0_u64..9, producer.clone(), any::<Option<String>>(), 0_u32..3).prop_map(
                |(item, producer, key, attempt)| {
                    let key = key.map(Arc::from);
                    Event::ItemStarted { item, key, producer, attempt }
                }
            ),
            (0_u64..9, producer.clone())
                .prop_map(|(item, producer)| Event::ItemFinished { item, producer }),
            producer.clone().prop_map(|producer| Event::ProducerReady {
                producer,
                took: Duration::ZERO,
                is_rebuilt: true
            }),
            any::<u64>().prop_map(|items| Event::ItemsDone { items }),
            any::<u64>().prop_map(|items| Event::ItemsDelivered { items }),
            (0_u64..9).prop_map(|item| Event::HeadOfLineBlocked { item, lasted: Duration::ZERO }),
            any::<u64>().prop_map(|events| Event::EventsLost { events }),
            (0_u64..9, any::<String>()).prop_map(|(item, error)| failed(item, &error)),
            (producer, any::<String>()).prop_map(|(producer, reason)| {
                Event::ProducerQuarantined { producer, reason: reason.into() }
            }),
            (any::<Option<u64>>(), any::<String>(), 0_usize..4)
                .prop_map(|(items, place, n)| { started(items, &vec![place.as_str(); n]) }),
        ]
    }

    proptest! {
        #[test]
        fn any_events_give_the_right_number_of_lines(
            desc in any::<String>(),
            events in prop::collection::vec((0_u64..100_000, any_event()), 0..40),
            most in 0_usize..8,
        ) {
            let mut board = ProgressBoard::new(&desc, 3);
            for (at, event) in &events {
                let told = board.observe(ms(*at), event);
                prop_assert!(!told.unwrap_or_default().contains(char::is_control));
                let lines = board.lines(most, 80);
                prop_assert!((1..=most.max(1)).contains(&lines.len()));
                prop_assert!(!lines.concat().contains(char::is_control));
                prop_assert!(!board.line().contains(char::is_control));
            }
        }

        /// One producer that works on one batch after the other, with all of its events.
        #[test]
        fn busy_is_the_time_between_the_beginnings_and_the_ends(
            calls in prop::collection::vec((1_u64..5, 0_u64..5_000, 0_u64..5_000), 1..20),
        ) {
            let mut board = board(&[(0, started(None, &["cpu"]))]);
            let (mut at, mut busy, mut item) = (0, 0, 0);
            for (items, waits, works) in calls {
                at += waits;
                (item..item + items).for_each(|i| {
                    board.observe(ms(at), &starts(i, 0, None));
                });
                at += works;
                busy += works;
                (item..item + items).for_each(|i| {
                    board.observe(ms(at), &finished(i, 0));
                });
                item += items;
            }
            let watch = &board.producers[0];
            prop_assert_eq!(watch.items, item);
            prop_assert_eq!(watch.busy(ms(at)), (ms(busy), ms(at)));
        }
    }
}

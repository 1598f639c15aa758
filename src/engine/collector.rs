//! The collector's end of the hand-over: results in the runner's order.

use std::time::{Duration, Instant};

use super::pace::{MANY, Pace};
use crate::backend::threads::handover::{Handover, WakeReason, WakeThreshold};
use crate::backend::threads::ordered_merge::OrderedMerge;
use crate::backend::threads::outbox::Outcome;
use crate::backend::threads::run::Run;
use crate::backend::threads::weights::Weights;
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::observe::event::Event;
use crate::observe::run_stats::CollectorTime;
use crate::runner::Runner;
use crate::scheduler::window::Window;

/// Takes results out of an handover and gives the permits back.
#[derive(Debug)]
pub(crate) struct Collector<T> {
    merge: OrderedMerge<T>,
    window: Window,
    /// Results handed out.
    consumed: u64,
    /// Permits of consumed items, not yet given back.
    owed: usize,
    /// From how many on they are given back.
    quarter: usize,
    scales: Option<Scales>,
    /// Where `consumed` stood when the window was last looked at, with what nobody has worked on since, and when
    /// that was.
    measured: (u64, Instant),
    /// Producers ran dry for want of permits during the last wait, which began with nothing held
    /// back for order.
    starved: bool,
    pace: Pace,
    came: Instant,
    time: CollectorTime,
}

/// Why a collector's wait has ended.
pub(crate) enum Pause {
    /// There may be a result.
    Results,
    /// The time has come that it was to wait for.
    Due,
    /// There is no more, or nobody wants more.
    Over,
}

/// The weights of items, where those are weighed.
#[derive(Debug)]
struct Scales {
    weights: Weights,
    /// That of the result handed out last.
    present: u64,
    /// Of consumed items, not yet given back.
    owed: u64,
    /// From what on it is given back.
    quarter: u64,
}

impl<T> Collector<T> {
    /// The collector of `handover`, which has only one.
    pub(crate) fn new<I>(
        handover: &Handover<I, T>,
        order: Order,
        window: Window,
        now: Instant,
    ) -> Self {
        handover.stats.collector_came(now, window.size() as u64);
        Collector {
            merge: handover.merge(order),
            window,
            consumed: 0,
            owed: 0,
            quarter: window.quarter(),
            scales: handover.weights().zip(handover.most_weight()).map(Scales::new),
            measured: (0, now),
            starved: false,
            pace: Pace::new(now),
            came: now,
            time: CollectorTime::default(),
        }
    }

    /// The next result, when it is here.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Outcome<T>)> {
        let popped = self.merge.pop();
        if let (Some(scales), Some((seq, _))) = (&mut self.scales, &popped) {
            scales.present = scales.weights.settle(*seq);
        }
        popped
    }

    /// The consumer is done with one item.
    #[inline]
    pub(crate) fn done<I>(&mut self, handover: &Handover<I, T>) {
        self.consumed += 1;
        self.owed += 1;
        let is_much = self.scales.as_mut().is_some_and(Scales::owes_much);
        if self.owed >= self.quarter || is_much {
            self.give_back(handover, 0);
        }
    }

    /// The same for one that nobody has worked on.
    pub(crate) fn done_without_work<I>(&mut self, handover: &Handover<I, T>) {
        // It says nothing of how fast items are, and those that come after it may be large and slow.
        self.measured.0 += 1;
        self.done(handover);
    }

    fn give_back<I>(&mut self, handover: &Handover<I, T>, more: usize) {
        let weight = self.scales.as_mut().map_or(0, |scales| std::mem::take(&mut scales.owed));
        let kept = self.window.keep(self.owed);
        self.quarter = self.window.quarter();
        handover.give_back(std::mem::take(&mut self.owed) - kept + more, weight);
    }

    /// How many results were handed out and are done with.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Gives back all permits, where the caller is about to wait for something else.
    pub(crate) fn repay<I>(&mut self, handover: &Handover<I, T>) {
        self.give_back(handover, 0);
    }

    /// Gives back all permits, and those by which the window grows. To be called when
    /// [`pop`](Collector::pop) found nothing.
    ///
    /// The window grows when producers ran dry for want of permits while this collector waited, and
    /// what arrived then left nothing held back for order: neither a slow consumer nor a straggler
    /// at the head makes it grow.
    pub(crate) fn settle<I>(&mut self, handover: &Handover<I, T>) {
        let starved = std::mem::take(&mut self.starved);
        let more = if starved && !self.merge.holds_back() { self.growth() } else { 0 };
        self.give_back(handover, more);
    }

    /// When somebody who is told of it wants to know how long an item has stood in the way of others. To be
    /// asked when [`pop`](Collector::pop) found nothing.
    pub(crate) fn news_due(&self) -> Option<Instant> {
        self.merge.awaited().map(|item| now() + self.time.heads.news_in(item))
    }

    /// Waits for news, with all permits [given back](Collector::settle). `total` is what the caller
    /// knows of the number of items.
    /// Not longer than until `due`.
    pub(crate) fn wait<I>(
        &mut self,
        handover: &Handover<I, T>,
        total: Option<u64>,
        due: Option<Instant>,
    ) -> WakeReason {
        // What ran dry before was waiting for this collector, not for permits.
        self.forget_dryness(handover);
        let (since, head) = (now(), self.merge.awaited());
        let wake_threshold = wake_threshold(&mut self.pace, self.quarter);
        let news = handover.wait(&mut self.merge, since, total, wake_threshold, due);
        let now = self.note_wait(handover, since, head);
        self.note_dryness(handover);
        self.note_pace(now, handover.is_starving());
        news
    }

    /// As [`wait`](Collector::wait), for a collector that is also the feeder, and has more input but
    /// no permit: while it waits, and not while its caller is busy elsewhere, permits are what lacks.
    pub(crate) fn wait_as_feeder<I>(
        &mut self,
        handover: &Handover<I, T>,
        due: Option<Instant>,
    ) -> WakeReason {
        self.forget_dryness(handover);
        handover.starve_as_collector();
        let (since, head) = (now(), self.merge.awaited());
        let wake_threshold = wake_threshold(&mut self.pace, self.quarter);
        let news = handover.wait(&mut self.merge, since, None, wake_threshold, due);
        handover.feed_again();
        let now = self.note_wait(handover, since, head);
        self.note_dryness(handover);
        self.note_pace(now, true);
        news
    }

    /// Nothing was there for the consumer, or, with a `head`, nothing that it was the turn of, from then until the
    /// time that is returned.
    fn note_wait<I>(
        &mut self,
        handover: &Handover<I, T>,
        since: Instant,
        head: Option<u64>,
    ) -> Instant {
        let now = now();
        let waited = now - since;
        match head {
            Some(item) => {
                self.time.stalled += waited;
                self.time.heads.add(item, waited);
            }
            None => self.time.waited += waited,
        }
        handover.stats.collector_waited(&self.time, self.window.size() as u64);
        now
    }

    /// The item that stands in the way of others, and how long it has, each time that is twice as long.
    pub(crate) fn news_of_head(&mut self) -> Option<(u64, Duration)> {
        self.time.heads.news()
    }

    /// How long it has waited in all.
    pub(crate) fn waited(&self) -> Duration {
        self.time.waited + self.time.stalled
    }

    fn forget_dryness<I>(&self, handover: &Handover<I, T>) {
        if self.window.may_grow() {
            handover.forget_dryness();
        }
    }

    fn note_dryness<I>(&mut self, handover: &Handover<I, T>) {
        let is_behind = self.merge.holds_back();
        self.starved = self.window.may_grow() && !is_behind && handover.ran_dry();
    }

    /// After a wait, with the window full or not. It is too large if it is full of slow items that nobody works on
    /// yet; results that wait for one slow item say nothing of the others.
    fn note_pace(&mut self, now: Instant, is_full: bool) {
        let held_back = self.merge.seen().sum::<u64>().saturating_sub(self.consumed);
        let only_producers_lag = is_full && held_back <= self.window.size() as u64 / 2;
        self.window.look(self.consumed, only_producers_lag, now);
    }

    /// By how many items the window grows, at the pace since it last did.
    fn growth(&mut self) -> usize {
        let now = now();
        let (consumed, since) = std::mem::replace(&mut self.measured, (self.consumed, now));
        let more = self.window.grow(self.consumed - consumed, now - since);
        self.quarter = self.window.quarter();
        more
    }

    /// Leaves the run, in which there may be results still. What was here and not handed out.
    pub(crate) fn leave<I>(mut self, handover: &Handover<I, T>) -> Vec<Outcome<T>> {
        self.time.window = self.window.size() as u64;
        self.time.present = now() - self.came;
        handover.stats.collector_left(self.time, self.merge.seen());
        handover.bring_back(self.merge)
    }
}

impl<T> Collector<T> {
    /// The next result that somebody wants, waiting for it. `None` when there is no more, or when
    /// nobody wants more. `total` is what the collector's owner knows of the number of items.
    #[inline]
    pub(crate) fn next_result<R: Runner<Output = T>>(
        &mut self,
        run: &Run<R>,
        total: &mut Option<u64>,
    ) -> Option<(u64, Outcome<T>)> {
        loop {
            if let Some(result) = self.next_here(run) {
                return Some(result);
            }
            match self.wait_before(run, total, || None) {
                Pause::Results => {}
                Pause::Due | Pause::Over => return None,
            }
        }
    }

    /// The next result that somebody wants, if it is here.
    #[inline]
    pub(crate) fn next_here<R: Runner<Output = T>>(
        &mut self,
        run: &Run<R>,
    ) -> Option<(u64, Outcome<T>)> {
        while !run.is_over() {
            let (seq, outcome) = self.pop()?;
            if !run.is_pointless(seq, &outcome) {
                return Some((seq, outcome));
            }
            drop_quietly(outcome);
            self.done(&run.handover);
        }
        None
    }

    /// Waits until there may be a next result, where none is here, and not longer than until the time that
    /// `due` says.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_before<R: Runner<Output = T>>(
        &mut self,
        run: &Run<R>,
        total: &mut Option<u64>,
        due: impl Fn() -> Option<Instant>,
    ) -> Pause {
        if run.is_over() {
            return Pause::Over;
        }
        *total = total.or_else(|| run.handover.total());
        if *total == Some(self.consumed()) {
            return Pause::Over;
        }
        self.settle(&run.handover);
        let due = due();
        if due.is_some_and(|due| due <= now()) {
            return Pause::Due;
        }
        let due = due.into_iter().chain(self.news_due_in(run)).min();
        let news = self.wait(&run.handover, *total, due);
        self.tell_of_head(run);
        run.check(news);
        Pause::Results
    }

    /// Until when a collector may sleep, should it wait for an item that stands in the way of others: who looks
    /// on is to know while that lasts.
    pub(crate) fn news_due_in<R: Runner<Output = T>>(&self, run: &Run<R>) -> Option<Instant> {
        if run.event_log.is_observed() { self.news_due() } else { None }
    }

    pub(crate) fn tell_of_head<R: Runner<Output = T>>(&mut self, run: &Run<R>) {
        if let Some((item, lasted)) = self.news_of_head() {
            run.event_log.tell(Event::HeadOfLineBlocked { item, lasted });
        }
    }
}

impl Scales {
    fn new((weights, most): (Weights, u64)) -> Self {
        Scales { weights, present: 0, owed: 0, quarter: most / 4 }
    }

    /// The consumer is done with the result handed out last.
    fn owes_much(&mut self) -> bool {
        self.owed = self.owed.saturating_add(std::mem::take(&mut self.present));
        self.owed > self.quarter
    }
}

/// How a collector sleeps whose results have come at this pace, and which gives back a quarter of the window at once.
fn wake_threshold<T>(
    pace: &mut Pace,
    quarter: usize,
) -> impl FnOnce(&OrderedMerge<T>) -> WakeThreshold {
    move |merge| {
        if pace.is_high(merge.seen().sum(), now()) && quarter >= MANY {
            WakeThreshold::For { results: quarter }
        } else {
            WakeThreshold::None
        }
    }
}

//! The collector's end of the hand-over: results in the runner's order.

use std::task::Waker;
use std::time::{Duration, Instant};

use gangline_scheduler::window::{Shortage, Window};

use crate::base::Order;
use crate::base::memory::Headroom;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::observe::event::Event;
use crate::observe::run_stats::CollectorTime;
use crate::run::Run;
use crate::run::handover::shared_budget::StageBudget;
use crate::run::handover::{Handover, WakeReason, WakeThreshold};
use crate::run::ordered_merge::OrderedMerge;
use crate::run::outbox::Outcome;

/// The pace is judged after this number of results.
const RESULTS: u64 = if cfg!(shuttle) { u64::MAX } else { 32 };
/// The time within which [`RESULTS`] results make the pace high: one every 250 us. A wake-up costs a producer 5 to 20 us.
const SPAN: Duration = Duration::from_millis(8);
/// The pace is judged after this number of waits, if fewer results have arrived.
const WAITS: u32 = if cfg!(shuttle) { u32::MAX } else { 8 };

/// Takes results out of a hand-over and returns the permits.
#[derive(Debug)]
pub(crate) struct Collector<T> {
    merge: OrderedMerge<T>,
    window: Window,
    /// The number of results that the consumer has finished.
    consumed: u64,
    /// Permits of consumed items that were not yet returned.
    owed: usize,
    /// The number of owed permits at which they are returned.
    pub(super) quarter: usize,
    /// What the items in flight take, and the one handed out last, if items are measured.
    memory: Option<(StageBudget, Option<u64>)>,
    /// The value of `consumed`, and the time, when the window last grew. Results that no hook worked on are
    /// added to the value.
    measured: (u64, Instant),
    shortage: ShortageSoFar,
    /// What results that are held back may take, from the first time that one slow item or larger batches made the
    /// window grow.
    headroom: Option<Headroom>,
    /// Whether the caller has the result handed out last, which is in flight until it asks for the next.
    is_lent: bool,
    /// The wait in progress.
    wait: Option<Wait>,
    pace: Pace,
    came: Instant,
    time: CollectorTime,
}

/// What the run lacked during the collector's last wait.
#[derive(Debug, Default)]
struct ShortageSoFar {
    lacked: Shortage,
    /// The window was full, and did not grow.
    stayed: bool,
}

/// A wait for results.
#[derive(Debug)]
struct Wait {
    since: Instant,
    /// The only item that was missing.
    head: Option<u64>,
    sleeper: Sleeper,
}

/// What waits for results.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sleeper {
    Thread,
    Task,
}

/// Why a collector's wait ended.
pub(crate) enum CollectorPause {
    /// There may be a result.
    Results,
    /// The requested time has come.
    Due,
    /// There are no more results, or no more are wanted.
    Over,
}

/// The pace of a run's results. It decides whether a sleeping collector is woken for the next one or for several.
///
/// The results since the last sleep are not enough to tell: a collector with a CPU of its own finds one or
/// two at each look, however fast they arrive.
#[derive(Debug)]
struct Pace {
    is_high: bool,
    /// The number of results, and the time, when the pace was last judged.
    since: (u64, Instant),
    /// The number of waits since then.
    waits: u32,
}

impl<T> Collector<T> {
    /// Creates the collector of `handover`; a run has one.
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
            memory: handover.permits.memory().map(|memory| (memory.clone(), None)),
            measured: (0, now),
            shortage: ShortageSoFar::default(),
            headroom: None,
            is_lent: false,
            wait: None,
            pace: Pace::new(now),
            came: now,
            time: CollectorTime::default(),
        }
    }

    /// Starts the collector's own time. `consumer_init` took the time from `since` on; the start of its thread before that
    /// counts as neither.
    pub(super) fn begin<I>(&mut self, handover: &Handover<I, T>, since: Instant) {
        let now = now();
        self.time.init = now - since;
        self.came = now;
        handover.stats.consumer_ready(now, self.time.init);
    }

    /// Returns the next result, if it has arrived.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, Outcome<T>)> {
        let popped = self.merge.pop();
        if let (Some((_, last)), Some((seq, _))) = (&mut self.memory, &popped) {
            *last = Some(*seq);
        }
        popped
    }

    /// Counts the result handed out last as consumed.
    #[inline]
    pub(crate) fn done<I>(&mut self, handover: &Handover<I, T>) {
        self.consumed += 1;
        self.owed += 1;
        if let Some((memory, last)) = &mut self.memory {
            last.take().into_iter().for_each(|item| memory.give_back(item));
        }
        if self.owed >= self.quarter {
            self.give_back(handover, 0);
        }
    }

    /// Counts the result handed out last as [consumed](Collector::done), if no hook worked on its item.
    pub(crate) fn done_without_work<I>(&mut self, handover: &Handover<I, T>) {
        // It says nothing about the pace of items. Those after it may be large and slow.
        self.measured.0 += 1;
        self.done(handover);
    }

    /// Counts a mark, which holds no permit, as consumed.
    pub(crate) fn done_with_mark(&mut self) {
        self.measured.0 += 1;
        self.consumed += 1;
    }

    /// Leaves the result handed out last to the caller, until it is [taken back](Collector::take_back).
    pub(crate) fn lend(&mut self) {
        self.is_lent = true;
    }

    /// Counts the result that the caller had as consumed. Returns whether it had one.
    pub(crate) fn take_back<I>(&mut self, handover: &Handover<I, T>) -> bool {
        let was_lent = std::mem::take(&mut self.is_lent);
        if was_lent {
            self.done(handover);
        }
        was_lent
    }

    fn give_back<I>(&mut self, handover: &Handover<I, T>, more: usize) {
        let kept = self.window.keep(self.owed);
        let Collector { window, headroom, .. } = self;
        let has_memory = || headroom.get_or_insert_with(Headroom::from_now).is_left();
        let more = more + handover.let_follow(window, has_memory);
        self.quarter = self.window.quarter();
        handover.permits.give_back(std::mem::take(&mut self.owed) - kept + more);
    }

    /// The number of results that the consumer has finished.
    pub(crate) fn consumed(&self) -> u64 {
        self.consumed
    }

    /// Returns all permits; called before the caller waits for something else.
    pub(crate) fn repay<I>(&mut self, handover: &Handover<I, T>) {
        self.give_back(handover, 0);
    }

    /// Returns all permits, and additional ones if the window [grows](Window::settle). Call it when
    /// [`pop`](Collector::pop) found nothing.
    pub(crate) fn settle<I>(&mut self, handover: &Handover<I, T>) {
        let held_back = if self.merge.holds_back() { self.held_back() } else { 0 };
        let Collector { window, headroom, measured, consumed, .. } = self;
        let mut from_now = || *headroom.get_or_insert_with(Headroom::from_now);
        let pace = || {
            let now = now();
            let (before, since) = std::mem::replace(measured, (*consumed, now));
            (*consumed - before, now - since)
        };
        let more = window.settle(self.shortage.lacked, held_back, pace, || from_now().is_left());
        if more > 0 {
            if held_back > 0 {
                // Before results take memory.
                from_now();
            }
            self.quarter = self.window.quarter();
        }
        let stayed = self.shortage.lacked.was_full && more == 0;
        self.shortage = ShortageSoFar { stayed, ..ShortageSoFar::default() };
        self.give_back(handover, more);
    }

    /// The time at which the head-of-line item must be reported to observers, if any. Call it when
    /// [`pop`](Collector::pop) found nothing.
    pub(crate) fn news_due(&self) -> Option<Instant> {
        self.merge.awaited().map(|item| now() + self.time.heads.news_in(item))
    }

    /// Waits for results after all permits have been [returned](Collector::settle), at most until `due`.
    /// `total` is the number of items, as far as the caller knows it.
    pub(crate) fn wait<I>(
        &mut self,
        handover: &Handover<I, T>,
        total: Option<u64>,
        due: Option<Instant>,
    ) -> WakeReason {
        self.begin_wait(handover);
        let reason = self.sleep(handover, total, due, || false);
        self.end_wait(handover);
        reason
    }

    /// Begins a wait, for [`sleep`](Collector::sleep) or [`poll`](Collector::poll). In between, a driver that also feeds
    /// says what it lacks.
    pub(crate) fn begin_wait<I>(&mut self, handover: &Handover<I, T>) {
        // A producer that ran out of items before waited for this collector, not for permits.
        self.forget_dryness(handover);
        // The feeder may find the window full after the last result. No later result then wakes this collector, so the
        // feeder has to.
        let awaits_full = self.merge.holds_back()
            && !self.shortage.stayed
            && self.window.is_short_behind_head(self.held_back());
        handover.window_hints.await_full(awaits_full);
        let (since, head) = (now(), self.merge.awaited());
        self.wait = Some(Wait { since, head, sleeper: Sleeper::Thread });
    }

    /// Sleeps until there are results, at most until `due`, or until the driver `may_feed` again.
    pub(crate) fn sleep<I>(
        &mut self,
        handover: &Handover<I, T>,
        total: Option<u64>,
        due: Option<Instant>,
        may_feed: impl Fn() -> bool,
    ) -> WakeReason {
        let wake_threshold = wake_threshold(&mut self.pace, self.window.half());
        handover.wait(&mut self.merge, (total, may_feed), wake_threshold, due)
    }

    /// Looks for the results that a thread [sleeps](Collector::sleep) for, in a task. `None` if it is to wait: then
    /// `waker` is kept, and the wait lasts until [`end_wait`](Collector::end_wait).
    pub(crate) fn poll<I>(
        &mut self,
        handover: &Handover<I, T>,
        total: Option<u64>,
        waker: &Waker,
        may_feed: impl Fn() -> bool,
    ) -> Option<WakeReason> {
        self.wait.iter_mut().for_each(|wait| wait.sleeper = Sleeper::Task);
        handover.note_waiting_task();
        let is_ready = handover.has_results(&mut self.merge, total, waker, may_feed);
        is_ready.then(|| handover.wake_reason())
    }

    /// Ends the wait in progress, if there is one. Returns how long it lasted.
    pub(crate) fn end_wait<I>(&mut self, handover: &Handover<I, T>) -> Option<Duration> {
        let Wait { since, head, sleeper } = self.wait.take()?;
        match sleeper {
            Sleeper::Thread => {}
            Sleeper::Task => handover.note_woken_task(),
        }
        let now = self.note_wait(handover, since, head);
        self.note_dryness(handover);
        self.note_pace(now, handover.window_hints.is_starving());
        Some(now - since)
    }

    /// Records a wait from `since` until now, and returns the end. With a `head`, only that item was missing.
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

    /// The item that holds up others and for how long, reported each time the duration has doubled.
    pub(crate) fn news_of_head(&mut self) -> Option<(u64, Duration)> {
        self.time.heads.news()
    }

    /// Counts a time as written to the journal, and not as work of the consumer.
    pub(crate) fn note_written(&mut self, took: Duration) {
        self.time.journal += took;
    }

    /// The total time that it has waited.
    pub(crate) fn waited(&self) -> Duration {
        self.time.waited + self.time.stalled
    }

    fn forget_dryness<I>(&self, handover: &Handover<I, T>) {
        if self.window.may_grow() {
            handover.window_hints.forget_dryness();
        }
    }

    fn note_dryness<I>(&mut self, handover: &Handover<I, T>) {
        let is_behind = self.merge.holds_back();
        let ran_dry = self.window.may_grow() && !is_behind && handover.window_hints.ran_dry();
        let was_full = handover.window_hints.is_starving();
        self.shortage.lacked = Shortage { ran_dry, was_full };
    }

    /// Checks the size of the window after a wait. The window is too large if it is full of slow items that
    /// no producer works on yet. Results that wait for one slow item say nothing about the others.
    fn note_pace(&mut self, now: Instant, is_full: bool) {
        let only_producers_lag = is_full && self.held_back() <= self.window.size() / 2;
        self.window.look(self.consumed, only_producers_lag, now);
    }

    /// The number of results that arrived and are not consumed.
    fn held_back(&self) -> usize {
        self.merge.seen().sum::<u64>().saturating_sub(self.consumed) as usize
    }

    /// Leaves the run, and returns the results that were held back. More may remain in the hand-over.
    pub(crate) fn leave<I>(mut self, handover: &Handover<I, T>) -> Vec<Outcome<T>> {
        self.repay(handover);
        self.time.window = self.window.size() as u64;
        self.time.present = now() - self.came;
        handover.stats.collector_left(self.time, self.merge.seen());
        handover.bring_back(self.merge)
    }
}

impl<T> Collector<T> {
    /// Waits for the next result that is wanted. `None` if there are no more, or no more are wanted. `total`
    /// is the number of items, as far as the caller knows it.
    #[inline]
    pub(crate) fn next_result<I>(
        &mut self,
        run: &Run<I, T>,
        total: &mut Option<u64>,
    ) -> Option<(u64, Outcome<T>)> {
        loop {
            if let Some(result) = self.next_here(run) {
                return Some(result);
            }
            match self.wait_before(run, total, || None) {
                CollectorPause::Results => {}
                CollectorPause::Due | CollectorPause::Over => return None,
            }
        }
    }

    /// Returns the next result that is wanted, if it has arrived.
    #[inline]
    pub(crate) fn next_here<I>(&mut self, run: &Run<I, T>) -> Option<(u64, Outcome<T>)> {
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

    /// Waits for the next result, at most until the time that `due` returns.
    #[cold]
    #[inline(never)]
    pub(crate) fn wait_before<I>(
        &mut self,
        run: &Run<I, T>,
        total: &mut Option<u64>,
        due: impl Fn() -> Option<Instant>,
    ) -> CollectorPause {
        if run.is_over() {
            return CollectorPause::Over;
        }
        *total = total.or_else(|| run.handover.total());
        if *total == Some(self.consumed()) {
            return CollectorPause::Over;
        }
        self.settle(&run.handover);
        let due = due();
        if due.is_some_and(|due| due <= now()) {
            return CollectorPause::Due;
        }
        let due = due.into_iter().chain(self.news_due_in(run)).min();
        let news = self.wait(&run.handover, *total, due);
        self.report_head(run);
        run.check(news);
        CollectorPause::Results
    }

    /// The time until which a collector may sleep while one item holds up others. Only observed runs have
    /// one.
    pub(crate) fn news_due_in<I>(&self, run: &Run<I, T>) -> Option<Instant> {
        if run.event_log.is_observed() { self.news_due() } else { None }
    }

    pub(crate) fn report_head<I>(&mut self, run: &Run<I, T>) {
        if let Some((item, lasted)) = self.news_of_head() {
            run.event_log.tell(Event::HeadOfLineBlocked { item, lasted });
        }
    }
}

impl Pace {
    fn new(now: Instant) -> Self {
        Pace { is_high: false, since: (0, now), waits: 0 }
    }

    /// Whether results are frequent. Call it before each sleep; `arrived` is the number of results of the whole run.
    fn is_high(&mut self, arrived: u64, now: Instant) -> bool {
        let (before, then) = self.since;
        let results = arrived - before;
        self.waits += 1;
        if results >= RESULTS || self.waits >= WAITS {
            let needed = RESULTS as f64 * (now - then).as_secs_f64() / SPAN.as_secs_f64();
            *self = Pace { is_high: results as f64 >= needed, since: (arrived, now), waits: 0 };
        }
        self.is_high
    }
}

/// Decides what wakes a sleeping collector, from the pace of results and half of the window. The other half
/// keeps the producers busy until it has run and the feeder has used the permits.
fn wake_threshold<T>(
    pace: &mut Pace,
    half: usize,
) -> impl FnOnce(&OrderedMerge<T>) -> WakeThreshold {
    move |merge| {
        if half > 1 && pace.is_high(merge.seen().sum(), now()) {
            WakeThreshold::For { results: half }
        } else {
            WakeThreshold::None
        }
    }
}

#[cfg(all(test, not(shuttle)))]
mod tests;

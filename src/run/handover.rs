//! The hand-over of one run: items go to the producers, results to the collector, permits back to the feeder.
//!
//! Three parties take part:
//!
//! - the *feeder*, the thread that pulls the caller's iterator;
//! - the *producers*;
//! - the *collector*, which is the consumer's thread, or the caller's thread for `outputs()`.
//!
//! ```text
//!           push            take             steal
//!   feeder ------> intake ------> inboxes <-------> inboxes
//!      ^                             | work
//!      |                             v
//!      +------ permits <------- collector <------- outboxes
//! ```
//!
//! This is the path of untracked items. With batches, speculation or an item timeout, all items are tracked: they
//! bypass the intake and the inboxes, and the scheduler in [`dispatch`] leases them out.
//!
//! Every producer sees an item as soon as the feeder has pushed it. The collector sees a result as soon as it
//! is delivered: nothing waits for a batch to fill. While items are fast, no party takes a lock per item. Nor
//! does it execute a fence per item where the [`Barrier`](crate::concurrency::Barrier) is asymmetric. The
//! intake and the outboxes are single-writer rings; a reader takes several values at a time.
//!
//! Producers take turns at the intake: each moves several items into its own inbox. Items in an inbox stay
//! available. A producer without work steals from there, and one that sees a neighbour make no progress
//! steals from it before it takes new items. So a slow item never holds back the items taken with it. The
//! price is one atomic read-modify-write per item that passes through an inbox.
//!
//! # Where each party sleeps, and what wakes it
//!
//! - A **producer** sleeps on `idle` when the intake and all inboxes are empty. The feeder notifies `idle`
//!   after each push. So does a producer that takes or steals several items, or leaves some behind. Each
//!   notification wakes one sleeper, unless several are on their way. A woken producer notifies if it leaves
//!   items. Items move from the intake to an inbox under the intake's lock, which a producer takes for its last
//!   look before sleeping. Stolen items are briefly in no inbox, so the thief notifies once they have arrived.
//! - The **collector** sleeps on `waiting` when no outbox has the next result in order. It sets for each
//!   producer after how many more results to wake it: one, or half a window in all while results are
//!   frequent. In the latter case a producer that runs out of items also wakes it, and so does a timer. If
//!   the window may grow behind a slow item, a feeder that finds it full wakes it too.
//! - The **feeder** sleeps in `permits`, and states under its lock what it waits for. The
//!   collector returns permits after a quarter of the window, and all of them before it sleeps.
//! - Each party [yields](Yields) the CPU a few times before it sleeps, and never spins. With as many producers as
//!   CPUs, a party that spins keeps off the CPU the one that it waits for.
//! - `halt`, `end` and `abort` set what each party checks, and then wake that party.
//!
//! A producer leaves only when the run is aborted, which is also how a successful run ends. A producer that
//! left when it found no work could miss items that a thief is moving. It would also be missing when the
//! thief's first item turns out to be slow and the others must be stolen back.
//!
//! No user code runs under any of the locks.

pub(crate) mod dispatch;
pub(crate) mod feeder;
pub(crate) mod inputs;
mod intake;
pub(crate) mod item_queue;
mod lane;
mod neighbours;
mod permits;
mod retry_watch;
pub(crate) mod shared_budget;
pub(crate) mod signals;
mod stocked;
pub(crate) mod undelivered;
mod window_hints;

use std::collections::VecDeque;
use std::sync::{Arc, OnceLock};
use std::task::Waker;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use gangline_scheduler::batch::Batching;
use gangline_scheduler::{Activity, Config, RunTime};

use crate::base::Order;
use crate::concurrency::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::event_count::EventCount;
use crate::concurrency::queue::queue;
use crate::concurrency::yields::Yields;
use crate::concurrency::{Mutex, lock, now};
use crate::observe::run_stats::{IdleReason, RunStats};
use crate::run::ordered_merge::OrderedMerge;
use crate::run::outbox::{Outbox, OutboxReader, Outcome, outbox};
use crate::run::run_shape::CarriedOver;
use crate::runner::OpenItems;

use self::intake::{FeederEnds, Gaps, Intake, Shares, largest_take};
use self::lane::ProducerLane;
use crate::run::handover::dispatch::Dispatch;
use crate::run::handover::permits::PermitPool;
use crate::run::handover::stocked::Stocked;
use crate::run::handover::window_hints::WindowHints;
use crate::run::outbox::{End, ResultSink};

/// How long frequent results may wait to be collected together.
///
/// Each time that the collector wakes, its thread and that of the feeder take about 20 us of processor time from the
/// producers, wherever the kernel places them. With 250 us, items of 1 to 100 us took 2 to 4 % more time.
const COLLECTOR_DELAY: Duration = Duration::from_millis(1);

/// Stands for a total that is not known yet.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Handover<I, T> {
    intake: CachePadded<Mutex<Intake<I>>>,
    /// One for each producer.
    lanes: Box<[CachePadded<ProducerLane<I, T>>]>,
    /// Which of them may have items in their inboxes.
    stocked: Stocked,
    /// The collector sleeps here.
    waiting: CachePadded<EventCount>,
    pub(crate) permits: PermitPool,
    /// The yields of all parties before they sleep.
    pub(crate) yields: Yields,
    /// The feeder's ends, until the feeder takes them.
    feeding: Mutex<Option<FeederEnds<I, T>>>,
    /// Results of items of abandoned producers, pushed by the deadline thread. `None` without timeouts.
    late: Mutex<Option<Outbox<T>>>,
    /// The collector's ends, until the collector takes them; it puts them back when it leaves.
    collecting: Mutex<Vec<OutboxReader<T>>>,
    /// The number of gaps that the feeder has left. It is updated before the items behind the gap are pushed.
    gaps: AtomicU64,
    pub(crate) dispatch: Dispatch<I>,
    /// Where results go instead of to a collector. Set for a service, before producers take part.
    answers: OnceLock<Arc<dyn ResultSink<T>>>,
    pub(crate) stats: RunStats,
    ending: CachePadded<EndState>,
    /// On a cache line of its own. It is written often while the window is narrow, and each write would evict fields that
    /// all threads read.
    pub(crate) window_hints: CachePadded<WindowHints>,
}

/// How far the end of the run has come. All parties read it, and each field changes at most once.
#[derive(Debug, Default)]
struct EndState {
    /// The number of items given out in all, or [`UNKNOWN`].
    total: AtomicU64,
    /// Items and results that are still here are to be discarded.
    aborted: AtomicBool,
    /// The feeder is to stop. Also in `permits`; this copy makes the check per item a plain load.
    halted: AtomicBool,
}

/// What wakes a waiting collector.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeThreshold {
    None,
    /// About this number of results, a producer that runs out of items, or the end of [`COLLECTOR_DELAY`].
    For {
        results: usize,
    },
}

/// Why a waiting collector was woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// There may be results.
    Results,
    /// The run was aborted.
    Aborted,
}

impl<I, T> Handover<I, T> {
    pub(crate) fn new(config: Config, earlier: CarriedOver) -> Self {
        let Config { producers, window, timeouts, .. } = config;
        let is_timed = timeouts != Default::default();
        let (inlet, items) = queue(window);
        let (gap_sender, gap_receiver) = queue(1);
        let (aside, own_results) = outbox(1);
        let (late, late_results) = outbox(1);
        let lanes = (0..producers).map(|_| ProducerLane::new(window));
        let (lanes, mut results): (Vec<_>, Vec<_>) = lanes.unzip();
        results.push(own_results);
        if is_timed {
            results.push(late_results);
        }
        let ending = EndState { total: AtomicU64::new(UNKNOWN), ..EndState::default() };
        Handover {
            intake: CachePadded::new(Mutex::new(Intake {
                items,
                next: 0,
                gaps: Gaps { arriving: gap_receiver, seen: 0, ahead: VecDeque::new() },
                shares: Shares::new(producers, largest_take::<I>()),
            })),
            lanes: lanes.into_iter().map(CachePadded::new).collect(),
            stocked: Stocked::new(producers),
            waiting: CachePadded::new(EventCount::among(producers)),
            permits: PermitPool::new(window),
            yields: Yields::default(),
            feeding: Mutex::new(Some(FeederEnds { inlet, aside, gaps: gap_sender })),
            late: Mutex::new(is_timed.then_some(late)),
            collecting: Mutex::new(results),
            gaps: AtomicU64::new(0),
            dispatch: Dispatch::new(config, earlier),
            answers: OnceLock::new(),
            stats: RunStats::new(producers),
            ending: CachePadded::new(ending),
            window_hints: CachePadded::default(),
        }
    }

    /// Makes this the hand-over of a service.
    pub(crate) fn answer_with(&self, answers: Arc<dyn ResultSink<T>>) {
        assert!(self.answers.set(answers).is_ok(), "a run has one destination");
    }

    /// Where results go instead of to a collector, in a service.
    pub(crate) fn answers(&self) -> Option<&Arc<dyn ResultSink<T>>> {
        self.answers.get()
    }

    /// The items that callers wait for, in a service.
    pub(crate) fn open_items(&self) -> Option<&dyn OpenItems> {
        self.answers.get().map(|answers| &**answers as &dyn OpenItems)
    }

    /// Tells a service how far its run has ended.
    pub(crate) fn note_end(&self, end: End) {
        if let Some(answers) = self.answers() {
            answers.note_end(end);
        }
    }

    /// Delivers the result of an item of an abandoned producer, or the answer to a call of a service.
    pub(crate) fn deliver_aside(&self, seq: u64, result: Outcome<T>) {
        if let Some(answers) = self.answers() {
            return answers.answer(seq, result);
        }
        let mut late = lock(&self.late);
        late.as_mut().expect("only runs with timeouts abandon producers").push(seq, result);
        drop(late);
        self.waiting.notify();
    }

    /// How many items the producers work on at once.
    pub(crate) fn at_work(&self) -> usize {
        self.lanes().saturating_mul(self.dispatch.largest_batch())
    }

    /// How producers form batches.
    pub(crate) fn batching(&self) -> Option<Batching> {
        self.dispatch.batching
    }

    /// The number of producers.
    pub(crate) fn lanes(&self) -> usize {
        self.lanes.len()
    }

    /// Tells the feeder to stop. Items already given out are still worked on.
    pub(crate) fn halt(&self) {
        self.ending.halted.store(true, Ordering::Relaxed);
        self.permits.halt();
        self.dispatch.note_input_end();
        self.note_end(End::Halted);
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.ending.halted.load(Ordering::Relaxed)
    }

    /// Ends the input: `total` items were given out, and no more are pushed.
    pub(crate) fn end(&self, total: u64) {
        self.ending.total.store(total, Ordering::Release);
        self.waiting.notify_all();
        self.dispatch.note_input_end();
    }

    /// Makes every party leave. Items and results that are still here are discarded.
    pub(crate) fn abort(&self) {
        self.halt();
        self.ending.aborted.store(true, Ordering::Release);
        self.permits.abort();
        self.dispatch.abort_schedule();
        self.dispatch.signals.idle.notify_all();
        self.waiting.notify_all();
        self.note_end(End::Aborted);
    }

    pub(crate) fn is_aborted(&self) -> bool {
        self.ending.aborted.load(Ordering::Acquire)
    }
}

impl<I, T> Handover<I, T> {
    /// Takes the collector's ends; a run has one collector.
    pub(crate) fn merge(&self, order: Order) -> OrderedMerge<T> {
        OrderedMerge::new(order, std::mem::take(&mut *lock(&self.collecting)))
    }

    /// Puts the collector's ends back and returns the results that it held back for order.
    pub(crate) fn bring_back(&self, merge: OrderedMerge<T>) -> Vec<Outcome<T>> {
        let (early, lanes) = merge.into_parts();
        *lock(&self.collecting) = lanes;
        early
    }

    /// The number of items given out in all, once it is known.
    pub(crate) fn total(&self) -> Option<u64> {
        Some(self.ending.total.load(Ordering::Acquire)).filter(|&total| total != UNKNOWN)
    }

    /// Makes this the hand-over of a run that its driver feeds.
    pub(crate) fn fed_by(mut self, driver: Arc<DriverBell>) -> Self {
        self.permits.fed_by(driver);
        self
    }

    /// Makes this the hand-over of a run with a task as the collector.
    pub(crate) fn for_task(mut self) -> Self {
        self.waiting = CachePadded::new(EventCount::for_task());
        self
    }

    /// Looks for results as a task, and whether it `may_feed` again. If not, keeps `waker` for results.
    pub(crate) fn has_results(
        &self,
        merge: &mut OrderedMerge<T>,
        total: Option<u64>,
        waker: &Waker,
        may_feed: impl Fn() -> bool,
    ) -> bool {
        self.wake_collector_at(1, merge);
        let is_ready = || self.has_news(total) || merge.has_new() || may_feed();
        self.waiting.wake_task_unless(waker.clone(), is_ready)
    }

    pub(crate) fn note_waiting_task(&self) {
        self.dispatch.note_consumer(Activity::Waiting);
    }

    /// Ends what [`has_results`](Self::has_results) and [`note_waiting_task`](Self::note_waiting_task) began.
    pub(crate) fn note_woken_task(&self) {
        self.waiting.forget_task();
        self.let_collector_be();
        self.dispatch.note_consumer(Activity::Working);
    }

    /// Sleeps until there are results in `merge`, the run is aborted, the total differs from `total`, or the collector
    /// `may_feed` an earlier stage again, or this one.
    pub(crate) fn wait(
        &self,
        merge: &mut OrderedMerge<T>,
        (total, may_feed): (Option<u64>, impl Fn() -> bool),
        wake_threshold: impl FnOnce(&OrderedMerge<T>) -> WakeThreshold,
        due: Option<Instant>,
    ) -> WakeReason {
        self.dispatch.note_consumer(Activity::Waiting);
        let has_news = || self.has_news(total) || may_feed();
        if !self.yields.until(|| has_news() || merge.has_new()) {
            match wake_threshold(merge) {
                WakeThreshold::None => self.wait_for_one(merge, has_news, due),
                WakeThreshold::For { results } => self.wait_for_several(merge, has_news, results),
            }
        }
        self.dispatch.note_consumer(Activity::Working);
        self.wake_reason()
    }

    /// Why a collector that has news was woken.
    pub(crate) fn wake_reason(&self) -> WakeReason {
        if self.is_aborted() { WakeReason::Aborted } else { WakeReason::Results }
    }

    fn wait_for_one(
        &self,
        merge: &mut OrderedMerge<T>,
        has_news: impl Fn() -> bool,
        due: Option<Instant>,
    ) {
        self.wake_collector_at(1, merge);
        let is_ready = || has_news() || merge.has_new();
        match due {
            None => self.waiting.wait_unless(is_ready),
            Some(due) => self.waiting.wait_at_most(due.saturating_duration_since(now()), is_ready),
        }
        self.let_collector_be();
    }

    /// The reason for having nothing to do. `until` is set if the scheduler has work for later. An item that waits for
    /// its next attempt keeps its place in the window. So behind a full window with such items, the wait is for a retry.
    fn lack(&self, until: Option<RunTime>) -> IdleReason {
        let has_retries = || self.dispatch.has_retries();
        match self.window_hints.is_starving() {
            is_full if (is_full || until.is_some()) && has_retries() => IdleReason::Retries,
            true => IdleReason::Permits,
            false => IdleReason::Items,
        }
    }

    /// Returns at the latest after [`COLLECTOR_DELAY`], since wake-ups may be missed here. This path has no
    /// fence, does not count errors, and a producer in a slow item wakes no one.
    fn wait_for_several(
        &self,
        merge: &mut OrderedMerge<T>,
        has_news: impl Fn() -> bool,
        results: usize,
    ) {
        let each = results.div_ceil(self.lanes()).max(1);
        self.wake_collector_at(each as u64, merge);
        let is_ready = || has_news() || merge.has_many_new(each);
        self.waiting.wait_briefly_unless(COLLECTOR_DELAY, is_ready);
        self.let_collector_be();
    }

    /// Makes each producer wake the collector once it has delivered `more` results beyond those seen.
    fn wake_collector_at(&self, more: u64, merge: &OrderedMerge<T>) {
        for (lane, seen) in self.lanes.iter().zip(merge.seen()) {
            lane.seen.store(seen, Ordering::Relaxed);
            lane.wake_at.store(seen + more, Ordering::Relaxed);
        }
    }

    fn let_collector_be(&self) {
        for lane in &self.lanes {
            lane.wake_at.store(u64::MAX, Ordering::Relaxed);
        }
    }

    #[cfg(test)]
    pub(crate) fn is_collector_asleep(&self) -> bool {
        self.waiting.has_sleeper()
    }

    fn has_news(&self, total: Option<u64>) -> bool {
        self.is_aborted() || self.total() != total || self.window_hints.is_full_at_last()
    }
}

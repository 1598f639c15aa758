//! The hand-over of one run: items from the feeder to the producers, results from them to the
//! collector, permits back to the feeder.
//!
//! Three parties: the *feeder* (the thread that pulls the caller's iterator), the *producers*, and
//! the *collector* (the consumer's thread, or the caller's for a stream).
//!
//! ```text
//!           push            take             steal
//!   feeder ------> intake ------> inboxes <-------> inboxes
//!      ^                             | work
//!      |                             v
//!      +------ permits <------- collector <------- outboxes
//! ```
//!
//! An item is visible to every producer as soon as the feeder has pushed it, and a result to the
//! collector as soon as it is delivered: nothing waits for a neighbour to fill up a batch. What makes
//! it cheap is that, while items are quick, no party takes a lock for a single one, nor passes a fence
//! where the [`Barrier`](crate::concurrency::Barrier) is asymmetric: the intake and the outboxes are rings
//! with one writer each, of which the reader looks at many values at a time.
//! Producers take turns at reading the intake, several items each time, into inboxes of their own.
//! Items in an inbox stay available: a producer that finds nothing takes from there, and one that sees
//! a neighbour stand still for a while takes from it first, so a slow item keeps back none of those
//! that were taken with it. That costs the one atomic handover for each item that is left.
//!
//! # Who sleeps where, and who wakes them
//!
//! - A **producer** sleeps on `idle` when there is nothing in the intake or in any inbox. The feeder
//!   notifies after each push, and so does who takes or steals several items, or leaves some behind:
//!   one sleeper each time, which in turn finds items to take. Items move from the intake into an
//!   inbox under the lock of the intake, which a producer takes for its last look. While stolen items
//!   move they are in neither inbox, but the thief notifies after that.
//! - The **collector** sleeps on `waiting` when no outbox has the result whose turn it is. It tells each
//!   producer how many more results it wants to be woken for: one, or, while they come thick and fast,
//!   several, in which case it is also woken by a producer that runs out of items, and by the clock.
//! - The **feeder** sleeps on `permits`, and is listed under its lock. The collector gives permits back
//!   after a quarter of the window, and all of them before it sleeps.
//! - `halt`, `end` and `abort` change what each party looks for, and then wake that party.
//!
//! A producer leaves only when the run is aborted, which is also how a run ends that went well. One
//! that left when it found nothing to take could miss items that a thief has in hand, and would not
//! be there to take them when the thief's first turns out to be slow.
//!
//! No user code runs under any of the locks.

pub(crate) mod dispatch;
pub(crate) mod feeder;
mod intake;
pub(crate) mod item_queue;
mod lane;
mod permits;
pub(crate) mod undelivered;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use crate::backend::threads::ordered_merge::OrderedMerge;
use crate::backend::threads::outbox::{Outbox, Outcome, Results, outbox};
use crate::backend::threads::run_shape::CarriedOver;
use crate::backend::threads::shares::Shares;
use crate::backend::threads::weights::Weights;
use crate::base::Order;
use crate::batch::Batching;
use crate::concurrency::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::concurrency::event_count::EventCount;
use crate::concurrency::queue::queue;
use crate::concurrency::{Condvar, Mutex, lock, now};
use crate::observe::run_stats::RunStats;
use crate::scheduler::{Activity, Config};

use self::intake::{FeederEnds, Gaps, Intake, largest_take};
use self::lane::Lane;
use crate::backend::threads::handover::dispatch::Dispatch;
use crate::backend::threads::handover::permits::Permits;

/// How long a party that found nothing looks again before it sleeps. To sleep and be woken takes the CPUs about
/// as long; to spin longer would keep a party that is ready from the CPU.
const SPIN: Duration = Duration::from_micros(if cfg!(shuttle) { 0 } else { 2 });
/// How often it asks the processor to pause between two looks, some of which take a lock.
const PAUSES: usize = 10;

/// How long results that come thick and fast may wait for company, and as much again as the system's
/// timers are late.
const COLLECTOR_DELAY: Duration = Duration::from_micros(250);

/// Stands for a total that is not known yet.
const UNKNOWN: u64 = u64::MAX;

#[derive(Debug)]
pub(crate) struct Handover<I, T> {
    intake: CachePadded<Mutex<Intake<I>>>,
    lanes: Box<[CachePadded<Lane<I, T>>]>,
    /// How many items were given out in all, or [`UNKNOWN`].
    total: AtomicU64,
    /// The collector, when it found nothing.
    waiting: CachePadded<EventCount>,
    permits: CachePadded<Mutex<Permits>>,
    returned: Condvar,
    /// What the feeder takes with it.
    feeding: Mutex<Option<FeederEnds<I, T>>>,
    /// Where the results of items go in whose producers were abandoned; `None` where none is.
    late: Mutex<Option<Outbox<T>>>,
    /// What the collector takes with it, and brings back.
    collecting: Mutex<Vec<Results<T>>>,
    /// How producers form batches; `None` where they take items one by one.
    batching: Option<Batching>,
    /// How much the items that are out may weigh; `None` where they are not weighed.
    most_weight: Option<u64>,
    /// What the collector takes with it too.
    weights: Mutex<Option<Weights>>,
    /// How many gaps the feeder has left: each is written before the items that follow it.
    gaps: AtomicU64,
    pub(crate) dispatch: Dispatch<I>,
    pub(crate) stats: RunStats,
    flags: CachePadded<Flags>,
    hints: CachePadded<Hints>,
}

/// What everybody looks at, and is written once.
#[derive(Debug, Default)]
struct Flags {
    /// What is left is not wanted.
    aborted: AtomicBool,
    /// Whether the feeder is to stop. Also in `permits`; here so that it costs a load per item.
    halted: AtomicBool,
}

/// What changes all the time where the window is narrow: on a cache line of its own, or whoever looks at
/// anything beside it waits for that to come back from another core.
#[derive(Debug, Default)]
struct Hints {
    /// The feeder waits for permits. For the window this is a hint, without consequences when it is
    /// late; where there are batches the feeder notifies `idle` of it.
    starving: AtomicBool,
    /// A producer ran dry while the feeder was starving. A hint likewise.
    dry: AtomicBool,
}

/// Whether a collector that waits wants to be woken for the first result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeThreshold {
    None,
    /// For about so many, or when producers run out of items, or after [`COLLECTOR_DELAY`].
    For {
        results: usize,
    },
}

/// What a collector that waited was woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WakeReason {
    /// Results may be there.
    Results,
    /// The run was aborted.
    Aborted,
}

impl<I, T> Handover<I, T> {
    /// The hand-over of a run.
    pub(crate) fn new(config: Config, earlier: CarriedOver, most_weight: Option<u64>) -> Self {
        let Config { producers, window, batching, timeouts, .. } = config;
        let is_timed = timeouts != Default::default();
        let (inlet, items) = queue(window);
        let (gap_sender, gap_receiver) = queue(1);
        let (weigher, weights) = most_weight.map(|_| queue(window)).unzip();
        let (aside, own_results) = outbox(1);
        let (late, late_results) = outbox(1);
        let (lanes, mut results): (Vec<_>, Vec<_>) =
            std::iter::repeat_with(|| Lane::new(window)).take(producers).unzip();
        results.push(own_results);
        if is_timed {
            results.push(late_results);
        }
        Handover {
            intake: CachePadded::new(Mutex::new(Intake {
                items,
                next: 0,
                gaps: Gaps { arriving: gap_receiver, seen: 0, ahead: VecDeque::new() },
                shares: Shares::new(producers, largest_take::<I>()),
            })),
            lanes: lanes.into_iter().map(CachePadded::new).collect(),
            total: AtomicU64::new(UNKNOWN),
            waiting: CachePadded::new(EventCount::new()),
            permits: CachePadded::new(Mutex::new(Permits {
                free: window,
                weight: 0,
                awaited: None,
                halted: false,
            })),
            returned: Condvar::new(),
            feeding: Mutex::new(Some(FeederEnds {
                inlet,
                aside,
                weights: weigher,
                gaps: gap_sender,
            })),
            late: Mutex::new(is_timed.then_some(late)),
            collecting: Mutex::new(results),
            batching,
            most_weight,
            weights: Mutex::new(weights.map(Weights::new)),
            gaps: AtomicU64::new(0),
            dispatch: Dispatch::new(config, earlier),
            stats: RunStats::new(producers),
            flags: CachePadded::default(),
            hints: CachePadded::default(),
        }
    }

    /// Delivers the result of an item whose producer will not.
    pub(crate) fn deliver_aside(&self, seq: u64, result: Outcome<T>) {
        let mut late = lock(&self.late);
        late.as_mut().expect("somebody keeps the time").push(seq, result);
        drop(late);
        self.waiting.notify();
    }

    /// How producers form batches.
    pub(crate) fn batching(&self) -> Option<Batching> {
        self.batching
    }

    /// How much the items that are out may weigh.
    pub(crate) fn most_weight(&self) -> Option<u64> {
        self.most_weight
    }

    pub(super) fn lane_with_items(&self, but: usize) -> Option<usize> {
        (0..self.producers()).find(|&lane| lane != but && !self.lanes[lane].inbox.is_empty())
    }

    fn producers(&self) -> usize {
        self.lanes.len()
    }

    /// Tells the feeder to stop. What was given out is still worked on.
    pub(crate) fn halt(&self) {
        self.flags.halted.store(true, Ordering::Relaxed);
        let mut permits = lock(&self.permits);
        permits.halted = true;
        drop(permits);
        self.returned.notify_one();
        self.dispatch.note_input_end();
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.flags.halted.load(Ordering::Relaxed)
    }

    /// Nothing more is pushed: `total` items were given out.
    pub(crate) fn end(&self, total: u64) {
        self.total.store(total, Ordering::Release);
        self.waiting.notify_all();
        self.dispatch.note_input_end();
    }

    /// Wakes everybody up to leave: nothing that is still here is wanted.
    pub(crate) fn abort(&self) {
        self.halt();
        self.flags.aborted.store(true, Ordering::Release);
        self.dispatch.abort_schedule();
        self.dispatch.idle.notify_all();
        self.waiting.notify_all();
    }

    fn is_aborted(&self) -> bool {
        self.flags.aborted.load(Ordering::Acquire)
    }
}

impl<I, T> Handover<I, T> {
    /// Where the results come out, for the collector, of which there is one.
    pub(crate) fn merge(&self, order: Order) -> OrderedMerge<T> {
        OrderedMerge::new(order, std::mem::take(&mut *lock(&self.collecting)))
    }

    /// The collector has left. What it held back for order.
    pub(crate) fn bring_back(&self, merge: OrderedMerge<T>) -> Vec<Outcome<T>> {
        let (early, lanes) = merge.into_parts();
        *lock(&self.collecting) = lanes;
        early
    }

    /// How many items were given out in all, once that is known.
    pub(crate) fn total(&self) -> Option<u64> {
        Some(self.total.load(Ordering::Acquire)).filter(|&total| total != UNKNOWN)
    }

    /// What the items weigh that the collector gets, where they are weighed. It has only one.
    pub(crate) fn weights(&self) -> Option<Weights> {
        lock(&self.weights).take()
    }

    /// Gives permits back, and the weight of the items that they were for.
    pub(crate) fn give_back(&self, permits: usize, weight: u64) {
        if permits == 0 && weight == 0 {
            return;
        }
        let mut pot = lock(&self.permits);
        pot.free += permits;
        pot.weight = pot.weight.saturating_sub(weight);
        let is_awaited = pot.awaited.is_some_and(|want| pot.has(want));
        drop(pot);
        if is_awaited {
            self.returned.notify_one();
        }
    }

    /// Whether whoever feeds the run waits for permits.
    pub(crate) fn is_starving(&self) -> bool {
        self.hints.starving.load(Ordering::Relaxed)
    }

    /// Whether a producer ran dry for want of permits since that was last forgotten.
    pub(crate) fn ran_dry(&self) -> bool {
        self.hints.dry.load(Ordering::Relaxed)
    }

    /// A producer found nothing to take. Written when that is news only: everybody looks at what is beside it.
    fn run_dry(&self) {
        if self.is_starving() && !self.ran_dry() {
            self.hints.dry.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn forget_dryness(&self) {
        self.hints.dry.store(false, Ordering::Relaxed);
    }

    /// Waits, from `since` on, until there may be results in `merge`, or until the run was aborted, or until the total,
    /// which was not known before, is known. `wake_threshold` is asked when it goes to sleep: what came while it looked is no
    /// sign of how fast results come.
    pub(crate) fn wait(
        &self,
        merge: &mut OrderedMerge<T>,
        since: Instant,
        total: Option<u64>,
        wake_threshold: impl FnOnce(&OrderedMerge<T>) -> WakeThreshold,
        due: Option<Instant>,
    ) -> WakeReason {
        self.dispatch.note_consumer(Activity::Waiting);
        if !spin_until(since, || self.has_news(total) || merge.has_new()) {
            match wake_threshold(merge) {
                WakeThreshold::None => self.wait_for_one(merge, total, due),
                WakeThreshold::For { results } => self.wait_for_several(merge, total, results),
            }
        }
        self.dispatch.note_consumer(Activity::Working);
        if self.is_aborted() { WakeReason::Aborted } else { WakeReason::Results }
    }

    fn wait_for_one(&self, merge: &mut OrderedMerge<T>, total: Option<u64>, due: Option<Instant>) {
        self.wake_collector_at(1, merge);
        let mut has_news = || self.has_news(total) || merge.has_new();
        match due {
            None => self.waiting.wait_unless(has_news),
            Some(due) => {
                self.waiting.wait_at_most(due.saturating_duration_since(now()), &mut has_news);
            }
        }
        self.let_collector_be();
    }

    /// There is no fence here, errors do not count, and a producer that falls silent in a slow item
    /// tells nobody: what nobody wakes the collector for is seen when the time is over.
    fn wait_for_several(&self, merge: &mut OrderedMerge<T>, total: Option<u64>, results: usize) {
        let each = results.div_ceil(self.producers()).max(1);
        self.wake_collector_at(each as u64, merge);
        self.waiting.wait_briefly_unless(COLLECTOR_DELAY, || {
            self.has_news(total) || merge.has_many_new(each)
        });
        self.let_collector_be();
    }

    /// Has each producer wake the collector when it has delivered so many results more than were
    /// seen.
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

    fn has_news(&self, total: Option<u64>) -> bool {
        self.is_aborted() || self.total() != total
    }
}

/// Whether that comes about within [`SPIN`] from `since` on.
fn spin_until(since: Instant, mut is_there: impl FnMut() -> bool) -> bool {
    while now() - since < SPIN {
        (0..PAUSES).for_each(|_| std::hint::spin_loop());
        if is_there() {
            return true;
        }
    }
    false
}

//! The hand-over of one run: items from the feeder to the producers, results from them to the
//! collector, credits back to the feeder.
//!
//! Three parties: the *feeder* (the thread that pulls the caller's iterator), the *producers*, and
//! the *collector* (the consumer's thread, or the caller's for a stream).
//!
//! ```text
//!           push            take, steal          deliver           collect
//!   feeder ------> intake -------------> lanes -----------> lanes --------> collector
//!      ^                                 inbox              outbox              |
//!      +----------------------------- credits <---------------------------------+
//! ```
//!
//! An item is visible to every producer as soon as the feeder has pushed it, and a result to the
//! collector as soon as it is delivered: nothing waits for a neighbour to fill up a batch. What makes
//! it cheap is that each party takes all that is there at once: a producer moves several items into
//! the inbox of its own lane, the collector empties a whole outbox. Items in an inbox stay available:
//! a producer that finds nothing takes from there, and one that sees a neighbour stand still since it
//! last looked takes from it first, so a slow item keeps back none of those that were taken with it.
//!
//! # Who sleeps where, and who wakes them
//!
//! Every sleeper is listed under the lock that the waker takes anyway, so no wake-up can fall between
//! the look and the sleep, and no fence is needed.
//!
//! - A **producer** sleeps on `intake` when there is nothing to take. It looks into every lane while
//!   it holds that lock. Items get into a lane either under that lock (from the intake) or by a theft,
//!   after which the thief takes the lock and wakes a sleeper. Whoever takes more than one item, or
//!   leaves some behind, wakes one sleeper, which in turn finds items to take.
//! - The **collector** sleeps on `outlet` when all outboxes are empty. Before that it marks every lane
//!   as watched, under the lane's lock; whoever delivers into a watched lane takes the mark away and
//!   signals the outlet.
//! - The **feeder** sleeps on `credits`. The collector gives credits back after a quarter of the
//!   window, and all of them before it sleeps.
//! - `halt`, `end` and `abort` change what each party looks for under the party's own lock.
//!
//! A producer leaves only when the run is aborted, which is also how a run ends that went well. One
//! that left when it found nothing to take could miss items that a thief has in hand, and would not
//! be there to take them when the thief's first turns out to be slow.
//!
//! Locks nest in one direction only: intake, then a lane. No user code runs under any of them.

mod taker;

use std::collections::VecDeque;

use crossbeam_utils::CachePadded;

use crate::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::sync::{Condvar, Mutex, lock, wait};

pub(crate) use self::taker::Taker;

/// How often a party that found nothing looks again, giving up the rest of its time slice each
/// time, before it sleeps: a wake-up costs several times as much.
const LOOKS_BEFORE_SLEEP: usize = if cfg!(shuttle) { 0 } else { 4 };

#[derive(Debug)]
pub(crate) struct Exchange<I, T> {
    intake: Mutex<Intake<I>>,
    filled: Condvar,
    /// One for each producer; the last is the feeder's own, for what comes from the input itself.
    lanes: Box<[CachePadded<Lane<I, T>>]>,
    outlet: Mutex<Outlet>,
    arrived: Condvar,
    credits: Mutex<Credits>,
    returned: Condvar,
    /// Whether the feeder is to stop. Also in `credits`; here so that it costs a load per item.
    halted: AtomicBool,
    /// The feeder waits for credits. A hint for the window, without consequences when it is late.
    starving: AtomicBool,
    /// A producer ran dry while the feeder was starving. A hint likewise.
    dry: AtomicBool,
}

#[derive(Debug)]
struct Intake<I> {
    queue: VecDeque<(u64, I)>,
    /// Producers that sleep, and how many of them have been told to wake.
    sleeping: usize,
    waking: usize,
    /// What is left is not wanted.
    aborted: bool,
}

#[derive(Debug)]
struct Lane<I, T> {
    state: Mutex<LaneState<I, T>>,
    /// How many items the owner has taken out of its inbox: written by the owner, read by
    /// neighbours to see whether it stands still. A hint.
    progress: AtomicU64,
}

#[derive(Debug)]
struct LaneState<I, T> {
    /// Ascending; the owner takes from the front, and so do thieves, since the oldest is needed
    /// first.
    inbox: VecDeque<(u64, I)>,
    outbox: Vec<(u64, T)>,
    /// The collector found the outbox empty and may sleep.
    watched: bool,
}

#[derive(Debug)]
struct Outlet {
    sleeping: bool,
    signalled: bool,
    /// How many items were given out in all, once it is known.
    total: Option<u64>,
    aborted: bool,
}

#[derive(Debug)]
struct Credits {
    free: usize,
    waiting: bool,
    halted: bool,
}

/// What a collector that waited was woken for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum News {
    /// Results may be there.
    Results,
    /// The run was aborted.
    Aborted,
}

impl<I, T> Exchange<I, T> {
    pub(crate) fn new(producers: usize, window: usize) -> Self {
        let lane = || {
            let state = LaneState { inbox: VecDeque::new(), outbox: Vec::new(), watched: false };
            CachePadded::new(Lane { state: Mutex::new(state), progress: AtomicU64::new(0) })
        };
        Exchange {
            intake: Mutex::new(Intake {
                queue: VecDeque::new(),
                sleeping: 0,
                waking: 0,
                aborted: false,
            }),
            filled: Condvar::new(),
            lanes: std::iter::repeat_with(lane).take(producers + 1).collect(),
            outlet: Mutex::new(Outlet {
                sleeping: false,
                signalled: false,
                total: None,
                aborted: false,
            }),
            arrived: Condvar::new(),
            credits: Mutex::new(Credits { free: window, waiting: false, halted: false }),
            returned: Condvar::new(),
            halted: AtomicBool::new(false),
            starving: AtomicBool::new(false),
            dry: AtomicBool::new(false),
        }
    }

    fn producers(&self) -> usize {
        self.lanes.len() - 1
    }

    /// Tells the feeder to stop. What was given out is still worked on.
    pub(crate) fn halt(&self) {
        self.halted.store(true, Ordering::Relaxed);
        let mut credits = lock(&self.credits);
        credits.halted = true;
        drop(credits);
        self.returned.notify_one();
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.halted.load(Ordering::Relaxed)
    }

    /// Nothing more is pushed: `total` items were given out.
    pub(crate) fn end(&self, total: u64) {
        let mut outlet = lock(&self.outlet);
        outlet.total = Some(total);
        drop(outlet);
        self.arrived.notify_one();
    }

    /// Wakes everybody up to leave: nothing that is still here is wanted.
    pub(crate) fn abort(&self) {
        self.halt();
        lock(&self.intake).aborted = true;
        self.filled.notify_all();
        let mut outlet = lock(&self.outlet);
        outlet.aborted = true;
        drop(outlet);
        self.arrived.notify_one();
    }

    /// Takes out everything that is left.
    pub(crate) fn drain(&self) -> (Vec<I>, Vec<T>) {
        let mut items: Vec<I> = lock(&self.intake).queue.drain(..).map(|(_, item)| item).collect();
        let mut results = Vec::new();
        for lane in &self.lanes {
            let mut lane = lock(&lane.state);
            items.extend(lane.inbox.drain(..).map(|(_, item)| item));
            results.extend(lane.outbox.drain(..).map(|(_, result)| result));
        }
        (items, results)
    }

    fn deliver(&self, lane: usize, seq: u64, result: T) {
        let mut state = lock(&self.lanes[lane].state);
        let watched = state.deliver(seq, result);
        drop(state);
        if watched {
            self.signal();
        }
    }

    fn signal(&self) {
        let mut outlet = lock(&self.outlet);
        outlet.signalled = true;
        let sleeping = outlet.sleeping;
        drop(outlet);
        if sleeping {
            self.arrived.notify_one();
        }
    }
}

// ------------------------------------------------------------------------------------ feeder

/// The feeder's end: the credits that it took and has not yet used.
#[derive(Debug, Default)]
pub(crate) struct Feeder {
    credits: usize,
}

impl Feeder {
    /// Waits for the credit that the next item needs. `false` when the feeder is to stop.
    pub(crate) fn acquire<I, T>(&mut self, exchange: &Exchange<I, T>) -> bool {
        if self.credits == 0 {
            self.credits = exchange.wait_for_credits();
        }
        self.spend(exchange)
    }

    /// As [`acquire`](Feeder::acquire), but `false` also when no credit is free.
    pub(crate) fn try_acquire<I, T>(&mut self, exchange: &Exchange<I, T>) -> bool {
        if self.credits == 0 {
            self.credits = exchange.free_credits();
        }
        self.spend(exchange)
    }

    fn spend<I, T>(&mut self, exchange: &Exchange<I, T>) -> bool {
        if self.credits == 0 || exchange.is_halted() {
            return false;
        }
        self.credits -= 1;
        true
    }
}

impl<I, T> Exchange<I, T> {
    /// Gives an item out.
    pub(crate) fn push(&self, seq: u64, item: I) {
        let mut intake = lock(&self.intake);
        intake.queue.push_back((seq, item));
        let wake = intake.wake_one();
        drop(intake);
        if wake {
            self.filled.notify_one();
        }
    }

    /// Delivers the result of an item that no producer sees.
    pub(crate) fn deliver_from_feeder(&self, seq: u64, result: T) {
        self.deliver(self.producers(), seq, result);
    }

    /// All credits that are free, at least one; none when the feeder is to stop.
    fn wait_for_credits(&self) -> usize {
        let credits = self.free_credits();
        if credits > 0 {
            return credits;
        }
        self.starve();
        let credits = self.look_for_credits().unwrap_or_else(|| self.sleep_for_credits());
        self.feed_again();
        credits
    }

    fn look_for_credits(&self) -> Option<usize> {
        (0..LOOKS_BEFORE_SLEEP).find_map(|_| {
            std::thread::yield_now();
            let credits = self.free_credits();
            (credits > 0 || self.is_halted()).then_some(credits)
        })
    }

    fn sleep_for_credits(&self) -> usize {
        let mut credits = lock(&self.credits);
        while credits.free == 0 && !credits.halted {
            credits.waiting = true;
            credits = wait(&self.returned, credits);
            credits.waiting = false;
        }
        std::mem::take(&mut credits.free)
    }

    /// The feeder has more to give out, and no credit for it.
    pub(crate) fn starve(&self) {
        self.starving.store(true, Ordering::Relaxed);
        // Who sleeps already does not look again, and so is seen from here.
        let intake = lock(&self.intake);
        if intake.queue.is_empty() && intake.waking < intake.sleeping {
            self.dry.store(true, Ordering::Relaxed);
        }
    }

    pub(crate) fn feed_again(&self) {
        self.starving.store(false, Ordering::Relaxed);
    }

    fn free_credits(&self) -> usize {
        std::mem::take(&mut lock(&self.credits).free)
    }
}

impl<I> Intake<I> {
    /// Whether there is a sleeper to notify.
    fn wake_one(&mut self) -> bool {
        let wake = self.waking < self.sleeping;
        if wake {
            self.waking += 1;
        }
        wake
    }
}

impl<I, T> LaneState<I, T> {
    /// Whether the collector is to be told.
    fn deliver(&mut self, seq: u64, result: T) -> bool {
        self.outbox.push((seq, result));
        std::mem::take(&mut self.watched)
    }
}

// --------------------------------------------------------------------------------- collector

impl<I, T> Exchange<I, T> {
    /// Moves every result that is here to `sink`. `spare` is an empty buffer that is put in place of
    /// a full one, so that the lock is held for a moment only.
    pub(crate) fn collect(&self, spare: &mut Vec<(u64, T)>, mut sink: impl FnMut(usize, u64, T)) {
        for (i, lane) in self.lanes.iter().enumerate() {
            let mut state = lock(&lane.state);
            if state.outbox.is_empty() {
                continue;
            }
            std::mem::swap(&mut state.outbox, spare);
            drop(state);
            spare.drain(..).for_each(|(seq, result)| sink(i, seq, result));
        }
    }

    /// How many items were given out in all, once that is known.
    pub(crate) fn total(&self) -> Option<u64> {
        lock(&self.outlet).total
    }

    /// Gives credits back.
    pub(crate) fn give_back(&self, credits: usize) {
        if credits == 0 {
            return;
        }
        let mut pot = lock(&self.credits);
        pot.free += credits;
        let waiting = pot.waiting;
        drop(pot);
        if waiting {
            self.returned.notify_one();
        }
    }

    /// Whether a producer ran dry for want of credits since that was last forgotten.
    pub(crate) fn ran_dry(&self) -> bool {
        self.dry.load(Ordering::Relaxed)
    }

    pub(crate) fn forget_dryness(&self) {
        self.dry.store(false, Ordering::Relaxed);
    }

    /// Waits until there may be results that were not there before, or until the run was aborted,
    /// or until the total, which was not known before, is known.
    pub(crate) fn wait(&self, total: Option<u64>) -> News {
        for lane in &self.lanes {
            let mut state = lock(&lane.state);
            if !state.outbox.is_empty() {
                return News::Results;
            }
            state.watched = true;
        }
        for _ in 0..LOOKS_BEFORE_SLEEP {
            std::thread::yield_now();
            if lock(&self.outlet).has_news(total) {
                break;
            }
        }
        let mut outlet = lock(&self.outlet);
        while !outlet.has_news(total) {
            outlet.sleeping = true;
            outlet = wait(&self.arrived, outlet);
            outlet.sleeping = false;
        }
        outlet.signalled = false;
        if outlet.aborted { News::Aborted } else { News::Results }
    }
}

impl Outlet {
    fn has_news(&self, total: Option<u64>) -> bool {
        self.signalled || self.aborted || self.total != total
    }
}

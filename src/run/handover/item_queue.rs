//! A producer's end of the hand-over: takes or steals items, and delivers results.

use std::time::{Duration, Instant};

use gangline_scheduler::{Lease, Next, Readiness, RunTime};

use super::Handover;
use super::intake::{LARGEST_TAKE, largest_take};
use super::lane::ProducerLane;
use super::neighbours::Neighbours;
use crate::concurrency::atomic::Ordering;
use crate::concurrency::{Inbox, lock, now};
use crate::observe::run_stats::{IdleReason, Waits};
use crate::run::outbox::{Outbox, Outcome};

/// A producer takes more items at once while a take lasts less than this, and fewer if one lasted twice as
/// long. With longer takes, more items would only have to be stolen back.
const TAKE_LASTS: Duration = Duration::from_micros(50);

/// A producer's end.
#[derive(Debug)]
pub(crate) struct ItemQueue<'a, I, T> {
    handover: &'a Handover<I, T>,
    producer: usize,
    inbox: Inbox<(u64, I)>,
    outbox: Outbox<T>,
    /// The number of items to take at once.
    take: usize,
    took_at: Option<Instant>,
    neighbours: Neighbours,
    readiness: Readiness,
    /// The producer asks the scheduler before it takes new items.
    is_careful: bool,
    came: Instant,
    pub(crate) waited: Waits,
}

impl<'a, I, T> ItemQueue<'a, I, T> {
    /// Takes the producer's end; each has one.
    pub(crate) fn new(handover: &'a Handover<I, T>, producer: usize) -> Self {
        let ends = lock(&handover.lanes[producer].working).take();
        let (inbox, outbox) = ends.expect("one thread of the producer takes part at a time");
        let came = now();
        let waited = handover.stats.producer_came(producer, came);
        ItemQueue {
            handover,
            producer,
            inbox,
            outbox,
            take: 1,
            took_at: None,
            neighbours: Neighbours::new(handover.lanes()),
            readiness: Readiness::Ready,
            is_careful: false,
            came,
            waited,
        }
    }

    /// Gives the end back: an abandoned producer may take part again. Reports how long the producer took part, and
    /// how long it had nothing to do.
    pub(crate) fn leave(self) {
        let ItemQueue { handover, producer, inbox, outbox, came, waited, .. } = self;
        handover.stats.producer_left(producer, came, outbox.delivered(), waited);
        *lock(&handover.lanes[producer].working) = Some((inbox, outbox));
    }

    /// Delivers a result, and leaves the items in the inbox where others can steal them.
    #[inline]
    pub(crate) fn deliver(&mut self, seq: u64, result: Outcome<T>) {
        self.outbox.push(seq, result);
        let waiting = &self.handover.waiting;
        waiting.published();
        if self.outbox.delivered() >= self.own().wake_at.load(Ordering::Relaxed)
            && waiting.has_sleeper()
        {
            waiting.wake_one();
        }
    }

    /// Delivers the result of a lease: to its caller in a service, else to the collector.
    pub(crate) fn deliver_tracked(&mut self, seq: u64, result: Outcome<T>) {
        if self.handover.answers().is_none() {
            return self.deliver(seq, result);
        }
        self.handover.stats.producer_answered(self.producer);
        self.handover.deliver_aside(seq, result);
    }

    /// Wakes a collector that waits for several results, if some were delivered since it went to sleep.
    pub(super) fn flush(&self) {
        let waiting = &self.handover.waiting;
        if waiting.has_sleeper()
            && self.outbox.delivered() > self.own().seen.load(Ordering::Relaxed)
        {
            waiting.wake_one();
        }
    }

    fn own(&self) -> &'a ProducerLane<I, T> {
        &self.handover.lanes[self.producer]
    }

    /// Delivers a result and waits for the next item, like [`next`](ItemQueue::next).
    pub(crate) fn deliver_and_next(&mut self, seq: u64, result: Outcome<T>) -> Option<NextItem<I>> {
        if self.must_ask() {
            self.deliver(seq, result);
            return self.next();
        }
        match self.deliver_and_pop(seq, result) {
            Some((seq, item)) => Some(NextItem::Untracked(seq, item)),
            None => self.refill(),
        }
    }

    /// Whether the producer must ask the scheduler before it takes the next item.
    #[inline]
    pub(crate) fn must_ask(&self) -> bool {
        self.handover.dispatch.signals.has_waiting() || self.is_careful
    }

    /// Delivers a result, and takes the next item if one is in the inbox.
    ///
    /// The item is taken first, by an atomic read-modify-write, which waits until all earlier writes have reached the
    /// cache. The fetch of the result's line from the collector's core then overlaps with the work on the next item.
    #[inline(always)]
    pub(crate) fn deliver_and_pop(&mut self, seq: u64, result: Outcome<T>) -> Option<(u64, I)> {
        let item = self.inbox.pop();
        self.deliver(seq, result);
        if item.is_some() {
            self.own().advance();
        }
        item
    }

    pub(crate) fn set_readiness(&mut self, readiness: Readiness) {
        self.readiness = readiness;
    }

    /// From now on, the producer asks the scheduler before it takes new items: it has failed an item, or
    /// works on a retry.
    pub(crate) fn be_careful(&mut self) {
        self.is_careful = true;
    }

    /// Makes the scheduler track an item, and returns the lease of this producer on it.
    pub(crate) fn track(&mut self, seq: u64, item: I) -> Lease {
        self.handover.dispatch.track((seq, item), self.producer, self.readiness)
    }

    /// Records that the producer had nothing to do between `since` and now.
    pub(super) fn note_wait(&mut self, lack: IdleReason, since: Instant) {
        self.waited.add(lack, now() - since);
        self.note_waits();
    }

    /// At the end of each wait: an abandoned producer never leaves.
    #[cold]
    fn note_waits(&self) {
        self.handover.stats.producer_waited(self.producer, self.waited);
    }

    /// Waits for a lease, if all items are tracked. `None` if the producer is to leave.
    pub(crate) fn next_lease(&mut self) -> Option<Lease> {
        loop {
            match self.try_lease() {
                Next::Work(lease) => return Some(lease),
                Next::Leave => return None,
                Next::Wait => self.sleep_for_lease(None, None),
                Next::WaitUntil(time) => self.sleep_for_lease(Some(time), None),
            }
        }
    }

    /// Asks for a lease, if all items are tracked. A producer that has to wait is woken for new work.
    pub(crate) fn try_lease(&self) -> Next {
        self.handover.dispatch.lease(self.producer, self.readiness)
    }

    /// Leases up to `most` items or full batches, with their inputs, that wait behind those that this producer works on.
    #[cfg_attr(
        not(all(feature = "processes", target_os = "linux")),
        expect(dead_code, reason = "only a child process has items ahead")
    )]
    pub(crate) fn lease_ahead(&self, most: usize) -> Vec<(Lease, Vec<I>)> {
        let leased = self.handover.dispatch.lease_ahead(self.producer, most);
        if leased.len() < most {
            self.handover.window_hints.run_dry();
        }
        leased
    }

    /// Sleeps until the producer is woken, at most until `until`, when a retry is due, and until `other`.
    pub(crate) fn sleep_for_lease(&mut self, until: Option<RunTime>, other: Option<Instant>) {
        let watch = &self.handover.dispatch.signals.retry_watch;
        let sleep = watch.begin();
        self.handover.stats.producer_waits(self.producer, sleep.since);
        self.handover.window_hints.run_dry();
        self.flush();
        let dispatch = &self.handover.dispatch;
        if !self.handover.yields.until(|| dispatch.signals.take_wake_up(self.producer)) {
            let other = other.map(|other| dispatch.clock.now().after(other - now()));
            dispatch.sleep(self.producer, [until, other].into_iter().flatten().min());
        }
        let lack = self.handover.lack(until);
        self.waited.for_retries += watch.end(sleep, lack, until);
        self.note_wait(lack, sleep.since);
    }

    /// Waits for an item. `None` if the producer is to leave.
    pub(crate) fn next(&mut self) -> Option<NextItem<I>> {
        if self.must_ask() {
            match self.ask() {
                SchedulerReply::Leased(lease) => return Some(NextItem::Leased(lease)),
                SchedulerReply::Free => {}
                SchedulerReply::Over => return None,
            }
        }
        let next = match self.inbox.pop() {
            Some((seq, item)) => {
                self.own().advance();
                NextItem::Untracked(seq, item)
            }
            None => self.refill()?,
        };
        // The outcome of a suspected producer's items decides on its quarantine, so the scheduler tracks
        // them.
        Some(match next {
            NextItem::Untracked(seq, item) if self.is_careful => {
                NextItem::Leased(self.track(seq, item))
            }
            next => next,
        })
    }

    /// Asks the scheduler for a lease, and waits until there is one or the producer may take new items.
    #[cold]
    fn ask(&mut self) -> SchedulerReply {
        loop {
            let until = match self.handover.dispatch.lease(self.producer, self.readiness) {
                Next::Work(lease) => {
                    self.own().advance();
                    return SchedulerReply::Leased(lease);
                }
                Next::Leave => return SchedulerReply::Over,
                Next::Wait => None,
                Next::WaitUntil(time) => Some(time),
            };
            if self.handover.dispatch.may_take_new(self.producer) {
                self.handover.dispatch.stop_waiting(self.producer);
                self.is_careful =
                    self.is_careful && self.handover.dispatch.is_careful(self.producer);
                return SchedulerReply::Free;
            }
            // Others may steal the items in the inbox meanwhile.
            self.handover.dispatch.signals.idle.notify();
            self.sleep_for_lease(until, None);
        }
    }

    /// Waits for the next item, with an empty inbox.
    pub(crate) fn refill(&mut self) -> Option<NextItem<I>> {
        let before = self.waited.all;
        let item = self.look_for_item();
        if self.waited.all > before {
            self.note_waits();
        }
        item
    }

    fn look_for_item(&mut self) -> Option<NextItem<I>> {
        let mut slept = false;
        let found = self.look(&mut slept);
        // Its wake-up may have stood for several items, and it has not looked at all of them.
        if slept && found.is_some() && self.are_items_left() {
            self.handover.dispatch.signals.idle.notify();
        }
        found
    }

    /// Looks until there is an item or a lease. Sets `slept` if it may have used up a wake-up.
    fn look(&mut self, slept: &mut bool) -> Option<NextItem<I>> {
        self.handover.stocked.clear(self.producer);
        let (mut since, mut lack) = (None, IdleReason::Items);
        loop {
            // The clock is read once per round: one that finds an item counts up to its start only.
            let began = now();
            self.waited.add(lack, began - since.unwrap_or(began));
            since = Some(began);
            if self.handover.dispatch.signals.has_waiting() {
                match self.ask() {
                    SchedulerReply::Leased(lease) => return Some(NextItem::Leased(lease)),
                    SchedulerReply::Free => {}
                    SchedulerReply::Over => return None,
                }
            }
            if let Some((seq, item)) = self.steal_from_idle_lane(began) {
                return Some(NextItem::Untracked(seq, item));
            }
            self.adapt_take(began);
            match self.take(&mut lack) {
                FromIntake::Item((seq, item)) => {
                    self.own().advance();
                    return Some(NextItem::Untracked(seq, item));
                }
                // It may have slept first: nothing else adds that wait.
                FromIntake::Leased(lease) => {
                    *slept = true;
                    self.waited.add(lack, now() - began);
                    self.own().advance();
                    return Some(NextItem::Leased(lease));
                }
                FromIntake::Waited => *slept = true,
                FromIntake::InLane(victim) => {
                    if let Some((seq, item)) = self.steal(victim) {
                        return Some(NextItem::Untracked(seq, item));
                    }
                }
                FromIntake::Over => {
                    self.waited.add(lack, now() - began);
                    return None;
                }
            }
            self.took_at = None;
        }
    }

    /// Steals from a neighbour without progress since the last look: its items wait behind a slow one. Otherwise they
    /// would wait until the input ends, since a producer that finds new input has no other reason to steal.
    fn steal_from_idle_lane(&mut self, now: Instant) -> Option<(u64, I)> {
        if !self.neighbours.are_due(now) {
            return None;
        }
        let mut still = self.neighbours.standing_still(self.handover);
        let stolen = still.find_map(|lane| self.steal(lane));
        if stolen.is_none() {
            drop(still);
            self.neighbours.move_on(self.handover, now);
        }
        stolen
    }

    /// Whether there are untracked items in the intake, or in the inboxes of others.
    fn are_items_left(&self) -> bool {
        let Handover { intake, stocked, lanes, .. } = self.handover;
        !lock(intake).is_empty() || stocked.find(lanes, self.producer).is_some()
    }

    /// Steals the older half of the items in `victim`. Returns the first and puts the rest into this
    /// producer's inbox.
    fn steal(&self, victim: usize) -> Option<(u64, I)> {
        let victim = &self.handover.lanes[victim].inbox;
        let first = victim.steal_half(&self.inbox, LARGEST_TAKE)?;
        if !self.inbox.is_empty() {
            self.handover.stocked.set(self.producer);
        }
        // A sleeper may have looked while these items were in neither inbox. The victim's remaining items may
        // come from a steal of its own, after which it woke only this producer.
        if !self.inbox.is_empty() || !victim.is_empty() {
            self.handover.dispatch.signals.idle.notify();
        }
        self.own().advance();
        Some(first)
    }

    /// Takes items from the intake, all but the first into the inbox. If there are none, sleeps, and sets what it lacks.
    fn take(&mut self, lack: &mut IdleReason) -> FromIntake<I> {
        let handover = self.handover;
        if handover.is_aborted() {
            return FromIntake::Over;
        }
        if let Some((first, is_more_here)) = self.take_share() {
            if is_more_here {
                handover.dispatch.signals.idle.notify();
            }
            return FromIntake::Item(first);
        }
        if let Some(victim) = handover.stocked.find(&handover.lanes, self.producer) {
            return FromIntake::InLane(victim);
        }
        handover.window_hints.run_dry();
        self.flush();
        let has_news = || handover.is_aborted() || self.are_items_left();
        // Items that wait for their next attempt since before are no news: that time may be far away.
        let signals = &handover.dispatch.signals;
        let had_waiting = signals.has_waiting();
        if handover.yields.until(|| has_news() || !had_waiting && signals.has_waiting()) {
            return FromIntake::Waited;
        }
        // Before it sleeps, registers with the scheduler, which from now on wakes it for retries.
        let until = match handover.dispatch.lease(self.producer, self.readiness) {
            Next::Work(lease) => return FromIntake::Leased(lease),
            Next::Leave => return FromIntake::Over,
            Next::Wait => None,
            Next::WaitUntil(time) => Some(time),
        };
        *lack = handover.lack(until);
        let sleep = signals.retry_watch.begin();
        let is_ready = || has_news() || signals.is_woken(self.producer);
        match until.map(|until| until.since(handover.dispatch.clock.now())) {
            Some(Duration::ZERO) => {}
            Some(most) => signals.idle.wait_at_most(most, is_ready),
            None => signals.idle.wait_unless(is_ready),
        }
        self.waited.for_retries += signals.retry_watch.end(sleep, *lack, until);
        // A woken producer must ask again: the scheduler woke no other for this work.
        match signals.take_wake_up(self.producer) {
            true => match handover.dispatch.lease(self.producer, self.readiness) {
                Next::Work(lease) => return FromIntake::Leased(lease),
                Next::Leave => return FromIntake::Over,
                Next::Wait | Next::WaitUntil(_) => handover.dispatch.stop_waiting(self.producer),
            },
            false => handover.dispatch.stop_waiting(self.producer),
        }
        FromIntake::Waited
    }

    /// Takes a share of the intake. Returns the first item, and whether there may be more for others.
    fn take_share(&mut self) -> Option<((u64, I), bool)> {
        let mut intake = lock(&self.handover.intake);
        let here = intake.items.len();
        // At most a share, so that others find items without stealing, and items start about in the order of the input:
        // even with results held back for order, the window then has room for an item of every producer.
        let share = intake.shares.offer(here).min(self.take);
        // Read after the number of items. The feeder announces a gap before it pushes the items behind it.
        let share = match share {
            0 => 0,
            share => intake.row(share, self.handover.gaps.load(Ordering::Relaxed)),
        };
        let seqs = intake.next..;
        intake.next += share as u64;
        intake.shares.take(share);
        let mut items = seqs.zip(intake.items.take(share));
        let first = items.next()?;
        if share > 1 {
            self.handover.stocked.set(self.producer);
        }
        items.for_each(|item| self.inbox.push(item));
        Some((first, here > 1))
    }

    fn adapt_take(&mut self, now: Instant) {
        if let Some(took_at) = self.took_at {
            let lasted = now - took_at;
            if lasted < TAKE_LASTS {
                self.take = (2 * self.take).min(largest_take::<I>());
            } else if lasted > 2 * TAKE_LASTS {
                self.take = (self.take / 2).max(1);
            }
        }
        self.took_at = Some(now);
    }
}

/// The next item or lease of a producer.
#[derive(Debug)]
pub(crate) enum NextItem<I> {
    /// An item that the scheduler does not track.
    Untracked(u64, I),
    Leased(Lease),
}

/// The scheduler's answer to a producer that asks before it takes new items, which it may if it is free.
enum SchedulerReply {
    Leased(Lease),
    Free,
    Over,
}

enum FromIntake<I> {
    Item((u64, I)),
    Leased(Lease),
    /// There was nothing to take; by now there may be.
    Waited,
    /// This lane has items to steal.
    InLane(usize),
    Over,
}

#[cfg(all(test, shuttle))]
mod model;

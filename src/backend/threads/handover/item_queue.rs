//! A producer's end of the hand-over: items in, by taking or by theft, and results out.

use std::time::{Duration, Instant};

use super::intake::{LARGEST_TAKE, largest_take};
use super::lane::Lane;
use super::{Handover, spin_until};
use crate::backend::threads::outbox::{Outbox, Outcome};
use crate::concurrency::atomic::Ordering;
use crate::concurrency::{Inbox, lock, now};
use crate::observe::run_stats::{Lack, ProducerTime, Waits};
use crate::scheduler::{Lease, Next, Readiness, RunTime};

/// A producer takes more items at once while what it took lasts less than this, and fewer when it
/// lasted twice as long. Longer would only mean that more has to be stolen back.
///
/// It also looks at its neighbours so often, since each look costs both a little.
const TAKE_LASTS: Duration = Duration::from_micros(50);
/// How many neighbours a producer looks at before it takes new items.
const WATCHED: usize = 64;

/// A producer's end.
#[derive(Debug)]
pub(crate) struct ItemQueue<'a, I, T> {
    handover: &'a Handover<I, T>,
    lane: usize,
    inbox: Inbox<(u64, I)>,
    outbox: Outbox<T>,
    /// How many items to take at once.
    take: usize,
    took_at: Option<Instant>,
    looked_at: Option<Instant>,
    /// What the progress of some neighbours was when this producer last looked: of `WATCHED` lanes
    /// from `watched_from` on.
    seen: Vec<u64>,
    watched_from: usize,
    readiness: Readiness,
    /// It asks the scheduler before it takes what is new.
    is_careful: bool,
    came: Instant,
    waited: Waits,
}

impl<'a, I, T> ItemQueue<'a, I, T> {
    /// The end of the producer that `lane` belongs to, which has only one.
    pub(crate) fn new(handover: &'a Handover<I, T>, lane: usize) -> Self {
        let ends = lock(&handover.lanes[lane].working).take();
        let (inbox, outbox) = ends.expect("a producer takes part in a run once");
        let came = now();
        handover.stats.producer_came(lane, came);
        ItemQueue {
            handover,
            lane,
            inbox,
            outbox,
            take: 1,
            took_at: None,
            looked_at: None,
            seen: vec![u64::MAX; WATCHED.min(handover.producers())],
            watched_from: 0,
            readiness: Readiness::Ready,
            is_careful: false,
            came,
            waited: Waits::default(),
        }
    }

    /// Delivers a result. What this producer has taken is left to the others.
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

    /// Wakes a collector that waits for more results than there are.
    pub(super) fn flush(&self) {
        let waiting = &self.handover.waiting;
        if waiting.has_sleeper()
            && self.outbox.delivered() > self.own().seen.load(Ordering::Relaxed)
        {
            waiting.wake_one();
        }
    }

    fn own(&self) -> &'a Lane<I, T> {
        &self.handover.lanes[self.lane]
    }

    /// Delivers a result and waits for the next item, as [`next`](ItemQueue::next).
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

    /// Whether the next item is not just any that is new.
    #[inline]
    pub(crate) fn must_ask(&self) -> bool {
        self.handover.dispatch.has_waiting() || self.is_careful
    }

    /// Delivers a result, and takes the next item if one is at hand.
    ///
    /// The next item is taken first: taking is an atomic handover, which waits until everything
    /// written before has reached the cache, and what a result is written to has to be fetched from
    /// the collector's core. This way round that goes on beside the work on the next item.
    #[inline(always)]
    pub(crate) fn deliver_and_pop(&mut self, seq: u64, result: Outcome<T>) -> Option<(u64, I)> {
        let item = self.inbox.pop();
        self.deliver(seq, result);
        if item.is_some() {
            self.own().advance();
        }
        item
    }

    /// Whether the producer has its state.
    pub(crate) fn set_readiness(&mut self, readiness: Readiness) {
        self.readiness = readiness;
    }

    /// This producer has failed an item, or works on one that others failed: it asks before it takes what is
    /// new.
    pub(crate) fn be_careful(&mut self) {
        self.is_careful = true;
    }

    /// Has the scheduler know an item from now on, which this producer works on next.
    pub(crate) fn track(&mut self, seq: u64, item: I) -> Lease {
        self.handover.dispatch.track((seq, item), self.lane, self.readiness)
    }

    /// It had nothing to do from then until now.
    pub(super) fn has_waited(&mut self, lack: Lack, since: Instant) {
        self.waited.add(lack, now() - since);
        self.note_waits();
    }

    /// At the end of each wait: this producer may never leave.
    #[cold]
    fn note_waits(&self) {
        self.handover.stats.producer_waited(self.lane, self.waited);
    }

    /// Waits for a lease, where the scheduler knows all items. `None` when the producer is to leave.
    pub(crate) fn next_lease(&mut self) -> Option<Lease> {
        loop {
            match self.handover.dispatch.lease(self.lane, self.readiness) {
                Next::Work(lease) => return Some(lease),
                Next::Leave => return None,
                Next::Wait => self.sleep_for_lease(None),
                Next::WaitUntil(time) => self.sleep_for_lease(Some(time)),
            }
        }
    }

    fn sleep_for_lease(&mut self, until: Option<RunTime>) {
        let since = now();
        self.handover.run_dry();
        self.flush();
        let dispatch = &self.handover.dispatch;
        if !spin_until(since, || dispatch.is_woken(self.lane)) || !dispatch.take_wake_up(self.lane)
        {
            dispatch.sleep(self.lane, until);
        }
        self.has_waited(self.lack(until), since);
    }

    /// Waits for an item. `None` when there will be none for this producer.
    pub(crate) fn next(&mut self) -> Option<NextItem<I>> {
        if self.must_ask() {
            match self.ask() {
                Asked::Leased(lease) => return Some(NextItem::Leased(lease)),
                Asked::Free => {}
                Asked::Over => return None,
            }
        }
        let next = match self.inbox.pop() {
            Some((seq, item)) => {
                self.own().advance();
                NextItem::Untracked(seq, item)
            }
            None => self.refill()?,
        };
        // What a suspected producer does shows something.
        Some(match next {
            NextItem::Untracked(seq, item) if self.is_careful => {
                NextItem::Leased(self.track(seq, item))
            }
            next => next,
        })
    }

    /// What a producer does that may not be free to take what is new.
    #[cold]
    fn ask(&mut self) -> Asked {
        loop {
            let until = match self.handover.dispatch.lease(self.lane, self.readiness) {
                Next::Work(lease) => {
                    self.own().advance();
                    return Asked::Leased(lease);
                }
                Next::Leave => return Asked::Over,
                Next::Wait => None,
                Next::WaitUntil(time) => Some(time),
            };
            if self.handover.dispatch.may_take_new(self.lane) {
                self.handover.dispatch.stop_waiting(self.lane);
                self.is_careful = self.is_careful && self.handover.dispatch.is_careful(self.lane);
                return Asked::Free;
            }
            // What it has taken is for others to take.
            self.handover.dispatch.idle.notify();
            self.sleep_for_lease(until);
        }
    }

    /// The next item, where none is at hand.
    pub(crate) fn refill(&mut self) -> Option<NextItem<I>> {
        let before = self.waited.all;
        let item = self.look_for_item();
        if self.waited.all > before {
            self.note_waits();
        }
        item
    }

    fn look_for_item(&mut self) -> Option<NextItem<I>> {
        let (mut since, mut lack) = (None, Lack::Items);
        loop {
            // The clock is read once each time round: that what came last was found with the next look is
            // near enough.
            let now = now();
            self.waited.add(lack, now - *since.get_or_insert(now));
            since = Some(now);
            if self.handover.dispatch.has_waiting() {
                match self.ask() {
                    Asked::Leased(lease) => return Some(NextItem::Leased(lease)),
                    Asked::Free => {}
                    Asked::Over => return None,
                }
            }
            if let Some((seq, item)) = self.steal_from_idle_lane(now) {
                return Some(NextItem::Untracked(seq, item));
            }
            self.adapt_take(now);
            match self.take(now) {
                Taken::Item((seq, item)) => {
                    self.own().advance();
                    return Some(NextItem::Untracked(seq, item));
                }
                Taken::Leased(lease) => {
                    self.own().advance();
                    return Some(NextItem::Leased(lease));
                }
                Taken::Waited(lacked) => lack = lacked,
                Taken::InLane(victim) => {
                    if let Some((seq, item)) = self.steal(victim) {
                        return Some(NextItem::Untracked(seq, item));
                    }
                }
                Taken::Over => return None,
            }
            self.took_at = None;
        }
    }

    /// Takes from a neighbour that has not moved since this producer last looked: its items wait
    /// behind a slow one. Without this they would wait for as long as there is new input, since a
    /// producer that finds input has no need to steal.
    fn steal_from_idle_lane(&mut self, now: Instant) -> Option<(u64, I)> {
        if self.looked_at.is_some_and(|then| now - then < TAKE_LASTS) {
            return None;
        }
        for i in 0..self.seen.len() {
            let lane = self.watched(i);
            let stands_still = self.handover.lanes[lane].progress() == self.seen[i];
            if stands_still
                && lane != self.lane
                && let Some(item) = self.steal(lane)
            {
                return Some(item);
            }
        }
        self.looked_at = Some(now);
        self.watch_next();
        None
    }

    /// Goes round all lanes: with very many producers only some are looked at each time.
    fn watch_next(&mut self) {
        self.watched_from = self.watched(self.seen.len());
        for i in 0..self.seen.len() {
            self.seen[i] = self.handover.lanes[self.watched(i)].progress();
        }
    }

    fn watched(&self, i: usize) -> usize {
        (self.watched_from + i) % self.handover.producers()
    }

    /// Takes the older half of what `victim` has, the first to work on, the rest into its own inbox.
    fn steal(&mut self, victim: usize) -> Option<(u64, I)> {
        let victim = &self.handover.lanes[victim].inbox;
        let first = victim.steal_half(&self.inbox, LARGEST_TAKE)?;
        // A sleeper may have looked while these items were in neither inbox. Also what is left
        // where this thief came from may have been in another's hand then, who woke only this one.
        if !self.inbox.is_empty() || !victim.is_empty() {
            self.handover.dispatch.idle.notify();
        }
        self.own().advance();
        Some(first)
    }

    /// Takes items from the intake, the first for the caller and the rest into the inbox.
    fn take(&mut self, since: Instant) -> Taken<I> {
        let handover = self.handover;
        if handover.is_aborted() {
            return Taken::Over;
        }
        if let Some((first, is_more_here)) = self.take_share() {
            if is_more_here {
                handover.dispatch.idle.notify();
            }
            return Taken::Item(first);
        }
        if let Some(victim) = handover.lane_with_items(self.lane) {
            return Taken::InLane(victim);
        }
        handover.run_dry();
        self.flush();
        let has_news = || {
            handover.is_aborted()
                || lock(&handover.intake).items.len() > 0
                || handover.lane_with_items(self.lane).is_some()
        };
        if spin_until(since, has_news) {
            return Taken::Waited(self.lack(None));
        }
        // From now on the scheduler wakes this producer for what others fail.
        let until = match handover.dispatch.lease(self.lane, self.readiness) {
            Next::Work(lease) => return Taken::Leased(lease),
            Next::Leave => return Taken::Over,
            Next::Wait => None,
            Next::WaitUntil(time) => Some(time),
        };
        let lack = self.lack(until);
        let dispatch = &handover.dispatch;
        let is_ready = || has_news() || dispatch.is_woken(self.lane);
        match until.map(|until| until.since(dispatch.clock.now())) {
            Some(Duration::ZERO) => {}
            Some(most) => handover.dispatch.idle.wait_at_most(most, is_ready),
            None => handover.dispatch.idle.wait_unless(is_ready),
        }
        // One that was woken asks again: there is something that no other was woken for.
        match dispatch.take_wake_up(self.lane) {
            true => match handover.dispatch.lease(self.lane, self.readiness) {
                Next::Work(lease) => return Taken::Leased(lease),
                Next::Leave => return Taken::Over,
                Next::Wait | Next::WaitUntil(_) => handover.dispatch.stop_waiting(self.lane),
            },
            false => handover.dispatch.stop_waiting(self.lane),
        }
        Taken::Waited(lack)
    }

    /// What is missing, where there is nothing to do but that, later.
    fn lack(&self, until: Option<RunTime>) -> Lack {
        match until {
            Some(_) if self.handover.dispatch.has_retries() => Lack::Retries,
            _ if self.handover.is_starving() => Lack::Permits,
            _ => Lack::Items,
        }
    }

    /// The first of some items, and whether there are more for others to take.
    fn take_share(&mut self) -> Option<((u64, I), bool)> {
        let mut intake = lock(&self.handover.intake);
        let here = intake.items.len();
        // No more than a share, so that there is something left for the others without stealing. It
        // also keeps the order of starting so near to that of the input that the window has room
        // for an item of every producer, whatever order it holds results back for.
        let share = intake.shares.offer(here).min(self.take);
        // Read after the items that are here, which the gaps before them were written before.
        let share = match share {
            0 => 0,
            share => intake.row(share, self.handover.gaps.load(Ordering::Relaxed)),
        };
        let seqs = intake.next..;
        intake.next += share as u64;
        intake.shares.take(share);
        let mut items = seqs.zip(intake.items.take(share));
        let first = items.next()?;
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

/// Says how long it was there, and how long with nothing to do.
impl<I, T> Drop for ItemQueue<'_, I, T> {
    fn drop(&mut self) {
        let (items, present) = (self.outbox.delivered(), now() - self.came);
        let time = ProducerTime { came: None, items, failed: 0, present, waited: self.waited };
        self.handover.stats.producer_left(self.lane, time);
    }
}

/// What a producer works on next.
#[derive(Debug)]
pub(crate) enum NextItem<I> {
    /// An item that the scheduler does not know.
    Untracked(u64, I),
    Leased(Lease),
}

/// What the scheduler says to a producer that asks before it takes what is new.
enum Asked {
    Leased(Lease),
    /// It may take what is new.
    Free,
    Over,
}

enum Taken<I> {
    Item((u64, I)),
    Leased(Lease),
    /// Nothing was there; that may have changed.
    Waited(Lack),
    /// This lane has items.
    InLane(usize),
    Over,
}

#[cfg(all(test, shuttle))]
mod model {
    use std::sync::Arc;

    use shuttle::sync::{Condvar, Mutex};
    use shuttle::thread;

    use super::*;
    use crate::backend::threads::run_settings::RunSettings;
    use crate::backend::threads::run_shape::CarriedOver;
    use crate::backend::threads::run_shape::Shape;
    use crate::base::Order;

    /// `items` are all in the first producer's lane. `slow` of them, which `is_slow` tells by who
    /// works on it, as his how-manieth, and the item, last until all the others are done.
    fn theft(producers: usize, items: u64, slow: u64, is_slow: fn(usize, u64, u64) -> bool) {
        let shape = Shape { order: Order::Input, producers, window: 16, batching: None };
        let config = RunSettings::<u64>::default().scheduling(&shape);
        let earlier = CarriedOver::nothing(producers);
        let hub = Arc::new(Handover::<u64, u64>::new(config, earlier, None));
        let mut first = lock(&hub.lanes[0].working);
        let (inbox, _) = first.as_mut().expect("nobody has taken it");
        (0..items).for_each(|seq| inbox.push((seq, seq)));
        drop(first);
        let done = Arc::new((Mutex::new(0), Condvar::new()));
        let work = |lane| {
            let (hub, done) = (hub.clone(), done.clone());
            thread::spawn(move || {
                let mut item_queue = ItemQueue::new(&hub, lane);
                let mut next = item_queue.next();
                let mut nth = 0;
                while let Some(NextItem::Untracked(seq, item)) = next {
                    let mut count = done.0.lock().unwrap();
                    if is_slow(lane, nth, item) {
                        count = done.1.wait_while(count, |done| *done < items - slow).unwrap();
                    }
                    *count += 1;
                    done.1.notify_all();
                    drop(count);
                    nth += 1;
                    next = item_queue.deliver_and_next(seq, Ok(item));
                }
            })
        };
        let threads: Vec<_> = (0..producers).map(work).collect();
        let count = done.0.lock().unwrap();
        drop(done.1.wait_while(count, |done| *done < items).unwrap());
        hub.abort();
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    }

    /// A thief's first item is slow, and its neighbours looked for work while it had the others in
    /// hand: it has to wake them, or they sleep beside items that wait for it.
    #[test]
    fn a_thief_that_turns_out_slow_is_relieved_of_its_loot() {
        let model = || theft(3, 4, 1, |lane, nth, _| lane == 1 && nth == 0);
        shuttle::check_random(model, 10_000);
        shuttle::check_pct(model, 5_000, 4);
    }

    /// Two items are slow, and one thief steals from another: whoever leaves items behind has to wake
    /// a sleeper, as has who takes more than one.
    #[test]
    fn what_thieves_leave_behind_finds_a_taker() {
        let model = || theft(4, 6, 2, |_, _, item| item < 2);
        shuttle::check_random(model, 3_000);
        shuttle::check_pct(model, 10_000, 3);
    }
}

//! A producer's end of the hand-over: items in, by taking or by theft, and results out.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use super::{Exchange, LOOKS_BEFORE_SLEEP, Lane};
use crate::sync::atomic::Ordering;
use crate::sync::{lock, now, wait};

/// A producer takes at most so many items at once, however fast they are.
const LARGEST_TAKE: usize = 256;
/// A producer takes more items at once while what it took lasts less than this, and fewer when it
/// lasted twice as long. Longer would only mean that more has to be stolen back.
const TAKE_LASTS: Duration = Duration::from_micros(50);
/// How many neighbours a producer looks at before it takes new items.
const WATCHED: usize = 64;
/// A producer's end.
#[derive(Debug)]
pub(crate) struct Taker<'a, I, T> {
    exchange: &'a Exchange<I, T>,
    lane: usize,
    /// How many items to take at once.
    take: usize,
    took_at: Option<Instant>,
    /// What the progress of some neighbours was when this producer last looked: of `WATCHED` lanes
    /// from `watched_from` on.
    seen: Vec<u64>,
    watched_from: usize,
    /// What is being stolen, between the two lanes. Empty otherwise; kept for its capacity.
    loot: VecDeque<(u64, I)>,
}

impl<'a, I, T> Taker<'a, I, T> {
    pub(crate) fn new(exchange: &'a Exchange<I, T>, lane: usize) -> Self {
        let seen = vec![u64::MAX; WATCHED.min(exchange.producers())];
        Taker {
            exchange,
            lane,
            take: 1,
            took_at: None,
            seen,
            watched_from: 0,
            loot: VecDeque::new(),
        }
    }

    /// Delivers a result and leaves what this producer has taken to the others.
    pub(crate) fn deliver(&self, seq: u64, result: T) {
        self.exchange.deliver(self.lane, seq, result);
    }

    /// Delivers a result and waits for the next item, as [`Taker::next`].
    pub(crate) fn deliver_and_next(&mut self, seq: u64, result: T) -> Option<(u64, I)> {
        let own = &self.exchange.lanes[self.lane];
        let mut state = lock(&own.state);
        let watched = state.deliver(seq, result);
        let item = state.inbox.pop_front();
        drop(state);
        if watched {
            self.exchange.signal();
        }
        match item {
            Some(item) => {
                own.advance();
                Some(item)
            }
            None => self.refill(),
        }
    }

    /// Waits for an item. `None` when there will be none for this producer.
    pub(crate) fn next(&mut self) -> Option<(u64, I)> {
        let own = &self.exchange.lanes[self.lane];
        let item = lock(&own.state).inbox.pop_front();
        match item {
            Some(item) => {
                own.advance();
                Some(item)
            }
            None => self.refill(),
        }
    }

    fn refill(&mut self) -> Option<(u64, I)> {
        let mut looks = 0;
        loop {
            if let Some(item) = self.steal_from_idle_lane() {
                return Some(item);
            }
            self.adapt_take();
            match self.exchange.take(self.lane, self.take, looks >= LOOKS_BEFORE_SLEEP) {
                Taken::Item(item) => {
                    self.exchange.lanes[self.lane].advance();
                    return Some(item);
                }
                Taken::Nothing => {
                    looks += 1;
                    std::thread::yield_now();
                }
                Taken::Slept => looks = 0,
                Taken::InLane(victim) => {
                    if let Some(item) = self.steal(victim) {
                        return Some(item);
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
    fn steal_from_idle_lane(&mut self) -> Option<(u64, I)> {
        for i in 0..self.seen.len() {
            let lane = self.watched(i);
            let stands_still = self.exchange.lanes[lane].progress() == self.seen[i];
            if stands_still
                && lane != self.lane
                && let Some(item) = self.steal(lane)
            {
                return Some(item);
            }
        }
        self.watch_next();
        None
    }

    /// Goes round all lanes: with very many producers only some are looked at each time.
    fn watch_next(&mut self) {
        self.watched_from = self.watched(self.seen.len());
        for i in 0..self.seen.len() {
            self.seen[i] = self.exchange.lanes[self.watched(i)].progress();
        }
    }

    fn watched(&self, i: usize) -> usize {
        (self.watched_from + i) % self.exchange.producers()
    }

    /// Takes the older half of what `victim` has, the first to work on, the rest into its own lane.
    fn steal(&mut self, victim: usize) -> Option<(u64, I)> {
        let lanes = &self.exchange.lanes;
        let is_more_left = {
            let mut state = lock(&lanes[victim].state);
            let half = state.inbox.len().div_ceil(2);
            self.loot.extend(state.inbox.drain(..half));
            !state.inbox.is_empty()
        };
        let first = self.loot.pop_front()?;
        if !self.loot.is_empty() {
            lock(&lanes[self.lane].state).inbox.append(&mut self.loot);
        }
        // A sleeper may have looked while these items were in neither lane. Also what is left
        // where this thief came from may have been in another's hand then, who woke only this one.
        // A thief that takes more than one item always leaves one, so this covers both.
        if is_more_left {
            self.exchange.wake_producer();
        }
        Some(first)
    }

    fn adapt_take(&mut self) {
        let now = now();
        if let Some(took_at) = self.took_at {
            let lasted = now - took_at;
            if lasted < TAKE_LASTS {
                self.take = (2 * self.take).min(LARGEST_TAKE);
            } else if lasted > 2 * TAKE_LASTS {
                self.take = (self.take / 2).max(1);
            }
        }
        self.took_at = Some(now);
    }
}

enum Taken<I> {
    Item((u64, I)),
    /// Nothing was there, and the caller asked not to sleep.
    Nothing,
    /// Nothing was there; that may have changed.
    Slept,
    /// This lane has items.
    InLane(usize),
    Over,
}

impl<I, T> Exchange<I, T> {
    /// Takes up to `take` items from the intake, the first for the caller and the rest into its lane.
    fn take(&self, lane: usize, take: usize, sleep: bool) -> Taken<I> {
        let mut intake = lock(&self.intake);
        if intake.aborted {
            return Taken::Over;
        }
        // No more than this producer's share, so that the others find theirs without stealing. It
        // also keeps the order of starting so near to that of the input that the window has room
        // for an item of every producer, whatever order it holds results back for.
        let share = intake.queue.len() / self.producers();
        if let Some(first) = intake.queue.pop_front() {
            let more = share.min(take).saturating_sub(1);
            if more > 0 {
                lock(&self.lanes[lane].state).inbox.extend(intake.queue.drain(..more));
            }
            let wake = (more > 0 || !intake.queue.is_empty()) && intake.wake_one();
            drop(intake);
            if wake {
                self.filled.notify_one();
            }
            return Taken::Item(first);
        }
        if let Some(victim) = self.lane_with_items(lane) {
            return Taken::InLane(victim);
        }
        if self.starving.load(Ordering::Relaxed) {
            self.dry.store(true, Ordering::Relaxed);
        }
        if !sleep {
            return Taken::Nothing;
        }
        intake.sleeping += 1;
        while intake.queue.is_empty() && intake.waking == 0 && !intake.aborted {
            intake = wait(&self.filled, intake);
        }
        intake.sleeping -= 1;
        intake.waking = intake.waking.saturating_sub(1);
        Taken::Slept
    }

    fn lane_with_items(&self, but: usize) -> Option<usize> {
        (0..self.producers())
            .filter(|&lane| lane != but)
            .find(|&lane| !lock(&self.lanes[lane].state).inbox.is_empty())
    }

    fn wake_producer(&self) {
        let wake = lock(&self.intake).wake_one();
        if wake {
            self.filled.notify_one();
        }
    }
}

impl<I, T> Lane<I, T> {
    fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }

    /// Only the owner writes, so a load and a store do.
    fn advance(&self) {
        let progress = self.progress.load(Ordering::Relaxed);
        self.progress.store(progress + 1, Ordering::Relaxed);
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::sync::Arc;

    use shuttle::sync::{Condvar, Mutex};
    use shuttle::thread;

    use super::*;

    /// `items` are all in the first producer's lane. `slow` of them, which `is_slow` tells by who
    /// works on it, as his how-manieth, and the item, last until all the others are done.
    fn theft(producers: usize, items: u64, slow: u64, is_slow: fn(usize, u64, u64) -> bool) {
        let hub = Arc::new(Exchange::<u64, u64>::new(producers, 16));
        lock(&hub.lanes[0].state).inbox.extend((0..items).map(|seq| (seq, seq)));
        let done = Arc::new((Mutex::new(0), Condvar::new()));
        let work = |lane| {
            let (hub, done) = (hub.clone(), done.clone());
            thread::spawn(move || {
                let mut taker = Taker::new(&hub, lane);
                let mut next = taker.next();
                let mut nth = 0;
                while let Some((seq, item)) = next {
                    let mut count = done.0.lock().unwrap();
                    if is_slow(lane, nth, item) {
                        count = done.1.wait_while(count, |done| *done < items - slow).unwrap();
                    }
                    *count += 1;
                    done.1.notify_all();
                    drop(count);
                    nth += 1;
                    next = taker.deliver_and_next(seq, item);
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

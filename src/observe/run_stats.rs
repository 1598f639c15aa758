//! How long everybody waited, noted where they wait.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;

use super::event::{Destination, Origin};
use crate::concurrency::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::concurrency::{Mutex, lock, now};

/// What is known of one run when everybody has left it.
#[derive(Debug)]
pub(crate) struct RunStats {
    /// How long the feeder was there, and how long of that it had no permit, in nanoseconds.
    source_present: AtomicU64,
    source_waited: AtomicU64,
    producers: Box<[CachePadded<Mutex<ProducerTime>>]>,
    collector: CachePadded<Mutex<CollectorTime>>,
    consumer_abandoned: AtomicBool,
    ends: Mutex<(Origin, Destination)>,
}

/// Of one producer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProducerTime {
    /// `None` where it is not there (any more).
    pub(crate) came: Option<Instant>,
    pub(crate) items: u64,
    pub(crate) failed: u64,
    pub(crate) present: Duration,
    pub(crate) waited: Waits,
    pub(crate) rebuilds: Rebuilds,
}

/// How often a producer lost its state in a run, and what it cost to rebuild it.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rebuilds {
    pub(crate) states_lost: u64,
    /// How often `producer_init` was called again.
    pub(crate) inits: u64,
    pub(crate) took: Duration,
    /// Of that, while the producer took part in the run; before it does, it builds a state that an earlier
    /// run lost.
    pub(crate) took_in_run: Duration,
    /// When the `producer_init` that has not returned began.
    since: Option<Instant>,
}

/// How long a producer had nothing to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waits {
    pub(crate) all: Duration,
    /// Of that, with the window full.
    pub(crate) for_credits: Duration,
    /// Of that, with something there to try again, but later.
    pub(crate) for_retries: Duration,
}

/// What a producer lacks that has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lack {
    Items,
    /// The source has no permit for more.
    Permits,
    /// All items that are left are to be tried again later.
    Retries,
}

impl Waits {
    pub(crate) fn add(&mut self, lack: Lack, waited: Duration) {
        self.all += waited;
        match lack {
            Lack::Items => {}
            Lack::Permits => self.for_credits += waited,
            Lack::Retries => self.for_retries += waited,
        }
    }
}

/// Of the collector.
#[derive(Debug, Clone, Default)]
pub(crate) struct CollectorTime {
    /// `None` where it is not there (any more).
    pub(crate) came: Option<Instant>,
    pub(crate) present: Duration,
    pub(crate) window: u64,
    /// With nothing there.
    pub(crate) waited: Duration,
    /// For one item, with results of later ones there.
    pub(crate) stalled: Duration,
    pub(crate) heads: Heads,
}

/// The largest number of reported items that the collector waited for.
const MOST_HEADS: usize = 20;

/// The items that the collector waited for the longest.
#[derive(Debug, Clone, Default)]
pub(crate) struct Heads {
    /// The one that it waits for now, or did last.
    current: Option<(u64, Duration)>,
    /// By the time, so that the shortest is found; at most [`MOST_HEADS`].
    worst: BTreeMap<(Duration, u64), ()>,
    /// How long the wait for the current item was when it was last reported.
    told: Duration,
}

/// From when on a wait for one item is news.
const NEWS: Duration = Duration::from_millis(100);

impl Heads {
    /// It waited so long for `item`.
    pub(crate) fn add(&mut self, item: u64, waited: Duration) {
        match &mut self.current {
            Some((current, time)) if *current == item => *time += waited,
            _ => {
                self.settle();
                self.current = Some((item, waited));
                self.told = Duration::ZERO;
            }
        }
    }

    /// For how long it waits for `item` until that is news.
    pub(crate) fn news_in(&self, item: u64) -> Duration {
        let same = self.current.filter(|(current, _)| *current == item);
        same.map_or(NEWS, |(_, waited)| NEWS.max(2 * self.told).saturating_sub(waited))
    }

    /// The item that it waits for, and how long, each time that is twice as long as what was told before.
    pub(crate) fn news(&mut self) -> Option<(u64, Duration)> {
        let (item, waited) = self.current?;
        if waited < NEWS || waited < 2 * self.told {
            return None;
        }
        self.told = waited;
        Some((item, waited))
    }

    fn settle(&mut self) {
        let Some((item, waited)) = self.current.take() else { return };
        self.worst.insert((waited, item), ());
        if self.worst.len() > MOST_HEADS {
            self.worst.pop_first();
        }
    }

    /// The worst first.
    pub(crate) fn into_worst(mut self) -> Vec<(u64, Duration)> {
        self.settle();
        self.worst.into_keys().rev().map(|(waited, item)| (item, waited)).collect()
    }
}

impl Rebuilds {
    fn end(&mut self, is_present: bool) {
        let Some(since) = self.since.take() else { return };
        let took = now() - since;
        self.took += took;
        if is_present {
            self.took_in_run += took;
        }
    }
}

impl RunStats {
    pub(crate) fn new(producers: usize) -> Self {
        RunStats {
            source_present: AtomicU64::new(0),
            source_waited: AtomicU64::new(0),
            producers: (0..producers).map(|_| CachePadded::default()).collect(),
            collector: CachePadded::default(),
            consumer_abandoned: AtomicBool::new(false),
            ends: Mutex::default(),
        }
    }

    pub(crate) fn comes_from(&self, origin: Origin) {
        lock(&self.ends).0 = origin;
    }

    pub(crate) fn goes_to(&self, destination: Destination) {
        lock(&self.ends).1 = destination;
    }

    pub(crate) fn ends(&self) -> (Origin, Destination) {
        *lock(&self.ends)
    }

    /// The consumer is abandoned in a hook.
    pub(crate) fn leave_consumer_behind(&self) {
        self.consumer_abandoned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_consumer_abandoned(&self) -> bool {
        self.consumer_abandoned.load(Ordering::Relaxed)
    }

    /// The feeder was there so long, and so long of that it had no permit.
    pub(crate) fn source_left(&self, present: Duration, waited: Duration) {
        let nanos = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.source_present.store(nanos(present), Ordering::Relaxed);
        self.source_waited.store(nanos(waited), Ordering::Relaxed);
    }

    /// How long the source was asked for items, and how long it was not, since there was no permit.
    pub(crate) fn source(&self) -> (Duration, Duration) {
        let time = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        let (present, waited) = (time(&self.source_present), time(&self.source_waited));
        (present.saturating_sub(waited), waited)
    }

    /// Returns its waits so far, if it takes part again.
    pub(crate) fn producer_came(&self, producer: usize, came: Instant) -> Waits {
        let mut noted = lock(&self.producers[producer]);
        noted.came = Some(came);
        noted.waited
    }

    /// Sets the total wait up to now. A producer that never leaves does not report it later.
    pub(crate) fn producer_waited(&self, producer: usize, waited: Waits) {
        lock(&self.producers[producer]).waited = waited;
    }

    pub(crate) fn producer_left(&self, producer: usize, time: ProducerTime) {
        let mut noted = lock(&self.producers[producer]);
        let (present, rebuilds) = (noted.present + time.present, noted.rebuilds);
        *noted = ProducerTime { failed: noted.failed, present, rebuilds, ..time };
    }

    /// Sets the number of results that a producer of a service has given up to now.
    pub(crate) fn producer_answered(&self, producer: usize, items: u64) {
        lock(&self.producers[producer]).items = items;
    }

    pub(crate) fn state_lost(&self, producer: usize) {
        lock(&self.producers[producer]).rebuilds.states_lost += 1;
    }

    /// `producer_init` is called again.
    pub(crate) fn rebuild_begins(&self, producer: usize) {
        let rebuilds = &mut lock(&self.producers[producer]).rebuilds;
        rebuilds.inits += 1;
        rebuilds.since = Some(now());
    }

    /// That `producer_init` has returned.
    pub(crate) fn rebuild_ends(&self, producer: usize) {
        let mut noted = lock(&self.producers[producer]);
        let is_present = noted.came.is_some();
        noted.rebuilds.end(is_present);
    }

    pub(crate) fn producer_failed(&self, producer: usize, items: u64) {
        lock(&self.producers[producer]).failed += items;
    }

    /// The times of a producer. One that has not left is present until now.
    pub(crate) fn producer(&self, producer: usize) -> ProducerTime {
        let mut time = *lock(&self.producers[producer]);
        time.present += time.came.map_or(Duration::ZERO, |came| now() - came);
        time.rebuilds.end(time.came.is_some());
        time
    }

    pub(crate) fn collector_came(&self, came: Instant, window: u64) {
        let mut noted = lock(&self.collector);
        (noted.came, noted.window) = (Some(came), window);
    }

    /// As [`producer_waited`](RunStats::producer_waited).
    pub(crate) fn collector_waited(&self, time: &CollectorTime, window: u64) {
        let mut noted = lock(&self.collector);
        (noted.waited, noted.stalled, noted.window) = (time.waited, time.stalled, window);
    }

    /// `seen`: how many results of each producer, which one that was abandoned in a hook does not say
    /// itself.
    pub(crate) fn collector_left(&self, time: CollectorTime, seen: impl Iterator<Item = u64>) {
        *lock(&self.collector) = time;
        for (noted, seen) in self.producers.iter().zip(seen) {
            let mut noted = lock(noted);
            noted.items = noted.items.max(seen);
        }
    }

    /// If it has not left, it is there until now.
    pub(crate) fn collector(&self) -> CollectorTime {
        let mut time = lock(&self.collector).clone();
        time.present = time.came.map_or(time.present, |came| now() - came);
        time
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_news_each_time_it_is_twice_as_long() {
        let mut heads = Heads::default();
        let ms = Duration::from_millis;
        assert_eq!(heads.news_in(7), ms(100));
        heads.add(7, ms(40));
        assert_eq!((heads.news(), heads.news_in(7), heads.news_in(8)), (None, ms(60), ms(100)));
        heads.add(7, ms(60));
        assert_eq!(heads.news(), Some((7, ms(100))));
        assert_eq!((heads.news(), heads.news_in(7)), (None, ms(100)));
        heads.add(7, ms(100));
        assert_eq!(heads.news(), Some((7, ms(200))));
    }

    #[test]
    fn the_worst_heads_are_kept_each_with_all_its_waits() {
        let mut heads = Heads::default();
        let ms = Duration::from_millis;
        for item in 0..100 {
            heads.add(item, ms(1));
            heads.add(item, ms(item));
        }
        let worst = heads.into_worst();
        assert_eq!(worst.len(), MOST_HEADS);
        assert_eq!(worst[0], (99, ms(100)));
        assert_eq!(worst[19], (80, ms(81)));
    }
}

//! The times of a run's threads, which each thread notes where it waits.

mod collector_time;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crossbeam_utils::CachePadded;
use gangline_report::{CallInput, Failure, SplitReport, TimeAccount, TimeKind, WorkerReport};

pub(crate) use self::collector_time::CollectorTime;
use super::event::{Destination, Origin};
use crate::concurrency::atomic::{AtomicBool, AtomicU64, Ordering};
use crate::concurrency::time_aside::TimeAside;
use crate::concurrency::{Mutex, lock, now};

/// The times and counts of one run, from which its report is made.
#[derive(Debug)]
pub(crate) struct RunStats {
    /// The time that the feeder took part, and the part of it without a permit; in nanoseconds.
    source_present: AtomicU64,
    source_waited: AtomicU64,
    /// The time in which what was read was named and measured; in nanoseconds.
    source_named: AtomicU64,
    /// What held work back, and for how long.
    held_back_by: Mutex<BTreeMap<&'static str, Duration>>,
    /// The time in which the producers got ready before the run, if it is the first; in nanoseconds.
    start_up: AtomicU64,
    producers: Box<[CachePadded<Mutex<ProducerTime>>]>,
    collector: CachePadded<Mutex<CollectorTime>>,
    consumer_abandoned: AtomicBool,
    ends: Mutex<(Origin, Destination)>,
    /// The workers of producers that are not in this process.
    workers: Box<[CachePadded<Mutex<Option<WorkerReport>>>]>,
    /// The calls of the hook for batches.
    splits: CachePadded<Mutex<SplitReport>>,
}

/// The times and counts of one producer.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct ProducerTime {
    /// The time at which the producer joined the run; `None` before that and after it has left.
    pub(crate) came: Option<Instant>,
    /// The number of results in the order of the run.
    delivered: u64,
    /// The number of other results: those of calls.
    answered: u64,
    pub(crate) failed: u64,
    pub(crate) present: Duration,
    pub(crate) waited: Waits,
    /// What hooks counted as no work.
    pub(crate) aside: TimeAccount,
    /// The beginning of the present wait for a lease. It is not yet part of `waited`.
    pub(crate) waits_since: Option<Instant>,
    pub(crate) rebuilds: Rebuilds,
    pub(crate) recycling: Recycling,
    /// Whether it got its first state in this run.
    pub(crate) starts_in_run: bool,
    /// How many producers were started in its place, and calls of `producer_init` repeated.
    pub(crate) replacements: u64,
    /// The workers of a cluster in its seat; `None` if its hooks run on this machine.
    pub(crate) seat: Option<SeatTime>,
}

impl ProducerTime {
    pub(crate) fn items(&self) -> u64 {
        self.delivered + self.answered
    }

    fn end(&mut self, now: Instant) {
        self.present += self.came.take().map_or(Duration::ZERO, |came| now - came);
        self.waited.all += self.waits_since.take().map_or(Duration::ZERO, |since| now - since);
    }

    /// The time in which the producer worked on items, or looked for them.
    pub(crate) fn working(&self) -> Duration {
        self.present.saturating_sub(self.waited.all + self.rebuilds.took_in_run + self.aside.sum())
    }

    /// Its time in the run by kind, without that of its first state.
    pub(crate) fn times(&self) -> TimeAccount {
        let Waits { all, for_permits, for_retries } = self.waited;
        let mut times = self.aside;
        times.work = self.working();
        times.loading += self.rebuilds.took + self.recycling.took;
        times.held_back += for_retries;
        times.input += all.saturating_sub(for_permits + for_retries);
        times.order = for_permits;
        times
    }

    /// Replaces the times of the lane's thread, which only waits for workers, by those of the workers.
    fn replace_by_seat(&mut self, seat: SeatTime) {
        self.present = seat.present + seat.since.map_or(Duration::ZERO, |since| now() - since);
        let rebuilding = seat.rebuilding.min(self.present);
        let waited = self.present.saturating_sub(seat.working + rebuilding + seat.dead);
        self.aside.dead = seat.dead;
        let Waits { for_permits, for_retries, .. } = self.waited;
        self.waited = Waits {
            all: waited,
            for_permits: for_permits.min(waited),
            for_retries: for_retries.min(waited),
        };
        let (states_lost, inits) = (seat.states_lost, seat.rebuilds);
        let (took, took_in_run) = (rebuilding, rebuilding);
        self.rebuilds = Rebuilds { states_lost, inits, took, took_in_run, since: None };
    }
}

/// The times of the successive workers in one seat of a cluster. If a worker has several producers, its times are their
/// mean.
#[derive(Debug, Clone, Copy, Default)]
pub struct SeatTime {
    /// The time at which the present worker took the seat; `None` if the seat is empty.
    pub since: Option<Instant>,
    /// The time that earlier workers had it.
    pub present: Duration,
    /// The time that hooks worked.
    pub working: Duration,
    /// The number of states that were lost.
    pub states_lost: u64,
    /// The number of calls of `producer_init` that rebuilt a state.
    pub rebuilds: u64,
    /// The time that these calls took.
    pub rebuilding: Duration,
    /// The time in which lost workers were taken for live ones.
    pub dead: Duration,
    /// The duration of the last worker's `producer_init`.
    pub init: Duration,
}

/// The number of states that a producer lost in a run, and the time that rebuilding them took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rebuilds {
    pub(crate) states_lost: u64,
    /// The number of calls of `producer_init` that rebuilt a state.
    pub(crate) inits: u64,
    pub(crate) took: Duration,
    /// The part of `took` after the producer joined the run. Before, it rebuilds a state that an earlier run lost.
    pub(crate) took_in_run: Duration,
    /// The beginning of the present call of `producer_init`.
    since: Option<Instant>,
}

/// The number of states that a producer ended and built anew after their number of items, and the time that took.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Recycling {
    pub(crate) states: u64,
    pub(crate) took: Duration,
    /// The beginning of the present recycling.
    since: Option<Instant>,
}

impl Recycling {
    fn end(&mut self) -> Duration {
        let took = self.since.take().map_or(Duration::ZERO, |since| now() - since);
        self.took += took;
        took
    }
}

/// The time in which a producer had nothing to do.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Waits {
    pub(crate) all: Duration,
    /// The part of `all` in which the window was full.
    pub(crate) for_permits: Duration,
    /// The part of `all` in which every item left was to be retried later.
    pub(crate) for_retries: Duration,
}

/// The reason why a producer has nothing to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum IdleReason {
    Items,
    /// The feeder has no permit to pull more.
    Permits,
    /// Every item left is to be retried later.
    Retries,
}

impl Waits {
    /// The waits since `before`.
    pub(crate) fn since(&self, before: &Waits) -> Waits {
        Waits {
            all: self.all.saturating_sub(before.all),
            for_permits: self.for_permits.saturating_sub(before.for_permits),
            for_retries: self.for_retries.saturating_sub(before.for_retries),
        }
    }

    pub(crate) fn add(&mut self, lack: IdleReason, waited: Duration) {
        self.all += waited;
        match lack {
            IdleReason::Items => {}
            IdleReason::Permits => self.for_permits += waited,
            IdleReason::Retries => self.for_retries += waited,
        }
    }
}

/// The times of the source.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SourceTime {
    /// It was asked for items.
    pub(crate) working: Duration,
    /// The feeder had no permit to pull from it.
    pub(crate) waited: Duration,
    /// What was read was named and measured.
    pub(crate) naming: Duration,
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
            source_named: AtomicU64::new(0),
            held_back_by: Mutex::default(),
            start_up: AtomicU64::new(0),
            producers: (0..producers).map(|_| CachePadded::default()).collect(),
            collector: CachePadded::default(),
            consumer_abandoned: AtomicBool::new(false),
            ends: Mutex::default(),
            workers: (0..producers).map(|_| CachePadded::default()).collect(),
            splits: CachePadded::default(),
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

    /// Notes that the consumer was abandoned in a hook.
    pub(crate) fn leave_consumer_behind(&self) {
        self.consumer_abandoned.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_consumer_abandoned(&self) -> bool {
        self.consumer_abandoned.load(Ordering::Relaxed)
    }

    /// Notes the time in which the producers got ready before the run.
    pub(crate) fn starts_after(&self, start_up: Duration) {
        self.start_up.store(nanos(start_up), Ordering::Relaxed);
    }

    pub(crate) fn start_up(&self) -> Duration {
        Duration::from_nanos(self.start_up.load(Ordering::Relaxed))
    }

    /// Notes the time that the feeder took part, and the part of it without a permit.
    pub(crate) fn source_left(&self, present: Duration, waited: Duration) {
        self.source_present.store(nanos(present), Ordering::Relaxed);
        self.source_waited.store(nanos(waited), Ordering::Relaxed);
    }

    /// Adds the time in which an item that was read was named and measured.
    pub(crate) fn source_named(&self, took: Duration) {
        self.source_named.fetch_add(nanos(took), Ordering::Relaxed);
    }

    /// Returns the times of the source.
    pub(crate) fn source(&self) -> SourceTime {
        let time = |nanos: &AtomicU64| Duration::from_nanos(nanos.load(Ordering::Relaxed));
        let (present, waited) = (time(&self.source_present), time(&self.source_waited));
        let naming = time(&self.source_named);
        SourceTime { working: present.saturating_sub(waited + naming), waited, naming }
    }

    /// Notes a time within a call of a producer's hook that was no work.
    pub(crate) fn set_aside(&self, producer: usize, aside: &TimeAside) {
        let kind = match aside.kind {
            // Work is no time aside, and what a hook waits for is not told apart.
            TimeKind::Work => return,
            TimeKind::Order => TimeKind::Input,
            kind => kind,
        };
        lock(&self.producers[producer]).aside.add(kind, aside.took);
        if aside.kind == TimeKind::HeldBack {
            *lock(&self.held_back_by).entry(aside.cause).or_default() += aside.took;
        }
    }

    pub(crate) fn held_back_by(&self) -> BTreeMap<String, Duration> {
        lock(&self.held_back_by).iter().map(|(cause, time)| ((*cause).to_owned(), *time)).collect()
    }

    /// Notes that the producer joins the run. Returns its waits so far, if it comes back.
    pub(crate) fn producer_came(&self, producer: usize, came: Instant) -> Waits {
        let mut noted = lock(&self.producers[producer]);
        noted.came = Some(came);
        noted.waited
    }

    /// Notes that the producer begins to wait, for reports before it leaves.
    pub(crate) fn producer_waits(&self, producer: usize, since: Instant) {
        lock(&self.producers[producer]).waits_since = Some(since);
    }

    /// Sets the total waits up to now. An abandoned producer may never leave, and so reports them at each wait.
    pub(crate) fn producer_waited(&self, producer: usize, waited: Waits) {
        let mut noted = lock(&self.producers[producer]);
        (noted.waited, noted.waits_since) = (waited, None);
    }

    /// Notes that the producer that [came](RunStats::producer_came) then leaves.
    pub(crate) fn producer_left(
        &self,
        producer: usize,
        came: Instant,
        delivered: u64,
        waited: Waits,
    ) {
        let mut noted = lock(&self.producers[producer]);
        noted.delivered = noted.delivered.max(delivered);
        // Otherwise another has replaced it, and what it did late does not count.
        if noted.came == Some(came) {
            noted.end(now());
            noted.waited = waited;
        }
    }

    /// A producer begins the run without a state, its first.
    pub(crate) fn starts_in_run(&self, producer: usize) {
        lock(&self.producers[producer]).starts_in_run = true;
    }

    /// A producer was started in the place of another, or calls `producer_init` once more.
    pub(crate) fn producer_replaced(&self, producer: usize) {
        lock(&self.producers[producer]).replacements += 1;
    }

    /// Notes a result that is not in the order of the run.
    pub(crate) fn producer_answered(&self, producer: usize) {
        lock(&self.producers[producer]).answered += 1;
    }

    /// The producer ends its state, which is to be recycled.
    pub(crate) fn recycling_begins(&self, producer: usize) {
        let recycling = &mut lock(&self.producers[producer]).recycling;
        recycling.states += 1;
        recycling.since = Some(now());
    }

    /// Notes that the producer has built a new state, or failed to. Returns how long that took.
    pub(crate) fn recycling_ends(&self, producer: usize) -> Duration {
        lock(&self.producers[producer]).recycling.end()
    }

    pub(crate) fn state_lost(&self, producer: usize) {
        lock(&self.producers[producer]).rebuilds.states_lost += 1;
    }

    /// Notes that `producer_init` is called to rebuild a state.
    pub(crate) fn rebuild_begins(&self, producer: usize) {
        let rebuilds = &mut lock(&self.producers[producer]).rebuilds;
        rebuilds.inits += 1;
        rebuilds.since = Some(now());
    }

    /// Notes that this `producer_init` has returned.
    pub(crate) fn rebuild_ends(&self, producer: usize) {
        let mut noted = lock(&self.producers[producer]);
        let is_present = noted.came.is_some();
        noted.rebuilds.end(is_present);
    }

    /// Notes a call of the hook for batches. `error` is that of a batch that is split.
    pub(crate) fn batch_called(&self, input: CallInput, error: Option<&Failure>) {
        lock(&self.splits).note(input, error);
    }

    pub(crate) fn splits(&self) -> SplitReport {
        lock(&self.splits).clone()
    }

    /// Sets the times of the workers that have had a seat so far.
    pub(crate) fn set_seat(&self, producer: usize, seat: SeatTime) {
        lock(&self.producers[producer]).seat = Some(seat);
    }

    /// Changes the figures of a producer's worker.
    pub(crate) fn note_worker(&self, producer: usize, change: impl FnOnce(&mut WorkerReport)) {
        change(lock(&self.workers[producer]).get_or_insert_default());
    }

    /// The figures of a producer's worker; `None` if it has none.
    pub(crate) fn worker(&self, producer: usize) -> Option<WorkerReport> {
        lock(&self.workers[producer]).clone()
    }

    pub(crate) fn producer_failed(&self, producer: usize, items: u64) {
        lock(&self.producers[producer]).failed += items;
    }

    /// Returns the times of a producer, up to now if it has not left.
    pub(crate) fn producer(&self, producer: usize) -> ProducerTime {
        let mut time = *lock(&self.producers[producer]);
        time.rebuilds.end(time.came.is_some());
        time.recycling.end();
        time.end(now());
        if let Some(seat) = time.seat {
            time.replace_by_seat(seat);
        }
        time
    }

    pub(crate) fn collector_came(&self, came: Instant, window: u64) {
        let mut noted = lock(&self.collector);
        (noted.came, noted.window) = (Some(came), window);
    }

    /// Notes that `consumer_init` has returned, and that the collector's own time begins.
    pub(crate) fn consumer_ready(&self, came: Instant, init: Duration) {
        let mut noted = lock(&self.collector);
        (noted.came, noted.init) = (Some(came), init);
    }

    /// Sets the waits of the collector up to now.
    pub(crate) fn collector_waited(&self, time: &CollectorTime, window: u64) {
        let mut noted = lock(&self.collector);
        (noted.waited, noted.stalled, noted.window) = (time.waited, time.stalled, window);
        noted.journal = time.journal;
    }

    /// Notes that the collector has left. `seen`: the number of results that it saw of each producer; an abandoned one
    /// does not report its own.
    pub(crate) fn collector_left(&self, time: CollectorTime, seen: impl Iterator<Item = u64>) {
        *lock(&self.collector) = time;
        for (noted, seen) in self.producers.iter().zip(seen) {
            let mut noted = lock(noted);
            noted.delivered = noted.delivered.max(seen);
        }
    }

    /// Subtracts the time that the collector's thread spent in the iterator that feeds an earlier stage. The collector
    /// has left.
    pub(crate) fn collector_was_elsewhere(&self, time: Duration) {
        let mut noted = lock(&self.collector);
        noted.present = noted.present.saturating_sub(time);
    }

    /// Returns the times of the collector, up to now if it has not left.
    pub(crate) fn collector(&self) -> CollectorTime {
        let mut time = lock(&self.collector).clone();
        time.present = time.came.map_or(time.present, |came| now() - came);
        time
    }
}

pub(super) fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

//! The events of one run, for its report and for observers.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Woken, Sender as Waker, bounded};
use crossbeam_utils::CachePadded;
use gangline_report::{Failure, Recorder, TimeKind};

use super::event::Event;
use super::failure::failure_of;
use super::provenance::provenance_now;
use super::run_stats::Waits;
use crate::base::panic::catch;
use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::queue::{Receiver, Sender, queue};
use crate::concurrency::spawn::CallerSubscriber;
use crate::concurrency::time_aside::TimeAside;
use crate::concurrency::{Mutex, lock, now};
use crate::error::Error;

/// Records the events of a run.
///
/// Rare events go to the recorder of the report at once, under a lock. Events of every item are recorded only
/// if there are observers. Each producer writes them into a ring of its own, and the observing thread reads
/// the rings.
pub(crate) struct EventLog {
    begun: Instant,
    /// The time on processors that the process had taken by then.
    computed: Duration,
    /// That of the thread that made this.
    subscriber: CallerSubscriber,
    recorder: Mutex<Recorder>,
    /// `None` if there are no observers.
    pub(super) feed: Option<Feed>,
}

/// The way of the events to the observing thread.
pub(super) struct Feed {
    pub(super) rare: Mutex<RareEvents>,
    begun: Instant,
    pub(super) producers: Box<[Mutex<Track>]>,
    /// The readers' ends of the rings, until the observing thread takes them.
    pub(super) rings: Mutex<Vec<Ring>>,
    pub(super) deliveries: CachePadded<Deliveries>,
    /// The number of items that were read. The feeder writes it, or the callers of a service.
    pub(super) read: CachePadded<AtomicU64>,
    pub(super) wake: Waker<()>,
    pub(super) woken: Woken<()>,
}

/// A producer's ring, for its writer.
#[derive(Debug)]
pub(super) struct Track {
    /// `None` while the producer has it.
    writer: Option<EventWriter>,
    backlog: Arc<CachePadded<Backlog>>,
}

/// A producer's ring, for the observing thread.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) entries: Receiver<LogEntry>,
    pub(super) backlog: Arc<CachePadded<Backlog>>,
}

/// Counts that the consumer writes.
#[derive(Debug, Default)]
pub(super) struct Deliveries {
    /// The number of items whose results were consumed.
    pub(super) consumed: AtomicU64,
    /// The number of items that were delivered, with any outcome.
    pub(super) all: AtomicU64,
}

/// Events that are not of every item.
#[derive(Debug, Default)]
pub(super) struct RareEvents {
    pub(super) events: Vec<(Duration, Event)>,
    /// The number of further events, for which there was no room.
    pub(super) lost: u64,
}

/// The counts of a producer and its ring.
#[derive(Debug)]
pub(super) struct Backlog {
    /// The producer's number.
    pub(super) producer: usize,
    /// The number of items that it has done. Exact, also if entries of the ring are lost.
    pub(super) done: AtomicU64,
    /// The number of entries that the observing thread has read.
    pub(super) read: AtomicU64,
    /// The number of entries that were not written, since too many were unread.
    pub(super) lost: AtomicU64,
}

/// Writes the events of one producer's items into its ring.
#[derive(Debug)]
pub(crate) struct EventWriter {
    begun: Instant,
    ring: Sender<LogEntry>,
    written: u64,
    /// The time at which the last item was finished, if the next begins at once. It saves one of two readings of the clock, which
    /// are half of the cost of an observed item.
    done_at: Option<u64>,
    /// The waits of the producer that were recorded, or were too short.
    waits: Waits,
    backlog: Arc<CachePadded<Backlog>>,
    wake: Waker<()>,
}

/// What a producer did, and when.
#[derive(Debug)]
pub(super) struct LogEntry {
    /// Nanoseconds since the run began.
    pub(super) nanos: u64,
    pub(super) step: ProducerStep,
}

/// What a producer did.
#[derive(Debug)]
pub(super) enum ProducerStep {
    Started {
        item: u64,
        key: Option<Arc<str>>,
        attempt: u32,
    },
    Finished {
        item: u64,
    },
    /// Its hook counted the time up to now as no work.
    Paused(TimeKind, Duration),
    /// It had no item to work on.
    Waited(TimeKind, Duration),
}

impl ProducerStep {
    pub(super) fn event(self, producer: usize) -> Event {
        match self {
            ProducerStep::Started { item, key, attempt } => {
                Event::ItemStarted { item, key, producer, attempt }
            }
            ProducerStep::Finished { item } => Event::ItemFinished { item, producer },
            ProducerStep::Paused(kind, took) => Event::HookPaused { producer, kind, took },
            ProducerStep::Waited(kind, took) => Event::ProducerWaited { producer, kind, took },
        }
    }
}

/// The largest number of unread entries of one producer: 1.3 MB.
const MOST_UNREAD: u64 = 32_768;
/// A producer wakes the observing thread each time that it has written this number of entries.
const MANY: u64 = 4_096;
/// A shorter wait has no event.
const SHORTEST_WAIT: Duration = Duration::from_millis(1);
/// The largest number of unread rare events.
pub(super) const MOST_RARE: usize = 65_536;

/// Which events are recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Detail {
    #[default]
    Run,
    Items,
}

/// How the runs of a pool are reported.
#[derive(Debug, Clone, Default)]
pub(crate) struct ObserveOptions {
    pub(crate) description: Option<String>,
    pub(crate) detail: Detail,
    /// The settings of the builder, by name.
    pub(crate) settings: BTreeMap<String, String>,
}

impl Backlog {
    fn of(producer: usize) -> Self {
        Backlog {
            producer,
            done: AtomicU64::new(0),
            read: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }
}

impl EventLog {
    pub(crate) fn new(producers: usize, description: Option<String>, detail: Detail) -> Self {
        let begun = now();
        let feed = (detail == Detail::Items).then(|| Feed::new(producers, begun));
        let computed = processor_time();
        let recorder = Mutex::new(Recorder::new(description));
        EventLog { begun, computed, subscriber: CallerSubscriber::current(), recorder, feed }
    }

    /// Adds where, when and how the run takes place.
    pub(crate) fn set_settings(&self, settings: BTreeMap<String, String>) {
        lock(&self.recorder).set_provenance(provenance_now(settings));
    }

    pub(crate) fn elapsed(&self) -> Duration {
        now() - self.begun
    }

    /// The time on all processors that the process has taken since the run began.
    pub(crate) fn computing(&self) -> Duration {
        processor_time().saturating_sub(self.computed)
    }

    /// Records an event that happens now.
    pub(crate) fn tell(&self, event: Event) {
        let at = self.elapsed();
        self.trace(&event);
        event.record(at, &mut lock(&self.recorder));
        if let Some(feed) = &self.feed {
            feed.add(at, event);
        }
    }

    /// Passes the event on to the subscriber of the caller of the run. The current thread may have another.
    fn trace(&self, event: &Event) {
        let _default = self.subscriber.enter();
        event.trace();
    }

    /// Records the failures of items whose last attempts have ended, before they are
    /// [delivered](EventLog::failures_delivered). Returns their numbers among the failures of the run.
    pub(crate) fn tell_failures(&self, failures: Vec<Failure>) -> Range<u64> {
        let at = self.elapsed();
        let failures: Vec<_> = failures.into_iter().map(Arc::new).collect();
        let event = |failure: &Arc<Failure>| Event::ItemFailed { failure: failure.clone() };
        failures.iter().for_each(|failure| self.trace(&event(failure)));
        let mut recorder = lock(&self.recorder);
        let first = recorder.failures_so_far();
        failures.iter().for_each(|failure| recorder.failed(at, failure));
        let numbers = first..recorder.failures_so_far();
        drop(recorder);
        if let Some(feed) = &self.feed {
            failures.iter().for_each(|failure| feed.add(at, event(failure)));
        }
        numbers
    }

    /// Records that the consumer has come to failures with these numbers.
    pub(crate) fn failures_delivered(&self, numbers: &Range<u64>) {
        if !numbers.is_empty() {
            lock(&self.recorder).failures_delivered(numbers.clone());
        }
    }

    /// Describes an error for an event. Its text is user code, which may panic.
    pub(crate) fn failure(error: &Error) -> Arc<Failure> {
        Arc::new(catch(|| failure_of(error)).unwrap_or_default())
    }

    /// Takes a producer's writer, if there are observers. Each producer has one.
    pub(crate) fn writer(&self, producer: usize) -> Option<EventWriter> {
        lock(&self.feed.as_ref()?.producers[producer]).writer.take()
    }

    /// Puts a producer's writer back: the producer may take part again.
    pub(crate) fn return_writer(&self, producer: usize, writer: Option<EventWriter>) {
        let (Some(feed), Some(writer)) = (&self.feed, writer) else { return };
        lock(&feed.producers[producer]).writer = Some(writer);
    }

    /// Whether the events of each item are recorded.
    pub(crate) fn is_observed(&self) -> bool {
        self.feed.is_some()
    }

    /// Counts an item that a producer has done, before the consumer can see its result.
    pub(crate) fn done(&self, producer: usize) {
        if let Some(feed) = &self.feed {
            lock(&feed.producers[producer]).backlog.done.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Sets the number of items that were read.
    #[inline]
    pub(crate) fn read(&self, items: u64) {
        if let Some(feed) = &self.feed {
            feed.read.store(items, Ordering::Relaxed);
        }
    }

    /// Sets the number of items whose results were consumed, and the number of all delivered items.
    #[inline]
    pub(crate) fn delivered(&self, consumed: u64, all: u64) {
        if let Some(feed) = &self.feed {
            feed.deliveries.consumed.store(consumed, Ordering::Relaxed);
            feed.deliveries.all.store(all, Ordering::Relaxed);
        }
    }

    pub(crate) fn recorder(&self) -> &Mutex<Recorder> {
        &self.recorder
    }
}

impl Feed {
    fn new(producers: usize, begun: Instant) -> Self {
        // One message is enough: the observing thread reads everything when it is woken.
        let (wake, woken) = bounded(1);
        let mut feed = Feed {
            rare: Mutex::default(),
            begun,
            producers: Box::default(),
            rings: Mutex::default(),
            deliveries: CachePadded::default(),
            read: CachePadded::default(),
            wake,
            woken,
        };
        let tracks = (0..producers).map(|producer| feed.track(producer));
        let (tracks, rings): (Vec<_>, Vec<_>) = tracks.unzip();
        feed.producers = tracks.into_iter().map(Mutex::new).collect();
        feed.rings = Mutex::new(rings);
        feed
    }

    /// A new ring for a producer.
    fn track(&self, producer: usize) -> (Track, Ring) {
        let (ring, entries) = queue(usize::MAX);
        let backlog = Arc::new(CachePadded::new(Backlog::of(producer)));
        let (begun, wake) = (self.begun, self.wake.clone());
        let of_writer = backlog.clone();
        let writer = EventWriter {
            begun,
            ring,
            written: 0,
            done_at: None,
            waits: Waits::default(),
            backlog: of_writer,
            wake,
        };
        (Track { writer: Some(writer), backlog: backlog.clone() }, Ring { entries, backlog })
    }

    fn add(&self, at: Duration, event: Event) {
        let mut rare = lock(&self.rare);
        // The report has it in any case.
        match rare.events.len() < MOST_RARE || matches!(event, Event::RunEnded { .. }) {
            true => rare.events.push((at, event)),
            false => rare.lost += 1,
        }
        drop(rare);
        let _ = self.wake.try_send(());
    }
}

impl EventWriter {
    /// Records that the producer starts an item.
    #[inline]
    pub(crate) fn started(&mut self, item: u64, key: Option<Arc<str>>, attempt: u32) {
        let nanos = self.done_at.take().unwrap_or_else(|| self.now());
        self.write(LogEntry { nanos, step: ProducerStep::Started { item, key, attempt } });
    }

    /// Records that the producer has finished an item.
    #[inline]
    pub(crate) fn finished(&mut self, item: u64) {
        let nanos = self.now();
        self.done_at = Some(nanos);
        self.write(LogEntry { nanos, step: ProducerStep::Finished { item } });
    }

    /// Counts an item that the producer has done, before the consumer can see its result.
    #[inline]
    pub(crate) fn done(&self) {
        self.backlog.done.fetch_add(1, Ordering::Relaxed);
    }

    /// Notes that the producer has waited or done other work since its last item. `waits` are its waits in this run, of
    /// which the new ones are recorded if they were long.
    #[inline]
    pub(crate) fn pause(&mut self, waits: Waits) {
        self.done_at = None;
        let Waits { for_permits, for_retries, .. } = waits.since(&self.waits);
        self.waits = waits;
        let kinds = [(TimeKind::Order, for_permits), (TimeKind::HeldBack, for_retries)];
        for (kind, took) in kinds.into_iter().filter(|(_, took)| *took >= SHORTEST_WAIT) {
            let nanos = self.now();
            self.write(LogEntry { nanos, step: ProducerStep::Waited(kind, took) });
        }
    }

    /// Records that the producer starts the items of a batch.
    pub(crate) fn started_all(
        &mut self,
        items: &[u64],
        key: impl Fn(u64) -> Option<Arc<str>>,
        attempt: u32,
    ) {
        let nanos = self.now();
        for &item in items {
            self.write(LogEntry {
                nanos,
                step: ProducerStep::Started { item, key: key(item), attempt },
            });
        }
    }

    pub(crate) fn finished_all(&mut self, items: &[u64]) {
        let nanos = self.now();
        for &item in items {
            self.write(LogEntry { nanos, step: ProducerStep::Finished { item } });
        }
    }

    /// Records a time within the present call of the hook that was no work.
    pub(crate) fn set_aside(&mut self, aside: &TimeAside) {
        let nanos = aside.ended.saturating_duration_since(self.begun).as_nanos() as u64;
        self.write(LogEntry { nanos, step: ProducerStep::Paused(aside.kind, aside.took) });
    }

    fn now(&self) -> u64 {
        (now() - self.begun).as_nanos() as u64
    }

    #[inline]
    fn write(&mut self, entry: LogEntry) {
        if self.written.is_multiple_of(MANY) && self.written > 0 {
            let _ = self.wake.try_send(());
        }
        if self.written.is_multiple_of(MANY / 16)
            && self.written - self.backlog.read.load(Ordering::Relaxed) > MOST_UNREAD
        {
            self.backlog.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.written += 1;
        self.ring.push(entry);
    }
}

/// The time on all processors that this process has taken so far. Zero where the system does not say.
#[cfg(target_os = "linux")]
fn processor_time() -> Duration {
    use rustix::time::{ClockId, clock_gettime};

    clock_gettime(ClockId::ProcessCPUTime).try_into().unwrap_or_default()
}

#[cfg(not(target_os = "linux"))]
fn processor_time() -> Duration {
    Duration::ZERO
}

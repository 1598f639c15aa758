//! The events of one run, for its report and for observers.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crossbeam_channel::{Receiver as Woken, RecvTimeoutError, Sender as Waker, bounded};
use crossbeam_utils::CachePadded;

use super::event::{Event, Observer};
use super::failure::Failure;
use super::provenance::Provenance;
use super::report::Recorder;
use super::trace_log;
use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::atomic::{AtomicU64, AtomicUsize, Ordering};
use crate::concurrency::queue::{Receiver, Sender, queue};
use crate::concurrency::spawn::spawn;
use crate::concurrency::{Mutex, lock, now};
use crate::error::Error;

/// Records the events of a run.
///
/// Rare events go to the recorder of the report at once, under a lock. Events of every item are recorded only
/// if there are observers. Each producer writes them into a ring of its own, and the observing thread reads
/// the rings.
pub(crate) struct EventLog {
    begun: Instant,
    recorder: Mutex<Recorder>,
    /// `None` if there are no observers.
    feed: Option<Feed>,
}

/// The way of the events to the observing thread.
struct Feed {
    rare: Mutex<RareEvents>,
    /// One for each producer, until the producer takes it.
    writers: Box<[Mutex<Option<EventWriter>>]>,
    backlogs: Box<[Arc<CachePadded<Backlog>>]>,
    /// The readers' ends of the rings, until the observing thread takes them.
    rings: Mutex<Vec<Receiver<Entry>>>,
    consumed: CachePadded<AtomicU64>,
    wake: Waker<()>,
    woken: Woken<()>,
}

/// Events that are not of every item.
#[derive(Debug, Default)]
struct RareEvents {
    events: Vec<(Duration, Event)>,
    /// The number of further events, for which there was no room.
    lost: u64,
}

/// The counts of a producer's ring.
#[derive(Debug)]
struct Backlog {
    /// The producer's number.
    producer: AtomicUsize,
    /// When another took its place, in nanoseconds: what it writes from then on is not read.
    replaced_at: AtomicU64,
    /// The number of entries that the observing thread has read.
    read: AtomicU64,
    /// The number of entries that were not written, since too many were unread.
    lost: AtomicU64,
}

/// Writes the events of one producer's items into its ring.
#[derive(Debug)]
pub(crate) struct EventWriter {
    begun: Instant,
    ring: Sender<Entry>,
    written: u64,
    /// When the last item was finished, if the next begins at once. It saves one of two readings of the clock, which
    /// are half of the cost of an observed item.
    done_at: Option<u64>,
    backlog: Arc<CachePadded<Backlog>>,
    wake: Waker<()>,
}

/// An item was started or finished.
#[derive(Debug)]
struct Entry {
    /// Nanoseconds since the run began.
    nanos: u64,
    item: u64,
    key: Option<Arc<str>>,
    /// 0: the item was finished.
    attempt: u32,
}

/// The largest number of unread entries of one producer: 1.3 MB.
const MOST_UNREAD: u64 = 32_768;
/// A producer wakes the observing thread each time that it has written this number of entries.
const MANY: u64 = 4_096;
/// The largest number of unread rare events.
const MOST_RARE: usize = 65_536;
/// The interval at which the observing thread reads the rings; short enough for a display.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the end of a run waits for observers that do not return.
const PATIENCE: Duration = Duration::from_secs(1);

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
            producer: AtomicUsize::new(producer),
            replaced_at: AtomicU64::new(u64::MAX),
            read: AtomicU64::new(0),
            lost: AtomicU64::new(0),
        }
    }
}

impl EventLog {
    /// With room for this number of producers, those that replace others included.
    pub(crate) fn new(producers: usize, description: Option<String>, detail: Detail) -> Self {
        let begun = now();
        let feed = (detail == Detail::Items).then(|| Feed::new(producers, begun));
        EventLog { begun, recorder: Mutex::new(Recorder::new(description)), feed }
    }

    /// Adds where, when and how the run takes place.
    pub(crate) fn has_settings(&self, settings: BTreeMap<String, String>) {
        lock(&self.recorder).is_of(Provenance::now(settings));
    }

    pub(crate) fn elapsed(&self) -> Duration {
        now() - self.begun
    }

    /// Records an event that happens now.
    pub(crate) fn tell(&self, event: Event) {
        let at = self.elapsed();
        trace_log::write(&event);
        lock(&self.recorder).observe(at, &event);
        if let Some(feed) = &self.feed {
            feed.add(at, event);
        }
    }

    /// Describes an error for an event. Its text is user code, which may panic.
    pub(crate) fn failure(error: &Error) -> Arc<Failure> {
        Arc::new(catch(|| Failure::of(error)).unwrap_or_default())
    }

    /// Takes a producer's writer, if there are observers. Each producer has one.
    pub(crate) fn writer(&self, producer: usize) -> Option<EventWriter> {
        lock(&self.feed.as_ref()?.writers[producer]).take()
    }

    /// Puts a producer's writer back: the producer may take part again.
    pub(crate) fn return_writer(&self, producer: usize, writer: Option<EventWriter>) {
        if let Some(feed) = &self.feed {
            *lock(&feed.writers[producer]) = writer;
        }
    }

    /// The producer with the writer `by` takes the place of the one with the writer `lost`.
    pub(crate) fn replace(&self, lost: usize, by: usize) {
        let Some(feed) = &self.feed else { return };
        let (lost, by) = (&feed.backlogs[lost], &feed.backlogs[by]);
        lost.replaced_at.store(self.elapsed().as_nanos() as u64, Ordering::Relaxed);
        by.producer.store(lost.producer.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Whether the events of each item are recorded.
    pub(crate) fn is_observed(&self) -> bool {
        self.feed.is_some()
    }

    /// Sets the number of consumed items.
    #[inline]
    pub(crate) fn consumed(&self, items: u64) {
        if let Some(feed) = &self.feed {
            feed.consumed.store(items, Ordering::Relaxed);
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
        let backlog = |producer| Arc::new(CachePadded::new(Backlog::of(producer)));
        let backlogs: Box<[Arc<CachePadded<Backlog>>]> = (0..producers).map(backlog).collect();
        let ends = backlogs.iter().map(|backlog| {
            let (ring, entries) = queue(usize::MAX);
            let (backlog, wake) = (backlog.clone(), wake.clone());
            let writer = EventWriter { begun, ring, written: 0, done_at: None, backlog, wake };
            (Mutex::new(Some(writer)), entries)
        });
        let (writers, rings): (Vec<_>, Vec<_>) = ends.unzip();
        Feed {
            rare: Mutex::default(),
            writers: writers.into(),
            backlogs,
            rings: Mutex::new(rings),
            consumed: CachePadded::default(),
            wake,
            woken,
        }
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
        self.write(Entry { nanos, item, key, attempt });
    }

    /// Records that the producer has finished an item.
    #[inline]
    pub(crate) fn finished(&mut self, item: u64) {
        let nanos = self.now();
        self.done_at = Some(nanos);
        self.write(Entry { nanos, item, key: None, attempt: 0 });
    }

    /// Notes that the producer has waited or done other work since its last item.
    #[inline]
    pub(crate) fn pause(&mut self) {
        self.done_at = None;
    }

    /// Records that the producer starts the items of a batch.
    pub(crate) fn started_all(
        &mut self,
        items: &[u64],
        key: impl Fn(u64) -> Option<Arc<str>>,
        attempt: u32,
    ) {
        let nanos = self.now();
        items.iter().for_each(|&item| self.write(Entry { nanos, item, key: key(item), attempt }));
    }

    pub(crate) fn finished_all(&mut self, items: &[u64]) {
        let nanos = self.now();
        items.iter().for_each(|&item| {
            self.write(Entry { nanos, item, key: None, attempt: 0 });
        });
    }

    fn now(&self) -> u64 {
        (now() - self.begun).as_nanos() as u64
    }

    #[inline]
    fn write(&mut self, entry: Entry) {
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

/// The thread that passes events on to observers.
pub(crate) struct Observing {
    done: Woken<Observers>,
    thread: JoinHandle<()>,
}

/// The observers of a pool: the user's, and those of features.
pub(crate) type Observers = Vec<Box<dyn Observer>>;

/// The name of the thread.
pub(crate) const NAME: &str = "gangline-o";

impl Observing {
    /// Starts the thread, if there are observers.
    pub(crate) fn start(
        event_log: &Arc<EventLog>,
        observers: Observers,
    ) -> Result<Option<Self>, Error> {
        if event_log.feed.is_none() {
            return Ok(None);
        }
        // Without room: abandoned observers in the channel would be dropped with it.
        let (sender, done) = bounded(0);
        let event_log = event_log.clone();
        let thread = spawn(NAME.to_owned(), None, move || {
            let feed = event_log.feed.as_ref().expect("it was checked above");
            let mut dispatcher = Dispatcher::new(&event_log, feed, observers);
            dispatcher.run();
            // If the observers took too long, the run no longer waits for them.
            sender
                .send(dispatcher.observers)
                .unwrap_or_else(|unsent| unsent.into_inner().into_iter().for_each(drop_quietly));
        })?;
        Ok(Some(Observing { done, thread }))
    }

    /// Waits until the observers have seen the end of the run, and returns them. After [`PATIENCE`] they and the thread
    /// are abandoned.
    pub(crate) fn join(self) -> Observers {
        match self.done.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("an observer did not return; it and its thread are abandoned");
                vec![]
            }
            observers => {
                self.thread.join().unwrap_or_else(|bug| std::panic::resume_unwind(bug));
                observers.unwrap_or_default()
            }
        }
    }
}

/// Reads events and calls the observers, on the observing thread.
struct Dispatcher<'a> {
    event_log: &'a EventLog,
    feed: &'a Feed,
    rings: Vec<Receiver<Entry>>,
    observers: Observers,
    consumed: u64,
    batch: Vec<(Duration, Event)>,
}

impl<'a> Dispatcher<'a> {
    fn new(event_log: &'a EventLog, feed: &'a Feed, observers: Observers) -> Self {
        let rings = std::mem::take(&mut *lock(&feed.rings));
        Dispatcher { event_log, feed, rings, observers, consumed: 0, batch: vec![] }
    }

    fn run(&mut self) {
        loop {
            let is_over = self.collect();
            self.observe();
            if is_over {
                return;
            }
            let at = self.event_log.elapsed();
            self.each(|observer| observer.tick(at));
            let _ = self.feed.woken.recv_timeout(LOOK_EVERY);
        }
    }

    /// Reads the events that have arrived. Returns whether the run has ended.
    fn collect(&mut self) -> bool {
        // Before the rings, which then hold everything that was written before the end of the run.
        let RareEvents { events: mut rare, lost } = std::mem::take(&mut *lock(&self.feed.rare));
        if lost > 0 {
            rare.push((self.event_log.elapsed(), Event::EventsLost { events: lost }));
        }
        let is_over = rare.iter().any(|(_, event)| matches!(event, Event::RunEnded { .. }));
        let mut recorder = lock(&self.event_log.recorder);
        for (ring, backlog) in self.rings.iter_mut().zip(&self.feed.backlogs) {
            let mut read = 0;
            while let Some(Entry { nanos, item, key, attempt }) = ring.pop() {
                read += 1;
                // The entry was written after these were set.
                if nanos > backlog.replaced_at.load(Ordering::Relaxed) {
                    continue;
                }
                let producer = backlog.producer.load(Ordering::Relaxed);
                let event = match attempt {
                    0 => Event::ItemFinished { item, producer },
                    attempt => Event::ItemStarted { item, key, producer, attempt },
                };
                self.batch.push((Duration::from_nanos(nanos), event));
            }
            backlog.read.fetch_add(read, Ordering::Relaxed);
            let lost = backlog.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.batch.push((self.event_log.elapsed(), Event::EventsLost { events: lost }));
            }
        }
        let consumed = self.feed.consumed.load(Ordering::Relaxed);
        let items = consumed - std::mem::replace(&mut self.consumed, consumed);
        let counted = self.event_log.elapsed();
        if items > 0 {
            self.batch.push((counted, Event::ItemsConsumed { items }));
        }
        // A stable sort keeps the order of each producer's events.
        self.batch.sort_by_key(|(at, _)| *at);
        // The recorder has the rare events already.
        self.batch.iter().for_each(|(at, event)| recorder.observe(*at, event));
        recorder.is_counted(counted);
        drop(recorder);
        if !rare.is_empty() {
            self.batch.extend(rare);
            self.batch.sort_by_key(|(at, event)| (matches!(event, Event::RunEnded { .. }), *at));
        }
        is_over
    }

    fn observe(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.each(|observer| batch.iter().for_each(|(at, event)| observer.observe(*at, event)));
        self.batch = batch;
        self.batch.clear();
    }

    /// Calls each observer. One that panics is dropped.
    fn each(&mut self, mut call: impl FnMut(&mut dyn Observer)) {
        for mut observer in std::mem::take(&mut self.observers) {
            match catch(|| call(&mut *observer)) {
                Ok(()) => self.observers.push(observer),
                Err(message) => {
                    tracing::warn!(%message, "an observer panicked; it gets no more events");
                    drop_quietly(observer);
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    #[test]
    fn lost_events_are_counted() {
        let event_log = Arc::new(EventLog::new(1, None, Detail::Items));
        for item in 0..MOST_RARE as u64 + 10 {
            event_log.tell(Event::ItemAlreadyDone { item });
        }
        let seen = Arc::new(std::sync::Mutex::new((0, 0)));
        let sink = seen.clone();
        let observer = move |_: Duration, event: &Event| {
            let mut seen = sink.lock().unwrap();
            match event {
                Event::ItemAlreadyDone { .. } => seen.0 += 1,
                Event::EventsLost { events } => seen.1 += events,
                _ => {}
            }
        };
        let observing = Observing::start(&event_log, vec![Box::new(observer)]).unwrap().unwrap();
        event_log.tell(Event::RunEnded { totals: Arc::default() });
        observing.join();
        assert_eq!(*seen.lock().unwrap(), (MOST_RARE, 10));
        let report = lock(event_log.recorder()).report();
        assert_eq!(report.events_lost, 0, "the report has all events");
    }
}

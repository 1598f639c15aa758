//! What happens in one run, on its way to the report and to observers.

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
use crate::concurrency::atomic::{AtomicU64, Ordering};
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

/// What goes to the observing thread.
struct Feed {
    news: Mutex<News>,
    pens: Box<[Mutex<Option<EventWriter>>]>,
    lanes: Box<[Arc<CachePadded<Lane>>]>,
    pages: Mutex<Vec<Receiver<Entry>>>,
    consumed: CachePadded<AtomicU64>,
    wake: Waker<()>,
    woken: Woken<()>,
}

/// What happens seldom.
#[derive(Debug, Default)]
struct News {
    events: Vec<(Duration, Event)>,
    /// How many there was no room for.
    left_out: u64,
}

/// What a producer and the observing thread share.
#[derive(Debug, Default)]
struct Lane {
    /// How many entries the observing thread has read.
    read: AtomicU64,
    /// How many were not written, since it did not keep up.
    lost: AtomicU64,
}

/// Where one producer writes what happens to its items.
#[derive(Debug)]
pub(crate) struct EventWriter {
    begun: Instant,
    page: Sender<Entry>,
    written: u64,
    /// When the producer was done with its last item, if it begins with the next at once: half of the looks at the
    /// clock, which are half of what an observed item costs.
    done_at: Option<u64>,
    lane: Arc<CachePadded<Lane>>,
    wake: Waker<()>,
}

/// Something that happened to an item.
#[derive(Debug)]
struct Entry {
    /// Since the beginning of the run.
    nanos: u64,
    item: u64,
    key: Option<Arc<str>>,
    /// 0: it is done with.
    attempt: u32,
}

/// The largest number of unread entries of one producer: 1.3 MB.
const MOST_UNREAD: u64 = 32_768;
/// The observing thread is woken each time that a producer has written this number of entries.
const MANY: u64 = 4_096;
/// The largest number of unread rare events.
const MOST_NEWS: usize = 65_536;
/// The interval at which the observing thread looks. It is short enough for a display.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the end of a run waits for observers that do not return.
const PATIENCE: Duration = Duration::from_secs(1);

/// Whether what happens to each item is written down.
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

impl EventLog {
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

    /// Something happened, now.
    pub(crate) fn tell(&self, event: Event) {
        let at = self.elapsed();
        trace_log::write(&event);
        lock(&self.recorder).observe(at, &event);
        if let Some(feed) = &self.feed {
            feed.add(at, event);
        }
    }

    /// An error that was met, as it is told.
    pub(crate) fn failure(error: &Error) -> Arc<Failure> {
        Arc::new(catch(|| Failure::of(error)).unwrap_or_default())
    }

    /// Takes the writer of the producer `producer`, if there are observers. Each producer has only one.
    pub(crate) fn writer(&self, producer: usize) -> Option<EventWriter> {
        lock(&self.feed.as_ref()?.pens[producer]).take()
    }

    /// Takes the writer of a producer back, which may take part again.
    pub(crate) fn return_writer(&self, producer: usize, writer: Option<EventWriter>) {
        if let Some(feed) = &self.feed {
            *lock(&feed.pens[producer]) = writer;
        }
    }

    /// Whether there are observers, which see each item too.
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
        // One message is enough: the observing thread looks at everything when it is woken.
        let (wake, woken) = bounded(1);
        let lanes: Box<[Arc<CachePadded<Lane>>]> = (0..producers).map(|_| Arc::default()).collect();
        let (pens, pages) = lanes
            .iter()
            .map(|lane| {
                let (page, entries) = queue(usize::MAX);
                let (lane, wake) = (lane.clone(), wake.clone());
                (
                    Mutex::new(Some(EventWriter {
                        begun,
                        page,
                        written: 0,
                        done_at: None,
                        lane,
                        wake,
                    })),
                    entries,
                )
            })
            .unzip::<_, _, Vec<_>, Vec<_>>();
        Feed {
            news: Mutex::default(),
            pens: pens.into(),
            lanes,
            pages: Mutex::new(pages),
            consumed: CachePadded::default(),
            wake,
            woken,
        }
    }

    fn add(&self, at: Duration, event: Event) {
        let mut news = lock(&self.news);
        // The report has it in any case.
        match news.events.len() < MOST_NEWS || matches!(event, Event::RunEnded { .. }) {
            true => news.events.push((at, event)),
            false => news.left_out += 1,
        }
        drop(news);
        let _ = self.wake.try_send(());
    }
}

impl EventWriter {
    /// The producer begins with an item.
    #[inline]
    pub(crate) fn started(&mut self, item: u64, key: Option<Arc<str>>, attempt: u32) {
        let nanos = self.done_at.take().unwrap_or_else(|| self.now());
        self.write(Entry { nanos, item, key, attempt });
    }

    /// The producer is done with it.
    #[inline]
    pub(crate) fn finished(&mut self, item: u64) {
        let nanos = self.now();
        self.done_at = Some(nanos);
        self.write(Entry { nanos, item, key: None, attempt: 0 });
    }

    /// The producer has waited, or done something else, since it was done with its last item.
    #[inline]
    pub(crate) fn pause(&mut self) {
        self.done_at = None;
    }

    /// As [`started`](EventWriter::started), for all items of a batch.
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
            && self.written - self.lane.read.load(Ordering::Relaxed) > MOST_UNREAD
        {
            self.lane.lost.fetch_add(1, Ordering::Relaxed);
            return;
        }
        self.written += 1;
        self.page.push(entry);
    }
}

/// The thread that tells observers.
pub(crate) struct Observing {
    done: Woken<Observers>,
    thread: JoinHandle<()>,
}

/// What a user, or a feature, looks at runs with.
pub(crate) type Observers = Vec<Box<dyn Observer>>;

/// The name of the thread.
pub(crate) const NAME: &str = "gangline-o";

impl Observing {
    /// Starts the thread if there is something to be told.
    pub(crate) fn start(
        chronicle: &Arc<EventLog>,
        observers: Observers,
    ) -> Result<Option<Self>, Error> {
        if chronicle.feed.is_none() {
            return Ok(None);
        }
        // Without room: abandoned observers in the channel would be dropped with it.
        let (sender, done) = bounded(0);
        let chronicle = chronicle.clone();
        let thread = spawn(NAME.to_owned(), None, move || {
            let feed = chronicle.feed.as_ref().expect("it was looked at above");
            let mut teller = Teller::new(&chronicle, feed, observers);
            teller.tell_all();
            // If the observers took too long, the run does not wait for them any more.
            sender
                .send(teller.observers)
                .unwrap_or_else(|unsent| unsent.into_inner().into_iter().for_each(drop_quietly));
        })?;
        Ok(Some(Observing { done, thread }))
    }

    /// Waits until the end of the run was told, but not for an observer that does not return: then it is
    /// left behind, and gone.
    pub(crate) fn join(self) -> Observers {
        match self.done.recv_timeout(PATIENCE) {
            Err(RecvTimeoutError::Timeout) => {
                tracing::warn!("an observer did not return; it and its thread are abandoned");
                vec![]
            }
            told => {
                self.thread.join().unwrap_or_else(|bug| std::panic::resume_unwind(bug));
                told.unwrap_or_default()
            }
        }
    }
}

struct Teller<'a> {
    chronicle: &'a EventLog,
    feed: &'a Feed,
    pages: Vec<Receiver<Entry>>,
    observers: Observers,
    consumed: u64,
    batch: Vec<(Duration, Event)>,
}

impl<'a> Teller<'a> {
    fn new(chronicle: &'a EventLog, feed: &'a Feed, observers: Observers) -> Self {
        let pages = std::mem::take(&mut *lock(&feed.pages));
        Teller { chronicle, feed, pages, observers, consumed: 0, batch: vec![] }
    }

    fn tell_all(&mut self) {
        loop {
            let is_over = self.collect();
            self.tell();
            if is_over {
                return;
            }
            let at = self.chronicle.elapsed();
            self.each(|observer| observer.tick(at));
            let _ = self.feed.woken.recv_timeout(LOOK_EVERY);
        }
    }

    /// Takes over what has happened. Whether that is all.
    fn collect(&mut self) -> bool {
        // Before the rings: what was written before the end is there then.
        let News { events: mut news, left_out } = std::mem::take(&mut *lock(&self.feed.news));
        if left_out > 0 {
            news.push((self.chronicle.elapsed(), Event::EventsLost { events: left_out }));
        }
        let is_over = news.iter().any(|(_, event)| matches!(event, Event::RunEnded { .. }));
        let mut recorder = lock(&self.chronicle.recorder);
        for (producer, page) in self.pages.iter_mut().enumerate() {
            let mut read = 0;
            while let Some(Entry { nanos, item, key, attempt }) = page.pop() {
                read += 1;
                let event = match attempt {
                    0 => Event::ItemFinished { item, producer },
                    attempt => Event::ItemStarted { item, key, producer, attempt },
                };
                self.batch.push((Duration::from_nanos(nanos), event));
            }
            let lane = &self.feed.lanes[producer];
            lane.read.fetch_add(read, Ordering::Relaxed);
            let lost = lane.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.batch.push((self.chronicle.elapsed(), Event::EventsLost { events: lost }));
            }
        }
        let consumed = self.feed.consumed.load(Ordering::Relaxed);
        let items = consumed - std::mem::replace(&mut self.consumed, consumed);
        let counted = self.chronicle.elapsed();
        if items > 0 {
            self.batch.push((counted, Event::ItemsConsumed { items }));
        }
        // Stable: what one producer says stays in its order.
        self.batch.sort_by_key(|(at, _)| *at);
        // The recorder knows the news already.
        self.batch.iter().for_each(|(at, event)| recorder.observe(*at, event));
        recorder.is_counted(counted);
        drop(recorder);
        if !news.is_empty() {
            self.batch.extend(news);
            self.batch.sort_by_key(|(at, event)| (matches!(event, Event::RunEnded { .. }), *at));
        }
        is_over
    }

    fn tell(&mut self) {
        let batch = std::mem::take(&mut self.batch);
        self.each(|observer| batch.iter().for_each(|(at, event)| observer.observe(*at, event)));
        self.batch = batch;
        self.batch.clear();
    }

    /// An observer that panics is told no more.
    fn each(&mut self, mut tell: impl FnMut(&mut dyn Observer)) {
        for mut observer in std::mem::take(&mut self.observers) {
            match catch(|| tell(&mut *observer)) {
                Ok(()) => self.observers.push(observer),
                Err(message) => {
                    tracing::warn!(%message, "an observer panicked, and is told no more");
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
    fn news_that_there_is_no_room_for_is_not_lost_without_a_word() {
        let chronicle = Arc::new(EventLog::new(1, None, Detail::Items));
        for item in 0..MOST_NEWS as u64 + 10 {
            chronicle.tell(Event::ItemAlreadyDone { item });
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
        let observing = Observing::start(&chronicle, vec![Box::new(observer)]).unwrap().unwrap();
        chronicle.tell(Event::RunEnded { totals: Arc::default() });
        observing.join();
        assert_eq!(*seen.lock().unwrap(), (MOST_NEWS, 10));
        let report = lock(chronicle.recorder()).report();
        assert_eq!(report.events_lost, 0, "the report has it all");
    }
}

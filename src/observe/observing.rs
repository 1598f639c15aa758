//! The thread that passes the events of a run on to observers.

use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

use crossbeam_channel::{Receiver as Woken, RecvTimeoutError, bounded};

use super::event::{Event, Observer};
use super::event_log::{EventLog, Feed, LogEntry, RareEvents, Ring};
use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::atomic::{AtomicU64, Ordering};
use crate::concurrency::lock;
use crate::concurrency::spawn::spawn;
use crate::error::Error;

/// The thread that passes events on to observers.
pub(crate) struct Observing {
    done: Woken<Observers>,
    thread: JoinHandle<()>,
}

/// The observers of a pool: the user's, and those of features.
pub(crate) type Observers = Vec<Box<dyn Observer>>;

/// The name of the thread.
pub(crate) const NAME: &str = "gangline-o";

/// The interval at which the observing thread reads the rings; short enough for a display.
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// How long the end of a run waits for observers that do not return.
const PATIENCE: Duration = Duration::from_secs(1);

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
    rings: Vec<Ring>,
    observers: Observers,
    told: Counts,
    batch: Vec<(Duration, Event)>,
}

/// Numbers of items, as far as observers know them.
#[derive(Debug, Clone, Copy, Default)]
struct Counts {
    read: u64,
    done: u64,
    consumed: u64,
    delivered: u64,
}

impl<'a> Dispatcher<'a> {
    fn new(event_log: &'a EventLog, feed: &'a Feed, observers: Observers) -> Self {
        let (told, batch) = (Counts::default(), vec![]);
        let rings = std::mem::take(&mut *lock(&feed.rings));
        Dispatcher { event_log, feed, rings, observers, told, batch }
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
        let mut recorder = lock(self.event_log.recorder());
        for Ring { entries, backlog } in &mut self.rings {
            let mut read = 0;
            while let Some(LogEntry { nanos, step }) = entries.pop() {
                read += 1;
                self.batch.push((Duration::from_nanos(nanos), step.event(backlog.producer)));
            }
            backlog.read.fetch_add(read, Ordering::Relaxed);
            let lost = backlog.lost.swap(0, Ordering::Relaxed);
            if lost > 0 {
                self.batch.push((self.event_log.elapsed(), Event::EventsLost { events: lost }));
            }
        }
        let counted = self.event_log.elapsed();
        let counts = self.count();
        self.batch.extend(counts.into_iter().map(|event| (counted, event)));
        // A stable sort keeps the order of each producer's events.
        self.batch.sort_by_key(|(at, _)| *at);
        // The recorder has the rare events already.
        self.batch.iter().for_each(|(at, event)| event.record(*at, &mut recorder));
        recorder.count_done_until(counted);
        drop(recorder);
        if !rare.is_empty() {
            self.batch.extend(rare);
            self.batch.sort_by_key(|(at, event)| (matches!(event, Event::RunEnded { .. }), *at));
        }
        is_over
    }

    /// The events of the items that are read, done, consumed and delivered since the last call.
    fn count(&mut self) -> Vec<Event> {
        let deliveries = &self.feed.deliveries;
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        // Read in this order, so that no more items are delivered than done.
        let delivered = read(&deliveries.all);
        let consumed = read(&deliveries.consumed);
        let done = self.rings.iter().map(|ring| read(&ring.backlog.done)).sum();
        let items_read = read(&self.feed.read);
        let counts = Counts { read: items_read, done, consumed, delivered };
        let before = std::mem::replace(&mut self.told, counts);
        let events = [
            (items_read - before.read, Event::ItemsRead { items: items_read - before.read }),
            (done - before.done, Event::ItemsDone { items: done - before.done }),
            (
                consumed - before.consumed,
                Event::ItemsConsumed { items: consumed - before.consumed },
            ),
            (
                delivered - before.delivered,
                Event::ItemsDelivered { items: delivered - before.delivered },
            ),
        ];
        events.into_iter().filter(|(items, _)| *items > 0).map(|(_, event)| event).collect()
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
    use crate::observe::event_log::{Detail, MOST_RARE};

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
        event_log.tell(Event::RunEnded { totals: Arc::default(), pipeline: None });
        observing.join();
        assert_eq!(*seen.lock().unwrap(), (MOST_RARE, 10));
        let report = lock(event_log.recorder()).report();
        assert_eq!(report.events_lost, 0, "the report has all events");
    }
}

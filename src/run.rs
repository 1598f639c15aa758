//! One run of one stage: the state that its threads share.
//!
//! Each run has its own [`Run`], so nothing of one run reaches the next. The [`handover`] moves items to the producers
//! and results back, whatever the backend.

pub(crate) mod abort_guard;
pub(crate) mod call;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub(crate) mod crashes;
pub(crate) mod failures;
pub(crate) mod handover;
pub(crate) mod item_names;
pub(crate) mod journal_writer;
pub(crate) mod limits;
pub(crate) mod lost_producer;
pub(crate) mod measures;
pub(crate) mod no_output;
pub(crate) mod ordered_merge;
pub(crate) mod outbox;
pub(crate) mod output_memory;
pub(crate) mod parts;
pub(crate) mod recording;
pub(crate) mod run_clock;
pub(crate) mod run_settings;
pub(crate) mod run_shape;
pub(crate) mod settle;
pub(crate) mod spans;
pub(crate) mod taken;

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::base::Measure;
use crate::base::Order;
use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::atomic::{AtomicBool, Ordering};
use crate::concurrency::cancel::{Interrupt, Pulling};
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::{Mutex, lock};
use crate::error::{Error, Result};
use crate::journal::{JournalKey, Plan};
use crate::observe::event::Event;
use crate::observe::event_log::EventLog;
use crate::policy::Policy;
#[cfg(all(feature = "processes", target_os = "linux"))]
use crate::run::crashes::Crashes;
use crate::run::handover::shared_budget::{Bounded, StageBudget};
use crate::run::handover::undelivered::Undelivered;
use crate::run::handover::{Handover, WakeReason};
use crate::run::item_names::{ItemEntry, ItemNames};
use crate::run::journal_writer::JournalWriter;
use crate::run::lost_producer::ItemTimeouts;
use crate::run::lost_producer::LostProducer;
use crate::run::measures::Rejected;
use crate::run::outbox::End;
use crate::run::outbox::Outcome;
use crate::run::parts::{ItemPath, PartStage};
use crate::run::recording::Recording;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::{CarriedOver, InLine, RunKind, Shape};
use crate::run::spans::TraceSpans;
use crate::run::taken::ConsumerTally;
use crate::runner::{OpenItems, RunControl, Wanted};

/// The shortest wait for a permit that is reported as an event.
const NEWS: Duration = Duration::from_millis(100);

/// One run, created at its start and dropped at its end.
pub(crate) struct Run<I, T> {
    pub(crate) handover: Handover<I, T>,
    pub(crate) run_settings: Arc<RunSettings<I, T>>,
    /// The items that producers still need to work on.
    pub(crate) wanted: Wanted,
    /// The items whose results the consumer still takes. Differs from `wanted` after a stop: the result whose
    /// consumption asked for the stop still counts.
    consumable: Wanted,
    order: Order,
    kind: RunKind,
    cancelled: AtomicBool,
    stopped: AtomicBool,
    /// Dropped when no more input is wanted, which wakes a cancel guard inside the caller's iterator.
    halting: Mutex<Option<Sender<()>>>,
    halted: Receiver<()>,
    in_line: InLine,
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(crate) crashes: Crashes,
    /// The producers that no longer take part.
    pub(super) losses: Mutex<Vec<LostProducer>>,
    pub(super) timeouts: Mutex<ItemTimeouts>,
    /// The error that ends the run, if no item's result carries it. If it is an error of items, the range has the
    /// numbers of their failures in the report.
    pub(super) fatal_error: Mutex<Option<(Error, Range<u64>)>>,
    pub(super) has_fatal_error: AtomicBool,
    pub(crate) tally: ConsumerTally,
    pub(crate) event_log: Arc<EventLog>,
    pub(crate) spans: TraceSpans,
    /// Set if the items are parts, before producers take part.
    pub(crate) parts: OnceLock<Arc<PartStage>>,
    /// `None` if items have no names.
    pub(super) item_names: Option<Mutex<ItemNames>>,
    pub(crate) recording: Recording,
    /// Whether the driver no longer waits for the consumer.
    has_left_consumer: AtomicBool,
}

impl<I, T> Run<I, T> {
    pub(crate) fn new(
        shape: Shape,
        run_settings: Arc<RunSettings<I, T>>,
        earlier: CarriedOver,
        in_line: InLine,
        event_log: Arc<EventLog>,
        recording: Recording,
    ) -> Self {
        let Shape { order, kind, .. } = shape;
        let (halting, halted) = bounded(0);
        let has_entries = run_settings.has_names() || recording.inherits_names;
        let item_names = has_entries.then(|| match recording.plans {
            Some(_) => Mutex::new(ItemNames::for_journal()),
            None => Mutex::default(),
        });
        let handover = Handover::new(run_settings.scheduling(&shape), earlier);
        let handover = match in_line.upstream {
            None => handover.fed_by(in_line.driver.clone()),
            Some(_) => handover,
        };
        let handover = if kind == RunKind::Task { handover.for_task() } else { handover };
        Run {
            halting: Mutex::new(Some(halting)),
            halted,
            in_line,
            handover,
            run_settings,
            wanted: Wanted::all(),
            consumable: Wanted::all(),
            order,
            kind,
            cancelled: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            #[cfg(all(feature = "processes", target_os = "linux"))]
            crashes: Crashes::default(),
            losses: Mutex::new(vec![]),
            timeouts: Mutex::default(),
            fatal_error: Mutex::new(None),
            has_fatal_error: AtomicBool::new(false),
            tally: ConsumerTally::default(),
            event_log,
            spans: TraceSpans::new(&shape),
            parts: OnceLock::new(),
            item_names,
            recording,
            has_left_consumer: AtomicBool::new(false),
        }
    }

    /// Fails the run at an item; from now on no input is pulled. In input order, earlier items are still
    /// wanted, so that the first failure in order becomes the run's error.
    pub(crate) fn fail(&self, seq: u64) {
        let first_unwanted = match self.order {
            Order::Input => seq,
            Order::Completion => 0,
        };
        // Halt first. Dropping unwanted items returns their permits, and the feeder must not use them to pull
        // more.
        self.halt();
        self.wanted.give_up_from(first_unwanted);
        self.consumable.give_up_from(first_unwanted);
        self.handover.dispatch.give_up_from(first_unwanted).into_iter().for_each(drop_quietly);
    }

    /// Whether the feeder has to [`admit`](Run::admit) each item.
    pub(crate) fn asks_for_names(&self) -> bool {
        self.run_settings.has_names() || self.recording.plans.is_some()
    }

    /// Names an item that was pulled, and decides whether to work on it.
    pub(crate) fn admit(&self, seq: u64, item: &I) -> Result<Plan, Rejected> {
        let Some(item_names) = &self.item_names else {
            return self.plan(&JournalKey::Position(seq));
        };
        let entry = match (&self.run_settings.name, &self.run_settings.hash) {
            (Some(name), _) => {
                let name = catch(|| name(item)).map_err(Rejected::KeyPanicked)?;
                lock(item_names).call(&name)
            }
            (None, Some(hash)) => {
                let hash = catch(|| hash(item)).map_err(Rejected::KeyPanicked)?;
                ItemEntry {
                    shown: None,
                    key: JournalKey::HashedPosition { position: seq, hash },
                    input: None,
                }
            }
            (None, None) => ItemEntry { shown: None, key: JournalKey::Position(seq), input: None },
        };
        if self.recording.inherits_names {
            lock(item_names).rename(seq, entry.shown);
            return Ok(Plan::Run);
        }
        let plan = self.plan(&entry.key)?;
        if plan == Plan::Run {
            lock(item_names).enter(seq, entry);
        }
        Ok(plan)
    }

    /// The name of an item of a service, by which its errors call it.
    pub(crate) fn entry_of(&self, item: &I) -> Result<Option<ItemEntry>, Rejected> {
        let Some(name) = &self.run_settings.name else { return Ok(None) };
        let shown = catch(|| name(item)).map_err(Rejected::KeyPanicked)?;
        let name: Arc<str> = shown.into();
        let key = JournalKey::Name { name: name.clone(), occurrence: 1 };
        Ok(Some(ItemEntry { shown: Some(name), key, input: None }))
    }

    /// Takes the identity of an item out of this run for the next stage of a pipeline. `None` if the item
    /// failed before it was known.
    pub(crate) fn take_entry(&self, seq: u64) -> Option<ItemEntry> {
        let entry = match &self.item_names {
            Some(item_names) => lock(item_names).take(seq)?,
            None => ItemEntry { shown: None, key: JournalKey::Position(seq), input: None },
        };
        Some(ItemEntry { input: entry.input.or(Some(seq)), ..entry })
    }

    /// Returns the index in the input of an item in flight, if items keep their identity.
    pub(crate) fn input_of(&self, seq: u64) -> Option<u64> {
        lock(self.item_names.as_ref()?).input(seq)
    }

    /// Stores the name of an item of a service, or of one that had it in the stage before.
    pub(crate) fn enter_name(&self, seq: u64, entry: Option<ItemEntry>) {
        if let (Some(item_names), Some(entry)) = (&self.item_names, entry) {
            lock(item_names).enter(seq, entry);
        }
    }

    fn plan(&self, key: &JournalKey) -> Result<Plan, Rejected> {
        let Some(journal_writer) = &self.recording.plans else { return Ok(Plan::Run) };
        journal_writer.plan(key).map_err(Rejected::Journal)
    }

    /// Whether the item is a part of a parent that has failed.
    #[inline]
    pub(crate) fn is_withdrawn(&self, seq: u64) -> bool {
        self.parts.get().is_some_and(|parts| parts.is_withdrawn(seq))
    }

    /// The items that are still wanted, where others are not: parts, or items of a service.
    pub(crate) fn open_items(&self) -> Option<&dyn OpenItems> {
        match self.parts.get() {
            Some(parts) => Some(&**parts),
            None => self.handover.open_items(),
        }
    }

    /// Names the part that an error is of, if items are parts.
    pub(crate) fn named_part(&self, seq: u64, error: Error) -> Error {
        match self.part_of(seq) {
            Some(name) => name.failed(error),
            None => error,
        }
    }

    /// Returns which part an item is, if items are parts.
    pub(crate) fn part_of(&self, seq: u64) -> Option<ItemPath> {
        self.parts.get()?.name_of(seq)
    }

    /// Returns the name of an item in flight.
    pub(crate) fn name_of(&self, seq: u64) -> Option<Arc<str>> {
        lock(self.item_names.as_ref()?).shown(seq)
    }

    /// Adds the name of its item to an error.
    pub(crate) fn named(&self, mut error: Error) -> Error {
        if let Some(item_names) = &self.item_names
            && let Some(item) = error.item()
            && let Some(key) = error.key_mut()
            && key.is_none()
        {
            *key = lock(item_names).shown(item);
        }
        error
    }

    /// Forgets the name of an item that the collector has finished.
    #[inline]
    pub(crate) fn remove_name(&self, seq: u64) {
        if let Some(item_names) = &self.item_names {
            lock(item_names).remove_name(seq);
        }
        self.spans.forget_caller(seq);
    }

    /// Returns the journal key of an item in flight. `None` if the item failed before its key was known.
    fn key_of(&self, seq: u64) -> Option<JournalKey> {
        match &self.item_names {
            Some(item_names) => lock(item_names).key(seq),
            None => Some(JournalKey::Position(seq)),
        }
    }

    /// Records a finished item in the journal. Returns whether a commit is due.
    pub(crate) fn record(&self, seq: u64, outcome: crate::journal::JournalOutcome) -> bool {
        let Some(journal_writer) = self.journal_writer() else { return false };
        self.key_of(seq).is_some_and(|key| journal_writer.record(key, outcome))
    }

    /// The journal that the consumer writes.
    pub(crate) fn journal_writer(&self) -> Option<&Arc<JournalWriter>> {
        self.recording.records.as_ref()
    }

    /// Stops waiting for the consumer.
    pub(crate) fn leave_consumer(&self) {
        self.has_left_consumer.store(true, Ordering::Release);
        self.driver().ring();
    }

    /// The bell of the driver of this run, and of the whole line.
    pub(crate) fn driver(&self) -> &Arc<DriverBell> {
        &self.in_line.driver
    }

    /// Whether the driver no longer waits for the consumer.
    pub(crate) fn has_left_consumer(&self) -> bool {
        self.has_left_consumer.load(Ordering::Acquire)
    }

    /// Whether each failure goes to a caller, so that none ends the run.
    pub(crate) fn is_service(&self) -> bool {
        self.kind == RunKind::Service
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.run_settings.policy
    }

    /// Stops pulling input. This stops all earlier stages of a pipeline too: their results would not be
    /// consumed.
    fn halt(&self) {
        self.handover.halt();
        drop(lock(&self.halting).take());
        if let Some(upstream) = &self.in_line.upstream {
            upstream.stop();
        }
    }

    /// A guard to hold while the caller's iterator is pulled.
    pub(crate) fn pulling(&self) -> Pulling {
        Pulling::new(&self.halted)
    }

    /// Aborts the run: every party leaves once the hook that it is in returns.
    pub(crate) fn abort(&self) {
        // First: the outcome of a hook that gives up because of what follows is no answer.
        self.handover.note_end(End::Aborted);
        self.wanted.give_up_from(0);
        self.consumable.give_up_from(0);
        self.handover.abort();
        self.halt();
    }

    /// Whether a result will not be consumed, because the run has failed: in input order at an earlier item,
    /// in completion order at any.
    pub(crate) fn is_pointless(&self, seq: u64, outcome: &Outcome<T>) -> bool {
        let ends_run = outcome.as_ref().is_err_and(|none| none.ends_run());
        !ends_run && self.consumable.gave_up_on(Some(seq))
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_cancelled() || self.is_stopped() || self.has_fatal_error()
    }

    /// Whether each consumed item must be reported to the journal, the names, the run timeout or an observer.
    pub(crate) fn is_watched(&self) -> bool {
        self.item_names.is_some()
            || self.recording.records.is_some()
            || self.run_settings.limits.run.is_some()
            || self.event_log.is_observed()
    }

    /// Reports a wait of the feeder for permits, if it was at least [`NEWS`].
    pub(crate) fn report_full_window(&self, lasted: Duration) {
        if lasted >= NEWS {
            self.event_log.tell(Event::WindowFull { lasted });
        }
    }

    /// Takes out all remaining items and results, and drops them.
    pub(crate) fn discard(&self) {
        let Undelivered { items, results } = Undelivered::drain(&self.handover);
        items.into_iter().for_each(drop_quietly);
        results.into_iter().for_each(drop_quietly);
        let fatal_error = lock(&self.fatal_error).take();
        drop_quietly(fatal_error);
    }

    /// Checks that an abort had a reason.
    ///
    /// # Panics
    ///
    /// If the run was aborted without one: a thread died of a bug in gangline.
    pub(crate) fn check(&self, news: WakeReason) {
        if let WakeReason::Aborted = news {
            assert!(
                self.is_over(),
                "another thread died of a bug in gangline; its panic tells more"
            );
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// Drops the user's values under a panic guard, since any thread may hold the last reference.
impl<I, T> Drop for Run<I, T> {
    fn drop(&mut self) {
        self.discard();
        drop_quietly(std::mem::take(&mut self.run_settings));
    }
}

impl<I: Send, T: Send> Interrupt for Run<I, T> {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.abort();
    }

    /// Called only on the first stage of a pipeline.
    fn drain(&self) {
        self.halt();
        self.end_backoff();
    }

    fn end_backoff(&self) {
        self.handover.dispatch.end_backoff();
    }

    fn is_aborted(&self) -> bool {
        self.handover.is_aborted()
    }
}

impl<I: Send, T: Send> Bounded for Run<I, T> {
    fn memory_bound(&self) -> Option<(u64, usize)> {
        let most = self.run_settings.measures.as_ref()?.most(Measure::Memory)?;
        Some((most, self.handover.at_work()))
    }

    fn share(&self, budget: StageBudget) {
        self.handover.share(budget);
    }

    fn look_for_room(&self) {
        self.handover.look_for_room();
    }
}

impl<I: Send, T: Send> RunControl for Run<I, T> {
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.wanted.give_up_from(0);
        self.handover.abort();
        self.halt();
    }

    fn gave_up_on(&self, item: Option<u64>) -> bool {
        self.consumable.gave_up_on(item)
    }

    fn name_of(&self, item: u64) -> Option<Arc<str>> {
        Run::name_of(self, item)
    }

    fn has_journal(&self) -> bool {
        self.recording.records.is_some()
    }

    fn note(&self, note: Vec<u8>) -> Result<()> {
        Ok(self.journal_writer().map_or(Ok(()), |journal_writer| journal_writer.draft(note))?)
    }

    fn last_note(&self) -> Option<&[u8]> {
        self.journal_writer()?.last_note()
    }
}

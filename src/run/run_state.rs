//! What the threads of a run share that no type of its items is part of.

use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::concurrency::atomic::{AtomicBool, Ordering};
use crate::concurrency::cancel::Pulling;
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::{Mutex, lock};
use crate::error::Error;
use crate::journal::{ItemPlan, JournalKey};
use crate::observe::event::Event;
use crate::observe::event_log::EventLog;
use crate::policy::Policy;
use crate::run::handover::WakeReason;
use crate::run::item_names::{ItemEntry, ItemNames};
use crate::run::journal_writer::JournalWriter;
use crate::run::measures::Rejected;
use crate::run::outbox::Outcome;
use crate::run::parts::{ItemPath, PartStage};
use crate::run::recording::Recording;
use crate::run::run_shape::{InLine, RunKind, RunShape};
use crate::run::spans::TraceSpans;
use crate::run::taken::ConsumerTally;
use crate::runner::Wanted;

/// The shortest wait for a permit that is reported as an event.
const NEWS: Duration = Duration::from_millis(100);

/// What the threads of a run share, whatever the types of its items. Compiled once, and not for each runner.
#[expect(unnameable_types, reason = "a run of the hidden module for backends dereferences to it")]
pub struct RunState {
    /// The items that producers still need to work on.
    pub(crate) wanted: Wanted,
    /// The items whose results the consumer still takes. Differs from `wanted` after a stop: the result whose
    /// consumption asked for the stop still counts.
    pub(super) consumable: Wanted,
    pub(super) policy: Policy,
    kind: RunKind,
    pub(super) end_requests: EndRequests,
    pub(super) fatal_error: FatalError,
    pub(crate) in_line: InLine,
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

/// The requests that end a run early.
pub(super) struct EndRequests {
    cancelled: AtomicBool,
    stopped: AtomicBool,
    /// Dropped when no more input is wanted, which wakes a cancel guard inside the caller's iterator.
    halting: Mutex<Option<Sender<()>>>,
    halted: Receiver<()>,
}

/// The error that ends a run, if no item's result carries it.
#[derive(Default)]
pub(super) struct FatalError {
    /// If it is an error of items, the range has the numbers of their failures in the report.
    error: Mutex<Option<(Error, Range<u64>)>>,
    is_set: AtomicBool,
}

impl EndRequests {
    fn new() -> Self {
        let (halting, halted) = bounded(0);
        EndRequests {
            cancelled: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            halting: Mutex::new(Some(halting)),
            halted,
        }
    }

    pub(super) fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    pub(super) fn halt(&self) {
        drop(lock(&self.halting).take());
    }
}

impl FatalError {
    /// Keeps the first error. Returns any other.
    pub(super) fn keep(&self, error: Error, numbers: Range<u64>) -> Option<Error> {
        let mut kept = lock(&self.error);
        let spare = match *kept {
            None => {
                *kept = Some((error, numbers));
                None
            }
            Some(_) => Some(error),
        };
        drop(kept);
        self.is_set.store(true, Ordering::Relaxed);
        spare
    }

    pub(super) fn take(&self) -> Option<(Error, Range<u64>)> {
        lock(&self.error).take()
    }

    pub(super) fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(super) fn is_run_timeout(&self) -> bool {
        matches!(*lock(&self.error), Some((Error::RunTimedOut { .. }, _)))
    }
}

impl RunState {
    pub(super) fn new(
        shape: &RunShape,
        policy: Policy,
        has_names: bool,
        in_line: InLine,
        event_log: Arc<EventLog>,
        recording: Recording,
    ) -> Self {
        let has_entries = has_names || recording.inherits_names;
        let item_names = has_entries.then(|| match recording.plans {
            Some(_) => Mutex::new(ItemNames::for_journal()),
            None => Mutex::default(),
        });
        RunState {
            wanted: Wanted::all(),
            consumable: Wanted::all(),
            policy,
            kind: shape.kind,
            end_requests: EndRequests::new(),
            fatal_error: FatalError::default(),
            in_line,
            tally: ConsumerTally::default(),
            event_log,
            spans: TraceSpans::new(shape),
            parts: OnceLock::new(),
            item_names,
            recording,
            has_left_consumer: AtomicBool::new(false),
        }
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

    pub(super) fn plan(&self, key: &JournalKey) -> Result<ItemPlan, Rejected> {
        let Some(journal_writer) = &self.recording.plans else { return Ok(ItemPlan::Run) };
        journal_writer.plan(key).map_err(Rejected::Journal)
    }

    /// Whether the item is a part of a parent that has failed.
    #[inline]
    pub(crate) fn is_withdrawn(&self, seq: u64) -> bool {
        self.parts.get().is_some_and(|parts| parts.is_withdrawn(seq))
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
        &self.policy
    }

    /// A guard to hold while the caller's iterator is pulled.
    pub(crate) fn pulling(&self) -> Pulling {
        Pulling::new(&self.end_requests.halted)
    }

    /// Whether a result will not be consumed, because the run has failed: in input order at an earlier item,
    /// in completion order at any.
    pub(crate) fn is_pointless<T>(&self, seq: u64, outcome: &Outcome<T>) -> bool {
        let ends_run = outcome.as_ref().is_err_and(|none| none.ends_run());
        !ends_run && self.consumable.gave_up_on(Some(seq))
    }

    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.is_cancelled() || self.is_stopped() || self.has_fatal_error()
    }

    /// Reports a wait of the feeder for permits, if it was at least [`NEWS`].
    pub(crate) fn report_full_window(&self, lasted: Duration) {
        if lasted >= NEWS {
            self.event_log.tell(Event::WindowFull { lasted });
        }
    }

    /// Checks that an abort had a reason.
    ///
    /// # Panics
    ///
    /// If the run was aborted without one: a thread died of a bug in gangline.
    pub(crate) fn check(&self, news: WakeReason) {
        if let WakeReason::Aborted = news {
            let expected = self.is_cancelled() || self.is_stopped() || self.has_fatal_error();
            assert!(expected, "another thread died of a bug in gangline; its panic tells more");
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.end_requests.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.end_requests.stopped.load(Ordering::Relaxed)
    }
}

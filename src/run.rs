//! One run of one stage: the state that its threads share.
//!
//! Each run has its own [`Run`], so nothing of one run reaches the next. The [`handover`] moves items to the producers
//! and results back, whatever the backend.

pub(crate) mod abort_guard;
#[cfg(all(feature = "simulation", not(shuttle)))]
pub(crate) mod by_hand;
pub(crate) mod call;
pub(crate) mod crashes;
pub(crate) mod failures;
pub(crate) mod handover;
pub(crate) mod item_names;
pub(crate) mod journal_writer;
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
pub(crate) mod run_state;
pub(crate) mod settle;
pub(crate) mod spans;
pub(crate) mod taken;
pub(crate) mod time_limits;

use std::ops::Deref;
use std::sync::Arc;

use crate::base::Measure;
use crate::base::Order;
use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::{Mutex, lock};
use crate::error::Result;
use crate::journal::{ItemPlan, JournalKey};
use crate::observe::event_log::EventLog;
use crate::run::crashes::Crashes;
use crate::run::handover::Handover;
use crate::run::handover::shared_budget::{Bounded, MemoryBound, StageBudget};
use crate::run::handover::undelivered::Undelivered;
use crate::run::item_names::ItemEntry;
use crate::run::lost_producer::ItemTimeouts;
use crate::run::lost_producer::LostProducer;
use crate::run::measures::Rejected;
use crate::run::outbox::End;
use crate::run::recording::Recording;
use crate::run::run_settings::RunSettings;
use crate::run::run_shape::{CarriedOver, InLine, RunKind, RunShape};
use crate::run::run_state::RunState;
use crate::runner::{OpenItems, RunControl};

/// One run, created at its start and dropped at its end: what its items pass through, and its state.
///
/// A backend takes part in it by a desk for each producer.
pub struct Run<I, T> {
    pub(crate) handover: Handover<I, T>,
    pub(crate) run_settings: Arc<RunSettings<I, T>>,
    order: Order,
    pub(crate) crashes: Crashes,
    /// The producers that no longer take part.
    pub(super) losses: Mutex<Vec<LostProducer>>,
    pub(super) timeouts: Mutex<ItemTimeouts>,
    state: RunState,
}

impl<I, T> Run<I, T> {
    pub(crate) fn new(
        shape: RunShape,
        run_settings: Arc<RunSettings<I, T>>,
        earlier: CarriedOver,
        in_line: InLine,
        event_log: Arc<EventLog>,
        recording: Recording,
    ) -> Self {
        let RunShape { order, kind, .. } = shape;
        let handover = Handover::new(run_settings.scheduling(&shape), earlier);
        let handover = match in_line.upstream {
            None => handover.fed_by(in_line.driver.clone()),
            Some(_) => handover,
        };
        let handover = if kind == RunKind::Task { handover.for_task() } else { handover };
        let (policy, has_names) = (run_settings.policy.clone(), run_settings.has_names());
        Run {
            handover,
            run_settings,
            order,
            crashes: Crashes::default(),
            losses: Mutex::new(vec![]),
            timeouts: Mutex::default(),
            state: RunState::new(&shape, policy, has_names, in_line, event_log, recording),
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

    /// The order in which results leave the run.
    pub(crate) fn order(&self) -> Order {
        self.order
    }

    /// Names an item that was pulled, and decides whether to work on it.
    pub(crate) fn admit(&self, seq: u64, item: &I) -> Result<ItemPlan, Rejected> {
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
            return Ok(ItemPlan::Run);
        }
        let plan = self.plan(&entry.key)?;
        if plan == ItemPlan::Run {
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

    /// The items that are still wanted, where others are not: parts, or items of a service.
    pub(crate) fn open_items(&self) -> Option<&dyn OpenItems> {
        match self.parts.get() {
            Some(parts) => Some(&**parts),
            None => self.handover.open_items(),
        }
    }

    /// Stops pulling input. This stops all earlier stages of a pipeline too: their results would not be
    /// consumed.
    fn halt(&self) {
        self.handover.halt();
        self.end_requests.halt();
        if let Some(upstream) = &self.in_line.upstream {
            upstream.stop();
        }
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

    /// Whether each consumed item must be reported to the journal, the names, the run timeout or an observer.
    pub(crate) fn is_watched(&self) -> bool {
        self.item_names.is_some()
            || self.recording.records.is_some()
            || self.run_settings.limits.run.is_some()
            || self.event_log.is_observed()
    }

    /// Takes out all remaining items and results, and drops them.
    pub(crate) fn discard(&self) {
        let Undelivered { items, results } = Undelivered::drain(&self.handover);
        items.into_iter().for_each(drop_quietly);
        results.into_iter().for_each(drop_quietly);
        drop_quietly(self.fatal_error.take());
    }
}

impl<I, T> Deref for Run<I, T> {
    type Target = RunState;

    fn deref(&self) -> &RunState {
        &self.state
    }
}

/// Drops the user's values under a panic guard, since any thread may hold the last reference.
impl<I, T> Drop for Run<I, T> {
    fn drop(&mut self) {
        self.discard();
        drop_quietly(std::mem::take(&mut self.run_settings));
        drop_quietly(std::mem::take(&mut self.state.policy));
    }
}

impl<I: Send, T: Send> Interrupt for Run<I, T> {
    fn cancel(&self) {
        self.end_requests.cancel();
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
    fn memory_bound(&self) -> Option<MemoryBound> {
        let measures = self.run_settings.measures.as_ref()?;
        let (most, least) = (measures.most(Measure::Memory)?, measures.least());
        Some(MemoryBound { most, at_work: self.handover.at_work(), least })
    }

    fn share(&self, budget: StageBudget) {
        self.handover.permits.share(budget);
    }

    fn look_for_room(&self) {
        self.handover.permits.look_for_room();
    }
}

impl<I: Send, T: Send> RunControl for Run<I, T> {
    fn stop(&self) {
        self.end_requests.stop();
        self.wanted.give_up_from(0);
        self.handover.abort();
        self.halt();
    }

    fn gave_up_on(&self, item: Option<u64>) -> bool {
        self.consumable.gave_up_on(item)
    }

    fn name_of(&self, item: u64) -> Option<Arc<str>> {
        self.state.name_of(item)
    }

    fn input_of(&self, item: u64) -> Option<u64> {
        self.state.input_of(item).or((!self.in_line.is_reordered).then_some(item))
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

#[cfg(any(test, feature = "simulation"))]
#[cfg(not(shuttle))]
impl<I, T> Run<I, T> {
    /// A run in input order with default settings, for tests.
    #[cfg(test)]
    pub(crate) fn alone(
        producers: usize,
        window: usize,
        upstream: Option<Arc<dyn RunControl>>,
    ) -> Arc<Self> {
        let in_line = InLine { upstream, ..InLine::default() };
        Self::of_test(RunSettings::default(), producers, window, in_line)
    }

    /// A run in input order with these settings.
    #[cfg(feature = "simulation")]
    pub(crate) fn with_settings(
        settings: RunSettings<I, T>,
        producers: usize,
        window: usize,
    ) -> Arc<Self> {
        Self::of_test(settings, producers, window, InLine::default())
    }

    fn of_test(
        settings: RunSettings<I, T>,
        producers: usize,
        window: usize,
        in_line: InLine,
    ) -> Arc<Self> {
        let (order, batching, kind) = (Order::Input, None, RunKind::default());
        let shape = RunShape { order, producers, window, batching, kind };
        let (earlier, recording) = (CarriedOver::nothing(producers), Recording::default());
        let event_log = EventLog::new(producers, None, crate::observe::event_log::Detail::Run);
        let settings = Arc::new(settings);
        Arc::new(Run::new(shape, settings, earlier, in_line, event_log.into(), recording))
    }
}

//! What an engine and a line report of their runs: accounts, totals, failures.

use std::time::Duration;

use gangline_report::conclusion::Conclusion;
use gangline_report::{
    Account, BACKOFF, BatchChoice, CopyReport, Ending, ProducerReport, RunReport, Stall,
    WorkerReport, quote_larger_window, share, stages,
};
use gangline_scheduler::CopyCounts;

use super::consume::SkippedItem;
use super::pool::Engine;
use super::stage::StageEngine;
use crate::base::{Measure, Order, memory};
use crate::concurrency::lock;
use crate::device::{Devices, models};
use crate::engine::link::{FeedCounts, LinkKind, Relayed};
use crate::error::Error;
use crate::observe::event::{Event, seat_name};
use crate::observe::event_log::EventLog;
use crate::observe::failure::end_with;
use crate::observe::run_stats::{CollectorTime, ProducerTime, SourceTime};
use crate::producers::Producers;
use crate::run::Run;
use crate::run::handover::shared_budget::StageBudget;
use crate::run::lost_producer::{Abandoned, LostProducer};
use crate::run::taken::Taken;

/// What a line keeps of its last run.
#[derive(Debug, Default)]
pub(crate) struct LineRun {
    has_begun: bool,
    account: Account,
    /// Beside the errors that the last stage keeps.
    skipped: Vec<SkipOrigin>,
}

/// The items of a run by outcome.
pub(super) struct Accounts {
    /// The account of each stage.
    pub(super) stages: Vec<Account>,
    /// The account of the input. Each stage gets the items that are ok in the one before; those between an expansion
    /// and its gathering get parts.
    pub(super) whole: Account,
}

/// Where an item was skipped.
#[derive(Debug, Clone, Copy)]
struct SkipOrigin {
    passed_on: usize,
    input: Option<u64>,
}

/// An item that a stage has skipped.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SkippedInStage<'a> {
    pub(crate) error: &'a Error,
    /// The number of the stage, from 0.
    pub(crate) stage: usize,
    /// The item's index in the input, if it is known.
    pub(crate) item: Option<u64>,
}

impl LineRun {
    pub(super) fn new(account: Account, skipped: &[SkippedItem]) -> Self {
        let origin =
            |item: &SkippedItem| SkipOrigin { passed_on: item.passed_on, input: item.input };
        let skipped = skipped.iter().map(origin).collect();
        LineRun { has_begun: true, account, skipped }
    }

    /// The account of the whole line.
    pub(super) fn account(&self) -> Account {
        self.account
    }

    /// The report of the whole line. Before its first run, its pools may have reports of other runs.
    pub(super) fn report(&self, engines: &[&dyn StageEngine]) -> RunReport {
        match self.has_begun {
            true => {
                stages::report(engines.iter().map(|stage| stage.part()).collect(), self.account())
            }
            false => RunReport::default(),
        }
    }

    /// The skipped items: `errors` are those of the last stage, and `orders` of all stages.
    pub(super) fn failures<'a>(
        &self,
        errors: &'a [Error],
        orders: &[Order],
    ) -> Vec<SkippedInStage<'a>> {
        let last = orders.len() - 1;
        let failure = |(error, origin): (&'a Error, &SkipOrigin)| {
            let stage = last.saturating_sub(origin.passed_on);
            let keeps_places = orders[..stage].iter().all(|order| *order == Order::Input);
            let item = if keeps_places { error.item() } else { None };
            SkippedInStage { error, stage, item: item.or(origin.input) }
        };
        errors.iter().zip(&self.skipped).map(failure).collect()
    }
}

/// The accounts of all stages. `given` is the input of the first, and `taken` the results of the last. Of
/// several failures, only the one that ended the run counts, in its own stage. Later stages received it as
/// passed on; other failures before it had no effect.
pub(super) fn accounts(given: FeedCounts, relayed: &[Relayed], taken: Taken) -> Accounts {
    let input = given;
    let given = [given].into_iter().chain(relayed.iter().map(|relayed| relayed.given));
    let taken = relayed.iter().map(|relayed| relayed.taken).chain([taken]);
    let flows: Vec<_> = given.zip(taken).collect();
    let depths = depths(relayed);
    let mut stands = true;
    // Whether the failure is among parts. Then the input has one item that failed.
    let mut parts_failure = false;
    let mut stages = Vec::with_capacity(flows.len());
    for (&(given, taken), &depth) in flows.iter().zip(&depths).rev() {
        let failure = taken.failure.filter(|_| stands);
        let own = failure.filter(|failure| given.passed_on != Some(failure.seq));
        stands = failure.is_some() && own.is_none();
        parts_failure |= depth > 0 && own.is_some_and(|failure| failure.items > 0);
        let failed = taken.skipped + own.map_or(0, |failure| failure.items);
        stages.push(Account::new(given.items, taken.ok, failed, taken.already_done, given.unread));
    }
    stages.reverse();
    let outside = || stages.iter().zip(&depths).filter(|(_, depth)| **depth == 0);
    let gathered = relayed.iter().zip(&depths[1..]).filter(|(_, depth)| **depth == 0);
    let failed = outside().map(|(stage, _)| stage.failed).sum::<u64>()
        + gathered.map(|(relayed, _)| relayed.parents_failed).sum::<u64>()
        + u64::from(parts_failure);
    let done = outside().map(|(stage, _)| stage.already_done).sum();
    let ok = stages.last().map_or(0, |last| last.ok);
    let whole = Account::new(input.items, ok, failed, done, input.unread);
    Accounts { stages, whole }
}

/// For each stage, how many expansions are open there.
fn depths(relayed: &[Relayed]) -> Vec<usize> {
    let mut depths = vec![0];
    let mut depth = 0;
    for relayed in relayed {
        match relayed.kind {
            LinkKind::Direct => {}
            LinkKind::Expands => depth += 1,
            LinkKind::Gathers => depth -= 1,
        }
        depths.push(depth);
    }
    depths
}

impl<I, T> Engine<I, T> {
    pub(super) fn report_start(&self, event_log: &EventLog, items: Option<u64>) {
        let devices = &self.settings.devices;
        // A seat has no place before a worker takes it.
        let has_seats = self.factory().has_seats();
        let place = |producer| match devices.place(producer) {
            Some(place) if !has_seats => place.to_string(),
            _ => String::new(),
        };
        event_log.tell(Event::RunStarted {
            // An endless input, such as `0..u64::MAX`, has a size hint beyond any memory.
            items: items.filter(|items| isize::try_from(*items).is_ok()),
            order: self.settings.order,
            producers: (0..devices.len()).map(place).collect(),
            fallbacks: devices.fallbacks().to_vec(),
        });
        // Each worker reports by itself when it is ready.
        let Some(producers) = self.producers.as_ref() else { return };
        for producer in 0..producers.len() {
            let took = producers.init(producer);
            event_log.tell(match self.gone.get(producer) {
                None if has_seats => continue,
                None if producers.is_ready(producer) => {
                    Event::ProducerReady { producer, took, is_rebuilt: false }
                }
                // A producer without a state reports itself once it has rebuilt it.
                None => continue,
                Some(LostProducer { abandoned: Abandoned::Yes, .. }) => {
                    Event::ProducerAbandoned { producer }
                }
                Some(LostProducer { reason, .. }) => {
                    Event::ProducerQuarantined { producer, reason: reason.clone() }
                }
            });
        }
    }

    pub(crate) fn account(&self) -> Account {
        self.account
    }

    pub(crate) fn ceilings(&self) -> Vec<Option<u64>> {
        let of_all = |producers: &Producers<I, T>| {
            (0..producers.len()).map(|producer| producers.ceiling(producer)).collect()
        };
        self.producers.as_ref().map_or_else(Vec::new, of_all)
    }

    /// Keeps the errors of skipped items.
    pub(super) fn keep(&mut self, failures: Vec<SkippedItem>) {
        self.failures = failures.into_iter().map(|skipped| skipped.error).collect();
    }

    /// The errors of items skipped in the last run: the first of them.
    pub(crate) fn failures(&self) -> &[Error] {
        &self.failures
    }

    /// What the threads of a run measured. The account and the losses must be up to date.
    pub(super) fn totals(&self, run: &Run<I, T>, error: Option<&Error>) -> RunReport {
        let stats = &run.handover.stats;
        let CollectorTime { window, present, init, waited, stalled, journal, heads, .. } =
            stats.collector();
        let SourceTime { working: source_working, waited: source_waiting, naming } = stats.source();
        let (origin, destination) = stats.ends();
        let consumer_working = present.saturating_sub(waited + stalled + journal);
        let was_full = run.handover.permits.memory().is_some_and(StageBudget::was_full);
        let measures = self.run_settings.measures.as_ref().filter(|_| was_full);
        let window_memory = measures.and_then(|it| it.most(Measure::Memory));
        let mut totals = RunReport::default();
        totals.account = self.account;
        totals.lasted = run.event_log.elapsed();
        totals.computing = run.event_log.computing();
        end_with(&mut totals, error);
        totals.start_up = stats.start_up();
        totals.consumer_init = init;
        totals.window = window;
        totals.window_limit = self.window().most_behind_head() as u64;
        totals.window_memory = window_memory;
        totals.memory = window_memory.and_then(|_| memory::limit());
        totals.producers = (0..self.settings.devices.len())
            .map(|producer| self.producer_totals(run, producer, totals.lasted))
            .collect();
        totals.held_back_by = stats.held_back_by();
        let backing_off: Duration = totals.producers.iter().map(|it| it.backing_off).sum();
        if !backing_off.is_zero() {
            totals.held_back_by.insert(BACKOFF.to_owned(), backing_off);
        }
        totals.origin = origin;
        totals.destination = destination;
        totals.source_working = source_working;
        totals.source_waiting = source_waiting;
        totals.source_naming = naming;
        totals.journal_writing = journal;
        totals.consumer_working = consumer_working;
        totals.consumer_waiting = waited;
        totals.head_stalled = stalled;
        totals.stalls = heads.into_worst().into_iter().map(|it| Stall::new(it.0, it.1)).collect();
        totals.consumer_abandoned = stats.is_consumer_abandoned();
        let CopyCounts { made, won } = run.handover.dispatch.copies();
        totals.copies = CopyReport::new(made, won);
        totals.calls = run.open_items().and_then(|it| it.calls());
        totals.splits = stats.splits();
        totals
    }

    fn producer_totals(
        &self,
        run: &Run<I, T>,
        producer: usize,
        lasted: Duration,
    ) -> ProducerReport {
        let stats = &run.handover.stats;
        let (worker, all) = (stats.worker(producer), stats.producer(producer));
        let ProducerTime { failed, waited, rebuilds, recycling, starts_in_run, .. } = all;
        let producers = self.producers.as_ref();
        let own_init = || producers.map(|producers| producers.init(producer));
        let init = all.seat.map(|seat| seat.init).or_else(own_init).unwrap_or_default();
        let loss = self.gone.get(producer).or_else(|| self.abandoned.get(producer));
        let place = match (&worker, self.factory().has_seats()) {
            (Some(WorkerReport { host: Some(host), .. }), true) => Some(seat_name(host, producer)),
            (_, true) => None,
            (_, false) => self.settings.devices.place(producer).map(ToString::to_string),
        };
        let mut totals = ProducerReport::default();
        totals.place = place.unwrap_or_default();
        totals.items = all.items();
        totals.failed = failed;
        totals.init = init;
        totals.states_lost = rebuilds.states_lost;
        totals.rebuilds = rebuilds.inits;
        totals.rebuilding = rebuilds.took;
        totals.working = all.working();
        totals.busy = share(totals.working, lasted);
        totals.waiting = waited.all;
        totals.backing_off = waited.for_retries;
        totals.times = all.times();
        let first_init = || producers.map(|producers| producers.first_init(producer));
        let loaded = all.seat.map(|seat| seat.init).or_else(first_init).unwrap_or_default();
        totals.times.loading += match starts_in_run {
            // It may still last.
            true if loaded.is_zero() => lasted,
            // What came after the first is rebuilding.
            true => loaded,
            false => Duration::ZERO,
        };
        totals.batch_ceiling = producers.and_then(|producers| producers.ceiling(producer));
        totals.batch_size = run.handover.dispatch.chosen_size(producer).map(BatchChoice::new);
        totals.quarantined = loss.map(|loss| loss.reason.to_string());
        totals.abandoned = loss.is_some_and(|loss| loss.abandoned == Abandoned::Yes);
        totals.recycles = recycling.states;
        totals.recycling = recycling.took;
        totals.replacements = all.replacements;
        totals.worker = worker;
        totals
    }

    /// The report of the last run, or of the one in progress.
    pub(crate) fn report(&self) -> RunReport {
        report_of(&self.event_log, &self.settings.devices)
    }

    /// Returns the report of a service up to the present. The times of its producers are read here, since they are recorded
    /// only at the end; what limits it is decided from them. `reason` says why the service has ended, if it was not closed.
    pub(super) fn report_up_to_now(
        &self,
        run: &Run<I, T>,
        account: Account,
        reason: Option<&Error>,
    ) -> RunReport {
        let mut totals = self.totals(run, None);
        (totals.account, totals.ending) = (account, Ending::InProgress);
        let mut report = lock(self.event_log.recorder()).report_with(totals);
        report.provenance.devices = models(&self.settings.devices);
        if reason.is_some() {
            end_with(&mut report, reason);
            report.conclude(Conclusion::default());
        }
        report
    }

    /// Returns the times of each producer so far, with the duration of its last `producer_init`.
    pub(super) fn times_up_to_now(&self, run: &Run<I, T>) -> Vec<(ProducerTime, Duration)> {
        let Some(producers) = &self.producers else { return Vec::new() };
        let times = |producer| (run.handover.stats.producer(producer), producers.init(producer));
        (0..producers.len()).map(times).collect()
    }

    pub(super) fn note_losses(&mut self, losses: &[LostProducer]) {
        let (abandoned, gone): (Vec<_>, Vec<_>) =
            losses.iter().cloned().partition(|loss| loss.abandoned == Abandoned::Yes);
        self.gone.extend(&gone);
        if let Some(producers) = &mut self.producers {
            // One of an earlier run may still be in its hook.
            let mut returned = self.abandoned.places();
            returned.retain(|&producer| !producers.is_away(producer));
            self.abandoned.remove_all(&returned);
            self.abandoned.extend(&abandoned);
            self.abandoned.places().into_iter().for_each(|it| producers.note_abandoned(it));
        }
    }
}

/// Returns the report of the last run in an event log, or of the run in progress.
pub(super) fn report_of(event_log: &EventLog, devices: &Devices) -> RunReport {
    let mut report = lock(event_log.recorder()).report();
    report.provenance.devices = models(devices);
    // Not under the lock: it takes some time.
    quote_larger_window(&mut report);
    report
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;
    use crate::run::taken::RunFailure;

    fn given(items: u64, passed_on: Option<u64>) -> FeedCounts {
        FeedCounts { items, unread: None, passed_on }
    }

    fn taken(ok: u64, failure: Option<(u64, u64)>) -> Taken {
        let failure = failure.map(|(seq, items)| RunFailure { seq, items });
        Taken { ok, failure, ..Taken::default() }
    }

    fn direct(taken: Taken, given: FeedCounts) -> Relayed {
        Relayed { taken, given, ..Relayed::default() }
    }

    /// For each stage: ok, failed, cancelled.
    fn counts(first: FeedCounts, relayed: &[Relayed], last: Taken) -> Vec<(u64, u64, u64)> {
        let accounts = accounts(first, relayed, last);
        accounts
            .stages
            .iter()
            .map(|account| (account.ok, account.failed, account.cancelled))
            .collect()
    }

    #[test]
    fn all_that_was_given_was_taken() {
        let relayed = [direct(taken(5, None), given(5, None)); 2];
        let counts = counts(given(5, None), &relayed, taken(5, None));
        assert_eq!(counts, [(5, 0, 0); 3]);
    }

    /// A batch of three items fails in the first stage.
    #[test]
    fn a_failure_counts_in_its_own_stage() {
        let relayed = [
            direct(taken(4, Some((4, 3))), given(4, Some(4))),
            direct(taken(4, Some((4, 1))), given(4, Some(4))),
        ];
        let counts = counts(given(9, None), &relayed, taken(4, Some((4, 1))));
        assert_eq!(counts, [(4, 3, 2), (4, 0, 0), (4, 0, 0)]);
    }

    #[test]
    fn a_failure_that_another_came_before_is_of_no_effect() {
        let relayed = [
            direct(taken(6, Some((6, 1))), given(6, Some(6))),
            direct(taken(2, Some((2, 1))), given(2, Some(2))),
        ];
        let counts = counts(given(8, None), &relayed, taken(2, Some((2, 1))));
        assert_eq!(counts, [(6, 0, 2), (2, 1, 3), (2, 0, 0)]);
    }

    #[test]
    fn a_run_that_was_stopped_has_no_failure() {
        let relayed = [direct(taken(6, Some((6, 1))), given(6, Some(6)))];
        let counts = counts(given(8, None), &relayed, taken(3, None));
        assert_eq!(counts, [(6, 0, 2), (3, 0, 3)]);
    }

    /// Three images of ten tiles. A tile of the second is skipped, and that image with it.
    #[test]
    fn the_input_is_counted_in_parents() {
        let expands =
            Relayed { kind: LinkKind::Expands, ..direct(taken(3, None), given(30, None)) };
        let gathered = Taken { skipped: 1, ..taken(29, None) };
        let gathers = Relayed {
            kind: LinkKind::Gathers,
            parents_failed: 1,
            ..direct(gathered, given(2, None))
        };
        let whole = accounts(given(3, None), &[expands, gathers], taken(2, None)).whole;
        assert_eq!((whole.ok, whole.failed, whole.cancelled), (2, 1, 0));
    }

    /// A batch of four tiles ends the run in the second image.
    #[test]
    fn a_failure_among_parts_is_one_of_the_input() {
        let expands =
            Relayed { kind: LinkKind::Expands, ..direct(taken(3, None), given(30, None)) };
        let gathers = Relayed {
            kind: LinkKind::Gathers,
            ..direct(taken(12, Some((12, 4))), given(1, Some(1)))
        };
        let whole = accounts(given(3, None), &[expands, gathers], taken(1, Some((1, 1)))).whole;
        assert_eq!((whole.ok, whole.failed, whole.cancelled), (1, 1, 1));
    }
}

//! What an engine reports of its runs.

use std::sync::Arc;
#[cfg(all(feature = "nats", target_os = "linux"))]
use std::time::Duration;

use super::pool::Engine;
use crate::base::Measure;
use crate::concurrency::lock;
use crate::device::{Devices, models};
use crate::engine::consume::SkippedItem;
use crate::error::{Error, text_of};
use crate::observe::account::Account;
use crate::observe::batch_choice::BatchChoice;
use crate::observe::event::{Event, ProducerTotals, Totals};
use crate::observe::event_log::EventLog;
use crate::observe::report::{Ending, ProducerReport, RunReport, leave_out_vacant};
use crate::observe::run_stats::{CollectorTime, ProducerTime};
use crate::observe::worker_report::{WorkerReport, seat_name};
use crate::producers::Producers;
use crate::run::Run;
use crate::run::handover::shared_budget::StageBudget;
use crate::run::lost_producer::Abandoned;
use crate::run::lost_producer::LostProducer;

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
        for (producer, took) in producers.inits().into_iter().enumerate() {
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
        let live = self.session.as_ref().map(|it| it.counts.account(self.account.unread));
        live.unwrap_or(self.account)
    }

    pub(crate) fn ceilings(&self) -> Vec<Option<u64>> {
        self.producers.as_ref().map_or_else(Vec::new, Producers::ceilings)
    }

    /// Keeps the errors of skipped items.
    pub(super) fn keep(&mut self, failures: Vec<SkippedItem>) {
        self.failures = failures.into_iter().map(|skipped| skipped.error).collect();
    }

    /// The errors of items skipped in the last run: the first of them.
    pub(crate) fn failures(&self) -> &[Error] {
        &self.failures
    }

    /// Reports that a run ended with this error before any producer took part.
    pub(super) fn refuse(&self, error: &Error) {
        let totals = Totals {
            account: self.account,
            error: Some(text_of(error).to_string()),
            cancelled: error.is_cancelled(),
            ..Totals::default()
        };
        self.event_log.tell(Event::RunEnded { totals: Arc::new(totals) });
    }

    /// The totals of a run. The account and the losses must be up to date. `pipeline` is the account of all stages, if
    /// this is the last.
    pub(super) fn totals(
        &self,
        run: &Run<I, T>,
        pipeline: Option<Account>,
        error: Option<&Error>,
    ) -> Totals {
        let stats = &run.handover.stats;
        let CollectorTime { window, present, init, waited, stalled, heads, .. } = stats.collector();
        let (source_working, source_waiting) = stats.source();
        let (origin, destination) = stats.ends();
        let consumer_working = present.saturating_sub(waited + stalled);
        Totals {
            account: self.account,
            pipeline,
            lasted: run.event_log.elapsed(),
            error: error.map(|error| text_of(error).to_string()),
            cancelled: error.is_some_and(Error::is_cancelled),
            start_up: stats.start_up(),
            consumer_init: init,
            window,
            window_limit: self.window().most_behind_head() as u64,
            window_memory: self
                .run_settings
                .measures
                .as_ref()
                .and_then(|it| it.most(Measure::Memory))
                .filter(|_| run.handover.permits.memory().is_some_and(StageBudget::was_full)),
            producers: (0..self.settings.devices.len())
                .map(|producer| self.producer_totals(run, producer))
                .collect(),
            origin,
            destination,
            source_working,
            source_waiting,
            consumer_working,
            consumer_waiting: waited,
            head_stalled: stalled,
            worst_heads: heads.into_worst(),
            consumer_abandoned: stats.is_consumer_abandoned(),
            splits: stats.splits(),
        }
    }

    fn producer_totals(&self, run: &Run<I, T>, producer: usize) -> ProducerTotals {
        let stats = &run.handover.stats;
        let (worker, all) = (stats.worker(producer), stats.producer(producer));
        let ProducerTime { failed, waited, rebuilds, recycling, .. } = all;
        let of_crew = |known: fn(&Producers<I, T>) -> Vec<Option<u64>>| {
            self.producers
                .as_ref()
                .and_then(|producers| known(producers).get(producer).copied().flatten())
        };
        let own_init = || self.producers.as_ref().map(|producers| producers.inits()[producer]);
        let init = all.seat.map(|seat| seat.init).or_else(own_init).unwrap_or_default();
        let loss = self.gone.get(producer).or_else(|| self.abandoned.get(producer));
        let place = match (&worker, self.factory().has_seats()) {
            (Some(WorkerReport { host: Some(host), .. }), true) => Some(seat_name(host, producer)),
            (_, true) => None,
            (_, false) => self.settings.devices.place(producer).map(ToString::to_string),
        };
        ProducerTotals {
            place: place.unwrap_or_default(),
            items: all.items(),
            failed,
            init,
            states_lost: rebuilds.states_lost,
            rebuilds: rebuilds.inits,
            rebuilding: rebuilds.took,
            working: all.working(),
            waiting: waited.all,
            held_up: waited.for_permits,
            backing_off: waited.for_retries,
            batch_ceiling: of_crew(Producers::ceilings),
            batch_size: run.handover.dispatch.chosen_size(producer).map(BatchChoice::new),
            quarantined: loss.map(|loss| loss.reason.to_string()),
            abandoned: loss.is_some_and(|loss| loss.abandoned == Abandoned::Yes),
            recycles: recycling.states,
            recycling: recycling.took,
            replacements: all.replacements,
            worker,
        }
    }

    /// The report of the last run, or of the one in progress.
    pub(crate) fn report(&self) -> RunReport {
        report_of(&self.event_log, &self.settings.devices)
    }

    /// Returns the report of a service up to the present. The times of its producers are read here, since they are recorded
    /// only at the end. `reason` says why the service has ended, if it was not closed.
    pub(super) fn report_up_to_now(&self, run: &Run<I, T>, reason: Option<&Error>) -> RunReport {
        let mut report = lock(self.event_log.recorder()).report_with_vacant();
        report.provenance.devices = models(&self.settings.devices);
        let totals: Vec<_> =
            (0..report.producers.len()).map(|it| self.producer_totals(run, it)).collect();
        report.lasted = run.event_log.elapsed();
        for (it, totals) in report.producers.iter_mut().zip(&totals) {
            *it = ProducerReport {
                latency: it.latency.take(),
                // The engine learns of losses at the end.
                quarantined: it.quarantined.take(),
                abandoned: it.abandoned,
                ..ProducerReport::new(totals, report.lasted)
            };
        }
        if let Some(reason) = reason {
            report.ending = if reason.is_cancelled() { Ending::Cancelled } else { Ending::Failed };
            report.error = Some(text_of(reason).to_string());
            report.conclusion.clear();
        }
        leave_out_vacant(&mut report);
        report
    }

    /// Returns the times of each producer so far, with the duration of its last `producer_init`.
    #[cfg(all(feature = "nats", target_os = "linux"))]
    pub(super) fn times_up_to_now(&self, run: &Run<I, T>) -> Vec<(ProducerTime, Duration)> {
        let inits = self.producers.as_ref().map(Producers::inits).unwrap_or_default();
        let times = |(producer, init)| (run.handover.stats.producer(producer), init);
        inits.into_iter().enumerate().map(times).collect()
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
    report.quote_larger_window();
    report
}

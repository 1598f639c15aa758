//! How a run handles items that fail and producers that are lost.

use std::ops::Range;
use std::sync::Arc;

use gangline_report::Failure;
use gangline_scheduler::{
    Absence, Decision, FailureFacts, FailureVerdict, Inputs, OnError, SchedulerEvent,
    TooFewProducers,
};

use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::lock;
use crate::device::Devices;
use crate::error::{Error, Site, text_of};
use crate::observe::event::Event;
use crate::observe::event_log::EventLog;
use crate::policy::Verdict;
use crate::run::Run;
use crate::run::lost_producer::{Abandoned, ItemTimeouts, LostProducer};
use crate::run::no_output::{FailedItem, NoOutput};
use crate::run::parts::ItemPath;
use crate::run::run_state::RunState;

/// Failed items, to be delivered.
pub(crate) type FailedItems = Vec<(u64, Box<NoOutput>)>;

impl<I, T> Run<I, T> {
    /// Handles the failure of an untracked item on this producer. `copy` is its input, for another attempt.
    pub(crate) fn fail_untracked(
        &self,
        seq: u64,
        error: Error,
        producer: usize,
        copy: Option<I>,
    ) -> Option<Box<NoOutput>> {
        self.handover.dispatch.schedule(|state, _| {
            copy.into_iter().for_each(|copy| _ = state.inputs.insert(seq, copy, 1));
            state.scheduler.adopt(seq, producer);
        });
        self.fail_items(&[seq], error, producer).pop().map(|(_, fault)| fault)
    }

    /// Handles items that failed with one error on a producer. Returns the failures to deliver.
    ///
    /// There are none if the items are tried again, or if the run no longer wants them. In the latter case
    /// the hook may have failed because it saw the end of the run.
    pub(crate) fn fail_items(&self, items: &[u64], error: Error, producer: usize) -> FailedItems {
        let first = items[0];
        if self.wanted.gave_up_on(Some(first)) {
            self.decide(items, Verdict::Stop);
            drop_quietly(error);
            return vec![];
        }
        if items.iter().all(|&item| self.is_withdrawn(item)) {
            return self.withdraw(items, error);
        }
        self.handover.stats.producer_failed(producer, items.len() as u64);
        let mut error = self.named(error);
        let asked = self.ask(&mut error);
        match self.decide(items, asked) {
            Decision::Discard => {
                drop_quietly(error);
                vec![]
            }
            Decision::Retry(_) => {
                items.iter().for_each(|&item| self.report_retry(item, &error));
                self.keep_timeout(error);
                vec![]
            }
            Decision::Fail => {
                let (error, numbers) = self.tell_failed(items, error);
                self.fail(first);
                vec![(first, NoOutput::ending(error).numbered(numbers))]
            }
            Decision::Skip => self.skip_all(items, error),
        }
    }

    /// Settles parts of failed parents: a hook may have failed because it saw that.
    fn withdraw(&self, items: &[u64], error: Error) -> FailedItems {
        drop_quietly(error);
        match self.decide(items, Verdict::Skip) {
            Decision::Discard => vec![],
            _ => items.iter().map(|&item| (item, withdrawn())).collect(),
        }
    }

    /// Asks the scheduler what to do with failed items. Drops the copies of items that are not tried again.
    fn decide(&self, items: &[u64], asked: Verdict) -> Decision {
        let verdict = match asked {
            Verdict::Retry => FailureVerdict::Retry,
            Verdict::RetryHere => FailureVerdict::RetryHere,
            Verdict::Skip => FailureVerdict::Skip,
            Verdict::Stop => FailureVerdict::Fail,
        };
        let ((decision, spare), _) = self.handover.dispatch.schedule(|state, now| {
            let has_copy =
                |&item: &u64| state.inputs.has(item) || !state.scheduler.items().is_undecided(item);
            let inputs = if items.iter().all(has_copy) { Inputs::Copied } else { Inputs::Gone };
            let failure = FailureFacts { verdict, inputs };
            let decision = state.scheduler.decide(items, failure, now);
            let spare: Vec<_> = match decision {
                Decision::Retry(_) => vec![],
                _ => items.iter().flat_map(|&item| state.inputs.remove(item)).collect(),
            };
            (decision, spare)
        });
        spare.into_iter().for_each(drop_quietly);
        decision
    }

    /// Fails the run at an item, unless it has failed at an earlier one.
    pub(crate) fn end_with(&self, seq: u64, error: Error) -> Option<Box<NoOutput>> {
        if self.wanted.gave_up_on(Some(seq)) {
            drop_quietly(error);
            return None;
        }
        let fault = self.ending(self.named(error));
        self.fail(seq);
        Some(fault)
    }

    /// Fails items of an abandoned producer.
    pub(crate) fn fail_from_aside(&self, items: &[u64], error: Error, producer: usize) {
        for (seq, fault) in self.fail_items(items, error, producer) {
            self.handover.deliver_aside(seq, Err(fault));
            if self.is_service() {
                self.remove_name(seq);
            }
        }
    }

    /// Aborts the run with an error that no item's result carries. The first such error is kept.
    pub(crate) fn abort_with(&self, error: Error) {
        let items = error.items().to_vec();
        // Before the lock: the text of an error is user code.
        let (error, numbers) = match items.is_empty() {
            true => (error, 0..0),
            false => self.tell_failed(&items, error),
        };
        let spare = self.fatal_error.keep(error, numbers);
        self.abort();
        drop_quietly(spare);
    }

    /// Handles the scheduler's events after a call of a producer.
    pub(crate) fn heed(&self, events: Vec<SchedulerEvent>) {
        for event in events {
            match event {
                SchedulerEvent::Quarantined(producer) => {
                    let reason = "it failed items in a row that other producers were done with";
                    self.note_loss(producer, reason.into(), Abandoned::No);
                }
                SchedulerEvent::TooFewProducers { live: here } => {
                    let least = self.least_producers();
                    self.abort_with(Error::TooFewProducers { here, least, source: None });
                }
                other => unreachable!("only the deadline thread hears of {other:?}"),
            }
        }
    }

    /// Removes a producer that failed with an error of its own, not of an item. Returns the error if too few
    /// producers would be left: it then ends the run.
    pub(crate) fn lose(&self, producer: usize, error: Error) -> Result<(), Error> {
        let (lost, events) = self
            .handover
            .dispatch
            .schedule(|state, now| state.scheduler.producer_lost(producer, now));
        debug_assert!(events.is_empty(), "enough are left");
        match lost {
            Ok(()) => {
                self.note_loss(producer, text_of(&error), Abandoned::No);
                drop_quietly(error);
                Ok(())
            }
            Err(TooFewProducers { live }) => Err(self.too_few(live, error)),
        }
    }

    /// Keeps the timeout of an item that is tried again. Other errors are dropped.
    fn keep_timeout(&self, error: Error) {
        let item = match &error {
            Error::TimedOut { .. } => error.items().first().copied(),
            _ => None,
        };
        let Some(item) = item else { return drop_quietly(error) };
        let mut timeouts = lock(&self.timeouts);
        timeouts.insert(item, error);
        self.forget_settled(&mut timeouts);
    }

    fn forget_settled(&self, timeouts: &mut ItemTimeouts) {
        self.handover.dispatch.schedule(|state, _| {
            timeouts.forget_settled(&|item| state.scheduler.items().is_unsettled(item));
        });
    }

    /// The error of a run that has too few producers left after some were abandoned, given the errors of their
    /// hooks. Of several items that have timed out, the first in order is named.
    pub(crate) fn too_few_after(&self, live: usize, errors: Vec<Error>) -> Error {
        let mut timeouts = std::mem::take(&mut *lock(&self.timeouts));
        self.forget_settled(&mut timeouts);
        let mut of_init = None;
        for error in errors {
            match error.items().first() {
                Some(&item) => timeouts.insert(item, error),
                None => of_init = of_init.or(Some(error)),
            }
        }
        let error = timeouts.take_first().or(of_init);
        // Such a failure of an item does not end a run by itself, so it is only the source.
        let goes_on = |error: &Error| {
            self.policy().on_error == OnError::Skip
                || self.is_service()
                || self.policy().judge(error, Verdict::Retry) == Verdict::Retry
        };
        match error {
            Some(error) if !goes_on(&error) => self.too_few(live, error),
            source => {
                let least = self.least_producers();
                let source = source.map(|error| Box::new(self.in_stage(error)));
                Error::TooFewProducers { here: live, least, source }
            }
        }
    }

    /// The error of a run that lost a producer to `error`. If none is left, `error` alone says enough.
    fn too_few(&self, here: usize, error: Error) -> Error {
        let error = self.in_stage(error);
        match (here, self.least_producers()) {
            (0, 0 | 1) => error,
            (here, least) => Error::TooFewProducers { here, least, source: Some(Box::new(error)) },
        }
    }

    fn in_stage(&self, error: Error) -> Error {
        error.in_stage(self.in_line.stage + 1)
    }

    pub(crate) fn least_producers(&self) -> usize {
        self.policy().min_producers.unwrap_or(1)
    }

    pub(crate) fn note_loss(&self, producer: usize, reason: Arc<str>, abandoned: Abandoned) {
        let signals = &self.handover.dispatch.signals;
        tracing::warn!(producer = producer, %reason, "a producer takes no more items");
        self.event_log.tell(match abandoned {
            Abandoned::Yes => Event::ProducerAbandoned { producer },
            Abandoned::No => Event::ProducerQuarantined { producer, reason: reason.clone() },
        });
        let mut losses = lock(&self.losses);
        // It may have come back meanwhile, which removes its entry.
        if abandoned == Abandoned::No || signals.is_abandoned(producer) {
            losses.push(LostProducer { producer, reason, abandoned });
        }
    }

    /// The producers that no longer take part.
    pub(crate) fn losses(&self) -> Vec<LostProducer> {
        lock(&self.losses).clone()
    }

    /// Notes that the producer is in a hook that belongs to no item of this run.
    pub(crate) fn expect(&self, producer: usize, absence: Absence) {
        let ((), events) = self
            .handover
            .dispatch
            .schedule(|state, now| state.scheduler.expect(producer, absence, now));
        debug_assert!(events.is_empty(), "it is not late yet");
    }

    /// Notes that a producer has returned from the hook that it was expected or abandoned in. Returns whether it
    /// takes part.
    pub(crate) fn rejoin(&self, producer: usize) -> bool {
        let dispatch = &self.handover.dispatch;
        let (takes_part, _) = dispatch.schedule(|state, _| {
            // Under the lock, as it is abandoned.
            dispatch.signals.readmit(producer);
            state.scheduler.producer_joined(producer)
        });
        lock(&self.losses)
            .retain(|loss| loss.producer != producer || loss.abandoned == Abandoned::No);
        takes_part
    }
}

impl RunState {
    /// The first item fails with the error; each of the others fails with a reference to the first.
    fn skip_all(&self, items: &[u64], error: Error) -> FailedItems {
        let first = items[0];
        if self.is_service() && items.len() > 1 {
            // Each caller needs the whole error.
            let source = Arc::new(error);
            let fault = |&item: &u64| {
                let (key, source) = (self.name_of(item), Some(source.clone()));
                (item, NoOutput::skipped(Error::BatchFailed { item, first, key, source }))
            };
            return items.iter().map(fault).collect();
        }
        // Before they are delivered, so that no producer begins one of those behind them.
        if let Some(parts) = self.parts.get() {
            items.iter().for_each(|&item| parts.fail(item));
        }
        let is_wanted = |item: &u64| *item == first || !self.wanted.gave_up_on(Some(*item));
        let items: Vec<u64> = items.iter().copied().filter(is_wanted).collect();
        let (error, numbers) = self.tell_failed(&items, error);
        let others = items[1..].iter().map(|&item| self.failed_with(item, first));
        let errors = std::iter::once(error).chain(others);
        // In a service no failure has a number.
        let numbers = numbers.map(|number| number..number + 1).chain(std::iter::repeat(0..0));
        let fault = |((item, error), numbers)| (item, NoOutput::skipped(error).numbered(numbers));
        items.iter().copied().zip(errors).zip(numbers).map(fault).collect()
    }

    /// The error of an item that failed in a batch with the item `first`, which has the cause.
    fn failed_with(&self, item: u64, first: u64) -> Error {
        Error::BatchFailed { item, first, key: self.name_of(item), source: None }
    }

    /// A failure outside of the producers' hooks, which ends the run.
    pub(crate) fn ending(&self, error: Error) -> Box<NoOutput> {
        let items = error.items().to_vec();
        let (error, numbers) = self.tell_failed(&items, error);
        NoOutput::ending(error).numbered(numbers)
    }

    /// A failure of an item outside of the producers' hooks, which the run skips.
    pub(crate) fn skipping(&self, error: Error) -> Box<NoOutput> {
        let items = error.items().to_vec();
        let (error, numbers) = self.tell_failed(&items, error);
        NoOutput::skipped(error).numbered(numbers)
    }

    /// The policy's verdict on an error that is not a producer's.
    pub(crate) fn verdict(&self, error: &mut Error) -> Verdict {
        let asked = self.ask(error);
        self.policy().judge(error, asked)
    }

    /// The verdict of the user's rules. If a rule panics, the run stops, and the error reports the panic.
    fn ask(&self, error: &mut Error) -> Verdict {
        let verdict = catch(|| self.policy().ask(error)).unwrap_or_else(|message| {
            let failure = Box::new(std::mem::replace(error, Error::Cancelled {}));
            *error = Error::ClassifyPanicked { message, source: failure };
            Verdict::Stop
        });
        // In a service, an item that stops fails its own call.
        if self.is_service() && verdict == Verdict::Stop { Verdict::Skip } else { verdict }
    }

    /// Reports that an item, alone or of a failed batch, will be tried again.
    fn report_retry(&self, item: u64, error: &Error) {
        let mut failure = Arc::unwrap_or_clone(EventLog::failure(error));
        let alone = || ItemPath { item, key: self.name_of(item), part: None };
        let ItemPath { item, key, part } = self.part_of(item).unwrap_or_else(alone);
        failure.item = Some(item);
        failure.key = key.map(|key| key.to_string());
        failure.parts = part.into_iter().collect();
        self.event_log.tell(Event::ItemRetried { failure: Arc::new(failure) });
    }

    /// A producer and its first device.
    pub(crate) fn site_of(&self, producer: usize, devices: &Devices) -> Site {
        let device = devices.place(producer).and_then(|place| place.devices().first().copied());
        Site { device, producer: Some(producer), ..Site::default() }
    }

    /// Reports that items have failed for good with one error, at the end of their last attempt. Of items that
    /// failed together, the first has the error, and the others refer to it. Returns the error, and the numbers
    /// of the failures in the report.
    ///
    /// In a service the callers' answers report them.
    pub(crate) fn tell_failed(&self, items: &[u64], error: Error) -> (Error, Range<u64>) {
        if self.is_service() {
            return (error, 0..0);
        }
        let Some((&first, others)) = items.split_first() else {
            let failure = Arc::unwrap_or_clone(EventLog::failure(&error));
            return (error, self.event_log.tell_failures(vec![failure]));
        };
        let (mut failure, error) = self.describe(first, error);
        if failure.item.is_none() {
            failure.item = Some(first);
            failure.key = self.name_of(first).map(|name| name.to_string());
        }
        let others = others.iter().map(|&item| {
            let mut other = self.describe(item, self.failed_with(item, first)).0;
            other.hook.clone_from(&failure.hook);
            other.producer = failure.producer;
            other.device.clone_from(&failure.device);
            other.attempts = failure.attempts;
            other
        });
        let others: Vec<_> = others.collect();
        let failures = std::iter::once(failure).chain(others).collect();
        (error, self.event_log.tell_failures(failures))
    }

    /// Records that the consumer has come to a failed item. An item that failed in an earlier stage is in the report of
    /// that stage.
    pub(crate) fn failure_delivered(&self, failed: &FailedItem) {
        if failed.is_own() {
            self.event_log.failures_delivered(&failed.numbers);
        }
    }

    /// Describes the failure of an item for the report, a part by its parent. Returns the error too.
    fn describe(&self, item: u64, error: Error) -> (Failure, Error) {
        let Some(path) = self.part_of(item) else {
            return (Arc::unwrap_or_clone(EventLog::failure(&error)), error);
        };
        let of_part = path.failed(error);
        let failure = Arc::unwrap_or_clone(EventLog::failure(&of_part));
        let Error::PartFailed { source, .. } = of_part else { unreachable!("it was just made") };
        (failure, *source)
    }

    /// Takes the error that ended the run, if it was not the failure of an item.
    pub(crate) fn take_fatal_error(&self) -> Option<Error> {
        let (error, numbers) = self.fatal_error.take()?;
        self.event_log.failures_delivered(&numbers);
        Some(error)
    }

    pub(crate) fn has_fatal_error(&self) -> bool {
        self.fatal_error.is_set()
    }

    /// Whether the run has exceeded its timeout.
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub(crate) fn is_out_of_time(&self) -> bool {
        self.fatal_error.is_run_timeout()
    }
}

/// The outcome of a part after its parent has failed.
pub(crate) fn withdrawn() -> Box<NoOutput> {
    Box::new(NoOutput::Withdrawn)
}

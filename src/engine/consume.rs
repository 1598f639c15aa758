//! The consumer's thread of one run.

use std::sync::Arc;
use std::time::Instant;

use gangline_scheduler::window::Window;

use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::cfg::CfgNode;
use crate::concurrency::now;
use crate::engine::collector::{Collector, CollectorPause};
use crate::engine::pool::Engine;
use crate::engine::reckoning::{ReceiverEnd, ReceiverKind, Reckoning};
use crate::error::{Error, Hook, Site, text_of};
use crate::journal::JournalOutcome;
use crate::policy::Verdict;
use crate::run::Run;
use crate::run::abort_guard::AbortGuard;
use crate::run::call::call;
use crate::run::no_output::{CountingStage, Effect, FailedItem, NO_PARTS, NoOutput};
use crate::run::outbox::Outcome;
use crate::run::run_shape::Rebuilt;
use crate::run::taken::{RunFailure, Taken};
use crate::runner::{ConsumerContext, Runner};

/// The result of a run, as the consumer reports it.
pub(crate) struct Consumed<S> {
    pub(crate) result: Result<S, Error>,
    pub(crate) taken: Taken,
    /// The skipped items: the first [`MOST_FAILURES`].
    pub(crate) failures: Vec<SkippedItem>,
}

/// An item that was skipped, in this stage or an earlier one.
pub(crate) struct SkippedItem {
    pub(crate) error: Error,
    /// The number of stages between the one where it failed and the consumer's.
    pub(crate) passed_on: usize,
    /// Its index in the input, if items keep their identity through the stages.
    pub(crate) input: Option<u64>,
}

/// The maximum number of errors kept of a run, so that a million bad items do not fill the memory.
pub(crate) const MOST_FAILURES: usize = 10_000;

/// Consumes a whole run. Calls the function that it is given when input may be pulled.
pub(crate) type Consume<S> = Box<dyn FnOnce(&dyn Fn()) -> Consumed<S> + Send>;

/// Makes the consumer of a run. So the drivers know its summary, and not the type of its runner.
pub(crate) type MakeConsumer<I, T, S> = fn(&Engine<I, T>, Arc<Run<I, T>>, Rebuilt) -> Consume<S>;

/// The consumer of one run.
struct Consumer<R: Runner> {
    runner: Arc<R>,
    cfg: Arc<CfgNode>,
    run: Arc<Run<R::Input, R::Output>>,
    collector: Collector<R::Output>,
    reckoning: Reckoning,
    failures: Vec<SkippedItem>,
    journal_state: JournalState,
    /// Whether each consumed item must be reported to the journal, the names, the run timeout or an observer.
    is_watched: bool,
    /// Whether others read the counts before the end.
    is_published: bool,
}

/// Whether consumed items may be committed to the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum JournalState {
    Sound,
    /// Nothing more is committed: a commit failed, or a hook of the consumer panicked and its state cannot be
    /// trusted. After a failed `sync`, a second one may report success although the data is lost.
    Spoilt,
}

/// Why consuming ended without an error.
enum ConsumeEnd {
    /// All results are consumed, or the consumer has stopped the run.
    Complete,
    Cancelled,
}

impl<R: Runner> Consumer<R> {
    fn new(
        runner: Arc<R>,
        cfg: Arc<CfgNode>,
        run: Arc<Run<R::Input, R::Output>>,
        order: Order,
        window: Window,
    ) -> Self {
        let collector = Collector::new(&run.handover, order, window, Instant::now());
        let (failures, journal_state) = (vec![], JournalState::Sound);
        let reckoning = Reckoning::new(ReceiverKind::Last);
        let (is_watched, is_published) = (run.is_watched(), run.run_settings.limits.run.is_some());
        Consumer {
            runner,
            cfg,
            run,
            collector,
            is_watched,
            is_published,
            reckoning,
            failures,
            journal_state,
        }
    }

    /// Publishes the counts after each item: a task that gives the run up does not wait for the end.
    fn publish_counts(self) -> Self {
        Consumer { is_watched: true, is_published: true, ..self }
    }

    /// Consumes the whole run. Calls `start` when input may be pulled.
    fn consume(mut self, start: impl FnOnce()) -> Consumed<R::Summary> {
        let run = self.run.clone();
        let (over, span) = (AbortGuard::new(&run), run.spans.enter());
        let result = self.summarise(start);
        drop(span);
        drop(over);
        self.collector.leave(&run.handover).into_iter().for_each(drop_quietly);
        Consumed { result, taken: self.reckoning.taken, failures: self.failures }
    }

    fn summarise(&mut self, start: impl FnOnce()) -> Result<R::Summary, Error> {
        let since = now();
        let state = self.init();
        self.collector.begin(&self.run.handover, since);
        let mut state = state?;
        if !self.run.is_cancelled() && !self.run.is_stopped() {
            start();
        }
        match self.consume_all(&mut state) {
            Ok(ConsumeEnd::Complete) => self.end(state),
            Ok(ConsumeEnd::Cancelled) => {
                self.save(&mut state, None);
                drop_quietly(state);
                Err(Error::Cancelled {})
            }
            Err(error) => {
                self.save(&mut state, Some(&error));
                drop_quietly(state);
                Err(error)
            }
        }
    }

    fn consume_all(&mut self, state: &mut R::ConsumerState) -> Result<ConsumeEnd, Error> {
        let mut total = None;
        let journal_writer = self.run.journal_writer().cloned();
        let due = || journal_writer.as_ref().and_then(|journal_writer| journal_writer.due_at());
        loop {
            while let Some((seq, outcome)) = self.collector.next_here(&self.run) {
                self.consume_one(state, seq, outcome)?;
            }
            match self.collector.wait_before(&self.run, &mut total, due) {
                CollectorPause::Results => {}
                CollectorPause::Due => self.commit(state)?,
                CollectorPause::Over => break,
            }
        }
        let keeps_last = self.failures.len() < MOST_FAILURES;
        let last = || if keeps_last { self.failures.pop().map(|last| last.error) } else { None };
        match self.reckoning.end(&self.run, self.collector.consumed(), total, last) {
            ReceiverEnd::Cancelled => Ok(ConsumeEnd::Cancelled),
            ReceiverEnd::Failed(error) => Err(error),
            // The consumer has stopped the run if results are left.
            ReceiverEnd::Complete | ReceiverEnd::Unwanted => {
                self.commit(state)?;
                Ok(ConsumeEnd::Complete)
            }
        }
    }

    fn consume_one(
        &mut self,
        state: &mut R::ConsumerState,
        seq: u64,
        outcome: Outcome<R::Output>,
    ) -> Result<(), Error> {
        let output = match outcome {
            Ok(output) => output,
            Err(none) => return self.meet(state, seq, *none),
        };
        let work = |cx: &ConsumerContext<'_>| self.runner.consumer_work(cx, state, output);
        match self.call(Hook::ConsumerWork, Some(seq), work) {
            Ok(()) => {
                self.reckoning.taken.ok += 1;
                if self.is_watched {
                    self.note(state, seq)?;
                }
                self.collector.done(&self.run.handover);
                Ok(())
            }
            Err(error) => self.meet_own(state, seq, *error),
        }
    }

    /// Reports and records a consumed item. Kept out of line, since most runs need neither, and a run without
    /// work spends its time in the loop over results.
    #[cold]
    #[inline(never)]
    fn note(&mut self, state: &mut R::ConsumerState, seq: u64) -> Result<(), Error> {
        self.publish();
        if self.run.record(seq, JournalOutcome::Done) {
            self.commit(state)?;
        }
        self.run.remove_name(seq);
        Ok(())
    }

    /// Calls a hook. Its note counts if it returns `Ok`.
    #[inline]
    fn call<T>(
        &self,
        hook: Hook,
        seq: Option<u64>,
        f: impl FnOnce(&ConsumerContext<'_>) -> crate::error::Result<T>,
    ) -> Result<T, Box<Error>> {
        let cx = ConsumerContext::new(&self.cfg, &*self.run, seq);
        let site = || Site { items: seq.into_iter().collect(), ..Site::default() };
        let outcome = call(hook, site, || f(&cx));
        if self.is_watched {
            self.settle_draft(outcome.is_ok());
        }
        outcome
    }

    /// Accepts the note of a hook that succeeded, or discards it.
    #[cold]
    #[inline(never)]
    fn settle_draft(&self, went_well: bool) {
        match self.run.journal_writer() {
            Some(journal_writer) if went_well => journal_writer.adopt_draft(),
            Some(journal_writer) => journal_writer.drop_draft(),
            None => {}
        }
    }

    /// Handles a failure of the consumer itself at an item. After a panic, its state cannot be trusted.
    #[cold]
    #[inline(never)]
    fn meet_own(
        &mut self,
        state: &mut R::ConsumerState,
        seq: u64,
        error: Error,
    ) -> Result<(), Error> {
        if error.is_panic() {
            self.journal_state = JournalState::Spoilt;
        }
        let mut error = self.run.named(error);
        // A hook may fail because it saw the end of the run, or caused it. That is not a skipped item.
        let is_aborted = self.run.is_cancelled() || self.run.has_fatal_error();
        let is_over = is_aborted || self.run.is_stopped();
        let goes_on =
            !error.is_panic() && !is_over && self.run.verdict(&mut error) == Verdict::Skip;
        let failed = match goes_on {
            true => self.run.skipping(error),
            // The run ends with another error.
            false if is_aborted => NoOutput::ending(error),
            false => self.run.ending(error),
        };
        self.meet(state, seq, *failed)
    }

    /// Handles an index without an output in its turn.
    #[cold]
    #[inline(never)]
    fn meet(
        &mut self,
        state: &mut R::ConsumerState,
        seq: u64,
        none: NoOutput,
    ) -> Result<(), Error> {
        match none {
            NoOutput::Failed(failed) => match failed.effect {
                Effect::Ends => Err(self.end_with(seq, failed)),
                Effect::Skipped => self.skip(state, seq, failed),
            },
            NoOutput::Done { counted_by } => self.pass_done(state, counted_by),
            NoOutput::Withdrawn | NoOutput::Mark(_) => unreachable!("{NO_PARTS}"),
        }
    }

    /// Ends the run at a failure.
    fn end_with(&mut self, seq: u64, failed: FailedItem) -> Error {
        if !self.run.is_cancelled() {
            self.reckoning.fail(&self.run, seq, &failed);
        }
        self.fail(RunFailure { seq, items: failed.items() }, failed.error)
    }

    fn pass_done(
        &mut self,
        state: &mut R::ConsumerState,
        counted_by: CountingStage,
    ) -> Result<(), Error> {
        self.reckoning.done(&self.run, counted_by);
        self.publish();
        self.collector.done_without_work(&self.run.handover);
        // Checked here because a long row of done items has neither records nor waits, which check otherwise.
        let is_due =
            self.run.journal_writer().is_some_and(|journal_writer| journal_writer.is_due());
        if is_due { self.commit(state) } else { Ok(()) }
    }

    fn skip(
        &mut self,
        state: &mut R::ConsumerState,
        seq: u64,
        failed: FailedItem,
    ) -> Result<(), Error> {
        self.reckoning.fail(&self.run, seq, &failed);
        self.publish();
        let input = self.run.input_of(seq);
        let FailedItem { error, passed_on, .. } = failed;
        let stage = self.run.in_line.failed_stage(passed_on);
        let tell = |cx: &ConsumerContext<'_>| {
            self.runner.consumer_skipped(&cx.of_failure(stage), state, &error)
        };
        let told = self.call(Hook::ConsumerSkipped, Some(seq), tell);
        if let Err(failed) = told {
            if failed.is_panic() {
                self.journal_state = JournalState::Spoilt;
            }
            // The item itself is already counted.
            let failed = self.fail(RunFailure { seq, items: 0 }, *failed);
            self.keep(SkippedItem { error, passed_on, input });
            return Err(failed);
        }
        // Recorded even if this failure is one too many: the note of `consumer_skipped` must be committed
        // with it.
        let is_due = self.run.record(seq, JournalOutcome::Failed);
        if self.reckoning.gives_up(&self.run) {
            let error = self.reckoning.too_many(&self.run, seq, Some(error));
            return Err(self.fail(RunFailure { seq, items: 0 }, error));
        }
        self.run.remove_name(seq);
        self.collector.done(&self.run.handover);
        self.keep(SkippedItem { error, passed_on, input });
        if is_due { self.commit(state) } else { Ok(()) }
    }

    /// Calls `consumer_flush`, then commits the records and the note.
    #[cold]
    #[inline(never)]
    fn commit(&mut self, state: &mut R::ConsumerState) -> Result<(), Error> {
        let Some(journal_writer) =
            self.run.journal_writer().filter(|journal_writer| journal_writer.has_news()).cloned()
        else {
            return Ok(());
        };
        let since = now();
        let flush = |cx: &ConsumerContext<'_>| self.runner.consumer_flush(cx, state);
        let committed = self
            .call(Hook::ConsumerFlush, None, flush)
            .map_err(|error| *error)
            .and_then(|()| Ok(journal_writer.commit()?));
        self.collector.note_written(now() - since);
        committed.map_err(|error| {
            self.journal_state = JournalState::Spoilt;
            let seq = self.collector.consumed();
            self.fail(RunFailure { seq, items: 0 }, error)
        })
    }

    /// Commits what was consumed although the run fails, so that it need not be done again. Not if the input
    /// does not belong to the journal.
    fn save(&mut self, state: &mut R::ConsumerState, error: Option<&Error>) {
        let is_of_other_input = matches!(error, Some(Error::Journal { .. }));
        if self.journal_state == JournalState::Spoilt || is_of_other_input {
            return;
        }
        let failure = self.reckoning.taken.failure;
        if let Err(error) = self.commit(state) {
            let text = text_of(&error);
            tracing::warn!(%text, "what was consumed could not be committed to the journal");
            drop_quietly(error);
        }
        self.reckoning.taken.failure = failure;
    }

    /// Publishes the counts, which are read if this consumer is abandoned or a task gives the run up.
    #[inline]
    fn publish(&self) {
        self.reckoning.publish(&self.run);
        if self.is_published {
            self.run.tally.set(self.reckoning.taken);
        }
    }

    fn keep(&mut self, skipped: SkippedItem) {
        if self.failures.len() < MOST_FAILURES {
            self.failures.push(skipped);
        } else {
            drop_quietly(skipped.error);
        }
    }

    fn fail(&mut self, failure: RunFailure, error: Error) -> Error {
        // Abort first: nothing may be pulled once an item has failed.
        self.run.abort();
        if self.run.is_cancelled() {
            self.reckoning.taken.failure = None;
            drop_quietly(error);
            return Error::Cancelled {};
        }
        if let Some(fatal_error) = self.take_fatal_error() {
            drop_quietly(error);
            return fatal_error;
        }
        self.reckoning.taken.failure = Some(failure);
        error
    }

    /// Takes the error that ends the run and that no result carries, if there is one.
    fn take_fatal_error(&mut self) -> Option<Error> {
        self.reckoning.take_fatal_error(&self.run, self.collector.consumed())
    }

    fn init(&mut self) -> Result<R::ConsumerState, Error> {
        let init = |cx: &ConsumerContext<'_>| self.runner.consumer_init(cx);
        let outcome = self.call(Hook::ConsumerInit, None, init);
        outcome.map_err(|error| self.given_up(*error))
    }

    fn end(&mut self, state: R::ConsumerState) -> Result<R::Summary, Error> {
        let end = |cx: &ConsumerContext<'_>| self.runner.consumer_end(cx, state);
        let outcome = self
            .call(Hook::ConsumerEnd, None, end)
            .map_err(|error| *error)
            .and_then(|summary| self.commit_last_note().map(|()| summary));
        outcome.map_err(|error| self.given_up(error))
    }

    /// Replaces the error of a hook that failed because it was asked to give up.
    fn given_up(&mut self, error: Error) -> Error {
        let asked = match self.run.is_cancelled() {
            true => Error::Cancelled {},
            false => match self.take_fatal_error() {
                Some(fatal_error) => fatal_error,
                None => return error,
            },
        };
        drop_quietly(error);
        asked
    }

    /// Commits the note of `consumer_end`. Everything else is committed already.
    fn commit_last_note(&self) -> Result<(), Error> {
        match self.run.journal_writer().filter(|journal_writer| journal_writer.has_news()) {
            Some(journal_writer) => Ok(journal_writer.commit()?),
            None => Ok(()),
        }
    }
}

/// Makes the consumer of a run of an engine, which was made of an `R`.
pub(crate) fn consumer_of<R: Runner + 'static>(
    engine: &Engine<R::Input, R::Output>,
    run: Arc<Run<R::Input, R::Output>>,
    rebuilt: Rebuilt,
) -> Consume<R::Summary> {
    let (runner, cfg) = (engine.factory().shared_runner::<R>(), engine.cfg.clone());
    let consumer = Consumer::new(runner, cfg, run, engine.settings.order, engine.window());
    let consumer = match rebuilt {
        Rebuilt::Before => consumer,
        Rebuilt::Later => consumer.publish_counts(),
    };
    Box::new(|start| consumer.consume(start))
}

impl<S> Consumed<S> {
    /// Drops the result of an abandoned consumer.
    pub(super) fn discard(self) {
        drop_quietly(self.result);
        self.failures.into_iter().for_each(|skipped| drop_quietly(skipped.error));
    }

    /// Stands in for the result of an abandoned consumer.
    pub(crate) fn abandoned<I, T>(run: &Run<I, T>) -> Self {
        run.handover.stats.leave_consumer_behind();
        let taken = run.tally.get();
        // `None` if the consumer had taken the error before its hook got stuck.
        let error = run.take_fatal_error().unwrap_or_else(|| Error::RunTimedOut {
            limit: run.run_settings.limits.run.expect("only that limit leaves a consumer behind"),
        });
        let failure = taken.failure.or_else(|| Some(RunFailure::ending(&taken, &error)));
        Consumed { result: Err(error), taken: Taken { failure, ..taken }, failures: vec![] }
    }
}

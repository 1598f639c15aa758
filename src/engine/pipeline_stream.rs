//! The outputs of a pipeline in progress.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;
use std::time::Instant;

use super::collector::Collector;
use super::consuming::SkippedItem;
use super::feed::{Pulled, Source};
use super::lineup::{Lineup, Watched};
use super::link::{NextItem, Relayed};
use super::pipeline_totals::{self, Accounts, PipelineRun, accounts};
use super::session::Engine;
use super::stages::{Front, Stages, begin};
use super::streaming::{FeedingTime, Yield};
use crate::backend::threads::failed_item::{Disposition, FailedItem};
use crate::backend::threads::handover::WakeReason;
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_shape::{Rebuilt, RunKind};
use crate::backend::threads::taken::{Failure, Taken};
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::cancel::Interrupt;
use crate::error::Error;
use crate::observe::event::Destination;
use crate::runner::Runner;
use crate::scheduler::window::Window;

/// The outputs of a pipeline in progress. The caller's thread is the feeder of the first stage and the collector
/// of the last. The sessions are kept by the engines, so that a leaked stream can still be ended.
pub(crate) struct PipelineStream<R: Runner, S: Runner> {
    first: Arc<Run<R>>,
    last: Arc<Run<S>>,
    feeder: Feeder<R::Input, R::Output>,
    collector: Collector<S::Output>,
    links: Vec<JoinHandle<Relayed>>,
    /// Whether the input of the first stage has ended.
    is_fed: bool,
    /// The number of items of the last stage, once it is known.
    total: Option<u64>,
    taken: Taken,
    time: FeedingTime,
    /// Keeps the runs registered with the tokens.
    _all: Arc<dyn Interrupt>,
}

/// The remains of a stream that is over.
pub(super) struct Streamed {
    pub(super) relayed: Vec<Relayed>,
    pub(super) taken: Taken,
}

impl<R: Runner + 'static, S: Runner + 'static> PipelineStream<R, S> {
    pub(super) fn new(
        (first, last): (Arc<Run<R>>, Arc<Run<S>>),
        order: Order,
        window: Window,
        links: Vec<JoinHandle<Relayed>>,
        all: Arc<dyn Interrupt>,
    ) -> Self {
        // Weak, since each run of a row holds the one before it.
        let (fed, collected) = (Arc::downgrade(&first), Arc::downgrade(&last));
        let wake = move || with(&collected, |last| last.handover.wake_collector()).unwrap_or(());
        let is_ready = move || with(&fed, |first| first.handover.may_feed_again()).unwrap_or(false);
        first.handover.wake_feeder_with(wake);
        last.handover.collect_beside_feeder(is_ready);
        last.handover.stats.goes_to(Destination::Outputs);
        PipelineStream {
            feeder: Feeder::new(&first.handover),
            collector: Collector::new(&last.handover, order, window, Instant::now()),
            first,
            last,
            links,
            is_fed: false,
            total: None,
            taken: Taken::default(),
            time: FeedingTime::default(),
            _all: all,
        }
    }

    /// The next step of the stream; `None` after the last.
    pub(crate) fn next<I>(&mut self, source: &mut Source<I, R::Input>) -> Option<Yield<S::Output>> {
        let next = self.feed_until_next(source);
        self.time.end();
        next
    }

    fn feed_until_next<I>(&mut self, source: &mut Source<I, R::Input>) -> Option<Yield<S::Output>> {
        loop {
            if self.last.is_cancelled() {
                return Some(Yield::Last(Error::Cancelled {}));
            }
            if let Some(error) = self.last.take_fatal_error() {
                return Some(Yield::Last(self.fail_with(error)));
            }
            if let Some((seq, outcome)) = self.collector.pop() {
                if self.last.is_pointless(seq, &outcome) {
                    drop_quietly(outcome);
                    self.collector.done(&self.last.handover);
                    continue;
                }
                self.last.remove_name(seq);
                self.collector.done(&self.last.handover);
                return Some(match outcome {
                    Ok(output) => {
                        self.taken.ok += 1;
                        self.last.event_log.consumed(self.taken.ok);
                        Yield::Output(output)
                    }
                    Err(fault) => self.meet(seq, *fault),
                });
            }
            self.total = self.total.or_else(|| self.last.handover.total());
            if self.total == Some(self.collector.consumed()) {
                // Looked at again: a cancel of all stages ends the input of the last after its own cancel.
                return match self.last.is_cancelled() {
                    true => Some(Yield::Last(Error::Cancelled {})),
                    false => self.give_up_at_end(),
                };
            }
            self.collector.settle(&self.last.handover);
            if !self.pull(source) {
                let news = self.wait();
                self.collector.report_head(&self.last);
                self.last.check(news);
            }
        }
    }

    /// Handles a failed item in its turn.
    fn meet(&mut self, seq: u64, fault: FailedItem) -> Yield<S::Output> {
        if matches!(fault.disposition, Disposition::End | Disposition::Skip) {
            self.last.report_failure(&fault.error);
        }
        if fault.disposition.ends_run() {
            self.taken.failure = Some(Failure { seq, items: fault.items() });
            return Yield::Last(fault.error);
        }
        self.taken.skipped += fault.items();
        let (skipped, items) = (self.taken.skipped, self.taken.items());
        let policy = self.last.policy();
        match policy.gives_up_at(skipped, items) {
            true => Yield::Last(policy.too_many(skipped, items, Some(fault.error))),
            false => Yield::Skipped(fault.error),
        }
    }

    /// Ends with an error that was not met in its turn.
    fn fail_with(&mut self, error: Error) -> Error {
        let failure = Failure::ending(&self.taken, &error);
        if failure.items > 0 {
            self.last.report_failure(&error);
        }
        self.taken.failure = Some(failure);
        error
    }

    /// At most once: the error of too many failures ends the stream.
    fn give_up_at_end(&self) -> Option<Yield<S::Output>> {
        let (skipped, items) = (self.taken.skipped, self.taken.items());
        let policy = self.last.policy();
        policy
            .gives_up_at_end(skipped, items)
            .then(|| Yield::Last(policy.too_many(skipped, items, None)))
    }

    /// Pulls one item, if there is one and the window of the first stage has room.
    fn pull<I>(&mut self, source: &mut Source<I, R::Input>) -> bool {
        if self.is_fed {
            return false;
        }
        let pulled = if self.first.handover.is_halted() {
            // The results that are taken meanwhile make room for an item that was pulled before.
            if !self.feeder.may_end(&self.first.handover) {
                return false;
            }
            source.end(&self.first, &mut self.feeder);
            Pulled::End
        } else if self.feeder.has_permit(&self.first.handover) {
            self.time.begin();
            let _pulling = self.first.pulling();
            source.pull_one(&self.first, &mut self.feeder)
        } else {
            return false;
        };
        self.is_fed = matches!(pulled, Pulled::End);
        true
    }

    /// Waits for a result of the last stage or, while there is input, for room in the first.
    fn wait(&mut self) -> WakeReason {
        self.time.end();
        let due = self.collector.news_due_in(&self.last);
        if self.is_fed {
            return self.collector.wait(&self.last.handover, self.total, due);
        }
        let before = self.collector.waited();
        self.feeder.begin_to_wait_elsewhere(&self.first.handover);
        let news = self.collector.wait(&self.last.handover, self.total, due);
        self.first.handover.end_to_wait_elsewhere();
        let lasted = self.collector.waited() - before;
        self.time.note_wait(lasted);
        self.first.report_full_window(lasted);
        news
    }

    /// Ends all runs, waits for the links, and drops what is left. The sessions are over after that.
    pub(super) fn leave(self) -> Streamed {
        let PipelineStream { first, last, mut feeder, collector, links, taken, time, .. } = self;
        last.abort();
        let (present, waited, working) = time.totals();
        first.handover.stats.source_left(present, waited);
        feeder.take_held().into_iter().for_each(drop_quietly);
        // A bug of ours must not be hidden.
        let joined: Vec<_> = links.into_iter().map(JoinHandle::join).collect();
        let or_resume = |joined: std::thread::Result<Relayed>| {
            joined.unwrap_or_else(|payload| std::panic::resume_unwind(payload))
        };
        let relayed = joined.into_iter().map(or_resume).collect();
        collector.leave(&last.handover).into_iter().for_each(drop_quietly);
        last.handover.stats.collector_was_elsewhere(working);
        Streamed { relayed, taken }
    }
}

/// Calls `f` with a run that is still there.
fn with<R: Runner, T>(run: &Weak<Run<R>>, f: impl FnOnce(&Run<R>) -> T) -> Option<T> {
    run.upgrade().map(|run| f(&run))
}

impl<R: Runner + 'static, S: Runner + 'static> Stages<'_, R, S> {
    /// Begins a stream, which continues with [`next`](PipelineStream::next).
    pub(crate) fn begin_stream(
        &mut self,
        unread: Option<u64>,
    ) -> Result<PipelineStream<R, S>, Error> {
        self.before.reset(unread);
        self.last.reset(None);
        self.last_run = PipelineRun::idle(unread);
        self.try_begin_stream(unread).inspect_err(|error| {
            self.before.refuse(error);
            Engine::refuse(self.last, error);
        })
    }

    fn try_begin_stream(&mut self, unread: Option<u64>) -> Result<PipelineStream<R, S>, Error> {
        let later_cfgs = pipeline_totals::check(&self.engines())?;
        // An output handed to the caller is never known to be consumed.
        self.engines()[0].check_no_journal()?;
        let mut lineup = Lineup::new(unread, later_cfgs);
        let Front { first, upstream, join } = self.before.enlist(&mut lineup)?;
        let recording = lineup.recording();
        let last =
            self.last.new_run(lineup.next.items, RunKind::Stream, Some(upstream), recording)?;
        lineup.relays.push(join(last.clone()));
        let (order, window) = (self.last.settings().order, self.last.window());
        lineup.add(self.last, last.clone());
        lineup.limit(self.most_weight);

        let Watched { mut stages, relays, all } = lineup.watch()?;
        let mut links = Vec::with_capacity(relays.len());
        let begun = begin(&first, &last, &mut stages, Rebuilt::Before).and_then(|()| {
            relays.into_iter().try_for_each(|relay| relay.start().map(|link| links.push(link)))
        });
        stages.into_iter().for_each(|stage| stage.lend());
        let stream = PipelineStream::new((first, last), order, window, links, all);
        match begun {
            Ok(()) => Ok(stream),
            Err(error) => {
                let given = NextItem { unread, ..NextItem::default() };
                self.end_stream(stream, given, Some(&error));
                Err(error)
            }
        }
    }

    /// Ends a stream, with `error` if it did not succeed.
    pub(crate) fn end_stream(
        &mut self,
        stream: PipelineStream<R, S>,
        given: NextItem,
        error: Option<&Error>,
    ) {
        let Streamed { relayed, taken } = stream.leave();
        self.settle_lent(given, relayed, (taken, vec![]), error);
    }

    /// Settles the sessions that were lent to the engines, after all threads have left them.
    pub(super) fn settle_lent(
        &mut self,
        given: NextItem,
        mut relayed: Vec<Relayed>,
        (taken, failures): (Taken, Vec<SkippedItem>),
        error: Option<&Error>,
    ) {
        let mut engines = self.engines_mut();
        engines.iter().for_each(|engine| engine.wind_up_lent());
        // Links that could not be started have passed nothing on.
        relayed.resize_with(engines.len() - 1, Relayed::default);
        let Accounts { whole, stages: accounts } = accounts(given, &relayed, taken);
        let last = engines.len() - 1;
        for (stage, (engine, account)) in engines.iter_mut().zip(&accounts).enumerate() {
            let pipeline = Some(whole).filter(|_| stage == last);
            engine.settle_lent(*account, pipeline, error);
        }
        self.last_run = PipelineRun::new(whole, &failures);
        self.last.keep(failures);
    }
}

/// The input of a stream, as the first stage counts it.
pub(crate) fn given<I, T>(source: &Source<I, T>) -> NextItem {
    NextItem { items: source.pulled(), unread: source.unread(), passed_on: None }
}

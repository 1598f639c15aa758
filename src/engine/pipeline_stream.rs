//! The outputs of a pipeline in progress.

use std::sync::{Arc, Weak};
use std::thread::JoinHandle;

use super::consuming::SkippedItem;
use super::feed::{Pulled, Source};
use super::last_stage::LastStage;
use super::lineup::{Lineup, Watched};
use super::link::{Earlier, NextItem, Relayed};
use super::pipeline_totals::{self, Accounts, PipelineRun, accounts};
use super::session::Engine;
use super::stages::{Reached, Stages, UpTo, begin, or_resume};
use super::streaming::{FeedingTime, Look, Yield};
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::run::Run;
use crate::backend::threads::run_shape::Rebuilt;
use crate::backend::threads::taken::Taken;
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::cancel::Interrupt;
use crate::concurrency::home_process::HomeProcess;
use crate::error::Error;
use crate::observe::event::Destination;
use crate::runner::Runner;
use crate::scheduler::window::Window;

/// The outputs of a pipeline in progress. The caller's thread is the feeder of the first stage and the collector
/// of the last. The sessions are kept by the engines, so that a leaked stream can still be ended.
pub(crate) struct PipelineStream<R: Runner, S: Runner> {
    first: Arc<Run<R>>,
    last: LastStage<S>,
    feeder: Feeder<R::Input, R::Output>,
    links: Vec<JoinHandle<Relayed>>,
    /// Whether the input of the first stage has ended.
    is_fed: bool,
    /// The results that were consumed, and that no item has replaced. Their permits may still be on the way through
    /// the stages.
    unreplaced: u64,
    time: FeedingTime,
    home: HomeProcess,
    /// Keeps the runs registered with the tokens.
    _all: Arc<dyn Interrupt>,
}

/// What a stream of outputs begins with.
pub(super) struct Begun<R: Runner, S: Runner> {
    pub(super) first: Arc<Run<R>>,
    pub(super) last: Arc<Run<S>>,
    pub(super) order: Order,
    pub(super) window: Window,
    pub(super) links: Vec<JoinHandle<Relayed>>,
    pub(super) all: Arc<dyn Interrupt>,
}

/// The remains of a stream that is over.
pub(super) struct Streamed {
    pub(super) relayed: Vec<Relayed>,
    pub(super) taken: Taken,
}

impl<R: Runner + 'static, S: Runner + 'static> PipelineStream<R, S> {
    pub(super) fn new(begun: Begun<R, S>) -> Self {
        let Begun { first, last, order, window, links, all } = begun;
        // Weak, since each run of a row holds the one before it.
        let (fed, collected) = (Arc::downgrade(&first), Arc::downgrade(&last));
        let wake = move || with(&collected, |last| last.handover.wake_collector()).unwrap_or(());
        let is_ready = move || with(&fed, |first| first.handover.may_feed_again()).unwrap_or(false);
        first.handover.wake_feeder_with(wake);
        last.handover.collect_beside_feeder(is_ready);
        PipelineStream {
            feeder: Feeder::new(&first.handover),
            last: LastStage::new(last, order, window, Destination::Outputs),
            first,
            links,
            is_fed: false,
            unreplaced: 0,
            time: FeedingTime::default(),
            home: HomeProcess::here(),
            _all: all,
        }
    }

    /// The next step of the stream; `None` after the last.
    ///
    /// Before it returns a result, even one that is ready, it pulls items in place of those that were consumed.
    /// Otherwise a slow caller would find the stages empty, and wait until an item has passed all of them.
    pub(crate) fn next<I>(&mut self, source: &mut Source<I, R::Input>) -> Option<Yield<S::Output>> {
        self.unreplaced += u64::from(self.last.take_back());
        while self.unreplaced > 0 && self.pull(source) {}
        let next = loop {
            match self.last.look() {
                Look::Ready(step) => break Some(step),
                Look::Over => break None,
                Look::Missing if self.pull(source) => {}
                Look::Missing => match self.home.check() {
                    Ok(()) => self.wait(),
                    Err(used) => break Some(Yield::Last(used.into())),
                },
            }
        };
        self.time.end();
        next
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
        self.unreplaced = self.unreplaced.saturating_sub(1);
        true
    }

    /// Waits for a result of the last stage or, while there is input, for room in the first.
    fn wait(&mut self) {
        self.time.end();
        let LastStage { run, collector, total, .. } = &mut self.last;
        let due = collector.news_due_in(run);
        let before = collector.waited();
        if !self.is_fed {
            self.feeder.begin_to_wait_elsewhere(&self.first.handover);
        }
        let news = collector.wait(&run.handover, *total, due);
        if !self.is_fed {
            self.first.handover.end_to_wait_elsewhere();
            let lasted = collector.waited() - before;
            self.time.note_wait(lasted);
            self.first.report_full_window(lasted);
        }
        collector.report_head(run);
        run.check(news);
    }

    /// Ends all runs, waits for the links, and drops what is left. The sessions are over after that.
    pub(super) fn leave(self) -> Streamed {
        let PipelineStream { first, last, mut feeder, links, time, .. } = self;
        let LastStage { run: last, collector, taken, .. } = last;
        last.abort();
        let (present, waited, working) = time.totals();
        first.handover.stats.source_left(present, waited);
        feeder.take_held().into_iter().for_each(drop_quietly);
        // A bug of ours must not be hidden.
        let joined: Vec<_> = links.into_iter().map(JoinHandle::join).collect();
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
        Ok(PipelineStream::new(self.begin_outputs(unread, Rebuilt::Before)?))
    }

    /// Begins what gives the outputs of the last stage to the caller.
    pub(super) fn begin_outputs(
        &mut self,
        unread: Option<u64>,
        rebuilt: Rebuilt,
    ) -> Result<Begun<R, S>, Error> {
        self.before.reset(unread);
        self.last.reset(None);
        self.last_run = PipelineRun::idle(unread);
        self.try_begin_outputs(unread, rebuilt).inspect_err(|error| {
            self.before.refuse(error);
            Engine::refuse(self.last, error);
        })
    }

    fn try_begin_outputs(
        &mut self,
        unread: Option<u64>,
        rebuilt: Rebuilt,
    ) -> Result<Begun<R, S>, Error> {
        let later_cfgs = pipeline_totals::check(&self.engines())?;
        // An output handed to the caller is never known to be consumed.
        self.engines()[0].check_no_journal()?;
        let mut lineup = Lineup::new(unread, later_cfgs);
        let Reached { first, last, .. } = UpTo::enlist(self, &mut lineup)?;
        let Earlier { run: last, order, window, .. } = last;

        let Watched { mut stages, relays, all } = lineup.watch()?;
        let mut links = Vec::with_capacity(relays.len());
        let joined = begin(&first, &last, &mut stages, rebuilt).and_then(|()| {
            relays.into_iter().try_for_each(|relay| relay.start().map(|link| links.push(link)))
        });
        stages.into_iter().for_each(|stage| stage.lend());
        match joined {
            Ok(()) => Ok(Begun { first, last, order, window, links, all }),
            Err(error) => {
                last.abort();
                let relayed = links.into_iter().map(|link| or_resume(link.join())).collect();
                let given = NextItem { unread, ..NextItem::default() };
                self.settle_lent(given, relayed, (Taken::default(), vec![]), Some(&error));
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
        if self.leave_run_to_parent() {
            return std::mem::forget(stream);
        }
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

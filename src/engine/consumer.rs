//! The consumer's thread of one run.

use std::sync::Arc;
use std::time::Instant;

use crossbeam_channel::Sender;

use super::call::{call, drop_quietly};
use super::collector::Collector;
use super::crew::cancelled_or;
use super::run::{Run, RunOutcome};
use super::window::Window;
use crate::cfg::CfgNode;
use crate::error::{Error, Hook, Site};
use crate::order::Order;
use crate::runner::{ConsumerContext, Runner};

/// What a run came to.
pub(crate) struct Consumed<S> {
    pub(crate) result: Result<S, Error>,
    pub(crate) ok: u64,
    pub(crate) failed: u64,
}

/// The consumer of one run.
pub(crate) struct Consumer<R: Runner> {
    runner: Arc<R>,
    cfg: Arc<CfgNode>,
    run: Arc<Run<R>>,
    collector: Collector<R::Output>,
    ok: u64,
    failed: u64,
}

/// Why consuming ended without an error.
enum Ended {
    /// There is no more, or the consumer wants no more.
    Complete,
    Cancelled,
}

impl<R: Runner> Consumer<R> {
    pub(crate) fn new(
        runner: Arc<R>,
        cfg: Arc<CfgNode>,
        run: Arc<Run<R>>,
        order: Order,
        window: Window,
    ) -> Self {
        let collector = Collector::new(&run.exchange, order, window, Instant::now());
        Consumer { runner, cfg, run, collector, ok: 0, failed: 0 }
    }

    /// Consumes the whole run. `started` is told when input may be pulled, and dropped otherwise.
    pub(crate) fn consume(mut self, started: Sender<()>) -> Consumed<R::Summary> {
        let run = self.run.clone();
        let bug = AbortAtEnd(&*run);
        let result = self.summarise(started);
        drop(bug);
        self.collector.leave(&run.exchange).into_iter().for_each(drop_quietly);
        Consumed { result, ok: self.ok, failed: self.failed }
    }

    fn summarise(&mut self, started: Sender<()>) -> Result<R::Summary, Error> {
        let mut state = self.init()?;
        if !self.run.is_cancelled() && !self.run.is_stopped() {
            started.send(()).expect("the feeder waits for this or for the sender to be dropped");
        }
        drop(started);
        match self.consume_all(&mut state) {
            Ok(Ended::Complete) => self.end(state),
            Ok(Ended::Cancelled) => {
                drop_quietly(state);
                Err(Error::Cancelled {})
            }
            Err(error) => {
                drop_quietly(state);
                Err(error)
            }
        }
    }

    fn consume_all(&mut self, state: &mut R::ConsumerState) -> Result<Ended, Error> {
        let mut total = None;
        loop {
            if self.run.is_cancelled() {
                return Ok(Ended::Cancelled);
            }
            if self.run.is_stopped() {
                return Ok(Ended::Complete);
            }
            if let Some((seq, outcome)) = self.collector.pop() {
                if self.run.is_pointless(seq, &outcome) {
                    drop_quietly(outcome);
                    self.collector.done(&self.run.exchange);
                } else {
                    self.consume_one(state, seq, outcome)?;
                }
                continue;
            }
            total = total.or_else(|| self.run.exchange.total());
            if total == Some(self.collector.consumed()) {
                // A guarded input ends with the cancel, and then there may seem to be no more.
                let is_cancelled = self.run.is_cancelled();
                return Ok(if is_cancelled { Ended::Cancelled } else { Ended::Complete });
            }
            self.collector.settle(&self.run.exchange);
            let news = self.collector.wait(&self.run.exchange, total);
            self.run.check(news);
        }
    }

    fn consume_one(
        &mut self,
        state: &mut R::ConsumerState,
        seq: u64,
        outcome: RunOutcome<R>,
    ) -> Result<(), Error> {
        let outcome = outcome.and_then(|output| {
            let cx = ConsumerContext::new(&self.cfg, &*self.run, Some(seq));
            let site = || Site { items: vec![seq], ..Site::default() };
            call(Hook::ConsumerWork, site, || self.runner.consumer_work(&cx, state, output))
        });
        match outcome {
            Ok(()) => {
                self.ok += 1;
                self.collector.done(&self.run.exchange);
                Ok(())
            }
            Err(error) => Err(self.fail(*error)),
        }
    }

    #[cold]
    fn fail(&mut self, error: Error) -> Error {
        // Before anything else: nothing may be pulled once an item has failed.
        self.run.abort();
        if self.run.is_cancelled() {
            drop_quietly(error);
            return Error::Cancelled {};
        }
        self.failed += error.failed_items();
        error
    }

    fn init(&self) -> Result<R::ConsumerState, Error> {
        let cx = ConsumerContext::new(&self.cfg, &*self.run, None);
        let outcome = call(Hook::ConsumerInit, Site::default, || self.runner.consumer_init(&cx))
            .map_err(|error| *error);
        cancelled_or(outcome.is_err() && self.run.is_cancelled(), outcome)
    }

    fn end(&self, state: R::ConsumerState) -> Result<R::Summary, Error> {
        let cx = ConsumerContext::new(&self.cfg, &*self.run, None);
        let outcome =
            call(Hook::ConsumerEnd, Site::default, || self.runner.consumer_end(&cx, state))
                .map_err(|error| *error);
        cancelled_or(outcome.is_err() && self.run.is_cancelled(), outcome)
    }
}

/// Lets everybody leave the run at its end, also when the consumer's thread dies of a bug of ours.
struct AbortAtEnd<'a, R: Runner>(&'a Run<R>);

impl<R: Runner> Drop for AbortAtEnd<'_, R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

//! The consumer's thread of one run.

use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::Instant;

use crossbeam_channel::{Receiver, Sender, bounded};

use super::call::{call, drop_quietly};
use super::collector::Collector;
use super::crew::{cancelled_or, spawn};
use super::run::{Run, RunOutcome};
use super::window::Window;
use crate::cfg::CfgNode;
use crate::error::{Error, Hook, Site};
use crate::order::Order;
use crate::runner::{ConsumerContext, Runner};

/// The name of every thread that takes results out.
pub(crate) const NAME: &str = "gangline-c";

/// What a run came to.
pub(crate) struct Consumed<S> {
    pub(crate) result: Result<S, Error>,
    pub(crate) taken: Taken,
}

/// What became of the results that were taken out of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Taken {
    pub(crate) ok: u64,
    /// What ended it.
    pub(crate) failure: Option<Failure>,
}

/// A failure that was met in its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) seq: u64,
    /// How many items failed together.
    pub(crate) items: u64,
}

impl Taken {
    pub(crate) fn failed(&self) -> u64 {
        self.failure.map_or(0, |failure| failure.items)
    }
}

/// A consumer at work.
pub(crate) struct Consuming<S> {
    started: Receiver<()>,
    thread: JoinHandle<Consumed<S>>,
}

impl<S> Consuming<S> {
    /// Waits until `consumer_init` has returned. Whether input may be pulled.
    pub(crate) fn has_started(&self) -> bool {
        self.started.recv().is_ok()
    }

    /// Waits until everything is consumed.
    pub(crate) fn join(self) -> thread::Result<Consumed<S>> {
        self.thread.join()
    }
}

/// The consumer of one run.
pub(crate) struct Consumer<R: Runner> {
    runner: Arc<R>,
    cfg: Arc<CfgNode>,
    run: Arc<Run<R>>,
    collector: Collector<R::Output>,
    taken: Taken,
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
        Consumer { runner, cfg, run, collector, taken: Taken::default() }
    }

    /// Consumes the whole run on a thread of its own.
    pub(crate) fn start(self, stack_size: Option<usize>) -> Result<Consuming<R::Summary>, Error>
    where
        R: 'static,
    {
        let (sender, started) = bounded(1);
        let thread = spawn(NAME.to_owned(), stack_size, move || self.consume(sender))?;
        Ok(Consuming { started, thread })
    }

    /// Consumes the whole run. `started` is told when input may be pulled, and dropped otherwise.
    fn consume(mut self, started: Sender<()>) -> Consumed<R::Summary> {
        let run = self.run.clone();
        let bug = AbortAtEnd(&*run);
        let result = self.summarise(started);
        drop(bug);
        self.collector.leave(&run.exchange).into_iter().for_each(drop_quietly);
        Consumed { result, taken: self.taken }
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
        while let Some((seq, outcome)) = self.run.next_result(&mut self.collector, &mut total) {
            self.consume_one(state, seq, outcome)?;
        }
        // A guarded input ends with the cancel, and then there may seem to be no more.
        Ok(if self.run.is_cancelled() { Ended::Cancelled } else { Ended::Complete })
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
                self.taken.ok += 1;
                self.collector.done(&self.run.exchange);
                Ok(())
            }
            Err(error) => Err(self.fail(seq, *error)),
        }
    }

    #[cold]
    fn fail(&mut self, seq: u64, error: Error) -> Error {
        // Before anything else: nothing may be pulled once an item has failed.
        self.run.abort();
        if self.run.is_cancelled() {
            drop_quietly(error);
            return Error::Cancelled {};
        }
        self.taken.failure = Some(Failure { seq, items: error.failed_items() });
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
pub(super) struct AbortAtEnd<'a, R: Runner>(pub(super) &'a Run<R>);

impl<R: Runner> Drop for AbortAtEnd<'_, R> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

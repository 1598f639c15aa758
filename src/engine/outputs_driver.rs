//! The driver of a run whose outputs a caller takes: a thread, or a task.
//!
//! It steps: it pulls items in place of the outputs that the caller is done with, looks for the next result, and pulls
//! again if there is none. Then it waits for a result, and for room if it has input.

use std::sync::{Arc, Weak};
use std::task::{Poll, Wake, Waker};
use std::time::Instant;

use gangline_report::Account;
use gangline_scheduler::window::Window;

use super::collector::Collector;
use super::feed::Source;
use super::feeding::{Feeding, MOST_PER_POLL, Pull};
use super::line::{Begun, Line, join_links};
use super::link::{FeedCounts, Relayed};
use super::own_feeder::{GatedSource, OwnFeeder};
use super::pool::Engine;
use super::reckoning::{ReceiverEnd, ReceiverKind, Reckoning};
use super::stage::StageTypes;
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::home_process::HomeProcess;
use crate::error::Error;
use crate::observe::event::Destination;
use crate::run::Run;
use crate::run::no_output::{Effect, FailedItem, NO_PARTS, NoOutput};
use crate::run::run_shape::{Rebuilt, RunKind};
use crate::run::taken::Taken;

/// The most results that a thread replaces together. A slow source delays the next result by this number of items.
const MOST_IN_GROUP: usize = 32;

/// The driver of a run whose outputs a caller takes. The sessions are kept by the engines, so that a leaked driver can
/// still be ended.
pub(super) struct OutputsDriver<I, F: StageTypes, L: StageTypes> {
    begun: Begun<F, L>,
    feeding: Feeding<I, F::Input, F::Output>,
    collector: Collector<L::Output>,
    /// The number of items of the last stage, once it is known.
    total: Option<u64>,
    reckoning: Reckoning,
    /// The results that were consumed, and that no item has replaced. Their permits may still be on the way through
    /// the stages.
    unreplaced: u64,
    home: HomeProcess,
    /// Wakes a thread that sleeps as the collector.
    waker: Waker,
}

/// What waits for the driver's bell.
#[derive(Clone, Copy)]
pub(super) enum Caller<'a> {
    Thread,
    #[cfg_attr(not(feature = "futures"), expect(dead_code, reason = "only streams have tasks"))]
    Task(&'a Waker),
}

/// One step of the outputs, as their caller sees it.
pub(super) enum Yield<T> {
    Output(T),
    /// The error of a skipped item.
    Skipped(Error),
    /// The error that ends the run.
    Last(Error),
}

/// What a look for the next step finds.
enum Look<T> {
    Ready(Yield<T>),
    /// No result is there yet.
    Missing,
    /// There are no more.
    Over,
}

impl<T> Yield<T> {
    pub(super) fn into_result(self) -> Result<T, Error> {
        match self {
            Yield::Output(output) => Ok(output),
            Yield::Skipped(error) | Yield::Last(error) => Err(error),
        }
    }

    /// The error that ends the run, if this is one.
    pub(super) fn last_error(&self) -> Option<&Error> {
        match self {
            Yield::Last(error) => Some(error),
            Yield::Output(_) | Yield::Skipped(_) => None,
        }
    }
}

impl<I, F: StageTypes + 'static, L: StageTypes + 'static> OutputsDriver<I, F, L> {
    /// Begins a run that its driver feeds.
    pub(super) fn begin(
        line: &mut dyn Line<F, L>,
        source: Source<I, F::Input>,
        caller: Caller<'_>,
    ) -> Result<Self, Error> {
        let begun = begin(line, source.unread(), caller)?;
        let destination = match caller {
            Caller::Thread => Destination::Outputs,
            Caller::Task(_) => Destination::FedOutputs,
        };
        let feeding = Feeding::here(source, &begun.first);
        Ok(Self::new(begun, feeding, destination, order_of(line.last())))
    }

    /// Begins a run that a thread of its own feeds.
    pub(super) fn begin_elsewhere<J>(
        line: &mut dyn Line<F, L>,
        gated: GatedSource<J, F::Input>,
    ) -> Result<Self, Error>
    where
        J: Iterator + Send + 'static,
    {
        let unread = gated.unread();
        let begun = begin(line, unread, Caller::Thread)?;
        match OwnFeeder::start(begun.first.clone(), gated) {
            Ok(feeder) => {
                let feeding = Feeding::Elsewhere(feeder);
                Ok(Self::new(begun, feeding, Destination::FedOutputs, order_of(line.last())))
            }
            Err(error) => Err(line.end_unused(begun, unread, error)),
        }
    }

    pub(super) fn new(
        begun: Begun<F, L>,
        feeding: Feeding<I, F::Input, F::Output>,
        destination: Destination,
        (order, window): (Order, Window),
    ) -> Self {
        let last = &begun.last;
        last.handover.stats.goes_to(destination);
        let collector = Collector::new(&last.handover, order, window, Instant::now());
        let waker = Waker::from(Arc::new(WakesCollector(Arc::downgrade(last))));
        OutputsDriver {
            begun,
            feeding,
            collector,
            total: None,
            reckoning: Reckoning::new(ReceiverKind::Last),
            unreplaced: 0,
            home: HomeProcess::here(),
            waker,
        }
    }

    /// Takes the next step; `None` after the last. Pending only for a task, which is woken when there is more to do.
    /// `is_ready` polls the source.
    ///
    /// Before it returns a result, even one that is ready, it pulls items in place of those that were consumed.
    /// Otherwise a slow caller would find the stages empty, and wait until an item has passed all of them. A stream
    /// does not block, so a task pulls all that the window has room for.
    pub(super) fn step(
        &mut self,
        caller: Caller<'_>,
        mut is_ready: impl FnMut(&mut Source<I, F::Input>) -> Poll<()>,
    ) -> Poll<Option<Yield<L::Output>>> {
        let mut pulls = caller.most_pulls();
        caller.keep(&self.begun.first);
        self.end_wait();
        self.unreplaced += u64::from(self.collector.take_back(&self.begun.last.handover));
        if self.unreplaced >= self.group() || caller.pull() != Pull::Call {
            self.collector.repay(&self.begun.last.handover);
            while pulls > 0 && (self.unreplaced > 0 || caller.pull() != Pull::Call) {
                let Some(pulled) = self.pull(caller, self.unreplaced, &mut is_ready) else { break };
                pulls -= pulled.max(1);
            }
            if let Feeding::Elsewhere(_) = self.feeding {
                self.unreplaced = 0;
            }
        }
        let next = loop {
            match self.look() {
                Look::Ready(step) => break Poll::Ready(Some(step)),
                Look::Over => break Poll::Ready(None),
                Look::Missing if pulls == 0 => {
                    self.begun.first.driver().ring();
                    break Poll::Pending;
                }
                Look::Missing if self.pull(caller, 1, &mut is_ready).is_some() => pulls -= 1,
                Look::Missing => match self.home.check() {
                    Ok(()) if self.wait(caller).is_ready() => {}
                    Ok(()) => break Poll::Pending,
                    Err(used) => break Poll::Ready(Some(Yield::Last(used.into()))),
                },
            }
        };
        self.feeding.pause();
        next
    }

    /// The number of consumed results that are replaced together. As in a run, no more than a quarter of the window
    /// is missing meanwhile. With several stages the first may be empty while results wait in the last, so there each
    /// is replaced at once.
    fn group(&self) -> u64 {
        match self.begun.links.is_empty() {
            true => self.collector.quarter.min(MOST_IN_GROUP) as u64,
            false => 1,
        }
    }

    /// Pulls up to `most` items; a task pulls one at a time. Returns their number, and `None` if it could pull none.
    fn pull(
        &mut self,
        caller: Caller<'_>,
        most: u64,
        is_ready: impl FnOnce(&mut Source<I, F::Input>) -> Poll<()>,
    ) -> Option<u64> {
        let pulled = self.feeding.pull(&self.begun.first, caller.pull(), most, is_ready)?;
        self.unreplaced = self.unreplaced.saturating_sub(pulled.max(1));
        Some(pulled)
    }

    /// Looks for the next step, without waiting.
    fn look(&mut self) -> Look<L::Output> {
        let run = &self.begun.last;
        if run.is_cancelled() {
            return Look::Ready(Yield::Last(Error::Cancelled {}));
        }
        if let Some(error) = self.reckoning.take_fatal_error(run, self.collector.consumed()) {
            return Look::Ready(Yield::Last(error));
        }
        while let Some((seq, outcome)) = self.collector.pop() {
            if run.is_pointless(seq, &outcome) {
                drop_quietly(outcome);
                self.collector.done(&run.handover);
                continue;
            }
            run.remove_name(seq);
            let step = match outcome.map_err(|none| *none) {
                Ok(output) => {
                    self.reckoning.taken.ok += 1;
                    self.reckoning.publish(run);
                    Yield::Output(output)
                }
                Err(NoOutput::Failed(failed)) => fail(&mut self.reckoning, run, seq, failed),
                // Outputs have no journal.
                Err(NoOutput::Done { .. }) => {
                    self.collector.done_without_work(&run.handover);
                    continue;
                }
                Err(NoOutput::Withdrawn | NoOutput::Mark(_)) => unreachable!("{NO_PARTS}"),
            };
            self.collector.lend();
            return Look::Ready(step);
        }
        self.total = self.total.or_else(|| run.handover.total());
        let consumed = self.collector.consumed();
        if self.total != Some(consumed) {
            self.collector.settle(&run.handover);
            return Look::Missing;
        }
        // A cancel of all stages ends the input of the last after its own cancel.
        match self.reckoning.end(run, consumed, self.total, || None) {
            ReceiverEnd::Complete | ReceiverEnd::Unwanted => Look::Over,
            ReceiverEnd::Cancelled => Look::Ready(Yield::Last(Error::Cancelled {})),
            ReceiverEnd::Failed(error) => Look::Ready(Yield::Last(error)),
        }
    }

    /// Waits for a result of the last stage and, while there is input, for room in the first. Pending if a task has to
    /// wait: the wait then lasts until its next step.
    fn wait(&mut self, caller: Caller<'_>) -> Poll<()> {
        self.feeding.pause();
        let Begun { first, last, .. } = &self.begun;
        let collector = &mut self.collector;
        let due = collector.news_due_in(last);
        collector.begin_wait(&last.handover);
        self.feeding.begin_wait(first);
        let (feeding, waker) = (&self.feeding, &self.waker);
        let may_feed = || feeding.may_go_on(first, caller.pull(), waker);
        let reason = match caller {
            Caller::Thread => collector.sleep(&last.handover, self.total, due, may_feed),
            Caller::Task(waker) => {
                match collector.poll(&last.handover, self.total, waker, may_feed) {
                    Some(reason) => reason,
                    None => return Poll::Pending,
                }
            }
        };
        self.end_wait();
        self.begun.last.check(reason);
        Poll::Ready(())
    }

    /// Ends the wait in progress, if there is one.
    fn end_wait(&mut self) {
        let Begun { first, last, .. } = &self.begun;
        if let Some(lasted) = self.collector.end_wait(&last.handover) {
            self.feeding.end_wait(first, lasted);
            self.collector.report_head(last);
        }
    }

    /// Aborts all stages.
    #[cfg(feature = "futures")]
    pub(super) fn abort(&self) {
        self.begun.last.abort();
    }

    /// Keeps the waker of a task that waits for the end of all threads.
    #[cfg(feature = "futures")]
    pub(super) fn keep(&self, waker: &Waker) {
        self.begun.first.driver().keep(waker);
    }

    /// Ends the run, waits for all threads, and drops what is left.
    pub(super) fn end(self, line: &mut dyn Line<F, L>, error: Option<&Error>) {
        if line.leave_run_to_parent() {
            return std::mem::forget(self);
        }
        let (given, relayed, taken) = self.leave();
        line.settle(given, relayed, (taken, vec![]), error);
    }

    /// Aborts the run, waits for the feeder and the links, and drops what is left. Returns their counts.
    pub(super) fn leave(self) -> (FeedCounts, Vec<Relayed>, Taken) {
        let OutputsDriver { begun, feeding, collector, reckoning, .. } = self;
        let Begun { first, last, links, .. } = begun;
        last.abort();
        let (given, was_elsewhere) = feeding.leave(&first);
        let relayed = join_links(links);
        collector.leave(&last.handover).into_iter().for_each(drop_quietly);
        last.handover.stats.collector_was_elsewhere(was_elsewhere);
        (given, relayed, reckoning.taken)
    }

    /// Cancels all stages and drops what the driver has of them, without waiting for threads.
    #[cfg(feature = "futures")]
    pub(super) fn give_up(self, line: &mut dyn Line<F, L>) {
        if line.leave_run_to_parent() {
            return std::mem::forget(self);
        }
        let account = self.account();
        let OutputsDriver { begun, feeding, collector, .. } = self;
        line.cancel();
        feeding.leave(&begun.first);
        collector.leave(&begun.last.handover).into_iter().for_each(drop_quietly);
        line.give_up(account);
    }

    /// The counts so far, of the items of the input. Those in flight count as cancelled if the driver pulls.
    pub(super) fn account(&self) -> Account {
        let taken = self.reckoning.taken_of_all();
        let FeedCounts { items, unread, .. } = self.feeding.given();
        let (ok, failed) = (taken.ok, taken.failed());
        Account::new(items.max(ok + failed), ok, failed, 0, unread)
    }

    /// The largest number of results that are to come after `yielded`, if the source knows one.
    pub(super) fn most_left(&self, yielded: u64) -> Option<usize> {
        self.feeding.most_left(yielded)
    }
}

impl Caller<'_> {
    fn pull(self) -> Pull {
        match self {
            Caller::Thread => Pull::Call,
            Caller::Task(_) => Pull::Poll,
        }
    }

    fn most_pulls(self) -> u64 {
        match self {
            Caller::Thread => u64::MAX,
            Caller::Task(_) => MOST_PER_POLL,
        }
    }

    /// Keeps the waker of a task, before it looks for anything.
    fn keep<I, T>(self, run: &Run<I, T>) {
        if let Caller::Task(waker) = self {
            run.driver().keep(waker);
        }
    }
}

/// The order of the last stage, and its window.
fn order_of<I: Send + 'static, T: Send + 'static>(engine: &Engine<I, T>) -> (Order, Window) {
    (engine.settings().order, engine.window())
}

/// Handles an item that failed, in its turn.
fn fail<I, T>(
    reckoning: &mut Reckoning,
    run: &Run<I, T>,
    seq: u64,
    failed: FailedItem,
) -> Yield<T> {
    reckoning.fail(run, seq, &failed);
    match failed.effect {
        Effect::Ends => Yield::Last(failed.error),
        Effect::Skipped if reckoning.gives_up(run) => {
            Yield::Last(reckoning.too_many(run, seq, Some(failed.error)))
        }
        Effect::Skipped => Yield::Skipped(failed.error),
    }
}

fn begin<F: StageTypes + 'static, L: StageTypes + 'static>(
    line: &mut dyn Line<F, L>,
    unread: Option<u64>,
    caller: Caller<'_>,
) -> Result<Begun<F, L>, Error> {
    let how = match caller {
        Caller::Thread => (RunKind::Stream, Rebuilt::Before),
        Caller::Task(_) => (RunKind::Task, Rebuilt::Later),
    };
    // An output handed to the caller is never known to be consumed.
    line.begin(unread, how, |line| line.engines()[0].check_no_journal())
}

/// Wakes the collector of a run that is still there.
struct WakesCollector<I, T>(Weak<Run<I, T>>);

impl<I: Send + 'static, T: Send + 'static> Wake for WakesCollector<I, T> {
    fn wake(self: Arc<Self>) {
        if let Some(run) = self.0.upgrade() {
            run.handover.wake_collector();
        }
    }
}

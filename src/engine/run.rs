//! What the threads of one run share.

use std::sync::Arc;

use crossbeam_channel::{Receiver, Sender, bounded};

use crate::batch::Batching;
use crate::cancel::{Interrupt, Pulling};
use crate::engine::call::{catch, drop_quietly};
use crate::engine::collector::Collector;
use crate::engine::exchange::{Exchange, News};
use crate::engine::fault::{Fate, Fault};
use crate::engine::outbox::Outcome;
use crate::engine::terms::Terms;
use crate::error::Error;
use crate::measures::Measure;
use crate::order::Order;
use crate::policy::{Policy, Retry, Verdict};
use crate::runner::{RunControl, Runner, Wanted};
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, lock, now};

/// What became of one item of a runner.
pub(crate) type RunOutcome<R> = Outcome<<R as Runner>::Output>;

/// One run or stream: made at its start, dropped at its end.
pub(crate) struct Run<R: Runner> {
    pub(crate) exchange: Exchange<R::Input, R::Output>,
    pub(crate) terms: Arc<Terms<R::Input>>,
    /// What producers still need to work on.
    pub(crate) wanted: Wanted,
    /// What the consumer will still get to see. Differs from `wanted` after a stop, when the result
    /// that called for it is still wanted.
    consumable: Wanted,
    order: Order,
    cancelled: AtomicBool,
    stopped: AtomicBool,
    /// Dropped when no more input is wanted, which wakes a guard that the feeder is in.
    halting: Mutex<Option<Sender<()>>>,
    halted: Receiver<()>,
    /// The stage before in a pipeline, which works for this run only.
    upstream: Option<Arc<dyn RunControl>>,
}

impl<R: Runner> Run<R> {
    pub(crate) fn new(
        order: Order,
        producers: usize,
        window: usize,
        batching: Option<Batching>,
        terms: Arc<Terms<R::Input>>,
        upstream: Option<Arc<dyn RunControl>>,
    ) -> Self {
        let (halting, halted) = bounded(0);
        let measures = terms.measures.as_ref();
        let most_weight = measures.and_then(|measures| measures.most(Measure::Weight));
        Run {
            halting: Mutex::new(Some(halting)),
            halted,
            upstream,
            exchange: Exchange::new(producers, window, batching, most_weight),
            terms,
            wanted: Wanted::all(),
            consumable: Wanted::all(),
            order,
            cancelled: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
        }
    }

    /// An item failed. From this moment no input is pulled. In input order the items before it are
    /// still wanted, so that the first failure in order is the one that stands.
    pub(crate) fn fail(&self, seq: u64) {
        let first_unwanted = match self.order {
            Order::Input => seq,
            Order::Completion => 0,
        };
        self.wanted.give_up_from(first_unwanted);
        self.consumable.give_up_from(first_unwanted);
        self.halt();
    }

    /// What comes of an item that failed with this error. `None` when nobody asks any more, and the error
    /// is dropped: the run was ended, or has failed already, and a hook may have returned it because it
    /// saw that. `None` also when there is another attempt: with the copy, where there is one, on another
    /// producer than the one that failed it.
    pub(crate) fn judge(
        &self,
        seq: u64,
        error: Error,
        copy: Option<(usize, R::Input)>,
    ) -> Option<Box<Fault>> {
        if self.wanted.gave_up_on(Some(seq)) {
            drop_quietly((error, copy));
            return None;
        }
        let verdict = self.verdict(&error);
        match copy {
            Some((worker, input)) if verdict == Verdict::Retry => {
                self.retry(seq, &error, worker, input);
                drop_quietly(error);
                return None;
            }
            copy => drop_quietly(copy),
        }
        self.settle(seq, error, verdict)
    }

    /// What comes of an item with this verdict that is not tried again.
    pub(crate) fn settle(&self, seq: u64, error: Error, verdict: Verdict) -> Option<Box<Fault>> {
        let verdict = match verdict {
            Verdict::Retry => self.terms.policy.verdict_without_retry(&error),
            verdict => verdict,
        };
        match verdict {
            Verdict::Skip => Some(Fault::skipped(error)),
            Verdict::Retry | Verdict::Stop => self.end_with(seq, error),
        }
    }

    /// Has the item tried again, on another producer than `worker`, which failed it.
    pub(crate) fn retry(&self, seq: u64, error: &Error, worker: usize, input: R::Input) {
        let attempts = error.attempt().unwrap_or(1);
        let due = now() + self.terms.policy.backoff.after(attempts);
        let attempt = attempts.saturating_add(1);
        self.exchange.retry_later(seq, Retry { input, attempt, due, failed_on: worker });
    }

    /// As [`judge`](Run::judge), for what nobody can go on after.
    pub(crate) fn end_with(&self, seq: u64, error: Error) -> Option<Box<Fault>> {
        if self.wanted.gave_up_on(Some(seq)) {
            drop_quietly(error);
            return None;
        }
        self.fail(seq);
        Some(Fault::ending(error))
    }

    /// What the policy says of an error. A rule of the user's that panics is no reason to go on.
    pub(crate) fn verdict(&self, error: &Error) -> Verdict {
        catch(|| self.terms.policy.judge(error)).unwrap_or_else(|message| {
            tracing::warn!(%message, "the function that classifies errors panicked; the run stops");
            Verdict::Stop
        })
    }

    pub(crate) fn policy(&self) -> &Policy {
        &self.terms.policy
    }

    /// No input is pulled any more. In a pipeline that goes for all stages before this one, and what
    /// they have in hand is wanted by nobody.
    fn halt(&self) {
        self.exchange.halt();
        drop(lock(&self.halting).take());
        if let Some(upstream) = &self.upstream {
            upstream.stop();
        }
    }

    /// To be held while the input is asked for items.
    pub(crate) fn pulling(&self) -> Pulling {
        Pulling::new(&self.halted)
    }

    /// Nothing is wanted any more: everybody leaves once the hook that it is running returns.
    pub(crate) fn abort(&self) {
        self.wanted.give_up_from(0);
        self.consumable.give_up_from(0);
        self.exchange.abort();
        self.halt();
    }

    /// Whether a result that is here goes to nobody, since the run has failed at an earlier item, or,
    /// in order of completion, at any.
    pub(crate) fn is_pointless(&self, seq: u64, outcome: &RunOutcome<R>) -> bool {
        let ends_run = outcome.as_ref().is_err_and(|fault| fault.fate == Fate::End);
        !ends_run && self.consumable.gave_up_on(Some(seq))
    }

    /// The next result that somebody wants, waiting for it. `None` when there is no more, or when
    /// nobody wants more. `total` is what the collector's owner knows of the number of items.
    #[inline]
    pub(crate) fn next_result(
        &self,
        collector: &mut Collector<R::Output>,
        total: &mut Option<u64>,
    ) -> Option<(u64, RunOutcome<R>)> {
        loop {
            if self.is_cancelled() || self.is_stopped() {
                return None;
            }
            if let Some((seq, outcome)) = collector.pop() {
                if !self.is_pointless(seq, &outcome) {
                    return Some((seq, outcome));
                }
                drop_quietly(outcome);
                collector.done(&self.exchange);
                continue;
            }
            *total = total.or_else(|| self.exchange.total());
            if *total == Some(collector.consumed()) {
                return None;
            }
            collector.settle(&self.exchange);
            let news = collector.wait(&self.exchange, *total);
            self.check(news);
        }
    }

    /// Takes out and drops everything that is still here.
    pub(crate) fn discard(&self) {
        let (items, results) = self.exchange.drain();
        items.into_iter().for_each(drop_quietly);
        results.into_iter().for_each(drop_quietly);
    }

    /// Sees to it that a collector was woken by somebody who may.
    ///
    /// # Panics
    ///
    /// When the run was aborted by nobody: a thread of ours has died.
    pub(crate) fn check(&self, news: News) {
        if let News::Aborted = news {
            let expected = self.is_cancelled() || self.is_stopped();
            assert!(expected, "another thread died of a bug in gangline; its panic tells more");
        }
    }

    pub(crate) fn is_cancelled(&self) -> bool {
        self.cancelled.load(Ordering::Relaxed)
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

/// Whoever is the last to hold a run has nothing left to drop that could panic.
impl<R: Runner> Drop for Run<R> {
    fn drop(&mut self) {
        self.discard();
        drop_quietly(std::mem::take(&mut self.terms));
    }
}

impl<R: Runner> Interrupt for Run<R> {
    fn cancel(&self) {
        self.cancelled.store(true, Ordering::Relaxed);
        self.abort();
    }

    /// Only for a run with nothing before it: in a pipeline, the first.
    fn finish(&self) {
        self.halt();
    }
}

impl<R: Runner> RunControl for Run<R> {
    fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.wanted.give_up_from(0);
        self.exchange.abort();
        self.halt();
    }

    fn gave_up_on(&self, item: Option<u64>) -> bool {
        self.consumable.gave_up_on(item)
    }
}

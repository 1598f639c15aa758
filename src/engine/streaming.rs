//! A run that gives its outputs to the caller.

use std::sync::Mutex;
#[cfg(feature = "futures")]
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use super::collector::Collector;
#[cfg(feature = "futures")]
use super::collector::Lack;
#[cfg(feature = "futures")]
use futures_core::Stream;

#[cfg(feature = "futures")]
use super::polled::{MOST_PER_POLL, Polled};
use super::run_session::Session;
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::no_output::{Effect, FailedItem, NoOutput};
use crate::backend::threads::run::{Run, RunOutcome};
use crate::base::Order;
use crate::base::panic::drop_quietly;
#[cfg(feature = "futures")]
use crate::base::quiet_waker::quiet;
use crate::concurrency::home_process::HomeProcess;
use crate::concurrency::now;
use crate::concurrency::waiting::take_waited;
use crate::engine::feed::{Pulled, Source};
use crate::error::Error;
use crate::observe::account::Account;
use crate::observe::event::Destination;
use crate::policy::Policy;
use crate::runner::Runner;
use crate::scheduler::window::Window;

/// The session of a stream, and the counts of what its caller has received.
pub(super) struct Streaming<R: Runner> {
    session: Session<R>,
    /// Never locked, since access is always `&mut`. The mutex makes the pool `Sync` although inputs and
    /// outputs are only `Send`.
    ends: Mutex<Ends<R>>,
    /// The total number of items, once the input has ended.
    total: Option<u64>,
    account: Account,
    pulled: u64,
    time: FeedingTime,
    home: HomeProcess,
}

/// Which thread pulls the input of a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FedBy {
    /// The caller's, which also takes the outputs.
    Caller,
    /// One of its own.
    Thread,
    /// The task that takes the outputs.
    #[cfg(feature = "futures")]
    Task,
}

/// What a feeder of its own has pulled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fed {
    pub(super) pulled: u64,
    pub(super) unread: Option<u64>,
}

/// How long the caller's thread was in its iterator, and how long it waited for permits.
#[derive(Debug, Default)]
pub(super) struct FeedingTime {
    working: Duration,
    waited: Duration,
    /// The part of `working` in which the iterator only waited.
    waited_inside: Duration,
    /// The start of the current series of pulls. Not read per item, since several are mostly pulled in a row.
    since: Option<Instant>,
}

impl FeedingTime {
    pub(super) fn begin(&mut self) {
        self.since.get_or_insert_with(|| {
            // An earlier use of the thread does not count.
            take_waited();
            now()
        });
    }

    /// Adds a wait for permits.
    pub(super) fn note_wait(&mut self, lasted: Duration) {
        self.waited += lasted;
    }

    /// The time that the thread was there as a feeder, how much of that it waited, and how much it was in the
    /// iterator.
    pub(super) fn totals(&self) -> (Duration, Duration, Duration) {
        let waited = self.waited + self.waited_inside;
        (self.working + self.waited, waited, self.working)
    }

    pub(super) fn end(&mut self) {
        if let Some(since) = self.since.take() {
            self.working += now() - since;
            self.waited_inside += take_waited();
        }
    }
}

/// One step of a stream, as its caller sees it.
pub(crate) enum Yield<T> {
    Output(T),
    /// The error of a skipped item.
    Skipped(Error),
    /// The error that ends the stream.
    Last(Error),
}

impl<T> Yield<T> {
    pub(super) fn into_result(self) -> Result<T, Error> {
        match self {
            Yield::Output(output) => Ok(output),
            Yield::Skipped(error) | Yield::Last(error) => Err(error),
        }
    }
}

/// The error that ends a stream, if this step is one.
pub(super) fn last_error<T>(step: &Option<Yield<T>>) -> Option<&Error> {
    match step {
        Some(Yield::Last(error)) => Some(error),
        _ => None,
    }
}

/// What a look for the next step finds.
pub(super) enum Look<T> {
    Ready(Yield<T>),
    /// No result is there yet.
    Missing,
    /// There are no more.
    Over,
}

/// The ends of the hand-over that the caller's thread holds.
struct Ends<R: Runner> {
    /// `None` if a thread of its own feeds.
    feeder: Option<Feeder<R::Input, R::Output>>,
    collector: Collector<R::Output>,
}

impl<R: Runner> Streaming<R> {
    pub(super) fn new(
        session: Session<R>,
        order: Order,
        window: Window,
        fed_by: FedBy,
        unread: Option<u64>,
    ) -> Streaming<R> {
        let handover = &session.run.handover;
        let feeder = (fed_by != FedBy::Thread).then(|| Feeder::new(handover));
        let collector = Collector::new(handover, order, window, Instant::now());
        let ends = Mutex::new(Ends { feeder, collector });
        let account = Account::new(0, 0, 0, 0, unread);
        handover.stats.goes_to(match fed_by {
            FedBy::Caller => Destination::Outputs,
            _ => Destination::FedOutputs,
        });
        let (time, home) = (FeedingTime::default(), HomeProcess::here());
        Streaming { session, ends, total: None, account, pulled: 0, time, home }
    }

    /// The next step of the stream; `None` after the last. The caller's thread also pulls `source`.
    ///
    /// It pulls an item in place of the last result before it returns another, even if that is ready. Otherwise
    /// a caller that is slow would find the window empty, and wait for a whole item.
    pub(super) fn next<I>(&mut self, source: &mut Source<I, R::Input>) -> Option<Yield<R::Output>> {
        if self.take_back() {
            self.pull(source);
        }
        let next = loop {
            match self.look() {
                Look::Ready(ready) => break Some(ready),
                Look::Missing if self.pull(source) => {}
                Look::Missing => match self.home.check() {
                    Ok(()) => self.wait(),
                    Err(used) => break Some(Yield::Last(used.into())),
                },
                Look::Over => break None,
            }
        };
        self.time.end();
        next
    }

    /// The next step of a stream that a thread of its own feeds; `None` after the last.
    pub(super) fn next_fed(&mut self) -> Option<Yield<R::Output>> {
        self.take_back();
        loop {
            match self.look() {
                Look::Ready(ready) => return Some(ready),
                Look::Missing => {
                    // Ends the wait below if the input has ended, so it is looked at first.
                    let total = self.session.run.handover.total();
                    match (self.total == total).then(|| self.home.check()) {
                        Some(Ok(())) => self.wait(),
                        Some(Err(used)) => return Some(Yield::Last(used.into())),
                        None => self.total = total,
                    }
                }
                Look::Over => return None,
            }
        }
    }

    /// As [`next`](Self::next), for a task, which is woken when there is more to do.
    #[cfg(feature = "futures")]
    pub(super) fn poll_next<S: Stream>(
        &mut self,
        source: &mut Source<Polled<S>, R::Input>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Yield<R::Output>>> {
        let waker = quiet(cx.waker());
        self.resume(&waker);
        let mut pulls = MOST_PER_POLL;
        if self.take_back() || self.pulled == 0 {
            // A stream does not block, so the window is filled, before the first result too: the producers are to
            // have items while the caller has it.
            while pulls > 0 && self.poll_pull(source, cx) {
                pulls -= 1;
            }
        }
        let next = loop {
            match self.look() {
                Look::Ready(ready) => break Poll::Ready(Some(ready)),
                Look::Over => break Poll::Ready(None),
                Look::Missing if pulls == 0 => {
                    waker.wake_by_ref();
                    break Poll::Pending;
                }
                Look::Missing if self.poll_pull(source, cx) => pulls -= 1,
                Look::Missing if self.has_results(waker.clone()) => {}
                Look::Missing => break Poll::Pending,
            }
        };
        self.time.end();
        next
    }

    /// Ends the wait of the task, if it waited.
    #[cfg(feature = "futures")]
    fn resume(&mut self, waker: &Waker) {
        let run = &self.session.run;
        run.handover.keep_waker(waker);
        let Some(wait) = unlocked(&mut self.ends).collector.end_wait(&run.handover) else { return };
        match wait.reason {
            Lack::Permits => {
                self.time.note_wait(wait.lasted);
                run.report_full_window(wait.lasted);
            }
            Lack::Input if self.total.is_none() => self.time.working += wait.lasted,
            Lack::Input => {}
        }
    }

    /// Pulls one item, if the stream has one and the window has room.
    #[cfg(feature = "futures")]
    fn poll_pull<S: Stream>(
        &mut self,
        source: &mut Source<Polled<S>, R::Input>,
        cx: &mut Context<'_>,
    ) -> bool {
        let run = &self.session.run;
        let feeder = unlocked(&mut self.ends).feeder.as_mut();
        let feeder = feeder.expect("the task is the feeder");
        if self.total.is_none() && !run.handover.is_halted() && feeder.has_permit(&run.handover) {
            self.time.begin();
            let _pulling = run.pulling();
            if source.poll_item(cx).is_pending() {
                return false;
            }
            let pulled = source.pull_polled(run, feeder);
            self.note(pulled, source);
            return true;
        }
        self.pull(source)
    }

    /// Looks for results once more. If there are none, keeps `waker` for them.
    #[cfg(feature = "futures")]
    fn has_results(&mut self, waker: Waker) -> bool {
        self.time.end();
        let run = &self.session.run;
        let Ends { feeder, collector } = unlocked(&mut self.ends);
        let has_room = feeder.as_mut().is_some_and(|feeder| feeder.has_permit(&run.handover));
        let lack = if self.total.is_some() || has_room { Lack::Input } else { Lack::Permits };
        let news = collector.poll_wait(&run.handover, self.total, lack, waker);
        collector.report_head(run);
        news.is_some_and(|news| {
            collector.end_wait(&run.handover);
            run.check(news);
            true
        })
    }

    /// Counts the result that the caller had as consumed. Returns whether it had one.
    fn take_back(&mut self) -> bool {
        unlocked(&mut self.ends).collector.take_back(&self.session.run.handover)
    }

    /// Looks for the next step, without waiting.
    fn look(&mut self) -> Look<R::Output> {
        let run = self.session.run.clone();
        let collector = &mut unlocked(&mut self.ends).collector;
        if run.is_cancelled() {
            return Look::Ready(Yield::Last(Error::Cancelled {}));
        }
        if let Some(error) = run.has_fatal_error().then(|| run.take_fatal_error()).flatten() {
            self.account.failed += error.items().len() as u64;
            return Look::Ready(Yield::Last(error));
        }
        while let Some((seq, outcome)) = collector.pop() {
            if run.is_pointless(seq, &outcome) {
                drop_quietly(outcome);
                collector.done(&run.handover);
                continue;
            }
            run.remove_name(seq);
            collector.lend();
            return Look::Ready(self.receive(&run, outcome));
        }
        if self.total == Some(collector.consumed()) {
            let Account { ok, failed, .. } = self.account;
            // At most once: the error of too many failures ends the stream.
            let policy = run.policy();
            return match policy.gives_up_at_end(failed, ok + failed) {
                true => Look::Ready(Yield::Last(policy.too_many(failed, ok + failed, None))),
                false => Look::Over,
            };
        }
        collector.settle(&run.handover);
        Look::Missing
    }

    fn receive(&mut self, run: &Run<R>, outcome: RunOutcome<R>) -> Yield<R::Output> {
        match outcome {
            Ok(output) => {
                self.account.ok += 1;
                self.tell(run);
                Yield::Output(output)
            }
            Err(none) => {
                let NoOutput::Failed(failed) = *none else {
                    unreachable!("outputs of a pool have neither a journal nor parts");
                };
                run.failure_delivered(&failed);
                let next = self.meet(run.policy(), failed);
                self.tell(run);
                next
            }
        }
    }

    /// Publishes the counts.
    fn tell(&self, run: &Run<R>) {
        let Account { ok, failed, .. } = self.account;
        run.event_log.delivered(ok, ok + failed);
    }

    /// Handles a failed item in its turn.
    fn meet(&mut self, policy: &Policy, failed: FailedItem) -> Yield<R::Output> {
        self.account.failed += failed.items();
        let Account { ok, failed: all, .. } = self.account;
        match failed.effect {
            Effect::Ends => Yield::Last(failed.error),
            Effect::Skipped if policy.gives_up_at(all, ok + all) => {
                Yield::Last(policy.too_many(all, ok + all, Some(failed.error)))
            }
            Effect::Skipped => Yield::Skipped(failed.error),
        }
    }

    /// Pulls one item, if there is one and the window has room.
    fn pull<I>(&mut self, source: &mut Source<I, R::Input>) -> bool {
        if self.total.is_some() {
            return false;
        }
        let run = &self.session.run;
        let feeder = unlocked(&mut self.ends).feeder.as_mut();
        let feeder = feeder.expect("the caller's thread is the feeder");
        let pulled = if run.handover.is_halted() {
            // The results that are taken meanwhile make room for an item that was pulled before.
            if !feeder.may_end(&run.handover) {
                return false;
            }
            source.end(run, feeder);
            Pulled::End
        } else if feeder.has_permit(&run.handover) {
            self.time.begin();
            let _pulling = run.pulling();
            source.pull_one(run, feeder)
        } else {
            return false;
        };
        self.note(pulled, source);
        true
    }

    /// Takes over the counts of the source.
    fn note<I>(&mut self, pulled: Pulled, source: &Source<I, R::Input>) {
        self.pulled = source.pulled();
        if let Pulled::End = pulled {
            self.total = Some(self.pulled);
        }
        self.account.unread = source.unread();
    }

    fn wait(&mut self) {
        self.time.end();
        let run = &self.session.run;
        let Ends { feeder, collector } = unlocked(&mut self.ends);
        let due = collector.news_due_in(run);
        let news = if self.total.is_some() || feeder.is_none() {
            collector.wait(&run.handover, self.total, due)
        } else {
            let before = collector.waited();
            let news = collector.wait_as_feeder(&run.handover, due);
            let lasted = collector.waited() - before;
            self.time.note_wait(lasted);
            run.report_full_window(lasted);
            news
        };
        collector.report_head(run);
        run.check(news);
    }

    /// The counts so far. Items in flight count as cancelled if the caller's thread feeds.
    pub(super) fn account(&self) -> Account {
        let Account { ok, failed, unread, .. } = self.account;
        Account::new(self.pulled.max(ok + failed), ok, failed, 0, unread)
    }

    /// Takes over the counts of a feeder of its own, which has left.
    pub(super) fn note_fed(&mut self, Fed { pulled, unread }: Fed) {
        self.pulled = pulled;
        self.account.unread = unread;
    }

    #[cfg(feature = "futures")]
    pub(super) fn session(&self) -> &Session<R> {
        &self.session
    }

    /// Aborts the run: no more items are worked on.
    pub(super) fn abort(&self) {
        self.session.run.abort();
    }

    /// Gives up both ends, and returns the session.
    pub(super) fn leave(self) -> Session<R> {
        let Streaming { session, ends, time, .. } = self;
        let (present, waited, _) = time.totals();
        let ends = ends.into_inner().expect("it is never locked, so it is not poisoned");
        if let Some(mut feeder) = ends.feeder {
            session.run.handover.stats.source_left(present, waited);
            feeder.take_held().into_iter().for_each(drop_quietly);
        }
        ends.collector.leave(&session.run.handover).into_iter().for_each(drop_quietly);
        session
    }
}

fn unlocked<R: Runner>(ends: &mut Mutex<Ends<R>>) -> &mut Ends<R> {
    ends.get_mut().expect("it is never locked, so it is not poisoned")
}

//! A stream in progress.

use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::collector::Collector;
use super::run_session::Session;
use crate::backend::threads::failed_item::{Disposition, FailedItem};
use crate::backend::threads::handover::WakeReason;
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::run::Run;
use crate::base::Order;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::concurrency::waiting::take_waited;
use crate::engine::feed::{Pulled, Source};
use crate::error::Error;
use crate::observe::account::Account;
use crate::observe::event::Destination;
use crate::runner::Runner;
use crate::scheduler::policy::Policy;
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

/// The two ends of the hand-over that the caller's thread holds.
struct Ends<R: Runner> {
    feeder: Feeder<R::Input, R::Output>,
    collector: Collector<R::Output>,
}

impl<R: Runner> Streaming<R> {
    pub(super) fn new(
        session: Session<R>,
        order: Order,
        window: Window,
        unread: Option<u64>,
    ) -> Streaming<R> {
        let handover = &session.run.handover;
        let feeder = Feeder::new(handover);
        let collector = Collector::new(handover, order, window, Instant::now());
        let ends = Mutex::new(Ends { feeder, collector });
        let account = Account::new(0, 0, 0, 0, unread);
        handover.stats.goes_to(Destination::Outputs);
        Streaming { session, ends, total: None, account, pulled: 0, time: FeedingTime::default() }
    }

    /// The next step of the stream; `None` after the last.
    pub(super) fn next<I>(&mut self, source: &mut Source<I, R::Input>) -> Option<Yield<R::Output>> {
        let next = self.feed_until_next(source);
        self.time.end();
        next
    }

    fn feed_until_next<I>(&mut self, source: &mut Source<I, R::Input>) -> Option<Yield<R::Output>> {
        let run = self.session.run.clone();
        loop {
            let collector = &mut unlocked(&mut self.ends).collector;
            if run.is_cancelled() {
                return Some(Yield::Last(Error::Cancelled {}));
            }
            if let Some(error) = run.has_fatal_error().then(|| run.take_fatal_error()).flatten() {
                let items = error.items().len() as u64;
                if items > 0 {
                    run.report_failure(&error);
                }
                self.account.failed += items;
                return Some(Yield::Last(error));
            }
            if let Some((seq, outcome)) = collector.pop() {
                if run.is_pointless(seq, &outcome) {
                    drop_quietly(outcome);
                    collector.done(&run.handover);
                    continue;
                }
                run.remove_name(seq);
                collector.done(&run.handover);
                return Some(match outcome {
                    Ok(output) => {
                        self.account.ok += 1;
                        run.event_log.consumed(self.account.ok);
                        Yield::Output(output)
                    }
                    Err(fault) => {
                        if fault.disposition != Disposition::SkipEarlier {
                            run.report_failure(&fault.error);
                        }
                        self.meet(run.policy(), *fault)
                    }
                });
            }
            if self.total == Some(collector.consumed()) {
                let Account { ok, failed, .. } = self.account;
                // At most once: the error of too many failures ends the stream.
                let policy = run.policy();
                return policy
                    .gives_up_at_end(failed, ok + failed)
                    .then(|| Yield::Last(policy.too_many(failed, ok + failed, None)));
            }
            collector.settle(&run.handover);
            if !self.pull(&run, source) {
                let news = self.wait(&run);
                unlocked(&mut self.ends).collector.report_head(&run);
                run.check(news);
            }
        }
    }

    /// Handles a failed item in its turn.
    fn meet(&mut self, policy: &Policy, fault: FailedItem) -> Yield<R::Output> {
        self.account.failed += fault.items();
        let Account { ok, failed, .. } = self.account;
        match fault.disposition {
            Disposition::End | Disposition::EndEarlier => Yield::Last(fault.error),
            _ if policy.gives_up_at(failed, ok + failed) => {
                Yield::Last(policy.too_many(failed, ok + failed, Some(fault.error)))
            }
            Disposition::Skip
            | Disposition::SkipEarlier
            | Disposition::AlreadyDone
            | Disposition::AlreadyDoneEarlier => Yield::Skipped(fault.error),
        }
    }

    /// Pulls one item, if there is one and the window has room.
    fn pull<I>(&mut self, run: &Run<R>, source: &mut Source<I, R::Input>) -> bool {
        if self.total.is_some() {
            return false;
        }
        let feeder = &mut unlocked(&mut self.ends).feeder;
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
        self.pulled = source.pulled();
        if let Pulled::End = pulled {
            self.total = Some(self.pulled);
        }
        self.account.unread = source.unread();
        true
    }

    fn wait(&mut self, run: &Run<R>) -> WakeReason {
        self.time.end();
        let collector = &mut unlocked(&mut self.ends).collector;
        let due = collector.news_due_in(run);
        if self.total.is_some() {
            return collector.wait(&run.handover, self.total, due);
        }
        let before = collector.waited();
        let news = collector.wait_as_feeder(&run.handover, due);
        let lasted = collector.waited() - before;
        self.time.note_wait(lasted);
        run.report_full_window(lasted);
        news
    }

    pub(super) fn account(&self) -> Account {
        Account::new(self.pulled, self.account.ok, self.account.failed, 0, self.account.unread)
    }

    /// Aborts the run: no more items are worked on.
    pub(super) fn abort(&self) {
        self.session.run.abort();
    }

    /// Gives up both ends, and returns the session.
    pub(super) fn leave(self) -> Session<R> {
        let Streaming { session, ends, time, .. } = self;
        let (present, waited, _) = time.totals();
        session.run.handover.stats.source_left(present, waited);
        let mut ends = ends.into_inner().expect("it is never locked, so it is not poisoned");
        ends.feeder.take_held().into_iter().for_each(drop_quietly);
        ends.collector.leave(&session.run.handover).into_iter().for_each(drop_quietly);
        session
    }
}

fn unlocked<R: Runner>(ends: &mut Mutex<Ends<R>>) -> &mut Ends<R> {
    ends.get_mut().expect("it is never locked, so it is not poisoned")
}

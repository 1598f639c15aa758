//! A run that a task feeds.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;

use super::consuming::Consumed;
use super::consuming_task::{ConsumingTask, Start};
use super::feed::{FeederTime, Pulled, Source};
use super::polled::Polled;
use super::run_session::{Left, Session};
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::run::Run;
use crate::backend::threads::taken::Taken;
use crate::base::panic::drop_quietly;
use crate::concurrency::parker::block_on;
use crate::error::Error;
use crate::observe::account::Account;
use crate::runner::Runner;

/// The most items that a task pulls before it lets others run, if the stream always has one.
const MOST_PER_POLL: u32 = 128;

/// A run that a task feeds, while a thread of ours consumes.
pub(super) struct StreamRun<R: Runner> {
    session: Session<R>,
    feeding: Feeding,
    /// Locked only to look at it. The mutex makes the pool `Sync` although inputs and
    /// summaries are only `Send`.
    ends: Mutex<Ends<R>>,
    time: FeederTime,
    pulled: u64,
    unread: Option<u64>,
}

/// How far the feeding has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Feeding {
    /// `consumer_init` has not returned.
    Later,
    Now,
    Over,
}

struct Ends<R: Runner> {
    /// `None` once the input has ended.
    feeder: Option<Feeder<R::Input, R::Output>>,
    /// `None` once it has been left.
    consumer: Option<ConsumingTask<R::Summary>>,
}

/// A run that is over for its task.
pub(super) struct Over<R: Runner> {
    pub(super) result: Result<R::Summary, Error>,
    pub(super) left: Left<R>,
}

impl<R: Runner> StreamRun<R> {
    pub(super) fn new(
        session: Session<R>,
        consumer: ConsumingTask<R::Summary>,
        unread: Option<u64>,
    ) -> Self {
        let feeder = Some(Feeder::new(&session.run.handover));
        let ends = Mutex::new(Ends { feeder, consumer: Some(consumer) });
        let (feeding, time) = (Feeding::Later, FeederTime::new());
        StreamRun { session, feeding, ends, time, pulled: 0, unread }
    }

    pub(super) fn session(&self) -> &Session<R> {
        &self.session
    }

    /// The counts before the end: all that was pulled, since only the consumer knows how it went.
    pub(super) fn account(&self) -> Account {
        Account::new(self.pulled, 0, 0, 0, self.unread)
    }

    /// Feeds the run as far as it goes. Ready once everything is consumed and every producer has left.
    pub(super) fn poll<S: Stream>(
        &mut self,
        source: &mut Source<Polled<S>, R::Input>,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<()> {
        // First: all that is looked at below wakes the task when it changes later.
        self.session.run.handover.keep_waker(waker);
        if self.feeding == Feeding::Later {
            self.feeding =
                match unlocked(&mut self.ends).consumer.as_ref().map(ConsumingTask::may_start) {
                    Some(Start::Go) => Feeding::Now,
                    Some(Start::Awaited) if !self.session.run.has_left_consumer() => {
                        return Poll::Pending;
                    }
                    _ => Feeding::Over,
                };
        }
        if self.feeding == Feeding::Now {
            ready!(self.feed(source, cx, waker));
            self.feeding = Feeding::Over;
        }
        match self.is_consumed() {
            true => self.session.have_left(waker).then_some(()).map_or(Poll::Pending, Poll::Ready),
            false => Poll::Pending,
        }
    }

    fn feed<S: Stream>(
        &mut self,
        source: &mut Source<Polled<S>, R::Input>,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<()> {
        let run = self.session.run.clone();
        let Some(feeder) = unlocked(&mut self.ends).feeder.as_mut() else { return Poll::Ready(()) };
        self.time.feed_again(&run);
        let fed = feed(&run, feeder, source, &mut self.time, (cx, waker));
        (self.pulled, self.unread) = (source.pulled(), source.unread());
        if fed.is_ready() {
            self.time.leave(&run);
        }
        fed
    }

    /// Whether the consumer is done, or was abandoned in a hook.
    pub(super) fn is_consumed(&self) -> bool {
        let ends = self.ends.lock().expect("nothing panics under this lock");
        ends.consumer.as_ref().is_none_or(ConsumingTask::is_done)
            || self.session.run.has_left_consumer()
    }

    /// Gives up feeding, and drops the item that waits for room.
    pub(super) fn drop_feeder(&mut self) {
        let feeder = unlocked(&mut self.ends).feeder.take();
        feeder.and_then(|mut feeder| feeder.take_held()).into_iter().for_each(drop_quietly);
    }

    /// Leaves the run after it was aborted. Waits for the consumer's hook to return.
    pub(super) fn leave(self) -> Left<R> {
        let over = self.into_over();
        drop_quietly(over.result);
        over.left
    }

    /// The result, once the consumer is done.
    pub(super) fn into_over(mut self) -> Over<R> {
        self.drop_feeder();
        let run = self.session.run.clone();
        block_on(|cx| {
            run.handover.keep_waker(cx.waker());
            if self.is_consumed() { Poll::Ready(()) } else { Poll::Pending }
        });
        let consumer = unlocked(&mut self.ends).consumer.take();
        let consumed = consumer.and_then(ConsumingTask::finish);
        let Consumed { result, taken, failures } =
            consumed.unwrap_or_else(|| Consumed::abandoned(&run));
        let account = account(self.pulled, taken, self.unread);
        Over { result, left: Left { session: self.session, account, failures } }
    }
}

fn account(pulled: u64, taken: Taken, unread: Option<u64>) -> Account {
    Account::new(pulled, taken.ok, taken.failed(), taken.already_done, unread)
}

/// Pulls as long as the stream has items and the window has room. Ready once the input has ended.
fn feed<R: Runner, S: Stream>(
    run: &Run<R>,
    feeder: &mut Feeder<R::Input, R::Output>,
    source: &mut Source<Polled<S>, R::Input>,
    time: &mut FeederTime,
    (cx, waker): (&mut Context<'_>, &Waker),
) -> Poll<()> {
    for _ in 0..MOST_PER_POLL {
        if run.handover.is_halted() {
            source.end(run, feeder);
            return Poll::Ready(());
        }
        if !feeder.awaits_no_permit(&run.handover) {
            time.starve(run);
            return Poll::Pending;
        }
        let _pulling = run.pulling();
        ready!(source.poll_item(cx));
        if let Pulled::End = source.pull_one(run, feeder) {
            return Poll::Ready(());
        }
    }
    waker.wake_by_ref();
    Poll::Pending
}

fn unlocked<R: Runner>(ends: &mut Mutex<Ends<R>>) -> &mut Ends<R> {
    ends.get_mut().expect("nothing panics under this lock")
}

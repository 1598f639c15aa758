//! A run that a task feeds.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;

use super::consuming::Consumed;
use super::consuming_task::{ConsumingTask, Start};
use super::feed::Source;
use super::polled::Polled;
use super::run_session::{Left, Session};
use super::task_feeding::TaskFeeding;
use crate::base::panic::drop_quietly;
use crate::concurrency::parker::block_on;
use crate::error::Error;
use crate::observe::account::Account;
use crate::runner::Runner;

/// A run that a task feeds, while a thread of ours consumes.
pub(super) struct StreamRun<R: Runner> {
    session: Session<R>,
    feeding: TaskFeeding<R>,
    /// Locked only to look at it. The mutex makes the pool `Sync` although summaries are only `Send`. `None` once
    /// it has been left.
    consumer: Mutex<Option<ConsumingTask<R::Summary>>>,
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
        let feeding = TaskFeeding::new(&session.run, unread);
        StreamRun { session, feeding, consumer: Mutex::new(Some(consumer)) }
    }

    pub(super) fn session(&self) -> &Session<R> {
        &self.session
    }

    /// The counts before the end.
    pub(super) fn account(&self) -> Account {
        self.feeding.account(self.session.run.tally.get())
    }

    /// Feeds the run as far as it goes. Ready once everything is consumed and every producer has left.
    pub(super) fn poll<S: Stream>(
        &mut self,
        source: &mut Source<Polled<S>, R::Input>,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<()> {
        let run = self.session.run.clone();
        let consumer = self.consumer.get_mut().expect("nothing panics under this lock");
        let start = || consumer.as_ref().map_or(Start::Never, |consumer| consumer.may_start(&run));
        ready!(self.feeding.poll(&run, start, source, (cx, waker)));
        match self.is_consumed() {
            true => self.session.have_left(waker).then_some(()).map_or(Poll::Pending, Poll::Ready),
            false => Poll::Pending,
        }
    }

    /// Whether the consumer is done, or was abandoned in a hook.
    pub(super) fn is_consumed(&self) -> bool {
        let consumer = self.consumer.lock().expect("nothing panics under this lock");
        consumer.as_ref().is_none_or(|consumer| consumer.is_left_or_done(&self.session.run))
    }

    /// Gives up feeding, and drops the item that waits for room.
    pub(super) fn drop_feeder(&mut self) {
        self.feeding.drop_feeder();
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
        let consumer = self.consumer.into_inner().expect("nothing panics under this lock");
        let consumed = consumer.and_then(ConsumingTask::finish);
        let Consumed { result, taken, failures } =
            consumed.unwrap_or_else(|| Consumed::abandoned(&run));
        let account = self.feeding.account(taken);
        Over { result, left: Left { session: self.session, account, failures } }
    }
}

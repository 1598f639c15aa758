//! The input of a run that a task feeds.

use std::sync::Mutex;
use std::task::{Context, Poll, Waker, ready};

use futures_core::Stream;

use super::consuming_task::Start;
use super::feed::{FeederTime, Pulled, Source};
use super::polled::{MOST_PER_POLL, Polled};
use crate::backend::threads::handover::feeder::Feeder;
use crate::backend::threads::run::Run;
use crate::backend::threads::taken::Taken;
use crate::base::panic::drop_quietly;
use crate::observe::account::Account;
use crate::runner::Runner;

/// The input of a run that a task feeds.
pub(super) struct TaskFeeding<R: Runner> {
    progress: Progress,
    /// Never locked, since access is always `&mut`. The mutex makes the pool `Sync` although inputs are only
    /// `Send`. `None` once it has been dropped.
    feeder: Mutex<Option<Feeder<R::Input, R::Output>>>,
    time: FeederTime,
    pulled: u64,
    unread: Option<u64>,
}

/// How far the feeding has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Progress {
    /// `consumer_init` has not returned.
    Later,
    Now,
    Over,
}

impl<R: Runner> TaskFeeding<R> {
    pub(super) fn new(run: &Run<R>, unread: Option<u64>) -> Self {
        let feeder = Mutex::new(Some(Feeder::new(&run.handover)));
        let (progress, time) = (Progress::Later, FeederTime::new());
        TaskFeeding { progress, feeder, time, pulled: 0, unread }
    }

    /// The counts of the run, if these results were taken.
    pub(super) fn account(&self, taken: Taken) -> Account {
        Account::new(self.pulled, taken.ok, taken.failed(), taken.already_done, self.unread)
    }

    /// Feeds `run` as far as it goes. Ready once the input has ended. `start` says whether it may be pulled yet.
    pub(super) fn poll<S: Stream>(
        &mut self,
        run: &Run<R>,
        start: impl FnOnce() -> Start,
        source: &mut Source<Polled<S>, R::Input>,
        (cx, waker): (&mut Context<'_>, &Waker),
    ) -> Poll<()> {
        // First: all that is looked at below wakes the task when it changes later.
        run.handover.keep_waker(waker);
        if self.progress == Progress::Later {
            self.progress = match start() {
                Start::Go => Progress::Now,
                Start::Awaited => return Poll::Pending,
                Start::Never => Progress::Over,
            };
        }
        if self.progress == Progress::Now {
            ready!(self.feed(run, source, (cx, waker)));
            self.progress = Progress::Over;
        }
        Poll::Ready(())
    }

    fn feed<S: Stream>(
        &mut self,
        run: &Run<R>,
        source: &mut Source<Polled<S>, R::Input>,
        wakers: (&mut Context<'_>, &Waker),
    ) -> Poll<()> {
        let feeder = self.feeder.get_mut().expect("it is never locked, so it is not poisoned");
        let Some(feeder) = feeder else { return Poll::Ready(()) };
        self.time.feed_again(run);
        let fed = feed(run, feeder, source, &mut self.time, wakers);
        (self.pulled, self.unread) = (source.pulled(), source.unread());
        if fed.is_ready() {
            self.time.leave(run);
        }
        fed
    }

    /// Gives up feeding, and drops the item that waits for room.
    pub(super) fn drop_feeder(&mut self) {
        let feeder = self.feeder.get_mut().expect("it is never locked, so it is not poisoned");
        let held = feeder.take().and_then(|mut feeder| feeder.take_held());
        held.into_iter().for_each(drop_quietly);
    }
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
        if let Pulled::End = source.pull_polled(run, feeder) {
            return Poll::Ready(());
        }
    }
    waker.wake_by_ref();
    Poll::Pending
}

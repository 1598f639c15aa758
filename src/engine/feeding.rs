//! The pulling of a line's input between two looks for results: by the driver itself, or by a thread of its own.

#[cfg(feature = "futures")]
use std::task::Context;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

#[cfg(feature = "futures")]
use futures_core::Stream;

#[cfg(feature = "futures")]
use super::feed::Polled;
use super::feed::{Pulled, Source};
use super::link::FeedCounts;
use super::own_feeder::OwnFeeder;
use crate::base::panic::drop_quietly;
use crate::concurrency::now;
use crate::concurrency::time_aside::take_waited;
use crate::run::Run;
use crate::run::handover::feeder::Feeder;

/// The most items that a task pulls in one poll. Then it wakes itself, and lets other tasks run.
pub(super) const MOST_PER_POLL: u64 = 128;

/// The input of a line whose outputs a caller takes.
pub(super) enum Feeding<I, T, U> {
    /// The driver pulls the source, between two looks for results.
    Here(Box<PulledSource<I, T, U>>),
    /// A thread of its own does.
    Elsewhere(OwnFeeder),
}

/// A source that the driver pulls.
pub(super) struct PulledSource<I, T, U> {
    source: Source<I, T>,
    feeder: Feeder<T, U>,
    is_over: bool,
    /// What the last look lacked, for the wait that may follow.
    lack: Lack,
    time: PullingTime,
    /// The start of the wait of a task that only feeds.
    #[cfg(feature = "futures")]
    waits_since: Option<Instant>,
}

/// What keeps the driver from pulling.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Lack {
    /// The window has no room.
    Room,
    /// The stream has no item yet.
    Item,
}

/// How an item leaves its source.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pull {
    /// By a call that may block.
    Call,
    /// By a poll. An item that was polled is given out although the run was halted meanwhile: it would be lost.
    Poll,
}

/// How long the driver was in its source, and how long it waited.
#[derive(Debug, Default)]
struct PullingTime {
    working: Duration,
    /// The waits for an item of a stream. A thread is in its iterator meanwhile.
    awaiting: Duration,
    /// The waits for room.
    waited: Duration,
    /// The part of `working` in which the iterator only waited.
    waited_inside: Duration,
    /// The start of the current series of pulls. Not read per item, since several are mostly pulled in a row.
    since: Option<Instant>,
}

impl<I, T, U> Feeding<I, T, U> {
    pub(super) fn here(source: Source<I, T>, run: &Run<T, U>) -> Self {
        let feeder = Feeder::new(&run.handover).before_pulls();
        Feeding::Here(Box::new(PulledSource::new(source, feeder)))
    }

    /// Pulls up to `most` items as the window has room, and one from a stream. Returns their number, which is 0 at the
    /// end of the input, or `None` if it could pull none. `is_ready` polls the source.
    pub(super) fn pull(
        &mut self,
        run: &Run<T, U>,
        pull: Pull,
        most: u64,
        is_ready: impl FnOnce(&mut Source<I, T>) -> Poll<()>,
    ) -> Option<u64> {
        match self {
            Feeding::Here(pulling) => pulling.pull(run, pull, most, is_ready),
            Feeding::Elsewhere(_) => None,
        }
    }

    /// Ends a series of pulls.
    pub(super) fn pause(&mut self) {
        if let Feeding::Here(pulling) = self {
            pulling.time.pause();
        }
    }

    /// States what the driver lacks before it waits as the collector.
    pub(super) fn begin_wait(&self, run: &Run<T, U>) {
        if let Feeding::Here(pulling) = self {
            pulling.begin_wait(run);
        }
    }

    /// Whether the driver has what it lacks. If not, a ring uses `waker`, which wakes its thread; a task has kept its own.
    ///
    /// The waker is kept at each look, and first: a ring that is meant for an earlier wait may come late and take it.
    pub(super) fn may_go_on(&self, run: &Run<T, U>, pull: Pull, waker: &Waker) -> bool {
        if let Feeding::Here(pulling) = self
            && pulling.awaits_room()
            && pull == Pull::Call
        {
            run.driver().keep(waker);
        }
        run.handover.permits.may_feed_again()
    }

    /// Ends a wait that lasted so long.
    pub(super) fn end_wait(&mut self, run: &Run<T, U>, lasted: Duration) {
        if let Feeding::Here(pulling) = self {
            pulling.end_wait(run, lasted);
        }
    }

    /// The input so far, as the first stage counts it.
    pub(super) fn given(&self) -> FeedCounts {
        match self {
            Feeding::Here(pulling) => pulling.given(),
            // Those in flight are not counted yet.
            Feeding::Elsewhere(feeder) => {
                FeedCounts { items: 0, unread: feeder.unread(), passed_on: None }
            }
        }
    }

    /// The largest number of results that are to come after `yielded`, if the source knows one.
    pub(super) fn most_left(&self, yielded: u64) -> Option<usize> {
        match self {
            Feeding::Here(pulling) => {
                let in_flight = pulling.source.pulled().saturating_sub(yielded) as usize;
                pulling.source.most_left().map(|left| left.saturating_add(in_flight))
            }
            Feeding::Elsewhere(feeder) => {
                feeder.most().map(|most| most.saturating_sub(yielded as usize))
            }
        }
    }

    /// Leaves the run, which was aborted. Returns what was pulled, and how long the driver was in the source.
    pub(super) fn leave(self, run: &Run<T, U>) -> (FeedCounts, Duration) {
        let given = self.given();
        match self {
            Feeding::Here(pulling) => (given, pulling.leave(run)),
            Feeding::Elsewhere(feeder) => (feeder.leave(), Duration::ZERO),
        }
    }
}

impl<I, T, U> PulledSource<I, T, U> {
    fn new(source: Source<I, T>, feeder: Feeder<T, U>) -> Self {
        PulledSource {
            source,
            feeder,
            is_over: false,
            lack: Lack::Room,
            time: PullingTime::default(),
            #[cfg(feature = "futures")]
            waits_since: None,
        }
    }

    fn pull(
        &mut self,
        run: &Run<T, U>,
        pull: Pull,
        most: u64,
        is_ready: impl FnOnce(&mut Source<I, T>) -> Poll<()>,
    ) -> Option<u64> {
        let PulledSource { source, feeder, time, .. } = self;
        if self.is_over {
            return None;
        }
        let before = source.pulled();
        let pulled = if run.handover.is_halted() {
            // The results that are taken meanwhile make room for an item that was pulled before.
            if !feeder.may_end(&run.handover) {
                self.lack = Lack::Room;
                return None;
            }
            source.end(run, feeder);
            Pulled::End
        } else if feeder.has_permit(&run.handover) {
            time.begin();
            let _pulling = run.pulling();
            if is_ready(source).is_pending() {
                self.lack = Lack::Item;
                return None;
            }
            match pull {
                Pull::Call => source.pull_some(run, feeder, most),
                Pull::Poll => source.pull_polled(run, feeder),
            }
        } else {
            self.lack = Lack::Room;
            return None;
        };
        self.is_over = matches!(pulled, Pulled::End);
        Some(self.source.pulled() - before)
    }

    fn awaits_room(&self) -> bool {
        !self.is_over && self.lack == Lack::Room
    }

    fn begin_wait(&self, run: &Run<T, U>) {
        if self.awaits_room() {
            self.feeder.begin_to_wait_elsewhere(&run.handover);
        }
    }

    fn end_wait(&mut self, run: &Run<T, U>, lasted: Duration) {
        if self.awaits_room() {
            run.handover.end_to_wait_elsewhere();
            self.time.waited += lasted;
            run.report_full_window(lasted);
        } else if !self.is_over {
            self.time.awaiting += lasted;
        }
    }

    /// The input so far.
    pub(super) fn given(&self) -> FeedCounts {
        FeedCounts { items: self.source.pulled(), unread: self.source.unread(), passed_on: None }
    }

    /// Drops the item that waits for room. Returns how long the driver was in the source.
    pub(super) fn leave(mut self, run: &Run<T, U>) -> Duration {
        let PullingTime { working, awaiting, waited, waited_inside, .. } = self.time;
        run.handover.stats.source_left(working + awaiting + waited, waited + waited_inside);
        self.feeder.take_held().into_iter().for_each(drop_quietly);
        working
    }
}

#[cfg(feature = "futures")]
impl<S: Stream, T, U> PulledSource<Polled<S>, T, U> {
    /// A stream that the task of a run with a consumer pulls. It takes permits in lots, as a thread does.
    pub(super) fn polled(source: Source<Polled<S>, T>, run: &Run<T, U>) -> Self {
        let feeder = Feeder::new(&run.handover).before_pulls().in_lots(&run.handover);
        PulledSource::new(source, feeder)
    }

    /// Pulls as long as the stream has items and the window has room. Ready once the input has ended. Otherwise the task
    /// is woken by the stream, or by the bell of the run's driver.
    pub(super) fn poll(
        &mut self,
        run: &Run<T, U>,
        cx: &mut Context<'_>,
        waker: &Waker,
    ) -> Poll<()> {
        if let Some(since) = self.waits_since.take() {
            self.end_wait(run, now() - since);
        }
        for _ in 0..MOST_PER_POLL {
            if self.pull(run, Pull::Poll, 1, |source| source.poll_item(cx)).is_some() {
                continue;
            }
            if !self.is_over {
                self.begin_wait(run);
                if self.awaits_room() && run.handover.permits.may_feed_again() {
                    self.end_wait(run, Duration::ZERO);
                    continue;
                }
                self.waits_since = Some(now());
            }
            self.time.pause();
            return if self.is_over { Poll::Ready(()) } else { Poll::Pending };
        }
        self.time.pause();
        waker.wake_by_ref();
        Poll::Pending
    }
}

impl PullingTime {
    fn begin(&mut self) {
        self.since.get_or_insert_with(|| {
            // An earlier use of the thread does not count.
            take_waited();
            now()
        });
    }

    fn pause(&mut self) {
        if let Some(since) = self.since.take() {
            self.working += now() - since;
            self.waited_inside += take_waited();
        }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::Wake;

    use super::*;

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_ring_for_an_earlier_wait_does_not_lose_the_next() {
        let run = Run::<u64, u64>::alone(1, 1, None);
        let source = Source::new(0..9_u64, |items: &mut std::ops::Range<u64>| items.next().map(Ok));
        let mut feeding = Feeding::here(source, &run);
        let ready = |_: &mut Source<_, _>| Poll::Ready(());
        assert_eq!(feeding.pull(&run, Pull::Call, 1, ready), Some(1));
        assert_eq!(feeding.pull(&run, Pull::Call, 1, ready), None, "the window has one item");

        let woken = Arc::new(Woken::default());
        let waker = woken.clone().into();
        feeding.begin_wait(&run);
        assert!(!feeding.may_go_on(&run, Pull::Call, &waker));
        run.driver().ring();
        assert!(!feeding.may_go_on(&run, Pull::Call, &waker), "there is still no permit");
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        run.handover.permits.give_back(1);
        assert_eq!(woken.0.load(Ordering::Relaxed), 2);
        assert!(feeding.may_go_on(&run, Pull::Call, &waker));
    }
}

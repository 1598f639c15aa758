//! The pulling of a line's input: by the driver itself, or by a thread of its own.

use std::sync::Arc;
use std::task::{Poll, Waker};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::feed::{Next, Pulled, Source};
use super::link::FeedCounts;
use crate::base::panic::drop_quietly;
use crate::concurrency::atomic::{AtomicU8, AtomicU64, Ordering};
use crate::concurrency::now;
use crate::concurrency::spawn::spawn;
use crate::concurrency::waiting::take_waited;
use crate::error::Error;
use crate::run::Run;
use crate::run::abort_guard::AbortGuard;
use crate::run::handover::feeder::Feeder;

const NAME: &str = "gangline-f";

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
        let (feeder, time) = (Feeder::new(&run.handover).before_pulls(), PullingTime::default());
        Feeding::Here(Box::new(PulledSource {
            source,
            feeder,
            is_over: false,
            lack: Lack::Room,
            time,
        }))
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
        if let Feeding::Here(pulling) = self
            && pulling.awaits_room()
        {
            pulling.feeder.begin_to_wait_elsewhere(&run.handover);
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
        let Feeding::Here(pulling) = self else { return };
        if pulling.awaits_room() {
            run.handover.end_to_wait_elsewhere();
            pulling.time.waited += lasted;
            run.report_full_window(lasted);
        } else if !pulling.is_over {
            pulling.time.awaiting += lasted;
        }
    }

    /// The number of items pulled, if the driver pulls.
    pub(super) fn pulled(&self) -> u64 {
        match self {
            Feeding::Here(pulling) => pulling.source.pulled(),
            // Those in flight are not counted yet.
            Feeding::Elsewhere(_) => 0,
        }
    }

    /// The input so far, as the first stage counts it.
    pub(super) fn given(&self) -> FeedCounts {
        let unread = match self {
            Feeding::Here(pulling) => pulling.source.unread(),
            Feeding::Elsewhere(feeder) => feeder.unread(),
        };
        FeedCounts { items: self.pulled(), unread, passed_on: None }
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
            Feeding::Here(mut pulling) => {
                let PullingTime { working, awaiting, waited, waited_inside, .. } = pulling.time;
                let present = working + awaiting + waited;
                run.handover.stats.source_left(present, waited + waited_inside);
                pulling.feeder.take_held().into_iter().for_each(drop_quietly);
                (given, working)
            }
            Feeding::Elsewhere(feeder) => (feeder.leave(), Duration::ZERO),
        }
    }
}

impl<I, T, U> PulledSource<I, T, U> {
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

/// The thread that feeds a run, as seen by the thread that takes the outputs.
pub(super) struct OwnFeeder {
    thread: JoinHandle<FeedCounts>,
    gate: Arc<PullGate>,
    /// The numbers of items, as far as the source knew them at the start.
    unread: Option<u64>,
    most: Option<usize>,
}

/// A source that another thread pulls.
pub(crate) struct GatedSource<I, T> {
    source: Source<GatedItems<I>, T>,
    next: Next<GatedItems<I>, T>,
    gate: Arc<PullGate>,
}

/// Says whether the caller's iterator is being pulled.
#[derive(Debug, Default)]
struct PullGate {
    state: AtomicU8,
    /// The number of items that the iterator has returned.
    pulled: AtomicU64,
}

/// The iterator is not being pulled.
const OUTSIDE: u8 = 0;
/// The feeder is in the iterator's `next`.
const INSIDE: u8 = 1;
/// The iterator is not pulled again.
const CLOSED: u8 = 2;

/// The caller's iterator behind a gate, which can be closed while the feeder is inside.
pub(crate) struct GatedItems<I> {
    iter: I,
    gate: Arc<PullGate>,
}

/// Opens the gate again when dropped, also if the iterator panics.
struct Inside<'a>(&'a PullGate);

impl PullGate {
    fn enter(&self) -> Option<Inside<'_>> {
        let entered =
            self.state.compare_exchange(OUTSIDE, INSIDE, Ordering::AcqRel, Ordering::Acquire);
        entered.is_ok().then_some(Inside(self))
    }

    fn pulled(&self) -> u64 {
        self.pulled.load(Ordering::Relaxed)
    }

    fn is_closed(&self) -> bool {
        self.state.load(Ordering::Acquire) == CLOSED
    }

    /// Closes the gate. Returns whether the feeder is inside, where it may stay for ever.
    fn close(&self) -> bool {
        self.state.swap(CLOSED, Ordering::AcqRel) == INSIDE
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let state = &self.0.state;
        // If this fails, the gate was closed meanwhile.
        let _ = state.compare_exchange(INSIDE, OUTSIDE, Ordering::AcqRel, Ordering::Acquire);
    }
}

impl<I: Iterator> Iterator for GatedItems<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let inside = self.gate.enter()?;
        let item = self.iter.next();
        drop(inside);
        if self.gate.is_closed() {
            drop_quietly(item);
            return None;
        }
        self.gate.pulled.fetch_add(u64::from(item.is_some()), Ordering::Relaxed);
        item
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.iter.size_hint()
    }
}

impl<I: Iterator, T> GatedSource<I, T> {
    /// Creates a source from `items`; `next` pulls and converts one item.
    pub(crate) fn new<J>(items: J, next: Next<GatedItems<I>, T>) -> Self
    where
        J: IntoIterator<IntoIter = I, Item = I::Item>,
    {
        let gate = Arc::new(PullGate::default());
        let source = Source::new(Gating { items, gate: gate.clone() }, next);
        GatedSource { source, next, gate }
    }

    pub(super) fn unread(&self) -> Option<u64> {
        self.source.unread()
    }
}

impl OwnFeeder {
    /// Starts to feed `run`. The producers are then busy while the caller works.
    pub(super) fn start<I, T, U>(
        run: Arc<Run<T, U>>,
        gated: GatedSource<I, T>,
    ) -> Result<Self, Error>
    where
        I: Send + 'static,
        T: Send + 'static,
        U: Send + 'static,
    {
        let GatedSource { mut source, next, gate } = gated;
        let (unread, most) = (source.unread(), source.most_left());
        let thread = spawn(NAME.to_owned(), None, move || {
            // The caller would wait for its items.
            let bug = AbortGuard::new(&run);
            let span = run.spans.enter();
            source.feed(&run, next);
            drop(span);
            bug.disarm();
            FeedCounts { items: source.pulled(), unread: source.unread(), passed_on: None }
        })?;
        Ok(OwnFeeder { thread, gate, unread, most })
    }

    /// The number of items left, if the source knew it at the start.
    pub(super) fn unread(&self) -> Option<u64> {
        self.unread.map(|all| all.saturating_sub(self.gate.pulled()))
    }

    /// The largest number of items that the source had at the start, if it knew one.
    pub(super) fn most(&self) -> Option<usize> {
        self.most
    }

    /// The input so far, as the first stage counts it.
    fn given(&self) -> FeedCounts {
        FeedCounts { items: self.gate.pulled(), unread: self.unread(), passed_on: None }
    }

    /// Leaves the thread after the run was aborted. Waits for it, unless it is inside the caller's iterator, which may
    /// block for ever.
    pub(super) fn leave(self) -> FeedCounts {
        // The caller's iterator may drop this value, on that thread.
        let is_own = self.thread.thread().id() == thread::current().id();
        if self.gate.close() || is_own {
            return self.given();
        }
        let given = self.given();
        match self.thread.join() {
            Ok(given) => given,
            Err(payload) if !thread::panicking() => std::panic::resume_unwind(payload),
            Err(_) => given,
        }
    }
}

/// Something that becomes an iterator behind a gate.
struct Gating<J> {
    items: J,
    gate: Arc<PullGate>,
}

impl<J: IntoIterator> IntoIterator for Gating<J> {
    type Item = J::Item;
    type IntoIter = GatedItems<J::IntoIter>;

    fn into_iter(self) -> Self::IntoIter {
        GatedItems { iter: self.items.into_iter(), gate: self.gate }
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

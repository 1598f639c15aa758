//! The driver of a run that a consumer ends: a thread, or a task.
//!
//! It waits until the consumer has begun, feeds the run, and waits until the consumer has ended.

use std::sync::Arc;
#[cfg(feature = "futures")]
use std::task::Context;
use std::task::{Poll, Waker, ready};
use std::thread::{self, JoinHandle};

#[cfg(feature = "futures")]
use futures_core::Stream;
#[cfg(feature = "futures")]
use gangline_report::Account;

use super::consume::{Consume, Consumed, MakeConsumer};
#[cfg(feature = "futures")]
use super::feed::Polled;
use super::feed::Source;
#[cfg(feature = "futures")]
use super::feeding::PulledSource;
use super::line::{Begun, Line, join_links};
use super::link::FeedCounts;
use super::session::NAME;
use super::stage::{RunOf, StageTypes};
#[cfg(feature = "futures")]
use crate::base::quiet_waker::quiet;
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::parker::block_on;
use crate::concurrency::spawn::spawn;
use crate::concurrency::{Mutex, lock};
use crate::error::{Error, Result};
use crate::producers::participants::{Receiving, ResultReceiver};
use crate::run::run_shape::{Rebuilt, RunKind};
use crate::run::run_state::RunState;

/// The driver of a run that a consumer ends. The sessions are kept by the engines, so that a leaked driver can still be
/// ended.
struct RunDriver<F: StageTypes, L: StageTypes, S> {
    begun: Begun<F, L>,
    consumer: Consuming<S>,
    progress: FeedProgress,
}

/// How far the feeding has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FeedProgress {
    /// `consumer_init` has not returned.
    Later,
    Now,
    Over,
}

/// Feeds all of `source` to the first stage, and consumes the results of the last. `next` is the function that `source`
/// was created with.
pub(crate) fn run<F, L, S, I>(
    line: &mut dyn Line<F, L>,
    consumer: MakeConsumer<L::Input, L::Output, S>,
    mut source: Source<I, F::Input>,
    next: impl Fn(&mut I) -> Option<Result<F::Input>>,
) -> Result<S, Error>
where
    F: StageTypes + 'static,
    L: StageTypes + 'static,
    S: Send + 'static,
{
    let mut driver = RunDriver::begin(line, consumer, source.unread(), Rebuilt::Before)?;
    block_on(|cx| {
        driver.poll(cx.waker(), |run| {
            source.feed(run, &next);
            Poll::Ready(())
        })
    });
    driver.end(line, given(&source))
}

impl<F, L, S> RunDriver<F, L, S>
where
    F: StageTypes + 'static,
    L: StageTypes + 'static,
    S: Send + 'static,
{
    fn begin(
        line: &mut dyn Line<F, L>,
        consumer: MakeConsumer<L::Input, L::Output, S>,
        unread: Option<u64>,
        rebuilt: Rebuilt,
    ) -> Result<Self, Error> {
        let begun = line.begin(unread, (RunKind::Stream, rebuilt), |_| Ok(()))?;
        let engine = line.last();
        let consume = consumer(engine, begun.last.clone(), rebuilt);
        let stack_size = engine.settings().stack_size;
        let receiving = engine.receive(ResultReceiver::Consumer);
        match Consuming::start(consume, begun.last.driver(), stack_size, receiving) {
            Ok(consumer) => Ok(RunDriver { begun, consumer, progress: FeedProgress::Later }),
            Err(error) => Err(line.end_unused(begun, unread, error)),
        }
    }

    /// Calls `feed` once the consumer has begun. Ready once everything is consumed; else `waker` is kept.
    fn poll(&mut self, waker: &Waker, feed: impl FnOnce(&RunOf<F>) -> Poll<()>) -> Poll<()> {
        let Begun { first, last, .. } = &self.begun;
        // First: what is looked at below rings when it changes later.
        first.driver().keep(waker);
        if self.progress == FeedProgress::Later {
            self.progress = match self.consumer.may_start(last) {
                Start::Go => FeedProgress::Now,
                Start::Awaited => return Poll::Pending,
                Start::Never => FeedProgress::Over,
            };
        }
        if self.progress == FeedProgress::Now {
            ready!(feed(first));
            self.progress = FeedProgress::Over;
        }
        if self.consumer.is_over(last) { Poll::Ready(()) } else { Poll::Pending }
    }

    /// Ends the run, and returns its result. `given` is its input.
    fn end(self, line: &mut dyn Line<F, L>, given: FeedCounts) -> Result<S, Error> {
        let RunDriver { begun: Begun { first, last, links, .. }, consumer, .. } = self;
        last.abort();
        let relayed = join_links(links);
        let consumed = consumer.finish().unwrap_or_else(|| Consumed::abandoned(&last));
        drop((first, last));
        let Consumed { result, taken, failures } = consumed;
        line.settle(given, relayed, (taken, failures), result.as_ref().err());
        result
    }
}

/// A run of a line from a stream to a summary, as a task waits for it.
#[cfg(feature = "futures")]
pub(crate) struct RunTask<T: Stream, F: StageTypes, L: StageTypes, S> {
    consumer: MakeConsumer<L::Input, L::Output, S>,
    stage: RunPhase<T, F, L, S>,
}

#[cfg(feature = "futures")]
type RunningTask<T, F, L, S> = (RunDriver<F, L, S>, FeedingOf<T, F>);

#[cfg(feature = "futures")]
type FeedingOf<T, F> = PulledSource<Polled<T>, <F as StageTypes>::Input, <F as StageTypes>::Output>;

#[cfg(feature = "futures")]
enum RunPhase<T: Stream, F: StageTypes, L: StageTypes, S> {
    /// An earlier run of a pool may still be ending.
    New(Source<Polled<T>, F::Input>),
    Running(Box<RunningTask<T, F, L, S>>),
    Over,
}

#[cfg(feature = "futures")]
impl<T, F, L, S> RunTask<T, F, L, S>
where
    T: Stream,
    F: StageTypes + 'static,
    L: StageTypes + 'static,
    S: Send + 'static,
{
    pub(crate) fn new(
        consumer: MakeConsumer<L::Input, L::Output, S>,
        source: Source<Polled<T>, F::Input>,
    ) -> Self {
        RunTask { consumer, stage: RunPhase::New(source) }
    }

    /// # Panics
    ///
    /// If it was ready before.
    pub(crate) fn poll(
        &mut self,
        line: &mut dyn Line<F, L>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<S, Error>> {
        if let Err(error) = line.check_home() {
            self.give_up(line);
            return Poll::Ready(Err(error));
        }
        let waker = quiet(cx.waker());
        if let RunPhase::New(_) = self.stage {
            ready!(line.poll_idle(&waker));
            let RunPhase::New(source) = std::mem::replace(&mut self.stage, RunPhase::Over) else {
                unreachable!("it was just seen");
            };
            let driver = RunDriver::begin(line, self.consumer, source.unread(), Rebuilt::Later)?;
            let feeding = PulledSource::polled(source, &driver.begun.first);
            self.stage = RunPhase::Running(Box::new((driver, feeding)));
        }
        let RunPhase::Running(running) = &mut self.stage else {
            panic!("a run was polled after it had ended");
        };
        let (driver, feeding) = &mut **running;
        ready!(driver.poll(&waker, |run| feeding.poll(run, cx, &waker)));
        if !line.has_ended() {
            return Poll::Pending;
        }
        let RunPhase::Running(running) = std::mem::replace(&mut self.stage, RunPhase::Over) else {
            unreachable!("it was just polled");
        };
        let (driver, feeding) = *running;
        let given = feeding.given();
        feeding.leave(&driver.begun.first);
        Poll::Ready(driver.end(line, given))
    }

    /// Gives the run up, without waiting for hooks.
    pub(crate) fn give_up(&mut self, line: &mut dyn Line<F, L>) {
        let stage = std::mem::replace(&mut self.stage, RunPhase::Over);
        if line.leave_run_to_parent() {
            return std::mem::forget(stage);
        }
        if let RunPhase::Running(running) = stage {
            let (RunDriver { begun, consumer, .. }, feeding) = *running;
            let FeedCounts { items, unread, .. } = feeding.given();
            let taken = begun.last.tally.get();
            let account = Account::new(items, taken.ok, taken.failed(), taken.already_done, unread);
            line.cancel();
            feeding.leave(&begun.first);
            consumer.finish().into_iter().for_each(Consumed::discard);
            line.give_up(account);
        }
    }
}

fn given<I, T>(source: &Source<I, T>) -> FeedCounts {
    FeedCounts { items: source.pulled(), unread: source.unread(), passed_on: None }
}

/// A consumer at work, as seen by the driver of its run. Each step rings the driver's bell.
pub(super) struct Consuming<S> {
    state: Arc<Mutex<ConsumingState<S>>>,
    thread: JoinHandle<()>,
}

/// How far a consumer has come.
enum ConsumingState<S> {
    /// `consumer_init` has not returned.
    Beginning,
    Consuming,
    Done(Consumed<S>),
    /// It died of a bug of ours.
    Died,
    /// The driver no longer waits for it.
    Left,
}

/// Whether input may be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// `consumer_init` has not returned.
    Awaited,
    Go,
    Never,
}

/// The consumer's side of its state.
struct Delivery<S> {
    state: Arc<Mutex<ConsumingState<S>>>,
    driver: Arc<DriverBell>,
}

impl<S: Send + 'static> Consuming<S> {
    /// Starts a thread that consumes the whole run, and takes part in its session as `receiving`.
    pub(super) fn start(
        consume: Consume<S>,
        driver: &Arc<DriverBell>,
        stack_size: Option<usize>,
        receiving: Receiving,
    ) -> Result<Self, Error> {
        let state = Arc::new(Mutex::new(ConsumingState::Beginning));
        let delivery = Delivery { state: state.clone(), driver: driver.clone() };
        let thread = spawn(NAME.to_owned(), stack_size, move || {
            let _receiving = receiving;
            let consumed = consume(&|| delivery.start());
            delivery.deliver(consumed);
        })?;
        Ok(Consuming { state, thread })
    }
}

impl<S> Consuming<S> {
    /// Whether input of `run` may be pulled.
    pub(super) fn may_start(&self, run: &RunState) -> Start {
        match *lock(&self.state) {
            ConsumingState::Consuming => Start::Go,
            ConsumingState::Beginning if !run.has_left_consumer() => Start::Awaited,
            _ => Start::Never,
        }
    }

    /// Whether the consumer of `run` is done, or was abandoned in a hook.
    pub(super) fn is_over(&self, run: &RunState) -> bool {
        run.has_left_consumer()
            || matches!(*lock(&self.state), ConsumingState::Done(_) | ConsumingState::Died)
    }

    /// Takes the result of a consumer that is done. `None` if it is still in a hook, and has to be abandoned.
    pub(super) fn finish(self) -> Option<Consumed<S>> {
        let state = std::mem::replace(&mut *lock(&self.state), ConsumingState::Left);
        if let ConsumingState::Beginning | ConsumingState::Consuming | ConsumingState::Left = state
        {
            return None;
        }
        // Hooks are caught, so a panic is a bug of ours, which must not be hidden.
        if let Err(payload) = self.thread.join()
            && !thread::panicking()
        {
            std::panic::resume_unwind(payload);
        }
        if let ConsumingState::Done(consumed) = state { Some(consumed) } else { None }
    }
}

impl<S> Delivery<S> {
    /// Lets input be pulled.
    fn start(&self) {
        let mut state = lock(&self.state);
        if let ConsumingState::Beginning = *state {
            *state = ConsumingState::Consuming;
        }
        drop(state);
        self.driver.ring();
    }

    fn deliver(&self, consumed: Consumed<S>) {
        let mut state = lock(&self.state);
        if let ConsumingState::Left = *state {
            drop(state);
            return consumed.discard();
        }
        *state = ConsumingState::Done(consumed);
    }
}

impl<S> Drop for Delivery<S> {
    fn drop(&mut self) {
        let mut state = lock(&self.state);
        if let ConsumingState::Beginning | ConsumingState::Consuming = *state {
            *state = ConsumingState::Died;
        }
        drop(state);
        self.driver.ring();
    }
}

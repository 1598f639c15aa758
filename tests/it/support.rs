//! Forces an order of events, turns a hang into a failure, and keeps the crate quick to compile.

use std::sync::mpsc::{RecvTimeoutError, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::Duration;

use gangline::closures::Map;
use gangline::{ConsumerContext, Error, ProducerContext, Result, Runner};

/// Generous, since it only tells a hang from a slow machine.
pub const LIMIT: Duration = Duration::from_secs(300);

/// Runs `f` on a thread of its own, and fails if it takes longer than [`LIMIT`].
#[track_caller]
pub fn no_hang<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> T {
    let result = Arc::new(Mutex::new(None));
    let place = result.clone();
    finish_in_time(Box::new(move || {
        let value = f();
        *place.lock().unwrap() = Some(value);
    }));
    result.lock().unwrap().take().expect("it is set before the thread ends")
}

/// Compiled once: hundreds of tests call [`no_hang`], and `thread::spawn` is large.
#[track_caller]
fn finish_in_time(f: Box<dyn FnOnce() + Send>) {
    let (done, result) = channel();
    let thread = thread::spawn(move || {
        f();
        // The receiver is gone if the test has failed already.
        let _ = done.send(());
    });
    match result.recv_timeout(LIMIT) {
        Ok(()) => {}
        Err(RecvTimeoutError::Timeout) => panic!("it hangs"),
        Err(RecvTimeoutError::Disconnected) => match thread.join() {
            Err(payload) => std::panic::resume_unwind(payload),
            Ok(()) => unreachable!("it ended without sending"),
        },
    }
}

/// A runner of closures with one type per input and output, whatever the closures are.
pub type Tasks<'a, I, O> = Map<Init<'a, I, O>, Work<'a, I, O>, State<'a, I, O>, I, O>;
type Init<'a, I, O> =
    Box<dyn Fn(&ProducerContext<'_>) -> Result<State<'a, I, O>> + Send + Sync + 'a>;
/// Owns the test's state, so that both are dropped at the same time on the same thread.
type State<'a, I, O> = Box<dyn FnMut(&ProducerContext<'_>, I) -> Result<O> + 'a>;
type Work<'a, I, O> = fn(&ProducerContext<'_>, &mut State<'a, I, O>, I) -> Result<O>;

/// Does what [`gangline::map`] does, with closures and states behind pointers. Each further type of runner
/// compiles the engine once more, which takes about a second.
pub fn map<'a, S, I, O, F, G>(init: F, work: G) -> Tasks<'a, I, O>
where
    S: 'a,
    I: Send + 'a,
    O: Send + 'a,
    F: Fn(&ProducerContext<'_>) -> Result<S> + Send + Sync + 'a,
    G: Fn(&ProducerContext<'_>, &mut S, I) -> Result<O> + Send + Sync + 'a,
{
    let work = Arc::new(work);
    let init: Init<'a, I, O> = Box::new(move |cx| {
        let (mut state, work) = (init(cx)?, work.clone());
        Ok(Box::new(move |cx: &ProducerContext<'_>, input| work(cx, &mut state, input)))
    });
    gangline::map(init, |cx, state, input| state(cx, input))
}

/// Hides the hook for batches of `runner`, as a runner that a user wrote without one: its batches are worked
/// on one by one.
pub struct OneByOne<R>(R);

pub fn one_by_one<R>(runner: R) -> OneByOne<R> {
    OneByOne(runner)
}

impl<R: Runner> Runner for OneByOne<R> {
    type Input = R::Input;
    type Output = R::Output;
    type ProducerState = R::ProducerState;
    type ConsumerState = R::ConsumerState;
    type Summary = R::Summary;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<R::ProducerState> {
        self.0.producer_init(cx)
    }
    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut R::ProducerState,
        input: R::Input,
    ) -> Result<R::Output> {
        self.0.producer_work(cx, state, input)
    }
    fn producer_end(&self, cx: &ProducerContext<'_>, state: R::ProducerState) -> Result<()> {
        self.0.producer_end(cx, state)
    }
    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<R::ConsumerState> {
        self.0.consumer_init(cx)
    }
    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut R::ConsumerState,
        output: R::Output,
    ) -> Result<()> {
        self.0.consumer_work(cx, state, output)
    }
    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut R::ConsumerState,
        error: &Error,
    ) -> Result<()> {
        self.0.consumer_skipped(cx, state, error)
    }
    fn consumer_end(
        &self,
        cx: &ConsumerContext<'_>,
        state: R::ConsumerState,
    ) -> Result<R::Summary> {
        self.0.consumer_end(cx, state)
    }
}

/// Closed until a thread opens it, then open for ever.
#[derive(Debug, Default)]
pub struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    /// Waits until the gate is open; fails if that takes longer than [`LIMIT`].
    #[track_caller]
    pub fn pass(&self) {
        let open = self.open.lock().unwrap();
        let (open, _) = self.opened.wait_timeout_while(open, LIMIT, |open| !*open).unwrap();
        assert!(*open, "the gate stays closed");
    }
}

/// A number that can be waited for.
#[derive(Debug, Default)]
pub struct Counter {
    value: Mutex<u64>,
    changed: Condvar,
}

impl Counter {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&self, n: u64) -> u64 {
        let mut value = self.value.lock().unwrap();
        *value += n;
        self.changed.notify_all();
        *value
    }

    pub fn get(&self) -> u64 {
        *self.value.lock().unwrap()
    }

    /// Waits until the number is at least `n`; fails if that takes longer than [`LIMIT`].
    #[track_caller]
    pub fn reach(&self, n: u64) {
        let value = self.value.lock().unwrap();
        let (value, _) = self.changed.wait_timeout_while(value, LIMIT, |value| *value < n).unwrap();
        assert!(*value >= n, "only {value} of {n}");
    }
}

//! A consumer at work, as seen by the driver of its run.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use super::consume::{Consumed, Consumer, NAME};
use super::pool::Engine;
use crate::concurrency::driver_bell::DriverBell;
use crate::concurrency::spawn::spawn;
use crate::concurrency::{Mutex, lock};
use crate::error::Error;
use crate::producers::participants::Receiving;
use crate::run::Run;
use crate::run::run_shape::Rebuilt;
use crate::run::run_state::RunState;
use crate::runner::Runner;

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

/// Consumes a whole run. Calls the function that it is given when input may be pulled.
pub(crate) type Consume<S> = Box<dyn FnOnce(&dyn Fn()) -> Consumed<S> + Send>;

/// Makes the consumer of a run. So the drivers know its summary, and not the type of its runner.
pub(crate) type MakeConsumer<I, T, S> = fn(&Engine<I, T>, Arc<Run<I, T>>, Rebuilt) -> Consume<S>;

/// Makes the consumer of a run of an engine, which was made of an `R`.
pub(crate) fn consumer_of<R: Runner + 'static>(
    engine: &Engine<R::Input, R::Output>,
    run: Arc<Run<R::Input, R::Output>>,
    rebuilt: Rebuilt,
) -> Consume<R::Summary> {
    let (runner, cfg) = (engine.factory().shared_runner::<R>(), engine.cfg.clone());
    let consumer = Consumer::new(runner, cfg, run, engine.settings.order, engine.window());
    let consumer = match rebuilt {
        Rebuilt::Before => consumer,
        Rebuilt::Later => consumer.publish_counts(),
    };
    Box::new(|start| consumer.consume(start))
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

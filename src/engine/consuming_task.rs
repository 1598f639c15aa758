//! The consumer's thread of a run that a task waits for.

use std::sync::Arc;
use std::thread::{self, JoinHandle};

use crossbeam_channel::{Receiver, TryRecvError, bounded};

use super::consume::{Consumer, NAME};
use super::consuming::Consumed;
use crate::backend::threads::participants::Receiving;
use crate::backend::threads::run::Run;
use crate::concurrency::spawn::spawn;
use crate::concurrency::{Mutex, lock};
use crate::error::Error;
use crate::runner::Runner;

/// A consumer at work, as seen by the task that waits for it. Each step wakes the task of the run.
pub(super) struct ConsumingTask<S> {
    started: Receiver<()>,
    delivery: Arc<Mutex<Delivery<S>>>,
    thread: JoinHandle<()>,
}

/// The consumer's result on its way to the task.
enum Delivery<S> {
    Awaited,
    Here(Consumed<S>),
    /// The consumer died of a bug of ours.
    Died,
    /// The task no longer waits.
    Refused,
}

/// Whether input may be pulled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Start {
    /// `consumer_init` has not returned.
    Awaited,
    Go,
    /// Input must not be pulled.
    Never,
}

impl<S: Send + 'static> ConsumingTask<S> {
    /// Starts a thread that consumes the whole run. In a pipeline it takes part in the session as `receiving`.
    pub(super) fn start<R>(
        consumer: Consumer<R>,
        run: &Arc<Run<R>>,
        stack_size: Option<usize>,
        receiving: Option<Receiving>,
    ) -> Result<Self, Error>
    where
        R: Runner<Summary = S> + 'static,
    {
        let (sender, started) = bounded(1);
        let delivery = Arc::new(Mutex::new(Delivery::Awaited));
        let (post, run) = (delivery.clone(), run.clone());
        let consumer = consumer.publish_counts();
        let thread = spawn(NAME.to_owned(), stack_size, move || {
            let _receiving = receiving;
            let bug = DiesOnUnwind { delivery: &post, run: &run };
            let consumed = consumer.consume(sender);
            std::mem::forget(bug);
            deliver(&post, consumed);
            run.wake_task();
        })?;
        Ok(ConsumingTask { started, delivery, thread })
    }
}

impl<S> ConsumingTask<S> {
    /// Whether input of `run` may be pulled.
    pub(super) fn may_start<R: Runner>(&self, run: &Run<R>) -> Start {
        match self.started.try_recv() {
            Ok(()) => Start::Go,
            Err(TryRecvError::Empty) if !run.has_left_consumer() => Start::Awaited,
            Err(TryRecvError::Empty) => Start::Never,
            Err(TryRecvError::Disconnected) => Start::Never,
        }
    }

    /// Whether the consumer of `run` is done, or was abandoned in a hook.
    pub(super) fn is_left_or_done<R: Runner>(&self, run: &Run<R>) -> bool {
        run.has_left_consumer()
            || matches!(*lock(&self.delivery), Delivery::Here(_) | Delivery::Died)
    }

    /// Takes the result of a consumer that is done. `None` if it is still in a hook, and has to be abandoned.
    pub(super) fn finish(self) -> Option<Consumed<S>> {
        let delivered = std::mem::replace(&mut *lock(&self.delivery), Delivery::Refused);
        match delivered {
            Delivery::Awaited | Delivery::Refused => None,
            Delivery::Here(_) | Delivery::Died => {
                // Hooks are caught, so a panic is a bug of ours, which must not be hidden.
                if let Err(payload) = self.thread.join()
                    && !thread::panicking()
                {
                    std::panic::resume_unwind(payload);
                }
                match delivered {
                    Delivery::Here(consumed) => Some(consumed),
                    _ => None,
                }
            }
        }
    }
}

fn deliver<S>(delivery: &Mutex<Delivery<S>>, consumed: Consumed<S>) {
    let mut state = lock(delivery);
    match *state {
        Delivery::Refused => {
            drop(state);
            consumed.discard();
        }
        _ => *state = Delivery::Here(consumed),
    }
}

/// Wakes the task if the consumer's thread dies of a bug of ours.
struct DiesOnUnwind<'a, R: Runner> {
    delivery: &'a Mutex<Delivery<R::Summary>>,
    run: &'a Run<R>,
}

impl<R: Runner> Drop for DiesOnUnwind<'_, R> {
    fn drop(&mut self) {
        *lock(self.delivery) = Delivery::Died;
        self.run.wake_task();
    }
}

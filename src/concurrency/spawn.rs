//! Threads with names, which have their callers' subscribers of `tracing`.

use std::io;
use std::thread::{self, JoinHandle};

use tracing::dispatcher::{self, DefaultGuard, Dispatch};
use tracing::subscriber::NoSubscriber;

/// A thread that the operating system refused to start.
#[derive(Debug)]
pub struct SpawnError {
    /// The name that the thread would have had.
    pub(crate) name: String,
    /// What the operating system said.
    pub source: io::Error,
}

/// The subscriber of `tracing` that was the default of a thread.
///
/// A caller may have a subscriber of its own, which no other thread has by itself. `None` if the program had none yet: one
/// that it gets for all threads later is theirs too.
#[derive(Debug, Clone)]
pub struct CallerSubscriber(Option<Dispatch>);

/// Makes a subscriber the default of the current thread until it is dropped.
#[derive(Debug)]
#[must_use = "dropping it restores the default of before"]
pub struct SubscriberGuard(#[expect(dead_code, reason = "only dropped")] Option<DefaultGuard>);

impl CallerSubscriber {
    /// The default of the current thread.
    pub fn current() -> Self {
        let has_any = dispatcher::has_been_set();
        CallerSubscriber(has_any.then(|| dispatcher::get_default(Dispatch::clone)))
    }

    /// Makes it the default of the current thread.
    pub fn enter(&self) -> SubscriberGuard {
        // Any default of a thread slows the macros of all threads down, so a program without subscribers gets none.
        let is_none = |dispatch: &Dispatch| dispatch.is::<NoSubscriber>();
        let own = self.0.as_ref();
        let own = own.filter(|own| !(is_none(own) && dispatcher::get_default(is_none)));
        SubscriberGuard(own.map(dispatcher::set_default))
    }
}

/// Starts a thread with a name, which has the calling thread's subscriber of `tracing`.
pub fn spawn<T: Send + 'static>(
    name: String,
    stack_size: Option<usize>,
    work: impl FnOnce() -> T + Send + 'static,
) -> Result<JoinHandle<T>, SpawnError> {
    let builder = thread::Builder::new().name(name.clone());
    let builder = match stack_size {
        Some(bytes) => builder.stack_size(bytes),
        None => builder,
    };
    let subscriber = CallerSubscriber::current();
    let work = move || {
        let _default = subscriber.enter();
        work()
    };
    builder.spawn(work).map_err(|source| SpawnError { name, source })
}

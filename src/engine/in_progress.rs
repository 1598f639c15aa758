//! What a pool has in progress between two calls of its caller.

use super::run_session::Left;
#[cfg(feature = "futures")]
use super::run_session::Session;
#[cfg(feature = "futures")]
use super::stream_run::StreamRun;
use super::streaming::Streaming;
#[cfg(feature = "futures")]
use crate::concurrency::cancel::Interrupt;
use crate::observe::account::Account;
use crate::runner::Runner;

/// What a pool has in progress between two calls of its caller.
pub(super) enum InProgress<R: Runner> {
    /// Outputs for the caller.
    Outputs(Box<Streaming<R>>),
    /// A run that a task feeds.
    #[cfg(feature = "futures")]
    Run(Box<StreamRun<R>>),
    /// Outputs that a task has given up. Producers may still be in hooks.
    #[cfg(feature = "futures")]
    GivenUp(Box<Left<R>>),
}

impl<R: Runner> InProgress<R> {
    pub(super) fn account(&self) -> Account {
        match self {
            InProgress::Outputs(streaming) => streaming.account(),
            #[cfg(feature = "futures")]
            InProgress::Run(run) => run.account(),
            #[cfg(feature = "futures")]
            InProgress::GivenUp(left) => left.account,
        }
    }

    /// Aborts the run: no more items are worked on.
    pub(super) fn abort(&self) {
        match self {
            InProgress::Outputs(streaming) => streaming.abort(),
            #[cfg(feature = "futures")]
            // With a reason for the consumer, which takes an abort without one for a bug.
            InProgress::Run(run) => Interrupt::cancel(&*run.session().run),
            #[cfg(feature = "futures")]
            InProgress::GivenUp(left) => left.session.run.abort(),
        }
    }

    /// Aborts the run and leaves it, for its end.
    pub(super) fn leave(self) -> Left<R> {
        self.abort();
        match self {
            InProgress::Outputs(streaming) => {
                let account = streaming.account();
                Left { session: streaming.leave(), account, failures: vec![] }
            }
            #[cfg(feature = "futures")]
            InProgress::Run(run) => run.leave(),
            #[cfg(feature = "futures")]
            InProgress::GivenUp(left) => *left,
        }
    }

    /// Aborts the run, and drops its items, without waiting for hooks.
    #[cfg(feature = "futures")]
    pub(super) fn give_up(self) -> Self {
        self.abort();
        let given_up = match self {
            InProgress::Outputs(_) => InProgress::GivenUp(Box::new(self.leave())),
            InProgress::Run(mut run) => {
                run.drop_feeder();
                InProgress::Run(run)
            }
            given_up => given_up,
        };
        given_up.session().run.discard();
        given_up
    }

    #[cfg(feature = "futures")]
    pub(super) fn session(&self) -> &Session<R> {
        match self {
            InProgress::Outputs(streaming) => streaming.session(),
            InProgress::Run(run) => run.session(),
            InProgress::GivenUp(left) => &left.session,
        }
    }
}

//! What a service knows of its calls under the lock of its board.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::task::Waker;
use std::time::{Duration, Instant};

use gangline_report::{Account, AnswerTimes};
use gangline_scheduler::IndexMap;

use super::places::Places;
use super::stream_channel::{Recipient, StreamChannel};
use crate::concurrency::now;
use crate::error::Error;
use crate::run::outbox::End;

pub(super) struct ServiceState<T> {
    /// By the index of their items.
    pub(super) open: IndexMap<OpenCall<T>>,
    pub(super) next: u64,
    pub(super) places: Places<Waker>,
    pub(super) deadlines: BTreeSet<(Instant, Late)>,
    pub(super) account: Account,
    pub(super) times: AnswerTimes,
    /// The streams whose receivers are still there.
    pub(super) streams: Vec<Arc<StreamChannel<T>>>,
    /// The items of streams, which `account` also counts.
    pub(super) background: Account,
    pub(super) end: Option<End>,
    /// Whether the streams know that the run was halted.
    pub(super) is_halt_told: bool,
    /// Whether the run was halted before it was aborted.
    pub(super) is_drained: bool,
    pub(super) is_closed: bool,
    pub(super) is_cancelled: bool,
    /// The error that has ended the service. Every call is then answered with it.
    pub(super) reason: Option<Arc<Error>>,
}

/// A call that is accepted, or an item of a stream. The latter has neither a deadline nor a place in the queue.
pub(super) struct OpenCall<T> {
    pub(super) recipient: Recipient<T>,
    pub(super) deadline: Option<Deadline>,
    /// When the call had its place in the queue. `None` for an item of a stream.
    pub(super) since: Option<Instant>,
}

/// When a call has to be answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Deadline {
    pub(crate) at: Instant,
    pub(crate) limit: Duration,
}

/// A call or a caller that is late once its deadline has passed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Late {
    Call(u64),
    /// A caller that waits for a place, by the number of its arrival.
    Caller(u64),
}

impl<T> ServiceState<T> {
    /// Fails if calls are not accepted. Between the abort of a run and its reason they still are: the service's own
    /// thread then answers them with the others.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.is_closed || self.is_drained { Err(self.why()) } else { Ok(()) }
    }

    /// The error for calls that are not accepted.
    pub(super) fn why(&self) -> Error {
        match &self.reason {
            None => Error::Closed {},
            Some(source) => Error::ServiceEnded { source: source.clone() },
        }
    }

    /// A producer answers a call, if it is open.
    pub(super) fn note_answer(&mut self, index: u64) {
        if let Some(since) = self.open.get(&index).and_then(|call| call.since) {
            self.times.answered(now() - since);
        }
    }

    pub(super) fn forget_deadline(&mut self, deadline: Option<Deadline>, what: Late) {
        if let Some(Deadline { at, .. }) = deadline {
            self.deadlines.remove(&(at, what));
        }
    }
}

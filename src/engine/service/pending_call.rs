//! One call, or one item of a stream, until its caller has the answer.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::Calls;
use super::board::Deadline;
use super::places::PlaceRequest;
use super::slot::Slot;
use crate::base::panic::drop_quietly;
use crate::concurrency::parker::{block_on, block_on_soon};
use crate::error::Error;
use crate::scheduler::Priority;

/// One call, or one item of a stream, until its caller has the answer.
pub(crate) struct PendingCall<I, T> {
    calls: Calls<I, T>,
    deadline: Option<Deadline>,
    /// A background item has no place in the queue.
    priority: Priority,
    stage: CallPhase<I, T>,
}

/// The stages of a call.
enum CallPhase<I, T> {
    /// Its caller waits for a place.
    Queued {
        arrival: u64,
        input: I,
    },
    Open {
        index: u64,
        slot: Arc<Slot<T>>,
    },
    /// It was refused.
    Refused(Error),
    Over,
}

/// No field is pinned.
impl<I, T> Unpin for PendingCall<I, T> {}

impl<I, T> PendingCall<I, T> {
    /// Begins a call. If all places are taken, it waits for one.
    pub(crate) fn begin(calls: &Calls<I, T>, input: I, deadline: Option<Deadline>) -> Self {
        match calls.board.take(deadline) {
            Ok(PlaceRequest::Granted) => Self::with_place(calls, input, deadline),
            Ok(PlaceRequest::Queued(arrival)) => {
                Self::at(calls, deadline, CallPhase::Queued { arrival, input })
            }
            Err(error) => {
                drop_quietly(input);
                Self::refused(calls, error)
            }
        }
    }

    /// Begins a call that has a place.
    pub(crate) fn with_place(calls: &Calls<I, T>, input: I, deadline: Option<Deadline>) -> Self {
        let mut call = Self::at(calls, deadline, CallPhase::Over);
        call.submit(input);
        call
    }

    /// Offers an item of a stream, which needs no place.
    pub(super) fn in_background(calls: &Calls<I, T>, input: I) -> Self {
        let mut call = Self::at(calls, None, CallPhase::Over);
        call.priority = Priority::Background;
        call.submit(input);
        call
    }

    /// Makes a call that was refused.
    pub(crate) fn refused(calls: &Calls<I, T>, error: Error) -> Self {
        Self::at(calls, None, CallPhase::Refused(error))
    }

    fn at(calls: &Calls<I, T>, deadline: Option<Deadline>, stage: CallPhase<I, T>) -> Self {
        PendingCall { calls: calls.clone(), deadline, priority: Priority::Normal, stage }
    }

    fn submit(&mut self, input: I) {
        let slot = Arc::new(Slot::new());
        self.stage = match self.calls.submit(input, &slot, self.deadline, self.priority) {
            Ok(index) => CallPhase::Open { index, slot },
            Err(error) => {
                if self.priority == Priority::Normal {
                    self.calls.board.release();
                }
                CallPhase::Refused(error)
            }
        };
    }

    /// Whether the call has its answer, or was refused.
    pub(super) fn is_answered(&self) -> bool {
        match &self.stage {
            CallPhase::Open { slot, .. } => slot.is_answered(),
            CallPhase::Queued { .. } => false,
            CallPhase::Refused(_) | CallPhase::Over => true,
        }
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        if let CallPhase::Open { .. } = &self.stage
            && let Err(error) = self.calls.board.check_home()
        {
            std::mem::forget(std::mem::replace(&mut self.stage, CallPhase::Over));
            return Poll::Ready(Err(error));
        }
        self.poll_at_home(cx)
    }

    /// Like [`poll`](PendingCall::poll), in the process that began the call.
    fn poll_at_home(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        if let CallPhase::Queued { arrival, .. } = self.stage {
            let asked = self.calls.board.poll_place(arrival, self.deadline, cx.waker());
            let Poll::Ready(granted) = asked else { return Poll::Pending };
            let CallPhase::Queued { input, .. } =
                std::mem::replace(&mut self.stage, CallPhase::Over)
            else {
                unreachable!("it was just seen");
            };
            match granted {
                Ok(()) => self.submit(input),
                Err(error) => {
                    drop_quietly(input);
                    return Poll::Ready(Err(error));
                }
            }
        }
        if let CallPhase::Open { slot, .. } = &self.stage {
            let answer = slot.poll(cx.waker());
            if answer.is_ready() {
                self.stage = CallPhase::Over;
            }
            return answer;
        }
        match std::mem::replace(&mut self.stage, CallPhase::Over) {
            CallPhase::Refused(error) => Poll::Ready(Err(error)),
            _ => panic!("a call was polled after it had been answered"),
        }
    }

    /// Blocks the calling thread until the call is answered.
    ///
    /// It checks the process once and not at each wake-up, since that is a system call. A process that is forked
    /// meanwhile does not have this thread.
    pub(crate) fn wait(mut self) -> Result<T, Error> {
        self.calls.board.check_home()?;
        match self.calls.run.clone() {
            Some(run) => block_on_soon(&run.handover.yields, |cx| self.poll_at_home(cx)),
            None => block_on(|cx| self.poll_at_home(cx)),
        }
    }

    pub(crate) fn calls(&self) -> &Calls<I, T> {
        &self.calls
    }
}

impl<I, T> Drop for PendingCall<I, T> {
    fn drop(&mut self) {
        let stage = std::mem::replace(&mut self.stage, CallPhase::Over);
        if let CallPhase::Over = stage {
            return;
        }
        if self.calls.board.check_home().is_err() {
            return std::mem::forget(stage);
        }
        match stage {
            CallPhase::Queued { arrival, input } => {
                self.calls.board.leave(arrival, self.deadline);
                drop_quietly(input);
            }
            CallPhase::Open { index, .. } => self.calls.give_up(index),
            CallPhase::Refused(_) | CallPhase::Over => {}
        }
    }
}

//! Calls as their callers have them: one in progress, and a place for one.

use std::sync::Arc;
use std::task::{Context, Poll};

use super::Calls;
use super::places::{PlaceRequest, Slot};
use super::service_state::Deadline;
use crate::base::panic::drop_quietly;
use crate::concurrency::parker::{block_on, block_on_soon};
use crate::error::Error;

/// One call, until its caller has the answer.
pub(crate) struct PendingCall<I, T> {
    calls: Calls<I, T>,
    deadline: Option<Deadline>,
    /// Whether it has waited in this process, where its answer comes.
    has_waited: bool,
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

    /// Makes a call that was refused.
    pub(crate) fn refused(calls: &Calls<I, T>, error: Error) -> Self {
        Self::at(calls, None, CallPhase::Refused(error))
    }

    fn at(calls: &Calls<I, T>, deadline: Option<Deadline>, stage: CallPhase<I, T>) -> Self {
        PendingCall { calls: calls.clone(), deadline, has_waited: false, stage }
    }

    fn submit(&mut self, input: I) {
        let slot = Arc::new(Slot::new());
        self.stage = match self.calls.submit(input, &slot, self.deadline) {
            Ok(index) => CallPhase::Open { index, slot },
            Err(error) => {
                self.calls.board.release();
                CallPhase::Refused(error)
            }
        };
    }

    /// Polls for the answer. Checks the process before the first wait only, since that is a system call: in a process that
    /// was forked after the call was made, no answer comes.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<T, Error>> {
        if let CallPhase::Open { slot, .. } = &self.stage
            && !self.has_waited
            && !slot.has_answer()
        {
            if let Err(error) = self.calls.board.check_home() {
                std::mem::forget(std::mem::replace(&mut self.stage, CallPhase::Over));
                return Poll::Ready(Err(error));
            }
            self.has_waited = true;
        }
        self.poll_at_home(cx)
    }

    /// [Polls](PendingCall::poll) for the answer in the process that began the call.
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

    /// Whether it waits for a place, as far as the last poll has found.
    pub(crate) fn is_queued(&self) -> bool {
        matches!(self.stage, CallPhase::Queued { .. })
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

/// A place, or the wait for one. Dropping it passes the place on.
#[cfg(feature = "tower")]
pub(crate) struct Reservation<I, T> {
    calls: Calls<I, T>,
    stage: ReservationStage,
}

#[cfg(feature = "tower")]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReservationStage {
    /// It waits, under this number.
    Waits(u64),
    Held,
    /// The place is used, or the wait for it has failed.
    Over,
}

#[cfg(feature = "tower")]
impl<I, T> Reservation<I, T> {
    /// Takes a place, or queues for one. It has no deadline, since that of a call begins with the call.
    pub(crate) fn begin(calls: &Calls<I, T>) -> Result<Self, Error> {
        let stage = match calls.board.take(None)? {
            PlaceRequest::Granted => ReservationStage::Held,
            PlaceRequest::Queued(arrival) => ReservationStage::Waits(arrival),
        };
        Ok(Reservation { calls: calls.clone(), stage })
    }

    /// Polls for the place.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Error>> {
        let ReservationStage::Waits(arrival) = self.stage else { return Poll::Ready(Ok(())) };
        let asked = self.calls.board.poll_place(arrival, None, cx.waker());
        if let Poll::Ready(granted) = &asked {
            self.stage = match granted {
                Ok(()) => ReservationStage::Held,
                Err(_) => ReservationStage::Over,
            };
        }
        asked
    }

    /// Begins a call: with the place if it is there, and otherwise with the wait for one.
    pub(crate) fn submit(mut self, input: I, deadline: Option<Deadline>) -> PendingCall<I, T> {
        match self.stage {
            ReservationStage::Held => {
                self.stage = ReservationStage::Over;
                PendingCall::with_place(&self.calls, input, deadline)
            }
            ReservationStage::Waits(_) | ReservationStage::Over => {
                PendingCall::begin(&self.calls, input, deadline)
            }
        }
    }
}

#[cfg(feature = "tower")]
impl<I, T> Drop for Reservation<I, T> {
    fn drop(&mut self) {
        // A forked process has no thread that could use the place.
        if self.stage == ReservationStage::Over || self.calls.board.check_home().is_err() {
            return;
        }
        match self.stage {
            ReservationStage::Held => self.calls.board.release(),
            ReservationStage::Waits(arrival) => self.calls.board.leave(arrival, None),
            ReservationStage::Over => {}
        }
    }
}

//! A place in the queue of a service that is taken before there is an item.

use std::task::{Context, Poll};

use super::Calls;
use super::board::Deadline;
use super::pending_call::PendingCall;
use super::places::PlaceRequest;
use crate::error::Error;

/// A place, or the wait for one. Dropping it passes the place on.
pub(crate) struct Reservation<I, T> {
    calls: Calls<I, T>,
    stage: ReservationStage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReservationStage {
    /// It waits, under this number.
    Waits(u64),
    Held,
    /// The place is used, or the wait for it has failed.
    Over,
}

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

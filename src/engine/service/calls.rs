//! Calls as their callers have them: one in progress, a place for one, and the stream of items beside them.

use std::collections::VecDeque;
use std::sync::Arc;
use std::task::{Context, Poll};

use super::Calls;
use super::board::Deadline;
use super::places::{PlaceRequest, Slot};
use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::parker::{block_on, block_on_soon};
use crate::error::Error;
use crate::scheduler::Priority;

/// One call, or one item of a stream, until its caller has the answer.
pub(crate) struct PendingCall<I, T> {
    calls: Calls<I, T>,
    deadline: Option<Deadline>,
    /// A background item has no place in the queue.
    priority: Priority,
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
        let (calls, priority) = (calls.clone(), Priority::Normal);
        PendingCall { calls, deadline, priority, has_waited: false, stage }
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

/// A stream of items that a service works on where no call waits.
///
/// The thread that takes the results also pulls the items. So nothing is pulled while no result is taken.
pub(crate) struct BackgroundStream<I, T, S> {
    calls: Calls<I, T>,
    /// `None` once no more is pulled.
    source: Option<S>,
    pulled: u64,
    /// The pulled items whose results were not taken, in the order of the stream.
    open: VecDeque<PendingCall<I, T>>,
    /// The largest number of open items.
    window: usize,
    /// The error after which nothing more is pulled. It is returned behind the results of the open items.
    error: Option<Error>,
}

impl<I, T, S> BackgroundStream<I, T, S> {
    /// Begins a stream, and pulls nothing yet. At most `window` items are open at a time.
    pub(crate) fn new(
        calls: &Calls<I, T>,
        window: usize,
        items: impl IntoIterator<IntoIter = S>,
    ) -> Self {
        let (source, error) = match catch(|| items.into_iter()) {
            Ok(source) => (Some(source), None),
            Err(source) => (None, Some(Error::InputPanicked { item: 0, source })),
        };
        let (calls, open) = (calls.clone(), VecDeque::new());
        BackgroundStream { calls, source, pulled: 0, open, window: window.max(1), error }
    }

    /// Ends the stream: nothing more is pulled, and what is open is given up.
    fn end(&mut self) {
        self.stop(None);
        // Backwards: the hook that has the first item learns of it last, so its producer finds none of the others next.
        while self.open.pop_back().is_some() {}
    }

    /// Pulls no more.
    fn stop(&mut self, error: Option<Error>) {
        self.error = error;
        self.source.take().into_iter().for_each(drop_quietly);
    }
}

impl<I, T, S: Iterator<Item = I>> BackgroundStream<I, T, S> {
    /// Pulls items, and waits for the next result.
    pub(crate) fn next(&mut self) -> Option<Result<T, Error>> {
        let has_more = self.source.is_some() || !self.open.is_empty();
        if has_more && self.calls.is_own_thread() {
            self.end();
            return Some(Err(Error::OwnThread {}));
        }
        self.pull();
        let Some(call) = self.open.pop_front() else { return self.error.take().map(Err) };
        let answer = call.wait();
        if answer.as_ref().is_err_and(ends_stream) {
            self.end();
        }
        Some(answer)
    }

    /// Pulls one item in place of the last result, and further ones while there is room and no result is ready.
    fn pull(&mut self) {
        let before = self.pulled;
        while self.open.len() < self.window {
            let is_ready = self.open.front().is_some_and(PendingCall::is_answered);
            if is_ready && self.pulled > before || !self.pull_one() {
                return;
            }
        }
    }

    /// Pulls an item and offers it. Returns whether there was one.
    fn pull_one(&mut self) -> bool {
        let Some(source) = &mut self.source else { return false };
        if let Err(error) = self.calls.board.check_open() {
            self.stop(Some(error));
            return false;
        }
        match catch(|| source.next()) {
            Ok(Some(item)) => {
                self.open.push_back(PendingCall::in_background(&self.calls, item));
                self.pulled += 1;
                true
            }
            Ok(None) => {
                self.stop(None);
                false
            }
            Err(source) => {
                let error = Error::InputPanicked { item: self.pulled, source };
                // The source is not pulled again, but may panic once more when it is dropped.
                self.stop(Some(error));
                false
            }
        }
    }
}

/// Whether the service works on no further item after this error.
fn ends_stream(error: &Error) -> bool {
    matches!(
        error,
        Error::Closed {} | Error::Cancelled {} | Error::ServiceEnded { .. } | Error::Forked { .. }
    )
}

/// Gives up the open items, and drops the source as a value of the user.
impl<I, T, S> Drop for BackgroundStream<I, T, S> {
    fn drop(&mut self) {
        self.end();
    }
}

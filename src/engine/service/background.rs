//! A stream of items that a service works on beside its calls.

use std::collections::VecDeque;

use super::Calls;
use super::pending_call::PendingCall;
use crate::base::panic::{catch, drop_quietly};
use crate::error::Error;

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

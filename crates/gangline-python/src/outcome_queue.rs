//! Records on their way from the consumer of a run to its caller.

use std::collections::VecDeque;
use std::mem::take;
use std::sync::{Condvar, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::default_window::SMALL;
use crate::lock;
use crate::outcome::Outcome;

/// What became of the items of a run. While there is no room, the consumer waits, and the windows of the stages fill.
pub(crate) struct OutcomeQueue {
    state: Mutex<OutcomeQueueState>,
    /// Notified when there may be room.
    room: Condvar,
    most: usize,
}

struct OutcomeQueueState {
    waiting: VecDeque<Outcome>,
    /// What those take, in bytes.
    bytes: u64,
    end: QueueEnd,
    /// The waker of the caller, if it waits.
    waker: Option<Waker>,
}

/// Which end of the queue has gone away.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum QueueEnd {
    Open,
    /// The run has ended: what waits are the last records.
    Over,
    /// The caller wants no more.
    Unwanted,
}

/// What the caller finds.
pub(crate) enum TakenOutcomes {
    /// None after the last.
    Some(Vec<Outcome>),
    Unwanted,
}

/// The largest number of records that wait for the caller. Each time that it is reached, the consumer waits too.
const WAITING: usize = 256;
/// The largest number of records that wait if it is not known what they take in memory.
const UNSIZED_WAITING: usize = 64;

impl OutcomeQueue {
    /// A queue of at most `window` records, which take at most `MOST_BYTES` in memory beside one.
    pub(crate) fn new(window: Option<usize>) -> Self {
        let state = OutcomeQueueState {
            waiting: VecDeque::new(),
            bytes: 0,
            end: QueueEnd::Open,
            waker: None,
        };
        let most = window.unwrap_or(WAITING).min(WAITING);
        OutcomeQueue { state: Mutex::new(state), room: Condvar::new(), most }
    }

    /// Waits until there is room. Returns whether the caller still wants it.
    pub(crate) fn send(&self, outcome: Outcome) -> bool {
        let bytes = outcome.size();
        let most = if bytes == 0 { self.most.min(UNSIZED_WAITING) } else { self.most };
        let is_full = |state: &mut OutcomeQueueState| {
            let has_room = state.waiting.len() < most && state.bytes + bytes <= MOST_BYTES;
            state.end == QueueEnd::Open && !has_room && !state.waiting.is_empty()
        };
        let waited = self.room.wait_while(lock(&self.state), is_full);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        if state.end != QueueEnd::Open {
            // Without the lock: it may hold the user's objects.
            drop(state);
            drop(outcome);
            return false;
        }
        state.bytes += bytes;
        state.waiting.push_back(outcome);
        let waker = state.waker.take();
        drop(state);
        wake(waker);
        true
    }

    /// Takes up to `most` records, if there are some.
    pub(crate) fn poll_some(&self, cx: &mut Context<'_>, most: usize) -> Poll<TakenOutcomes> {
        let mut state = lock(&self.state);
        if state.waiting.is_empty() {
            return match state.end {
                QueueEnd::Open => {
                    state.waker = Some(cx.waker().clone());
                    Poll::Pending
                }
                QueueEnd::Over => Poll::Ready(TakenOutcomes::Some(vec![])),
                QueueEnd::Unwanted => Poll::Ready(TakenOutcomes::Unwanted),
            };
        }
        let count = most.max(1).min(state.waiting.len());
        let taken: Vec<_> = state.waiting.drain(..count).collect();
        state.bytes -= taken.iter().map(Outcome::size).sum::<u64>();
        drop(state);
        self.room.notify_all();
        Poll::Ready(TakenOutcomes::Some(taken))
    }

    /// Whether the caller wants more.
    pub(crate) fn is_wanted(&self) -> bool {
        lock(&self.state).end != QueueEnd::Unwanted
    }

    /// Notes that the run has ended.
    pub(crate) fn finish(&self) {
        let mut state = lock(&self.state);
        if state.end == QueueEnd::Open {
            state.end = QueueEnd::Over;
        }
        let waker = state.waker.take();
        drop(state);
        self.room.notify_all();
        wake(waker);
    }

    /// Gives up what waits, and what is to come.
    pub(crate) fn give_up(&self) {
        let mut state = lock(&self.state);
        state.end = QueueEnd::Unwanted;
        state.bytes = 0;
        let unwanted = take(&mut state.waiting);
        let waker = state.waker.take();
        drop(state);
        drop(unwanted);
        self.room.notify_all();
        wake(waker);
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// What the records that wait may take, beside one.
const MOST_BYTES: u64 = SMALL * UNSIZED_WAITING as u64;

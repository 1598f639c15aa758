//! Where callers wait: in the queue for a place, and at a slot for the answer.

use std::collections::{BTreeMap, HashSet};
use std::task::{Poll, Waker};

use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::{Mutex, lock};
use crate::error::Error;

/// The places for calls that are accepted and not yet answered. Callers that find none wait, and get theirs in
/// the order of their arrival.
///
/// `W` wakes a caller.
#[derive(Debug)]
pub(super) struct Places<W> {
    free: usize,
    size: usize,
    /// By arrival.
    waiting: BTreeMap<u64, Option<W>>,
    /// Callers whose place is kept for them until they take it.
    granted: HashSet<u64>,
    arrivals: u64,
}

/// The outcome of asking for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceRequest {
    /// It has a place.
    Granted,
    /// It waits, under this number.
    Queued(u64),
}

/// The state of a caller that asked for a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlaceState {
    Granted,
    Waits,
    /// The caller is no longer in the queue: its time is over, or the service accepts no calls.
    SentAway,
}

/// The result of leaving the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left<W> {
    /// The caller had a place, which is passed on: to the caller with this waker, if one waits.
    PassedOn(Option<W>),
    /// The caller had no place yet. This is its own waker.
    Waiting(Option<W>),
}

impl<W> Places<W> {
    pub(super) fn new(size: usize) -> Self {
        let (waiting, granted) = (BTreeMap::new(), HashSet::new());
        Places { free: size, size, waiting, granted, arrivals: 0 }
    }

    /// The number of places.
    pub(super) fn size(&self) -> usize {
        self.size
    }

    /// Takes `places` at once, or none. Callers that wait go first.
    pub(super) fn try_take(&mut self, places: usize) -> bool {
        let has_room = self.waiting.is_empty() && self.free >= places;
        self.free -= if has_room { places } else { 0 };
        has_room
    }

    /// Takes a place, or queues the caller.
    pub(super) fn take(&mut self) -> PlaceRequest {
        if self.try_take(1) {
            return PlaceRequest::Granted;
        }
        self.arrivals += 1;
        self.waiting.insert(self.arrivals, None);
        PlaceRequest::Queued(self.arrivals)
    }

    /// Takes the place that was kept for a caller. If it still waits, keeps `waker` for it. Returns the waker that
    /// is not needed, if any: it is the user's, and not dropped here.
    pub(super) fn poll(&mut self, arrival: u64, waker: W) -> (PlaceState, Option<W>) {
        if self.granted.remove(&arrival) {
            return (PlaceState::Granted, Some(waker));
        }
        match self.waiting.get_mut(&arrival) {
            Some(kept) => (PlaceState::Waits, kept.replace(waker)),
            None => (PlaceState::SentAway, Some(waker)),
        }
    }

    /// Gives a place back. Returns how to wake the caller that gets it, if one is to be woken.
    pub(super) fn release(&mut self) -> Option<W> {
        match self.waiting.pop_first() {
            Some((arrival, waker)) => {
                self.granted.insert(arrival);
                waker
            }
            None => {
                self.free += 1;
                None
            }
        }
    }

    /// Removes a caller that no longer waits.
    pub(super) fn leave(&mut self, arrival: u64) -> Left<W> {
        match self.granted.remove(&arrival) {
            true => Left::PassedOn(self.release()),
            false => Left::Waiting(self.waiting.remove(&arrival).flatten()),
        }
    }

    /// Sends away all callers that wait. Returns how to wake them.
    pub(super) fn refuse_all(&mut self) -> Vec<W> {
        std::mem::take(&mut self.waiting).into_values().flatten().collect()
    }
}

/// Where the answer of one call arrives.
#[derive(Debug)]
pub(crate) struct Slot<T> {
    state: Mutex<SlotState<T>>,
}

#[derive(Debug)]
struct SlotState<T> {
    answer: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl<T> Slot<T> {
    pub(crate) fn new() -> Self {
        Slot { state: Mutex::new(SlotState { answer: None, waker: None }) }
    }

    /// Whether the answer is there, as far as can be seen without waiting: in a forked process, a thread that is not there
    /// may hold the lock.
    pub(super) fn has_answer(&self) -> bool {
        self.state.try_lock().is_ok_and(|state| state.answer.is_some())
    }

    /// Takes the answer, or keeps `waker` to be woken by it.
    pub(crate) fn poll(&self, waker: &Waker) -> Poll<Result<T, Error>> {
        // A waker is the user's: it is cloned and dropped without the lock.
        let waker = waker.clone();
        let mut state = lock(&self.state);
        let Some(answer) = state.answer.take() else {
            let old = state.waker.replace(waker);
            drop(state);
            drop(old);
            return Poll::Pending;
        };
        drop(state);
        Poll::Ready(answer)
    }

    /// Gives the answer, and wakes the caller. Call it without a lock.
    pub(super) fn answer(&self, answer: Result<T, Error>) {
        let mut state = lock(&self.state);
        state.answer = Some(answer);
        let waker = state.waker.take();
        drop(state);
        waker.into_iter().for_each(wake);
    }
}

/// An answer that was not taken is the user's value, and so is a waker.
impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        let SlotState { answer, waker } = &mut *lock(&self.state);
        drop_quietly((answer.take(), waker.take()));
    }
}

/// Wakes a caller. Its waker is user code.
pub(super) fn wake(waker: Waker) {
    if let Err(message) = catch(|| waker.wake()) {
        tracing::warn!(%message, "a waker panicked");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn callers_get_places_in_the_order_of_their_arrival() {
        let mut places = Places::new(1);
        assert_eq!(places.take(), PlaceRequest::Granted);
        let (PlaceRequest::Queued(first), PlaceRequest::Queued(second)) =
            (places.take(), places.take())
        else {
            panic!("there is one place");
        };
        assert_eq!(places.poll(second, "second"), (PlaceState::Waits, None));
        assert_eq!(places.poll(first, "first"), (PlaceState::Waits, None));
        assert_eq!(places.release(), Some("first"));
        assert!(!places.try_take(1), "it is kept for the first");
        assert_eq!(places.poll(first, "again"), (PlaceState::Granted, Some("again")));
        assert_eq!(places.release(), Some("second"));
        assert_eq!(places.leave(second), Left::PassedOn(None), "none waits");
        assert!(places.try_take(1));
    }

    #[test]
    fn a_caller_that_leaves_passes_its_place_on() {
        let mut places = Places::new(1);
        assert_eq!(places.take(), PlaceRequest::Granted);
        let (PlaceRequest::Queued(first), PlaceRequest::Queued(second)) =
            (places.take(), places.take())
        else {
            panic!("there is one place");
        };
        assert_eq!(places.poll(second, "second"), (PlaceState::Waits, None));
        assert_eq!(places.release(), None, "the first has not asked to be woken");
        assert_eq!(places.leave(first), Left::PassedOn(Some("second")));
        assert_eq!(places.poll(second, "again"), (PlaceState::Granted, Some("again")));
    }

    #[test]
    fn several_places_are_taken_at_once_or_none() {
        let mut places = Places::<()>::new(3);
        assert!(!places.try_take(4) && places.try_take(2) && !places.try_take(2));
        assert!(places.try_take(1));
    }

    #[test]
    fn callers_that_are_sent_away_are_known_no_more() {
        let mut places = Places::new(0);
        let PlaceRequest::Queued(arrival) = places.take() else { panic!("there is no place") };
        assert_eq!(places.poll(arrival, "first"), (PlaceState::Waits, None));
        assert_eq!(places.refuse_all(), ["first"]);
        assert_eq!(places.poll(arrival, "again"), (PlaceState::SentAway, Some("again")));
    }
}

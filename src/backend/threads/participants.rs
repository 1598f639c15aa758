//! Tracks which producers take part in a run.

use std::sync::Arc;

use crate::concurrency::atomic::{AtomicBool, Ordering};
use crate::concurrency::{Condvar, Mutex, lock, wait};

/// The producers that are in a run, so that its end can wait for them.
///
/// Reference counts or dropped channel ends cannot do this. The end must not wait for an abandoned producer,
/// and only the thread in the hook could drop its own reference.
#[derive(Debug)]
pub(crate) struct Participants {
    state: Mutex<State>,
    left: Condvar,
    away: Away,
}

#[derive(Debug)]
struct State {
    is_over: bool,
    producers: Vec<Presence>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Presence {
    Out,
    In,
    /// In a hook whose return the run does not wait for.
    Excused,
}

/// The producers that are still in a hook of an earlier run that did not wait for them.
pub(crate) type Away = Arc<[AtomicBool]>;

/// A producer's participation in a run, which ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Participation {
    participants: Arc<Participants>,
    producer: usize,
}

impl Participants {
    pub(crate) fn new(away: Away) -> Arc<Self> {
        let state = State { is_over: false, producers: vec![Presence::Out; away.len()] };
        Arc::new(Participants { state: Mutex::new(state), left: Condvar::new(), away })
    }

    /// Registers a producer. `None` if the run is over.
    pub(crate) fn enter(self: &Arc<Self>, producer: usize) -> Option<Participation> {
        let mut state = lock(&self.state);
        if state.is_over {
            return None;
        }
        state.producers[producer] = Presence::In;
        Some(Participation { participants: self.clone(), producer })
    }

    /// Lets the run end without waiting for this producer, unless it has come back.
    pub(crate) fn excuse(&self, producer: usize, is_abandoned: impl FnOnce() -> bool) {
        let mut state = lock(&self.state);
        if is_abandoned() {
            self.excuse_under(&mut state, producer);
        }
        drop(state);
        self.left.notify_all();
    }

    /// Sets `away` under the lock, as [`leave`](Self::leave) clears it. Otherwise a producer that has just
    /// left could be marked as away for ever.
    fn excuse_under(&self, state: &mut State, producer: usize) {
        if state.producers[producer] == Presence::In {
            state.producers[producer] = Presence::Excused;
            self.away[producer].store(true, Ordering::Relaxed);
        }
    }

    /// Makes the run's end wait for a producer again that was excused, or is about to be. Returns `false` if the
    /// run is over. `come_back` ends the abandonment, under the lock of [`excuse`](Self::excuse).
    pub(crate) fn readmit(&self, producer: usize, come_back: impl FnOnce()) -> bool {
        let mut state = lock(&self.state);
        if state.is_over {
            return false;
        }
        come_back();
        state.producers[producer] = Presence::In;
        self.away[producer].store(false, Ordering::Relaxed);
        true
    }

    pub(crate) fn present(&self) -> Vec<usize> {
        lock(&self.state).present()
    }

    /// Waits until every producer has left, except those for which `has_lost` is true. No producer can enter
    /// afterwards.
    pub(crate) fn end(&self, has_lost: impl Fn(usize) -> bool) {
        let mut state = lock(&self.state);
        state.is_over = true;
        loop {
            // Checked in each round: a producer stays in the run until it has settled the items that make
            // others lose.
            let losers = state.present().into_iter().filter(|&producer| has_lost(producer));
            losers.for_each(|producer| self.excuse_under(&mut state, producer));
            if !state.producers.contains(&Presence::In) {
                return;
            }
            state = wait(&self.left, state);
        }
    }

    fn leave(&self, producer: usize) {
        let mut state = lock(&self.state);
        state.producers[producer] = Presence::Out;
        self.away[producer].store(false, Ordering::Relaxed);
        drop(state);
        self.left.notify_all();
    }
}

impl State {
    fn present(&self) -> Vec<usize> {
        let producers = 0..self.producers.len();
        producers.filter(|&producer| self.producers[producer] == Presence::In).collect()
    }
}

impl Drop for Participation {
    fn drop(&mut self) {
        self.participants.leave(self.producer);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_end_waits_for_those_who_are_there_and_for_nobody_else() {
        let participants = Participants::new((0..3).map(|_| AtomicBool::new(false)).collect());
        let first = participants.enter(0).unwrap();
        let second = participants.enter(1).unwrap();
        participants.excuse(1, || true);
        assert_eq!(participants.present(), [0]);
        thread::scope(|scope| {
            let ending = scope.spawn(|| participants.end(|_| false));
            drop(first);
            ending.join().unwrap();
        });
        assert!(participants.enter(2).is_none(), "it is over");
        drop(second);
    }

    #[test]
    fn who_is_made_to_lose_while_the_end_waits_is_not_waited_for() {
        let participants = Participants::new((0..2).map(|_| AtomicBool::new(false)).collect());
        let loser = participants.enter(0).unwrap();
        let winner = participants.enter(1).unwrap();
        let lost = Arc::new(AtomicBool::new(false));
        let ((looked, looks), (over, is_over)) = (channel(), channel());
        let (ending, is_lost) = (participants.clone(), lost.clone());
        thread::spawn(move || {
            ending.end(|producer| {
                looked.send(producer).unwrap();
                producer == 0 && is_lost.load(Ordering::Relaxed)
            });
            over.send(()).unwrap();
        });
        assert_eq!([looks.recv().unwrap(), looks.recv().unwrap()], [0, 1]);
        lost.store(true, Ordering::Relaxed);
        drop(winner);
        is_over.recv_timeout(Duration::from_secs(60)).expect("it waits for the loser");
        assert!(participants.away[0].load(Ordering::Relaxed));
        drop(loser);
        assert!(!participants.away[0].load(Ordering::Relaxed), "it is back");
    }
}

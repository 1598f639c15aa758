//! Who takes part in a run.

use std::sync::Arc;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Condvar, Mutex, lock, wait};

/// Which producers are in a run, so that its end can wait for them.
///
/// Not the drops of channel ends, of which nobody else could let one go: a producer that is in a hook
/// and was written off is excused, and the end does not wait for it.
#[derive(Debug)]
pub(crate) struct Attendance {
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
    /// In a hook that nobody waits for.
    Excused,
}

/// Which producers are still in a hook of an earlier run that nobody waits for.
pub(crate) type Away = Arc<[AtomicBool]>;

/// A producer that is in a run, until this is dropped.
#[derive(Debug)]
pub(crate) struct Present {
    attendance: Arc<Attendance>,
    worker: usize,
}

impl Attendance {
    pub(crate) fn new(away: Away) -> Arc<Self> {
        let state = State { is_over: false, producers: vec![Presence::Out; away.len()] };
        Arc::new(Attendance { state: Mutex::new(state), left: Condvar::new(), away })
    }

    /// A producer takes part from now on. `None` when the run is over already.
    pub(crate) fn enter(self: &Arc<Self>, worker: usize) -> Option<Present> {
        let mut state = lock(&self.state);
        if state.is_over {
            return None;
        }
        state.producers[worker] = Presence::In;
        Some(Present { attendance: self.clone(), worker })
    }

    /// Nobody waits for this producer any more.
    pub(crate) fn excuse(&self, worker: usize) {
        let mut state = lock(&self.state);
        // Under the lock, as its return is: else it could be taken for away that has come back.
        if state.producers[worker] == Presence::In {
            state.producers[worker] = Presence::Excused;
            self.away[worker].store(true, Ordering::Relaxed);
        }
        drop(state);
        self.left.notify_all();
    }

    /// Those that are in the run.
    pub(crate) fn present(&self) -> Vec<usize> {
        let state = lock(&self.state);
        let workers = 0..state.producers.len();
        workers.filter(|&worker| state.producers[worker] == Presence::In).collect()
    }

    /// Waits until nobody is in the run. From now on nobody enters it.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        while state.producers.contains(&Presence::In) {
            state = wait(&self.left, state);
        }
    }

    fn leave(&self, worker: usize) {
        let mut state = lock(&self.state);
        state.producers[worker] = Presence::Out;
        self.away[worker].store(false, Ordering::Relaxed);
        drop(state);
        self.left.notify_all();
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.attendance.leave(self.worker);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_end_waits_for_those_who_are_there_and_for_nobody_else() {
        let attendance = Attendance::new((0..3).map(|_| AtomicBool::new(false)).collect());
        let first = attendance.enter(0).unwrap();
        let second = attendance.enter(1).unwrap();
        attendance.excuse(1);
        assert_eq!(attendance.present(), [0]);
        thread::scope(|scope| {
            let ending = scope.spawn(|| attendance.end());
            drop(first);
            ending.join().unwrap();
        });
        assert!(attendance.enter(2).is_none(), "it is over");
        drop(second);
    }
}

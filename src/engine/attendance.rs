//! Who takes part in a run.

use std::sync::Arc;

use crate::sync::{Condvar, Mutex, lock, wait};

/// Which producers are in a run, so that its end can wait for them.
///
/// Not the drops of channel ends, of which nobody else could let one go: a producer that is in a hook
/// and was written off is excused, and the end does not wait for it.
#[derive(Debug)]
pub(crate) struct Attendance {
    state: Mutex<State>,
    left: Condvar,
}

#[derive(Debug)]
struct State {
    is_over: bool,
    present: Vec<bool>,
}

/// A producer that is in a run, until this is dropped.
#[derive(Debug)]
pub(crate) struct Present {
    attendance: Arc<Attendance>,
    worker: usize,
}

impl Attendance {
    pub(crate) fn new(producers: usize) -> Arc<Self> {
        let state = State { is_over: false, present: vec![false; producers] };
        Arc::new(Attendance { state: Mutex::new(state), left: Condvar::new() })
    }

    /// A producer takes part from now on. `None` when the run is over already.
    pub(crate) fn enter(self: &Arc<Self>, worker: usize) -> Option<Present> {
        let mut state = lock(&self.state);
        if state.is_over {
            return None;
        }
        state.present[worker] = true;
        Some(Present { attendance: self.clone(), worker })
    }

    /// Nobody waits for this producer any more.
    pub(crate) fn excuse(&self, worker: usize) {
        lock(&self.state).present[worker] = false;
        self.left.notify_all();
    }

    /// Those that are in the run.
    pub(crate) fn present(&self) -> Vec<usize> {
        let state = lock(&self.state);
        (0..state.present.len()).filter(|&worker| state.present[worker]).collect()
    }

    /// Waits until nobody is in the run. From now on nobody enters it.
    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.is_over = true;
        while state.present.contains(&true) {
            state = wait(&self.left, state);
        }
    }
}

impl Drop for Present {
    fn drop(&mut self) {
        self.attendance.excuse(self.worker);
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::thread;

    use super::*;

    #[test]
    fn the_end_waits_for_those_who_are_there_and_for_nobody_else() {
        let attendance = Attendance::new(3);
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

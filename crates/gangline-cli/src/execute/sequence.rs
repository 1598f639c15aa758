//! The order of outputs if several lanes have jobs of one file.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::locking::lock;

/// Lets lanes write in the order of job numbers. Each lane's own outputs are ordered.
#[derive(Clone)]
pub(crate) struct Turns {
    sequence: Arc<Sequence>,
    lane: usize,
}

struct Sequence {
    lanes: Mutex<Vec<OpenNumbers>>,
    changed: Condvar,
}

/// The numbers of one lane that have not been written.
struct OpenNumbers {
    /// Numbers that may still come. Some never do: jobs that are already done, or never start.
    rest: Box<dyn Iterator<Item = u64> + Send>,
    next: Option<u64>,
}

impl Turns {
    /// Creates turns for lanes with these numbers, each ascending.
    pub(crate) fn new(lanes: Vec<Box<dyn Iterator<Item = u64> + Send>>) -> Vec<Turns> {
        let count = lanes.len();
        let numbers = lanes.into_iter().map(|mut rest| OpenNumbers { next: rest.next(), rest });
        let sequence = Sequence { lanes: Mutex::new(numbers.collect()), changed: Condvar::new() };
        let sequence = Arc::new(sequence);
        (0..count).map(|lane| Turns { sequence: Arc::clone(&sequence), lane }).collect()
    }

    /// Waits until no other lane can produce a smaller number.
    pub(crate) fn wait_for(&self, number: u64) {
        let mut lanes = self.lanes();
        // Smaller numbers of this lane will not come any more; other lanes can see that.
        lanes[self.lane].skip_to(number);
        self.sequence.changed.notify_all();
        while !self.is_first(&lanes, number) {
            lanes = self.sequence.changed.wait(lanes).expect("nothing panics with the lock held");
        }
    }

    /// The output that others may wait for was written.
    pub(crate) fn done(&self, number: u64) {
        self.lanes()[self.lane].skip_to(number + 1);
        self.sequence.changed.notify_all();
    }

    /// The lane has no further outputs.
    pub(crate) fn end(&self) {
        self.lanes()[self.lane].next = None;
        self.sequence.changed.notify_all();
    }

    fn is_first(&self, lanes: &[OpenNumbers], number: u64) -> bool {
        let others = lanes.iter().enumerate().filter(|(lane, _)| *lane != self.lane);
        others.filter_map(|(_, numbers)| numbers.next).all(|other| other > number)
    }

    fn lanes(&self) -> MutexGuard<'_, Vec<OpenNumbers>> {
        lock(&self.sequence.lanes)
    }
}

impl OpenNumbers {
    fn skip_to(&mut self, number: u64) {
        while self.next.is_some_and(|next| next < number) {
            self.next = self.rest.next();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::thread;

    use super::*;

    fn lanes(lanes: [&'static [u64]; 2]) -> [Turns; 2] {
        let boxed = lanes
            .map(|lane| Box::new(lane.iter().copied()) as Box<dyn Iterator<Item = u64> + Send>);
        Turns::new(boxed.into()).try_into().unwrap_or_else(|_| panic!("two lanes"))
    }

    #[test]
    fn two_lanes_write_in_order() {
        let [odd, even] = lanes([&[1, 3, 5], &[2, 4]]);
        let written = Mutex::new(Vec::new());
        let write = |turns: &Turns, numbers: &[u64]| {
            for number in numbers {
                turns.wait_for(*number);
                written.lock().unwrap().push(*number);
                turns.done(*number);
            }
            turns.end();
        };
        thread::scope(|scope| {
            scope.spawn(|| write(&even, &[2, 4]));
            write(&odd, &[1, 3, 5]);
        });
        assert_eq!(*written.lock().unwrap(), [1, 2, 3, 4, 5]);
    }

    #[test]
    fn a_lane_that_is_ahead_in_the_file_is_not_waited_for() {
        let [cpu, _gpu] = lanes([&[1, 2], &[3]]);
        cpu.wait_for(1);
        cpu.done(1);
        cpu.wait_for(2);
    }

    #[test]
    fn a_job_that_never_comes_is_not_waited_for() {
        let [cpu, gpu] = lanes([&[2], &[1, 3]]);
        thread::scope(|scope| {
            let second = scope.spawn(|| cpu.wait_for(2));
            gpu.wait_for(1);
            gpu.end();
            second.join().unwrap();
        });
    }
}

//! A queue between two threads. Its values can be taken back before they are received.

use std::collections::VecDeque;

use super::{Condvar, Mutex, lock, wait};

/// A queue with one receiver. Each value is either received or taken back.
#[derive(Debug)]
pub(crate) struct Recallable<T> {
    waiting: Mutex<VecDeque<T>>,
    arrived: Condvar,
}

impl<T> Default for Recallable<T> {
    fn default() -> Self {
        Recallable { waiting: Mutex::default(), arrived: Condvar::new() }
    }
}

impl<T> Recallable<T> {
    pub(crate) fn push(&self, value: T) {
        lock(&self.waiting).push_back(value);
        self.arrived.notify_one();
    }

    /// Waits for the next value.
    pub(crate) fn receive(&self) -> T {
        let mut waiting = lock(&self.waiting);
        loop {
            match waiting.pop_front() {
                Some(value) => return value,
                None => waiting = wait(&self.arrived, waiting),
            }
        }
    }

    /// Takes back the last values, as far as they are `unwanted`.
    pub(crate) fn take_back(&self, unwanted: impl Fn(&T) -> bool) -> Vec<T> {
        let mut waiting = lock(&self.waiting);
        let kept = waiting.iter().rposition(|value| !unwanted(value)).map_or(0, |last| last + 1);
        waiting.split_off(kept).into()
    }
}

#[cfg(all(test, shuttle))]
mod model {
    use std::sync::Arc;

    use shuttle::thread;

    use super::*;

    /// A child receives calls while its coordinator sends them and recalls what was not begun. The last call ends it.
    #[test]
    fn a_recalled_call_is_answered_or_handed_back_and_not_both() {
        let model = || {
            let calls = Arc::new(Recallable::default());
            let child = thread::spawn({
                let calls = calls.clone();
                move || {
                    let mut answered = vec![];
                    loop {
                        match calls.receive() {
                            0 => return answered,
                            call => answered.push(call),
                        }
                    }
                }
            });
            let mut handed_back = vec![];
            for call in 1..=4 {
                calls.push(call);
                if call % 2 == 0 {
                    handed_back.extend(calls.take_back(|&waiting| waiting > 1));
                }
            }
            calls.push(0);
            let answered: Vec<u64> = child.join().unwrap();
            assert!(answered.contains(&1), "the first stays");
            assert!(answered.is_sorted());
            let mut all = [answered, handed_back].concat();
            all.sort_unstable();
            assert_eq!(all, [1, 2, 3, 4]);
        };
        shuttle::check_random(model, 5_000);
        shuttle::check_pct(model, 5_000, 3);
    }
}

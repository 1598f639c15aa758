//! An unbounded queue for one sender and one receiver: a ring that is replaced by a larger one when it is
//! full.

use std::collections::VecDeque;
use std::sync::Arc;

use super::atomic::{AtomicUsize, Ordering};
use super::{Mutex, Reader, Writer, lock, ring};

/// The largest number of values that a new queue has room for. The window of the run bounds a queue: it
/// never grows beyond twice the window, and a queue that is collected often stays small.
const FIRST_CAPACITY: usize = 64;
/// The largest size of that room in bytes. One value may exceed it.
const FIRST_BYTES: usize = 4_096;

#[derive(Debug)]
pub(crate) struct Sender<T> {
    ring: Writer<T>,
    successors: Arc<Successors<T>>,
}

#[derive(Debug)]
pub(crate) struct Receiver<T> {
    ring: Reader<T>,
    successors: Arc<Successors<T>>,
    /// The number of rings before the current one.
    abandoned: usize,
}

/// The rings that the sender has moved on to and the receiver has not.
#[derive(Debug)]
struct Successors<T> {
    /// The number of rings ever created here. Written after the sender's last push into the previous ring.
    made: AtomicUsize,
    rings: Mutex<VecDeque<Reader<T>>>,
}

/// Creates a queue for about `window` values, with at most that initial capacity.
pub(crate) fn queue<T>(window: usize) -> (Sender<T>, Receiver<T>) {
    let (writer, reader) = ring(first_capacity(size_of::<T>(), window));
    let successors =
        Arc::new(Successors { made: AtomicUsize::new(0), rings: Mutex::new(VecDeque::new()) });
    let sender = Sender { ring: writer, successors: successors.clone() };
    (sender, Receiver { ring: reader, successors, abandoned: 0 })
}

fn first_capacity(size: usize, window: usize) -> usize {
    (FIRST_BYTES / size.max(1)).clamp(1, FIRST_CAPACITY.min(window))
}

impl<T> Sender<T> {
    #[inline]
    pub(crate) fn push(&mut self, value: T) {
        if let Err(value) = self.ring.push(value) {
            self.push_into_larger(value);
        }
    }

    #[cold]
    fn push_into_larger(&mut self, value: T) {
        let (mut writer, reader) = ring(2 * self.ring.capacity());
        let Ok(()) = writer.push(value) else { unreachable!("a new ring has room") };
        lock(&self.successors.rings).push_back(reader);
        self.ring = writer;
        self.successors.made.fetch_add(1, Ordering::Release);
    }
}

impl<T> Receiver<T> {
    /// The number of values at hand; at least one if there are any. More may be in [later](Self::has_more)
    /// rings.
    #[inline]
    pub(crate) fn len(&mut self) -> usize {
        loop {
            let len = self.ring.len();
            if len > 0 || !self.move_on() {
                return len;
            }
        }
    }

    /// Takes the oldest value.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        match self.ring.pop() {
            None if self.len() > 0 => self.ring.pop(),
            value => value,
        }
    }

    /// Takes the oldest `n` values, which must be at hand.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> impl Iterator<Item = T> {
        self.ring.take(n)
    }

    /// Whether the sender has moved on to another ring.
    pub(crate) fn has_more(&self) -> bool {
        self.successors.made.load(Ordering::Acquire) != self.abandoned
    }

    /// Moves on to the next ring, if there is one. The current ring may still hold values, pushed after this
    /// thread looked and before the sender moved on.
    fn move_on(&mut self) -> bool {
        if !self.has_more() {
            return false;
        }
        if self.ring.len() == 0 {
            let next = lock(&self.successors.rings).pop_front();
            self.ring = next.expect("a ring that was counted is here");
            self.abandoned += 1;
        }
        true
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use super::*;

    fn drain(receiver: &mut Receiver<u64>) -> Vec<u64> {
        let mut values = Vec::new();
        while let n @ 1.. = receiver.len() {
            values.extend(receiver.take(n));
        }
        values
    }

    #[test]
    fn what_no_ring_holds_goes_into_larger_ones() {
        let (mut sender, mut receiver) = queue(1_000);
        (0..1_000).for_each(|value| sender.push(value));
        assert_eq!(drain(&mut receiver), (0..1_000).collect::<Vec<_>>());
        sender.push(1_000);
        assert_eq!(drain(&mut receiver), [1_000]);
    }

    #[test]
    fn a_queue_that_is_emptied_in_time_keeps_its_ring() {
        let (mut sender, mut receiver) = queue(1_000);
        for value in 0..1_000 {
            sender.push(value);
            assert_eq!(drain(&mut receiver), [value]);
        }
        assert_eq!(sender.ring.capacity(), FIRST_CAPACITY);
    }

    #[test]
    fn large_values_and_narrow_windows_start_with_little_room() {
        let capacities = [(8, 1_000), (8, 3), (1_000, 1_000), (1 << 20, 1_000), (0, 1), (8, 1)]
            .map(|(size, window)| first_capacity(size, window));
        assert_eq!(capacities, [64, 3, 4, 1, 1, 1]);
    }

    #[test]
    fn nothing_is_lost_between_threads() {
        let (mut sender, mut receiver) = queue(1_000);
        let count = 200_000;
        let other = std::thread::spawn(move || (0..count).for_each(|value| sender.push(value)));
        let mut next = 0;
        while next < count {
            for value in drain(&mut receiver) {
                assert_eq!(value, next);
                next += 1;
            }
            std::thread::yield_now();
        }
        other.join().unwrap();
    }
}

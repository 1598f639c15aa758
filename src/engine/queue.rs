//! A queue without bound for one sender and one receiver: a ring, and a larger one when it is full.

use std::collections::VecDeque;
use std::sync::Arc;

use crate::sync::atomic::{AtomicUsize, Ordering};
use crate::sync::{Mutex, Reader, Writer, lock, ring};

/// Room for at most so many values at first. What bounds a queue is the window of its run, so a queue
/// never grows beyond twice the window, and one that is collected often stays small.
const FIRST_CAPACITY: usize = 64;
/// And for at most so many bytes of them, unless one takes more.
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
    /// How many rings came before the present one.
    abandoned: usize,
}

/// Rings that the sender has changed to and the receiver has not.
#[derive(Debug)]
struct Successors<T> {
    /// How many there ever were. Written when the sender has pushed its last value into the ring
    /// before.
    made: AtomicUsize,
    rings: Mutex<VecDeque<Reader<T>>>,
}

/// A queue for about `window` values, which it is to have no more room for at first.
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
    /// How many values are at hand: some, if there are any. More may be in [further](Self::has_more)
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

    /// Takes out the oldest.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        match self.ring.pop() {
            None if self.len() > 0 => self.ring.pop(),
            value => value,
        }
    }

    /// Takes out the oldest `n`, which are at hand.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> impl Iterator<Item = T> {
        self.ring.take(n)
    }

    /// Whether the sender has changed to another ring.
    pub(crate) fn has_more(&self) -> bool {
        self.successors.made.load(Ordering::Acquire) != self.abandoned
    }

    /// Changes to the next ring, if there is one. The present one may still turn out to have values:
    /// those that were pushed after it was looked at and before the sender changed.
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

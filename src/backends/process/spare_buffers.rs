//! Buffers that are used again.

use std::sync::Arc;

use crate::backends::memory::arena::SMALLEST;
use crate::concurrency::{Mutex, lock};

/// The largest number of buffers that are kept.
const MOST_KEPT: usize = 2;
/// The largest buffer that is kept, in bytes.
const LARGEST_KEPT: usize = 64 << 20;

/// Empty buffers of one side of a connection, which are used again: making the pages of new ones takes longer than
/// filling them.
#[derive(Debug, Clone)]
pub(super) struct SpareBuffers {
    kept: Arc<Mutex<Vec<Vec<u8>>>>,
    /// The largest capacity of all that are kept together, in bytes.
    most: u64,
}

impl SpareBuffers {
    /// `most`: how many bytes are kept.
    pub(super) fn new(most: u64) -> Self {
        SpareBuffers { kept: Arc::default(), most }
    }

    /// Takes a buffer, which is empty.
    pub(super) fn take(&self) -> Vec<u8> {
        lock(&self.kept).pop().unwrap_or_default()
    }

    /// Gives a buffer back that is needed no more. One that is small, or too much, is dropped.
    pub(super) fn give(&self, mut buffer: Vec<u8>) {
        buffer.clear();
        let is_large = (SMALLEST..=LARGEST_KEPT).contains(&buffer.capacity());
        let mut kept = lock(&self.kept);
        let bytes = kept.iter().chain([&buffer]).map(|it| it.capacity() as u64).sum::<u64>();
        if is_large && kept.len() < MOST_KEPT && bytes <= self.most {
            kept.push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOST: u64 = 256 << 20;

    #[test]
    fn a_large_buffer_is_used_again_and_comes_back_empty() {
        let spares = SpareBuffers::new(MOST);
        spares.give(vec![1; 10]);
        assert_eq!(spares.take().capacity(), 0, "small ones are not kept");
        for _ in 0..5 {
            spares.give(vec![1; SMALLEST]);
        }
        for _ in 0..MOST_KEPT {
            let buffer = spares.take();
            assert!(buffer.is_empty() && buffer.capacity() >= SMALLEST);
        }
        assert_eq!(spares.take().capacity(), 0, "no more are kept");
    }

    #[test]
    fn all_together_are_no_larger_than_their_bound() {
        let bytes = 3 * SMALLEST as u64;
        let spares = SpareBuffers::new(bytes);
        spares.give(Vec::with_capacity(4 * SMALLEST));
        assert_eq!(spares.take().capacity(), 0, "one alone is too large");
        spares.give(Vec::with_capacity(2 * SMALLEST));
        spares.give(Vec::with_capacity(2 * SMALLEST));
        assert!(spares.take().capacity() >= 2 * SMALLEST);
        assert_eq!(spares.take().capacity(), 0, "the second was too much");
    }

    #[test]
    fn all_sides_that_share_them_have_the_same() {
        let spares = SpareBuffers::new(MOST);
        spares.clone().give(vec![1; SMALLEST]);
        assert!(spares.take().capacity() >= SMALLEST);
        assert_eq!(spares.take().capacity(), 0);
    }
}

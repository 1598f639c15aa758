//! A ring of fixed capacity with one writer and one reader.

use rtrb::{Consumer, Producer, PushError, RingBuffer};

/// The end that values are pushed into.
#[derive(Debug)]
pub(crate) struct Writer<T>(Producer<T>);

/// The end that values are taken out of.
#[derive(Debug)]
pub(crate) struct Reader<T>(Consumer<T>);

/// The two ends of a ring with room for `capacity` values.
pub(crate) fn ring<T>(capacity: usize) -> (Writer<T>, Reader<T>) {
    let (writer, reader) = RingBuffer::new(capacity);
    (Writer(writer), Reader(reader))
}

impl<T> Writer<T> {
    /// Pushes a value, or returns it if the ring is full. The value is visible to a reader that synchronises
    /// with this thread afterwards.
    #[inline]
    pub(crate) fn push(&mut self, value: T) -> Result<(), T> {
        self.0.push(value).map_err(|PushError::Full(value)| value)
    }

    pub(crate) fn capacity(&self) -> usize {
        self.0.buffer().capacity()
    }
}

impl<T> Reader<T> {
    /// The number of values in the ring.
    #[inline]
    pub(crate) fn len(&self) -> usize {
        self.0.slots()
    }

    /// Takes out the oldest value.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        self.0.pop().ok()
    }

    /// Takes out the oldest `n` values, which must be present.
    #[inline]
    pub(crate) fn take(&mut self, n: usize) -> impl Iterator<Item = T> {
        self.0.read_chunk(n).expect("no more is taken than is here").into_iter()
    }
}

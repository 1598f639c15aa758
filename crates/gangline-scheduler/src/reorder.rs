//! Results put back into the order of the input: a value without threads.

#[cfg(test)]
mod tests;

/// Puts values that arrive in any order back into the order 0, 1, 2, ...
///
/// It never refuses a value: the window of the run bounds it, since it counts all items in flight.
/// Rejected: refusing a value here could keep the producer that holds the missing head from ever delivering
/// it.
#[derive(Debug)]
pub struct Reorder<T> {
    /// The index of the next value to be released.
    next: u64,
    /// The value with index `seq` is in slot `seq` modulo the number of slots, which is a power of two.
    slots: Vec<Option<T>>,
    held: usize,
}

/// An empty buffer, which waits for index 0.
impl<T> Default for Reorder<T> {
    fn default() -> Self {
        Reorder { next: 0, slots: Vec::from([None]), held: 0 }
    }
}

impl<T> Reorder<T> {
    /// Returns the index of the next value in order.
    pub fn next(&self) -> u64 {
        self.next
    }

    /// Returns the number of buffered values.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Advances past the next `count` values, which bypass this buffer in their turn.
    pub fn pass(&mut self, count: usize) {
        self.next += count as u64;
    }

    /// Takes the value with index `seq`, which neither came before nor was released.
    pub fn insert(&mut self, seq: u64, value: T) {
        let ahead = seq.checked_sub(self.next).expect("a released index does not come again");
        if ahead >= self.slots.len() as u64 {
            self.make_room(ahead);
        }
        let slot = self.slot(seq);
        assert!(self.slots[slot].is_none(), "index {seq} came twice");
        self.slots[slot] = Some(value);
        self.held += 1;
    }

    /// Returns the next value in order with its index, if it has arrived.
    #[inline]
    pub fn pop(&mut self) -> Option<(u64, T)> {
        if self.held == 0 {
            return None;
        }
        let (seq, slot) = (self.next, self.slot(self.next));
        let value = self.slots[slot].take()?;
        self.next += 1;
        self.held -= 1;
        Some((seq, value))
    }

    /// Takes every value out, in no particular order.
    pub fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.held = 0;
        self.slots.iter_mut().filter_map(Option::take)
    }

    fn slot(&self, seq: u64) -> usize {
        // Equals the remainder, and is cheaper.
        seq as usize & (self.slots.len() - 1)
    }

    /// Makes room for a value that is this far ahead of the missing one.
    #[cold]
    fn make_room(&mut self, ahead: u64) {
        let ahead = usize::try_from(ahead).expect("the window bounds how far ahead a value is");
        let len = (ahead + 1).next_power_of_two();
        let mut old = std::mem::replace(&mut self.slots, Vec::with_capacity(len));
        self.slots.resize_with(len, || None);
        for seq in self.next..self.next + old.len() as u64 {
            let (from, to) = (seq as usize & (old.len() - 1), self.slot(seq));
            self.slots[to] = old[from].take();
        }
    }
}

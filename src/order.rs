//! In which order results reach the consumer: decisions without threads.

use std::collections::VecDeque;

/// The order in which the consumer sees the results of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The order of the input: 0, 1, 2, ...
    #[default]
    Input,
    /// The order in which results are finished. Results of different producers that are handed over
    /// together, since the consumer was busy, may swap.
    Completion,
}

/// Results on their way to the consumer, released in the order asked for.
#[derive(Debug)]
pub(crate) enum Arrivals<T> {
    Input(Reorder<T>),
    Completion(Merge<T>),
}

impl<T> Arrivals<T> {
    pub(crate) fn new(order: Order) -> Self {
        match order {
            Order::Input => Arrivals::Input(Reorder::new()),
            Order::Completion => Arrivals::Completion(Merge::new()),
        }
    }

    /// Takes a result that came from `lane`.
    #[inline]
    pub(crate) fn insert(&mut self, lane: usize, seq: u64, value: T) {
        match self {
            Arrivals::Input(reorder) => reorder.insert(seq, value),
            Arrivals::Completion(merge) => merge.insert(lane, seq, value),
        }
    }

    /// The next result to consume, with its index.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        match self {
            Arrivals::Input(reorder) => reorder.pop(),
            Arrivals::Completion(merge) => merge.pop(),
        }
    }

    /// How many results are here.
    pub(crate) fn held(&self) -> usize {
        match self {
            Arrivals::Input(reorder) => reorder.held(),
            Arrivals::Completion(merge) => merge.held,
        }
    }

    /// Takes every result out, in no particular order.
    pub(crate) fn drain(&mut self) -> Vec<T> {
        match self {
            Arrivals::Input(reorder) => reorder.drain().collect(),
            Arrivals::Completion(merge) => merge.drain().collect(),
        }
    }
}

/// Brings together what was finished in several lanes while nobody looked. Each lane is in the
/// order in which it finished; which of two lanes finished first is not known, so the one that is
/// earlier in the input goes first, as it most likely did.
///
/// Without this a consumer that was busy would then see all results of one producer, and after
/// them all of the next.
#[derive(Debug)]
pub(crate) struct Merge<T> {
    lanes: Vec<VecDeque<(u64, T)>>,
    held: usize,
}

impl<T> Merge<T> {
    fn new() -> Self {
        Merge { lanes: Vec::new(), held: 0 }
    }

    #[inline]
    fn insert(&mut self, lane: usize, seq: u64, value: T) {
        if self.lanes.len() <= lane {
            self.lanes.resize_with(lane + 1, VecDeque::new);
        }
        self.lanes[lane].push_back((seq, value));
        self.held += 1;
    }

    #[inline]
    fn pop(&mut self) -> Option<(u64, T)> {
        if self.held == 0 {
            return None;
        }
        let next = |lane: &VecDeque<(u64, T)>| lane.front().map_or(u64::MAX, |(seq, _)| *seq);
        self.held -= 1;
        self.lanes.iter_mut().min_by_key(|lane| next(lane))?.pop_front()
    }

    fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.held = 0;
        self.lanes.iter_mut().flat_map(|lane| lane.drain(..)).map(|(_, value)| value)
    }
}

/// Puts values that arrive in any order back into the order 0, 1, 2, ...
///
/// It never refuses a value: what bounds it is the window of the run, which counts the items that
/// are given out and not yet consumed. To refuse a value here instead could keep the producer that
/// holds the missing head from ever delivering it.
#[derive(Debug)]
pub(crate) struct Reorder<T> {
    /// Values whose turn has come. Most arrive in their turn and see nothing else of this.
    ready: VecDeque<T>,
    /// The index after that of the last ready value: the one that is missing.
    next: u64,
    /// Values that came before their turn. The one with index `seq` is in the slot `seq` modulo
    /// their number, which is a power of two.
    slots: Vec<Option<T>>,
    early: usize,
}

impl<T> Reorder<T> {
    pub(crate) fn new() -> Self {
        Reorder { ready: VecDeque::new(), next: 0, slots: Vec::from([None]), early: 0 }
    }

    /// How many values are here.
    pub(crate) fn held(&self) -> usize {
        self.ready.len() + self.early
    }

    /// Takes the value with index `seq`, which neither came before nor was released.
    #[inline]
    pub(crate) fn insert(&mut self, seq: u64, value: T) {
        if seq != self.next {
            return self.insert_early(seq, value);
        }
        self.ready.push_back(value);
        self.next += 1;
        if self.early > 0 {
            self.promote();
        }
    }

    /// The value whose turn it is, with its index, when it is here.
    #[inline]
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let seq = self.next - self.ready.len() as u64;
        Some((seq, self.ready.pop_front()?))
    }

    fn insert_early(&mut self, seq: u64, value: T) {
        let ahead = seq.checked_sub(self.next).expect("a released index does not come again");
        if ahead >= self.slots.len() as u64 {
            self.make_room(ahead);
        }
        let slot = self.slot(seq);
        assert!(self.slots[slot].is_none(), "index {seq} came twice");
        self.slots[slot] = Some(value);
        self.early += 1;
    }

    /// Moves those whose turn has come meanwhile.
    fn promote(&mut self) {
        let mut slot = self.slot(self.next);
        while let Some(value) = self.slots[slot].take() {
            self.ready.push_back(value);
            self.next += 1;
            self.early -= 1;
            slot = self.slot(self.next);
        }
    }

    fn slot(&self, seq: u64) -> usize {
        // As good as the remainder, and cheaper.
        seq as usize & (self.slots.len() - 1)
    }

    /// Makes room for a value that is so far ahead of the missing one.
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

    fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.early = 0;
        self.ready.drain(..).chain(self.slots.iter_mut().filter_map(Option::take))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_missing_head_holds_back_what_follows() {
        let mut reorder = Reorder::new();
        reorder.insert(1, 'b');
        reorder.insert(2, 'c');
        assert_eq!((reorder.pop(), reorder.held()), (None, 2));
        reorder.insert(0, 'a');
        let released: Vec<_> = std::iter::from_fn(|| reorder.pop()).collect();
        assert_eq!(released, [(0, 'a'), (1, 'b'), (2, 'c')]);
        assert_eq!((reorder.pop(), reorder.held()), (None, 0));
    }

    #[test]
    #[should_panic(expected = "index 3 came twice")]
    fn a_value_that_comes_twice_is_our_bug() {
        let mut reorder = Reorder::new();
        reorder.insert(3, ());
        reorder.insert(3, ());
    }

    #[test]
    #[should_panic(expected = "a released index does not come again")]
    fn a_value_that_was_released_does_not_come_again() {
        let mut reorder = Reorder::new();
        reorder.insert(0, ());
        reorder.pop();
        reorder.insert(0, ());
    }

    #[test]
    fn draining_gives_what_is_held() {
        for order in [Order::Input, Order::Completion] {
            let mut arrivals = Arrivals::new(order);
            arrivals.insert(0, 4, 'e');
            arrivals.insert(1, 1, 'b');
            let mut left = arrivals.drain();
            left.sort_unstable();
            assert_eq!(left, ['b', 'e']);
            assert_eq!(arrivals.held(), 0);
        }
    }

    #[test]
    fn what_several_lanes_finished_meanwhile_is_brought_together() {
        let mut merge = Merge::new();
        for (lane, seqs) in [(0, [0, 2, 9]), (2, [1, 8, 3])] {
            seqs.into_iter().for_each(|seq| merge.insert(lane, seq, ()));
        }
        let released: Vec<_> = std::iter::from_fn(|| merge.pop()).map(|(seq, ())| seq).collect();
        assert_eq!(released, [0, 1, 2, 8, 3, 9], "each lane in its own order");
        assert_eq!(merge.held, 0);
    }

    /// Any order of arrival in which nothing is further ahead than the window allows.
    fn arrivals() -> impl Strategy<Value = (Vec<u64>, usize)> {
        (1usize..40, 0u64..200).prop_flat_map(|(window, count)| {
            proptest::collection::vec(0usize..window, count as usize).prop_map(move |picks| {
                let mut waiting: Vec<u64> = Vec::new();
                let mut input = 0..count;
                let mut order = Vec::new();
                let mut consumed = 0;
                for pick in picks {
                    while input.start < count && input.start < consumed + window as u64 {
                        waiting.extend(input.next());
                    }
                    order.push(waiting.remove(pick % waiting.len()));
                    while order.contains(&consumed) {
                        consumed += 1;
                    }
                }
                (order, window)
            })
        })
    }

    proptest! {
        #[test]
        fn every_order_of_arrival_comes_out_in_order((order, window) in arrivals()) {
            let mut reorder = Reorder::new();
            let mut released = Vec::new();
            for &seq in &order {
                reorder.insert(seq, seq * 10);
                while let Some(value) = reorder.pop() {
                    released.push(value);
                }
                prop_assert!(reorder.slots.len() <= window.next_power_of_two(), "the buffer outgrew the window");
                prop_assert_eq!(reorder.held(), reorder.slots.iter().flatten().count());
            }
            let expected: Vec<_> = (0..order.len() as u64).map(|seq| (seq, seq * 10)).collect();
            prop_assert_eq!(released, expected);
        }
    }
}

//! In which order results reach the consumer: decisions without threads.

use std::collections::VecDeque;

/// The order in which the consumer sees the results of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Order {
    /// The order of the input: 0, 1, 2, ...
    #[default]
    Input,
    /// The order in which results are finished. Neighbours that were handed over together may
    /// swap.
    Completion,
}

/// Results on their way to the consumer, released in the order asked for.
#[derive(Debug)]
pub(crate) enum Arrivals<T> {
    Input(Reorder<T>),
    Completion(VecDeque<(u64, T)>),
}

impl<T> Arrivals<T> {
    pub(crate) fn new(order: Order) -> Self {
        match order {
            Order::Input => Arrivals::Input(Reorder::new()),
            Order::Completion => Arrivals::Completion(VecDeque::new()),
        }
    }

    pub(crate) fn insert(&mut self, seq: u64, value: T) {
        match self {
            Arrivals::Input(reorder) => reorder.insert(seq, value),
            Arrivals::Completion(queue) => queue.push_back((seq, value)),
        }
    }

    /// The next result to consume, with its index.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        match self {
            Arrivals::Input(reorder) => reorder.pop(),
            Arrivals::Completion(queue) => queue.pop_front(),
        }
    }

    /// How many results are here.
    pub(crate) fn held(&self) -> usize {
        match self {
            Arrivals::Input(reorder) => reorder.held,
            Arrivals::Completion(queue) => queue.len(),
        }
    }

    /// Takes every result out, in no particular order.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        let (reorder, queue) = match self {
            Arrivals::Input(reorder) => (Some(reorder), None),
            Arrivals::Completion(queue) => (None, Some(queue)),
        };
        let reordered = reorder.into_iter().flat_map(Reorder::drain);
        reordered.chain(queue.into_iter().flat_map(|queue| queue.drain(..).map(|(_, value)| value)))
    }
}

/// Puts values that arrive in any order back into the order 0, 1, 2, ...
///
/// It never refuses a value: what bounds it is the window of the run, which counts the items that
/// are given out and not yet consumed. To refuse a value here instead could keep the producer that
/// holds the missing head from ever delivering it.
#[derive(Debug)]
pub(crate) struct Reorder<T> {
    /// The index of `slots[0]`, the next to be released.
    next: u64,
    slots: VecDeque<Option<T>>,
    held: usize,
}

impl<T> Reorder<T> {
    pub(crate) fn new() -> Self {
        Reorder { next: 0, slots: VecDeque::new(), held: 0 }
    }

    /// Takes the value with index `seq`, which neither came before nor was released.
    pub(crate) fn insert(&mut self, seq: u64, value: T) {
        let ahead = seq.checked_sub(self.next).expect("a released index does not come again");
        let ahead = usize::try_from(ahead).expect("the window bounds how far ahead a value is");
        if self.slots.len() <= ahead {
            self.slots.resize_with(ahead + 1, || None);
        }
        let before = self.slots[ahead].replace(value);
        assert!(before.is_none(), "index {seq} came twice");
        self.held += 1;
    }

    /// The value whose turn it is, with its index, when it is here.
    pub(crate) fn pop(&mut self) -> Option<(u64, T)> {
        let value = self.slots.front_mut()?.take()?;
        let seq = self.next;
        self.slots.pop_front();
        self.next += 1;
        self.held -= 1;
        Some((seq, value))
    }

    fn drain(&mut self) -> impl Iterator<Item = T> + '_ {
        self.held = 0;
        self.slots.drain(..).flatten()
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
        assert_eq!((reorder.pop(), reorder.held), (None, 2));
        reorder.insert(0, 'a');
        let released: Vec<_> = std::iter::from_fn(|| reorder.pop()).collect();
        assert_eq!(released, [(0, 'a'), (1, 'b'), (2, 'c')]);
        assert_eq!((reorder.pop(), reorder.held), (None, 0));
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
            arrivals.insert(4, 'e');
            arrivals.insert(1, 'b');
            let mut left: Vec<_> = arrivals.drain().collect();
            left.sort_unstable();
            assert_eq!(left, ['b', 'e']);
            assert_eq!(arrivals.held(), 0);
        }
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
                prop_assert!(reorder.slots.len() <= window, "the buffer outgrew the window");
                prop_assert_eq!(reorder.held, reorder.slots.iter().flatten().count());
            }
            let expected: Vec<_> = (0..order.len() as u64).map(|seq| (seq, seq * 10)).collect();
            prop_assert_eq!(released, expected);
        }
    }
}

//! What is in memory at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering::SeqCst};

use gangline::Order;

use crate::support::{ORDERS, builder, no_hang, pass, working};

/// Counts values that are alive.
#[derive(Clone, Default)]
struct Alive(Arc<(AtomicI64, AtomicI64)>);

/// A value that is counted.
struct Counted<T>(T, Alive);

impl Alive {
    fn count<T>(&self, value: T) -> Counted<T> {
        let now = self.0.0.fetch_add(1, SeqCst) + 1;
        self.0.1.fetch_max(now, SeqCst);
        Counted(value, self.clone())
    }

    fn most(&self) -> i64 {
        self.0.1.load(SeqCst)
    }

    fn now(&self) -> i64 {
        self.0.0.load(SeqCst)
    }
}

impl<T> Drop for Counted<T> {
    fn drop(&mut self) {
        self.1.0.0.fetch_sub(1, SeqCst);
    }
}

/// Runs this many parents of this many parts, and returns the most parents and parts alive at once.
fn most_alive(order: Order, parents: u64, parts: u64, open: usize) -> (i64, i64) {
    let (parents_alive, parts_alive) = (Alive::default(), Alive::default());
    let (counts, counted) = (parents_alive.clone(), parts_alive.clone());
    let open_stage = working(move |_, n: u64| Ok(counts.count(n)));
    let first = builder(open_stage, Order::Input, 1).window(4).build().unwrap();
    let mut work = builder(pass::<Counted<u64>>(), order, 2).window(16).build().unwrap();
    let last = gangline::map(
        |_| Ok(()),
        |_, (), (parent, sum): (Arc<Counted<u64>>, u64)| Ok((parent.0, sum)),
    );
    let last = last.fold(
        |_| Ok(0),
        |_, total, (_, sum)| {
            *total += sum;
            Ok(())
        },
    );
    let mut write = builder(last, Order::Input, 1).window(3).build().unwrap();
    let total: u64 = first
        .expand(move |_| {
            let counted = counted.clone();
            (0..parts).map(move |_| counted.count(1))
        })
        .open_parents(open)
        .then(&mut work)
        .gather(|_| 0, |sum, _, _, part: Counted<u64>| *sum += part.0)
        .then(&mut write)
        .run(0..parents)
        .unwrap();
    assert_eq!(total, parents * parts);
    assert_eq!((parents_alive.now(), parts_alive.now()), (0, 0));
    (parents_alive.most(), parts_alive.most())
}

#[test]
fn a_million_parts_of_a_parent_take_no_more_memory_than_a_window() {
    no_hang(|| {
        for order in ORDERS {
            let (_, parts) = most_alive(order, 2, 100_000, 2);
            // One is with the link that gathers.
            assert!(parts <= 17, "{parts} in {order:?}");
        }
        let (_, parts) = most_alive(Order::Input, 1, 1_000_000, 2);
        assert!(parts <= 17, "{parts}");
    });
}

#[test]
fn any_number_of_parents_takes_no_more_memory_than_those_open() {
    no_hang(|| {
        for (parts, order) in [(0, Order::Input), (1, Order::Input), (1, Order::Completion)] {
            let parents = if parts == 0 { 100_000 } else { 25_000 };
            let (parents, _) = most_alive(order, parents, parts, 3);
            // In the windows of the first and the last stage, and open.
            assert!(parents <= 4 + 3 + 3, "{parents} with {parts} parts in {order:?}");
        }
    });
}

/// While the last stage stands still, the open parents and all windows fill, and no more is read.
#[test]
fn no_more_parents_open_than_allowed() {
    no_hang(|| {
        for open in [1, 2, 5] {
            let (parents, parts) = most_alive(Order::Input, 300, 40, open);
            assert!(parents <= 4 + 3 + open as i64, "{parents} with {open}");
            assert!(parts <= 17);
        }
    });
}

//! The usual hand-written solution: a channel of items, a channel of results, and a map that restores the
//! order.

use std::collections::BTreeMap;
use std::thread;

use crossbeam_channel::{Receiver, bounded};

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

/// Large enough to avoid waits, small enough to count as bounded.
pub struct Channels {
    threads: usize,
    /// Of each of the two channels.
    capacity: usize,
    kind: Kind,
}

impl Channels {
    /// Enough that no thread waits for long, and still a bound.
    pub fn of_256(threads: usize) -> Self {
        Self { threads, capacity: 256, kind: Kind::Channels }
    }

    /// Beside a window of 64.
    pub fn of_64(threads: usize) -> Self {
        Self { threads, capacity: 64, kind: Kind::ChannelsOf64 }
    }
}

impl Subject for Channels {
    fn kind(&self) -> Kind {
        self.kind
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        Outcome::of(|| sum(self.threads, self.capacity, items, move |x| work.on(x)))
    }
}

/// Sums the results of `work` on the items 0, 1, 2, ... in order.
pub fn sum(
    threads: usize,
    capacity: usize,
    items: u64,
    work: impl Fn(u64) -> u64 + Copy + Send,
) -> u64 {
    let (give, take) = bounded(capacity);
    let (deliver, collect) = bounded(capacity);
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..items).for_each(|x| give.send((x, x)).expect("a producer is left"));
        });
        for _ in 0..threads {
            let (take, deliver) = (take.clone(), deliver.clone());
            scope.spawn(move || {
                for (index, x) in take {
                    deliver.send((index, work(x))).expect("the consumer is left");
                }
            });
        }
        // The consumer waits until every sender is dropped.
        drop(deliver);
        sum_in_order(&collect)
    })
}

fn sum_in_order(results: &Receiver<(u64, u64)>) -> u64 {
    let mut early = BTreeMap::new();
    let (mut sum, mut next) = (0_u64, 0);
    for (index, y) in results {
        early.insert(index, y);
        while let Some(y) = early.remove(&next) {
            sum = sum.wrapping_add(y);
            next += 1;
        }
    }
    sum
}

//! The usual hand-written solution: a channel of items, a channel of results, and a map that restores the
//! order.

use std::collections::BTreeMap;
use std::thread;

use crossbeam_channel::{Receiver, bounded};

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

/// Large enough to avoid waits, small enough to count as bounded.
const CAPACITY: usize = 256;

pub struct Channels {
    pub threads: usize,
}

impl Subject for Channels {
    fn kind(&self) -> Kind {
        Kind::Channels
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        Outcome::of(|| sum(self.threads, items, work))
    }
}

fn sum(threads: usize, items: u64, work: Work) -> u64 {
    let (give, take) = bounded(CAPACITY);
    let (deliver, collect) = bounded(CAPACITY);
    thread::scope(|scope| {
        scope.spawn(move || {
            (0..items).for_each(|x| give.send((x, x)).expect("a producer is left"));
        });
        for _ in 0..threads {
            let (take, deliver) = (take.clone(), deliver.clone());
            scope.spawn(move || {
                for (index, x) in take {
                    deliver.send((index, work.on(x))).expect("the consumer is left");
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

//! A plain loop on each thread, each over its share, without any hand-over: the maximum that the machine can
//! currently reach.

use std::thread;

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

pub struct SplitLoop {
    pub threads: usize,
}

impl Subject for SplitLoop {
    fn kind(&self) -> Kind {
        Kind::SplitLoop
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        let threads = self.threads as u64;
        let start = |thread| items * thread / threads;
        Outcome::of(|| {
            thread::scope(|scope| {
                let sum = |thread| work.sum_of(start(thread)..start(thread + 1));
                let spawn = |thread| scope.spawn(move || sum(thread));
                let threads: Vec<_> = (0..threads).map(spawn).collect();
                let sums = threads.into_iter().map(|thread| thread.join().expect("it only adds"));
                sums.fold(0, u64::wrapping_add)
            })
        })
    }
}

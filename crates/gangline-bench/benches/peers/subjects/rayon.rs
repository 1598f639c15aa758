//! rayon, as a bridge from an iterator, and with all items in memory.

use gangline::BoxError;
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

/// Reduces on its own threads, the fastest way: there is no consumer that takes results.
pub struct ParBridge {
    pool: ThreadPool,
}

/// The time includes collecting the input, which a stream requires.
pub struct ParCollect {
    pool: ThreadPool,
}

impl ParBridge {
    pub fn new(threads: usize) -> Result<Self, BoxError> {
        Ok(Self { pool: pool(threads)? })
    }
}

impl ParCollect {
    pub fn new(threads: usize) -> Result<Self, BoxError> {
        Ok(Self { pool: pool(threads)? })
    }
}

impl Subject for ParBridge {
    fn kind(&self) -> Kind {
        Kind::ParBridge
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        let sum =
            || (0..items).par_bridge().map(|x| work.on(x)).reduce(|| 0, |a, b| a.wrapping_add(b));
        Outcome::of(|| self.pool.install(sum))
    }
}

impl Subject for ParCollect {
    fn kind(&self) -> Kind {
        Kind::ParCollect
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        Outcome::of(|| {
            let inputs: Vec<u64> = (0..items).collect();
            let map = || inputs.into_par_iter().map(|x| work.on(x)).collect();
            let outputs: Vec<u64> = self.pool.install(map);
            outputs.into_iter().fold(0, u64::wrapping_add)
        })
    }
}

fn pool(threads: usize) -> Result<ThreadPool, BoxError> {
    Ok(ThreadPoolBuilder::new().num_threads(threads).build()?)
}

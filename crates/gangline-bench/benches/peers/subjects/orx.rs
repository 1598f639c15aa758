//! orx-parallel, with all items in memory. The time includes collecting the input.

use orx_parallel::*;

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

pub struct Orx {
    pub threads: usize,
}

impl Subject for Orx {
    fn kind(&self) -> Kind {
        Kind::Orx
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        Outcome::of(|| {
            let inputs: Vec<u64> = (0..items).collect();
            let outputs: Vec<u64> =
                inputs.into_par().num_threads(self.threads).map(|x| work.on(x)).collect();
            outputs.into_iter().fold(0, u64::wrapping_add)
        })
    }
}

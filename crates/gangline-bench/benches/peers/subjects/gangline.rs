//! gangline. Producers are hired before the clock starts, as rayon's threads are.

use crate::gangs::{Gang, Sum};
use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

pub struct Gangline {
    pub gang: Gang,
    pub threads: usize,
}

impl Subject for Gangline {
    fn kind(&self) -> Kind {
        Kind::Gangline(self.gang)
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        let mut pool = self.gang.build(Sum(work), self.threads).expect("no hook of it fails");
        Outcome::of(|| pool.run(0..items).expect("no hook of it fails"))
    }
}

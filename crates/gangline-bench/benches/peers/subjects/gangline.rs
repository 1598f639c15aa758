//! gangline. Producers are started before the clock, as rayon's threads are.

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
        let mut pool = self.gang.build(Sum(work), self.threads).expect("the hooks never fail");
        Outcome::of(|| pool.run(0..items).expect("the hooks never fail"))
    }
}

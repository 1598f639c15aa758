//! gangline. As with rayon, one pool serves all rounds, so its threads are started before the clock.

use gangline::AnyOrderRunner;

use crate::gangs::{Gang, Sum};
use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

pub struct Gangline {
    gang: Gang,
    threads: usize,
    /// The pool, and the work that its runner does.
    pool: Option<(Work, AnyOrderRunner<Sum>)>,
}

impl Gangline {
    pub fn new(gang: Gang, threads: usize) -> Self {
        Self { gang, threads, pool: None }
    }
}

impl Subject for Gangline {
    fn kind(&self) -> Kind {
        Kind::Gangline(self.gang)
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        let pool = match self.pool.take().filter(|(of, _)| *of == work) {
            Some((_, pool)) => pool,
            None => self.gang.build(Sum(work), self.threads).expect("the hooks never fail"),
        };
        let (_, pool) = self.pool.insert((work, pool));
        Outcome::of(|| pool.run(0..items).expect("the hooks never fail"))
    }
}

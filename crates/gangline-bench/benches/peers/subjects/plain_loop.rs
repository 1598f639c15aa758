//! A loop on one thread.

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

pub struct PlainLoop;

impl Subject for PlainLoop {
    fn kind(&self) -> Kind {
        Kind::PlainLoop
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        Outcome::of(|| work.sum_in_a_loop(items))
    }
}

//! pariter, with its default window of two items per thread.

use pariter::IteratorExt;

use crate::subject::{Kind, Outcome, Subject};
use crate::work::Work;

pub struct Pariter {
    pub threads: usize,
}

impl Subject for Pariter {
    fn kind(&self) -> Kind {
        Kind::Pariter
    }

    fn run(&mut self, items: u64, work: Work) -> Outcome {
        Outcome::of(|| {
            (0..items)
                .parallel_map_custom(|map| map.threads(self.threads), move |x| work.on(x))
                .fold(0, u64::wrapping_add)
        })
    }
}

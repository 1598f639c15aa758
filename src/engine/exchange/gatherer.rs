//! A producer's end of the hand-over for batches: as many items at once as the rule says, and results
//! out.

use std::time::Duration;

use super::{Exchange, Intake, Taker};
use crate::batch::{Batch, Decision, More};
use crate::engine::outbox::Outcome;
use crate::sync::atomic::Ordering;
use crate::sync::{lock, now};

/// A producer's end. Batches come straight out of the intake: what is in one is worked on together, so
/// there is nothing that a neighbour could take back.
#[derive(Debug)]
pub(crate) struct Gatherer<'a, I, T> {
    taker: Taker<'a, I, T>,
    batch: Batch,
}

/// Items that are worked on together, in the order of the input.
#[derive(Debug)]
pub(crate) struct Gathered<I> {
    pub(crate) items: Vec<u64>,
    pub(crate) inputs: Vec<I>,
}

/// What a producer that looks for a batch does next.
enum Step<I> {
    Work(Gathered<I>),
    Wait,
    WaitFor(Duration),
    Over,
}

impl<'a, I, T> Gatherer<'a, I, T> {
    pub(crate) fn new(taker: Taker<'a, I, T>, batch: Batch) -> Self {
        Gatherer { taker, batch }
    }

    /// Delivers a result.
    pub(crate) fn deliver(&mut self, seq: u64, result: Outcome<T>) {
        self.taker.deliver(seq, result);
    }

    /// Waits for a batch, which is never empty. `None` when there will be none for this producer.
    pub(crate) fn next(&mut self) -> Option<Gathered<I>> {
        loop {
            match self.look() {
                Step::Work(gathered) => return Some(gathered),
                Step::Over => return None,
                // Whoever sleeps without a limit has to see that an item came meanwhile whose batch has
                // one: nobody else may be there to keep it.
                Step::Wait => self
                    .taker
                    .exchange()
                    .idle
                    .wait_unless(|| self.is_over_or(|decision| decision != Decision::Wait)),
                Step::WaitFor(most) => {
                    let is_full = |decision| matches!(decision, Decision::Take(_));
                    self.taker.exchange().idle.wait_at_most(most, || self.is_over_or(is_full));
                }
            }
        }
    }

    fn look(&self) -> Step<I> {
        let exchange = self.taker.exchange();
        let mut intake = lock(&exchange.intake);
        // Under the lock: who drains an aborted run takes the items out, and leaves their number.
        if exchange.is_aborted() {
            return Step::Over;
        }
        let (here, decision) = exchange.decide(self.batch, &mut intake);
        match decision {
            Decision::Take(count) => {
                let gathered = intake.gather(count);
                drop(intake);
                // Whoever takes from several leaves the rest to a neighbour that may be asleep.
                if here > count {
                    exchange.idle.notify();
                }
                Step::Work(gathered)
            }
            Decision::Wait => {
                drop(intake);
                self.ran_dry();
                Step::Wait
            }
            Decision::WaitFor(most) => {
                drop(intake);
                self.ran_dry();
                Step::WaitFor(most)
            }
        }
    }

    fn ran_dry(&self) {
        let exchange = self.taker.exchange();
        if exchange.starving.load(Ordering::Relaxed) {
            exchange.dry.store(true, Ordering::Relaxed);
        }
        self.taker.flush();
    }

    fn is_over_or(&self, wanted: impl FnOnce(Decision) -> bool) -> bool {
        let exchange = self.taker.exchange();
        let mut intake = lock(&exchange.intake);
        exchange.is_aborted() || wanted(exchange.decide(self.batch, &mut intake).1)
    }
}

impl<I, T> Exchange<I, T> {
    /// How many items wait, and what a free producer does.
    fn decide(&self, batch: Batch, intake: &mut Intake<I>) -> (usize, Decision) {
        let (here, more) = self.look_at(intake);
        let waited = match batch.is_timed() && here > 0 {
            true => now().saturating_duration_since(intake.oldest()),
            false => Duration::ZERO,
        };
        (here, batch.decide(here, waited, more))
    }

    /// Whether more can come to what is here. The two are read as of one moment: else the feeder could
    /// push the rest of a batch in between, and what was here would pass for all there is.
    fn look_at(&self, intake: &Intake<I>) -> (usize, More) {
        loop {
            let here = self.here(intake);
            let more = self.more();
            if self.here(intake) == here {
                return (here, more);
            }
        }
    }

    /// How many items wait. The rings alone do not say, since a batch may reach over several.
    fn here(&self, intake: &Intake<I>) -> usize {
        (self.pushed.load(Ordering::Acquire) - intake.next) as usize
    }

    fn more(&self) -> More {
        let starves = self.starving.load(Ordering::Acquire);
        if self.is_halted() || self.total().is_some() || starves {
            More::Never
        } else {
            More::MayCome
        }
    }
}

impl<I> Intake<I> {
    /// When the first of the items that wait was pushed; there is one.
    fn oldest(&mut self) -> std::time::Instant {
        let stamps = self.stamps.as_mut().expect("items of timed batches are stamped");
        *self.oldest.get_or_insert_with(|| stamps.pop().expect("each item has a stamp"))
    }

    /// Takes out the first `count`, which are here.
    fn gather(&mut self, count: usize) -> Gathered<I> {
        let items = (self.next..self.next + count as u64).collect();
        self.next += count as u64;
        let inputs = (0..count).map(|_| self.items.pop().expect("so many items were pushed"));
        let gathered = Gathered { items, inputs: inputs.collect() };
        if let Some(stamps) = &mut self.stamps {
            let seen = usize::from(self.oldest.take().is_some());
            (seen..count).for_each(|_| _ = stamps.pop().expect("each item has a stamp"));
        }
        gathered
    }
}

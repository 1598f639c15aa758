//! The thread between two stages of a pipeline.

use std::sync::Arc;

use super::call::drop_quietly;
use super::collector::Collector;
use super::consumer::{AbortAtEnd, Failure, Taken};
use super::exchange::Feeder;
use super::run::Run;
use super::source::{Unfit, measure_and_push};
use super::window::Window;
use crate::error::Error;
use crate::order::Order;
use crate::runner::Runner;
use crate::sync::now;

/// Hands the results of one run on as the items of another: the consumer of the first, and the feeder
/// of the second. It calls no hook; what measures items is called here for those of the second run.
///
/// A credit of the second is taken before a result of the first, as a feeder takes it before it asks
/// its input; so what the relay holds is within the window of either.
pub(crate) struct Relay<A: Runner, B: Runner<Input = A::Output>> {
    from: Arc<Run<A>>,
    order: Order,
    window: Window,
    to: Arc<Run<B>>,
}

/// What a relay has done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Relayed {
    /// What it took out of the first run.
    pub(crate) taken: Taken,
    /// What it gave to the second.
    pub(crate) given: Given,
}

/// What the feeder of a run gave out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Given {
    pub(crate) items: u64,
    pub(crate) unread: Option<u64>,
    /// Where in the order the failure of an earlier stage went in. No item of this one is there.
    pub(crate) passed_on: Option<u64>,
}

/// Why a relay has no more to hand on.
enum Ended {
    /// All that its first run made was handed on.
    Complete,
    /// Nobody wants more.
    Unwanted,
    Failed(Failure, Box<Error>),
    /// The second run cannot take what the first made.
    Unfit(Unfit),
}

impl<A: Runner, B: Runner<Input = A::Output>> Relay<A, B> {
    pub(crate) fn new(from: Arc<Run<A>>, order: Order, window: Window, to: Arc<Run<B>>) -> Self {
        Relay { from, order, window, to }
    }

    /// Hands everything on, and ends both: the first run altogether, the input of the second.
    pub(crate) fn run(self) -> Relayed {
        let over = AbortAtEnd(&*self.from);
        // Dropped by a bug of ours only: the second run would wait for its input to end.
        let bug = AbortAtEnd(&*self.to);
        let mut collector = Collector::new(&self.from.exchange, self.order, self.window, now());
        let mut feeder = Feeder::new(&self.to.exchange);
        let (items, ended) = self.hand_on(&mut collector, &mut feeder);
        let relayed = self.end(&mut feeder, items, ended);
        std::mem::forget(bug);
        drop(over);
        collector.leave(&self.from.exchange).into_iter().for_each(drop_quietly);
        relayed
    }

    /// How many results were handed on, and why no more were.
    fn hand_on(
        &self,
        collector: &mut Collector<A::Output>,
        feeder: &mut Feeder<B::Input, B::Output>,
    ) -> (u64, Ended) {
        let (from, to) = (&*self.from, &*self.to);
        let mut total = None;
        let mut items = 0;
        while self.take_credit(collector, feeder) {
            let Some((seq, outcome)) = from.next_result(collector, &mut total) else {
                let is_complete = total == Some(collector.consumed());
                return (items, if is_complete { Ended::Complete } else { Ended::Unwanted });
            };
            let output = match outcome {
                Ok(output) => output,
                Err(error) => {
                    let failure = Failure { seq, items: error.failed_items() };
                    return (items, Ended::Failed(failure, error));
                }
            };
            match to.measures.as_deref() {
                None => feeder.push(&to.exchange, output),
                Some(measures) => {
                    if let Err(unfit) = measure_and_push(to, feeder, measures, output) {
                        return (items, Ended::Unfit(unfit));
                    }
                }
            }
            items += 1;
            collector.done(&from.exchange);
        }
        (items, Ended::Unwanted)
    }

    /// Waits for room in the second run. What the first is owed goes back before, or its producers
    /// would wait with this thread.
    fn take_credit(
        &self,
        collector: &mut Collector<A::Output>,
        feeder: &mut Feeder<B::Input, B::Output>,
    ) -> bool {
        if feeder.spend(&self.to.exchange) {
            return true;
        }
        collector.repay(&self.from.exchange);
        feeder.wait_for_credit(&self.to.exchange) && feeder.spend(&self.to.exchange)
    }

    /// Ends the input of the second run. A failure takes the place that its item would have had there.
    fn end(&self, feeder: &mut Feeder<B::Input, B::Output>, items: u64, ended: Ended) -> Relayed {
        let mut taken = Taken { ok: items, failure: None };
        let mut given = Given { items, unread: None, passed_on: None };
        let failed = match ended {
            Ended::Complete => {
                given.unread = Some(0);
                None
            }
            Ended::Unwanted => None,
            Ended::Failed(failure, error) => {
                taken.failure = Some(failure);
                given.passed_on = Some(items);
                Some(error)
            }
            Ended::Unfit(unfit) => {
                taken.ok += 1;
                given.items += 1;
                Some(Box::new(unfit.into_error(items)))
            }
        };
        let places = items + u64::from(failed.is_some());
        if let Some(error) = failed {
            self.to.fail(items);
            feeder.deliver(&self.to.exchange, items, Err(error));
        }
        feeder.clear(&self.to.exchange);
        self.to.exchange.end(places);
        Relayed { taken, given }
    }
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::closures::map;
    use crate::runner::RunControl;

    fn run_of<R: Runner>(_: &R, upstream: Option<Arc<dyn RunControl>>) -> Arc<Run<R>> {
        Arc::new(Run::new(Order::Input, 1, 4, None, None, upstream))
    }

    /// That the later run has a feeder already is a bug, and stands for any other.
    #[test]
    fn a_bug_of_ours_ends_both_runs_and_is_not_hidden() {
        let runner = map(|_| Ok(()), |_, (), x: u64| Ok(x));
        let from = run_of(&runner, None);
        let to = run_of(&runner, Some(from.clone()));
        let _feeder = Feeder::new(&to.exchange);
        let relay = Relay::new(from.clone(), Order::Input, Window::fixed(4), to.clone());
        assert!(catch_unwind(AssertUnwindSafe(|| relay.run())).is_err());
        assert!(from.is_stopped());

        let mut collector = Collector::new(&to.exchange, Order::Input, Window::fixed(4), now());
        let next = catch_unwind(AssertUnwindSafe(|| to.next_result(&mut collector, &mut None)));
        let message = next.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("another thread died of a bug"), "{message}");
    }
}

//! What a producer does with a batch: the hook, and the search for the item that it failed at.

use super::call::{call, drop_quietly};
use super::exchange::{Gathered, Gatherer, Taker};
use super::producer::{Producer, site};
use super::run::Run;
use crate::batch::Batch;
use crate::error::{Error, Hook, OutputCount, Result};
use crate::runner::{ProducerContext, Runner};

/// Why a batch has no outputs.
struct Failure<I> {
    error: Error,
    /// All of its inputs, if the hook left them where they were.
    inputs: Option<Vec<I>>,
}

/// The outcomes of a batch, one for each input.
type Outputs<R> = Vec<Result<<R as Runner>::Output>>;

/// Whether the producer goes on with the run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Next {
    Batch,
    /// It failed an item in a way that it cannot go on from, and what else it has is not wanted.
    Leave,
}

impl<R: Runner> Producer<R> {
    pub(super) fn work_on_batches(&mut self, run: &Run<R>, batch: Batch) {
        let mut gatherer = Gatherer::new(Taker::new(&run.exchange, self.station.worker), batch);
        while let Some(gathered) = gatherer.next() {
            if self.work_on_batch(run, &mut gatherer, gathered) == Next::Leave {
                return;
            }
        }
    }

    /// Works on a batch until each of its items has a result. One that fails with its inputs still
    /// whole is split in two: the halves of the earlier items come first, so that, of several guilty
    /// items, the first in order is found whatever comes of the rest.
    fn work_on_batch(
        &mut self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        whole: Gathered<R::Input>,
    ) -> Next {
        let mut parts = vec![whole];
        while let Some(Gathered { mut items, inputs }) = parts.pop() {
            if run.wanted.gave_up_on(items.first().copied()) {
                inputs.into_iter().for_each(drop_quietly);
                continue;
            }
            match self.call_batch(run, &items, inputs) {
                Ok(outputs) => self.deliver_batch(run, gatherer, &items, outputs),
                Err(Failure { error, inputs: Some(inputs) })
                    if run.wanted.gave_up_on(items.first().copied()) =>
                {
                    // Nobody waits for these any more, nor for a state to be made anew.
                    drop_quietly(error);
                    inputs.into_iter().for_each(drop_quietly);
                }
                Err(Failure { error, inputs: Some(mut inputs) })
                    if items.len() > 1 && self.can_try_again(run) =>
                {
                    drop_quietly(error);
                    let half = items.len() / 2;
                    let later =
                        Gathered { items: items.split_off(half), inputs: inputs.split_off(half) };
                    parts.extend([later, Gathered { items, inputs }]);
                }
                Err(Failure { error, inputs }) => {
                    inputs.into_iter().flatten().for_each(drop_quietly);
                    fail_batch(run, gatherer, &items, error);
                }
            }
            if self.state.is_none() {
                // A panic whose item is known fails the run. The state is made anew for the next.
                parts.into_iter().flat_map(|part| part.inputs).for_each(drop_quietly);
                return Next::Leave;
            }
        }
        Next::Batch
    }

    /// Whether there is a state, or another in its place. When `producer_init` fails too, what the batch
    /// failed with stands; the next run makes the state anew, and tells what that fails with.
    fn can_try_again(&mut self, run: &Run<R>) -> bool {
        self.prepare(&run.wanted).map_err(drop_quietly).is_ok()
    }

    fn call_batch(
        &mut self,
        run: &Run<R>,
        items: &[u64],
        mut inputs: Vec<R::Input>,
    ) -> Result<Outputs<R>, Failure<R::Input>> {
        let hook = Hook::ProducerWorkBatch;
        let site = || site(&self.station, items, Some(1));
        let cx = ProducerContext::new(&self.station, &run.wanted, items);
        let state = self.state.as_mut().expect("a producer has a state when it takes a batch");
        let outcome = call(hook, site, || self.runner.producer_work_batch(&cx, state, &mut inputs));
        let error = match outcome {
            Ok(outputs) if outputs.len() == items.len() => {
                inputs.into_iter().for_each(drop_quietly);
                return Ok(outputs);
            }
            Ok(outputs) => {
                let count = OutputCount { inputs: items.len(), outputs: outputs.len() };
                outputs.into_iter().for_each(drop_quietly);
                Error::HookFailed { hook, site: Box::new(site()), source: Box::new(count) }
            }
            Err(error) => {
                if error.is_panic() {
                    self.lose_state();
                }
                *error
            }
        };
        if inputs.len() == items.len() {
            return Err(Failure { error, inputs: Some(inputs) });
        }
        inputs.into_iter().for_each(drop_quietly);
        Err(Failure { error, inputs: None })
    }

    fn deliver_batch(
        &self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        items: &[u64],
        outputs: Outputs<R>,
    ) {
        for (&item, output) in items.iter().zip(outputs) {
            let outcome = output.map_err(|source| {
                let site = Box::new(site(&self.station, &[item], Some(1)));
                Box::new(Error::HookFailed { hook: Hook::ProducerWorkBatch, site, source })
            });
            if outcome.is_ok() || run.fail_if_wanted(item) {
                gatherer.deliver(item, outcome);
            } else {
                drop_quietly(outcome);
            }
        }
    }
}

/// The items fail together: the error takes the place of the first, and ends the run.
fn fail_batch<R: Runner>(
    run: &Run<R>,
    gatherer: &mut Gatherer<'_, R::Input, R::Output>,
    items: &[u64],
    error: Error,
) {
    let first = *items.first().expect("a batch is never empty");
    if run.fail_if_wanted(first) {
        gatherer.deliver(first, Err(Box::new(error)));
    } else {
        drop_quietly(error);
    }
}

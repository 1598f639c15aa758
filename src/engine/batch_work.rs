//! What a producer does with a batch: the hook, and what comes of one that fails.

use super::call::{call, catch, drop_quietly};
use super::exchange::{Gathered, Gatherer, Taker};
use super::fault::{Fate, Fault};
use super::producer::{Producer, site};
use super::run::Run;
use crate::batch::{Batching, Limits, Load};
use crate::error::{Error, Hook, OutputCount, Result};
use crate::out_of_memory::is_out_of_memory;
use crate::policy::Verdict;
use crate::runner::{ProducerContext, Runner};

/// The outcomes of a batch, one for each input.
type Outputs<R> = Vec<Result<<R as Runner>::Output>>;

/// Part of a batch that is still to be worked on.
struct Part<I> {
    gathered: Gathered<I>,
    cut: Cut,
}

/// Why a part is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Cut {
    /// It is the whole, or holds a guilty item, or another does that was with it.
    Blame,
    /// There was no memory for more.
    Memory,
}

impl<R: Runner> Producer<R> {
    pub(super) fn work_on_batches(&mut self, run: &Run<R>, batching: Batching) {
        let mut gatherer = Gatherer::new(Taker::new(&run.exchange, self.station.worker), batching);
        gatherer.keep_below(&self.ceiling);
        while let Some(gathered) = gatherer.next() {
            if run.wanted.gave_up_on(gathered.items.first().copied()) {
                drop_inputs(gathered);
                continue;
            }
            self.work_on_batch(run, &mut gatherer, gathered);
            if self.state.is_none() && self.may_leave(run, &gatherer) {
                return;
            }
            gatherer.keep_below(&self.ceiling);
        }
    }

    /// Whether a producer that has lost its state is of no more use to a run that has failed. Where errors
    /// are skipped over the run goes on, and so does the producer, with a state for its next batch.
    ///
    /// Where items of like sizes go together, some that come before the one that cost it its state may
    /// still wait, and are wanted. One that cannot make its state anew leaves them to the others, and only
    /// the last of all has them fail.
    fn may_leave(&mut self, run: &Run<R>, gatherer: &Gatherer<'_, R::Input, R::Output>) -> bool {
        run.wanted.gave_up_on(Some(gatherer.first()))
            || run.wanted.has_end()
                && self.prepare(&run.wanted).map_err(drop_quietly).is_err()
                && run.exchange.may_leave()
    }

    /// Works on a batch until each of its items has a result. One that fails with its inputs still
    /// whole is split in two: the halves of the earlier items come first, so that, of several guilty
    /// items, the first in order is found whatever comes of the rest.
    fn work_on_batch(
        &mut self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        whole: Gathered<R::Input>,
    ) {
        let limits = gatherer.limits();
        let mut parts = vec![Part { gathered: whole, cut: Cut::Blame }];
        while let Some(mut part) = self.next_part(limits, &mut parts) {
            if run.wanted.gave_up_on(part.items.first().copied()) {
                drop_inputs(part);
                continue;
            }
            // After a panic, for as long as anything is wanted: items of like sizes go together, so some
            // that come before the one that failed may still wait, and nobody else be there.
            if let Err(error) = self.prepare(&run.wanted) {
                let first = part.items[0];
                if let Some(fault) = run.end_with(first, error) {
                    gatherer.deliver(first, Err(fault));
                }
                drop_inputs(part);
                continue;
            }
            let extent = limits.extent(Load::of(part.sizes()));
            let mut copies: Vec<_> =
                part.inputs.iter().map(|input| run.terms.copy_of(input)).collect();
            match self.call_batch(run, &mut part) {
                Ok(outputs) => {
                    self.learn(|ceiling| ceiling.went_well(extent));
                    self.deliver_batch(run, gatherer, &part, outputs, &mut copies);
                    drop_inputs(part);
                }
                Err(error) => {
                    // The texts and causes are the user's code too.
                    let wants_memory = catch(|| is_out_of_memory(&error)).unwrap_or(false);
                    if wants_memory {
                        self.learn(|ceiling| ceiling.fell_short(extent));
                    }
                    if self.can_split(run, &part) {
                        drop_quietly(error);
                        let cut = match wants_memory && self.is_too_much(limits, &part) {
                            true => Cut::Memory,
                            false => Cut::Blame,
                        };
                        split(part, cut, &mut parts);
                    } else {
                        self.fail_batch(run, gatherer, &part.items, error, &mut copies);
                        drop_inputs(part);
                    }
                }
            }
            copies.into_iter().flatten().for_each(drop_quietly);
        }
    }

    /// What is worked on next: no more than the device has memory for, as far as that is known.
    fn next_part(
        &self,
        limits: Limits,
        parts: &mut Vec<Part<R::Input>>,
    ) -> Option<Gathered<R::Input>> {
        let Part { mut gathered, .. } = parts.pop()?;
        let count = self.fitting(limits, &gathered);
        if count < gathered.items.len() {
            let rest = gathered.split_off(count);
            parts.push(Part { gathered: rest, cut: Cut::Memory });
        }
        Some(gathered)
    }

    /// How many of the first items the device has memory for, as far as that is known.
    fn fitting(&self, limits: Limits, part: &Gathered<R::Input>) -> usize {
        let Some(extent) = self.ceiling.extent() else { return part.items.len() };
        limits.below(extent).prefix(part.sizes()).0
    }

    /// Whether what was learnt of the memory has a part tried in smaller ones. Not where its items cost
    /// nothing, or next to it: they would be tried together for ever.
    fn is_too_much(&self, limits: Limits, part: &Gathered<R::Input>) -> bool {
        self.fitting(limits, part) < part.items.len()
    }

    /// Whether a part that failed is tried again in smaller ones. When `producer_init` fails too, what
    /// the batch failed with stands; the next run makes the state anew, and tells what that fails with.
    fn can_split(&mut self, run: &Run<R>, part: &Gathered<R::Input>) -> bool {
        let is_whole = part.inputs.len() == part.items.len();
        is_whole
            && part.items.len() > 1
            // Nobody waits for these any more, nor for a state to be made anew.
            && !run.wanted.gave_up_on(part.items.first().copied())
            && self.prepare(&run.wanted).map_err(drop_quietly).is_ok()
    }

    /// Calls the hook, which may leave the inputs of a batch that it fails at where they were.
    fn call_batch(
        &mut self,
        run: &Run<R>,
        part: &mut Gathered<R::Input>,
    ) -> Result<Outputs<R>, Error> {
        let hook = Hook::ProducerWorkBatch;
        let Gathered { items, inputs, attempt, .. } = part;
        let site = || site(&self.station, items, Some(*attempt));
        let cx = ProducerContext::new(&self.station, &run.wanted, items).with_attempt(*attempt);
        let state = self.state.as_mut().expect("a producer has a state when it takes a batch");
        match call(hook, site, || self.runner.producer_work_batch(&cx, state, inputs)) {
            Ok(outputs) if outputs.len() == items.len() => Ok(outputs),
            Ok(outputs) => {
                let count = OutputCount { inputs: items.len(), outputs: outputs.len() };
                outputs.into_iter().for_each(drop_quietly);
                Err(Error::HookFailed { hook, site: Box::new(site()), source: Box::new(count) })
            }
            Err(error) => {
                if error.is_panic() {
                    self.lose_state();
                }
                Err(*error)
            }
        }
    }

    fn deliver_batch(
        &self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        part: &Gathered<R::Input>,
        outputs: Outputs<R>,
        copies: &mut [Option<R::Input>],
    ) {
        for ((&item, output), copy) in part.items.iter().zip(outputs).zip(copies) {
            match output {
                Ok(output) => gatherer.deliver(item, Ok(output)),
                Err(source) => {
                    let site = Box::new(site(&self.station, &[item], Some(part.attempt)));
                    let error = Error::HookFailed { hook: Hook::ProducerWorkBatch, site, source };
                    let copy = copy.take().map(|copy| (self.station.worker, copy));
                    if let Some(fault) = run.judge(item, error, copy) {
                        gatherer.deliver(item, Err(fault));
                    }
                }
            }
        }
    }

    /// The items fail together, unless each is tried again by itself. The error takes the place of the
    /// first. Where it ends the run, that is all; where items are left out, each of the others has to be.
    fn fail_batch(
        &self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        items: &[u64],
        error: Error,
        copies: &mut [Option<R::Input>],
    ) {
        let (&first, others) = items.split_first().expect("a batch is never empty");
        if run.wanted.gave_up_on(Some(first)) {
            drop_quietly(error);
            return;
        }
        let verdict = run.verdict(&error);
        if verdict == Verdict::Retry && copies.iter().all(Option::is_some) {
            for (&item, copy) in items.iter().zip(copies) {
                let copy = copy.take().expect("all are there");
                run.retry(item, &error, self.station.worker, copy);
            }
            drop_quietly(error);
            return;
        }
        let Some(fault) = run.settle(first, error, verdict) else { return };
        let fate = fault.fate;
        gatherer.deliver(first, Err(fault));
        if fate == Fate::End {
            return;
        }
        for &item in others.iter().filter(|&&item| !run.wanted.gave_up_on(Some(item))) {
            let error = Error::FailedTogether { item, first };
            gatherer.deliver(item, Err(Fault::skipped(error)));
        }
    }
}

/// Has both halves of a part tried, or, where memory lacks, as much as there is memory for at a time.
fn split<I>(mut part: Gathered<I>, cut: Cut, parts: &mut Vec<Part<I>>) {
    match cut {
        Cut::Blame => {
            let later = part.split_off(part.items.len() / 2);
            parts.push(Part { gathered: later, cut });
        }
        // Back together with what was cut off it: the next cut is another.
        Cut::Memory => {
            if let Some(rest) = parts.pop_if(|rest| rest.cut == Cut::Memory) {
                part.append(rest.gathered);
            }
        }
    }
    parts.push(Part { gathered: part, cut });
}

fn drop_inputs<I>(gathered: Gathered<I>) {
    gathered.inputs.into_iter().for_each(drop_quietly);
}

//! What a producer does with a batch: the hook, and what comes of one that fails.

use std::time::Instant;

use super::call::{call, catch, drop_quietly};
use super::chronicle::Pen;
use super::exchange::{Gathered, Gatherer, Taker, take_those};
use super::losses::in_vain;
use super::post::{Call, Post};
use super::producer::{Goes, Producer, site};
use super::run::Run;
use crate::batch::{Batching, Limits, Load};
use crate::error::{Error, Hook, OutputCount, Result};
use crate::out_of_memory::is_out_of_memory;
use crate::runner::{ProducerContext, Runner};
use crate::sync::now;

/// The outcomes of a batch, one for each input.
type Outputs<R> = Vec<Result<<R as Runner>::Output>>;

/// Copies of inputs, where they can be tried again.
type Copies<R> = Vec<Option<<R as Runner>::Input>>;

/// What came of a call, and the copies that were kept of its inputs.
type Called<R> = (Result<Outputs<R>, Error>, Copies<R>);

/// What is still to be worked on of a batch: the last first.
type Parts<R> = Vec<Part<<R as Runner>::Input>>;

/// Part of a batch that is still to be worked on.
#[derive(Debug)]
pub(crate) struct Part<I> {
    pub(super) gathered: Gathered<I>,
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

/// A part that failed.
struct Failed<R: Runner> {
    part: Gathered<R::Input>,
    /// What it came to, in the terms of the limits.
    extent: u64,
    error: Error,
    copies: Copies<R>,
}

/// What there is of a part.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Remains {
    Something,
    Nothing,
}

/// A part whose producer had no state.
enum Prepared<I> {
    Ready(Gathered<I>),
    /// With what `producer_init` failed with, if it was called.
    Failed(Gathered<I>, Option<Error>),
    /// Whoever wrote the producer off has it, and the rest of the batch.
    Left,
}

impl<R: Runner> Producer<R> {
    pub(super) fn work_on_batches(&mut self, run: &Run<R>, batching: Batching) -> Goes {
        let mut gatherer =
            Gatherer::new(Taker::new(&run.exchange, self.station.producer), batching);
        let mut pen = run.chronicle.pen(self.station.producer);
        gatherer.keep_below(&self.ceiling);
        // Also without a state, and in a run that has failed: what comes before may be on the shelf, or fail on
        // another producer and wait for this one. A state is made anew for that, and for nothing else.
        while let Some(gathered) = gatherer.next() {
            if run.wanted.gave_up_on(gathered.items.first().copied()) {
                drop_inputs(gathered);
                continue;
            }
            let goes = self.work_on_batch(run, &mut gatherer, gathered, &mut pen);
            if goes != Goes::On {
                return goes;
            }
            gatherer.keep_below(&self.ceiling);
        }
        Goes::On
    }

    /// Works on a batch until each of its items has a result. One that fails with its inputs still
    /// whole is split in two: the halves of the earlier items come first, so that, of several guilty
    /// items, the first in order is found whatever comes of the rest.
    fn work_on_batch(
        &mut self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        whole: Gathered<R::Input>,
        pen: &mut Option<Pen>,
    ) -> Goes {
        let limits = gatherer.limits();
        let mut parts = vec![Part { gathered: whole, cut: Cut::Blame }];
        while let Some(mut part) = self.next_part(limits, &mut parts) {
            if run.wanted.gave_up_on(part.items.first().copied()) {
                drop_inputs(part);
                continue;
            }
            if self.drop_won(run, &mut part, &mut vec![]) == Remains::Nothing {
                continue;
            }
            match self.prepare_for_part(run, part, &mut parts) {
                Prepared::Ready(ready) => part = ready,
                Prepared::Failed(gathered, error) => {
                    parts.push(Part { gathered, cut: Cut::Memory });
                    let error = error.expect("nothing else fails");
                    return self.go_away(run, gatherer, parts, error);
                }
                Prepared::Left => return Goes::Left,
            }
            let extent = limits.extent(Load::of(part.sizes()));
            let copies = part.inputs.iter().map(|input| run.terms.copy_of(input)).collect();
            begin(run, pen, &part);
            let since = run.exchange.copies_stragglers().then(now);
            let Some((outcome, copies)) =
                self.call_in_time(run, &mut part, (copies, &mut parts), since)
            else {
                drop_inputs(part);
                return Goes::Left;
            };
            if let Some(pen) = pen {
                pen.finished_all(&part.items);
            }
            let goes = match outcome {
                Ok(outputs) => {
                    self.learn(|ceiling| ceiling.went_well(extent));
                    self.deliver_batch(run, gatherer, &part, (outputs, copies), since);
                    drop_inputs(part);
                    Goes::On
                }
                Err(error) => {
                    let failed = Failed { part, extent, error, copies };
                    self.split_or_fail(run, gatherer, failed, &mut parts)
                }
            };
            if goes != Goes::On {
                return goes;
            }
        }
        Goes::On
    }

    /// What comes of a part that failed: it is tried again in smaller ones, if it is whole, or fails.
    fn split_or_fail(
        &mut self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        failed: Failed<R>,
        parts: &mut Parts<R>,
    ) -> Goes {
        let Failed { mut part, extent, error, mut copies } = failed;
        // The texts and causes are the user's code too.
        let wants_memory = catch(|| is_out_of_memory(&error)).unwrap_or(false);
        if wants_memory {
            self.learn(|ceiling| ceiling.fell_short(extent));
        }
        // Also if one is left of it, for which the others may be to blame.
        let is_split = part.is_whole() && part.items.len() > 1;
        // It may have failed because it saw that.
        if part.is_whole() && self.drop_won(run, &mut part, &mut copies) == Remains::Nothing {
            drop_quietly(error);
            return Goes::On;
        }
        let prepared = match is_split {
            true => self.prepare_to_split(run, part, parts),
            false => Prepared::Failed(part, None),
        };
        match prepared {
            Prepared::Ready(part) => {
                drop_quietly(error);
                copies.into_iter().for_each(drop_quietly);
                let cut = match wants_memory && self.is_too_much(gatherer.limits(), &part) {
                    true => Cut::Memory,
                    false => Cut::Blame,
                };
                split(part, cut, parts);
                Goes::On
            }
            Prepared::Failed(part, why) => {
                drop_quietly(why);
                self.fail_batch(run, gatherer, &part, error, copies);
                drop_inputs(part);
                Goes::On
            }
            Prepared::Left => {
                drop_quietly(error);
                copies.into_iter().for_each(drop_quietly);
                Goes::Left
            }
        }
    }

    /// Drops those items of a part, and the copies of them, that other producers were done with first.
    fn drop_won(
        &self,
        run: &Run<R>,
        part: &mut Gathered<R::Input>,
        copies: &mut Copies<R>,
    ) -> Remains {
        if run.exchange.has_races() {
            let won: Vec<_> = part.items.iter().map(|&item| run.exchange.is_won(item)).collect();
            take_those(copies, &won).into_iter().for_each(drop_quietly);
            for (item, input) in part.take_out(&won) {
                run.leave_won_race(item, self.station.producer, input);
            }
        }
        match part.items.is_empty() {
            true => Remains::Nothing,
            false => Remains::Something,
        }
    }

    /// A producer that cannot make its state anew leaves what it has to others, and only the last of all has
    /// that fail. Unless nobody waits for any of it: then it may have given up because it saw that.
    fn go_away(
        &self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        parts: Vec<Part<R::Input>>,
        error: Error,
    ) -> Goes {
        let mut parts = parts.into_iter().rev().map(|part| part.gathered).peekable();
        let first = parts.peek().and_then(|part| part.items.first().copied());
        if run.wanted.gave_up_on(first) {
            drop_quietly(error);
            parts.for_each(drop_inputs);
            return Goes::On;
        }
        match run.lose(self.station.producer, error) {
            Ok(()) => {
                parts.for_each(|part| hand_on(run, part));
                Goes::Away
            }
            // What waits and comes before is wanted, and nobody else may be there to have it fail.
            Err(error) => {
                let mut error = Some(error);
                for part in parts {
                    let first = part.items[0];
                    // It may have been delivered by another.
                    if run.exchange.is_raced(first) {
                        error.take().into_iter().for_each(|error| run.end_as(error));
                    }
                    let fault = error.take().and_then(|error| run.end_with(first, error));
                    fault.into_iter().for_each(|fault| gatherer.deliver(first, Err(fault)));
                    drop_inputs(part);
                }
                Goes::On
            }
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

    /// Makes ready for trying a part that failed again in smaller ones, if anybody waits for it. When `producer_init`
    /// fails too, what the batch failed with stands; the next run makes the state anew, and tells what that
    /// fails with.
    fn prepare_to_split(
        &mut self,
        run: &Run<R>,
        part: Gathered<R::Input>,
        parts: &mut Parts<R>,
    ) -> Prepared<R::Input> {
        // Nobody waits for these any more, nor for a state to be made anew.
        let is_unwanted = run.wanted.gave_up_on(part.items.first().copied());
        match is_unwanted {
            true => Prepared::Failed(part, None),
            false => self.prepare_for_part(run, part, parts),
        }
    }

    /// As [`call_batch`](Producer::call_batch), within the limit on that. `None` when the producer was left
    /// behind.
    fn call_in_time(
        &mut self,
        run: &Run<R>,
        part: &mut Gathered<R::Input>,
        (copies, parts): (Copies<R>, &mut Parts<R>),
        since: Option<Instant>,
    ) -> Option<Called<R>> {
        let (items, trial) = (part.items.clone(), part.trial.clone());
        let sizes = since.map_or(vec![], |_| part.measured_sizes().to_vec());
        let describe = |(copies, rest)| {
            let call = Call::new(Hook::ProducerWorkBatch, items, copies);
            Call { sizes, trial, since, rest, ..call }
        };
        let unpack = |call: Call<R::Input>| (call.copies, call.rest);
        let producer = self.station.producer;
        let held = (copies, std::mem::take(parts));
        let call = || match part.items.iter().all(|&item| run.exchange.is_won(item)) {
            // Who won before the call had begun could not tell it so.
            true => Err(*in_vain()),
            false => self.call_batch(run, part),
        };
        match run.in_time(producer, held, describe, unpack, call) {
            Ok((outcome, (copies, rest))) => {
                *parts = rest;
                Some((outcome, copies))
            }
            Err(Ok(outputs)) => {
                outputs.into_iter().for_each(drop_quietly);
                None
            }
            Err(Err(error)) => {
                drop_quietly(error);
                None
            }
        }
    }

    /// Makes the state anew that a part needs, if it was lost.
    fn prepare_for_part(
        &mut self,
        run: &Run<R>,
        mut part: Gathered<R::Input>,
        parts: &mut Parts<R>,
    ) -> Prepared<R::Input> {
        if self.state.is_some() {
            return Prepared::Ready(part);
        }
        let (items, trial) = (part.items.clone(), part.trial.clone());
        let held = (std::mem::take(&mut part.inputs), std::mem::take(parts));
        let describe = |(inputs, rest): (Vec<R::Input>, _)| {
            let copies = inputs.into_iter().map(Some).collect();
            Call { trial, rest, ..Call::new(Hook::ProducerInit, items, copies) }
        };
        let unpack =
            |call: Call<R::Input>| (call.copies.into_iter().flatten().collect(), call.rest);
        let producer = self.station.producer;
        let prepare = || self.prepare(run);
        let (outcome, (inputs, rest)) = match run.in_time(producer, held, describe, unpack, prepare)
        {
            Ok(prepared) => prepared,
            Err(outcome) => {
                drop_quietly(outcome);
                return Prepared::Left;
            }
        };
        (part.inputs, *parts) = (inputs, rest);
        self.tell_if_ready(run);
        match outcome {
            Ok(()) => Prepared::Ready(part),
            Err(error) => Prepared::Failed(part, Some(error)),
        }
    }

    /// Calls the hook, which may leave the inputs of a batch that it fails at where they were.
    fn call_batch(
        &mut self,
        run: &Run<R>,
        part: &mut Gathered<R::Input>,
    ) -> Result<Outputs<R>, Error> {
        let hook = Hook::ProducerWorkBatch;
        let attempt = part.attempt();
        let Gathered { items, inputs, .. } = part;
        let site = || site(&self.station, items, Some(attempt));
        let cx = ProducerContext::new(&self.station, &run.wanted, items)
            .with_attempt(attempt)
            .with_leave(run.post(self.station.producer).map(Post::leave));
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
        (outputs, copies): (Outputs<R>, Copies<R>),
        mut since: Option<Instant>,
    ) {
        let producer = self.station.producer;
        for ((&item, output), copy) in part.items.iter().zip(outputs).zip(copies) {
            let came = output.map_err(|source| {
                let site = Box::new(site(&self.station, &[item], Some(part.attempt())));
                Box::new(Error::HookFailed { hook: Hook::ProducerWorkBatch, site, source })
            });
            // The call is measured once, and not for each of its items.
            let Some((came, copy)) = run.leave_race(item, producer, came, copy, since.take())
            else {
                gatherer.be_careful();
                continue;
            };
            match came {
                Ok(output) => {
                    drop_quietly(copy);
                    if part.trial.is_some() || gatherer.is_careful() {
                        gatherer.be_careful();
                        run.succeeded(item, producer);
                    }
                    gatherer.deliver(item, Ok(output));
                }
                Err(error) => {
                    gatherer.be_careful();
                    let trial = part.trial.clone();
                    if let Some(fault) = run.judge(item, *error, producer, trial, copy) {
                        gatherer.deliver(item, Err(fault));
                    }
                }
            }
        }
    }

    /// The items fail together: see [`Run::fail_together`].
    fn fail_batch(
        &self,
        run: &Run<R>,
        gatherer: &mut Gatherer<'_, R::Input, R::Output>,
        part: &Gathered<R::Input>,
        error: Error,
        copies: Copies<R>,
    ) {
        gatherer.be_careful();
        let (producer, trial) = (self.station.producer, part.trial.clone());
        let (items, mut copies) = run.leave_races(part.items.clone(), producer, copies);
        if items.is_empty() {
            drop_quietly(error);
            return;
        }
        let error = error.of_items(&items);
        for (seq, fault) in run.fail_together(&items, error, producer, trial, &mut copies) {
            gatherer.deliver(seq, Err(fault));
        }
        copies.into_iter().flatten().for_each(drop_quietly);
    }
}

/// Has both halves of a part tried, or, where memory lacks, as much as there is memory for at a time.
fn split<I>(mut part: Gathered<I>, cut: Cut, parts: &mut Vec<Part<I>>) {
    match cut {
        Cut::Blame if part.items.len() == 1 => {}
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

fn begin<R: Runner>(run: &Run<R>, pen: &mut Option<Pen>, part: &Gathered<R::Input>) {
    if let Some(pen) = pen {
        pen.started_all(&part.items, |item| run.name_of(item), part.attempt());
    }
}

/// Leaves a part to other producers, its items one by one.
pub(super) fn hand_on<R: Runner>(run: &Run<R>, part: Gathered<R::Input>) {
    for (item, input) in part.items.into_iter().zip(part.inputs) {
        run.hand_on(item, input, part.trial.clone());
    }
}

pub(super) fn drop_inputs<I>(gathered: Gathered<I>) {
    gathered.inputs.into_iter().for_each(drop_quietly);
}

//! How a producer works on a lease: calls the hook and reports the outcomes.

use gangline_scheduler::{Inputs, Lease, Readiness};

use crate::backends::threads::item_observer::ItemObserver;
use crate::backends::threads::producer::Producer;
use crate::base::BoxError;
use crate::base::panic::{catch, drop_quietly};
use crate::concurrency::time_aside::has_aside;
use crate::error::{Error, Hook, OutputCount, Result, costs_state, is_device_lost};
use crate::observe::event_log::EventWriter;
use crate::producers::backend::{Backend, NextStep};
use crate::producers::leasing;
use crate::run::Run;
use crate::run::call::call;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::handover::item_queue::NextItem;
use crate::run::settle;
use crate::run::spans::TraceSpans;
use crate::runner::{ProducerContext, Runner};

/// The outcomes of a batch, one per input.
type BatchOutputs<R> = Vec<Result<<R as Runner>::Output>>;

impl<R: Runner> Producer<R> {
    /// Works on leases, if all items are tracked.
    pub(super) fn work_on_leases(&mut self, run: &Run<R::Input, R::Output>) -> NextStep {
        let producer = self.setup.producer;
        let mut desk = ItemQueue::new(&run.handover, producer);
        let mut event_writer = run.event_log.writer(producer);
        let next_step = loop {
            desk.set_readiness(self.readiness());
            let Some(lease) = desk.next_lease() else {
                break leasing::leave(&self.shared);
            };
            let next_step = self.work_on_lease(run, lease, &mut desk, &mut event_writer);
            if next_step != NextStep::On {
                break next_step;
            }
        };
        desk.leave();
        run.event_log.return_writer(producer, event_writer);
        next_step
    }

    pub(super) fn readiness(&self) -> Readiness {
        match self.state {
            Some(_) => Readiness::Ready,
            None => Readiness::NeedsInit,
        }
    }

    /// Works on a lease, after rebuilding a lost state.
    #[inline(never)]
    pub(super) fn work_on_lease(
        &mut self,
        run: &Run<R::Input, R::Output>,
        mut lease: Lease,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
        event_writer: &mut Option<EventWriter>,
    ) -> NextStep {
        if self.is_due(run) {
            // Others may take the items meanwhile.
            run.handover.dispatch.release(lease.id);
            return NextStep::Recycle;
        }
        if self.state.is_none() {
            let shared = self.shared.clone();
            let prepared =
                leasing::prepare_for(self, self.setup.producer, &shared, run, &lease, desk);
            if let Err(next_step) = prepared {
                return next_step;
            }
        }
        let inputs = leasing::take_inputs(run, &mut lease, leasing::Clones::Always, desk);
        let Some(inputs) = inputs else { return leasing::leave(&self.shared) };
        if let Some(event_writer) = event_writer {
            event_writer.pause(desk.waited);
            event_writer.started_all(&lease.items, |item| run.name_of(item), lease.attempt);
        }
        match run.handover.batching() {
            None => self.work_on_one(run, lease, inputs, desk, event_writer),
            Some(_) => self.work_on_batch(run, lease, inputs, desk, event_writer),
        }
        leasing::leave(&self.shared)
    }

    fn work_on_one(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: Lease,
        inputs: Vec<R::Input>,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
        event_writer: &mut Option<EventWriter>,
    ) {
        let (producer, seq) = (self.setup.producer, lease.items[0]);
        let input = inputs.into_iter().next().expect("each item has its input");
        let came = self.work(run, seq, input, Some(&lease));
        self.note_aside(run, event_writer);
        if let Some(event_writer) = event_writer {
            event_writer.finished(seq);
        }
        desk.set_readiness(self.readiness());
        if came.is_err() || lease.attempt > 1 {
            desk.be_careful();
        }
        settle::one(run, producer, &lease, came.map_err(|error| *error), desk);
    }

    fn work_on_batch(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: Lease,
        mut inputs: Vec<R::Input>,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
        event_writer: &mut Option<EventWriter>,
    ) {
        let came = self.call_batch(run, &lease, &mut inputs);
        let is_lost = |output: &Result<R::Output>| output.as_ref().is_err_and(has_lost);
        if came.as_ref().is_ok_and(|outputs| outputs.iter().any(is_lost)) {
            self.lose_state_in(run);
        }
        self.note_aside(run, event_writer);
        if let Some(event_writer) = event_writer {
            event_writer.finished_all(&lease.items);
        }
        desk.set_readiness(self.readiness());
        match came {
            Ok(outputs) => {
                let setup = &self.setup;
                let results = lease.items.iter().zip(outputs).map(|(&item, output)| {
                    output.map_err(|source| {
                        let site = Box::new(setup.site(&[item], Some(lease.attempt)));
                        Error::HookFailed { hook: Hook::ProducerWorkBatch, site, source }
                    })
                });
                let results: Vec<_> = results.collect();
                let left = untried_inputs(&lease, settle::untried(&lease, &results), inputs);
                settle::each(run, self.setup.producer, (&lease, results), left, desk);
            }
            Err(error) => self.fail_batch(run, &lease, inputs, error, desk),
        }
    }

    /// Notes the times that the hook has counted as no work.
    fn note_aside(&self, run: &Run<R::Input, R::Output>, event_writer: &mut Option<EventWriter>) {
        if has_aside() {
            let times = self.settle_aside(run);
            event_writer.iter_mut().for_each(|it| ItemObserver::set_aside(it, &times));
        }
    }

    /// Calls the hook. If the hook fails, the inputs that it has not taken stay in `inputs`.
    fn call_batch(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: &Lease,
        inputs: &mut Vec<R::Input>,
    ) -> std::result::Result<BatchOutputs<R>, Error> {
        let hook = Hook::ProducerWorkBatch;
        let Lease { id, items, attempt, .. } = lease;
        let site = || self.setup.site(items, Some(*attempt));
        let flag = self.shared.revocations.flag(Some(*id));
        let cx = ProducerContext::new(&self.setup, &run.wanted, items)
            .with_attempt(*attempt)
            .with_abandon_flag(Some(flag))
            .with_revocations(&run.handover.dispatch.signals.bells)
            .with_open_items(run.open_items());
        self.lifetime.worked += items.len() as u64;
        let device = self.setup.place.devices().first();
        let name = || items.first().and_then(|&item| run.name_of(item));
        let span = run.spans.attempt(items, *attempt, device, name);
        let state = self.state.as_mut().expect("a producer has a state when it works on a batch");
        let outcome = call(hook, site, || self.runner.producer_work_batch(&cx, state, inputs));
        TraceSpans::end_attempt(span.as_ref(), outcome.as_ref().map_err(|error| &**error));
        drop(span);
        match outcome {
            Ok(outputs) if outputs.len() == items.len() => Ok(outputs),
            Ok(outputs) => {
                let count = OutputCount { inputs: items.len(), outputs: outputs.len() };
                outputs.into_iter().for_each(drop_quietly);
                Err(Error::HookFailed { hook, site: Box::new(site()), source: Box::new(count) })
            }
            Err(error) => {
                if costs_state(&error) {
                    self.lose_state_in(run);
                }
                Err(*error)
            }
        }
    }

    /// Reports a batch that failed as a whole, with the inputs that the hook has left.
    fn fail_batch(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: &Lease,
        inputs: Vec<R::Input>,
        error: Error,
        desk: &mut ItemQueue<'_, R::Input, R::Output>,
    ) {
        let mut inputs: Vec<_> = match inputs.len() == lease.items.len() {
            true => lease.items.iter().copied().zip(inputs).collect(),
            false => {
                inputs.into_iter().for_each(drop_quietly);
                vec![]
            }
        };
        let (kept, rebuild_error) = match inputs.is_empty() {
            true => (Inputs::Gone, None),
            false => self.keep_for_parts(run, lease, &mut inputs),
        };
        desk.set_readiness(self.readiness());
        let failed = settle::FailedBatch { error, kept, inputs };
        let faults = settle::together(run, self.setup.producer, lease, failed);
        // Dropped this late because it runs user code, while other producers waited for the items to be
        // settled.
        drop_quietly(rebuild_error);
        for (seq, fault) in faults {
            settle::deliver(run, (seq, Err(fault)), desk);
        }
    }

    /// Keeps the inputs of a failed batch for its parts. A producer that lost its state first rebuilds it. If
    /// that fails, the batch keeps its own error, and the next lease tries to rebuild again.
    fn keep_for_parts(
        &mut self,
        run: &Run<R::Input, R::Output>,
        lease: &Lease,
        inputs: &mut Vec<(u64, R::Input)>,
    ) -> (Inputs, Option<Error>) {
        let is_wanted = !run.wanted.gave_up_on(lease.items.first().copied());
        if self.state.is_some() || lease.items.len() == 1 || !is_wanted {
            let kept = if self.state.is_some() { Inputs::Kept } else { Inputs::Gone };
            return (kept, None);
        }
        // If rebuilding exceeds the init timeout, other producers take the parts.
        let handover = &run.handover;
        handover.dispatch.keep_inputs(std::mem::take(inputs)).into_iter().for_each(drop_quietly);
        handover.dispatch.schedule(|state, now| state.scheduler.rebuild(lease.id, now));
        let rebuild_error = self.prepare(run, Some(lease.id)).err();
        let is_ready = rebuild_error.is_none();
        let is_abandoned = self.shared.revocations.is_abandoned();
        if is_ready {
            self.shared.tell_ready(run, self.setup.producer);
        } else if !is_abandoned && run.run_settings.copy.is_none() {
            handover.dispatch.take_inputs(lease).into_iter().flatten().for_each(drop_quietly);
        }
        let kept = if is_ready && !is_abandoned { Inputs::Kept } else { Inputs::Gone };
        (kept, rebuild_error)
    }

    pub(super) fn work_on_items(&mut self, run: &Run<R::Input, R::Output>) -> NextStep {
        let producer = self.setup.producer;
        let mut item_queue = ItemQueue::new(&run.handover, producer);
        let mut event_writer = run.event_log.writer(producer);
        item_queue.set_readiness(self.readiness());
        if run.handover.dispatch.is_careful(producer) {
            item_queue.be_careful();
        }
        let mut next = item_queue.next();
        let next_step = loop {
            let Some(given) = next else { break leasing::leave(&self.shared) };
            next = match given {
                NextItem::Untracked(seq, input) if self.state.is_some() && !self.is_due(run) => {
                    self.work_on_untracked(run, seq, input, &mut item_queue, &mut event_writer)
                }
                given => {
                    let lease = match given {
                        NextItem::Leased(lease) => lease,
                        NextItem::Untracked(seq, input) => item_queue.track(seq, input),
                    };
                    match self.work_on_lease(run, lease, &mut item_queue, &mut event_writer) {
                        NextStep::On => item_queue.next(),
                        next_step => break next_step,
                    }
                }
            };
        };
        item_queue.leave();
        run.event_log.return_writer(producer, event_writer);
        next_step
    }
}

/// The inputs of the items that a hook has not tried, if it has left these alone or all.
fn untried_inputs<I>(lease: &Lease, untried: Vec<u64>, inputs: Vec<I>) -> Vec<(u64, I)> {
    let of = match inputs.len() {
        count if count == untried.len() => &untried[..],
        count if count == lease.items.len() => &lease.items,
        _ => &[],
    };
    let (of, mut inputs) = (of.iter().copied(), inputs.into_iter());
    let (left, spare): (Vec<_>, Vec<_>) =
        of.zip(&mut inputs).partition(|(item, _)| untried.contains(item));
    inputs.chain(spare.into_iter().map(|(_, input)| input)).for_each(drop_quietly);
    left
}

/// Whether an error of one item says that the device is lost. Its causes are user code, which may panic.
fn has_lost(error: &BoxError) -> bool {
    catch(|| is_device_lost(error.as_ref())).unwrap_or(false)
}

#[cfg(test)]
#[cfg(not(shuttle))]
mod tests {
    use std::sync::{Arc, OnceLock};

    use crate::api::map_batches::map_batches;
    use crate::device::DeviceMemory;
    use crate::error::OutOfMemory;
    use crate::{Batch, OrderedRunner, Result};

    /// Runs items in batches. Nothing fits on the first of two devices, which gets some of them.
    fn run_on(memory: Vec<Option<u64>>) -> Result<Vec<u64>> {
        let has_failed = Arc::new(OnceLock::new());
        let squares = map_batches(
            |_| Ok(()),
            move |cx, (), xs: &mut Vec<u64>| {
                if cx.producer() == 0 {
                    _ = has_failed.set(());
                    return Err(OutOfMemory::new("nothing fits").into());
                }
                has_failed.wait();
                Ok(xs.iter().map(|x| Ok(x * x)).collect())
            },
        );
        let builder = OrderedRunner::builder(squares).devices(2).batch(Batch::up_to(4));
        Ok(builder.device_memory(DeviceMemory::given(memory)).build()?.run(0..20)?)
    }

    #[test]
    fn what_does_not_fit_alone_is_done_on_a_larger_device() {
        let squares: Vec<_> = (0..20).map(|x| x * x).collect();
        assert_eq!(run_on(vec![Some(24), Some(80)]).unwrap(), squares, "no attempt is left");
        for memory in [vec![], vec![Some(80), Some(80)], vec![Some(80), Some(24)]] {
            let error = run_on(memory).unwrap_err();
            assert!(format!("{error:?}").contains("nothing fits"), "{error:?}");
        }
    }
}

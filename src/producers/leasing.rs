//! What every backend does around the call of a hook under a lease.

use gangline_scheduler::expansion;
use gangline_scheduler::{Begin, Copies, Lease, Readiness};

use crate::base::panic::drop_quietly;
use crate::producers::backend::{Backend, NextStep};
use crate::producers::shared::Shared;
use crate::run::Run;
use crate::run::failures::withdrawn as withdrawn_part;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::settle;

/// When inputs are cloned before a hook gets them, if they can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Clones {
    /// The hook takes them.
    Always,
    /// The backend keeps them, so that only a second copy of the item needs a clone.
    ToSpeculate,
}

/// The next step of a producer that leaves the run.
pub fn leave(shared: &Shared) -> NextStep {
    if shared.revocations.is_abandoned() { NextStep::Return } else { NextStep::On }
}

/// Takes the inputs of a lease and keeps copies of them. Settles withdrawn parts, and takes them out of the
/// lease. `None` if nothing of the lease is wanted any more.
pub(crate) fn take_inputs<I, T>(
    run: &Run<I, T>,
    lease: &mut Lease,
    clones: Clones,
    desk: &mut ItemQueue<'_, I, T>,
) -> Option<Vec<I>> {
    let mut inputs = take_all_inputs(run, lease, clones)?;
    if run.parts.get().is_some() {
        cut_withdrawn(run, lease, &mut inputs, desk);
        if lease.items.is_empty() {
            run.handover.dispatch.release(lease.id);
            return None;
        }
    }
    Some(inputs)
}

fn take_all_inputs<I, T>(run: &Run<I, T>, lease: &Lease, clones: Clones) -> Option<Vec<I>> {
    let handover = &run.handover;
    let speculates = handover.dispatch.speculates();
    let Some(inputs) = handover.dispatch.take_inputs(lease) else {
        handover.dispatch.release(lease.id);
        return None;
    };
    if run.run_settings.copy.is_none() || clones == Clones::ToSpeculate && !speculates {
        return Some(inputs);
    }
    let each = lease.items.iter().zip(&inputs);
    let copies: Vec<_> =
        each.filter_map(|(&item, input)| Some((item, run.run_settings.copy_of(input)?))).collect();
    let is_whole = copies.len() == inputs.len();
    handover.dispatch.keep_inputs(copies).into_iter().for_each(drop_quietly);
    if !speculates {
        return Some(inputs);
    }
    // Meanwhile the items may have been settled, or the producer lost.
    let copies = if is_whole { Copies::Kept } else { Copies::Missing };
    let (begin, events) =
        handover.dispatch.schedule(|state, now| state.scheduler.begin(lease.id, copies, now));
    run.heed(events);
    if begin == Begin::Stale {
        inputs.into_iter().for_each(drop_quietly);
        handover.dispatch.release(lease.id);
        return None;
    }
    Some(inputs)
}

/// Rebuilds the state that a lease needs. `Err` if that fails or the lease is over.
#[cold]
pub(crate) fn prepare_for<I, T>(
    backend: &mut impl Backend<I, T>,
    producer: usize,
    shared: &Shared,
    run: &Run<I, T>,
    lease: &Lease,
    desk: &mut ItemQueue<'_, I, T>,
) -> Result<(), NextStep> {
    let first = lease.items[0];
    let outcome = backend.prepare(run, Some(lease.id));
    if shared.revocations.is_abandoned() {
        drop_quietly(outcome);
        return Err(NextStep::Return);
    }
    let Err(error) = outcome else {
        shared.tell_ready(run, producer);
        desk.set_readiness(Readiness::Ready);
        let (begin, events) = run
            .handover
            .dispatch
            .schedule(|state, now| state.scheduler.begin(lease.id, Copies::Missing, now));
        run.heed(events);
        if begin == Begin::Stale {
            run.handover.dispatch.release(lease.id);
            return Err(leave(shared));
        }
        return Ok(());
    };
    if run.wanted.gave_up_on(Some(first)) {
        // The hook may have failed because it saw that the item was given up.
        drop_quietly(error);
        run.handover.dispatch.release(lease.id);
        return Err(NextStep::On);
    }
    // It may have been lost meanwhile, by items that have failed: then nothing calls the hook again.
    if run.handover.dispatch.is_live(producer) && shared.starts_again(run, producer) {
        drop_quietly(error);
        run.handover.dispatch.release(lease.id);
        return Err(NextStep::Return);
    }
    let Err(error) = run.lose(producer, error) else {
        // It may have been lost before.
        run.handover.dispatch.release(lease.id);
        return Err(NextStep::Away);
    };
    // Another producer may deliver the item.
    let (is_shared, _) =
        run.handover.dispatch.schedule(|state, _| state.scheduler.is_shared(lease.id));
    if is_shared || run.is_service() {
        run.abort_with(error);
    } else if let Some(fault) = run.end_with(first, error) {
        desk.deliver_tracked(first, Err(fault));
    }
    // Earlier items that wait for a retry are still wanted, and there may be no other producer to settle
    // them.
    run.handover.dispatch.release(lease.id);
    Err(NextStep::On)
}

/// Settles the parts of failed parents in a lease, before a hook sees them.
fn cut_withdrawn<I, T>(
    run: &Run<I, T>,
    lease: &mut Lease,
    inputs: &mut Vec<I>,
    desk: &mut ItemQueue<'_, I, T>,
) {
    let withdrawn: Vec<_> =
        lease.items.iter().copied().filter(|&item| run.is_withdrawn(item)).collect();
    if withdrawn.is_empty() {
        return;
    }
    let ((counted, spare), events) = run.handover.dispatch.schedule(|state, now| {
        let counted = expansion::cut_from(&mut state.scheduler, lease.id, &withdrawn, now);
        let copies = counted.iter().flat_map(|&item| state.inputs.remove(item)).collect::<Vec<_>>();
        (counted, copies)
    });
    spare.into_iter().for_each(drop_quietly);
    run.heed(events);
    let (live, cut): (Vec<_>, Vec<_>) = std::mem::take(&mut lease.items)
        .into_iter()
        .zip(std::mem::take(inputs))
        .partition(|(item, _)| !withdrawn.contains(item));
    cut.into_iter().for_each(drop_quietly);
    (lease.items, *inputs) = live.into_iter().unzip();
    for item in counted {
        settle::deliver(run, (item, Err(withdrawn_part())), desk);
    }
}

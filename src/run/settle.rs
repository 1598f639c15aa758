//! Reports the outcomes of a lease to the scheduler, and delivers the results that count.

use gangline_report::{CallInput, Failure};
use gangline_scheduler::largest_device;
use gangline_scheduler::{Inputs, Lease, Memory, Outcome, Piece, RunTime, Standing, Together};

use crate::base::panic::{catch, drop_quietly};
use crate::error::{Error, is_out_of_memory, is_untried, reason};
use crate::observe::event_log::EventLog;
use crate::run::Run;
use crate::run::failures::FailedItems;
use crate::run::handover::dispatch::Tracked;
use crate::run::handover::item_queue::ItemQueue;
use crate::run::no_output::NoOutput;
use crate::run::output_memory::measured;

/// The outcome of one item in a hook.
type Worked<T> = Result<T, Error>;

/// A batch that failed as a whole.
pub(crate) struct FailedBatch<I> {
    pub(crate) error: Error,
    pub(crate) kept: Inputs,
    /// The inputs that are not yet with the run.
    pub(crate) inputs: Vec<(u64, I)>,
}

/// Ends a lease of one item.
pub(crate) fn one<I, T>(
    run: &Run<I, T>,
    producer: usize,
    lease: &Lease,
    worked: Worked<T>,
    desk: &mut ItemQueue<'_, I, T>,
) {
    let outcomes = [outcome_of(&worked)];
    let standing = finish_by(run, lease, &outcomes, |state, now| {
        (state.scheduler.finish(lease.id, &outcomes, now), vec![])
    })[0];
    settle(run, producer, (lease.items[0], worked), standing, desk);
}

/// The items of a batch that its hook has not tried. A single item has failed.
pub(crate) fn untried<T>(lease: &Lease, worked: &[Worked<T>]) -> Vec<u64> {
    // The causes of an error are user code, which may panic.
    let is_marked = |error: &Error| catch(|| is_untried(error)).unwrap_or(false);
    let each = lease.items.iter().zip(worked).filter(|_| lease.items.len() > 1);
    each.filter(|(_, it)| it.as_ref().is_err_and(is_marked)).map(|(&item, _)| item).collect()
}

/// Ends a lease with an outcome for each of its items. Those in `left` were not tried: they come again in smaller batches,
/// with these inputs.
pub(crate) fn each<I, T>(
    run: &Run<I, T>,
    producer: usize,
    (lease, mut worked): (&Lease, Vec<Worked<T>>),
    mut left: Vec<(u64, I)>,
    desk: &mut ItemQueue<'_, I, T>,
) {
    let items: Vec<u64> = left.iter().map(|(item, _)| *item).collect();
    let first = lease.items.iter().position(|item| items.contains(item));
    let error = first.map(|first| std::mem::replace(&mut worked[first], Err(Error::Cancelled {})));
    let error = error.and_then(Result::err).map(|error| reason(error).of_items(&items));
    note_call(run, lease, error.as_ref().map(EventLog::failure).as_deref());
    let is_short = error.as_ref().is_some_and(is_short);
    let memory = if is_short { Memory::Short } else { Memory::Sufficient };
    let outcomes: Vec<_> = worked.iter().map(outcome_of).collect();
    let standings = finish_by(run, lease, &outcomes, |state, now| {
        if items.is_empty() {
            return (state.scheduler.finish(lease.id, &outcomes, now), vec![]);
        }
        let ended = state.scheduler.finish_in_part(lease.id, &outcomes, &items, memory, now);
        let kept = left.extract_if(.., |(item, _)| ended.again.contains(item));
        (ended.standings, kept.filter_map(|(item, input)| state.keep(item, input)).collect())
    });
    left.into_iter().for_each(|(_, input)| drop_quietly(input));
    drop_quietly(error);
    for (item, standing) in lease.items.iter().copied().zip(worked).zip(standings) {
        settle(run, producer, item, standing, desk);
    }
}

/// Ends a lease that failed as a whole batch. It is split if all its inputs are kept; otherwise its items fail
/// together. Returns the failures to deliver.
pub(crate) fn together<I, T>(
    run: &Run<I, T>,
    producer: usize,
    lease: &Lease,
    FailedBatch { error, kept, mut inputs }: FailedBatch<I>,
) -> FailedItems {
    if kept == Inputs::Kept && is_given_to_largest(run, lease, &error, &mut inputs) {
        drop_quietly(error);
        return vec![];
    }
    // Parts of the batch would only hide that the hook is wrong.
    let kept = if error.is_output_count() { Inputs::Gone } else { kept };
    let memory = if is_short(&error) { Memory::Short } else { Memory::Sufficient };
    let ((together, spare), events) = run.handover.dispatch.schedule(|state, now| {
        let together = state.scheduler.fail_together(lease.id, kept, memory, now);
        let mut spare = Vec::new();
        if let Together::Split(items) = &together {
            for (item, input) in inputs.drain(..) {
                match items.contains(&item) {
                    true => spare.extend(state.keep(item, input)),
                    false => spare.push(input),
                }
            }
        }
        (together, spare)
    });
    spare.into_iter().for_each(drop_quietly);
    inputs.into_iter().for_each(|(_, input)| drop_quietly(input));
    run.heed(events);
    let is_split = matches!(together, Together::Split(_));
    let split_by = is_split.then(|| EventLog::failure(&error));
    note_call(run, lease, split_by.as_deref());
    match together {
        Together::Failed(items) if !items.is_empty() => {
            let error = error.of_items(&items);
            run.fail_items(&items, error, producer)
        }
        Together::Failed(_) | Together::Split(_) => {
            drop_quietly(error);
            vec![]
        }
    }
}

/// Has the device with the most memory try the only item of a batch, if the hook has left its input and its own device has
/// too little memory. Returns whether it does.
pub(crate) fn is_given_to_largest<I, T>(
    run: &Run<I, T>,
    lease: &Lease,
    error: &Error,
    inputs: &mut Vec<(u64, I)>,
) -> bool {
    let is_alone = lease.items.len() == 1 && inputs.len() == 1 && run.handover.batching().is_some();
    if !is_alone || !is_short(error) {
        return false;
    }
    // Before the lock, since it may ask a driver.
    let memory = run.run_settings.memory.of_places();
    let ((is_given, spare), events) = run.handover.dispatch.schedule(|state, now| {
        match largest_device::give_to_largest(&mut state.scheduler, lease.id, memory, now) {
            true => {
                let kept = inputs.drain(..).filter_map(|(item, input)| state.keep(item, input));
                (true, kept.collect::<Vec<_>>())
            }
            false => (false, vec![]),
        }
    });
    spare.into_iter().for_each(drop_quietly);
    run.heed(events);
    if is_given {
        note_call(run, lease, Some(&EventLog::failure(error)));
    }
    is_given
}

/// Whether there was no memory for the items of a lease.
pub(crate) fn is_short(error: &Error) -> bool {
    // Formatting an error and its causes runs user code, which may panic.
    catch(|| is_out_of_memory(error)).unwrap_or(false)
}

/// Counts the call of the hook in a run with batches. `split_by` is the failure of a batch that is split.
fn note_call<I, T>(run: &Run<I, T>, lease: &Lease, split_by: Option<&Failure>) {
    let input = match (lease.piece, lease.items.len()) {
        (Piece::Whole, 2..) => CallInput::Batch,
        _ if run.handover.batching().is_none() => return,
        (Piece::Part | Piece::Copy, _) => CallInput::Part,
        (Piece::Whole, _) => CallInput::Single,
    };
    run.handover.stats.batch_called(input, split_by);
}

/// Reports the outcomes of a lease by `end`, which returns inputs that are not needed. Drops these, and the kept inputs of
/// items that succeeded.
fn finish_by<I, T>(
    run: &Run<I, T>,
    lease: &Lease,
    outcomes: &[Outcome],
    end: impl FnOnce(&mut Tracked<I>, RunTime) -> (Vec<Standing>, Vec<I>),
) -> Vec<Standing> {
    let ((standings, spare), events) = run.handover.dispatch.schedule(|state, now| {
        let (standings, mut spare) = end(state, now);
        if !state.inputs.is_empty() {
            let each = lease.items.iter().zip(outcomes).zip(&standings);
            let is_done = |it: &((&u64, &Outcome), &Standing)| {
                (*it.0.1, *it.1) == (Outcome::Succeeded, Standing::Counts)
            };
            let done = each.filter(is_done);
            spare.extend(done.flat_map(|((&item, _), _)| state.inputs.remove(item)));
        }
        (standings, spare)
    });
    spare.into_iter().for_each(drop_quietly);
    run.heed(events);
    standings
}

/// Delivers the result of a tracked item.
pub(crate) fn deliver<I, T>(
    run: &Run<I, T>,
    (item, outcome): (u64, Result<T, Box<NoOutput>>),
    desk: &mut ItemQueue<'_, I, T>,
) {
    desk.deliver_tracked(item, outcome);
    // In a run, the consumer needs the name.
    if run.is_service() {
        run.remove_name(item);
    }
}

fn settle<I, T>(
    run: &Run<I, T>,
    producer: usize,
    (item, worked): (u64, Worked<T>),
    standing: Standing,
    desk: &mut ItemQueue<'_, I, T>,
) {
    match (worked, standing) {
        (Ok(output), Standing::Counts) => {
            if let Some(outcome) = measured(run, producer, item, output) {
                let outcome = outcome.inspect(|_| run.event_log.done(producer));
                deliver(run, (item, outcome), desk);
            }
        }
        (Err(error), Standing::Counts) => {
            for (seq, fault) in run.fail_items(&[item], error, producer) {
                deliver(run, (seq, Err(fault)), desk);
            }
        }
        (worked, Standing::Deferred | Standing::Stale) => drop_quietly(worked),
    }
}

fn outcome_of<T, E>(worked: &Result<T, E>) -> Outcome {
    match worked {
        Ok(_) => Outcome::Succeeded,
        Err(_) => Outcome::Failed,
    }
}

//! The settings that a conclusion advises, with their numbers.

use std::time::Duration;

use crate::observe::event::{ProducerTotals, Totals};
use crate::observe::report::head_cost::GROWTH;
use crate::observe::report::live_producers::is_of_cluster;
use crate::scheduler::batch::SizeBound;

/// The window of a service, which has none: its callers wait.
pub(super) const SERVICE: u64 = 0;

/// The least items per producer for a conclusion. With fewer, chance decides which producer has how many.
pub(super) const FEWEST_EACH: u64 = 2;

/// The largest advised number of producers, as a multiple of the present one. What limits a run with more is unknown.
const MOST_MORE: u64 = 8;

/// The factor on the mean number of producers that the other parts keep up with. Producers of different speeds, and
/// items of different lengths, need more than the mean.
const SLACK: f64 = 1.1;

/// The share of failed attempts from which they are mentioned.
const LEAST_FAILING: f64 = 0.2;

/// The calls per producer with which a run has time to learn sizes of batches.
const CALLS_TO_LEARN: u64 = 64;

/// The share of a producer's work that recycling its state may take.
const RECYCLING: f64 = 0.05;

/// The number of items that reached producers.
pub(super) fn worked(totals: &Totals) -> u64 {
    let account = totals.account;
    account.ok + account.failed + account.cancelled
}

/// The number of calls of the hook.
pub(super) fn calls(totals: &Totals) -> u64 {
    match totals.splits.calls {
        0 => worked(totals),
        calls => calls + totals.splits.singles,
    }
}

/// Whether the producers have time for the work of the source too.
pub(super) fn producers_have_time(totals: &Totals) -> bool {
    let all = work(totals) + totals.source_working;
    all.div_f64(totals.producers.len().max(1) as f64) < totals.source_working.mul_f64(1.0 / SLACK)
}

/// The setting with [`more_producers`]. A number as devices makes producers on CPUs, so it is no setting for others.
pub(super) fn more_devices(totals: &Totals) -> Option<String> {
    let more = more_producers(totals)?;
    let are_cpus = totals.producers.iter().all(|producer| producer.place == "cpu");
    Some(if are_cpus { format!("`devices({more})`") } else { format!("{more} of them") })
}

/// The number of producers with which the source or the consumer would limit the run, or the items would be too few.
///
/// `None` if that is no more than the present number. Also in a cluster, and in a service, which has no source and no
/// consumer.
fn more_producers(totals: &Totals) -> Option<u64> {
    let now = totals.producers.len() as u64;
    let pace = totals.source_working.max(totals.consumer_working).as_secs_f64();
    let needed = work(totals).as_secs_f64() / pace.max(1e-9);
    let most = (calls(totals) / FEWEST_EACH).min(now.saturating_mul(MOST_MORE));
    let more = ((SLACK * needed).ceil() as u64).min(most);
    let has_both = totals.window != SERVICE;
    (has_both
        && more > now
        && needed > SLACK * now as f64
        && !totals.producers.iter().any(is_of_cluster))
    .then_some(more)
}

/// The share of attempts that failed and were repeated, if it is large enough to mention.
pub(super) fn failing(totals: &Totals) -> Option<f64> {
    let failed: u64 = totals.producers.iter().map(|producer| producer.failed).sum();
    let again = failed.saturating_sub(totals.account.failed) as f64;
    let share = again / (again + worked(totals) as f64).max(1.0);
    (share >= LEAST_FAILING).then_some(share)
}

/// The advice about batches.
///
/// `Batch::auto()` is advised only to a run with time to find sizes: it begins with batches of one.
pub(super) fn batches(totals: &Totals) -> String {
    let is_chosen = totals.producers.iter().any(|producer| producer.batch_size.is_some());
    let is_long = calls(totals) >= CALLS_TO_LEARN * totals.producers.len() as u64;
    match larger_batches(totals) {
        _ if memory(totals).is_some() => String::new(),
        _ if totals.splits.batches == 0 => {
            "; if a device is faster with many items at once, use larger batches (`batch`, with a runner that \
             implements `producer_work_batch`)"
                .to_owned()
        }
        _ if is_chosen => String::new(),
        _ if is_long => "; let the run choose the size of batches (`batch(Batch::auto())`)".to_owned(),
        Some(size) => format!("; try larger batches (`batch(Batch::up_to({size}))`)"),
        None => String::new(),
    }
}

/// The advice about batches that exceed the memory of the devices.
pub(super) fn memory(totals: &Totals) -> Option<String> {
    let most = totals.producers.iter().filter_map(most_in_memory).max()?;
    Some(format!(
        "their memory has room for batches of at most {most}, so use `batch(Batch::up_to({most}))` or make items \
         smaller; "
    ))
}

/// A size of batches larger by [`GROWTH`], or as large as the items and the window allow for all producers. `None` if
/// that is less than twice the present size.
fn larger_batches(totals: &Totals) -> Option<u64> {
    let producers = totals.producers.len().max(1) as u64;
    let now = worked(totals).div_ceil(calls(totals).max(1));
    let most = (worked(totals) / FEWEST_EACH).min(totals.window) / producers;
    let size = now.saturating_mul(GROWTH).min(most);
    (size >= 2 * now).then_some(size)
}

/// A size of batches with which each producer has equally many: as many as the busiest has now.
pub(super) fn smaller_batches(totals: &Totals) -> Option<u64> {
    let (producers, calls) = (totals.producers.len().max(1) as u64, calls(totals).max(1));
    let even = worked(totals).div_ceil(calls.div_ceil(producers).saturating_mul(producers));
    (totals.splits.batches > 0 && even < worked(totals).div_ceil(calls)).then_some(even)
}

/// The number of items per state at which recycling takes a small share of the work.
pub(super) fn longer_lives(recycling: f64, working: f64, totals: &Totals) -> u64 {
    let recycled: u64 = totals.producers.iter().map(|producer| producer.recycles).sum();
    let each = worked(totals) as f64 / recycled.max(1) as f64;
    (each * recycling / (RECYCLING * working.max(0.01))).ceil() as u64
}

fn work(totals: &Totals) -> Duration {
    totals.producers.iter().map(|producer| producer.working).sum()
}

/// The largest batch that fits into the memory of the producer's device, if that is known.
fn most_in_memory(producer: &ProducerTotals) -> Option<u64> {
    let chosen = producer.batch_size.as_ref().filter(|it| it.bound == SizeBound::Memory);
    producer.batch_ceiling.or(chosen.map(|it| it.size))
}

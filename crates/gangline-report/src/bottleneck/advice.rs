//! The settings that a conclusion advises, with their numbers.

use std::time::Duration;

use gangline_scheduler::batch::SizeBound;

use crate::advice::Advice;
use crate::conclusion::Limit;
use crate::head_cost::GROWTH;
use crate::live_producers::is_of_cluster;
use crate::producer_report::ProducerReport;
use crate::run_report::NO_WINDOW;
use crate::run_report::RunReport;
use crate::split_report::SplitReport;

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
pub(super) fn worked(run: &RunReport) -> u64 {
    let account = run.account;
    account.ok + account.failed + account.cancelled
}

/// The number of calls of the hook.
pub(super) fn calls(run: &RunReport) -> u64 {
    match run.splits.calls {
        0 => worked(run),
        calls => calls + run.splits.singles,
    }
}

/// Whether the producers have time for the work of the source too.
pub(super) fn producers_have_time(run: &RunReport) -> bool {
    let all = work(run) + run.source_working;
    all.div_f64(run.producers.len().max(1) as f64) < run.source_working.mul_f64(1.0 / SLACK)
}

/// The number of producers with which the source or the consumer would limit the run, the items would be too few, or the
/// processors would be.
///
/// `None` if that is no more than the present number. Also in a cluster, and in a service, which has no source and no
/// consumer.
pub(super) fn more_producers(run: &RunReport) -> Option<u64> {
    let now = run.producers.len() as u64;
    let pace = run.source_working.max(run.consumer_working).as_secs_f64();
    let needed = work(run).as_secs_f64() / pace.max(1e-9);
    let most = (calls(run) / FEWEST_EACH).min(now.saturating_mul(MOST_MORE));
    let most = most.min(most_on_cores(run).unwrap_or(most));
    let more = ((SLACK * needed).ceil() as u64).min(most);
    let has_both = run.window != NO_WINDOW;
    (has_both
        && more > now
        && needed > SLACK * now as f64
        && !run.producers.iter().any(is_of_cluster))
    .then_some(more)
}

/// The number of producers that the processors have time for, if each takes as much of it as now.
fn most_on_cores(run: &RunReport) -> Option<u64> {
    let cores = run.provenance.cores?;
    let used = run.computing.as_secs_f64() / run.lasted.as_secs_f64().max(1e-9);
    let most = run.producers.len() as f64 * cores as f64 / used.max(1e-9);
    Some(most as u64)
}

/// The number of processors, if they are the limit: all of them computed.
pub(super) fn busy_cores(run: &RunReport) -> Option<u64> {
    let now = run.producers.len() as f64;
    run.provenance
        .cores
        .filter(|_| most_on_cores(run).is_some_and(|most| (most as f64) < SLACK * now))
}

/// The share of attempts that failed and were repeated, if it is large enough to mention.
pub(super) fn failing(run: &RunReport) -> Option<f64> {
    let failed: u64 = run.producers.iter().map(|producer| producer.failed).sum();
    let again = failed.saturating_sub(run.account.failed) as f64;
    let share = again / (again + worked(run) as f64).max(1.0);
    (share >= LEAST_FAILING).then_some(share)
}

/// Whether the run has batches, by its settings or its calls.
pub(super) fn has_batches(run: &RunReport) -> bool {
    run.splits.batches > 0 || run.provenance.settings.contains_key("batch")
}

/// A setting with larger batches. A size that the run chooses is advised only to one with time to find it: it begins with
/// batches of one.
pub(super) fn larger_batches(run: &RunReport) -> Option<Advice> {
    let is_chosen = run.producers.iter().any(|producer| producer.batch_size.is_some());
    let is_long = calls(run) >= CALLS_TO_LEARN * run.producers.len() as u64;
    match larger_size(run) {
        _ if run.splits.batches == 0 || is_chosen || run.provenance.chooses_batches() => None,
        _ if is_long => Some(Advice::AutoBatch),
        size => size
            .filter(|&size| run.provenance.largest_batch().is_none_or(|most| size > most))
            .map(|items| Advice::LargerBatch { items }),
    }
}

/// A size of batches larger by [`GROWTH`], or as large as the items and the window allow for all producers. `None` if
/// that is less than twice the present size.
fn larger_size(run: &RunReport) -> Option<u64> {
    let producers = run.producers.len().max(1) as u64;
    let now = worked(run).div_ceil(calls(run).max(1));
    let most = (worked(run) / FEWEST_EACH).min(run.window) / producers;
    let size = now.saturating_mul(GROWTH).min(most);
    (size >= 2 * now).then_some(size)
}

/// A size of batches with which each producer has equally many: as many as the busiest has now.
pub(super) fn smaller_batches(run: &RunReport) -> Option<Advice> {
    let (producers, calls) = (run.producers.len().max(1) as u64, calls(run).max(1));
    let even = worked(run).div_ceil(calls.div_ceil(producers).saturating_mul(producers));
    (run.splits.batches > 0 && even < worked(run).div_ceil(calls))
        .then_some(Advice::SmallerBatch { items: even })
}

/// The number of items per state at which recycling takes a small share of the work, unless states were lost.
pub(super) fn longer_lives(recycling: f64, working: f64, run: &RunReport) -> Option<Advice> {
    let sum = |of: fn(&ProducerReport) -> u64| run.producers.iter().map(of).sum::<u64>();
    let each = worked(run) as f64 / sum(|it| it.recycles).max(1) as f64;
    let items = each * recycling / (RECYCLING * working.max(0.01));
    let is_recycled = sum(|it| it.states_lost) == 0;
    is_recycled.then_some(Advice::RecycleAfter { items: items.ceil() as u64 })
}

fn work(run: &RunReport) -> Duration {
    run.producers.iter().map(|producer| producer.working).sum()
}

/// The largest batch that fits into the memory of a device, if that is known.
pub(super) fn most_in_memory(run: &RunReport) -> Option<u64> {
    let of = |producer: &ProducerReport| {
        let chosen = producer.batch_size.as_ref().filter(|it| it.bound == SizeBound::Memory);
        producer.batch_ceiling.or(chosen.map(|it| it.size))
    };
    run.producers.iter().filter_map(of).max()
}

/// The limit of a run that split most of its batches, and what to change.
pub(super) fn of_splits(splits: &SplitReport) -> Option<(Limit, Advice)> {
    let SplitReport { split, batches, calls, .. } = *splits;
    let error = splits.error.clone().unwrap_or_default();
    let is_usual = split >= 2 && split > batches / 2;
    is_usual.then_some((Limit::Splits { split, batches, calls, error }, Advice::BetterBatches))
}

//! What the outputs of items take in memory.

use crate::base::Measure;
use crate::base::panic::{catch, drop_quietly};
use crate::error::Error;
use crate::policy::Verdict;
use crate::run::Run;
use crate::run::outbox::Outcome;

/// Counts what the output of an item takes in memory from now on, if outputs are measured. On the producer's thread, since
/// the collector may come to the output much later. If the function that measures panics, its error is the outcome.
///
/// `None` if the run ends earlier, and no longer wants the outcome.
pub(crate) fn measured<I, T>(
    run: &Run<I, T>,
    producer: usize,
    item: u64,
    output: T,
) -> Option<Outcome<T>> {
    let Some(memory) = run.handover.permits.memory() else { return Some(Ok(output)) };
    let measures = run.run_settings.measures.as_ref();
    let bytes = catch(|| measures.and_then(|measures| measures.measure_output(&output)));
    let source = match bytes {
        Ok(bytes) => {
            bytes.into_iter().for_each(|bytes| memory.settle(item, bytes));
            return Some(Ok(output));
        }
        Err(source) => source,
    };
    drop_quietly(output);
    run.handover.stats.producer_failed(producer, 1);
    let measure = Measure::Memory;
    let mut error = run.named(Error::MeasurePanicked { item, measure, key: None, source });
    match run.verdict(&mut error) {
        Verdict::Skip => {
            if let Some(parts) = run.parts.get() {
                parts.fail(item);
            }
            Some(Err(run.skipping(error)))
        }
        // Not tried again: the hook has done its part.
        Verdict::Retry | Verdict::RetryHere | Verdict::Stop => run.end_with(item, error).map(Err),
    }
}

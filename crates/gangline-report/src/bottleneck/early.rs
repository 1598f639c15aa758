//! Conclusions from the counts of a run and from its start, without shares of its time.

use std::time::Duration;

use super::advice::{calls, worked};
use crate::advised_setting::AdvisedSetting;
use crate::formats::{Many, Percent, Time};
use crate::live_producers::{all_producers, is_of_cluster, mean};
use crate::totals::Totals;

/// The shortest run with a bottleneck. A shorter one consists mostly of starting and ending threads.
pub(super) const SHORTEST: Duration = Duration::from_millis(10);

/// The share of a run from which `consumer_init`, or the `producer_init` of the producers in it, limits it.
const LEAST_START: f64 = 0.2;

/// The clause about getting ready, if that limited the run.
pub(super) fn start_up(totals: &Totals) -> Option<String> {
    let Totals { lasted, start_up, consumer_init, .. } = totals;
    let is_long = |time: &Duration, least: Duration| *time >= SHORTEST && *time >= least;
    if is_long(start_up, *lasted) {
        let (who, how) = match totals.producers.iter().any(is_of_cluster) {
            true => ("workers", "start the workers before it"),
            false => ("producers", "make `producer_init` faster"),
        };
        return Some(format!(
            "start-up limited the run: the {who} took {} to get ready for a run of {}; use one pool for more runs or \
             items (it keeps its {who}), or {how}",
            Time(*start_up),
            Time(*lasted)
        ));
    }
    let loading = mean(totals, |producer| producer.loading);
    if loading >= LEAST_START && *lasted >= SHORTEST {
        return Some(format!(
            "start-up limited the run: the producers took {} of it on average to get ready; use one pool for more runs or \
             items (it keeps its producers), or make `producer_init` faster",
            Percent(loading)
        ));
    }
    is_long(consumer_init, lasted.mul_f64(LEAST_START)).then(|| {
        format!(
            "starting the consumer limited the run: `consumer_init` took {} of {}, and no item is read before it returns; \
             do its work before the run, or make it faster",
            Time(*consumer_init),
            Time(*lasted)
        )
    })
}

pub(super) fn too_few(totals: &Totals, advice: &[AdvisedSetting]) -> String {
    let (items, calls) = (worked(totals), calls(totals));
    let batches = match calls < items {
        true => format!(" in {}", Many(calls, "call")),
        false => String::new(),
    };
    let change = match advice.iter().find(|it| it.is_batch()) {
        Some(smaller) => format!("use smaller batches (`{smaller}`)"),
        None if items == 1 => "split it into parts".to_owned(),
        // All of them begin at once.
        None if calls <= totals.producers.len() as u64 => "split them into parts".to_owned(),
        None => "put long items first, split them into parts".to_owned(),
    };
    format!(
        "too few items limited the run: it had {}{batches} for {}, which worked {} of the time; {change}, or put more \
         items into one run",
        Many(items, "item"),
        all_producers(totals),
        Percent(mean(totals, |producer| producer.working)),
    )
}

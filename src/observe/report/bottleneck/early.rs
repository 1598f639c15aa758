//! Conclusions from the counts of a run and from its start, without shares of its time.

use std::time::Duration;

use super::advice::{calls, smaller_batches, worked};
use crate::observe::event::Totals;
use crate::observe::report::formats::{Many, Percent, Time};
use crate::observe::report::live_producers::{all_producers, is_of_cluster, mean};

/// The shortest run with a bottleneck. A shorter one consists mostly of starting and ending threads.
pub(super) const SHORTEST: Duration = Duration::from_millis(10);

/// The share of a run from which `consumer_init` limits it.
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
    is_long(consumer_init, lasted.mul_f64(LEAST_START)).then(|| {
        format!(
            "starting the consumer limited the run: `consumer_init` took {} of {}, and no item is read before it returns; \
             do its work before the run, or make it faster",
            Time(*consumer_init),
            Time(*lasted)
        )
    })
}

/// Whether the run did not have all of its items: it failed, was cancelled or was stopped.
pub(super) fn has_ended_early(totals: &Totals) -> bool {
    let was_stopped =
        totals.account.cancelled > 0 || totals.account.unread.is_some_and(|it| it > 0);
    totals.error.is_some() || totals.cancelled || was_stopped
}

pub(super) fn too_few(totals: &Totals) -> String {
    let (items, calls) = (worked(totals), calls(totals));
    let batches = match calls < items {
        true => format!(" in {}", Many(calls, "call")),
        false => String::new(),
    };
    let smaller = smaller_batches(totals).map_or(String::new(), |size| {
        format!("use smaller batches (`batch(Batch::up_to({size}))`), ")
    });
    // Otherwise all of them begin at once.
    let order = if calls > totals.producers.len() as u64 { "put long items first, " } else { "" };
    let them = if items == 1 { "it" } else { "them" };
    format!(
        "too few items limited the run: it had {}{batches} for {}, which worked {} of the time; {smaller}{order}split \
         {them} into parts, or put more items into one run",
        Many(items, "item"),
        all_producers(totals),
        Percent(mean(totals, |producer| producer.working)),
    )
}

//! What waiting for the head of the line cost.

use std::time::Duration;

use super::advice::Advice;
use super::conclusion::{HeadCost, Percent};
use super::live_producers::mean;
use super::producer_report::{ProducerReport, share};
use super::run_report::RunReport;

/// Producer time below this share of the run's is not mentioned.
const LEAST: f64 = 0.02;

/// The factor by which an advised window is larger. Three steps make it 64 times as large.
pub(super) const GROWTH: u64 = 4;

/// The part of all memory that a window may take: half. Inputs that were not read, states of producers and other programs
/// need the rest.
const MEMORY_SHARE: u64 = 2;

/// A larger window is no advice: it would take minutes to fill, and much memory.
const LARGEST_WINDOW: f64 = 65_536.0;

/// The producer time that was lost because the window was full of results behind one that was missing.
///
/// While producers have no items and the window is full, the consumer either waits for the missing one or is at work. So
/// these producers' waits are divided as its time is.
pub(super) fn lost(run: &RunReport) -> Duration {
    let held_up = run.producers.iter().map(|producer| producer.times.order);
    let all = held_up.fold(Duration::ZERO, Duration::saturating_add);
    let most = run.head_stalled.saturating_mul(run.producers.len() as u32);
    all.mul_f64(stalled_share(run)).min(most)
}

/// The share of the consumer's time, without waits for any result, in which it waited for the missing one.
fn stalled_share(run: &RunReport) -> f64 {
    let RunReport { head_stalled: stalled, consumer_working: working, .. } = run;
    match stalled.saturating_add(*working) {
        Duration::ZERO => 0.0,
        both => share(*stalled, both).clamp(0.0, 1.0),
    }
}

/// The share of the producers' time that was lost.
fn lost_share(run: &RunReport) -> f64 {
    mean(run, |producer: &ProducerReport| producer.times.order) * stalled_share(run)
}

/// Whether the head of the line cost enough to be mentioned.
pub(super) fn matters(run: &RunReport) -> bool {
    lost_share(run) >= LEAST
}

/// What the head of the line cost, and the settings that help, as far as the run shows it.
pub(super) fn cost(run: &RunReport) -> HeadCost {
    let window = match run.window_memory {
        Some(_) => Some(larger_window(run)).filter(|it| matches!(it, Advice::WindowMemory { .. })),
        None => sufficient_window(run),
    };
    let advice = [window, Some(Advice::CompletionOrder), copies(run)];
    HeadCost {
        waited: run.head_stalled.as_secs_f64(),
        worst: run.stalls.first().map(|it| (it.item, it.lasted.as_secs_f64())),
        lost: lost(run).as_secs_f64(),
        share: Percent(lost_share(run)),
        advice: advice.into_iter().flatten().collect(),
    }
}

/// A setting with which more items are in flight, or smaller items if memory has no room for twice as many.
pub(super) fn larger_window(run: &RunReport) -> Advice {
    let Some(bytes) = run.window_memory else {
        // One that is set does not grow.
        let items = run.window.saturating_mul(GROWTH).max(run.window_limit);
        return Advice::Window { items };
    };
    let (wanted, most) = (bytes.saturating_mul(GROWTH), run.memory.map(|all| all / MEMORY_SHARE));
    let memory = run.memory.filter(|_| most.is_some_and(|most| wanted > most));
    let larger = wanted.min(most.unwrap_or(u64::MAX));
    match larger >= bytes.saturating_mul(2) {
        true => Advice::WindowMemory { bytes: larger, memory },
        false => Advice::SmallerItems { memory },
    }
}

/// Second copies of slow items, if they are of use, and not made already.
pub(super) fn copies(run: &RunReport) -> Option<Advice> {
    let may_speculate =
        run.producers.len() > 1 && !run.provenance.settings.contains_key("speculate");
    may_speculate.then_some(Advice::Speculate)
}

/// The window at which the other producers would have had items during the whole of the longest wait.
fn sufficient_window(run: &RunReport) -> Option<Advice> {
    let longest = run.stalls.first()?.lasted;
    let done = run.producers.iter().map(|producer| (producer.items, producer.working));
    let window = window_behind(longest, done, run.window)?;
    Some(Advice::Window { items: window.max(run.window_limit) })
}

/// The window at which all producers but one have items during the longest wait. `done` has the items and the working
/// time of each producer.
fn window_behind(
    longest: Duration,
    done: impl ExactSizeIterator<Item = (u64, Duration)>,
    window: u64,
) -> Option<u64> {
    let others = done.len().checked_sub(1)? as f64;
    let (items, working) = done.fold((0, Duration::ZERO), |sum, it| (sum.0 + it.0, sum.1 + it.1));
    let each = working.as_secs_f64() / items.max(1) as f64;
    let meanwhile = others * longest.as_secs_f64() / each.max(1e-9);
    let needed = meanwhile + window as f64;
    (needed <= LARGEST_WINDOW).then(|| (needed.ceil() as u64).next_power_of_two())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::account::Account;
    use crate::conclusion::Conclusion;
    use crate::run_report::Stall;
    use crate::time_kind::TimeAccount;
    use crate::vocabulary::Vocabulary;
    use crate::wording;

    fn secs(seconds: f64) -> Duration {
        Duration::from_secs_f64(seconds)
    }

    /// A run of 10 s on four producers. `held_up` is the share in which each was idle because of the full window;
    /// `stalled` and `working` are the seconds in which a result was missing and in which the consumer worked.
    fn run(held_up: f64, stalled: f64, working: f64) -> RunReport {
        let producer = ProducerReport {
            items: 250,
            working: secs(10.0 * (1.0 - held_up)),
            waiting: secs(10.0 * held_up),
            times: TimeAccount { order: secs(10.0 * held_up), ..TimeAccount::default() },
            ..ProducerReport::default()
        };
        RunReport {
            account: Account { ok: 1_000, ..Account::default() },
            lasted: secs(10.0),
            window: 256,
            head_stalled: secs(stalled),
            consumer_working: secs(working),
            stalls: vec![Stall::new(17, secs(1.5))],
            producers: vec![producer; 4],
            ..RunReport::default()
        }
    }

    fn sentence(run: &RunReport) -> Option<String> {
        let head = || Conclusion { head: Some(cost(run)), ..Conclusion::default() };
        matters(run).then(|| wording::text(&head(), Vocabulary::Items))
    }

    #[test]
    fn a_head_that_cost_producer_time_is_named() {
        let sentence = sentence(&run(0.1, 4.0, 1.0)).unwrap();
        let says = "Results waited 4.00 s for the head of the line, 1.50 s of it for item 17, which cost 3.20 s of \
                    producer time (8 %); use `window(512)` if memory has room for its results, take results as they \
                    come (`UnorderedRunner`), or let a second producer copy items that are slow by chance \
                    (`speculate()`).";
        assert_eq!(sentence, says);
    }

    /// A window that is set does not grow, so a smaller one would cost more.
    #[test]
    fn no_window_is_advised_below_the_size_to_which_it_grows() {
        let grows = RunReport { window_limit: 4_096, ..run(0.1, 4.0, 1.0) };
        let sentence = sentence(&grows).unwrap();
        assert!(sentence.contains("use `window(4096)`"), "{sentence}");
    }

    #[test]
    fn a_head_that_cost_nothing_is_not_mentioned() {
        assert_eq!(sentence(&run(0.0, 4.0, 1.0)), None, "no producer lacked items");
        assert_eq!(sentence(&run(0.3, 0.0, 1.0)), None, "nothing was missing");
        assert_eq!(sentence(&run(0.3, 0.0, 0.0)), None, "the consumer was never there");
        assert_eq!(sentence(&run(0.3, 0.1, 9.0)), None, "the consumer filled the window");
    }

    #[test]
    fn no_window_is_advised_that_would_be_too_large() {
        let mut long = run(0.1, 4.0, 1.0);
        long.producers.iter_mut().for_each(|producer| producer.items = 1_000_000);
        let sentence = sentence(&long).unwrap();
        assert!(sentence.contains("; take results as they come"), "{sentence}");
    }
}

//! Sentences of a report.

use std::time::Duration;

use super::formats::{Count, LONGEST_TEXT, Many, Time, Times, clipped, item, part};
use super::run_report::RunReport;
use super::vocabulary::Vocabulary;
use crate::account::Ending;
use crate::failure::Failure;
use crate::producer_report::share;
use crate::run_report::NO_WINDOW;

/// A report names the batch sizes of this many producers.
const SIZES: usize = 16;

/// How the run ended, and its item counts.
pub(super) fn headline(report: &RunReport) -> String {
    let description = report.description.as_ref();
    let description =
        description.map_or(String::new(), |text| format!("{}: ", clipped(text, LONGEST_TEXT)));
    let account = report.account;
    let ending = match (report.ending, report.vocabulary) {
        (Ending::InProgress, _) if !report.has_begun() => {
            return format!("{description}no run yet");
        }
        // A pool of the Python package is in progress as long as it is open.
        (Ending::InProgress | Ending::Finished, Vocabulary::Workers) => {
            format!("{} in", Many(account.ok + account.failed, report.words().item))
        }
        (Ending::InProgress, _) => "in progress for".to_owned(),
        (Ending::Finished, _) => "finished in".to_owned(),
        (Ending::Failed, _) => "failed after".to_owned(),
        (Ending::Cancelled, _) => "cancelled after".to_owned(),
    };
    let mut text = format!(
        "{description}{ending} {}: {} ok, {} failed",
        Time(report.lasted),
        Count(account.ok),
        Count(account.failed)
    );
    for (count, name) in [
        (account.already_done, "already done"),
        (account.cancelled, "cancelled"),
        (account.unread.unwrap_or(0), "unread"),
    ] {
        if count > 0 {
            text.push_str(&format!(", {} {name}", Count(count)));
        }
    }
    text
}

/// One line each for the source, the consumer and the order.
pub(super) fn waits(report: &RunReport) -> Vec<String> {
    // In a pipeline, the window that holds the source back is that of the first stage.
    let window = report.stages.first().map_or(report.window, |stage| stage.report.window);
    let words = report.words();
    let mut waits = Vec::new();
    // A service has neither a source nor a consumer.
    if window != NO_WINDOW {
        waits.push(format!(
            "source: worked {}{}, held back {}; the {} has {}",
            Time(report.source_working),
            share_of(
                report,
                &format!(", named and measured {} for ", words.items),
                report.source_naming
            ),
            Time(report.source_waiting),
            words.window,
            Many(window.saturating_sub(report.findings.running), words.item),
        ));
        waits.push(format!(
            "{}: worked {}{}, waited {} without a result",
            words.consumer,
            Time(report.consumer_working),
            share_of(report, ", wrote the journal for ", report.journal_writing),
            Time(report.consumer_waiting),
        ));
    }
    if report.consumer_abandoned {
        let consumer = words.consumer;
        waits.push(format!("the {consumer} did not return in time: its thread was abandoned"));
    }
    if matters(report, report.head_stalled) {
        let stalled = Time(report.head_stalled);
        let item = words.item;
        waits.push(format!("order: later results waited {stalled} for one missing {item}"));
    }
    waits.extend(report.calls.and_then(|it| it.sentence()));
    waits.extend(report.copies.sentence(words));
    waits
}

/// Says how long something took, if it [matters].
fn share_of(report: &RunReport, what: &str, time: Duration) -> String {
    if matters(report, time) { format!("{what}{}", Time(time)) } else { String::new() }
}

/// Whether a time is at least 1 % of the run. Less is noise.
pub(super) fn matters(report: &RunReport, time: Duration) -> bool {
    share(time, report.lasted) >= 0.01
}

/// Summarises the retried items.
pub(super) fn retries(report: &RunReport) -> Option<String> {
    let retries = &report.retries;
    (retries.attempts > 0).then(|| {
        format!(
            "{} retried after {}: {} succeeded, {} failed",
            Many(retries.items, report.words().item),
            Many(retries.attempts, "failed attempt"),
            Count(retries.succeeded),
            Count(retries.failed),
        )
    })
}

/// Explains missing measurements per item.
pub(super) fn lack_of_events(report: &RunReport) -> Option<String> {
    // The Python package has no setting for it.
    if report.lacks_item_events() && report.vocabulary != Vocabulary::Workers {
        return Some(
            "No item events: call `.timeline()` on the builder to get latencies, slowest items and a timeline."
                .to_owned(),
        );
    }
    (report.events_lost > 0).then(|| {
        format!(
            "{} came too fast to be recorded: latencies, slowest {} and the timeline lack them.",
            Many(report.events_lost, report.words().item_event),
            report.words().items,
        )
    })
}

/// Explains missing keys in the list of stalls.
pub(super) fn lack_of_keys(report: &RunReport) -> Option<String> {
    let with_key = report.stalls.iter().filter(|stall| stall.key.is_some()).count();
    let is_mixed = (1..report.stalls.len()).contains(&with_key) && !report.lacks_item_events();
    let items = report.words().items;
    is_mixed.then(|| format!("Keys are kept for the longest waits and the slowest {items} only."))
}

/// Describes what a producer lost.
pub(super) fn losses(report: &RunReport, index: usize) -> Vec<String> {
    let producer = &report.producers[index];
    let name = format!("{} {index} ({})", report.words().producer, producer.place);
    // A state that was lost last has no rebuild, and one lost in an earlier run is rebuilt in this one.
    let lost = format!("lost its state {}", Times(producer.states_lost));
    let init = report.vocabulary.part("producer_init");
    let rebuilt = format!(
        "ran `{init}` again {}, for {}",
        Times(producer.rebuilds),
        Time(producer.rebuilding)
    );
    let states = match (producer.states_lost, producer.rebuilds) {
        (0, 0) => None,
        (_, 0) => Some(lost),
        (0, _) => Some(rebuilt),
        (..) => Some(format!("{lost} and {rebuilt}")),
    };
    let recycled = (producer.recycles > 0).then(|| {
        let (times, took) = (Times(producer.recycles), Time(producer.recycling));
        format!("recycled its state {times}, for {took}")
    });
    let replaced = (producer.replacements > 0)
        .then(|| format!("was replaced {}", Times(producer.replacements)));
    let why = producer.quarantined.as_ref().map(|reason| why(report, reason));
    let gone = match (producer.abandoned, why) {
        (true, why) => Some(format!("was abandoned with its thread{}", why.unwrap_or_default())),
        (false, why) => why.map(|why| format!("was taken out of service{why}")),
    };
    let worker = producer.worker.as_ref().and_then(|worker| worker.lost.as_ref());
    let worker = worker.map(|why| format!("was lost: {}", clipped(why, LONGEST_TEXT)));
    let memory = producer.batch_ceiling.map(|most| {
        let (most, items) = (Count(most), report.words().items);
        format!("had memory for batches of at most {most} ({items}, or cost or padded size if that is bounded)")
    });
    let losses = [states, recycled, replaced, gone, worker, memory].into_iter().flatten();
    losses.map(|loss| format!("{name} {loss}")).collect()
}

/// The batch sizes that were chosen: `cuda:0: 768 (3.10 ms + 110 µs an item), cuda:1: 41 (memory)`.
pub(super) fn batch_sizes(report: &RunReport) -> Option<String> {
    let words = report.words();
    let one = format!("{} {}", words.article, words.item);
    let chosen = report.producers.iter().filter_map(|it| Some((it, it.batch_size.as_ref()?)));
    let mut sizes: Vec<_> =
        chosen.map(|(it, choice)| format!("{}: {}", it.place, choice.text(&one))).collect();
    let more = sizes.len().saturating_sub(SIZES);
    sizes.truncate(SIZES);
    sizes.extend((more > 0).then(|| format!("and {more} more")));
    (!sizes.is_empty()).then(|| format!("Batch sizes: {}", sizes.join(", ")))
}

/// Gives the reason, or names the item if the list of failures has the reason.
fn why(report: &RunReport, reason: &str) -> String {
    let failure = report.failures.iter().find(|failure| failure.error == reason);
    match failure.and_then(|failure| failure.item) {
        Some(index) => format!(" when {} failed", item(report.words(), index, None, 0)),
        None => format!(": {}", clipped(reason, LONGEST_TEXT)),
    }
}

/// Names the item that failed, with a key of at most `key` characters.
pub(super) fn failed(report: &RunReport, failure: &Failure, key: usize) -> String {
    match failure.item {
        Some(index) => part(report.words(), index, failure.key.as_deref(), key, &failure.parts),
        None => "the run".to_owned(),
    }
}

/// Returns the reason of a failure, or its causes from the outermost. The text of the failure itself is not among them,
/// since the line has the item and the place. Nor is that of a part, which names the same place again, nor a cause that
/// the text before ends with.
pub(super) fn errors(failure: &Failure) -> Vec<&str> {
    if let Some(reason) = &failure.reason {
        return vec![reason];
    }
    let mut errors: Vec<&str> = Vec::new();
    let is_of_part = !failure.parts.is_empty() && failure.causes.len() > 1;
    for text in failure.causes.iter().skip(usize::from(is_of_part)) {
        if !errors.last().is_some_and(|last| last.ends_with(text.as_str())) {
            errors.push(text);
        }
    }
    if errors.is_empty() {
        errors.push(&failure.error);
    }
    errors
}

/// Names the hook or the input, if one of them failed, and the stage, device and attempts of a failure.
pub(super) fn site(report: &RunReport, failure: &Failure) -> String {
    let hook = failure.hook.as_deref().or(failure.reason.is_none().then_some("input"));
    let mut site = hook.map_or_else(String::new, |it| format!("in {}", report.vocabulary.part(it)));
    if let Some(stage) = &failure.stage {
        site.push_str(&format!(" of {stage}"));
    }
    if let Some(device) = &failure.device {
        site.push_str(&format!(" on {device}"));
    }
    if failure.attempts > 1 {
        site.push_str(&format!(", {} attempts", failure.attempts));
    }
    site.trim_start_matches([' ', ',']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::PlayedRun;

    #[test]
    fn a_cause_is_given_once() {
        let errors = |causes: &[&str]| {
            let causes = causes.iter().map(|&text| text.to_owned()).collect();
            let failure = Failure { causes, error: "it failed".to_owned(), ..Failure::default() };
            errors(&failure).join(": ")
        };
        assert_eq!(errors(&[]), "it failed");
        assert_eq!(errors(&["bad"]), "bad");
        assert_eq!(errors(&["reading x", "no such file"]), "reading x: no such file");
        assert_eq!(errors(&["open x: no such file", "no such file"]), "open x: no such file");
        let nested = ["a: b: c", "b: c", "c", "d"];
        assert_eq!(errors(&nested), "a: b: c: d");
    }

    #[test]
    fn what_never_happened_is_not_said() {
        for (states_lost, rebuilds, expected) in [
            (0, 0, None),
            (1, 0, Some("producer 0 (cuda:0) lost its state once")),
            (0, 2, Some("producer 0 (cuda:0) ran `producer_init` again 2 times, for 1.00 s")),
            (
                2,
                1,
                Some(
                    "producer 0 (cuda:0) lost its state 2 times and ran `producer_init` again once, for 1.00 s",
                ),
            ),
        ] {
            let mut report = PlayedRun::new(1).end(1_000);
            let producer = &mut report.producers[0];
            (producer.states_lost, producer.rebuilds) = (states_lost, rebuilds);
            producer.rebuilding = Duration::from_secs(1);
            assert_eq!(losses(&report, 0).first().map(String::as_str), expected);
        }
    }

    #[test]
    fn a_service_has_neither_source_nor_consumer() {
        let mut played = PlayedRun::new(1);
        played.totals.window = 3;
        let run = played.end(1_000);
        assert!(waits(&run)[0].starts_with("source: worked"), "{run}");
        played.totals.window = NO_WINDOW;
        let service = played.end(1_000);
        assert_eq!(waits(&service), Vec::<String>::new());
        assert!(!service.to_string().contains("consumer"), "{service}");
        for part in ["for the source", "room in the"] {
            assert!(run.to_html().contains(part) && !service.to_html().contains(part), "{part}");
        }
    }

    #[test]
    fn the_account_has_every_count() {
        let mut played = PlayedRun::new(1);
        played.totals.account.cancelled = 2;
        played.totals.account.unread = Some(1_000);
        played.consume(10, 5);
        let report = played.end(1_000);
        let expected = "finished in 1.00 ms: 5 ok, 0 failed, 2 cancelled, 1,000 unread";
        assert_eq!(headline(&report), expected);
        assert_eq!(RunReport::default().to_string(), "no run yet\n");
    }
}

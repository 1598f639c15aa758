//! Follows the advice of a conclusion, as a user would.

use gangline::report::Bottleneck;
use gangline::{Batch, Order, Result, RunReport};
use serde::Deserialize;

use crate::setup::{Faults, Place, Pools, Setup};

/// What JSON has of a report's advice.
#[derive(Deserialize)]
struct Advice {
    #[serde(default)]
    advice: Vec<AdvisedValue>,
}

#[derive(Deserialize)]
struct AdvisedValue {
    setting: String,
    value: Option<usize>,
}

/// Follows the first advice of the conclusion that changes something. Returns that advice, and the changed setup.
///
/// Advice without a value is read from the text. It comes before the settings, which are read from JSON. Their numbers are
/// taken as they are, but there are at most `most` producers.
pub(crate) fn follow(
    report: &RunReport,
    setup: &Setup,
    most: usize,
) -> Result<Option<(String, Setup)>> {
    let text = report.conclusion.as_str();
    let mut phrases: Vec<_> = PHRASES
        .iter()
        .filter_map(|(phrase, does)| Some((text.find(phrase)?, *phrase, does)))
        .collect();
    phrases.sort_by_key(|(at, ..)| *at);
    let in_text = |(_, phrase, does): (_, &str, &Does)| {
        Some((phrase.to_owned(), does(report.bottleneck, setup, most)?))
    };
    if let Some(followed) = phrases.into_iter().find_map(in_text) {
        return Ok(Some(followed));
    }
    let Advice { advice } = serde_json::from_str(&report.to_json())?;
    let in_json = |it: &AdvisedValue| {
        let value = it.value.map_or(String::new(), |value| format!("({value})"));
        Some((format!("`{}{value}`", it.setting), set(it, setup, most)?))
    };
    Ok(advice.iter().find_map(in_json))
}

/// Applies a setting. `None` if it is the present one.
fn set(advised: &AdvisedValue, setup: &Setup, most: usize) -> Option<Setup> {
    let mut next = setup.clone();
    match (advised.setting.as_str(), advised.value) {
        ("devices", Some(number)) => next.producers = number.min(most),
        ("window", value) => next.window = value,
        ("window_memory", value) => next.window_memory = value,
        ("batch", Some(number)) => next.batch = Some(Batch::up_to(number)),
        ("auto_batch", None) => next.batch = Some(Batch::auto()),
        ("recycle_after", Some(number)) => next.recycle_after = Some(number as u64),
        ("completion_order", None) => next.order = Order::Completion,
        ("speculate", None) => next.speculates = true,
        (other, value) => panic!("{other} with {value:?} is no setting"),
    }
    changed(setup, next)
}

type Does = fn(Bottleneck, &Setup, usize) -> Option<Setup>;

/// Advice that names no setting with a value.
const PHRASES: [(&str, Does); 7] = [
    ("to `producer_work`", |bottleneck, setup, _| {
        let mut next = setup.clone();
        let part = match bottleneck {
            Bottleneck::Source => &mut next.read,
            _ => &mut next.write,
        };
        if part.1 == Place::Own {
            part.1 = Place::Producers;
        }
        changed(setup, next)
    }),
    ("long items first", |_, setup, _| {
        changed(setup, Setup { longest_first: true, ..setup.clone() })
    }),
    ("`backoff` shorter", |_, setup, _| {
        changed(setup, Setup { backoff: setup.backoff / 4, ..setup.clone() })
    }),
    ("why items fail", |_, setup, _| {
        let faults = match setup.faults {
            Faults::Mendable => Faults::Mended,
            faults => faults,
        };
        changed(setup, Setup { faults, ..setup.clone() })
    }),
    ("return an error instead", |_, setup, _| {
        let faults = match setup.faults {
            Faults::Panic => Faults::Lasting,
            faults => faults,
        };
        changed(setup, Setup { faults, ..setup.clone() })
    }),
    ("use one pool", |_, setup, _| changed(setup, Setup { pools: Pools::One, ..setup.clone() })),
    ("before the run", |_, setup, _| {
        let consumer_init = (setup.consumer_init.0, Place::Producers);
        changed(setup, Setup { consumer_init, ..setup.clone() })
    }),
];

fn changed(setup: &Setup, next: Setup) -> Option<Setup> {
    (next != *setup).then_some(next)
}

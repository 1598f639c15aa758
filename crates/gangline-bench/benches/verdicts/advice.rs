//! Follows the advice of a conclusion, as a user would.

use gangline::report::Bottleneck;
use gangline::{Batch, Order, RunReport};

use crate::setup::{Faults, Place, Pools, Setup};

/// Follows the first advice of the conclusion that changes something. Returns that advice, and the changed setup.
///
/// A number in the text is taken as it is, but there are at most `most` producers.
pub(crate) fn follow(report: &RunReport, setup: &Setup, most: usize) -> Option<(String, Setup)> {
    let text = report.conclusion.as_str();
    let mut advices: Vec<(usize, String, Setup)> = codes(text)
        .filter_map(|(at, code)| Some((at, code.to_owned(), set(code, setup, most)?)))
        .collect();
    advices.extend(PHRASES.iter().filter_map(|(phrase, does)| {
        let at = text.find(phrase)?;
        let next = does(report.bottleneck, setup, most)?;
        Some((at, (*phrase).to_owned(), next))
    }));
    let (_, advice, next) = advices.into_iter().min_by_key(|(at, ..)| *at)?;
    Some((advice, next))
}

/// Returns the parts of the text in backquotes, with their positions.
fn codes(text: &str) -> impl Iterator<Item = (usize, &str)> {
    let at = |part: &str| part.as_ptr() as usize - text.as_ptr() as usize;
    text.split('`').skip(1).step_by(2).map(move |code| (at(code), code))
}

/// Applies a setting such as `window(64)`. `None` if it is none, or is the present one.
fn set(code: &str, setup: &Setup, most: usize) -> Option<Setup> {
    let (name, value) = code.strip_suffix(')')?.split_once('(')?;
    let number: Option<usize> = value.replace(',', "").parse().ok();
    let mut next = setup.clone();
    match (name, number, value) {
        ("devices", Some(number), _) => next.producers = number.min(most),
        ("window", Some(number), _) => next.window = Some(number),
        ("window_memory", Some(number), _) => next.window_memory = Some(number),
        ("recycle_after", Some(number), _) => next.recycle_after = Some(number as u64),
        ("batch", _, "Batch::auto()") => next.batch = Some(Batch::auto()),
        ("batch", _, value) => {
            let number = value.strip_prefix("Batch::up_to(")?.strip_suffix(')')?.parse().ok()?;
            next.batch = Some(Batch::up_to(number));
        }
        ("speculate", ..) => next.speculates = true,
        _ => return None,
    }
    changed(setup, next)
}

type Does = fn(Bottleneck, &Setup, usize) -> Option<Setup>;

/// Advice that names no setting with a value.
const PHRASES: [(&str, Does); 8] = [
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
    ("`UnorderedRunner`", |_, setup, _| {
        changed(setup, Setup { order: Order::Completion, ..setup.clone() })
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

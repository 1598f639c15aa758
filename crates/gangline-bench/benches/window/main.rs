//! Measures what order costs with items of uneven durations: `cargo bench -p gangline-bench --bench window`.
//!
//! Items sleep. Each figure is a share of the rate that no overhead at all would allow: list scheduling of the same
//! durations in virtual time, where each item goes to the producer that is free first, in any order. It is the median of
//! three rounds, in which the ways take turns.
//!
//! `-- --out docs/performance` draws the plot, `-- --quick` takes one round of a third of the items, and
//! `-- --durations exponential` measures these only.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

#[path = "../chart/mod.rs"]
#[expect(dead_code, reason = "other benchmarks draw with other colours")]
mod chart;
mod durations;
mod plot;

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use gangline::{AnyOrderRunner, BoxError, Order, Runner, map};

use crate::durations::{ALL, Durations};

/// The mean duration of an item.
const MEAN: Duration = Duration::from_millis(20);
const PRODUCERS: [usize; 3] = [2, 8, 64];
/// The items of each producer, on average.
const EACH: usize = 150;

/// How results are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Way {
    Ordered,
    /// In order, with a window that the user chose.
    OrderedWide,
    Unordered,
}

pub(crate) const WAYS: [Way; 3] = [Way::Ordered, Way::OrderedWide, Way::Unordered];

/// The shares of one kind of durations on one number of producers, one for each way.
pub(crate) struct Row {
    pub(crate) durations: Durations,
    pub(crate) producers: usize,
    pub(crate) shares: [f64; 3],
}

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    each: usize,
    mean: Duration,
}

fn main() -> Result<(), BoxError> {
    let arguments: Vec<String> = std::env::args().collect();
    let has = |name: &str| arguments.iter().any(|argument| argument == name);
    let effort = match (has("--bench"), has("--quick")) {
        (true, false) => Effort { rounds: 3, each: EACH, mean: MEAN },
        (true, true) => Effort { rounds: 1, each: EACH / 3, mean: MEAN },
        // Without it `cargo test` asks only whether the program works.
        (false, _) => Effort { rounds: 1, each: 2, mean: Duration::from_millis(1) },
    };
    println!("| durations | producers | ordered | ordered, `window(512)` | unordered |");
    println!("|---|---:|---:|---:|---:|");
    let mut rows = vec![];
    let value_of = |name: &str| arguments.iter().skip_while(|argument| *argument != name).nth(1);
    let only = value_of("--durations");
    for durations in ALL {
        if only.is_some_and(|only| *only != durations.to_string()) {
            continue;
        }
        for producers in PRODUCERS {
            let row = measured(durations, producers, effort)?;
            let [ordered, wide, unordered] = row.shares;
            println!("| {durations} | {producers} | {ordered:.3} | {wide:.3} | {unordered:.3} |");
            rows.push(row);
        }
    }
    if rows.is_empty() {
        return Err(format!(
            "no durations are called {only:?}; there are {}",
            ALL.map(|it| it.to_string()).join(", ")
        )
        .into());
    }
    match value_of("--out") {
        // Cargo starts benchmarks in the folder of their package.
        Some(folder) => plot::draw_rows(&rows, &PathBuf::from("../..").join(folder)),
        None => Ok(()),
    }
}

fn measured(durations: Durations, producers: usize, effort: Effort) -> Result<Row, BoxError> {
    let items = durations.items(producers * effort.each, effort.mean);
    let limit = limit(&items, producers);
    let mut times = [const { Vec::new() }; 3];
    for _ in 0..effort.rounds {
        for (times, way) in times.iter_mut().zip(WAYS) {
            times.push(run(way, producers, &items)?);
        }
    }
    let share = |mut times: Vec<Duration>| {
        times.sort();
        limit.as_secs_f64() / times[times.len() / 2].as_secs_f64()
    };
    Ok(Row { durations, producers, shares: times.map(share) })
}

/// The time that these items need at least if they are begun in their order: each on the producer that is free first.
fn limit(items: &[Duration], producers: usize) -> Duration {
    let mut free_at = vec![Duration::ZERO; producers];
    for &item in items {
        let first = free_at.iter_mut().min().expect("there are producers");
        *first += item;
    }
    free_at.into_iter().max().expect("there are producers")
}

fn run(way: Way, producers: usize, items: &[Duration]) -> Result<Duration, BoxError> {
    let builder = AnyOrderRunner::builder(sleeping()).devices(producers);
    let builder = match way {
        Way::Ordered => builder.order(Order::Input),
        Way::OrderedWide => builder.order(Order::Input).window(512),
        Way::Unordered => builder.order(Order::Completion),
    };
    let mut pool = builder.build()?;
    let since = Instant::now();
    let count = pool.run(items.iter().copied())?;
    let took = since.elapsed();
    assert_eq!(count, items.len(), "every item is consumed once");
    pool.close()?;
    Ok(took)
}

fn sleeping() -> impl Runner<Input = Duration, Output = (), Summary = usize> {
    let sleep = |_: &gangline::ProducerContext<'_>, (): &mut (), item: Duration| {
        thread::sleep(item);
        Ok(())
    };
    map(|_| Ok(()), sleep).fold(
        |_| Ok(0_usize),
        |_, count, ()| {
            *count += 1;
            Ok(())
        },
    )
}

//! Items of very different length: are the producers busy until the end?

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::sync::Arc;
use std::time::Duration;

use gangline::{BoxError, map};

use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, Report, Table, grouped, time};
use crate::subject::Outcome;
use crate::work::Work;

/// The exponent of the distribution: a few items make up much of the whole.
const SHAPE: f64 = 1.5;
const SHORTEST: Duration = Duration::from_micros(10);

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Skewed work");
    let items = options.effort.part_of(20_000);
    let works: Arc<[Work]> = pareto(items, options.effort.work(SHORTEST)).into();
    let sum = sum_in_a_loop(&works);
    let mut alone = Duration::MAX;
    let mut makespans = Gang::DEFAULTS.map(|gang| (gang, Duration::MAX));
    for _ in 0..options.rounds {
        alone = alone.min(Outcome::of(|| sum_in_a_loop(&works)).elapsed);
        for (gang, least) in &mut makespans {
            *least = makespan(*gang, options.threads, &works, sum).min(*least);
        }
    }
    let best = best_makespan(&works, alone, options.threads);
    let mut table =
        Table::new([format!("{} Pareto-distributed items", grouped(items)), String::new()]);
    table.row(["plain loop".to_owned(), time(alone)]);
    table.row(["the best possible".to_owned(), time(best)]);
    for (gang, makespan) in makespans {
        table.row([gang.name().to_owned(), time(makespan)]);
        let what = format!("skewed work, {}: the best possible, and 5 %", gang.name());
        report.promise(Promise::at_most(what, best.mul_f64(1.05), makespan));
    }
    report.table(&table);
    Ok(())
}

/// Each item goes to the producer that is free first, and nothing else takes time. The works' own times
/// are their share of what the plain loop takes for all.
fn best_makespan(works: &[Work], alone: Duration, threads: usize) -> Duration {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..threads).map(|_| Reverse(0)).collect();
    for work in works {
        let Reverse(start) = free_at.pop().expect("there is a producer");
        free_at.push(Reverse(start + work.steps()));
    }
    let last = free_at.into_iter().map(|Reverse(end)| end).max().expect("there is a producer");
    let all: u64 = works.iter().map(|work| work.steps()).sum();
    alone.mul_f64(last as f64 / all as f64)
}

fn makespan(gang: Gang, threads: usize, works: &Arc<[Work]>, expected: u64) -> Duration {
    let works = Arc::clone(works);
    let items = 0..works.len();
    let runner = map(|_| Ok(()), move |_, _, x: usize| Ok(works[x].on(x as u64))).fold(
        |_| Ok(0_u64),
        |_, sum, y| {
            *sum = sum.wrapping_add(y);
            Ok(())
        },
    );
    let mut pool = gang.build(runner, threads).expect("no hook of it fails");
    let outcome = Outcome::of(|| pool.run(items).expect("no hook of it fails"));
    assert_eq!(outcome.sum, expected, "the sum of {}", gang.name());
    outcome.elapsed
}

fn sum_in_a_loop(works: &[Work]) -> u64 {
    works.iter().zip(0..).fold(0, |sum: u64, (work, x)| sum.wrapping_add(work.on(x)))
}

/// The same at every run.
fn pareto(items: u64, shortest: Work) -> Vec<Work> {
    let shortest = shortest.steps() as f64;
    // Twice, with a mix between: the multiples of a number alone would be spread too evenly.
    let draw = Work::of_steps(1);
    let mixed = |x| draw.on(x) ^ (draw.on(x) >> 32);
    let uniform = |x| (draw.on(mixed(x)) >> 11) as f64 / (1_u64 << 53) as f64;
    let stretch = |x| (1.0 - uniform(x)).powf(-1.0 / SHAPE);
    (0..items).map(|x| Work::of_steps((shortest * stretch(x)) as u64)).collect()
}

//! Measures how busy producers stay if items differ greatly in length.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::iter;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use gangline::{AnyOrderRunner, BoxError, Runner, map};

use crate::contest::Heats;
use crate::gangs::Gang;
use crate::options::Options;
use crate::report::{Promise, Report, Table, grouped, time};
use crate::subject::Outcome;
use crate::work::Work;

/// The exponent of the distribution: a few items make up much of the total.
const SHAPE: f64 = 1.5;
const SHORTEST: Duration = Duration::from_micros(10);
/// The positions of the peers among the subjects; gangline's runs follow.
const LOOP: usize = 0;
const COUNTER: usize = 1;

pub fn measure(options: &Options, report: &mut Report) -> Result<(), BoxError> {
    report.heading("Skewed work");
    let items = options.effort.part_of(20_000);
    let works: Arc<[Work]> = pareto(items, options.effort.work(SHORTEST)).into();
    let sum = sum_in_a_loop(&works);
    let mut pools = Gang::DEFAULTS.map(|gang| start(gang, options.threads, &works));
    let heats = Heats::of(options.rounds, || {
        let seconds = |elapsed: Duration| elapsed.as_secs_f64();
        let [first, second] = pools.each_mut().map(|pool| makespan(pool, works.len(), sum));
        [
            Outcome::of(|| sum_in_a_loop(&works)).elapsed,
            Outcome::of(|| draw_from_a_counter(&works, options.threads)).elapsed,
            first,
            second,
        ]
        .map(seconds)
    });
    let least = |nth| time(Duration::from_secs_f64(heats.least(nth)));
    let beside = |nth| format!("{:.2} ×", 1.0 / heats.ratio(nth, COUNTER));
    let mut table = Table::new([
        format!("{} Pareto-distributed items", grouped(items)),
        "least".to_owned(),
        "of the counter's time".to_owned(),
    ]);
    let share = best_share(&works, options.threads);
    let ideal = Duration::from_secs_f64(heats.least(LOOP) * share);
    table.row(["plain loop".to_owned(), least(LOOP), beside(LOOP)]);
    table.row(["simulated: the same cores, nothing else".to_owned(), time(ideal), String::new()]);
    table.row(["threads that draw from a counter".to_owned(), least(COUNTER), beside(COUNTER)]);
    for (gang, nth) in Gang::DEFAULTS.into_iter().zip(COUNTER + 1..) {
        table.row([gang.name().to_owned(), least(nth), beside(nth)]);
        let what = format!("skewed work, {}: what a bare counter takes, and 5 %", gang.name());
        report.promise(Promise::at_most_times(what, 1.05, 1.0 / heats.ratio(nth, COUNTER)));
    }
    report.table(&table);
    Ok(())
}

/// The best result of pull scheduling, as a share of the plain loop's time. Each item goes to the first free
/// producer, at no other cost, and takes its share of the total.
fn best_share(works: &[Work], threads: usize) -> f64 {
    let mut free_at: BinaryHeap<Reverse<u64>> = (0..threads).map(|_| Reverse(0)).collect();
    for work in works {
        let Reverse(start) = free_at.pop().expect("there is a producer");
        free_at.push(Reverse(start + work.steps()));
    }
    let last = free_at.into_iter().map(|Reverse(end)| end).max().expect("there is a producer");
    let all: u64 = works.iter().map(|work| work.steps()).sum();
    last as f64 / all as f64
}

/// The best result of pull scheduling on this machine now: threads that draw indices from a counter, without
/// handing anything over.
fn draw_from_a_counter(works: &[Work], threads: usize) -> u64 {
    let next = AtomicUsize::new(0);
    let draw = &|| {
        let indices = iter::repeat_with(|| next.fetch_add(1, Ordering::Relaxed));
        let drawn = indices.map_while(|index| Some((index as u64, works.get(index)?)));
        drawn.fold(0, |sum: u64, (x, work)| sum.wrapping_add(work.on(x)))
    };
    thread::scope(|scope| {
        let threads: Vec<_> = (0..threads).map(|_| scope.spawn(draw)).collect();
        let sums = threads.into_iter().map(|thread| thread.join().expect("it only adds"));
        sums.fold(0, u64::wrapping_add)
    })
}

/// One pool serves all rounds, so its threads are started before the clock.
fn start(
    gang: Gang,
    threads: usize,
    works: &Arc<[Work]>,
) -> AnyOrderRunner<impl Runner<Input = usize, Summary = u64> + use<>> {
    let works = Arc::clone(works);
    let runner = map(|_| Ok(()), move |_, _, x: usize| Ok(works[x].on(x as u64))).fold(
        |_| Ok(0_u64),
        |_, sum, y| {
            *sum = sum.wrapping_add(y);
            Ok(())
        },
    );
    gang.build(runner, threads).expect("the hooks never fail")
}

fn makespan(
    pool: &mut AnyOrderRunner<impl Runner<Input = usize, Summary = u64> + 'static>,
    items: usize,
    expected: u64,
) -> Duration {
    let outcome = Outcome::of(|| pool.run(0..items).expect("the hooks never fail"));
    assert_eq!(outcome.sum, expected, "the sum of gangline");
    outcome.elapsed
}

fn sum_in_a_loop(works: &[Work]) -> u64 {
    works.iter().zip(0..).fold(0, |sum: u64, (work, x)| sum.wrapping_add(work.on(x)))
}

/// Deterministic.
fn pareto(items: u64, shortest: Work) -> Vec<Work> {
    let shortest = shortest.steps() as f64;
    // Hashed twice: multiples of a number alone would be spread too evenly.
    let draw = Work::of_steps(1);
    let mixed = |x| draw.on(x) ^ (draw.on(x) >> 32);
    let uniform = |x| (draw.on(mixed(x)) >> 11) as f64 / (1_u64 << 53) as f64;
    let stretch = |x| (1.0 - uniform(x)).powf(-1.0 / SHAPE);
    (0..items).map(|x| Work::of_steps((shortest * stretch(x)) as u64)).collect()
}

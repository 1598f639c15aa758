//! Measures pipelines against their bounds: `cargo bench -p gangline-bench --bench pipelines`.
//!
//! - Two stages of one producer, 1 us of work per item each, against the slower of the two alone.
//! - A million parts of one parent, expanded and gathered, against a million items through one stage and
//!   through two.
//!
//! Each figure is the median of [`ROUNDS`] rounds, in which the variants take turns.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline::{OrderedRunner, Result, Runner, map};

const ROUNDS: usize = 9;
const ITEMS: u64 = 1_000_000;
const WORK: Duration = Duration::from_micros(1);

fn main() -> Result<()> {
    two_stages()?;
    expansion()
}

/// Works for 1 us without giving the processor away.
fn spin(x: u64) -> Result<u64> {
    let since = Instant::now();
    while since.elapsed() < WORK {
        std::hint::spin_loop();
    }
    Ok(x)
}

fn sum(work: fn(u64) -> Result<u64>) -> impl Runner<Input = u64, Output = u64, Summary = u64> {
    map(|_| Ok(()), move |_, (), x: u64| work(x)).fold(
        |_| Ok(0_u64),
        |_, sum, y| {
            *sum = sum.wrapping_add(y);
            Ok(())
        },
    )
}

fn two_stages() -> Result<()> {
    let mut alone = OrderedRunner::new(sum(spin), 1)?;
    let mut first = OrderedRunner::new(sum(spin), 1)?;
    let mut second = OrderedRunner::new(sum(spin), 1)?;
    let (mut bound, mut piped) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        bound.push(time(|| Ok(alone.run(0..ITEMS)?))?);
        piped.push(time(|| Ok(first.then(&mut second).run(0..ITEMS)?))?);
    }
    let (bound, piped) = (median(bound), median(piped));
    // The work itself: what no pipeline can be faster than.
    let least = WORK.as_secs_f64() * ITEMS as f64;
    println!(
        "two stages of 1 us: {piped:.3} s; one of them alone: {bound:.3} s; its work: {least:.3} s"
    );
    println!("  {:.2} of the rate of the slower stage alone", bound / piped);
    Ok(())
}

fn expansion() -> Result<()> {
    let pass = || map(|_| Ok(()), |_, (), x: u64| Ok(x));
    let mut open = OrderedRunner::new(pass(), 1)?;
    let mut parts = OrderedRunner::new(pass(), 1)?;
    let last = || {
        let of_parent = map(|_| Ok(()), |_, (), (_, sum): (Arc<u64>, u64)| Ok(sum));
        of_parent.fold(
            |_| Ok(0_u64),
            |_, sum, y| {
                *sum = sum.wrapping_add(y);
                Ok(())
            },
        )
    };
    let mut write = OrderedRunner::new(last(), 1)?;
    let mut end = OrderedRunner::new(sum(Ok), 1)?;
    let (mut items, mut expanded) = (vec![], vec![]);
    for _ in 0..ROUNDS {
        items.push(time(|| Ok(parts.then(&mut end).run(0..ITEMS)?))?);
        let gathered = || {
            let pipeline = open.expand(|n| 0..**n).then(&mut parts);
            let pipeline = pipeline.gather(|_| 0, |sum: &mut u64, _, x| *sum = sum.wrapping_add(x));
            Ok(pipeline.then(&mut write).run([ITEMS])?)
        };
        expanded.push(time(gathered)?);
    }
    let (items, expanded) = (median(items), median(expanded));
    let single = {
        let times = (0..ROUNDS).map(|_| time(|| Ok(parts.run(0..ITEMS)?.len() as u64)));
        median(times.collect::<Result<_>>()?)
    };
    println!("a million items: {single:.3} s; through two stages: {items:.3} s");
    println!("a million parts, expanded and gathered: {expanded:.3} s");
    println!("  {:.2} of the hand-over of items through two stages", expanded / items);
    println!("  {:.2} of the hand-over of items through one stage", expanded / single);
    println!("  {:.0} ns per part", expanded * 1e9 / ITEMS as f64);
    Ok(())
}

fn time(run: impl FnOnce() -> Result<u64>) -> Result<f64> {
    let since = Instant::now();
    black_box(run()?);
    Ok(since.elapsed().as_secs_f64())
}

fn median(mut times: Vec<f64>) -> f64 {
    times.sort_unstable_by(f64::total_cmp);
    times[times.len() / 2]
}

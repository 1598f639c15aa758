//! Measures pipelines against their bounds: `cargo bench -p gangline-bench --bench pipelines`.
//!
//! - The peak memory of a million parents, and of a million parts.
//! - Two stages of one producer, 1 us of work per item each, against the slower of the two alone.
//! - A million parts of one parent, expanded and gathered, against a million items through one stage and
//!   through two. A part should take at most 1.2 times as long as an item of one stage, and 100 ns for the gathering.
//! - As many parts of a thousand parents: at most 100 ns each.
//! - The outputs of a pool, taken one by one, against a run: at most 100 ns each.
//!
//! Each figure is the median of nine rounds, in which the variants take turns.

#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline::{OrderedRunner, Pipeline, Result, Runner, map};

const WORK: Duration = Duration::from_micros(1);

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    items: u64,
}

fn main() -> Result<()> {
    // Without it `cargo test` asks only whether the program works.
    let effort = match std::env::args().any(|argument| argument == "--bench") {
        true => Effort { rounds: 9, items: 1_000_000 },
        false => Effort { rounds: 1, items: 1_000 },
    };
    // First, since the peak is that of the whole process.
    memory(effort)?;
    two_stages(effort)?;
    expansion(effort)?;
    parents(effort)?;
    outputs(effort)
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

fn pass() -> impl Runner<Input = u64, Output = u64, Summary = Vec<u64>> {
    map(|_| Ok(()), |_, (), x: u64| Ok(x))
}

/// Sums what is gathered.
fn last() -> impl Runner<Input = (Arc<u64>, u64), Output = u64, Summary = u64> {
    map(|_| Ok(()), |_, (), (_, sum): (Arc<u64>, u64)| Ok(sum)).fold(
        |_| Ok(0_u64),
        |_, sum, y| {
            *sum = sum.wrapping_add(y);
            Ok(())
        },
    )
}

fn memory(Effort { items, .. }: Effort) -> Result<()> {
    let mut open = OrderedRunner::new(pass(), 1)?;
    let mut parts = OrderedRunner::new(pass(), 1)?;
    let mut write = OrderedRunner::new(last(), 1)?;
    let mut peak = |parents: u64, each: u64| -> Result<String> {
        let pipeline = Pipeline::new(&mut open).expand(move |_| 0..each).then(&mut parts);
        let pipeline = pipeline.gather(|_| 0, |sum: &mut u64, _, _, x| *sum = sum.wrapping_add(x));
        pipeline.then(&mut write).run(0..parents)?;
        Ok(own_peak())
    };
    let few = peak(items / 100, 1)?;
    let (parents, parts) = (peak(items, 1)?, peak(1, items)?);
    println!("peak memory of {} parents of one part: {few}", items / 100);
    println!("  then of {items}: {parents}; then of {items} parts of one parent: {parts}");
    Ok(())
}

/// What Linux says about the peak of this process.
fn own_peak() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |line| line.trim().to_owned())
}

fn two_stages(Effort { rounds, items }: Effort) -> Result<()> {
    let mut alone = OrderedRunner::new(sum(spin), 1)?;
    let mut first = OrderedRunner::new(sum(spin), 1)?;
    let mut second = OrderedRunner::new(sum(spin), 1)?;
    let (mut bound, mut piped) = (vec![], vec![]);
    for _ in 0..rounds {
        bound.push(time(|| Ok(alone.run(0..items)?))?);
        piped.push(time(|| Ok(Pipeline::new(&mut first).then(&mut second).run(0..items)?))?);
    }
    let (bound, piped) = (median(bound), median(piped));
    // The work itself: what no pipeline can be faster than.
    let least = WORK.as_secs_f64() * items as f64;
    println!(
        "two stages of 1 us: {piped:.3} s; one of them alone: {bound:.3} s; its work: {least:.3} s"
    );
    println!("  {:.2} of the rate of the slower stage alone", bound / piped);
    Ok(())
}

fn expansion(Effort { rounds, items: count }: Effort) -> Result<()> {
    let mut open = OrderedRunner::new(pass(), 1)?;
    let mut parts = OrderedRunner::new(pass(), 1)?;
    let mut write = OrderedRunner::new(last(), 1)?;
    let mut end = OrderedRunner::new(sum(Ok), 1)?;
    let (mut items, mut expanded) = (vec![], vec![]);
    for _ in 0..rounds {
        items.push(time(|| Ok(Pipeline::new(&mut parts).then(&mut end).run(0..count)?))?);
        let gathered = || {
            let pipeline = Pipeline::new(&mut open).expand(|n| 0..**n).then(&mut parts);
            let pipeline =
                pipeline.gather(|_| 0, |sum: &mut u64, _, _, x| *sum = sum.wrapping_add(x));
            Ok(pipeline.then(&mut write).run([count])?)
        };
        expanded.push(time(gathered)?);
    }
    let (items, expanded) = (median(items), median(expanded));
    let single = {
        let times = (0..rounds).map(|_| time(|| Ok(parts.run(0..count)?.len() as u64)));
        median(times.collect::<Result<_>>()?)
    };
    println!("items: {single:.3} s; through two stages: {items:.3} s");
    println!("as many parts of one parent, expanded and gathered: {expanded:.3} s");
    println!("  {:.2} of the hand-over of items through two stages", expanded / items);
    println!("  {:.2} of the hand-over of items through one stage", expanded / single);
    let part = |seconds: f64| seconds * 1e9 / count as f64;
    println!("  {:.0} ns per part; an item of one stage {:.0} ns", part(expanded), part(single));
    Ok(())
}

fn parents(Effort { rounds, items }: Effort) -> Result<()> {
    let mut open = OrderedRunner::new(pass(), 1)?;
    let mut parts = OrderedRunner::new(pass(), 1)?;
    let mut write = OrderedRunner::new(last(), 1)?;
    let (parents, each) = (1_000.min(items / 10), items / 1_000.min(items / 10));
    let times = (0..rounds).map(|_| {
        time(|| {
            let pipeline = Pipeline::new(&mut open).expand(move |_| 0..each).then(&mut parts);
            let pipeline =
                pipeline.gather(|_| 0, |sum: &mut u64, _, _, x| *sum = sum.wrapping_add(x));
            Ok(pipeline.then(&mut write).run(0..parents)?)
        })
    });
    let seconds = median(times.collect::<Result<_>>()?);
    println!(
        "{each} parts of each of {parents} parents: {:.0} ns per part",
        seconds * 1e9 / items as f64
    );
    Ok(())
}

fn outputs(Effort { rounds, items }: Effort) -> Result<()> {
    let mut pool = OrderedRunner::new(sum(Ok), 2)?;
    let (mut run, mut taken) = (vec![], vec![]);
    for _ in 0..rounds {
        run.push(time(|| Ok(pool.run(0..items)?))?);
        taken.push(time(|| {
            let mut outputs = pool.outputs(0..items);
            Ok(outputs.try_fold(0_u64, |sum, output| output.map(|y| sum.wrapping_add(y)))?)
        })?);
    }
    let each = |times: Vec<f64>| median(times) * 1e9 / items as f64;
    println!("outputs: {:.0} ns each; an item of a run {:.0} ns", each(taken), each(run));
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

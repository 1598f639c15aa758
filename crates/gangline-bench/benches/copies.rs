//! Measures what copies of slow items save: `cargo bench -p gangline-bench --bench copies`.
//!
//! - Runs of 1,000 items of 20 ms on eight producers, where one attempt in 100 takes 1 s whatever the item: the time
//!   with and without `speculate()`, over that of the same run without slow attempts.
//! - Reads of 100 values from a service of 50 producers, where one attempt in 50,000 hangs for 1.8 s: percentiles of the
//!   time until a read has all its values. This is the experiment of "The tail at scale" (Dean and Barroso, 2013) with
//!   BigTable, where copies after 10 ms brought the 99.9th percentile from 1,800 to 74 ms with 2 % more requests.
//!
//! Items sleep, and give up when their results are no longer wanted.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::hash::{BuildHasher, Hasher, RandomState};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use gangline::order::InputOrder;
use gangline::{BoxError, Builder, OrderedRunner, ProducerContext, Runner, map};

const MS: Duration = Duration::from_millis(1);

/// How much is measured.
#[derive(Clone, Copy)]
struct Effort {
    rounds: usize,
    items: u64,
    reads: usize,
}

/// Whether slow items are copied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Copying {
    Never,
    IfSlow,
}

/// The time of a run and its number of attempts.
#[derive(Clone, Copy)]
struct Run {
    took: Duration,
    attempts: u64,
}

/// Counts attempts, and draws a number from 0 to 1 for each.
#[derive(Clone)]
struct Attempts {
    count: Arc<AtomicU64>,
    random: RandomState,
}

fn main() -> Result<(), BoxError> {
    // Without it `cargo test` asks only whether the program works.
    let effort = match std::env::args().any(|argument| argument == "--bench") {
        true => Effort { rounds: 3, items: 1_000, reads: 5_000 },
        false => Effort { rounds: 1, items: 20, reads: 2 },
    };
    runs(effort)?;
    reads(effort)
}

fn runs(effort: Effort) -> Result<(), BoxError> {
    println!("| window | not copied | `speculate()` | attempts more |");
    println!("|---:|---:|---:|---:|");
    for window in [8, 12, 16, 24, 64, 512] {
        let mut ratios = [const { Vec::new() }; 2];
        let mut most = 0;
        for _ in 0..effort.rounds {
            let plain = run(window, effort.items, Copying::Never, u64::MAX)?;
            for (ratios, copying) in ratios.iter_mut().zip([Copying::Never, Copying::IfSlow]) {
                let Run { took, attempts } = run(window, effort.items, copying, 100)?;
                ratios.push(took.as_secs_f64() / plain.took.as_secs_f64());
                most = most.max(attempts - effort.items);
            }
        }
        let [without, with] = ratios.map(|mut ratios| {
            ratios.sort_by(f64::total_cmp);
            ratios[ratios.len() / 2]
        });
        let more = 100.0 * most as f64 / effort.items as f64;
        println!("| {window} | {without:.2} | {with:.2} | {more:.1} % |");
    }
    Ok(())
}

/// Runs items of 20 ms, where each attempt of this number takes 1 s.
fn run(window: usize, items: u64, copying: Copying, slow_in: u64) -> Result<Run, BoxError> {
    let attempts = Attempts::new();
    let counted = attempts.clone();
    let work = map(
        |_| Ok(()),
        move |cx: &ProducerContext<'_>, (), item: u64| {
            let is_slow = attempts.next().0 % slow_in == slow_in / 2;
            sleep(cx, if is_slow { 1_000 * MS } else { 20 * MS });
            Ok(item)
        },
    );
    let builder = OrderedRunner::builder(work).devices(8).window(window);
    let mut pool = copying_if(builder, copying).build()?;
    let since = Instant::now();
    assert_eq!(pool.run(0..items)?.len() as u64, items, "every item is consumed once");
    let run = Run { took: since.elapsed(), attempts: counted.count() };
    pool.close()?;
    Ok(run)
}

fn reads(effort: Effort) -> Result<(), BoxError> {
    println!("\n| | median | 99 % | 99.9 % | longest | requests more |");
    println!("|---|---:|---:|---:|---:|---:|");
    for (name, copying) in [("not copied", Copying::Never), ("`speculate()`", Copying::IfSlow)] {
        let (times, more) = read_times(effort.reads, copying)?;
        let at = |of_1000: usize| times[(times.len() * of_1000 / 1_000).min(times.len() - 1)];
        let [p50, p99, p999, max] =
            [500, 990, 999, 1_000].map(|it| format!("{:.0} ms", 1e3 * at(it).as_secs_f64()));
        println!("| {name} | {p50} | {p99} | {p999} | {max} | {:.1} % |", 100.0 * more);
    }
    Ok(())
}

/// Returns the times of reads of 100 values, in order, and the share of attempts beyond the first of each value.
fn read_times(reads: usize, copying: Copying) -> Result<(Vec<Duration>, f64), BoxError> {
    let attempts = Attempts::new();
    let counted = attempts.clone();
    let value = map(
        |_| Ok(()),
        move |cx: &ProducerContext<'_>, (), key: u64| {
            sleep(cx, value_time(attempts.next().1));
            Ok(key)
        },
    );
    let builder = OrderedRunner::builder(value).devices(50);
    let service = copying_if(builder, copying).build()?.into_service();
    let mut times = Vec::with_capacity(reads);
    for _ in 0..reads {
        let since = Instant::now();
        let tickets = service.try_submit_all((0..100).collect()).expect("there are 1,024 places");
        for (ticket, key) in tickets.into_iter().zip(0..) {
            assert_eq!(ticket.wait()?, key, "each key has its value");
        }
        times.push(since.elapsed());
    }
    service.close()?;
    times.sort();
    let requests = 100.0 * reads as f64;
    Ok((times, counted.count() as f64 / requests - 1.0))
}

/// The time of an attempt at one value: mostly 5 to 10 ms, up to 60 ms if the server does something else beside, and
/// 1.8 s if it hangs.
fn value_time(random: f64) -> Duration {
    let within = random * 50_000.0 % 1.0;
    match random {
        it if it < 1.0 / 50_000.0 => 1_800 * MS,
        it if it < 0.01 => (10 * MS).mul_f64(1.0 + 5.0 * within),
        _ => (5 * MS).mul_f64(1.0 + within),
    }
}

fn copying_if<R>(builder: Builder<R, InputOrder>, copying: Copying) -> Builder<R, InputOrder>
where
    R: Runner<Input = u64> + 'static,
{
    match copying {
        Copying::Never => builder,
        Copying::IfSlow => builder.speculate(),
    }
}

/// Sleeps, and after 20 ms looks every millisecond whether the result is still wanted.
fn sleep(cx: &ProducerContext<'_>, time: Duration) {
    let since = Instant::now();
    thread::sleep(time.min(20 * MS));
    while since.elapsed() < time && !cx.is_cancelled() {
        thread::sleep(MS.min(time.saturating_sub(since.elapsed())));
    }
}

impl Attempts {
    fn new() -> Self {
        Attempts { count: Arc::default(), random: RandomState::new() }
    }

    fn next(&self) -> (u64, f64) {
        let number = self.count.fetch_add(1, Relaxed);
        let mut hasher = self.random.build_hasher();
        hasher.write_u64(number);
        (number, hasher.finish() as f64 / u64::MAX as f64)
    }

    fn count(&self) -> u64 {
        self.count.load(Relaxed)
    }
}

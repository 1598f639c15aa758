//! Measures how short items may be: `cargo bench -p gangline-bench --bench metg`.
//!
//! METG, the minimum effective task granularity of Slaughter et al., "Task Bench" (2020), is the least time of an item
//! at which a run reaches a share of the rate that its producers would have without overhead: here 50 % and 95 %. It is
//! measured for producers on threads, in child processes and in a cluster on this machine. The rate without overhead is
//! that of a plain loop on as many threads, just before each run. Items get shorter by a half from row to row; each
//! efficiency is the median of the rounds, and the time at which it crosses a share is interpolated between two rows.
//!
//! `-- --producers N` takes another number of producers. `nats-server` has to be installed for the cluster.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[cfg(target_os = "linux")]
#[expect(dead_code, reason = "shared with the benchmark `cluster`")]
#[path = "cluster/broker.rs"]
mod broker;
#[cfg(target_os = "linux")]
#[expect(dead_code, unreachable_pub, reason = "shared with the benchmark `peers`")]
#[path = "peers/work.rs"]
mod work;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> gangline::Result<()> {
    linux::measure()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::hint::black_box;
    use std::sync::Barrier;
    use std::thread;
    use std::time::{Duration, Instant};

    use gangline::closures::FnMap;
    use gangline::process::{Processes, Recipe};
    use gangline::{CfgNode, OrderedRunner, ProducerContext, Result, map};
    use gangline_nats::{ClusterBuilder, Nats, worker_main};

    use crate::broker::Broker;
    use crate::work::Work;

    static RECIPE: Recipe<Pool> = Recipe::new("metg", make);

    /// An item is the number of its steps.
    type Pool = FnMap<(), u64, u64>;

    /// One backend: its name, the longest items, and how its pool is built.
    struct Backend<'a> {
        name: &'static str,
        longest: Duration,
        pool: &'a dyn Fn() -> Result<OrderedRunner<Pool>>,
    }

    /// How much is measured.
    #[derive(Clone, Copy)]
    struct Effort {
        rounds: usize,
        /// The time of a run without overhead.
        run: Duration,
        /// The rows at most.
        rows: usize,
    }

    pub(super) fn measure() -> Result<()> {
        worker_main(&[&RECIPE]);
        let arguments: Vec<String> = std::env::args().collect();
        // Without it `cargo test` asks only whether the program works.
        let effort = match arguments.iter().any(|argument| argument == "--bench") {
            true => Effort { rounds: 5, run: Duration::from_millis(100), rows: 24 },
            false => Effort { rounds: 1, run: Duration::from_millis(1), rows: 2 },
        };
        let given = arguments.iter().skip_while(|argument| *argument != "--producers").nth(1);
        let producers = given.map_or(Ok(2), |text| text.parse())?;
        let broker = Broker::start()?;
        let _workers = (0..producers).map(|_| broker.worker(1)).collect::<Result<Vec<_>>>()?;
        let backends = [
            Backend {
                name: "threads",
                longest: Duration::from_millis(2),
                pool: &|| Ok(builder()?.devices(producers).build()?),
            },
            Backend {
                name: "child processes",
                longest: Duration::from_millis(8),
                pool: &|| {
                    let builder = builder()?.devices(producers);
                    Ok(builder.processes(&RECIPE, Processes::new()).build()?)
                },
            },
            Backend {
                name: "cluster",
                longest: Duration::from_millis(128),
                pool: &|| {
                    let nats = Nats::connect(&broker.url).min_workers(producers);
                    let nats = nats.max_workers(producers.max(64));
                    Ok(builder()?
                        .cluster(&RECIPE, nats.wait_for(Duration::from_secs(300)))
                        .build()?)
                },
            },
        ];
        for backend in &backends {
            print_of(backend, producers, effort)?;
        }
        Ok(())
    }

    /// Prints the efficiency for each time of an item, and the two times at which it crosses a share.
    fn print_of(backend: &Backend<'_>, producers: usize, effort: Effort) -> Result<()> {
        println!("{}, {producers} producers:", backend.name);
        let mut pool = (backend.pool)()?;
        let (mut rows, mut time) = (vec![], backend.longest);
        while rows.len() < effort.rows && !time.is_zero() {
            let share = efficiency(&mut pool, producers, time, effort)?;
            println!("  items of {}: {share:.3}", in_units(time));
            rows.push((time, share));
            if share < 0.3 {
                break;
            }
            time /= 2;
        }
        pool.close()?;
        for least in [0.95, 0.5] {
            match crossing(&rows, least) {
                Some(time) => println!("  METG({:.0} %): {}", least * 100.0, in_units(time)),
                None => println!("  METG({:.0} %): not among these items", least * 100.0),
            }
        }
        Ok(())
    }

    /// The rate of a run as a share of the rate of a plain loop on as many threads.
    fn efficiency(
        pool: &mut OrderedRunner<Pool>,
        producers: usize,
        time: Duration,
        Effort { rounds, run, .. }: Effort,
    ) -> Result<f64> {
        let work = work_of(time, rounds);
        // A few items for each producer, or the last one decides.
        let each = ((run.as_secs_f64() / time.as_secs_f64()) as usize).max(8);
        let mut shares = vec![];
        for _ in 0..rounds {
            let ideal = seconds_of_plain_loops(work, producers, each);
            let since = Instant::now();
            let outputs = pool.run((0..each * producers).map(|_| work.steps()))?;
            let took = since.elapsed().as_secs_f64();
            assert_eq!(outputs.len(), each * producers, "each item gives an output");
            shares.push(ideal / took);
        }
        shares.sort_unstable_by(f64::total_cmp);
        Ok(shares[shares.len() / 2])
    }

    /// Work of this time. It is calibrated with short items, since each calibration takes many.
    fn work_of(time: Duration, rounds: usize) -> Work {
        const SHORT: Duration = Duration::from_millis(1);
        match time.as_secs_f64() / SHORT.as_secs_f64() {
            // Whether the program works does not depend on times.
            _ if rounds == 1 => Work::of_steps(1),
            ..=1.0 => Work::calibrated(time),
            times => Work::of_steps((Work::calibrated(SHORT).steps() as f64 * times) as u64),
        }
    }

    /// The mean time of loops that run side by side: what producers need that never wait.
    fn seconds_of_plain_loops(work: Work, threads: usize, each: usize) -> f64 {
        let start = Barrier::new(threads);
        let seconds = |_| {
            start.wait();
            let since = Instant::now();
            for _ in 0..each {
                black_box(work.on(black_box(work.steps())));
            }
            since.elapsed().as_secs_f64()
        };
        let total: f64 = thread::scope(|scope| {
            let loops: Vec<_> =
                (0..threads).map(|number| scope.spawn(move || seconds(number))).collect();
            loops.into_iter().map(|it| it.join().expect("a loop does not panic")).sum()
        });
        total / threads as f64
    }

    /// The time at which the efficiency, which falls with the time, crosses this share: on a logarithmic scale between
    /// the last row that reaches it and the next.
    fn crossing(rows: &[(Duration, f64)], least: f64) -> Option<Duration> {
        let after = rows.iter().rposition(|&(_, share)| share >= least)?;
        let (&(long, above), &(short, below)) = (rows.get(after)?, rows.get(after + 1)?);
        let part = (above - least) / (above - below);
        let (long, short) = (long.as_secs_f64().ln(), short.as_secs_f64().ln());
        Some(Duration::from_secs_f64((long + part * (short - long)).exp()))
    }

    fn in_units(time: Duration) -> String {
        match time.as_nanos() {
            0..1_000 => format!("{} ns", time.as_nanos()),
            1_000..1_000_000 => format!("{:.3} us", time.as_secs_f64() * 1e6),
            _ => format!("{:.3} ms", time.as_secs_f64() * 1e3),
        }
    }

    fn builder() -> Result<gangline::Builder<Pool, gangline::order::InputOrder>> {
        Ok(OrderedRunner::builder(make(&CfgNode::new())?))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
    fn make(_: &CfgNode) -> Result<Pool> {
        Ok(map(init, work))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form of a hook")]
    fn init(_: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form of a hook")]
    fn work(_: &ProducerContext<'_>, (): &mut (), steps: u64) -> Result<u64> {
        Ok(Work::of_steps(steps).on(steps))
    }
}

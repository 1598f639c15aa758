//! Measures a cluster on one machine, with a broker of its own: `cargo bench -p gangline-bench --bench cluster`.
//!
//! - `slow`: items of 10 ms on two workers, beside the ideal.
//! - `small`: items of 100 bytes without work, beside a bare loop over JetStream with as many items in flight.
//! - `messages`: the messages of an item, as the broker counts them, and the processor time.
//! - `fleets`: items of 100 ms on 1,000 workers, beside the ideal: workers with several producers, and workers with one.
//!
//! `-- messages` measures that part alone.
//! Each figure is the median of the rounds, each with a pool of its own. `nats-server` has to be installed.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

#[cfg(target_os = "linux")]
#[path = "cluster/bare.rs"]
mod bare;

#[cfg(target_os = "linux")]
#[path = "cluster/broker.rs"]
mod broker;

#[cfg(not(target_os = "linux"))]
fn main() {}

#[cfg(target_os = "linux")]
fn main() -> gangline::Result<()> {
    linux::measure()
}

#[cfg(target_os = "linux")]
mod linux {
    use std::time::{Duration, Instant};

    use gangline::closures::FnMap;
    use gangline::process::Recipe;
    use gangline::{CfgNode, OrderedRunner, ProducerContext, Result, map};
    use gangline_nats::{ClusterBuilder, Nats, worker_main};
    use rustix::time::{ClockId, clock_gettime};
    use serde::{Deserialize, Serialize};
    use serde_bytes::ByteBuf;

    use crate::bare;
    use crate::broker::Broker;

    static RECIPE: Recipe<Work> = Recipe::new("cluster", make);

    type Work = FnMap<(), Item, ByteBuf>;

    /// Takes this time, and returns the bytes.
    #[derive(Clone, Serialize, Deserialize)]
    struct Item {
        sleep: Duration,
        bytes: ByteBuf,
    }

    impl Item {
        fn new(sleep: Duration, bytes: usize) -> Self {
            Item { sleep, bytes: ByteBuf::from(vec![7; bytes]) }
        }
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form that a recipe asks for")]
    fn make(_: &CfgNode) -> Result<Work> {
        Ok(map(init, work))
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form of a hook")]
    fn init(_: &ProducerContext<'_>) -> Result<()> {
        Ok(())
    }

    #[expect(clippy::unnecessary_wraps, reason = "the form of a hook")]
    fn work(_: &ProducerContext<'_>, (): &mut (), item: Item) -> Result<ByteBuf> {
        if !item.sleep.is_zero() {
            std::thread::sleep(item.sleep);
        }
        Ok(item.bytes)
    }

    /// How much is measured.
    #[derive(Clone, Copy)]
    struct Effort {
        rounds: usize,
        slow: usize,
        small: usize,
        counted: usize,
        /// Workers and their producers, of which there are 1,000.
        fleets: &'static [(usize, usize)],
        each: usize,
    }

    type Part = fn(&Broker, Effort) -> Result<()>;

    const PARTS: [(&str, Part); 4] = [
        ("slow", items_of_ten_milliseconds),
        ("small", small_items),
        ("messages", messages),
        ("fleets", many_workers),
    ];

    pub(super) fn measure() -> Result<()> {
        worker_main(&[&RECIPE]);
        if bare::serve_if_asked()? {
            return Ok(());
        }
        // Without it `cargo test` asks only whether the program works.
        let effort = match std::env::args().any(|argument| argument == "--bench") {
            true => Effort {
                rounds: 3,
                slow: 400,
                small: 20_000,
                counted: 1000,
                fleets: &[(10, 100), (100, 10), (1000, 1)],
                each: 40,
            },
            false => {
                Effort { rounds: 1, slow: 4, small: 20, counted: 20, fleets: &[(2, 2)], each: 2 }
            }
        };
        let broker = Broker::start()?;
        let named: Vec<_> = std::env::args().skip(1).filter(|it| !it.starts_with('-')).collect();
        for (name, part) in PARTS {
            if named.is_empty() || named.iter().any(|it| it == name) {
                part(&broker, effort)?;
            }
        }
        Ok(())
    }

    fn items_of_ten_milliseconds(
        broker: &Broker,
        Effort { rounds, slow, .. }: Effort,
    ) -> Result<()> {
        let item = Duration::from_millis(10);
        let _workers = [broker.worker(1)?, broker.worker(1)?];
        let mut ratios = vec![];
        for _ in 0..rounds {
            let mut pool = pool_of(broker, 2)?;
            let time = time(|| Ok(pool.run((0..slow).map(|_| Item::new(item, 0)))?))?;
            ratios.push(item.as_secs_f64() * slow as f64 / 2.0 / time);
        }
        println!("items of 10 ms, two workers: {:.3} of the ideal; the aim is 0.9", median(ratios));
        Ok(())
    }

    fn small_items(broker: &Broker, Effort { rounds, small, .. }: Effort) -> Result<()> {
        const PRODUCERS: usize = 16;
        let (mut ours, mut bare) = (vec![], vec![]);
        for _ in 0..rounds {
            let workers = [broker.worker(PRODUCERS)?, broker.worker(PRODUCERS)?];
            let mut pool = pool_of(broker, 2)?;
            let items = (0..small).map(|_| Item::new(Duration::ZERO, 100));
            ours.push(small as f64 / time(|| Ok(pool.run(items)?))?);
            pool.close()?;
            drop(workers);
            bare.push(small as f64 / bare::run(&broker.url, 2, PRODUCERS, small)?);
        }
        let (ours, bare) = (median(ours), median(bare));
        println!(
            "items of 100 B, two workers of {PRODUCERS}: {ours:.0}/s, {:.2} of a bare loop with {bare:.0}/s; the \
             aim is 0.4",
            ours / bare
        );
        Ok(())
    }

    /// The broker's counters over a run, without the join of the workers. Its processor time and theirs are in hundredths of a
    /// second.
    fn messages(broker: &Broker, Effort { rounds, counted, small, .. }: Effort) -> Result<()> {
        let ten = Duration::from_millis(10);
        let cases = [(1, ten, counted), (16, ten, counted), (16, Duration::ZERO, small)];
        for (producers, sleep, items) in cases {
            let workers = [broker.worker(producers)?, broker.worker(producers)?];
            let mut pool = pool_of(broker, 2)?;
            let processor_times = || -> Result<[f64; 3]> {
                let own = Duration::try_from(clock_gettime(ClockId::ProcessCPUTime))?;
                let theirs = workers[0].processor_time()? + workers[1].processor_time()?;
                Ok([own, broker.processor_time()?, theirs].map(|it| it.as_secs_f64()))
            };
            for _ in 0..rounds {
                let (before, times) = (broker.messages()?, processor_times()?);
                let wall = time(|| Ok(pool.run(vec![Item::new(sleep, 100); items])?))?;
                let (after, times_after) = (broker.messages()?, processor_times()?);
                let each = |count: u64| count as f64 / items as f64;
                let (received, sent) = (each(after.0 - before.0), each(after.1 - before.1));
                let [own, broker, theirs] =
                    [0, 1, 2].map(|n| (times_after[n] - times[n]) / items as f64 * 1e6);
                println!(
                    "items of 100 B and {sleep:?}, two workers of {producers}: {:.2} messages an item, {received:.2} to \
                     the broker and {sent:.2} from it; processor time an item: coordinator {own:.0} us, broker \
                     {broker:.0} us, workers {theirs:.0} us; {:.0}/s",
                    received + sent,
                    items as f64 / wall
                );
            }
            pool.close()?;
            drop(workers);
        }
        Ok(())
    }

    fn many_workers(broker: &Broker, Effort { fleets, each, .. }: Effort) -> Result<()> {
        let item = Duration::from_millis(100);
        for &(count, producers) in fleets {
            let workers: Vec<_> =
                (0..count).map(|_| broker.worker(producers)).collect::<Result<_>>()?;
            let total = count * producers;
            let mut pool = pool_of(broker, count)?;
            // Of the feeder, which stands still if no results come.
            let (mut last, mut pause) = (Instant::now(), Duration::ZERO);
            let items = (0..total * each).map(|_| {
                pause = pause.max(last.elapsed());
                last = Instant::now();
                Item::new(item, 0)
            });
            let time = time(|| Ok(pool.run(items)?))?;
            let ideal = item.as_secs_f64() * each as f64;
            println!(
                "items of 100 ms, {count} workers of {producers}: {:.0}/s, {:.2} of the ideal; the aim is 0.7; the \
                 longest pause {:.2} s",
                (total * each) as f64 / time,
                ideal / time,
                pause.as_secs_f64()
            );
            pool.close()?;
            drop(workers);
        }
        Ok(())
    }

    /// A pool that all these workers have joined.
    fn pool_of(broker: &Broker, workers: usize) -> Result<OrderedRunner<Work>> {
        let nats = Nats::connect(&broker.url).max_workers(workers.max(64)).min_workers(workers);
        let nats = nats.wait_for(Duration::from_secs(300));
        Ok(OrderedRunner::builder(make(&CfgNode::new())?).cluster(&RECIPE, nats).build()?)
    }

    fn time<T>(work: impl FnOnce() -> Result<T>) -> Result<f64> {
        let since = Instant::now();
        std::hint::black_box(work()?);
        Ok(since.elapsed().as_secs_f64())
    }

    fn median(mut values: Vec<f64>) -> f64 {
        values.sort_unstable_by(f64::total_cmp);
        values[values.len() / 2]
    }
}

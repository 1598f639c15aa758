//! A run with all settings that its user may change.

use std::thread::sleep;
use std::time::{Duration, Instant};

use gangline::error::OutOfMemory;
use gangline::{
    AnyOrderRunner, Batch, ConsumerContext, Order, ProducerContext, Result, RunReport, Runner,
};

pub(crate) const MS: Duration = Duration::from_millis(1);
pub(crate) const NONE: Duration = Duration::ZERO;

/// The place of work before or behind the producers. A user may move it to them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    Own,
    Producers,
    /// It is not possible, as for a socket.
    OwnAlways,
}

/// Whether each run has a pool of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pools {
    One,
    Each,
}

/// The way in which items fail in their first attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Faults {
    /// The hook returns an error that its user can fix.
    Mendable,
    /// The hook returns an error, such as that of a server.
    Lasting,
    Panic,
    /// Only the last item fails, in all attempts but the fourth.
    LastOften,
    Mended,
}

/// How long items take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Times {
    /// 10 ms.
    Equal,
    /// 2 ms.
    Short,
    /// 50 ms.
    Long,
    /// 10 ms, and one in 40 takes 400 ms.
    OneIn40,
    /// From 2 to 24 ms, 10 on average.
    Uneven,
    /// 10 ms, and the first takes 1 s.
    FirstSlow,
    /// 50 ms, and the last takes 200 ms.
    LastSlow,
}

impl Times {
    /// The time of item `index` of `items`.
    fn of(self, index: usize, items: usize) -> Duration {
        match self {
            Times::OneIn40 if index % 40 == 10 => 400 * MS,
            Times::FirstSlow if index == 0 => 1_000 * MS,
            Times::LastSlow if index + 1 == items => 200 * MS,
            Times::Equal | Times::OneIn40 | Times::FirstSlow => 10 * MS,
            Times::Long | Times::LastSlow => 50 * MS,
            Times::Short => 2 * MS,
            Times::Uneven => [2, 4, 10, 24][index * 7 % 4] * MS,
        }
    }
}

#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Setup {
    pub(crate) items: usize,
    pub(crate) producers: usize,
    pub(crate) window: Option<usize>,
    /// The bound in memory; each item has a size of 100.
    pub(crate) window_memory: Option<usize>,
    pub(crate) order: Order,
    pub(crate) batch: Option<Batch>,
    pub(crate) backoff: Duration,
    pub(crate) recycle_after: Option<u64>,
    pub(crate) speculates: bool,
    pub(crate) longest_first: bool,
    pub(crate) read: (Duration, Place),
    pub(crate) write: (Duration, Place),
    pub(crate) times: Times,
    /// The time of a batch beside that of its items.
    pub(crate) fixed: Duration,
    /// The items that a device has memory for.
    pub(crate) memory: usize,
    /// One of this number of items fails in its first attempts; 0 for no failures.
    pub(crate) fails_every: usize,
    pub(crate) faults: Faults,
    pub(crate) producer_init: Duration,
    /// `Place::Producers` stands for before the first run.
    pub(crate) consumer_init: (Duration, Place),
    pub(crate) runs: usize,
    pub(crate) pools: Pools,
}

/// A run that nothing but its producers limits.
pub(crate) const PLAIN: Setup = Setup {
    items: 160,
    producers: 4,
    window: None,
    window_memory: None,
    order: Order::Input,
    batch: None,
    backoff: MS,
    recycle_after: None,
    speculates: false,
    longest_first: false,
    read: (NONE, Place::OwnAlways),
    write: (NONE, Place::OwnAlways),
    times: Times::Equal,
    fixed: NONE,
    memory: usize::MAX,
    fails_every: 0,
    faults: Faults::Mendable,
    producer_init: NONE,
    consumer_init: (NONE, Place::Own),
    runs: 1,
    pools: Pools::One,
};

/// The hooks of a setup.
struct Sleeper {
    setup: Setup,
    scale: f64,
}

impl Setup {
    /// Returns the report of the first run, and the rate of all, with the time to build.
    pub(crate) fn run(&self, scale: f64) -> Result<(RunReport, f64)> {
        let since = Instant::now();
        let mut first = None;
        if self.consumer_init.1 == Place::Producers {
            pause(self.consumer_init.0, scale);
        }
        let mut pool = self.pool(scale)?;
        for run in 0..self.runs {
            if run > 0 && self.pools == Pools::Each {
                pool.close()?;
                pool = self.pool(scale)?;
            }
            let (done, report) = pool.run_with_report(self.input(scale));
            done?;
            first.get_or_insert(report);
        }
        pool.close()?;
        let items = (self.runs * self.items) as f64;
        let rate = items / since.elapsed().as_secs_f64();
        Ok((first.expect("a setup has a run"), rate))
    }

    fn input(&self, scale: f64) -> impl Iterator<Item = Work> + use<> {
        let time = |index| self.times.of(index, self.items);
        let mut works: Vec<Work> =
            (0..self.items).map(|index| Work { index, time: time(index) }).collect();
        if self.longest_first {
            works.sort_by_key(|work| std::cmp::Reverse(work.time));
        }
        let (read, place) = self.read;
        works.into_iter().inspect(move |_| {
            if place != Place::Producers {
                pause(read, scale);
            }
        })
    }

    fn pool(&self, scale: f64) -> Result<AnyOrderRunner<Sleeper>> {
        let sleeper = Sleeper { setup: self.clone(), scale };
        let mut builder = AnyOrderRunner::builder(sleeper)
            .devices(self.producers)
            .order(self.order)
            .retries(if self.fails_every > 0 { 3 } else { 0 })
            .backoff(self.backoff.mul_f64(scale), self.backoff.mul_f64(scale))
            .timeline();
        if let Some(items) = self.window {
            builder = builder.window(items);
        }
        if let Some(bytes) = self.window_memory {
            builder = builder.window_memory(bytes, |_| 100_usize, |()| 100);
        }
        if let Some(batch) = self.batch {
            builder = builder.batch(batch);
        }
        if let Some(items) = self.recycle_after {
            builder = builder.recycle_after(items);
        }
        if self.speculates {
            builder = builder.speculate();
        }
        Ok(builder.build()?)
    }
}

#[derive(Debug, Clone)]
struct Work {
    index: usize,
    time: Duration,
}

impl Sleeper {
    fn moved(&self) -> Duration {
        let time = |(time, place)| if place == Place::Producers { time } else { NONE };
        time(self.setup.read) + time(self.setup.write)
    }

    fn fault(&self, cx: &ProducerContext<'_>, index: usize) -> Result<()> {
        let (every, last) = (self.setup.fails_every, self.setup.items - 1);
        if self.setup.faults == Faults::LastOften && index == last && cx.attempt() < 4 {
            return Err("it fails often".into());
        }
        if every == 0 || cx.attempt() > 1 || !index.is_multiple_of(every) {
            return Ok(());
        }
        match self.setup.faults {
            Faults::Mended | Faults::LastOften => Ok(()),
            Faults::Mendable | Faults::Lasting => Err("it fails at first".into()),
            Faults::Panic => std::panic::resume_unwind(Box::new("it panics at first")),
        }
    }
}

impl Runner for Sleeper {
    type Input = Work;
    type Output = ();
    type ProducerState = ();
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
        pause(self.setup.producer_init, self.scale);
        Ok(())
    }

    fn producer_work(&self, cx: &ProducerContext<'_>, (): &mut (), work: Work) -> Result<()> {
        pause(self.setup.fixed + work.time + self.moved(), self.scale);
        self.fault(cx, work.index)
    }

    fn producer_work_batch(
        &self,
        _: &ProducerContext<'_>,
        (): &mut (),
        works: &mut Vec<Work>,
    ) -> Result<Vec<Result<()>>> {
        if works.len() > self.setup.memory {
            pause(self.setup.fixed, self.scale);
            return Err(OutOfMemory::new("the device is full").into());
        }
        let time: Duration = works.iter().map(|work| work.time + self.moved()).sum();
        pause(self.setup.fixed + time, self.scale);
        Ok(works.drain(..).map(|_| Ok(())).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        if self.setup.consumer_init.1 == Place::Own {
            pause(self.setup.consumer_init.0, self.scale);
        }
        Ok(())
    }

    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), (): ()) -> Result<()> {
        if self.setup.write.1 != Place::Producers {
            pause(self.setup.write.0, self.scale);
        }
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        Ok(())
    }
}

fn pause(time: Duration, scale: f64) {
    if !time.is_zero() {
        sleep(time.mul_f64(scale));
    }
}

//! Producers in workers on a broker, which are killed, stopped and terminated, as is the broker.

pub(crate) mod live_cluster;

use std::cell::Cell;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use gangline::closures::MapBatches;
use gangline::process::Recipe;
use gangline::{
    AnyOrderRunner, Batch, CfgNode, Error, OnError, Order, ProducerContext, Result, map_batches,
};
use gangline_nats::{ClusterBuilder, ClusterError};
use serde::{Deserialize, Serialize};

use self::live_cluster::{Fault, INJECTED, LiveCluster, WORKERS};
use crate::item::answer;
use crate::laws::{Broken, Laws};
use crate::live::{check_nothing_left, threads};
use crate::watchdog;

/// What a worker does with an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Chore {
    Answer,
    /// Takes this number of milliseconds.
    Sleep(u64),
    Fail,
    /// Fails in the first attempt.
    FailOnce,
    Panic,
    /// Aborts the process in the first attempt.
    AbortOnce,
    /// Returns when it is given up: after its timeout, or when the run ends.
    Slow,
    /// Never returns.
    Hang,
    /// Has an input of this many bytes, which is above what a message holds.
    LargeInput(usize),
    /// Has an output of this many bytes.
    LargeOutput(usize),
}

type Input = (u64, Chore, Vec<u8>);
type Output = (u64, u64, Vec<u8>);
type Chores = MapBatches<
    fn(&ProducerContext<'_>) -> Result<()>,
    fn(&ProducerContext<'_>, &mut (), &mut Vec<Input>) -> Result<Vec<Result<Output>>>,
    (),
    Input,
    Output,
>;
type ChorePool = AnyOrderRunner<Chores>;

const TIMEOUT: Duration = Duration::from_millis(200);

/// A slow hook ends by itself after this time, which is a broken law.
const PATIENCE: Duration = Duration::from_secs(20);

fn init(_: &ProducerContext<'_>) -> Result<()> {
    Ok(())
}

#[expect(clippy::ptr_arg, reason = "the type of a closure that takes batches")]
fn work_on_batch(
    cx: &ProducerContext<'_>,
    (): &mut (),
    inputs: &mut Vec<Input>,
) -> Result<Vec<Result<Output>>> {
    Ok(inputs.iter().enumerate().map(|(at, input)| work(&cx.at(at), input)).collect())
}

fn work(cx: &ProducerContext<'_>, &(x, chore, ref bytes): &Input) -> Result<Output> {
    if *bytes != padding(x, chore, true) {
        return Err(format!("other bytes in the input of {x}").into());
    }
    match chore {
        Chore::Sleep(millis) => std::thread::sleep(Duration::from_millis(millis)),
        Chore::FailOnce if cx.attempt() > 1 => {}
        Chore::Fail | Chore::FailOnce => return Err(format!("fault of {x}").into()),
        Chore::Panic => std::panic::resume_unwind(Box::new(format!("fault of {x}"))),
        Chore::AbortOnce if cx.attempt() == 1 => std::process::abort(),
        Chore::Slow => {
            let begin = Instant::now();
            while !cx.is_cancelled() && begin.elapsed() < PATIENCE {
                std::thread::sleep(Duration::from_millis(5));
            }
        }
        Chore::Hang => loop {
            std::thread::park();
        },
        _ => {}
    }
    Ok((x, answer(x), padding(x, chore, false)))
}

/// The bytes that come with an input or an output.
fn padding(x: u64, chore: Chore, is_input: bool) -> Vec<u8> {
    match chore {
        Chore::LargeInput(bytes) if is_input => vec![x as u8; bytes],
        Chore::LargeOutput(bytes) if !is_input => vec![x as u8; bytes],
        _ => vec![],
    }
}

fn make(_: &CfgNode) -> Result<Chores> {
    Ok(map_batches(init as _, work_on_batch as _))
}

pub(crate) static CLUSTER_CHORES: Recipe<Chores> = Recipe::new("cluster chores", make);

/// A run of a case.
struct Run {
    items: Vec<Chore>,
    cancels_at: Option<u64>,
    /// Takes the outputs from an iterator, and drops it after this number of them.
    take: Option<usize>,
    /// Cancels the run instead, after this number.
    cancels_then: bool,
}

#[derive(Debug)]
struct Plan {
    ordered: bool,
    min_workers: usize,
    max_workers: usize,
    lease: u64,
    retries: u32,
    window: Option<usize>,
    batch: Option<Batch>,
    timeout: bool,
    speculate: bool,
    skips: bool,
    /// A value of the configuration: workers load anew if the last case had another.
    load: u8,
    closes: bool,
    service: bool,
    faults: Vec<(u64, Fault)>,
    runs: Vec<Run>,
}

impl Run {
    fn random(random: &mut fastrand::Rng, timeout: bool, is_long: bool) -> Self {
        let chance = random.u16(20..200);
        let count = if is_long { random.usize(100..400) } else { random.usize(0..40) };
        let items = (0..count).map(|_| match random.u16(0..chance) {
            0 => Chore::Fail,
            1 => Chore::FailOnce,
            2 => Chore::Panic,
            3 if random.u8(0..8) == 0 => Chore::AbortOnce,
            4 if timeout => Chore::Slow,
            5 if timeout && random.bool() => Chore::Hang,
            6 => Chore::LargeInput(random.usize(500_000..1_500_000)),
            7 => Chore::LargeOutput(random.usize(500_000..1_500_000)),
            8..14 => Chore::Sleep(random.u64(1..30)),
            _ => Chore::Answer,
        });
        let items: Vec<Chore> = items.collect();
        let cancels_at = (random.u8(0..8) == 0).then(|| random.u64(0..items.len() as u64 + 2));
        let take = (random.u8(0..4) == 0).then(|| random.usize(0..items.len() + 2));
        Run { items, cancels_at, take, cancels_then: false }
    }

    /// Ends while each producer is in a hook that returns only then.
    fn ended_early(random: &mut fastrand::Rng) -> Self {
        let most = random.usize(0..20);
        let mut items = vec![Chore::Answer; most];
        items.resize(most + random.usize(1..20), Chore::Slow);
        // Nothing is pulled before the first output is asked for.
        let cancels_then = most > 0 && random.bool();
        Run { items, cancels_at: None, take: Some(most), cancels_then }
    }
}

/// With its chores by their items, without those that only answer.
impl fmt::Debug for Run {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let chores = self.items.iter().zip(0..).filter(|(chore, _)| **chore != Chore::Answer);
        let chores: BTreeMap<u64, &Chore> = chores.map(|(chore, x)| (x, chore)).collect();
        let Run { items, cancels_at, take, cancels_then } = self;
        write!(f, "{} items {chores:?} cancels_at {cancels_at:?} ", items.len())?;
        write!(f, "take {take:?} cancels_then {cancels_then}")
    }
}

impl Plan {
    fn random(random: &mut fastrand::Rng) -> Self {
        let lease = [1000, 1500, 3000][random.usize(0..3)];
        let most = random.usize(1..6);
        let batch = match random.u8(0..8) {
            0 => Some(Batch::up_to(most)),
            1 => Some(Batch::of(most)),
            2 => Some(Batch::up_to(most).within(Duration::from_millis(random.u64(0..40)))),
            3 => Some(Batch::auto()),
            _ => None,
        };
        let timeout = random.u8(0..3) == 0;
        let fault = |random: &mut fastrand::Rng| match random.u8(0..16) {
            0..5 => Fault::Kill,
            5..11 => Fault::Terminate,
            11..15 => Fault::Stop(random.u64(0..lease * 2)),
            _ => Fault::Broker(random.u64(0..lease * 3 / 2)),
        };
        let faults = if random.bool() { random.usize(1..4) } else { 0 };
        let (min_workers, spare) = (random.usize(1..=WORKERS), random.usize(0..3));
        let room = batch.map_or(1, |_| most);
        let ordered = random.bool();
        // Else a slow hook could hold up an item before it.
        let may_end_early = ordered && batch.is_none() && faults == 0;
        let run = |random: &mut fastrand::Rng| match may_end_early && random.u8(0..4) == 0 {
            true => Run::ended_early(random),
            // Faults need time to fall.
            false => {
                let is_long = random.u8(0..8) == 0 || faults > 0 && random.bool();
                Run::random(random, timeout, is_long)
            }
        };
        Plan {
            ordered,
            min_workers,
            max_workers: if random.u8(0..3) == 0 { min_workers + spare } else { 64 },
            lease,
            retries: if random.bool() { random.u32(1..4) } else { 0 },
            window: random.bool().then(|| random.usize(room..room + 20)),
            batch,
            timeout,
            speculate: random.u8(0..3) == 0,
            skips: random.u8(0..4) > 0,
            load: random.u8(0..8) / 7,
            closes: random.bool(),
            service: !may_end_early && random.u8(0..6) == 0,
            faults: (0..faults).map(|_| (random.u64(0..200), fault(random))).collect(),
            runs: (0..random.usize(1..4)).map(|_| run(random)).collect(),
        }
    }

    /// Whether workers are lost.
    fn is_disturbed(&self) -> bool {
        !self.faults.is_empty() || self.has(Chore::AbortOnce)
    }

    /// Whether a worker may end by itself: its last producer does, a hook ends it, or it finds no broker at its start.
    fn workers_may_end(&self) -> bool {
        let has_broker = !self.faults.iter().any(|(_, fault)| matches!(fault, Fault::Broker(_)));
        self.timeout || self.has(Chore::AbortOnce) || !has_broker
    }

    fn has(&self, chore: Chore) -> bool {
        self.runs.iter().any(|run| run.items.contains(&chore))
    }

    /// Whether an item succeeds. `None`: it may.
    fn succeeds(&self, chore: Chore) -> Option<bool> {
        match chore {
            Chore::Fail | Chore::Panic | Chore::Slow | Chore::Hang => Some(false),
            Chore::FailOnce | Chore::AbortOnce if self.retries == 0 => Some(false),
            _ if self.is_disturbed() || self.timeout => None,
            _ => Some(true),
        }
    }

    /// Whether an item may fail like this.
    fn explains(&self, chore: Chore, error: &Error) -> bool {
        match error {
            Error::TimedOut { .. } => self.timeout,
            Error::BatchFailed { .. } => self.batch.is_some() && self.succeeds(chore) != Some(true),
            Error::HookCrashed { .. } => self.is_disturbed(),
            Error::HookPanicked { .. } => chore == Chore::Panic,
            Error::HookFailed { source, .. } => match source.downcast_ref() {
                Some(ClusterError::WorkerLost { .. }) => self.is_disturbed(),
                Some(_) => false,
                None => matches!(chore, Chore::Fail | Chore::FailOnce),
            },
            _ => false,
        }
    }

    fn build(&self, live_cluster: &LiveCluster) -> Result<ChorePool> {
        let cfg = CfgNode::new().with("load", self.load)?;
        let nats = live_cluster.nats().min_workers(self.min_workers).max_workers(self.max_workers);
        let nats = nats.lease_time(Duration::from_millis(self.lease));
        let mut builder = AnyOrderRunner::builder(make(&cfg)?)
            .order(if self.ordered { Order::Input } else { Order::Completion })
            .retries(self.retries)
            .backoff(Duration::ZERO, Duration::ZERO)
            .on_error(if self.skips { OnError::Skip } else { OnError::Stop })
            .cfg(cfg);
        if let Some(window) = self.window {
            builder = builder.window(window);
        }
        if let Some(batch) = self.batch {
            builder = builder.batch(batch);
        }
        if self.timeout {
            builder = builder.item_timeout(TIMEOUT);
        }
        if self.speculate {
            builder = builder.speculate();
        }
        let nats = nats.wait_for(Duration::from_secs(20));
        Ok(builder.cluster(&CLUSTER_CHORES, nats).build()?)
    }
}

/// The cluster of all cases, once there is one. A new one is made after a case that broke a law.
static LIVE: Mutex<Option<LiveCluster>> = Mutex::new(None);

pub(crate) fn run(random: &mut fastrand::Rng) -> (String, Vec<Broken>) {
    let plan = Plan::random(random);
    watchdog::note_plan(&plan);
    let (laws, before) = (Laws::default(), threads());
    let mut place = LIVE.lock().unwrap_or_else(PoisonError::into_inner);
    let mut live_cluster = place.take().unwrap_or_else(LiveCluster::start);
    // A hook that exceeds its timeout in the last producer of a worker ends it, in a later case too.
    live_cluster.care(&laws, true);
    let pool = plan.build(&live_cluster);
    let may_end = plan.workers_may_end();
    let (end, ended) = mpsc::channel();
    std::thread::scope(|scope| {
        let (laws, plan, live_cluster) = (&laws, &plan, &mut live_cluster);
        scope.spawn(move || live_cluster.disturb(laws, &plan.faults, may_end, &ended));
        match pool {
            Ok(pool) if plan.service => serve(plan, laws, pool),
            Ok(pool) => run_all(plan, laws, pool),
            Err(error) => laws.check("a pool is built", false, || format!("{error:#}")),
        }
        drop(end);
    });
    check_nothing_left(&laws, &[], before);
    live_cluster.check_log(&laws);
    let broken = laws.into_broken();
    if broken.is_empty() {
        *place = Some(live_cluster);
    }
    (format!("{plan:?}"), broken)
}

/// Ends the broker and the workers of all cases. Returns how often one of them was hit, if there were any.
pub(crate) fn end() -> Option<u64> {
    drop(LIVE.lock().unwrap_or_else(PoisonError::into_inner).take());
    Some(INJECTED.load(Ordering::Acquire)).filter(|faults| *faults > 0)
}

fn run_all(plan: &Plan, laws: &Laws, mut pool: ChorePool) {
    for run in &plan.runs {
        run_once(plan, run, laws, &mut pool);
    }
    if plan.closes {
        let closed = pool.close();
        let holds = closed.as_ref().map_or_else(Error::is_timeout, |()| true);
        laws.check("a pool can be closed", holds, || format!("{closed:?}"));
    }
}

fn run_once(plan: &Plan, run: &Run, laws: &Laws, pool: &mut ChorePool) {
    let token = pool.cancel_token();
    let pulled = Cell::new(0);
    let items = run.items.iter().copied().zip(0..).map(|(chore, x)| {
        pulled.set(x + 1);
        if run.cancels_at == Some(x) {
            token.cancel();
        }
        (x, chore, padding(x, chore, true))
    });
    let (mut outputs, mut errors) = (vec![], vec![]);
    if let Some(most) = run.take {
        let mut taken = 0;
        let mut results = pool.outputs(items);
        while (taken < most || run.cancels_then)
            && let Some(result) = results.next()
        {
            match result {
                Ok(output) => outputs.push(output),
                Err(error) => errors.push(error),
            }
            taken += 1;
            if taken == most && run.cancels_then {
                token.cancel();
            }
        }
    } else {
        match pool.run(items) {
            Ok(all) => outputs = all,
            Err(error) => errors.push(error),
        }
    }
    let account = pool.account();
    let sum = account.ok + account.failed + account.cancelled;
    laws.equal("the account adds up", &sum, &pulled.get());
    let has_stopped = run.take.is_none() && !errors.is_empty();
    let has_failed = errors.iter().any(|error| error.is_cancelled() || !plan.skips);
    let failures = if has_stopped { &[] } else { pool.failures() };
    let errors: Vec<&Error> = match run.take {
        Some(_) => errors.iter().collect(),
        None => errors.iter().chain(failures).collect(),
    };
    let is_whole =
        !has_failed && !run.cancels_then && run.take.is_none_or(|most| most > run.items.len());
    check_items(plan, run, laws, &outputs, &errors);
    if is_whole {
        let count = outputs.len() + errors.len();
        laws.equal("each item has an outcome", &count, &run.items.len());
        laws.equal("ok is what was put out", &account.ok, &(outputs.len() as u64));
        laws.equal("failed is what was skipped", &account.failed, &(errors.len() as u64));
    }
    if plan.ordered && !has_stopped {
        let mut all: Vec<u64> = outputs.iter().map(|output| output.0).collect();
        all.extend(errors.iter().filter_map(|error| error.item()));
        all.sort_unstable();
        let gapless: Vec<u64> = (0..all.len() as u64).collect();
        laws.equal("input order has no gaps", &all, &gapless);
    }
}

/// Checks that each outcome is one that the plan has, and that no item has two.
fn check_items(plan: &Plan, run: &Run, laws: &Laws, outputs: &[Output], errors: &[&Error]) {
    let chore = |x: u64| run.items.get(x as usize).copied();
    for (x, y, bytes) in outputs {
        let right = chore(*x).is_some_and(|chore| {
            *y == answer(*x)
                && *bytes == padding(*x, chore, false)
                && plan.succeeds(chore) != Some(false)
        });
        laws.check("each output as its fault says", right, || format!("{x}, {:?}", chore(*x)));
    }
    for error in errors {
        let chore = error.item().and_then(chore);
        let right = match chore {
            _ if error.is_cancelled() => run.cancels_at.is_some() || run.cancels_then,
            Some(chore) => plan.succeeds(chore) != Some(true) && plan.explains(chore, error),
            None => false,
        };
        laws.check("each error as its fault says", right, || format!("{error:#}, {chore:?}"));
    }
    let mut all: Vec<u64> = outputs.iter().map(|output| output.0).collect();
    laws.check("outputs in input order", !plan.ordered || all.is_sorted(), || format!("{all:?}"));
    all.extend(errors.iter().filter_map(|error| error.item()));
    all.sort_unstable();
    let is_twice = all.windows(2).any(|pair| pair[0] == pair[1]);
    laws.check("each item once", !is_twice, || format!("{all:?}"));
}

fn serve(plan: &Plan, laws: &Laws, pool: ChorePool) {
    let service = pool.into_service();
    let items = &plan.runs[0].items;
    let check = |x, chore, answered: Result<Output, Error>| {
        let holds = match &answered {
            Ok(output) => {
                *output == (x, answer(x), padding(x, chore, false))
                    && plan.succeeds(chore) != Some(false)
            }
            Err(error) => plan.succeeds(chore) != Some(true) && plan.explains(chore, error),
        };
        laws.check("each call has its own answer", holds, || {
            let answered = answered.map(|output| (output.0, output.1, output.2.len()));
            format!("{x}, {chore:?}: {answered:?}")
        });
    };
    let input = |(chore, x)| (x, chore, padding(x, chore, true));
    // With an odd number of items, every second one is of a stream.
    let is_streamed = |x: u64| items.len() % 2 == 1 && x % 2 == 1;
    let (streamed, calls): (Vec<_>, Vec<_>) =
        items.iter().copied().zip(0..).partition(|&(_, x)| is_streamed(x));
    std::thread::scope(|scope| {
        for (chore, x) in calls {
            let (service, check) = (&service, &check);
            scope.spawn(move || check(x, chore, service.call(input((chore, x)))));
        }
        let mut stream = service.stream(streamed.iter().copied().map(input));
        for &(chore, x) in &streamed {
            check(x, chore, stream.next().expect("each item has a result"));
        }
        laws.check("a stream ends", stream.next().is_none(), String::new);
    });
    let account = service.account();
    let sum = account.ok + account.failed + account.cancelled;
    laws.equal("each call is counted", &sum, &(items.len() as u64));
}

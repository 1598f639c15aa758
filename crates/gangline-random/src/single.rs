//! One pool, and its runs.

mod checks;
mod plan;

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_lite::future::block_on;
use futures_lite::stream;
use gangline::order::{CompletionOrder, InputOrder, OrderKind, RuntimeOrder};
use gangline::{Account, Batch, Builder, Error, Hook, Journal, OnError, Order, Pool};

use self::checks::{check, check_resumed};
use crate::inputs::{Ask, InputFaults, Inputs, pausing};
use crate::item::Fault;
use crate::laws::{Broken, Laws};
use crate::live::{check_nothing_left, threads};
use crate::work::{HookFaults, Record, Seen, Work};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Timeout {
    None,
    /// So long that no item exceeds it.
    Long,
    /// Slow items exceed it, and on a busy machine others too.
    Short,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consume {
    Run,
    Outputs,
    IntoOutputs,
    /// With a stream of async code as the input.
    RunStream,
    OutputsStream,
}

impl Consume {
    fn has_consumer(self) -> bool {
        matches!(self, Consume::Run | Consume::RunStream)
    }
}

/// The settings of a pool.
#[derive(Debug, Clone)]
pub(crate) struct Settings {
    pub(crate) ordered: bool,
    pub(crate) producers: usize,
    pub(crate) window: Option<usize>,
    pub(crate) batch: Option<Batch>,
    pub(crate) retries: u32,
    pub(crate) timeout: Timeout,
    pub(crate) speculate: bool,
    pub(crate) quarantine: Option<usize>,
    pub(crate) replace: usize,
    pub(crate) recycle: Option<u64>,
    pub(crate) skips: bool,
    pub(crate) max_failures: Option<u64>,
    pub(crate) memory: Option<u64>,
    pub(crate) min_producers: Option<usize>,
    pub(crate) hooks: HookFaults,
}

#[derive(Debug)]
struct Plan {
    settings: Settings,
    order_type: u8,
    consume: Consume,
    take: Option<usize>,
    journal: bool,
    runs_again: bool,
    closes: bool,
    inputs: InputFaults,
    asks: Option<Ask>,
    items: Arc<[Fault]>,
}

/// What may become of an item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Expected {
    Ok,
    Failed,
    Either,
}

impl Settings {
    pub(crate) fn random(random: &mut fastrand::Rng) -> Self {
        let producers = random.usize(1..=6);
        let most = random.usize(1..=9);
        let batch = match random.u8(0..10) {
            0 | 1 => Some(Batch::up_to(most)),
            2 => Some(Batch::of(most)),
            3 => Some(Batch::of(most).within(Duration::from_micros(random.u64(1..3000)))),
            4 => Some(Batch::auto()),
            5 => Some(Batch::auto().latency(Duration::from_micros(random.u64(1..3000)))),
            _ => None,
        };
        let room = batch.map_or(1, |batch| if batch.is_chosen() { 1 } else { batch.most() });
        let skips = random.u8(0..10) < 7;
        let mut settings = Settings {
            ordered: random.bool(),
            producers,
            window: random.bool().then(|| random.usize(room..room + 20)),
            batch,
            retries: if random.u8(0..3) == 0 { random.u32(1..4) } else { 0 },
            timeout: match random.u8(0..20) {
                0..4 => Timeout::Long,
                4 => Timeout::Short,
                _ => Timeout::None,
            },
            speculate: random.u8(0..6) == 0,
            quarantine: (random.u8(0..6) == 0).then(|| random.usize(1..4)),
            replace: if random.u8(0..5) == 0 { random.usize(1..250) } else { 0 },
            recycle: (random.u8(0..6) == 0).then(|| random.u64(1..20)),
            skips,
            max_failures: (skips && random.u8(0..5) == 0).then(|| random.u64(0..6)),
            memory: (random.u8(0..6) == 0).then(|| random.u64(1..40)),
            min_producers: (random.u8(0..8) == 0).then(|| random.usize(1..=producers)),
            hooks: HookFaults::default(),
        };
        if random.u8(0..8) == 0 {
            settings.hooks.init = random.u64(1..15);
            settings.hooks.init_panics = random.bool();
        }
        settings.hooks.end = random.u8(0..12) == 0;
        settings.hooks.consumer_init = random.u8(0..40) == 0;
        settings.hooks.consumer_end = random.u8(0..40) == 0;
        settings.hooks.takes_out = random.u8(0..4) == 0;
        settings
    }

    pub(crate) fn apply<O: OrderKind>(&self, builder: Builder<Work, O>) -> Builder<Work, O> {
        let mut builder = builder
            .devices(self.producers)
            .retries(self.retries)
            .backoff(Duration::ZERO, Duration::from_millis(1))
            .replace_lost(self.replace)
            .on_error(if self.skips { OnError::Skip } else { OnError::Stop });
        if let Some(window) = self.window {
            builder = builder.window(window);
        }
        if let Some(batch) = self.batch {
            builder = builder.batch(batch);
        }
        builder = match self.timeout {
            Timeout::None => builder,
            Timeout::Long => builder.item_timeout(Duration::from_secs(100)),
            Timeout::Short => builder.item_timeout(Duration::from_millis(25)),
        };
        if self.speculate {
            builder = builder.speculate();
        }
        if let Some(failures) = self.quarantine {
            builder = builder.quarantine_after(failures);
        }
        if let Some(items) = self.recycle {
            builder = builder.recycle_after(items);
        }
        if let Some(most) = self.max_failures {
            builder = builder.max_failures(most);
        }
        if let Some(most) = self.memory {
            builder = builder.window_memory(most, |item| item.x % 7 + 1, |value| value.x % 5);
        }
        if let Some(producers) = self.min_producers {
            builder = builder.min_producers(producers);
        }
        builder
    }

    /// What may become of an item with this fault, on the producers' side.
    pub(crate) fn expected(&self, fault: Fault) -> Expected {
        let until = match fault {
            Fault::Error(until) | Fault::Panic(until) => until,
            Fault::Slow => return Expected::Failed,
            Fault::Memory(0) => return Expected::Failed,
            _ => 0,
        };
        // A batch that timed out fails together, as does one whose producer could not rebuild its state.
        let fails_together = self.timeout == Timeout::Short || self.hooks.init > 0;
        if fails_together && self.batch.is_some() {
            return Expected::Either;
        }
        match until {
            u32::MAX => Expected::Failed,
            0 => Expected::Ok,
            _ if self.quarantine.is_some() => Expected::Either,
            _ if until <= self.retries => Expected::Ok,
            _ => Expected::Failed,
        }
    }

    /// Whether the pool may be left with too few producers.
    pub(crate) fn may_lose_too_many(&self) -> bool {
        let least = self.min_producers.unwrap_or(1);
        let init = self.hooks.init > 0 && self.producers - 1 < least;
        self.timeout == Timeout::Short
            || self.quarantine.is_some() && least > 1
            || init
            || self.quarantine.is_some() && self.hooks.init > 0
    }

    /// Whether `producer_init` may fail while the pool is built.
    fn may_fail_to_build(&self) -> bool {
        let least = self.min_producers.unwrap_or(self.producers);
        self.hooks.init > 0
            && self.hooks.init <= self.producers as u64
            && self.producers - 1 < least
    }
}

/// A random fault of a producer or consumer.
pub(crate) fn random_fault(random: &mut fastrand::Rng, kinds: u16) -> Fault {
    let until = [1, 1, 2, u32::MAX][random.usize(0..4)];
    let kind = random.u16(0..8);
    if kinds & (1 << kind) == 0 {
        return Fault::None;
    }
    match kind {
        0 | 1 => Fault::Error(until),
        2 => Fault::Panic(until),
        3 => Fault::Memory(random.usize(0..4)),
        4 if random.u8(0..4) == 0 => Fault::Consumer,
        5 if random.u8(0..4) == 0 => Fault::ConsumerPanic,
        6 if random.u8(0..4) == 0 => Fault::Stop,
        _ => Fault::Busy(random.u32(1..2000)),
    }
}

pub(crate) fn run(random: &mut fastrand::Rng) -> (String, Vec<Broken>) {
    let plan = Plan::random(random);
    let laws = Laws::default();
    let before = threads();
    let directory = plan.journal.then(|| tempfile::tempdir().expect("a folder can be made"));
    let journal = directory.as_ref().map(|it| Journal::at(it.path().join("journal")));
    let first = run_as_composed(&plan, &laws, before, journal.clone());
    if let (Some(journal), Some(first)) = (journal, first) {
        let mut second = Plan { items: plan.items.clone(), ..plan.clone_for_resume() };
        second.inputs.has_size = plan.inputs.has_size;
        if let Some(second) = run_as_composed(&second, &laws, before, Some(journal.resume())) {
            check_resumed(&plan, &laws, &first, &second);
        }
    }
    (format!("{plan:?}"), laws.into_broken())
}

/// What a run came to.
struct Outcome {
    seen: Vec<Seen>,
    /// `None`: it was dropped early.
    result: Option<Result<(), Error>>,
    account: Account,
}

fn run_as_composed(
    plan: &Plan,
    laws: &Laws,
    before: usize,
    journal: Option<Journal>,
) -> Option<Outcome> {
    match (plan.order_type, plan.settings.ordered) {
        (0, true) => run_pool::<InputOrder>(plan, laws, before, journal, |it| it),
        (0, false) => run_pool::<CompletionOrder>(plan, laws, before, journal, |it| it),
        (_, ordered) => run_pool::<RuntimeOrder>(plan, laws, before, journal, move |it| {
            it.order(if ordered { Order::Input } else { Order::Completion })
        }),
    }
}

fn run_pool<O: OrderKind>(
    plan: &Plan,
    laws: &Laws,
    before: usize,
    journal: Option<Journal>,
    order: impl FnOnce(Builder<Work, O>) -> Builder<Work, O>,
) -> Option<Outcome> {
    let record = Arc::new(Record::default());
    let work = Work { record: record.clone(), faults: plan.settings.hooks };
    let mut builder = order(plan.settings.apply(Pool::<Work, O>::builder(work)));
    let resumes = journal.is_some();
    if let Some(journal) = journal {
        builder = builder.journal(journal);
    }
    let outcome = match builder.build() {
        Err(error) => {
            laws.check("a pool is built", plan.settings.may_fail_to_build(), || {
                format!("{error:?}")
            });
            None
        }
        Ok(pool) => {
            laws.check(
                "a failed producer_init fails the build",
                !plan.settings.may_fail_to_build(),
                String::new,
            );
            Some(use_pool(plan, laws, pool, &record, resumes))
        }
    };
    let paired = || {
        let [ready, ends, lost] =
            [&record.ready, &record.ends, &record.lost].map(|it| it.load(Ordering::Acquire));
        ready == ends + lost
    };
    check_nothing_left(laws, &[("items", &record.items), ("states", &record.states)], before);
    if outcome.is_some() {
        laws.check("each state ends once", crate::live::soon(paired), || {
            format!("{:?} ready, {:?} ended, {:?} lost", record.ready, record.ends, record.lost)
        });
    }
    outcome
}

fn use_pool<O: OrderKind>(
    plan: &Plan,
    laws: &Laws,
    mut pool: Pool<Work, O>,
    record: &Arc<Record>,
    has_journal: bool,
) -> Outcome {
    let inputs = Inputs {
        items: plan.items.clone(),
        next: 0,
        faults: plan.inputs,
        record: record.clone(),
        token: pool.cancel_token(),
    };
    let asked = plan.asks.map(|ask| ask.begin(pool.cancel_token()));
    let result = match plan.consume {
        Consume::Run => Some(pool.try_run(inputs).map(drop)),
        Consume::Outputs => consume(plan, record, &mut pool.try_outputs(inputs)),
        Consume::IntoOutputs => {
            let mut outputs = pool.try_into_outputs(inputs);
            let result = consume(plan, record, &mut outputs);
            pool = outputs.into_pool();
            result
        }
        Consume::RunStream => Some(block_on(pool.try_run_stream(pausing(inputs))).map(drop)),
        Consume::OutputsStream => {
            let outputs = pool.try_outputs_stream(pausing(inputs));
            consume(plan, record, &mut stream::block_on(outputs))
        }
    };
    asked.into_iter().for_each(|asked| asked.join().expect("it only asks"));
    let outcome = Outcome { seen: record.seen(), result, account: pool.account() };
    check(plan, laws, record, &outcome, has_journal);
    if plan.runs_again && !has_journal {
        run_again(plan, laws, &mut pool, record);
    }
    if plan.closes {
        let fails = plan.settings.hooks.end;
        let closed = pool.close();
        laws.check(
            "close returns the error of producer_end",
            closed.is_err() == fails || record.ends.load(Ordering::Acquire) == 0,
            || format!("{closed:?}"),
        );
    }
    outcome
}

/// Nothing of one run reaches the next.
fn run_again<O: OrderKind>(
    plan: &Plan,
    laws: &Laws,
    pool: &mut Pool<Work, O>,
    record: &Arc<Record>,
) {
    let settings = &plan.settings;
    let hooks = settings.hooks;
    if settings.may_lose_too_many() || hooks.consumer_init || hooks.consumer_end {
        return;
    }
    let items: Arc<[Fault]> = vec![Fault::None; 20].into();
    let inputs = Inputs {
        items,
        next: 0,
        faults: InputFaults::default(),
        record: record.clone(),
        token: pool.cancel_token(),
    };
    if plan.asks.is_some() {
        // It may have come after the end.
        drop(pool.run([]));
    }
    // A cancel at the end of an `outputs` may still end the next run.
    let result = pool.run(inputs.map(|item| item.expect("it has no faults")));
    match result {
        Ok(mut all) => {
            if !settings.ordered {
                all.sort_unstable();
            }
            laws.equal("a run leaves nothing to the next", &all, &(0..20).collect::<Vec<u64>>());
            let account = pool.account();
            laws.equal("a run leaves nothing to the next", &(account.ok, account.failed), &(20, 0));
        }
        Err(error) => {
            // A state that the last run has lost is built before this one begins, which fails if that does.
            let is_of_init = hooks.init > 0 && error.hook() == Some(Hook::ProducerInit);
            laws.check(
                "a run leaves nothing to the next",
                error.is_cancelled() && plan.inputs.cancels_at.is_some() || is_of_init,
                || format!("{error:?}"),
            );
        }
    }
}

/// Takes outputs, as many as the plan says.
fn consume(
    plan: &Plan,
    record: &Record,
    outputs: &mut dyn Iterator<Item = Result<crate::item::Output, Error>>,
) -> Option<Result<(), Error>> {
    let mut taken = 0;
    loop {
        if plan.take == Some(taken) {
            return None;
        }
        taken += 1;
        match outputs.next() {
            None => return Some(Ok(())),
            Some(Ok(output)) => {
                let right = output.y == crate::item::answer(output.x);
                record.see(Seen::Consumed { x: output.x, right });
            }
            Some(Err(error)) => {
                let Some(x) = plan.settings.skips.then(|| skipped(&error)).flatten() else {
                    return Some(Err(error));
                };
                let (timeout, error) = (error.is_timeout(), format!("{error:#}"));
                record.see(Seen::Skipped { x, timeout, error });
            }
        }
    }
}

/// The item that was skipped with this error, if it does not end the outputs.
fn skipped(error: &Error) -> Option<u64> {
    match error {
        Error::InputFailed { item, .. } | Error::BatchFailed { item, .. } => Some(*item),
        Error::HookFailed { .. } | Error::HookPanicked { .. } | Error::TimedOut { .. } => {
            error.items().first().copied()
        }
        _ => None,
    }
}

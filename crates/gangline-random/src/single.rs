//! One pool, and its runs.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use gangline::order::{CompletionOrder, InputOrder, Order, OrderKind, RuntimeOrder};
use gangline::{Account, Batch, Builder, Error, Hook, Journal, OnError, Pool};

use crate::inputs::{InputFaults, Inputs};
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
    pub(crate) weight: Option<u64>,
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
            _ => None,
        };
        let room = batch.map_or(1, |batch| batch.most());
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
            weight: (random.u8(0..6) == 0).then(|| random.u64(1..40)),
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
        if let Some(most) = self.weight {
            builder = builder.window_weight(most, |item| item.x % 7 + 1);
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

impl Plan {
    fn random(random: &mut fastrand::Rng) -> Self {
        let settings = Settings::random(random);
        let items = match random.u8(0..10) {
            0 => random.u64(0..3),
            1 => random.u64(100..800),
            _ => random.u64(1..60),
        };
        let (one_in, kinds) = (random.u64(1..60), random.u16(0..256));
        let mut faults: Vec<Fault> = (0..items)
            .map(|_| match random.u64(0..one_in) {
                0 => random_fault(random, kinds),
                _ => Fault::None,
            })
            .collect();
        if settings.timeout == Timeout::Short && items > 0 {
            for _ in 0..random.u8(1..4) {
                faults[random.usize(0..items as usize)] = Fault::Slow;
            }
        }
        let mut inputs = InputFaults { has_size: random.bool(), ..InputFaults::default() };
        let at = Some(random.u64(0..items + 2));
        match random.u8(0..20) {
            0 => inputs.fails_at = at,
            1 => inputs.panics_at = at,
            2 | 3 => inputs.cancels_at = at,
            4 => inputs.drains_at = at,
            _ => {}
        }
        let journal = random.u8(0..12) == 0;
        let consume = match random.u8(0..5) {
            0 if !journal => Consume::Outputs,
            1 if !journal => Consume::IntoOutputs,
            _ => Consume::Run,
        };
        Plan {
            settings,
            order_type: random.u8(0..2),
            consume,
            take: (random.u8(0..3) == 0).then(|| random.usize(0..items as usize + 2)),
            journal,
            runs_again: random.bool(),
            closes: random.bool(),
            inputs,
            items: faults.into(),
        }
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

impl Plan {
    /// The same items and settings, without faults of the run itself.
    fn clone_for_resume(&self) -> Plan {
        let mut settings = self.settings.clone();
        settings.hooks =
            HookFaults { takes_out: settings.hooks.takes_out, ..HookFaults::default() };
        settings.min_producers = None;
        Plan {
            settings,
            order_type: self.order_type,
            consume: Consume::Run,
            take: None,
            journal: true,
            runs_again: false,
            closes: self.closes,
            inputs: InputFaults::default(),
            items: self.items.clone(),
        }
    }
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
    let result = match plan.consume {
        Consume::Run => Some(pool.try_run(inputs).map(drop)),
        Consume::Outputs => consume(plan, record, &mut pool.try_outputs(inputs)),
        Consume::IntoOutputs => {
            let mut outputs = pool.try_into_outputs(inputs);
            let result = consume(plan, record, &mut outputs);
            pool = outputs.into_pool();
            result
        }
    };
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
            laws.check(
                "a run leaves nothing to the next",
                error.is_cancelled() && plan.inputs.cancels_at.is_some(),
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

fn check(plan: &Plan, laws: &Laws, record: &Record, outcome: &Outcome, has_journal: bool) {
    let Outcome { seen, result, account } = outcome;
    let pulled = record.pulled.load(Ordering::Acquire);
    let resumes = has_journal && account.already_done > 0;
    check_items(plan, laws, seen, resumes);
    let sum = account.ok + account.failed + account.already_done + account.cancelled;
    let panicked = plan.inputs.panics_at.is_some_and(|at| at < pulled);
    // A feeder of its own may still be in `next` when the outputs have ended.
    let pulls = plan.consume == Consume::IntoOutputs
        && (plan.inputs.cancels_at.is_some() || !matches!(result, Some(Ok(()))));
    laws.check(
        "the account adds up",
        sum == pulled || (panicked || pulls) && sum + 1 == pulled,
        || format!("{account:?}, {pulled} pulled"),
    );
    let consumed = seen.iter().filter(|it| matches!(it, Seen::Consumed { .. })).count() as u64;
    let failed = seen.len() as u64 - consumed;
    laws.equal("ok is what was consumed", &account.ok, &consumed);
    laws.check("failed is at least what was skipped", account.failed >= failed, || {
        format!("{account:?}, {failed} skipped")
    });
    if plan.inputs.has_size && !panicked && !pulls {
        let unread = plan.items.len() as u64 - pulled;
        laws.equal("unread is what was not pulled", &account.unread, &Some(unread));
    }
    if let Some(window) = plan.settings.window
        && !has_journal
    {
        let most = record.most_in_flight.load(Ordering::Acquire);
        laws.check("bounded by the window", most <= window as u64, || {
            format!("{most} in flight, window {window}")
        });
    }
    let ends = record.consumer_ends.load(Ordering::Acquire);
    match result {
        None => {}
        Some(Ok(())) => {
            check_complete(plan, laws, outcome, pulled);
            if plan.consume == Consume::Run {
                laws.equal("consumer_end is called once", &ends, &1);
            }
        }
        Some(Err(error)) => {
            check_error(plan, laws, outcome, error, has_journal);
            let called =
                plan.settings.hooks.consumer_end && error.hook() == Some(Hook::ConsumerEnd);
            laws.equal("consumer_end is not called in a failed run", &ends, &u64::from(called));
        }
    }
}

/// Each item once, right, in order, and as its fault says.
fn check_items(plan: &Plan, laws: &Laws, seen: &[Seen], resumes: bool) {
    let settings = &plan.settings;
    let xs: Vec<u64> = seen.iter().map(|it| it.x()).collect();
    let mut sorted = xs.clone();
    sorted.sort_unstable();
    let twice = sorted.windows(2).any(|two| two[0] == two[1]);
    laws.check("each item once", !twice, || format!("{xs:?}"));
    if settings.ordered && !resumes {
        laws.equal("ordered without gaps", &xs, &(0..xs.len() as u64).collect());
    }
    laws.check("ordered", !settings.ordered || xs == sorted, || format!("{xs:?}"));
    for it in seen {
        let Some(&fault) = plan.items.get(it.x() as usize) else {
            laws.check("each item is one of the input", false, || format!("{it:?}"));
            continue;
        };
        let fails = plan.inputs.fails_at == Some(it.x());
        let expected = if fails { Expected::Failed } else { settings.expected(fault) };
        let holds = match it {
            Seen::Consumed { right, .. } => *right && expected != Expected::Failed,
            Seen::Skipped { timeout, .. } => {
                expected != Expected::Ok || *timeout && settings.timeout == Timeout::Short
            }
        };
        laws.check("each item as in the plain loop", holds, || {
            format!("{it:?} of {fault:?}, expected {expected:?}")
        });
    }
}

/// A run that succeeded did all.
fn check_complete(plan: &Plan, laws: &Laws, outcome: &Outcome, pulled: u64) {
    let Outcome { seen, account, .. } = outcome;
    let stopped = plan.consume == Consume::Run
        && seen.last().is_some_and(|it| {
            plan.items[it.x() as usize] == Fault::Stop && matches!(it, Seen::Consumed { .. })
        });
    let drained = plan.inputs.drains_at.is_some_and(|at| at < pulled);
    let done = seen.len() as u64 + account.already_done;
    if !stopped {
        laws.equal("all that was pulled is done", &done, &pulled);
        laws.equal("nothing is cancelled", &account.cancelled, &0);
        let failed = seen.iter().filter(|it| matches!(it, Seen::Skipped { .. })).count() as u64;
        laws.equal("failed is what was skipped", &account.failed, &failed);
    }
    if !stopped && !drained {
        laws.equal("all is pulled", &pulled, &(plan.items.len() as u64));
    }
    if let Some(most) = plan.settings.max_failures {
        laws.check("max_failures", account.failed <= most, || format!("{account:?}, {most}"));
    }
    let cancelled = plan.inputs.cancels_at.is_some_and(|at| at + 1 < pulled);
    laws.check("a cancelled run fails", !cancelled || stopped, || format!("{account:?}"));
    let hooks = plan.settings.hooks;
    let hook = plan.consume == Consume::Run && (hooks.consumer_init || hooks.consumer_end);
    laws.check("a consumer's failure fails the run", !hook, String::new);
}

/// An error names an item and a cause that the plan has.
fn check_error(plan: &Plan, laws: &Laws, outcome: &Outcome, error: &Error, has_journal: bool) {
    let settings = &plan.settings;
    let items = error.items();
    let consumes = plan.consume == Consume::Run;
    let fault_of = |item: &u64| plan.items.get(*item as usize).copied();
    let can_fail = |item: &u64| {
        plan.inputs.fails_at == Some(*item)
            || fault_of(item).is_some_and(|fault| settings.expected(fault) != Expected::Ok)
            || error.is_timeout() && settings.timeout == Timeout::Short
    };
    let consumer_fails =
        |item: &u64| matches!(fault_of(item), Some(Fault::Consumer | Fault::ConsumerPanic));
    let holds = match error {
        Error::Cancelled { .. } => plan.inputs.cancels_at.is_some(),
        Error::InputPanicked { item, .. } => plan.inputs.panics_at == Some(*item),
        Error::InputFailed { item, .. } => plan.inputs.fails_at == Some(*item) && !settings.skips,
        Error::TooManyFailures { failed, .. } => {
            settings.max_failures.is_some_and(|most| *failed > most)
        }
        Error::TooFewProducers { .. } => settings.may_lose_too_many(),
        Error::HookFailed { hook, .. }
        | Error::HookPanicked { hook, .. }
        | Error::TimedOut { hook, .. } => match hook {
            Hook::ConsumerInit => settings.hooks.consumer_init,
            Hook::ConsumerEnd => settings.hooks.consumer_end,
            Hook::ConsumerWork => consumes && items.iter().all(consumer_fails),
            Hook::ProducerInit => settings.hooks.init > 0,
            Hook::ProducerEnd => false,
            _ => !settings.skips && !items.is_empty() && items.iter().any(can_fail),
        },
        _ => false,
    };
    laws.check("the error is one that the plan has", holds, || format!("{error:?}"));
    let has_place = !matches!(error, Error::TooManyFailures { .. } | Error::TooFewProducers { .. });
    if let (true, true, false, &[first, ..]) = (settings.ordered, has_place, has_journal, items) {
        let seen = outcome.seen.len() as u64;
        laws.equal("all before the failure is consumed, and no more", &seen, &first);
        laws.check("the failed item is counted", outcome.account.failed > 0, || {
            format!("{:?}", outcome.account)
        });
    }
}

/// A resumed run does what the first has not done.
fn check_resumed(plan: &Plan, laws: &Laws, first: &Outcome, second: &Outcome) {
    let consumed = |outcome: &Outcome| -> Vec<u64> {
        let consumed = outcome.seen.iter().filter(|it| matches!(it, Seen::Consumed { .. }));
        consumed.map(|it| it.x()).collect()
    };
    let (done, again) = (consumed(first), consumed(second));
    let panicked = matches!(&first.result, Some(Err(error)) if error.is_panic());
    let twice: Vec<_> = again.iter().filter(|x| done.contains(x)).collect();
    laws.check("a resumed run repeats nothing", twice.is_empty() || panicked, || {
        format!("{twice:?} again")
    });
    if !panicked && second.account.already_done > 0 && matches!(second.result, Some(Ok(()))) {
        laws.equal(
            "already done is what the first run did",
            &second.account.already_done,
            &(done.len() as u64),
        );
    }
    if let Some(Ok(())) = second.result
        && !plan.items.contains(&Fault::Stop)
    {
        let all = second.seen.len() as u64 + second.account.already_done;
        laws.equal("a resumed run completes the first", &all, &(plan.items.len() as u64));
    }
}

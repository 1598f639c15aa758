//! Pipelines of two to five stages, flat or with items that become many parts and come back together.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use gangline::expansion::Open;
use gangline::order::Order;
use gangline::{
    Account, AnyOrderRunner, Batch, BoxError, CancelToken, ConsumerContext, Error, Journal,
    OnError, Pipeline, ProducerContext, Runner,
};

use crate::item::hash;
use crate::laws::{Broken, Laws};
use crate::live::{Count, Live, check_nothing_left, threads};

/// What a stage does with one of its items.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Does {
    Works,
    Fails,
    Panics,
    /// Fails in its first attempt.
    Falters,
}

/// The settings of one stage. The numbers are chances of 256.
#[derive(Debug, Clone, Copy)]
struct Stage {
    seed: u64,
    ordered: bool,
    producers: usize,
    window: usize,
    /// 0: one by one.
    batch: usize,
    waits_for_batch: bool,
    fails: u64,
    panics: u64,
    falters: u64,
    busy: u64,
    retries: u32,
    timeout: bool,
    speculate: bool,
    skips: bool,
    recycle: u64,
    quarantine: bool,
    weighs: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// Of this number of stages.
    Flat(usize),
    /// open, part, gathered.
    Expand,
    /// open, part, part, gathered, after.
    ExpandLong,
    /// open, region, tile, region, gathered.
    Nested,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Folds {
    Whole,
    WholeUnordered,
    Results,
    ResultsUnordered,
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    shape: Shape,
    stages: [Stage; 5],
    parents: u64,
    most_parts: u64,
    open: [usize; 2],
    folds: Folds,
    weight: Option<u64>,
    outputs: bool,
    take: Option<usize>,
    cancels_at: Option<u64>,
    /// The stage whose token cancels and drains.
    token_of: usize,
    drains_at: Option<u64>,
    input_fails_at: Option<u64>,
    input_panics_at: Option<u64>,
    /// The iterator of this parent's parts panics, of 256.
    parts_panic: u64,
    parts_fail: u64,
    journal: bool,
    runs_again: bool,
}

/// A value that travels.
#[derive(Debug, Clone)]
struct Value {
    x: u64,
    /// The parent's index in the input.
    root: u64,
    _live: Live,
}

/// What a case counts.
#[derive(Default)]
struct Record {
    values: Arc<Count>,
    states: Arc<Count>,
    pulled: AtomicU64,
    /// Items of the input with their last x.
    consumed: Mutex<Vec<(u64, u64)>>,
}

type Folded = (Arc<Value>, u64);

/// The runner of a stage.
struct Step<I> {
    stage: Stage,
    record: Arc<Record>,
    unpack: fn(I) -> Value,
}

/// What becomes of an item in the plain loop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Outcome {
    Value(u64),
    Fails,
    /// A retry for another reason may save it.
    Unknown,
}

/// What a run came to.
struct Came {
    consumed: Vec<(u64, u64)>,
    /// `None`: the outputs were dropped.
    result: Option<Result<(), Error>>,
    account: Account,
    pulled: u64,
}

/// A part that failed counts for this.
const HOLE: u64 = 1_000_003;

impl Stage {
    fn random(random: &mut fastrand::Rng, faults: bool) -> Self {
        let batch = if random.u8(0..4) == 0 { random.usize(1..6) } else { 0 };
        let mut chance = |one_in: u8, most: u64| match faults && random.u8(0..one_in) == 0 {
            true => random.u64(0..most),
            false => 0,
        };
        let (fails, panics, falters) = (chance(2, 60), chance(5, 25), chance(4, 60));
        Stage {
            seed: random.u64(..),
            ordered: random.u8(0..4) > 0,
            producers: random.usize(1..=4),
            window: random.usize(batch.max(1)..batch.max(1) + 9),
            batch,
            waits_for_batch: random.bool(),
            fails,
            panics,
            falters,
            busy: if random.u8(0..3) == 0 { random.u64(0..2000) } else { 0 },
            retries: if random.u8(0..4) == 0 { random.u32(1..3) } else { 0 },
            timeout: random.u8(0..5) == 0,
            speculate: random.u8(0..10) == 0,
            skips: random.u8(0..6) > 0,
            recycle: if random.u8(0..8) == 0 { random.u64(1..30) } else { 0 },
            quarantine: random.u8(0..12) == 0,
            weighs: false,
        }
    }

    fn does(&self, x: u64) -> Does {
        let chance = hash(self.seed, x) % 256;
        if chance < self.fails {
            Does::Fails
        } else if chance < self.fails + self.panics {
            Does::Panics
        } else if chance < self.fails + self.panics + self.falters {
            Does::Falters
        } else {
            Does::Works
        }
    }

    /// The outcome in the plain loop.
    fn expected(&self, x: u64) -> Outcome {
        let done = || x.wrapping_mul(3).wrapping_add(1);
        match self.does(x) {
            Does::Works => Outcome::Value(done()),
            Does::Fails | Does::Panics => Outcome::Fails,
            Does::Falters if self.quarantine => Outcome::Unknown,
            Does::Falters if self.retries > 0 => Outcome::Value(done()),
            Does::Falters => Outcome::Fails,
        }
    }

    fn work(&self, cx: &ProducerContext<'_>, x: u64) -> Result<u64, BoxError> {
        (0..hash(self.seed, x) % (self.busy + 1)).for_each(|_| std::hint::spin_loop());
        match self.does(x) {
            Does::Fails => Err(format!("fault of {x}").into()),
            Does::Panics => panic!("fault of {x}"),
            Does::Falters if cx.attempt() == 1 => Err(format!("fault of {x}").into()),
            _ => Ok(x.wrapping_mul(3).wrapping_add(1)),
        }
    }

    fn pool<I>(
        &self,
        record: &Arc<Record>,
        unpack: fn(I) -> Value,
        journal: Option<Journal>,
    ) -> AnyOrderRunner<Step<I>>
    where
        I: Clone + Send + 'static,
    {
        let runner = Step { stage: *self, record: record.clone(), unpack };
        let mut builder = AnyOrderRunner::builder(runner)
            .order(if self.ordered { Order::Input } else { Order::Completion })
            .devices(self.producers)
            .window(self.window)
            .retries(self.retries)
            .backoff(Duration::ZERO, Duration::ZERO)
            .on_error(if self.skips { OnError::Skip } else { OnError::Stop });
        if self.weighs {
            builder = builder.window_weight(u64::MAX, |_| 1);
        }
        if self.batch > 0 {
            builder = builder.batch(match self.waits_for_batch {
                true => Batch::of(self.batch),
                false => Batch::up_to(self.batch),
            });
        }
        if self.timeout {
            builder = builder.item_timeout(Duration::from_secs(100));
        }
        if self.speculate {
            builder = builder.speculate();
        }
        if self.recycle > 0 {
            builder = builder.recycle_after(self.recycle);
        }
        if self.quarantine {
            builder = builder.quarantine_after(2);
        }
        if let Some(journal) = journal {
            builder = builder.journal(journal);
        }
        builder.build().expect("a pool is built")
    }
}

impl<I: Send> Step<I> {
    fn step(&self, cx: &ProducerContext<'_>, value: Value) -> Result<Value, BoxError> {
        let x = self.stage.work(cx, value.x)?;
        Ok(Value { x, ..value })
    }
}

impl<I: Clone + Send> Runner for Step<I> {
    type Input = I;
    type Output = Value;
    type ProducerState = Live;
    type ConsumerState = Vec<(u64, u64)>;
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<Live, BoxError> {
        Ok(self.record.states.live())
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Live,
        input: I,
    ) -> Result<Value, BoxError> {
        self.step(cx, (self.unpack)(input))
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        _: &mut Live,
        inputs: &mut Vec<I>,
    ) -> Result<Vec<Result<Value, BoxError>>, BoxError> {
        for input in &*inputs {
            let x = (self.unpack)(input.clone()).x;
            assert!(self.stage.does(x) != Does::Panics, "fault of {x}");
        }
        let values = inputs.drain(..).map(self.unpack).enumerate();
        Ok(values.map(|(i, value)| self.step(&cx.at(i), value)).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<(u64, u64)>, BoxError> {
        Ok(vec![])
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        _: &mut Vec<(u64, u64)>,
        output: Value,
    ) -> Result<(), BoxError> {
        self.record.consume(&output);
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, _: Vec<(u64, u64)>) -> Result<(), BoxError> {
        Ok(())
    }
}

impl Record {
    fn consume(&self, value: &Value) {
        let mut consumed = self.consumed.lock().unwrap_or_else(PoisonError::into_inner);
        consumed.push((value.root, value.x));
    }

    fn take_consumed(&self) -> Vec<(u64, u64)> {
        std::mem::take(&mut self.consumed.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

fn same(value: Value) -> Value {
    value
}

fn unfold((parent, sum): Folded) -> Value {
    Value { x: hash(parent.x, sum), root: parent.root, _live: parent._live.clone() }
}

fn add(sum: &mut u64, part: u64, x: Option<u64>) {
    *sum = sum.wrapping_add(hash(part, x.unwrap_or(HOLE)));
}

impl Plan {
    fn random(random: &mut fastrand::Rng) -> Self {
        let shape = match random.u8(0..8) {
            0 | 1 => Shape::Flat(random.usize(2..=4)),
            2 | 3 => Shape::Expand,
            4 | 5 => Shape::ExpandLong,
            _ => Shape::Nested,
        };
        let faults = random.u8(0..4) > 0;
        let all_ordered = random.bool();
        let weighs = random.u8(0..5) == 0;
        let mut stages = [(); 5].map(|()| Stage::random(random, faults));
        for stage in &mut stages {
            stage.ordered |= all_ordered;
            stage.weighs = weighs;
        }
        let parents = random.u64(0..25);
        let at = Some(random.u64(0..parents + 2));
        let mut plan = Plan {
            shape,
            stages,
            parents,
            most_parts: [0, 1, 4, 12, 40][random.usize(0..5)],
            open: [random.usize(1..5), random.usize(1..5)],
            folds: [Folds::Whole, Folds::WholeUnordered, Folds::Results, Folds::ResultsUnordered]
                [random.usize(0..4)],
            weight: weighs.then(|| random.u64(1..60)),
            outputs: random.u8(0..4) == 0,
            take: (random.u8(0..3) == 0).then(|| random.usize(0..parents as usize + 1)),
            cancels_at: None,
            token_of: random.usize(0..2),
            drains_at: None,
            input_fails_at: None,
            input_panics_at: None,
            parts_panic: if faults && random.u8(0..4) == 0 { random.u64(0..40) } else { 0 },
            parts_fail: if faults && random.u8(0..4) == 0 { random.u64(0..20) } else { 0 },
            journal: random.u8(0..8) == 0,
            runs_again: random.bool(),
        };
        match random.u8(0..14) {
            0 | 1 => plan.cancels_at = at,
            2 => plan.drains_at = at,
            3 => plan.input_fails_at = at,
            4 => plan.input_panics_at = at,
            _ => {}
        }
        plan.outputs &= !plan.journal;
        plan
    }

    fn is_used(&self, stage: usize) -> bool {
        stage
            < match self.shape {
                Shape::Flat(stages) => stages,
                Shape::Expand => 3,
                Shape::ExpandLong => 4,
                Shape::Nested => 5,
            }
    }

    fn used(&self) -> impl Iterator<Item = &Stage> {
        self.stages.iter().enumerate().filter(|(i, _)| self.is_used(*i)).map(|(_, stage)| stage)
    }

    /// The parts of a value: their x, or an error of the iterator. `None`: it panics.
    fn parts(self, parent: u64) -> impl Iterator<Item = Option<Result<u64, String>>> + Send {
        let count = hash(parent, 1) % (self.most_parts + 1);
        let panics_at =
            (hash(parent, 2) % 256 < self.parts_panic).then(|| hash(parent, 3) % (count + 1));
        (0..=count).filter_map(move |i| match () {
            () if Some(i) == panics_at => Some(None),
            () if i == count => None,
            () if hash(parent, 4 + i) % 256 < self.parts_fail => {
                Some(Some(Err(format!("fault of part {i}"))))
            }
            () => Some(Some(Ok(hash(parent, 1000 + i)))),
        })
    }

    fn holes(&self) -> bool {
        matches!(self.folds, Folds::Results | Folds::ResultsUnordered)
    }

    /// What a value becomes whose parts become what `part` says.
    fn fold(&self, x: u64, part: impl Fn(u64) -> Outcome) -> Outcome {
        let (mut sum, mut came) = (0, Outcome::Value(0));
        for (one, i) in self.parts(x).zip(0..) {
            let one = match one {
                None => return Outcome::Fails,
                Some(Err(_)) => Outcome::Fails,
                Some(Ok(x)) => part(x),
            };
            match one {
                Outcome::Value(x) => add(&mut sum, i, Some(x)),
                Outcome::Fails if self.holes() => add(&mut sum, i, None),
                Outcome::Fails => came = Outcome::Fails,
                Outcome::Unknown if came != Outcome::Fails => came = Outcome::Unknown,
                Outcome::Unknown => {}
            }
        }
        // A part of a parent that fails anyway may or may not be missed by a panic behind it.
        match came {
            Outcome::Value(_) => Outcome::Value(hash(x, sum)),
            other => other,
        }
    }

    /// What an item of the input becomes in the plain loop.
    fn expected(&self, root: u64) -> Outcome {
        if self.input_fails_at == Some(root) {
            return Outcome::Fails;
        }
        let [a, b, c, d, e] = &self.stages;
        let then = |came: Outcome, next: &dyn Fn(u64) -> Outcome| match came {
            Outcome::Value(x) => next(x),
            other => other,
        };
        let x = hash(a.seed, root);
        let first = a.expected(x);
        match self.shape {
            Shape::Flat(stages) => self.stages[1..stages]
                .iter()
                .fold(first, |came, stage| then(came, &|x| stage.expected(x))),
            Shape::Expand => {
                then(then(first, &|x| self.fold(x, |x| b.expected(x))), &|x| c.expected(x))
            }
            Shape::ExpandLong => {
                let part = |x| then(b.expected(x), &|x| c.expected(x));
                then(then(first, &|x| self.fold(x, part)), &|x| d.expected(x))
            }
            Shape::Nested => {
                let region = |x| {
                    let tiles = |x| self.fold(x, |x| c.expected(x));
                    then(then(b.expected(x), &tiles), &|x| d.expected(x))
                };
                then(then(first, &|x| self.fold(x, region)), &|x| e.expected(x))
            }
        }
    }

    /// Whether some stage ends the run at a failure.
    fn may_stop(&self) -> bool {
        self.used().any(|stage| !stage.skips)
    }

    fn is_ordered(&self) -> bool {
        // A gathering in completion order still keeps the order of parents.
        self.used().all(|stage| stage.ordered)
    }
}

/// The input of a pipeline.
struct Inputs {
    plan: Plan,
    next: u64,
    record: Arc<Record>,
    token: CancelToken,
}

impl Iterator for Inputs {
    type Item = Result<Value, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let root = self.next;
        if root == self.plan.parents {
            return None;
        }
        self.next += 1;
        self.record.pulled.fetch_add(1, Ordering::AcqRel);
        let at = Some(root);
        assert!(at != self.plan.input_panics_at, "fault of the input at {root}");
        if at == self.plan.cancels_at {
            self.token.cancel();
        }
        if at == self.plan.drains_at {
            self.token.drain();
        }
        if at == self.plan.input_fails_at {
            return Some(Err(format!("fault of the input at {root}")));
        }
        let x = hash(self.plan.stages[0].seed, root);
        Some(Ok(Value { x, root, _live: self.record.values.live() }))
    }
}

pub(crate) fn run(random: &mut fastrand::Rng) -> (String, Vec<Broken>) {
    let plan = Plan::random(random);
    let (laws, before) = (Laws::default(), threads());
    let record = Arc::new(Record::default());
    let directory = plan.journal.then(|| tempfile::tempdir().expect("a folder can be made"));
    let journal = directory.as_ref().map(|it| Journal::at(it.path().join("journal")));
    let first = use_pools(&plan, &laws, &record, journal.clone());
    check_nothing_left(&laws, &[("values", &record.values), ("states", &record.states)], before);
    if let Some(journal) = journal {
        let sound = Plan {
            cancels_at: None,
            drains_at: None,
            input_fails_at: None,
            input_panics_at: None,
            runs_again: false,
            ..plan
        };
        let second = use_pools(&sound, &laws, &record, Some(journal.resume()));
        check_resumed(&sound, &laws, &first, &second);
        check_nothing_left(&laws, &[("values", &record.values)], before);
    }
    (format!("{plan:?}"), laws.into_broken())
}

fn use_pools(plan: &Plan, laws: &Laws, record: &Arc<Record>, journal: Option<Journal>) -> Came {
    let [a, b, c, d, e] = &plan.stages;
    let has_journal = journal.is_some();
    let mut first = a.pool(record, same, journal);
    let mut second = b.pool(record, same, None);
    let token = if plan.token_of == 0 { first.cancel_token() } else { second.cancel_token() };
    let run = Run { plan, laws, record, token, has_journal };
    let (of, values) = (*plan, record.values.clone());
    let split = move |parent: &Arc<Value>| {
        let (root, values) = (parent.root, values.clone());
        let parts = of.parts(parent.x).enumerate();
        parts.map(move |(i, part)| match part {
            None => panic!("fault of the parts at {i}"),
            Some(part) => part.map(|x| Value { x, root, _live: values.live() }),
        })
    };
    match plan.shape {
        Shape::Flat(2) => run.drive(first.then(&mut second)),
        Shape::Flat(3) => {
            let mut third = c.pool(record, same, None);
            run.drive(first.then(&mut second).then(&mut third))
        }
        Shape::Flat(_) => {
            let (mut third, mut fourth) = (c.pool(record, same, None), d.pool(record, same, None));
            run.drive(first.then(&mut second).then(&mut third).then(&mut fourth))
        }
        Shape::Expand => {
            let mut join = c.pool(record, unfold, None);
            let parts = first.try_expand(split).open_parents(plan.open[0]).then(&mut second);
            run.drive(gather(parts, plan.folds, &mut join))
        }
        Shape::ExpandLong => {
            let (mut third, mut join) = (c.pool(record, same, None), d.pool(record, unfold, None));
            let parts = first.try_expand(split).open_parents(plan.open[0]);
            run.drive(gather(parts.then(&mut second).then(&mut third), plan.folds, &mut join))
        }
        Shape::Nested => {
            let mut third = c.pool(record, same, None);
            let (mut region, mut join) =
                (d.pool(record, unfold, None), e.pool(record, unfold, None));
            let regions =
                first.try_expand(split.clone()).open_parents(plan.open[0]).then(&mut second);
            let tiles = regions.try_expand(split).open_parents(plan.open[1]).then(&mut third);
            let regions = gather(tiles, plan.folds, &mut region);
            run.drive(gather(regions, plan.folds, &mut join))
        }
    }
}

fn gather<'h, S, P>(
    parts: Pipeline<'h, Step<Value>, S, Open<Value, P>>,
    folds: Folds,
    next: &'h mut AnyOrderRunner<Step<Folded>>,
) -> Pipeline<'h, Step<Value>, Step<Folded>, P>
where
    S: Runner<Output = Value> + 'static,
{
    let whole = |sum: &mut u64, part, value: Value| add(sum, part, Some(value.x));
    let results = |sum: &mut u64, part, value: Result<Value, Error>| {
        add(sum, part, value.ok().map(|value| value.x));
    };
    match folds {
        Folds::Whole => parts.gather(|_| 0, whole).then(next),
        Folds::WholeUnordered => parts.gather_unordered(|_| 0, whole).then(next),
        Folds::Results => parts.gather_results(|_| 0, results).then(next),
        Folds::ResultsUnordered => parts.gather_results(|_| 0, results).unordered().then(next),
    }
}

/// A run of a pipeline, once it is composed.
struct Run<'a> {
    plan: &'a Plan,
    laws: &'a Laws,
    record: &'a Arc<Record>,
    token: CancelToken,
    has_journal: bool,
}

impl Run<'_> {
    fn drive<S>(self, mut pipeline: Pipeline<'_, Step<Value>, S>) -> Came
    where
        S: Runner<Output = Value, Summary = ()> + 'static,
    {
        if let Some(most) = self.plan.weight {
            pipeline = pipeline.window_weight(most);
        }
        let came = self.once(*self.plan, &mut pipeline);
        if self.plan.runs_again && !self.has_journal {
            let sound = Plan {
                cancels_at: None,
                drains_at: None,
                input_fails_at: None,
                input_panics_at: None,
                take: None,
                ..*self.plan
            };
            self.once(sound, &mut pipeline);
        }
        came
    }

    fn once<S>(&self, plan: Plan, pipeline: &mut Pipeline<'_, Step<Value>, S>) -> Came
    where
        S: Runner<Output = Value, Summary = ()> + 'static,
    {
        self.record.pulled.store(0, Ordering::Release);
        let (record, token) = (self.record.clone(), self.token.clone());
        let inputs = Inputs { plan, next: 0, record, token };
        let result = match plan.outputs {
            false => Some(pipeline.try_run(inputs)),
            true => self.take(plan, &mut pipeline.try_outputs(inputs)),
        };
        let consumed = self.record.take_consumed();
        let pulled = self.record.pulled.load(Ordering::Acquire);
        let came = Came { consumed, result, account: pipeline.account(), pulled };
        self.check(&plan, &came);
        came
    }

    /// Takes outputs, as many as the plan says.
    fn take(
        &self,
        plan: Plan,
        outputs: &mut dyn Iterator<Item = Result<Value, Error>>,
    ) -> Option<Result<(), Error>> {
        let mut last = None;
        let mut taken = 0;
        loop {
            if plan.take == Some(taken) {
                return None;
            }
            taken += 1;
            match outputs.next() {
                // A skipped parent is an error that more may follow.
                None => return Some(last.map_or(Ok(()), Err)),
                Some(Ok(value)) => {
                    self.record.consume(&value);
                    last = None;
                }
                Some(Err(error)) => last = Some(error),
            }
        }
    }

    fn check(&self, plan: &Plan, came: &Came) {
        let laws = self.laws;
        let Came { consumed, account, pulled, .. } = came;
        self.check_items(plan, came);
        let resumes = account.already_done > 0;
        let sum = account.ok + account.failed + account.already_done + account.cancelled;
        let panicked = plan.input_panics_at.is_some_and(|at| at < *pulled);
        laws.check("the account adds up", sum == *pulled || panicked && sum + 1 == *pulled, || {
            format!("{account:?}, {pulled} pulled")
        });
        laws.equal("ok is what was consumed", &account.ok, &(consumed.len() as u64));
        let is_last_skipped = plan.outputs;
        match &came.result {
            None => {}
            Some(Err(error))
                if is_last_skipped && plan.used().all(|it| it.skips) && skips(error) =>
            {
                self.check_complete(plan, came, resumes);
            }
            Some(Ok(())) => self.check_complete(plan, came, resumes),
            Some(Err(error)) => {
                let holds = match error {
                    Error::Cancelled { .. } => plan.cancels_at.is_some(),
                    error
                        if error.is_input()
                            && error.is_panic()
                            && !matches!(error, Error::PartFailed { .. }) =>
                    {
                        plan.input_panics_at == error.item()
                    }
                    error => plan.may_stop() && format!("{error:#}").contains("fault of"),
                };
                laws.check("the error is one that the plan has", holds, || format!("{error:#}"));
            }
        }
        if plan.used().all(|stage| stage.retries == 0 && !stage.speculate && !stage.quarantine) {
            let windows: usize = plan.used().map(|stage| stage.window + 1).sum();
            let most = windows + plan.open[0] + plan.open[1];
            laws.check(
                "bounded by windows and open parents",
                self.record.values.most() <= most as i64,
                || format!("{} values lived at once, bound {most}", self.record.values.most()),
            );
        }
    }

    fn check_items(&self, plan: &Plan, came: &Came) {
        let laws = self.laws;
        let roots: Vec<u64> = came.consumed.iter().map(|(root, _)| *root).collect();
        let mut sorted = roots.clone();
        sorted.sort_unstable();
        laws.check("each item once", sorted.windows(2).all(|two| two[0] != two[1]), || {
            format!("{roots:?}")
        });
        if plan.is_ordered() {
            laws.equal("ordered", &roots, &sorted);
            let last = roots.last().map_or(0, |root| root + 1);
            let mut missed = (0..last).filter(|root| {
                matches!(plan.expected(*root), Outcome::Value(_)) && !roots.contains(root)
            });
            let resumes = came.account.already_done > 0;
            let missed = missed.next();
            laws.check("ordered without gaps", missed.is_none() || resumes, || {
                format!("{missed:?} of {roots:?}")
            });
        }
        for &(root, x) in &came.consumed {
            let expected = plan.expected(root);
            let holds = expected == Outcome::Value(x) || expected == Outcome::Unknown;
            laws.check("each item as in the plain loop", holds, || {
                format!("{root}: {x}, expected {expected:?}")
            });
        }
    }

    fn check_complete(&self, plan: &Plan, came: &Came, resumes: bool) {
        let (laws, Came { account, pulled, .. }) = (self.laws, came);
        if plan.drains_at.is_none() {
            laws.equal("all is pulled", pulled, &plan.parents);
        }
        laws.equal("nothing is cancelled", &account.cancelled, &0);
        let cancelled = plan.cancels_at.is_some_and(|at| at + 1 < *pulled);
        laws.check("a cancelled run fails", !cancelled, || format!("{account:?}"));
        let expected: Vec<Outcome> = (0..*pulled).map(|root| plan.expected(root)).collect();
        let fails = |outcome| expected.iter().filter(|it| **it == outcome).count() as u64;
        let (least, unknown) = (fails(Outcome::Fails), fails(Outcome::Unknown));
        if !resumes {
            let most = least + unknown;
            laws.check(
                "failed is what fails in the plain loop",
                (least..=most).contains(&account.failed),
                || format!("{account:?}, expected {least} to {most}"),
            );
        }
        laws.check(
            "a failure is skipped only where the policy says so",
            least == 0 || !plan.outputs || account.failed > 0,
            String::new,
        );
    }
}

/// Whether outputs go on after this error.
fn skips(error: &Error) -> bool {
    let is_part = matches!(error, Error::PartFailed { .. });
    let is_end = matches!(error, Error::Cancelled { .. } | Error::TooFewProducers { .. });
    !is_end && (is_part || !error.is_panic() || !error.is_input())
}

/// A resumed run does what the first has not done.
fn check_resumed(plan: &Plan, laws: &Laws, first: &Came, second: &Came) {
    let done: Vec<u64> = first.consumed.iter().map(|(root, _)| *root).collect();
    let twice: Vec<_> = second.consumed.iter().filter(|(root, _)| done.contains(root)).collect();
    laws.check("a resumed run repeats nothing", twice.is_empty(), || format!("{twice:?} again"));
    if let Some(Ok(())) = second.result {
        laws.equal(
            "already done is what the first run did",
            &second.account.already_done,
            &(done.len() as u64),
        );
        let missed = (0..plan.parents).find(|root| {
            matches!(plan.expected(*root), Outcome::Value(_))
                && !done.contains(root)
                && !second.consumed.iter().any(|(other, _)| other == root)
        });
        laws.equal("a resumed run completes the first", &missed, &None);
    }
}

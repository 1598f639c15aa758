//! Pipelines of two to five stages, flat or with items that become many parts and come back together.

mod checks;
mod plan;
mod stage;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_lite::future::block_on;
use futures_lite::stream;
use gangline::expansion::OpenPipeline;
use gangline::{
    Account, AnyOrderRunner, Batch, BoxError, CancelToken, ConsumerContext, Error, Journal,
    OnError, Order, Pipeline, ProducerContext, Runner,
};

use self::checks::check_resumed;
use crate::inputs::{Ask, pausing};
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
    memory: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    /// This number of stages, one after the other.
    Flat(usize),
    /// open, part, gathered.
    Expand,
    /// open, part, part, gathered, after.
    ExpandLong,
    /// open, part, gathered and open again, part, gathered.
    Twice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Folds {
    Whole,
    WholeUnordered,
    Results,
    ResultsUnordered,
}

/// How the pipeline is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    Run,
    Outputs,
    /// With a stream of async code as the input.
    RunStream,
    OutputsStream,
}

impl Way {
    fn gives_outputs(self) -> bool {
        matches!(self, Way::Outputs | Way::OutputsStream)
    }
}

#[derive(Debug, Clone, Copy)]
struct Plan {
    shape: Shape,
    stages: [Stage; 5],
    parents: u64,
    most_parts: u64,
    open: [usize; 2],
    folds: Folds,
    way: Way,
    take: Option<usize>,
    cancels_at: Option<u64>,
    /// The stage with the token that cancels and drains.
    token_of: usize,
    drains_at: Option<u64>,
    asks: Option<Ask>,
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

/// The outcome of an item in the plain loop.
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
            asks: None,
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
    let first = a.pool(record, same, journal);
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
        Shape::Twice => {
            let (mut third, mut fourth) =
                (c.pool(record, unfold, None), d.pool(record, same, None));
            let mut join = e.pool(record, unfold, None);
            let parts =
                first.try_expand(split.clone()).open_parents(plan.open[0]).then(&mut second);
            let whole = gather(parts, plan.folds, &mut third);
            let parts = whole.try_expand(split).open_parents(plan.open[1]).then(&mut fourth);
            run.drive(gather(parts, plan.folds, &mut join))
        }
    }
}

fn gather<'h, S>(
    parts: OpenPipeline<'h, Step<Value>, S, Value>,
    folds: Folds,
    next: &'h mut AnyOrderRunner<Step<Folded>>,
) -> Pipeline<'h, Step<Value>, Step<Folded>>
where
    S: Runner<Output = Value> + 'static,
{
    let whole = |sum: &mut u64, _: &Value, part, value: Value| add(sum, part, Some(value.x));
    let results = |sum: &mut u64, _: &Value, part, value: Result<Value, Error>| {
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
        let came = self.once(*self.plan, &mut pipeline);
        if self.plan.runs_again && !self.has_journal {
            let sound = Plan {
                cancels_at: None,
                drains_at: None,
                asks: None,
                input_fails_at: None,
                input_panics_at: None,
                take: None,
                ..*self.plan
            };
            if self.plan.asks.is_some() {
                // It may have come after the end.
                drop(pipeline.try_run(std::iter::empty::<Result<Value, String>>()));
            }
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
        let asked = plan.asks.map(|ask| ask.begin(token.clone()));
        let inputs = Inputs { plan, next: 0, record, token };
        let result = match plan.way {
            Way::Run => Some(pipeline.try_run(inputs)),
            Way::RunStream => Some(block_on(pipeline.try_run_stream(pausing(inputs)))),
            Way::Outputs => self.take(plan, &mut pipeline.try_outputs(inputs)),
            Way::OutputsStream => {
                let outputs = pipeline.try_outputs_stream(pausing(inputs));
                self.take(plan, &mut stream::block_on(outputs))
            }
        };
        asked.into_iter().for_each(|asked| asked.join().expect("it only asks"));
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
}

/// Whether outputs go on after this error.
fn skips(error: &Error) -> bool {
    let is_part = matches!(error, Error::PartFailed { .. });
    let is_end = matches!(error, Error::Cancelled { .. } | Error::TooFewProducers { .. });
    !is_end && (is_part || !error.is_panic() || !error.is_input())
}

//! One pool of the suite, and runs of it.

use std::sync::Arc;
use std::thread;

use super::gate::HookGate;
use super::probe::{Answer, Answers, NOTES, Probe, Task, TaskWork};
use super::record::PoolRecord;
use crate::api::builder::Builder;
use crate::api::pool::{AnyOrderRunner, RuntimeOrder};
use crate::base::{BoxError, Order, Result};
use crate::error::Error;
use crate::runner::Runner;

/// A builder as the suite uses it.
pub(super) type Setup<R> = Builder<R, RuntimeOrder>;

/// Makes a builder of the suite's runner.
pub(super) type Make<R> = dyn Fn(Probe) -> Setup<R> + Send + Sync;

/// A pool of the candidate.
pub(super) struct Trial<R: Runner + 'static> {
    pub(super) pool: AnyOrderRunner<R>,
    pub(super) record: Arc<PoolRecord>,
}

/// Returns an error with this text unless the condition holds.
macro_rules! ensure {
    ($condition:expr, $($text:tt)+) => {
        if !$condition {
            return Err(format!($($text)+).into());
        }
    };
}
pub(super) use ensure;

pub(super) const BOTH: [Order; 2] = [Order::Input, Order::Completion];

impl<R> Trial<R>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    pub(super) fn new(
        make: &Make<R>,
        record: PoolRecord,
        set: impl FnOnce(Setup<R>) -> Setup<R>,
    ) -> Result<Self> {
        let record = Arc::new(record);
        let mut builder = set(make(Probe::new(record.clone())));
        if let Some(folder) = record.notes() {
            builder = builder.add_to_cfg(NOTES, &folder.to_string_lossy())?;
        }
        let pool = builder.build()?;
        let producers = pool.devices().len();
        ensure!(producers >= 2, "the suite needs 2 devices or more, the builder has {producers}");
        Ok(Trial { pool, record })
    }

    /// In this order, without further settings.
    pub(super) fn plain(make: &Make<R>, order: Order) -> Result<Self> {
        Trial::new(make, PoolRecord::new(), |builder| builder.order(order))
    }

    /// Runs tasks, and forgets what the record has of an earlier run.
    pub(super) fn run(&mut self, tasks: Vec<Task>) -> Result<Answers, Error> {
        let record = self.record.clone();
        record.change(|progress| *progress = Default::default());
        let outcome = self.pool.run(tasks.into_iter().inspect(|_| record.pull()));
        record.change(|progress| progress.is_over = true);
        outcome
    }

    /// The same, while `meanwhile` runs on a thread of its own.
    pub(super) fn run_while(
        &mut self,
        tasks: Vec<Task>,
        gate: &HookGate,
        meanwhile: impl FnOnce(&PoolRecord) -> Result<()> + Send,
    ) -> Result<Result<Answers, Error>> {
        let record = self.record.clone();
        record.change(|progress| *progress = Default::default());
        thread::scope(|scope| {
            let other = thread::Builder::new().name("gangline-conformance-2".to_owned());
            let other = other.spawn_scoped(scope, || meanwhile(&record))?;
            let outcome = self.pool.run(tasks.into_iter().inspect(|_| record.pull()));
            record.change(|progress| progress.is_over = true);
            gate.give_up();
            match other.join() {
                // What the other thread has seen explains how the run went on.
                Ok(seen) => seen.map(|()| outcome),
                Err(payload) => std::panic::resume_unwind(payload),
            }
        })
    }

    /// Checks that the pool is as good as new.
    pub(super) fn check_next_run(&mut self) -> Result<()> {
        let answers = self.run(passing(0..12)).map_err(|error| {
            BoxError::from(format!("the next run of the pool fails: {}", text_of(&error)))
        })?;
        let mut numbers = answers.numbers();
        numbers.sort_unstable();
        ensure!(numbers.into_iter().eq(0..12), "the next run of the pool loses items");
        Ok(())
    }
}

/// Tasks that pass.
pub(super) fn passing(numbers: std::ops::Range<u64>) -> Vec<Task> {
    numbers.map(|number| Task::new(number, TaskWork::Pass)).collect()
}

/// Tasks `0..count`, of which some do something else.
pub(super) fn tasks(count: u64, others: &[(u64, TaskWork)]) -> Vec<Task> {
    let work =
        |number| others.iter().find(|(at, _)| *at == number).map_or(TaskWork::Pass, |it| it.1);
    (0..count).map(|number| Task::new(number, work(number))).collect()
}

/// An error with its causes.
pub(super) fn text_of(error: &Error) -> String {
    let first: &dyn std::error::Error = error;
    let chain = std::iter::successors(Some(first), |error| error.source());
    chain.map(ToString::to_string).collect::<Vec<_>>().join(": ")
}

/// The error that a run must end with.
pub(super) fn failed(outcome: Result<Answers, Error>, why: &str) -> Result<Error> {
    match outcome {
        Err(error) => Ok(error),
        Ok(_) => Err(format!("the run returns Ok, although {why}").into()),
    }
}

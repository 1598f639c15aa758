//! A result for each item.

use std::fmt;

use crate::error::{Error, Result};
use crate::observe::failure::Failure;
use crate::runner::{BatchHook, ConsumerContext, ProducerContext, Runner};

/// The result of one item, as [`Map::results`](crate::closures::Map::results) collects it.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskResult<O> {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if [keys](crate::Builder::key) are in use.
    pub key: Option<String>,
    /// Its output, or its failure.
    pub result: Result<O, Failure>,
}

/// The runner of [`Map::results`](crate::closures::Map::results).
pub struct TaskResults<M> {
    tasks: M,
}

impl<M> TaskResults<M> {
    pub(crate) fn new(tasks: M) -> Self {
        TaskResults { tasks }
    }
}

impl<M: Runner> Runner for TaskResults<M> {
    type Input = M::Input;
    type Output = M::Output;
    type ProducerState = M::ProducerState;
    type ConsumerState = Vec<TaskResult<M::Output>>;
    type Summary = Vec<TaskResult<M::Output>>;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<M::ProducerState> {
        self.tasks.producer_init(cx)
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut M::ProducerState,
        input: M::Input,
    ) -> Result<M::Output> {
        self.tasks.producer_work(cx, state, input)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut M::ProducerState,
        inputs: &mut Vec<M::Input>,
    ) -> Result<Vec<Result<M::Output>>> {
        self.tasks.producer_work_batch(cx, state, inputs)
    }

    fn batch_hook(&self) -> BatchHook {
        self.tasks.batch_hook()
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: M::ProducerState) -> Result<()> {
        self.tasks.producer_end(cx, state)
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Self::ConsumerState> {
        Ok(Vec::new())
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        all: &mut Self::ConsumerState,
        output: M::Output,
    ) -> Result<()> {
        all.push(TaskResult { item: item(cx), key: cx.key(), result: Ok(output) });
        Ok(())
    }

    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        all: &mut Self::ConsumerState,
        error: &Error,
    ) -> Result<()> {
        let key = error.key().map(str::to_owned);
        all.push(TaskResult { item: item(cx), key, result: Err(Failure::of(error)) });
        Ok(())
    }

    fn consumer_end(
        &self,
        _: &ConsumerContext<'_>,
        mut all: Self::ConsumerState,
    ) -> Result<Self::Summary> {
        all.sort_by_key(|task| task.item);
        Ok(all)
    }
}

fn item(cx: &ConsumerContext<'_>) -> u64 {
    cx.item().expect("these hooks are called for an item")
}

impl<M> fmt::Debug for TaskResults<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskResults").finish_non_exhaustive()
    }
}

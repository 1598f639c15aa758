//! A result for each item.

use std::fmt;
use std::time::{Duration, Instant};

use gangline_report::Failure;

use crate::device::Device;
use crate::error::{Error, Result};
use crate::observe::failure::failure_of;
use crate::runner::{ConsumerContext, ProducerContext, Runner, forward_hooks};

/// The result of one item, as [`Map::results`](crate::closures::Map::results) collects it.
///
/// ```
/// use gangline::{OnError, OrderedRunner, map};
///
/// let roots = map(|_| Ok(()), |_, (), x: i64| x.checked_isqrt().ok_or_else(|| "negative".into()));
/// let builder = OrderedRunner::builder(roots.results()).devices(1).on_error(OnError::Skip);
/// let results = builder.build()?.run([9, -1])?;
/// assert_eq!(results[0].result.as_ref().ok(), Some(&3));
/// let failure = results[1].result.as_ref().unwrap_err();
/// assert_eq!((results[1].item, failure.causes.concat()), (1, "negative".to_owned()));
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TaskResult<O> {
    /// The item's index in the input.
    pub item: u64,
    /// Its key, if [keys](crate::Builder::key) are in use.
    pub key: Option<String>,
    /// The number of the producer that worked on it last; `None` if none did, as for an error of the input.
    pub producer: Option<usize>,
    /// That producer's first device.
    pub device: Option<Device>,
    /// How long the call that made the output took; for an item of a batch, the call for the whole batch.
    /// `None` if the item failed.
    pub took: Option<Duration>,
    /// Its output, or its failure.
    pub result: Result<O, Failure>,
}

/// An output of [`TaskResults`], with what is known about its making.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct TaskOutput<O> {
    /// The output of the closure.
    pub output: O,
    /// The producer that made it.
    pub producer: usize,
    /// That producer's first device.
    pub device: Device,
    /// How long the call took; in a batch, the call for the whole batch.
    pub took: Duration,
}

impl<O> TaskOutput<O> {
    fn new(cx: &ProducerContext<'_>, took: Duration, output: O) -> Self {
        TaskOutput { output, producer: cx.producer(), device: *cx.device(), took }
    }
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
    type Output = TaskOutput<M::Output>;
    type ProducerState = M::ProducerState;
    type ConsumerState = Vec<TaskResult<M::Output>>;
    type Summary = Vec<TaskResult<M::Output>>;

    forward_hooks!(self, self.tasks => producer_init, batch_hook, producer_end);

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut M::ProducerState,
        input: M::Input,
    ) -> Result<TaskOutput<M::Output>> {
        let start = Instant::now();
        let output = self.tasks.producer_work(cx, state, input)?;
        Ok(TaskOutput::new(cx, start.elapsed(), output))
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut M::ProducerState,
        inputs: &mut Vec<M::Input>,
    ) -> Result<Vec<Result<TaskOutput<M::Output>>>> {
        let start = Instant::now();
        let outputs = self.tasks.producer_work_batch(cx, state, inputs)?;
        let took = start.elapsed();
        let each = outputs.into_iter();
        Ok(each.map(|output| output.map(|output| TaskOutput::new(cx, took, output))).collect())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Self::ConsumerState> {
        Ok(Vec::new())
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        all: &mut Self::ConsumerState,
        done: TaskOutput<M::Output>,
    ) -> Result<()> {
        all.push(TaskResult {
            item: item(cx),
            key: cx.key(),
            producer: Some(done.producer),
            device: Some(done.device),
            took: Some(done.took),
            result: Ok(done.output),
        });
        Ok(())
    }

    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        all: &mut Self::ConsumerState,
        error: &Error,
    ) -> Result<()> {
        all.push(TaskResult {
            item: item(cx),
            key: error.key().map(str::to_owned),
            producer: error.producer(),
            device: error.device().copied(),
            took: None,
            result: Err(failure_of(error)),
        });
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

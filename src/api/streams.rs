//! Streams of async code as inputs and outputs of a pool or a pipeline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};

use super::exclusive::Exclusive;
use super::stage::{LineOf, TypesOf};
use crate::engine::consume::consumer_of;
use crate::engine::feed::Polled;
use crate::engine::feed::Source;
use crate::engine::outputs::LineOutputs;
use crate::engine::run_driver::RunTask;
use crate::error::Error;
use crate::runner::Runner;

/// A run of a stream of async code as input: a future for any runtime, or none.
///
/// [`Pool::run_stream`](crate::Pool::run_stream) and [`Pipeline::run_stream`](crate::Pipeline::run_stream) make it. `R`
/// is the runner of the first stage, and `S` that of the last; those of a pool are the same. It does nothing before it
/// is polled. The task that awaits it polls the stream, and only while the window of the first stage has room for an
/// item. The producers and the consumer's hooks run on threads of the pools, which wake the task.
///
/// Dropping the future cancels the run: items in flight are dropped, and hooks that are running see that they
/// may give up. The drop waits for nothing. The next use of a pool waits for its hooks, and an async one
/// does so without blocking. Until then the accounts of the pools of a pipeline are empty.
///
/// # Panics
///
/// If it is polled again after it was ready.
#[must_use = "a run does nothing until it is polled"]
pub struct RunStream<'a, R: Runner + 'static, T: Stream, S: Runner + 'static = R> {
    line: &'a mut LineOf<'a, R, S>,
    task: Exclusive<TaskOf<R, T, S>>,
}

/// The outputs of a pool or a pipeline as a stream of async code, from another stream as input.
///
/// [`Pool::outputs_stream`](crate::Pool::outputs_stream) and
/// [`Pipeline::outputs_stream`](crate::Pipeline::outputs_stream) make it. It does nothing before it is polled. Each poll
/// takes as much of the input as there is, and as the window of the first stage has room for: at most 128 items, after
/// which other tasks get their turn. An output is in flight until the next is asked for.
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the stream cancels
/// what is in progress, as for [`RunStream`].
#[must_use = "streams do nothing until they are polled"]
pub struct OutputsStream<'a, R: Runner + 'static, T: Stream, S: Runner + 'static = R> {
    line: &'a mut LineOf<'a, R, S>,
    outputs: Exclusive<LineOutputs<Polled<T>, TypesOf<R>, TypesOf<S>>>,
}

type TaskOf<R, T, S> = RunTask<T, TypesOf<R>, TypesOf<S>, <S as Runner>::Summary>;

impl<'a, R: Runner + 'static, T: Stream, S: Runner + 'static> RunStream<'a, R, T, S> {
    pub(super) fn new(line: &'a mut LineOf<'a, R, S>, source: Source<Polled<T>, R::Input>) -> Self {
        RunStream { line, task: Exclusive::new(RunTask::new(consumer_of::<S>, source)) }
    }
}

impl<'a, R: Runner + 'static, T: Stream, S: Runner + 'static> OutputsStream<'a, R, T, S> {
    pub(super) fn new(line: &'a mut LineOf<'a, R, S>, source: Source<Polled<T>, R::Input>) -> Self {
        OutputsStream { line, outputs: Exclusive::new(LineOutputs::new(source)) }
    }
}

/// The stream is in a box, and nothing else is pinned.
impl<R: Runner + 'static, T: Stream, S: Runner + 'static> Unpin for RunStream<'_, R, T, S> {}

/// The stream is in a box, and nothing else is pinned.
impl<R: Runner + 'static, T: Stream, S: Runner + 'static> Unpin for OutputsStream<'_, R, T, S> {}

impl<R: Runner + 'static, T: Stream, S: Runner + 'static> Future for RunStream<'_, R, T, S> {
    type Output = Result<S::Summary, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let RunStream { line, task } = self.get_mut();
        task.get_mut().poll(*line, cx)
    }
}

impl<R: Runner + 'static, T: Stream, S: Runner + 'static> Stream for OutputsStream<'_, R, T, S> {
    type Item = Result<S::Output, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let OutputsStream { line, outputs } = self.get_mut();
        outputs.get_mut().poll_next(*line, cx)
    }
}

impl<R: Runner + 'static, T: Stream, S: Runner + 'static> FusedStream
    for OutputsStream<'_, R, T, S>
{
    fn is_terminated(&self) -> bool {
        self.outputs.look().is_over()
    }
}

impl<R: Runner + 'static, T: Stream, S: Runner + 'static> Drop for RunStream<'_, R, T, S> {
    fn drop(&mut self) {
        self.task.get_mut().give_up(self.line);
    }
}

impl<R: Runner + 'static, T: Stream, S: Runner + 'static> Drop for OutputsStream<'_, R, T, S> {
    fn drop(&mut self) {
        self.outputs.get_mut().give_up(self.line);
    }
}

impl<R: Runner + 'static, T: Stream, S: Runner + 'static> fmt::Debug for RunStream<'_, R, T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream").finish_non_exhaustive()
    }
}

impl<R: Runner + 'static, T: Stream, S: Runner + 'static> fmt::Debug
    for OutputsStream<'_, R, T, S>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.outputs.look().account(self.line);
        f.debug_struct("OutputsStream").field("account", &account).finish_non_exhaustive()
    }
}

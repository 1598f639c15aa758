//! Streams of async code as inputs and outputs of a pipeline.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};

use crate::engine::feed::Source;
use crate::engine::pipeline_outputs_task::PipelineOutputsTask;
use crate::engine::pipeline_task::PipelineTask;
use crate::engine::polled::Polled;
use crate::engine::stages::Stages;
use crate::error::Error;
use crate::runner::Runner;

/// A run of a pipeline with a stream of async code as input: a future for any runtime, or none.
///
/// [`Pipeline::run_stream`](crate::Pipeline::run_stream) makes it. It is to a pipeline what [`RunStream`] is to a
/// pool: it does nothing before it is polled, polls the stream only while the window of the first stage has room, and
/// blocks nothing.
///
/// Dropping the future cancels all stages, and waits for nothing. The next use of a pool waits for its hooks that are
/// still running, and an async one does so without blocking. Until then the pools' own accounts are empty.
///
/// [`RunStream`]: crate::stream::RunStream
///
/// # Panics
///
/// If it is polled again after it was ready.
#[must_use = "a run does nothing until it is polled"]
pub struct PipelineRunStream<'p, 'h, R: Runner + 'static, S: Runner + 'static, T: Stream> {
    line: &'p mut Stages<'h, R, S>,
    source: Source<Polled<T>, R::Input>,
    task: PipelineTask<R, S>,
}

/// The outputs of a pipeline as a stream of async code, from another stream as input.
///
/// [`Pipeline::outputs_stream`](crate::Pipeline::outputs_stream) makes it. It is to a pipeline what [`OutputsStream`] is
/// to a pool, and does nothing before it is polled. Each poll takes at most 128 items: those that the input has ready,
/// as far as the window of the first stage has room. An output is in flight in the last stage until the next is asked
/// for.
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the stream cancels all
/// stages and waits for nothing, as for [`PipelineRunStream`].
///
/// [`OutputsStream`]: crate::stream::OutputsStream
#[must_use = "streams do nothing until they are polled"]
pub struct PipelineOutputsStream<'p, 'h, R: Runner + 'static, S: Runner + 'static, T: Stream> {
    line: &'p mut Stages<'h, R, S>,
    source: Source<Polled<T>, R::Input>,
    task: PipelineOutputsTask<R, S>,
}

impl<'p, 'h, R: Runner + 'static, S: Runner + 'static, T: Stream>
    PipelineOutputsStream<'p, 'h, R, S, T>
{
    pub(super) fn new(line: &'p mut Stages<'h, R, S>, source: Source<Polled<T>, R::Input>) -> Self {
        PipelineOutputsStream { line, source, task: PipelineOutputsTask::new() }
    }
}

impl<'p, 'h, R: Runner + 'static, S: Runner + 'static, T: Stream>
    PipelineRunStream<'p, 'h, R, S, T>
{
    pub(super) fn new(line: &'p mut Stages<'h, R, S>, source: Source<Polled<T>, R::Input>) -> Self {
        PipelineRunStream { line, source, task: PipelineTask::new() }
    }
}

/// The stream is in a box, and nothing else is pinned.
impl<R: Runner + 'static, S: Runner + 'static, T: Stream> Unpin
    for PipelineRunStream<'_, '_, R, S, T>
{
}

impl<R: Runner + 'static, S: Runner + 'static, T: Stream> Future
    for PipelineRunStream<'_, '_, R, S, T>
{
    type Output = Result<S::Summary, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let PipelineRunStream { line, source, task } = self.get_mut();
        task.poll(line, source, cx)
    }
}

impl<R: Runner + 'static, S: Runner + 'static, T: Stream> Drop
    for PipelineRunStream<'_, '_, R, S, T>
{
    fn drop(&mut self) {
        self.task.give_up(self.line);
    }
}

impl<R: Runner + 'static, S: Runner + 'static, T: Stream> fmt::Debug
    for PipelineRunStream<'_, '_, R, S, T>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineRunStream")
            .field("pulled", &self.source.pulled())
            .finish_non_exhaustive()
    }
}

/// The stream is in a box, and nothing else is pinned.
impl<R: Runner + 'static, S: Runner + 'static, T: Stream> Unpin
    for PipelineOutputsStream<'_, '_, R, S, T>
{
}

impl<R: Runner + 'static, S: Runner + 'static, T: Stream> Stream
    for PipelineOutputsStream<'_, '_, R, S, T>
{
    type Item = Result<S::Output, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let PipelineOutputsStream { line, source, task } = self.get_mut();
        task.poll(line, source, cx)
    }
}

impl<R: Runner + 'static, S: Runner + 'static, T: Stream> FusedStream
    for PipelineOutputsStream<'_, '_, R, S, T>
{
    fn is_terminated(&self) -> bool {
        self.task.is_over()
    }
}

impl<R: Runner + 'static, S: Runner + 'static, T: Stream> Drop
    for PipelineOutputsStream<'_, '_, R, S, T>
{
    fn drop(&mut self) {
        self.task.give_up(self.line);
    }
}

impl<R: Runner + 'static, S: Runner + 'static, T: Stream> fmt::Debug
    for PipelineOutputsStream<'_, '_, R, S, T>
{
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineOutputsStream")
            .field("pulled", &self.source.pulled())
            .finish_non_exhaustive()
    }
}

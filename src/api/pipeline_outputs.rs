//! The outputs of a pipeline as an iterator.

use std::fmt;
use std::iter::FusedIterator;

use crate::engine::feed::Source;
use crate::engine::pipeline_stream::{PipelineStream, given};
use crate::engine::stages::Stages;
use crate::engine::streaming::Yield;
use crate::error::Error;
use crate::runner::Runner;

/// The outputs of a pipeline as an iterator, in the order of its last stage, without consumer hooks.
///
/// Made by [`outputs`](crate::Pipeline::outputs) and [`try_outputs`](crate::Pipeline::try_outputs). It is to a
/// pipeline what [`Outputs`](crate::Outputs) is to a pool: the thread that calls [`next`](Iterator::next) also
/// pulls the input, and waits for room in the first stage and for a result of the last at the same time. Before it
/// returns a result that is ready, it pulls items in place of those that were consumed. A result is in flight in the
/// last stage until the next is asked for. While the input blocks, `next` blocks with it.
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the iterator
/// cancels what is in progress and waits for the hooks that are running.
#[must_use = "outputs pull nothing until the iterator is asked for one"]
pub struct PipelineOutputs<'p, 'h, R: Runner + 'static, S: Runner + 'static, I> {
    line: &'p mut Stages<'h, R, S>,
    source: Source<I, R::Input>,
    /// `None` once it is over.
    stream: Option<PipelineStream<R, S>>,
    /// The error that it could not begin with, until it is yielded.
    refused: Option<Error>,
    /// The number of results that were yielded.
    yielded: u64,
}

impl<'p, 'h, R: Runner + 'static, S: Runner + 'static, I> PipelineOutputs<'p, 'h, R, S, I> {
    pub(super) fn new(line: &'p mut Stages<'h, R, S>, source: Source<I, R::Input>) -> Self {
        let (stream, refused) = match line.begin_stream(source.unread()) {
            Ok(stream) => (Some(stream), None),
            Err(error) => (None, Some(error)),
        };
        PipelineOutputs { line, source, stream, refused, yielded: 0 }
    }

    fn end(&mut self, error: Option<&Error>) {
        if let Some(stream) = self.stream.take() {
            self.line.end_stream(stream, given(&self.source), error);
        }
    }
}

impl<R: Runner + 'static, S: Runner + 'static, I> Iterator for PipelineOutputs<'_, '_, R, S, I> {
    type Item = Result<S::Output, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(error) = self.refused.take() {
            return Some(Err(error));
        }
        let result = match self.stream.as_mut()?.next(&mut self.source) {
            Some(Yield::Output(output)) => Some(Ok(output)),
            Some(Yield::Skipped(error)) => Some(Err(error)),
            Some(Yield::Last(error)) => {
                self.end(Some(&error));
                Some(Err(error))
            }
            None => {
                self.end(None);
                None
            }
        };
        self.yielded += u64::from(result.is_some());
        result
    }

    /// At most what the input still has, and what is in flight. How much comes is not known before the end,
    /// since an error can be the last item.
    fn size_hint(&self) -> (usize, Option<usize>) {
        match (&self.refused, &self.stream) {
            (Some(_), _) => (1, Some(1)),
            (None, None) => (0, Some(0)),
            (None, Some(_)) => {
                let in_flight = self.source.pulled().saturating_sub(self.yielded) as usize;
                (0, self.source.most_left().map(|left| left.saturating_add(in_flight)))
            }
        }
    }
}

impl<R: Runner + 'static, S: Runner + 'static, I> FusedIterator
    for PipelineOutputs<'_, '_, R, S, I>
{
}

impl<R: Runner + 'static, S: Runner + 'static, I> Drop for PipelineOutputs<'_, '_, R, S, I> {
    fn drop(&mut self) {
        self.end(None);
    }
}

impl<R: Runner + 'static, S: Runner + 'static, I> fmt::Debug for PipelineOutputs<'_, '_, R, S, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PipelineOutputs").field("yielded", &self.yielded).finish_non_exhaustive()
    }
}

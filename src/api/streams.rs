//! Streams of async code as inputs and outputs of a pool.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_core::{FusedStream, Stream};

use crate::engine::feed::Source;
use crate::engine::polled::Polled;
use crate::engine::session::Engine;
use crate::engine::task::{OutputsTask, SummaryTask};
use crate::error::Error;
use crate::runner::Runner;

/// A run of a stream of async code as input: a future for any runtime, or none.
///
/// [`Pool::run_stream`](crate::Pool::run_stream) makes it. It does nothing before it is polled. The task that
/// awaits it polls the stream, and only while the window has room for an item. The producers and the consumer's
/// hooks run on threads of the pool, which wake the task.
///
/// Dropping the future cancels the run: items in flight are dropped, and hooks that are running see that they
/// may give up. The drop waits for nothing. The next use of the pool waits for those hooks, and an async one
/// does so without blocking.
///
/// # Panics
///
/// If it is polled again after it was ready.
#[must_use = "a run does nothing until it is polled"]
pub struct RunStream<'a, R: Runner, S: Stream> {
    engine: &'a mut Engine<R>,
    source: Source<Polled<S>, R::Input>,
    task: SummaryTask<R>,
}

/// The outputs of a pool as a stream of async code, from another stream as input.
///
/// [`Pool::outputs_stream`](crate::Pool::outputs_stream) makes it. It does nothing before it is polled. Each poll
/// takes as much of the input as there is, and as the window has room for: at most 128 items, after which other
/// tasks get their turn. An output is in flight until the next is asked for.
///
/// An error is the last item, unless errors are [skipped](crate::Builder::on_error). Dropping the stream cancels
/// what is in progress, as for [`RunStream`].
#[must_use = "streams do nothing until they are polled"]
pub struct OutputsStream<'a, R: Runner, S: Stream> {
    engine: &'a mut Engine<R>,
    source: Source<Polled<S>, R::Input>,
    task: OutputsTask<R>,
}

impl<'a, R: Runner + 'static, S: Stream> RunStream<'a, R, S> {
    pub(crate) fn new(engine: &'a mut Engine<R>, source: Source<Polled<S>, R::Input>) -> Self {
        RunStream { engine, source, task: SummaryTask::new() }
    }
}

impl<'a, R: Runner + 'static, S: Stream> OutputsStream<'a, R, S> {
    pub(crate) fn new(engine: &'a mut Engine<R>, source: Source<Polled<S>, R::Input>) -> Self {
        OutputsStream { engine, source, task: OutputsTask::new() }
    }
}

/// The stream is in a box, and nothing else is pinned.
impl<R: Runner, S: Stream> Unpin for RunStream<'_, R, S> {}

/// The stream is in a box, and nothing else is pinned.
impl<R: Runner, S: Stream> Unpin for OutputsStream<'_, R, S> {}

impl<R: Runner + 'static, S: Stream> Future for RunStream<'_, R, S> {
    type Output = Result<R::Summary, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let RunStream { engine, source, task } = self.get_mut();
        task.poll(engine, source, cx)
    }
}

impl<R: Runner + 'static, S: Stream> Stream for OutputsStream<'_, R, S> {
    type Item = Result<R::Output, Error>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let OutputsStream { engine, source, task } = self.get_mut();
        task.poll(engine, source, cx)
    }
}

impl<R: Runner + 'static, S: Stream> FusedStream for OutputsStream<'_, R, S> {
    fn is_terminated(&self) -> bool {
        self.task.is_over()
    }
}

impl<R: Runner, S: Stream> Drop for RunStream<'_, R, S> {
    fn drop(&mut self) {
        self.task.give_up(self.engine);
    }
}

impl<R: Runner, S: Stream> Drop for OutputsStream<'_, R, S> {
    fn drop(&mut self) {
        self.task.give_up(self.engine);
    }
}

impl<R: Runner, S: Stream> fmt::Debug for RunStream<'_, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RunStream").finish_non_exhaustive()
    }
}

impl<R: Runner, S: Stream> fmt::Debug for OutputsStream<'_, R, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let account = self.engine.account();
        f.debug_struct("OutputsStream").field("account", &account).finish_non_exhaustive()
    }
}

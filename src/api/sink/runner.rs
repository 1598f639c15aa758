//! A runner that writes its outputs to a file.

use std::fmt;

use super::file::{Sink, Writer, Written};
use super::format::Format;
use crate::error::Result;
use crate::runner::{ConsumerContext, Runner, forward_hooks};

/// The producers of one runner with a [`Sink`] as the consumer. Its summary is [`Written`].
///
/// [`Map::sink`](crate::closures::Map::sink) makes it of closures. [`new`](ToSink::new) takes any runner, and
/// leaves that runner's own consumer hooks out.
pub struct ToSink<R, F> {
    runner: R,
    sink: Sink<F>,
}

impl<R, F> ToSink<R, F> {
    /// Replaces the consumer of `runner` by `sink`.
    ///
    /// ```
    /// use gangline::{OrderedRunner, each, sink};
    ///
    /// # let path = std::env::temp_dir().join(format!("gangline-to-sink-{}", std::process::id()));
    /// let squares = each(|x: u64| Ok(x * x)); // or a type with `Runner`
    /// let squares = sink::ToSink::new(squares, sink::lines(&path));
    /// let written = OrderedRunner::new(squares, 2)?.run(0..4)?;
    /// assert_eq!(written.outputs, 4);
    /// # std::fs::remove_file(&path)?;
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn new(runner: R, sink: Sink<F>) -> Self {
        ToSink { runner, sink }
    }
}

impl<R: Runner, F: Format<R::Output>> Runner for ToSink<R, F> {
    type Input = R::Input;
    type Output = R::Output;
    type ProducerState = R::ProducerState;
    type ConsumerState = Writer<F>;
    type Summary = Written;

    forward_hooks!(self, self.runner => producer);

    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Writer<F>> {
        Ok(self.sink.open(cx)?)
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        file: &mut Writer<F>,
        output: R::Output,
    ) -> Result<()> {
        file.write(cx, &output)
    }

    fn consumer_flush(&self, _: &ConsumerContext<'_>, file: &mut Writer<F>) -> Result<()> {
        Ok(file.flush()?)
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, file: Writer<F>) -> Result<Written> {
        Ok(file.finish()?)
    }
}

impl<R, F> fmt::Debug for ToSink<R, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToSink").field("sink", &self.sink).finish_non_exhaustive()
    }
}

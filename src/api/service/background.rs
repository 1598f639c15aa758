//! The results of a stream that a service works on beside its calls.

use std::fmt;
use std::iter::FusedIterator;

use gangline_report::Account;

use super::Service;
use super::streams::{StreamOptions, StreamReceiver, StreamSender, open_stream};
use crate::api::exclusive::Exclusive;
use crate::engine::service::background::BackgroundStream;
use crate::error::Error;
use crate::runner::Runner;

/// The results of a stream that a service works on where no call waits, in order.
///
/// [`Service::stream`] makes it. Like a handle, it keeps the service open.
///
/// The thread that calls [`next`](Iterator::next) also pulls the items: one in place of the last result, and further
/// ones while no result is ready and fewer are open than the stream's window. So nothing is pulled before the first
/// `next`, nor while no result is taken. While the source blocks, `next` blocks with it. In async code, use it on a
/// thread that may block.
///
/// A failed item is an `Err` in its place, and the stream goes on. If the service is closed, drains, ends by itself or
/// is cancelled, or if the source panics, that error is the last item. After a drain the results of the items that
/// were pulled come first. A stream that has given all its results ends without an error.
///
/// Dropping it gives up the items that have no result: those that no hook has are dropped, and a hook that has one
/// sees [`is_cancelled`](crate::ProducerContext::is_cancelled). Calls are not disturbed.
#[must_use = "nothing is pulled until the iterator is asked for a result"]
pub struct Background<R: Runner + 'static, I> {
    // Dropped before the handle.
    stream: Exclusive<BackgroundStream<R::Input, R::Output, I>>,
    service: Service<R>,
}

impl<R: Runner + 'static> Service<R> {
    /// Works on a stream of items where no call waits. Returns the results in the order of the stream.
    ///
    /// Calls go before all items of the stream that no hook has. If a [batch](crate::Builder::batch) has room beside
    /// the calls that wait, items of the stream fill it up; a call does not wait for other calls then. So the stream
    /// costs a call at most the batch that is in progress when the call comes. Retries keep their rank: those of a call
    /// go before the stream, and those of the stream after calls.
    ///
    /// If calls take all of the time, the stream still gets every tenth item: see
    /// [`set_stream_share`](Service::set_stream_share). [Deadlines](Service::with_deadline) hold for calls only.
    ///
    /// The items need no places in the queue. A stream has at most [`window`](crate::Builder::window) items open, and
    /// no more than 64, or four of the largest batches for each producer if that is more. Several streams share what
    /// calls leave: their items are given out in the order in which they were pulled.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?.into_service();
    /// let stream = service.stream(1..=1_000);
    /// let sum = std::thread::spawn(move || stream.sum::<Result<u64, _>>());
    /// assert_eq!(service.call(3)?, 9, "meanwhile");
    /// assert_eq!(sum.join().expect("it does not panic")?, 333_833_500);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn stream<I>(&self, items: I) -> Background<R, I::IntoIter>
    where
        I: IntoIterator<Item = R::Input>,
    {
        let host = &self.host.0;
        let stream = BackgroundStream::new(host.calls(), host.stream_window(), items);
        Background { stream: Exclusive::new(stream), service: self.clone() }
    }

    /// Opens a stream of items where no call waits. One thread sends the items, and another takes the results.
    ///
    /// Its items have the priority of [`stream`](Service::stream), and count like those. Unlike there, the input may block
    /// while results are taken. A service may have several streams at a time.
    ///
    /// ```
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
    /// let service = OrderedRunner::new(squares, 2)?.into_service();
    /// let (mut sender, results) = service.open_stream(StreamOptions::new());
    /// let feeder = std::thread::spawn(move || {
    ///     let mut items = 1..=1_000;
    ///     loop {
    ///         let chunk: Vec<u64> = items.by_ref().take(sender.room()).collect();
    ///         if chunk.is_empty() || sender.send_some(chunk).is_err() {
    ///             return; // all are sent, or the stream has ended
    ///         }
    ///     }
    /// });
    /// let sum = results.map(|next| next.result).sum::<Result<u64, _>>()?;
    /// assert_eq!(sum, 333_833_500);
    /// feeder.join().expect("it does not panic");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn open_stream(&self, options: StreamOptions<R>) -> (StreamSender<R>, StreamReceiver<R>) {
        open_stream(self, options)
    }

    /// Sets the share of [streams](Service::stream) while calls wait, in percent of the items. The default is 10, the
    /// largest share 90.
    ///
    /// Items that streams had beyond their share are set off against it, up to a hundred batches. So a burst of calls
    /// does not wait for a stream that was worked on in the gaps before. With 0, streams have what calls leave, which
    /// may be nothing.
    ///
    /// If calls need more of the time than streams leave them, they wait ever longer, as they would on fewer devices.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// service.set_stream_share(25);
    /// assert_eq!(service.stream(0..3).collect::<Result<Vec<_>, _>>()?, [0, 1, 2]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn set_stream_share(&self, percent: u8) {
        self.host.0.set_stream_share(percent);
    }

    /// Counts the items of [streams](Service::stream) by outcome. [`account`](Service::account) includes them.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// service.call(7)?;
    /// assert_eq!(service.stream(0..3).count(), 3);
    /// assert_eq!((service.stream_account().ok, service.account().ok), (3, 4));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn stream_account(&self) -> Account {
        self.host.0.calls().board.stream_account()
    }
}

impl<R: Runner + 'static, I: Iterator<Item = R::Input>> Iterator for Background<R, I> {
    type Item = Result<R::Output, Error>;

    fn next(&mut self) -> Option<Self::Item> {
        self.stream.get_mut().next()
    }
}

impl<R: Runner + 'static, I: Iterator<Item = R::Input>> FusedIterator for Background<R, I> {}

impl<R: Runner + 'static, I> fmt::Debug for Background<R, I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Background").field("service", &self.service).finish_non_exhaustive()
    }
}

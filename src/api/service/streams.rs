//! A stream of a service whose items one thread sends and whose results another takes.

use std::fmt;
use std::iter::FusedIterator;
use std::task::{Context, Poll};
use std::time::Instant;

use super::Service;
use crate::base::Order;
use crate::engine::service::stream_items::IndexedResult;
use crate::engine::service::streams::{
    ItemSender, StreamMemory, StreamResults, StreamSettings, open,
};
use crate::error::Error;
use crate::run::measures::Amount;
use crate::runner::Runner;

/// How [`Service::open_stream`] opens a stream: the order of its results, and what bounds it.
///
/// ```
/// use gangline::service::StreamOptions;
/// use gangline::{Order, OrderedRunner, map};
///
/// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
/// let options = StreamOptions::new().order(Order::Completion).window(8);
/// let (mut sender, results) = service.open_stream(options);
/// assert_eq!(sender.room(), 8);
/// sender.send_some(vec![3, 4]).expect("there is room");
/// sender.finish();
/// assert_eq!(results.count(), 2);
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[must_use = "it is an argument of `Service::open_stream`"]
pub struct StreamOptions<R: Runner> {
    order: Order,
    window: Option<usize>,
    least_open: usize,
    memory: Option<StreamMemory<R::Input, R::Output>>,
}

/// Sends the items of a stream to a service. [`Service::open_stream`] makes it.
///
/// It is meant for a thread of its own, which feeds the stream while another takes the results. Dropping it ends the
/// input, as [`finish`](StreamSender::finish) does. Like a handle, it keeps the service open.
///
/// # Room
///
/// There is room while fewer items are open than the stream's window, and while they leave memory free, if that is
/// bounded. An item is open from being sent until its result is taken. A sender that waits for room is woken once half of
/// what may be open is free, or earlier if the producers and the receiver may run dry. So it moves many items at once. A
/// receiver that takes a few of many results that are ready, and then waits until the sender goes on, may wait for ever.
///
/// There is no more room, now and later, once the receiver is dropped, or the service is closed, drains or has ended.
pub struct StreamSender<R: Runner + 'static> {
    // Dropped before the handle.
    sender: ItemSender<R::Input, R::Output>,
    service: Service<R>,
}

/// Takes the results of a stream of a service. [`Service::open_stream`] makes it.
///
/// It is an iterator that waits for the next result. [`take_ready`](StreamReceiver::take_ready) does not wait,
/// [`wait_until`](StreamReceiver::wait_until) waits for a limited time, and [`poll_next`](StreamReceiver::poll_next) is for
/// async code. Like a handle, it keeps the service open.
///
/// A failed item is an `Err` in its place, and the stream goes on. After the last result there is `None`. If the service is
/// closed, drains, ends by itself or is cancelled before all items were sent, or while some are open, that error is the
/// last result. After a drain the results of the items that were sent come first. In a forked process the only result is
/// [`Error::Forked`], and on a thread of the service's producers [`Error::OwnThread`].
///
/// Dropping it gives up the open items: those that no hook has are dropped, and a hook that has one sees
/// [`is_cancelled`](crate::ProducerContext::is_cancelled). The sender has no more room then.
#[must_use = "dropping it gives the stream up"]
pub struct StreamReceiver<R: Runner + 'static> {
    // Dropped before the handle.
    results: StreamResults<R::Input, R::Output>,
    service: Service<R>,
}

/// The result of one item of a stream.
#[derive(Debug)]
#[non_exhaustive]
pub struct StreamResult<T> {
    /// The number of items that were sent before this one. For the error that ends a stream: the number of results that were
    /// taken before.
    pub index: u64,
    /// The output, or why there is none.
    pub result: Result<T, Error>,
}

/// The stream accepts no more items; those that were not sent come back.
///
/// The last result of the stream says why, unless its receiver was dropped.
///
/// ```
/// use gangline::service::{SendError, StreamOptions};
/// use gangline::{OrderedRunner, map};
///
/// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
/// let (mut sender, results) = service.open_stream(StreamOptions::new());
/// drop(results);
/// assert_eq!(sender.send(7), Err(SendError(7)));
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SendError<I>(pub I);

impl<R: Runner> StreamOptions<R> {
    /// Input order, the default window, and no bound in memory.
    pub fn new() -> Self {
        StreamOptions { order: Order::Input, window: None, least_open: 1, memory: None }
    }

    /// Sets the order of the results. The default is [`Order::Input`].
    ///
    /// In [completion order](Order::Completion) a result may be taken as soon as it is there, and
    /// [`index`](StreamResult::index) says whose it is.
    ///
    /// ```
    /// use gangline::service::StreamOptions;
    /// use gangline::{Order, OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?.into_service();
    /// let options = StreamOptions::new().order(Order::Completion);
    /// let (mut sender, results) = service.open_stream(options);
    /// sender.send_some(vec![5, 6, 7]).expect("there is room");
    /// sender.finish();
    /// let mut by_index = [0; 3];
    /// for next in results {
    ///     by_index[next.index as usize] = next.result?;
    /// }
    /// assert_eq!(by_index, [5, 6, 7]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn order(mut self, order: Order) -> Self {
        self.order = order;
        self
    }

    /// Sets the largest number of open items: sent, and their results not taken. 0 counts as 1.
    ///
    /// The default is that of [`Service::stream`].
    ///
    /// ```
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?.into_service();
    /// let (sender, _results) = service.open_stream(StreamOptions::new().window(100));
    /// assert_eq!(sender.room(), 100);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn window(mut self, items: usize) -> Self {
        self.window = Some(items);
        self
    }

    /// Bounds what the open items take in memory, in bytes: inputs until the output is known, then outputs until they are
    /// taken. `input` and `output` return the size of one.
    ///
    /// What is not known yet counts as the largest seen in this stream, and before the first output as an even part of the
    /// bound for each item that the producers work on at once. So only an item larger than all before it can exceed the
    /// bound. An item that is larger than the bound goes alone, or beside [`least_open`](StreamOptions::least_open) others.
    ///
    /// `input` is called by the sender, `output` by producers. If one panics, the item fails with
    /// [`Error::MeasurePanicked`].
    ///
    /// ```
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let zeros = map(|_| Ok(()), |_, _, len: usize| Ok(vec![0_u8; len]));
    /// let service = OrderedRunner::new(zeros, 2)?.into_service();
    /// let options = StreamOptions::new().memory(1 << 20, |_| 8, |zeros: &Vec<u8>| zeros.len());
    /// let (mut sender, mut results) = service.open_stream(options);
    /// sender.send(1 << 19).expect("the service is open");
    /// results.wait_until(std::time::Instant::now() + std::time::Duration::from_secs(60));
    /// assert_eq!(sender.room(), 1, "half of the bound is taken");
    /// assert_eq!(results.next().expect("it is there").result?.len(), 1 << 19);
    /// assert_eq!(sender.room(), 2);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn memory<N: Amount>(
        mut self,
        bytes: N,
        input: impl Fn(&R::Input) -> N + Send + Sync + 'static,
        output: impl Fn(&R::Output) -> N + Send + Sync + 'static,
    ) -> Self {
        self.memory = Some(StreamMemory {
            bytes: bytes.get(),
            least: 1,
            input: Box::new(move |it| input(it).get()),
            output: Box::new(move |it| output(it).get()),
        });
        self
    }

    /// Sets the number of items that may be open whatever they take in [memory](StreamOptions::memory). The default is 1.
    ///
    /// With the number of producers, none of them has to wait for the bound.
    pub fn least_open(mut self, items: usize) -> Self {
        self.least_open = items;
        self
    }

    fn into_settings(self, default_window: usize) -> StreamSettings<R::Input, R::Output> {
        let StreamOptions { order, window, least_open: least, memory } = self;
        let memory = memory.map(|memory| StreamMemory { least, ..memory });
        StreamSettings { order, window: window.unwrap_or(default_window), memory }
    }
}

/// Opens a stream of a service.
pub(super) fn open_stream<R: Runner + 'static>(
    service: &Service<R>,
    options: StreamOptions<R>,
) -> (StreamSender<R>, StreamReceiver<R>) {
    let host = &service.host.0;
    let (sender, results) = open(host.calls(), options.into_settings(host.stream_window()));
    let sender = StreamSender { sender, service: service.clone() };
    (sender, StreamReceiver { results, service: service.clone() })
}

impl<R: Runner + 'static> StreamSender<R> {
    /// Waits until at least one item may be sent, and returns the number of items that may be sent now.
    ///
    /// Returns 0 once the stream accepts no more items. A thread of the service's producers does not wait, so for it 0 may
    /// also mean that there is no room yet.
    ///
    /// ```
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// let (mut sender, results) = service.open_stream(StreamOptions::new().window(3));
    /// sender.send(7).expect("there is room");
    /// assert_eq!(sender.room(), 2);
    /// drop(results);
    /// assert_eq!(sender.room(), 0);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn room(&self) -> usize {
        self.sender.room()
    }

    /// Polls for [room](StreamSender::room). While there is none, the task is woken as a thread would be; another poll
    /// replaces its waker.
    pub fn poll_room(&self, cx: &mut Context<'_>) -> Poll<usize> {
        self.sender.poll_room(cx)
    }

    /// Sends an item, once there is room.
    ///
    /// # Errors
    ///
    /// If the stream accepts no more items: with the item.
    pub fn send(&mut self, input: R::Input) -> Result<(), SendError<R::Input>> {
        self.sender.send([input]).map_err(|mut refused| {
            SendError(refused.pop().expect("an item that was not sent comes back"))
        })
    }

    /// Sends items, of which there is [room](StreamSender::room) for all. The producers learn of all at once, which is faster
    /// than one after the other.
    ///
    /// If there is no room for some, it waits until they can be sent.
    ///
    /// # Errors
    ///
    /// If the stream accepts no more items: with those that were not sent, in their order.
    ///
    /// ```
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x + 1)), 2)?.into_service();
    /// let (mut sender, results) = service.open_stream(StreamOptions::new());
    /// sender.send_some((0..50).collect()).expect("the service is open");
    /// sender.finish();
    /// assert!(results.map(|next| next.result.unwrap()).eq(1..=50));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn send_some(&mut self, inputs: Vec<R::Input>) -> Result<(), SendError<Vec<R::Input>>> {
        self.sender.send(inputs).map_err(SendError)
    }

    /// Ends the input. The receiver gets the results of the open items, and then `None`.
    pub fn finish(self) {}

    /// The service of this stream.
    pub fn service(&self) -> &Service<R> {
        &self.service
    }
}

impl<R: Runner + 'static> StreamReceiver<R> {
    /// Takes up to `most` results that are there, without waiting.
    ///
    /// Fewer come if the others are not there yet. Whether the stream has ended, [`poll_next`](StreamReceiver::poll_next)
    /// and the iterator say.
    ///
    /// ```
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// let (mut sender, mut results) = service.open_stream(StreamOptions::new());
    /// assert!(results.take_ready(9).is_empty());
    /// sender.send_some(vec![0, 1, 2]).expect("there is room");
    /// sender.finish();
    /// let mut taken = vec![];
    /// while let Some(first) = results.next() {
    ///     taken.push(first.index);
    ///     taken.extend(results.take_ready(usize::MAX).iter().map(|next| next.index));
    /// }
    /// assert_eq!(taken, [0, 1, 2]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn take_ready(&mut self, most: usize) -> Vec<StreamResult<R::Output>> {
        self.results.take_ready(most).into_iter().map(StreamResult::new).collect()
    }

    /// Polls for the next result; `None` after the last. The task is woken when there is one. Another poll, also from another
    /// task, replaces the waker.
    ///
    /// ```
    /// use std::task::{Context, Poll, Waker};
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// let (sender, mut results) = service.open_stream(StreamOptions::new());
    /// let mut cx = Context::from_waker(Waker::noop());
    /// assert!(results.poll_next(&mut cx).is_pending());
    /// sender.finish();
    /// assert!(matches!(results.poll_next(&mut cx), Poll::Ready(None)));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<StreamResult<R::Output>>> {
        self.results.poll_next(cx).map(|next| next.map(StreamResult::new))
    }

    /// Waits until there is a result or the stream has ended, at most until `end`. Returns whether that is so: then the next
    /// call of `next` does not wait.
    ///
    /// ```
    /// use std::time::{Duration, Instant};
    /// use gangline::service::StreamOptions;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// let (mut sender, mut results) = service.open_stream(StreamOptions::new());
    /// assert!(!results.wait_until(Instant::now() + Duration::from_millis(1)));
    /// sender.send(7).expect("there is room");
    /// assert!(results.wait_until(Instant::now() + Duration::from_secs(60)));
    /// assert_eq!(results.next().expect("it is there").result?, 7);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn wait_until(&mut self, end: Instant) -> bool {
        self.results.wait_until(end)
    }

    /// The service of this stream.
    pub fn service(&self) -> &Service<R> {
        &self.service
    }
}

impl<R: Runner + 'static> Iterator for StreamReceiver<R> {
    type Item = StreamResult<R::Output>;

    fn next(&mut self) -> Option<Self::Item> {
        self.results.next().map(StreamResult::new)
    }
}

impl<R: Runner + 'static> FusedIterator for StreamReceiver<R> {}

impl<T> StreamResult<T> {
    fn new((index, result): IndexedResult<T>) -> Self {
        StreamResult { index, result }
    }
}

impl<R: Runner> Default for StreamOptions<R> {
    fn default() -> Self {
        StreamOptions::new()
    }
}

impl<R: Runner> fmt::Debug for StreamOptions<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamOptions")
            .field("order", &self.order)
            .field("window", &self.window)
            .field("least_open", &self.least_open)
            .field("memory", &self.memory.as_ref().map(|memory| memory.bytes))
            .finish()
    }
}

impl<R: Runner + 'static> fmt::Debug for StreamSender<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamSender").field("service", &self.service).finish_non_exhaustive()
    }
}

impl<R: Runner + 'static> fmt::Debug for StreamReceiver<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StreamReceiver").field("service", &self.service).finish_non_exhaustive()
    }
}

impl<I> fmt::Debug for SendError<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SendError").finish_non_exhaustive()
    }
}

impl<I> fmt::Display for SendError<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the stream accepts no more items")
    }
}

impl<I> std::error::Error for SendError<I> {}

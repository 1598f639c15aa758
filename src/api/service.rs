//! A pool that answers calls.

mod background;
mod streams;
mod ticket;
#[cfg(feature = "tower")]
mod tower;

use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline_report::{Account, RunReport};

pub use self::background::Background;
pub use self::streams::{SendError, StreamOptions, StreamReceiver, StreamResult, StreamSender};
use self::ticket::wait_for;
pub use self::ticket::{Call, Full, Ticket};
use crate::api::pool::{AnyOrderRunner, Pool};
use crate::engine::service::ServiceHost;
use crate::engine::service::calls::PendingCall;
#[cfg(feature = "tower")]
use crate::engine::service::calls::Reservation;
use crate::engine::service::service_state::Deadline;
use crate::error::Error;
use crate::observe::run_stats::{ProducerTime, SeatTime};
use crate::runner::Runner;

/// A pool that answers calls, from any thread and from async code.
///
/// [`Pool::into_service`] makes it. Clones are handles of the same service; it is closed by
/// [`close`](Service::close), or with its last handle. Its producers, batches, retries, timeouts, quarantine and
/// speculation are those of the pool. No hook of a consumer runs.
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
/// let service = OrderedRunner::new(squares, 2)?.into_service();
/// let from_another_thread = service.clone();
/// let other = std::thread::spawn(move || from_another_thread.call(3));
/// assert_eq!(service.call(4)?, 16);
/// assert_eq!(other.join().expect("it does not panic")?, 9);
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// # The queue
///
/// At most [`window`](crate::Builder::window) calls are open, which means accepted and not yet answered. The
/// default is 1,024, or four of the largest batches for each producer if that is more. Further callers wait, and
/// are accepted in the order of their arrival; [`try_submit`](Service::try_submit) refuses instead. Items are
/// given out in the order in which they were accepted. A bound in memory ([`window_memory`]) does not apply.
///
/// # Batches
///
/// Batches form across callers. A free producer takes the items that are there, up to the largest batch. It waits
/// for more only if the [`Batch`](crate::Batch) has a [time limit](crate::Batch::within), because each caller
/// may be waiting for its answer before it calls again.
///
/// # A stream beside calls
///
/// [`stream`](Service::stream) has the producers work on other items where no call waits. With
/// [`open_stream`](Service::open_stream), one thread sends the items and another takes the results.
///
/// # Failures
///
/// A failed item answers its own caller, with the whole [`Error`], and the service goes on:
/// [`on_error`](crate::Builder::on_error) and [`max_failures`](crate::Builder::max_failures) do not apply, and
/// [`Verdict::Stop`](crate::Verdict::Stop) fails that call only. If too few producers are left, or the
/// [`run_timeout`](crate::Builder::run_timeout) is over, the service ends, and every open and later call is
/// answered with [`Error::ServiceEnded`].
///
/// A pool that is closed or has a [journal](crate::Builder::journal) makes a service that answers every call with
/// the error.
///
/// # Calls that are given up
///
/// Dropping a [`Call`] or a [`Ticket`] gives the call up. If no hook has its item, the item is dropped. If one
/// does, [`is_cancelled`](crate::ProducerContext::is_cancelled) turns true for that item, and the result is
/// dropped. Either way it counts as cancelled.
///
/// # From a hook
///
/// A producer of the service cannot wait for an answer of the same service: that is [`Error::OwnThread`].
///
/// [`window_memory`]: crate::Builder::window_memory
pub struct Service<R: Runner + 'static> {
    host: Arc<ServiceCloser<R>>,
    limit: Option<Duration>,
    #[cfg(feature = "tower")]
    place: Option<Reservation<R::Input, R::Output>>,
}

/// Closes the service with its last handle.
struct ServiceCloser<R: Runner + 'static>(ServiceHost<R::Input, R::Output>);

impl<R: Runner + 'static> Service<R> {
    pub(crate) fn new(host: ServiceHost<R::Input, R::Output>) -> Self {
        Self::of(Arc::new(ServiceCloser(host)), None)
    }

    fn of(host: Arc<ServiceCloser<R>>, limit: Option<Duration>) -> Self {
        Service {
            host,
            limit,
            #[cfg(feature = "tower")]
            place: None,
        }
    }

    /// Works on one item, and waits for the result.
    ///
    /// If the queue is full, it first waits for a place.
    ///
    /// # Errors
    ///
    /// The failure of the item; [`Error::Closed`] if the service is closed or drains;
    /// [`Error::DeadlineExceeded`], [`Error::ServiceEnded`] or [`Error::Cancelled`] as they say;
    /// [`Error::OwnThread`] on a thread of the service's producers.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: String| Ok(text.parse::<i32>()?));
    /// let service = OrderedRunner::new(parse, 2)?.into_service();
    /// assert!(service.call("two".to_owned()).is_err());
    /// assert_eq!(service.call("3".to_owned())?, 3, "the service goes on");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn call(&self, input: R::Input) -> Result<R::Output, Error> {
        wait_for(self.begin(input))
    }

    /// Begins to work on one item. The result is the output of the returned future.
    ///
    /// The item is offered at once, or as soon as the queue has a place, whether or not the future is polled.
    ///
    /// ```
    /// use std::future::Future;
    /// use std::task::{Context, Poll, Waker};
    ///
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn wait<F: Future>(future: F) -> F::Output {
    /// #     let mut future = std::pin::pin!(future);
    /// #     struct Unpark(std::thread::Thread);
    /// #     impl std::task::Wake for Unpark {
    /// #         fn wake(self: std::sync::Arc<Self>) { self.0.unpark(); }
    /// #     }
    /// #     let waker = Waker::from(std::sync::Arc::new(Unpark(std::thread::current())));
    /// #     loop {
    /// #         match future.as_mut().poll(&mut Context::from_waker(&waker)) {
    /// #             Poll::Ready(output) => return output,
    /// #             Poll::Pending => std::thread::park(),
    /// #         }
    /// #     }
    /// # }
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x + 1)), 2)?.into_service();
    /// // Under any runtime, or with an executor of your own:
    /// let sum = wait(async {
    ///     let (first, second) = (service.call_async(1), service.call_async(2));
    ///     Ok::<_, gangline::Error>(first.await? + second.await?)
    /// })?;
    /// assert_eq!(sum, 5);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn call_async(&self, input: R::Input) -> Call<R> {
        Call(self.begin(input))
    }

    /// Offers one item without waiting, neither for a place nor for the result.
    ///
    /// A service that is closed gives a ticket that answers [`Error::Closed`].
    ///
    /// # Errors
    ///
    /// If the queue is full: with the input.
    ///
    /// ```
    /// use gangline::service::Full;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x + 1)), 1)?.into_service();
    /// match service.try_submit(1) {
    ///     Ok(ticket) => assert_eq!(ticket.wait()?, 2),
    ///     Err(Full(input)) => println!("too busy for {input}"),
    /// }
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_submit(&self, input: R::Input) -> Result<Ticket<R>, Full<R::Input>> {
        let calls = self.host.0.calls();
        match calls.board.try_take(1) {
            Ok(true) => Ok(Ticket(PendingCall::with_place(calls, input, self.deadline()))),
            Ok(false) => Err(Full(input)),
            Err(error) => Ok(Ticket(PendingCall::refused(calls, error))),
        }
    }

    /// Offers several items without waiting, if the queue has a place for each. Each has a ticket of its own.
    ///
    /// # Errors
    ///
    /// If the queue has fewer places: with all inputs, none of which was offered.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x + 1)));
    /// let service = service.devices(1).window(4).build()?.into_service();
    /// let tickets = service.try_submit_all(vec![1, 2, 3]).expect("there are four places");
    /// let sum: u64 = tickets.into_iter().map(|ticket| ticket.wait()).sum::<Result<_, _>>()?;
    /// assert_eq!(sum, 9);
    /// assert!(service.try_submit_all(vec![0; 5]).is_err(), "there never are five");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn try_submit_all(
        &self,
        inputs: Vec<R::Input>,
    ) -> Result<Vec<Ticket<R>>, Full<Vec<R::Input>>> {
        let calls = self.host.0.calls();
        match calls.board.try_take(inputs.len()) {
            Ok(false) => Err(Full(inputs)),
            Ok(true) => {
                let deadline = self.deadline();
                let submit = |input| Ticket(PendingCall::with_place(calls, input, deadline));
                Ok(inputs.into_iter().map(submit).collect())
            }
            Err(_) => {
                let refuse = |_| match calls.board.try_take(1) {
                    Err(error) => Ticket(PendingCall::refused(calls, error)),
                    Ok(_) => unreachable!("a service that has ended accepts no calls again"),
                };
                Ok(inputs.into_iter().map(refuse).collect())
            }
        }
    }

    /// Returns a handle with a deadline: its calls are answered within `limit`, if need be with
    /// [`Error::DeadlineExceeded`].
    ///
    /// The time counts from the call, and includes the wait for a place. An item whose time is over is given up
    /// as if its caller had gone away.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{Error, OrderedRunner, map};
    ///
    /// let slow = map(|_| Ok(()), |cx, _, ()| {
    ///     while !cx.is_cancelled() {
    ///         std::thread::sleep(Duration::from_millis(1));
    ///     }
    ///     Ok(())
    /// });
    /// let service = OrderedRunner::new(slow, 1)?.into_service();
    /// let answer = service.with_deadline(Duration::from_millis(20)).call(());
    /// assert!(matches!(answer, Err(Error::DeadlineExceeded { .. })));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn with_deadline(&self, limit: Duration) -> Self {
        Self::of(self.host.clone(), Some(limit))
    }

    /// Refuses new calls, and waits until those that were accepted are answered.
    ///
    /// After `timeout`, the others are cancelled: items that no hook has are dropped, hooks see
    /// [`is_cancelled`](crate::ProducerContext::is_cancelled), and callers get [`Error::Cancelled`]. Returns
    /// whether all had been answered before. The producers stay until [`close`](Service::close).
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// let ticket = service.try_submit(1).expect("the queue is empty");
    /// assert!(service.drain(Duration::from_secs(25)));
    /// assert!(service.call(2).unwrap_err().is_closed());
    /// assert_eq!(ticket.wait()?, 1);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn drain(&self, timeout: Duration) -> bool {
        self.host.0.drain(timeout)
    }

    /// Answers all open calls with [`Error::Closed`], and ends the producers.
    ///
    /// It waits for hooks that are running. If the service is closed already, it does nothing.
    ///
    /// # Errors
    ///
    /// The errors of [`Pool::close`].
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// service.close()?;
    /// assert!(service.call(1).unwrap_err().is_closed());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn close(&self) -> Result<(), Error> {
        self.host.0.close()
    }

    /// Ends the service at once, from any thread: answers all open calls with [`Error::Cancelled`], kills child
    /// processes in their hooks, and ends the producers.
    ///
    /// `Processes::kill_after` does not apply, and a child process does not call
    /// [`producer_end`](Runner::producer_end). A hook on a thread cannot be ended: it sees
    /// [`is_cancelled`](crate::ProducerContext::is_cancelled), and is waited for, as is its `producer_end`.
    ///
    /// Other threads may wait in calls, streams, [`drain`](Service::drain) or [`close`](Service::close) meanwhile; they
    /// all return. It returns once the service is closed, except on a thread that the close waits for: in a hook of the
    /// service.
    ///
    /// # Errors
    ///
    /// The errors of [`close`](Service::close). If another thread closes the service, that one has the error.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let endless = map(|_| Ok(()), |cx, _, ()| {
    ///     while !cx.is_cancelled() {
    ///         std::thread::yield_now();
    ///     }
    ///     Ok(())
    /// });
    /// let service = OrderedRunner::new(endless, 1)?.into_service();
    /// let ticket = service.try_submit(()).expect("the queue is empty");
    /// service.terminate()?;
    /// assert!(ticket.wait().unwrap_err().is_cancelled());
    /// assert!(service.call(()).unwrap_err().is_closed());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn terminate(&self) -> Result<(), Error> {
        self.host.0.terminate()
    }

    /// Turns the service back into a pool, with the same producers. Open calls are answered with
    /// [`Error::Closed`].
    ///
    /// # Errors
    ///
    /// If this is not the last handle, or the service is closed: with the service.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 2)?.into_service();
    /// assert_eq!(service.call(1)?, 1);
    /// let mut pool = service.into_pool().expect("it is the last handle");
    /// assert_eq!(pool.run(0..3)?, [0, 1, 2]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn into_pool(self) -> Result<AnyOrderRunner<R>, Self> {
        let Service { host, limit, .. } = self;
        let closing = Arc::try_unwrap(host).map_err(|host| Self::of(host, limit))?;
        match closing.0.end() {
            Some((engine, _)) => Ok(Pool::new_with(engine)),
            None => Err(Self::of(Arc::new(closing), limit)),
        }
    }

    /// Counts the accepted calls, and the items of [streams](Service::stream), by outcome since the start of the
    /// service.
    ///
    /// Open calls are not counted yet. Calls that are refused are never counted, nor are those that are late or given
    /// up while they wait for a place. A call that was given up, or that the end of the service answered, counts as
    /// cancelled; one that missed its deadline counts as failed. A caller that has its answer finds it counted, also in
    /// the [report](Service::report).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// service.call(1)?;
    /// assert_eq!(service.account().ok, 1);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn account(&self) -> Account {
        self.host.0.calls().board.account()
    }

    /// Reports on the service since its start, in a size that does not depend on the number of calls.
    ///
    /// A call that missed its deadline is among the failures. If a hook had its item, it also counts for the producer.
    /// Once the service is closed, each handle returns its last report, which says what limited it. After
    /// [`into_pool`](Service::into_pool), [`Pool::report`] returns that report.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// service.call(1)?;
    /// assert_eq!(service.report().producers[0].items, 1);
    /// service.close()?;
    /// println!("{}", service.report());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn report(&self) -> RunReport {
        self.host.0.report()
    }

    /// Returns the number of calls that may be open.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let pool = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)));
    /// assert_eq!(pool.devices(1).window(8).build()?.into_service().queue(), 8);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn queue(&self) -> usize {
        self.host.0.calls().board.size()
    }

    /// Whether the calling thread is one of the service's producers, which must not wait for an answer of this service.
    ///
    /// [`call`](Service::call) fails there with [`Error::OwnThread`]. Code that polls a [`Call`] and blocks its thread
    /// between two polls asks first. In a child process it is never so.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x)), 1)?.into_service();
    /// assert!(!service.is_producer_thread());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn is_producer_thread(&self) -> bool {
        self.host.0.calls().is_own_thread()
    }

    /// The times of the service's producers so far: for backends that have services elsewhere.
    #[doc(hidden)]
    pub fn hook_times(&self) -> Vec<SeatTime> {
        let of_one = |(time, init): (ProducerTime, _)| SeatTime {
            working: time.working(),
            states_lost: time.rebuilds.states_lost,
            rebuilds: time.rebuilds.inits,
            rebuilding: time.rebuilds.took,
            init,
            ..SeatTime::default()
        };
        self.host.0.producer_times().into_iter().map(of_one).collect()
    }

    /// The number of items that the service's producers can have now, in workers elsewhere; `None` if they are producers
    /// of this process.
    #[doc(hidden)]
    pub fn capacity(&self) -> Option<usize> {
        self.host.0.capacity()
    }

    fn begin(&self, input: R::Input) -> PendingCall<R::Input, R::Output> {
        PendingCall::begin(self.host.0.calls(), input, self.deadline())
    }

    /// The deadline of a call that begins now. A limit that exceeds the clock sets none.
    fn deadline(&self) -> Option<Deadline> {
        let limit = self.limit?;
        Some(Deadline { at: Instant::now().checked_add(limit)?, limit })
    }
}

impl<R: Runner + 'static> Clone for Service<R> {
    fn clone(&self) -> Self {
        Self::of(self.host.clone(), self.limit)
    }
}

impl<R: Runner + 'static> Drop for ServiceCloser<R> {
    fn drop(&mut self) {
        // The engine logs an error of its end.
        drop(self.0.end());
    }
}

impl<R: Runner + 'static> fmt::Debug for Service<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Service")
            .field("queue", &self.queue())
            .field("account", &self.account())
            .finish_non_exhaustive()
    }
}

//! What a caller holds while its call is open.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use crate::engine::service::calls::PendingCall;
use crate::error::Error;
use crate::runner::Runner;

/// A call in progress: a future of its answer, for any runtime or none.
///
/// It needs no runtime, timer or thread of its own, and is woken by the producer that has the result.
/// [`Service::call_async`](super::Service::call_async) makes it. Dropping it gives the call up.
///
/// # Panics
///
/// If it is polled again after it was ready.
#[must_use = "dropping it gives the call up"]
pub struct Call<R: Runner>(pub(super) PendingCall<R::Input, R::Output>);

/// A call that was accepted: [`wait`](Ticket::wait) for its answer, or await it in async code.
///
/// [`Service::try_submit`](super::Service::try_submit) makes it. Dropping it gives the call up.
///
/// # Panics
///
/// If it is polled again after it was ready.
#[must_use = "dropping it gives the call up"]
pub struct Ticket<R: Runner>(pub(super) PendingCall<R::Input, R::Output>);

/// The queue is full; the input comes back.
///
/// ```
/// use std::sync::{Arc, Barrier};
/// use gangline::service::Full;
/// use gangline::{OrderedRunner, each};
///
/// let begun = Arc::new(Barrier::new(2));
/// let gate = begun.clone();
/// let squares = each(move |x: u64| {
///     gate.wait();
///     Ok(x * x)
/// });
/// let service = OrderedRunner::builder(squares).devices(1).window(1).build()?.into_service();
/// let first = service.try_submit(2)?;
/// let Err(Full(refused)) = service.try_submit(3) else { panic!("one call is open") };
/// assert_eq!(refused, 3); // answer the caller that there is no room, or wait and try again
/// begun.wait();
/// assert_eq!(first.wait()?, 4);
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Full<I>(pub I);

impl<R: Runner> Call<R> {
    /// Whether the queue was full, and the call still waited for a place when it was last polled.
    ///
    /// Until it has a place, no hook can have its item.
    ///
    /// ```
    /// use std::pin::Pin;
    /// use std::sync::{Arc, Barrier};
    /// use std::task::{Context, Waker};
    ///
    /// use gangline::{OrderedRunner, each};
    ///
    /// let begun = Arc::new(Barrier::new(2));
    /// let gate = begun.clone();
    /// let squares = each(move |x: u64| {
    ///     gate.wait();
    ///     Ok(x * x)
    /// });
    /// let service = OrderedRunner::builder(squares).devices(1).window(1).build()?.into_service();
    /// let first = service.try_submit(2)?;
    /// let mut second = service.call_async(3);
    /// assert!(second.waits_for_place(), "one call is open");
    /// begun.wait();
    /// assert_eq!(first.wait()?, 4);
    /// // A runtime polls it again, since it was woken.
    /// assert!(Pin::new(&mut second).poll(&mut Context::from_waker(Waker::noop())).is_pending());
    /// assert!(!second.waits_for_place());
    /// begun.wait();
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn waits_for_place(&self) -> bool {
        self.0.is_queued()
    }
}

impl<R: Runner> Ticket<R> {
    /// Waits for the result. In async code, await the ticket instead: this blocks the thread.
    ///
    /// # Errors
    ///
    /// The errors of [`Service::call`](super::Service::call).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let service = OrderedRunner::new(map(|_| Ok(()), |_, _, x: u64| Ok(x * x)), 2)?.into_service();
    /// let tickets: Vec<_> = (0..3).map(|x| service.try_submit(x).expect("there is room")).collect();
    /// let squares: Vec<u64> = tickets.into_iter().map(|it| it.wait()).collect::<Result<_, _>>()?;
    /// assert_eq!(squares, [0, 1, 4]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn wait(self) -> Result<R::Output, Error> {
        wait_for(self.0)
    }
}

pub(super) fn wait_for<I, T>(call: PendingCall<I, T>) -> Result<T, Error> {
    if call.calls().is_own_thread() {
        return Err(Error::OwnThread {});
    }
    call.wait()
}

impl<R: Runner> Future for Call<R> {
    type Output = Result<R::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

impl<R: Runner> Future for Ticket<R> {
    type Output = Result<R::Output, Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.0.poll(cx)
    }
}

/// A call that has its place already.
impl<R: Runner> From<Ticket<R>> for Call<R> {
    fn from(ticket: Ticket<R>) -> Self {
        Call(ticket.0)
    }
}

impl<R: Runner> fmt::Debug for Call<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").finish_non_exhaustive()
    }
}

impl<R: Runner> fmt::Debug for Ticket<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticket").finish_non_exhaustive()
    }
}

impl<I> fmt::Debug for Full<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Full").finish_non_exhaustive()
    }
}

impl<I> fmt::Display for Full<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the queue of the service is full")
    }
}

impl<I> std::error::Error for Full<I> {}

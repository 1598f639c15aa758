//! The settings for how long a producer lives, and what follows it.

use std::time::Duration;

use super::Builder;
use crate::api::pool::OrderKind;
use crate::producers::startup::FirstInit;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Replaces lost producers before the next run, and repeats a `producer_init` that fails in a run: at most `max` times
    /// in all until the pool is closed.
    ///
    /// By default a pool goes on with the producers that are left. A producer is lost if its hook exceeds the
    /// [item timeout](Builder::item_timeout) or the [init timeout](Builder::init_timeout), if it is
    /// [quarantined](Builder::quarantine_after), or if its `producer_init` fails.
    ///
    /// - **In a run**, a `producer_init` that fails is called again at once, on the same thread; in child processes that
    ///   starts another process. So the producer is lost only once `max` is used up. That holds for services too.
    /// - **Before a run**, another producer is started in the place of each that an earlier run, or the build, has lost. It
    ///   is a thread with a state of its own, on the same place and with the same
    ///   [number](crate::ProducerContext::producer). It takes part as soon as its `producer_init` has returned.
    ///
    /// An abandoned hook keeps its thread, and its state, until it returns. The device has to have room for both. If the
    /// hook returns after all, its result is dropped. Its thread calls `producer_end` and ends. A producer that was
    /// quarantined, or failed to build its state, first ends: the new `producer_init` begins when its `producer_end` has
    /// returned.
    ///
    /// A service is one run from its beginning to its end, so in a service a producer whose hook hangs takes part again
    /// only when that hook returns. Hooks that may hang for ever belong into child processes
    /// (`Builder::processes`), which the timeouts kill.
    ///
    /// The [report](crate::Pool::report) counts the
    /// [replacements](crate::report::ProducerReport::replacements) on each place, and observers get
    /// [`ProducerReplaced`](crate::event::Event::ProducerReplaced). [`activate`](crate::Pool::activate) allows
    /// `max` anew.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// // Item 0 hangs until the run gives it up.
    /// let hangs = map(|_| Ok(()), |cx, _, x: u64| {
    ///     while x == 0 && !cx.is_cancelled() {
    ///         std::thread::sleep(Duration::from_millis(1));
    ///     }
    ///     Ok(x)
    /// });
    /// let builder = OrderedRunner::builder(hangs).devices(2).on_error(OnError::Skip);
    /// let mut pool = builder.item_timeout(Duration::from_millis(20)).replace_lost(8).build()?;
    /// assert_eq!(pool.run(0..5)?, [1, 2, 3, 4]);
    /// assert_eq!(pool.run(1..5)?, [1, 2, 3, 4], "on two producers again");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn replace_lost(mut self, max: usize) -> Self {
        self.replacements = max;
        self
    }

    /// Calls each [`producer_init`](crate::Runner::producer_init) in the first run, and not in
    /// [`build`](Builder::build), which then waits for none of them.
    ///
    /// So the run begins at once, and each producer works on items as soon as it is ready: a device that loads quickly does not
    /// wait for the others. A producer whose `producer_init` fails or panics is lost, as one that fails to rebuild its state. The
    /// run ends with that error if fewer than [`min_producers`](Builder::min_producers) are left; by default one is enough.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let flaky = map(
    ///     |cx| if cx.producer() == 0 { Err("no such GPU".into()) } else { Ok(()) },
    ///     |_, _, x: u64| Ok(x),
    /// );
    /// let mut pool = OrderedRunner::builder(flaky).devices(2).init_in_run().build()?;
    /// assert_eq!(pool.run(0..3)?, [0, 1, 2]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn init_in_run(mut self) -> Self {
        self.first_init = FirstInit::InRun;
        self
    }

    /// Sets how long a `producer_end` may take; after that its thread is abandoned.
    ///
    /// [`close`](crate::Pool::close) then returns [`Error::TimedOut`](crate::Error::TimedOut) with the hook and the
    /// device, and the pool is closed. Dropping the pool logs the error. By default both wait for as long as a
    /// `producer_end` takes.
    ///
    /// For the abandoned hook [`is_cancelled`](crate::ProducerContext::is_cancelled) turns true. Whenever it
    /// returns, its thread ends.
    ///
    /// The limit also holds for the `producer_end` of a [replaced](Builder::replace_lost) producer, which its
    /// replacement waits for, and of a [recycled](Builder::recycle_after) state: the producer is then abandoned as
    /// by the [init timeout](Builder::init_timeout). The hooks of the consumer are limited by the
    /// [run timeout](Builder::run_timeout).
    ///
    /// [`build`](Builder::build) refuses 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{Hook, OrderedRunner, ProducerContext, Result, Runner, ConsumerContext};
    ///
    /// struct Echo;
    /// impl Runner for Echo {
    /// #   type Input = u64;
    /// #   type Output = u64;
    /// #   type ProducerState = ();
    /// #   type ConsumerState = ();
    /// #   type Summary = ();
    /// #   fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> { Ok(()) }
    /// #   fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> { Ok(x) }
    /// #   fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> { Ok(()) }
    /// #   fn consumer_work(&self, _: &ConsumerContext<'_>, _: &mut (), _: u64) -> Result<()> { Ok(()) }
    /// #   fn consumer_end(&self, _: &ConsumerContext<'_>, _: ()) -> Result<()> { Ok(()) }
    ///     // the other hooks
    ///     fn producer_end(&self, cx: &ProducerContext<'_>, _: ()) -> Result<()> {
    ///         while !cx.is_cancelled() {
    ///             std::thread::sleep(Duration::from_millis(1)); // a driver that does not answer
    ///         }
    ///         Ok(())
    ///     }
    /// }
    ///
    /// let builder = OrderedRunner::builder(Echo).devices(1);
    /// let mut pool = builder.end_timeout(Duration::from_millis(20)).build()?;
    /// let error = pool.close().unwrap_err();
    /// assert!(error.is_timeout() && error.hook() == Some(Hook::ProducerEnd));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn end_timeout(mut self, limit: Duration) -> Self {
        self.limits.end = Some(limit);
        self
    }

    /// Ends the state of each producer after `items` items, and builds a new one: for libraries that leak memory.
    ///
    /// `producer_end` and then `producer_init` are called on the producer's own thread, between two items, and only
    /// when there is another item to work on. Meanwhile other producers take its items. The count goes on from
    /// run to run. Attempts that fail count as items, and a [batch](Builder::batch) counts all of its own, so a state
    /// may see up to a batch more. The first states of a pool's producers live for different numbers of items, at
    /// most `items`, so that the producers do not all recycle at the same time.
    ///
    /// A `producer_init` that fails is handled as after a panic: the producer is lost. An error of that
    /// `producer_end` does not end the run; [`close`](crate::Pool::close) returns it. Both hooks have their
    /// timeouts, [`end_timeout`](Builder::end_timeout) and [`init_timeout`](Builder::init_timeout).
    ///
    /// The [report](crate::Pool::report) counts the [recycled](crate::report::ProducerReport::recycles) states and
    /// their time apart from those that panics cost. [`build`](Builder::build) refuses 0.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let growing = map(|_| Ok(Vec::new()), |_, leak: &mut Vec<u64>, x: u64| {
    ///     leak.push(x);
    ///     Ok(leak.len())
    /// });
    /// let mut pool = OrderedRunner::builder(growing).devices(1).recycle_after(3).build()?;
    /// assert_eq!(pool.run(0..7)?, [1, 2, 3, 1, 2, 3, 1]);
    /// assert_eq!(pool.report().producers[0].recycles, 2);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn recycle_after(mut self, items: u64) -> Self {
        self.recycle_after = Some(items);
        self
    }
}

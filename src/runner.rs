//! The trait that users implement.

mod context;
mod item_seed;
mod producer_setup;
mod wanted;

use std::sync::Arc;

pub(crate) use self::context::RunControl;
pub use self::context::{ConsumerContext, ProducerContext};
pub use self::producer_setup::ProducerSetup;
pub use self::wanted::Wanted;
pub(crate) use self::wanted::{AbandonFlag, OpenItems};

use crate::error::{Error, Result};

/// Whether a runner has a use for batches: see [`Runner::batch_hook`].
#[doc(hidden)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BatchHook {
    /// `producer_work_batch` may be called, also if it is the default.
    Callable,
    /// The runner can only work on single items, so a rule for batches is a mistake.
    Missing,
}

/// Defines what to do with each item (on a producer) and with each result (on the consumer).
///
/// All threads share one runner value; what a thread keeps for itself is its state. There is one producer
/// for each place of the device list, and one consumer for each run:
///
/// ```text
///               producer 0 (cpu)     init, work, work, ...  end
///   items  ->   producer 1 (cuda:0)  init, work, work, ...  end   ->  consumer  init, work, ... end
///               producer 2 (cuda:1)  init, work, work, ...  end
/// ```
///
/// # When each hook is called
///
/// | hook | how often | on which thread |
/// |---|---|---|
/// | [`producer_init`] | once per producer when the runner is built, again after [`activate`] and after a panic | the producer's, all at the same time |
/// | [`producer_work`] | once per item | the thread of the producer that is free |
/// | [`producer_work_batch`] | instead, once per batch, where the builder was given a [`Batch`] | the same |
/// | [`producer_end`] | once per producer state that is alive, at [`close`] or drop | the producer's |
/// | [`consumer_init`] | once per [`run`], before the first item is pulled | the run's own thread |
/// | [`consumer_work`] | once per result | the run's own thread |
/// | [`consumer_skipped`] | instead, once per item that failed and is [skipped](crate::Builder::on_error) |
/// the run's own thread |
/// | [`consumer_flush`] | before each commit of a [journal](crate::Builder::journal) | the run's own thread |
/// | [`consumer_end`] | once per run that did not fail and was not cancelled | the run's own thread |
///
/// States are made, used and dropped on one thread, so they need not be [`Send`]: an `Rc`, or a
/// model that is neither `Send` nor `Sync`, is a fine state.
///
/// # Errors and panics
///
/// An error of a hook ends the run (or the building), unless the builder [skips](crate::Builder::on_error)
/// errors. The [`Error`] names the hook, the item, the device and the cause. A panic is caught and treated
/// like an error of that hook. In addition the producer state that saw it is dropped, and rebuilt by
/// [`producer_init`] before that producer's next item. The framework holds no lock while a hook runs. So a
/// hook may build and run other runners, use rayon, or hold locks of its own.
///
/// # Example
///
/// ```
/// use gangline::{ConsumerContext, ProducerContext, Result, Runner, UnorderedRunner};
///
/// struct SumOfSquares;
///
/// impl Runner for SumOfSquares {
///     type Input = u64;
///     type Output = u64;
///     type ProducerState = ();
///     type ConsumerState = u64;
///     type Summary = u64;
///
///     fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
///         Ok(())
///     }
///     fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
///         Ok(x * x)
///     }
///     fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
///         Ok(0)
///     }
///     fn consumer_work(&self, _: &ConsumerContext<'_>, sum: &mut u64, y: u64) -> Result<()> {
///         *sum += y;
///         Ok(())
///     }
///     fn consumer_end(&self, _: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
///         Ok(sum)
///     }
/// }
///
/// # fn main() -> gangline::Result<()> {
/// let mut runner = UnorderedRunner::new(SumOfSquares, 3)?;
/// assert_eq!(runner.run(0..100)?, 328_350);
/// # Ok(())
/// # }
/// ```
///
/// [`producer_init`]: Runner::producer_init
/// [`producer_work`]: Runner::producer_work
/// [`producer_work_batch`]: Runner::producer_work_batch
/// [`Batch`]: crate::Batch
/// [`producer_end`]: Runner::producer_end
/// [`consumer_init`]: Runner::consumer_init
/// [`consumer_work`]: Runner::consumer_work
/// [`consumer_skipped`]: Runner::consumer_skipped
/// [`consumer_flush`]: Runner::consumer_flush
/// [`consumer_end`]: Runner::consumer_end
/// [`activate`]: crate::Pool::activate
/// [`close`]: crate::Pool::close
/// [`run`]: crate::Pool::run
/// [`Error`]: crate::Error
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no runner",
    note = "closures: `gangline::map(init, work)`, or `gangline::each(work)` without a state",
    note = "a type that implements `gangline::Work`: call its `collect()`"
)]
pub trait Runner: Send + Sync {
    /// One item, as the caller's iterator yields it.
    type Input: Send;
    /// What a producer makes of one item.
    type Output: Send;
    /// What a producer keeps: a loaded model, a connection, a buffer. Made, used and dropped on one
    /// producer's thread, so it need not be `Send`.
    type ProducerState;
    /// What the consumer keeps during one run. Made, used and dropped on the consumer's thread, so
    /// it need not be `Send`.
    type ConsumerState;
    /// What a run returns.
    type Summary: Send;

    /// Makes the state of one producer.
    ///
    /// Called once per producer when the runner is built or activated, before any input is read: for all
    /// producers at the same time, each on its own thread. Called again, on the same thread, after a panic
    /// of [`producer_work`](Runner::producer_work) or of the hook for batches has cost the producer its
    /// state.
    ///
    /// - `Ok`: the producer is ready; it keeps the state until the runner is closed.
    /// - `Err` or panic: building fails with that error, after the other producers have ended. If a state
    ///   is being rebuilt for a run, that run fails.
    /// - A cancel does not interrupt it: [`is_cancelled`](ProducerContext::is_cancelled) turns true,
    ///   and building fails as cancelled once it returns.
    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Self::ProducerState>;

    /// Makes one output of one input.
    ///
    /// Called once per item, on the thread of the producer that took it. Other producers work on other
    /// items at the same time.
    ///
    /// - `Ok`: the output goes to the consumer.
    /// - `Err`: the item fails, and with it the run. In input order the items before it are still consumed,
    ///   and the first failure in order is the run's error. If the builder
    ///   [skips](crate::Builder::on_error) errors, the run goes on instead.
    /// - Panic, or an error that [`DeviceLost`](crate::error::DeviceLost) marks: as `Err`; in addition `state` is
    ///   dropped, and rebuilt before its next use.
    /// - When the run is cancelled, stopped or has failed, the call is not interrupted:
    ///   [`is_cancelled`](ProducerContext::is_cancelled) turns true, and whatever the call returns
    ///   is dropped.
    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Self::ProducerState,
        input: Self::Input,
    ) -> Result<Self::Output>;

    /// Makes the outputs of several inputs at once, in their order. The default calls
    /// [`producer_work`](Runner::producer_work) for each.
    ///
    /// Called instead of `producer_work` if the builder was given a [`Batch`](crate::Batch), on the thread
    /// of the producer that took the items, with one input or more. `inputs` may be read in place, or taken
    /// out with [`drain`](Vec::drain) or [`std::mem::take`]. [`items`](ProducerContext::items) has the
    /// inputs' indices, and [`at`](ProducerContext::at) narrows the context to one of them.
    ///
    /// A runner that only works on batches has `producer_work` return an error, or call this hook with a
    /// `Vec` of one input. A runner that wraps another has to forward this hook too: otherwise the default
    /// replaces the inner runner's own hook, which then never gets a batch.
    ///
    /// - `Ok` with one element for each input: each is what `producer_work` would have returned for that
    ///   input. An `Err` among them fails that item alone. If it is marked as [`Untried`](crate::error::Untried), the item
    ///   comes again in a smaller batch instead, provided that its input was left.
    /// - `Ok` with more or fewer elements: the items fail together, at once and without another attempt,
    ///   with an error that names them all. Its cause is [`OutputCount`](crate::error::OutputCount), with both
    ///   numbers.
    /// - `Err` or panic, with all inputs still in `inputs`: the batch is split in two halves, which are tried
    ///   one after the other. That goes on until the guilty item stands alone, and the error names it; in
    ///   input order the items before it are consumed. Each halving takes two more calls, so one guilty item
    ///   of 16 takes at most eight. A hook that changed inputs in place must not leave them all there when it
    ///   fails. [Reports](crate::RunReport) count the splits.
    /// - The same after inputs were taken out: the items fail together, with an error that names them all.
    /// - `Err` or panic because the device is out of memory, with all inputs still in `inputs`: no item is
    ///   marked as failed. The batch is tried again in parts of half the size, and of half of that, down to
    ///   single items. An item that does not fit alone goes to the device with the most memory, once, if its
    ///   memory is known to be more; else it fails. Later batches of this producer are
    ///   capped at the size that fit, and grow back slowly: see
    ///   [`learned_batch_limits`](crate::Pool::learned_batch_limits). The error texts of CUDA and its
    ///   libraries are recognised; mark others with [`OutOfMemory`](crate::error::OutOfMemory).
    /// - Panic, or an error that [`DeviceLost`](crate::error::DeviceLost) marks: in addition `state` is dropped, and
    ///   rebuilt before the next call.
    /// - When the run is cancelled, stopped or has failed: as for `producer_work`; nothing is tried again.
    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Self::ProducerState,
        inputs: &mut Vec<Self::Input>,
    ) -> Result<Vec<Result<Self::Output>>> {
        Ok(one_by_one(cx, inputs, |cx, input| self.producer_work(cx, state, input)))
    }

    /// Tells `build` whether a rule for batches makes sense. Runners of this crate that wrap another forward
    /// it; a runner of a user has the default.
    #[doc(hidden)]
    fn batch_hook(&self) -> BatchHook {
        BatchHook::Callable
    }

    /// Ends one producer. The default drops the state.
    ///
    /// Called exactly once per state that is alive when the runner is closed or dropped, on the producer's
    /// thread, after its last item; also after runs that failed or were cancelled. Not called if
    /// [`producer_init`](Runner::producer_init) failed, nor for a state that was lost to a panic or
    /// to the end of a child process.
    ///
    /// - `Ok`: nothing more happens.
    /// - `Err` or panic: [`close`](crate::Pool::close) returns it, after all producers have ended. Results
    ///   are not affected. Dropping the runner only logs it.
    fn producer_end(&self, cx: &ProducerContext<'_>, state: Self::ProducerState) -> Result<()> {
        let _ = cx;
        drop(state);
        Ok(())
    }

    /// Makes the state of one run's consumer.
    ///
    /// Called once per [`run`](crate::Pool::run), also for empty input, on the run's own thread, before the
    /// first item is pulled. [`outputs`](crate::Pool::outputs) has no consumer.
    ///
    /// - `Ok`: the run begins.
    /// - `Err` or panic: the run fails; nothing is pulled, no other hook is called.
    /// - [`stop`](ConsumerContext::stop): nothing is pulled; [`consumer_end`](Runner::consumer_end)
    ///   is called with the state.
    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Self::ConsumerState>;

    /// Consumes one output.
    ///
    /// Called once per output, in the runner's order, never at the same time as itself, on the run's own
    /// thread. Until it returns, its item is in flight.
    ///
    /// - `Ok`: the item is accounted as ok.
    /// - `Err` or panic: the run fails with it, and no hook of this run's consumer is called any more. The
    ///   exception is an `Err` that [`classify`](crate::Builder::classify) skips.
    /// - [`stop`](ConsumerContext::stop) and `Ok`: the item is ok, the rest is dropped, and
    ///   [`consumer_end`](Runner::consumer_end) is called.
    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut Self::ConsumerState,
        output: Self::Output,
    ) -> Result<()>;

    /// Handles an item that failed and that the policy [skips](crate::Builder::on_error). The default does
    /// nothing.
    ///
    /// Called once per such item on the run's own thread, in the runner's order, instead of its
    /// [`consumer_work`](Runner::consumer_work). So a consumer can write "row 7: failed".
    /// [`item`](ConsumerContext::item) is its index. Also called after a `consumer_work` of the item that
    /// itself returned an error.
    ///
    /// - `Ok`: the run goes on.
    /// - `Err` or panic: the run fails with it.
    /// - [`stop`](ConsumerContext::stop) and `Ok`: as in `consumer_work`.
    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut Self::ConsumerState,
        error: &Error,
    ) -> Result<()> {
        let _ = (cx, state, error);
        Ok(())
    }

    /// Makes durable what the consumer has written, before a [journal](crate::Builder::journal) records it
    /// as done.
    ///
    /// Called before each commit, on the run's own thread: every 50 ms or 1,000 items unless the journal
    /// says otherwise, also while the input pauses, and before [`consumer_end`](Runner::consumer_end). Also
    /// called when the run has failed or was cancelled, so that the items consumed until then need not be
    /// repeated.
    ///
    /// Not called after a panic of a consumer's hook, or after a flush or commit that failed; if the input
    /// is not that of the journal; if nothing new is to be committed; or without a journal. The default
    /// does nothing.
    ///
    /// - `Ok`: the items consumed so far are committed, with the last [note](ConsumerContext::note).
    /// - `Err` or panic: nothing is committed, and the run fails with it.
    /// - [`stop`](ConsumerContext::stop) and `Ok`: as in `consumer_work`.
    fn consumer_flush(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut Self::ConsumerState,
    ) -> Result<()> {
        let _ = (cx, state);
        Ok(())
    }

    /// Makes the summary of a run.
    ///
    /// Called once per run, on the run's own thread, when everything was consumed, or when
    /// [`stop`](ConsumerContext::stop) or [`CancelToken::drain`](crate::CancelToken::drain) ended the run.
    /// Not called when the run failed or was cancelled: then the state is dropped.
    ///
    /// - `Ok`: the run returns it.
    /// - `Err` or panic: the run fails with it, though every item was consumed.
    fn consumer_end(
        &self,
        cx: &ConsumerContext<'_>,
        state: Self::ConsumerState,
    ) -> Result<Self::Summary>;
}

/// Works on the inputs of a batch as single items.
pub(crate) fn one_by_one<I, O>(
    cx: &ProducerContext<'_>,
    inputs: &mut Vec<I>,
    mut work: impl FnMut(&ProducerContext<'_>, I) -> Result<O>,
) -> Vec<Result<O>> {
    // Taken out one at a time, so that what a panic leaves behind is not dropped while it unwinds.
    inputs.reverse();
    let each = std::iter::from_fn(|| inputs.pop()).enumerate();
    each.map(|(i, input)| work(&cx.at(i), input)).collect()
}

/// Defines the named hooks of a runner: each calls that of the runner `$to`. `producer` and `consumer` stand for all
/// hooks of theirs, also those with a default body: without one, a hook would silently run its default instead of the
/// inner runner's.
///
/// If the states are packed, `$new` packs one, `$get` gives what is in it, and `$take` takes it out.
macro_rules! forward_hooks {
    ($self:ident, $to:expr => $($hook:ident),+) => {
        $crate::runner::forward_hooks!(
            $self, $to, $crate::runner::as_it_is, $crate::runner::as_it_is, $crate::runner::as_it_is => $($hook),+
        );
    };
    ($self:ident, $to:expr, $new:expr, $get:expr, $take:expr => $($hook:ident),+) => {
        $($crate::runner::forward_hooks!(@$hook $self, $to, $new, $get, $take);)+
    };
    (@producer $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        $crate::runner::forward_hooks!(
            $self, $to, $new, $get, $take
            => producer_init, producer_work, producer_work_batch, batch_hook, producer_end
        );
    };
    (@consumer $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        $crate::runner::forward_hooks!(
            $self, $to, $new, $get, $take
            => consumer_init, consumer_work, consumer_skipped, consumer_flush, consumer_end
        );
    };
    (@producer_init $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn producer_init(
            &$self,
            cx: &$crate::ProducerContext<'_>,
        ) -> $crate::Result<Self::ProducerState> {
            $to.producer_init(cx).map($new)
        }
    };
    (@producer_work $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn producer_work(
            &$self,
            cx: &$crate::ProducerContext<'_>,
            state: &mut Self::ProducerState,
            input: Self::Input,
        ) -> $crate::Result<Self::Output> {
            $to.producer_work(cx, $get(state), input)
        }
    };
    (@producer_work_batch $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn producer_work_batch(
            &$self,
            cx: &$crate::ProducerContext<'_>,
            state: &mut Self::ProducerState,
            inputs: &mut Vec<Self::Input>,
        ) -> $crate::Result<Vec<$crate::Result<Self::Output>>> {
            $to.producer_work_batch(cx, $get(state), inputs)
        }
    };
    (@batch_hook $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn batch_hook(&$self) -> $crate::runner::BatchHook {
            $to.batch_hook()
        }
    };
    (@producer_end $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn producer_end(
            &$self,
            cx: &$crate::ProducerContext<'_>,
            state: Self::ProducerState,
        ) -> $crate::Result<()> {
            $to.producer_end(cx, $take(state))
        }
    };
    (@consumer_init $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn consumer_init(
            &$self,
            cx: &$crate::ConsumerContext<'_>,
        ) -> $crate::Result<Self::ConsumerState> {
            $to.consumer_init(cx).map($new)
        }
    };
    (@consumer_work $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn consumer_work(
            &$self,
            cx: &$crate::ConsumerContext<'_>,
            state: &mut Self::ConsumerState,
            output: Self::Output,
        ) -> $crate::Result<()> {
            $to.consumer_work(cx, $get(state), output)
        }
    };
    (@consumer_skipped $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn consumer_skipped(
            &$self,
            cx: &$crate::ConsumerContext<'_>,
            state: &mut Self::ConsumerState,
            error: &$crate::Error,
        ) -> $crate::Result<()> {
            $to.consumer_skipped(cx, $get(state), error)
        }
    };
    (@consumer_flush $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn consumer_flush(
            &$self,
            cx: &$crate::ConsumerContext<'_>,
            state: &mut Self::ConsumerState,
        ) -> $crate::Result<()> {
            $to.consumer_flush(cx, $get(state))
        }
    };
    (@consumer_end $self:ident, $to:expr, $new:expr, $get:expr, $take:expr) => {
        fn consumer_end(
            &$self,
            cx: &$crate::ConsumerContext<'_>,
            state: Self::ConsumerState,
        ) -> $crate::Result<Self::Summary> {
            $to.consumer_end(cx, $take(state))
        }
    };
}

pub(crate) use forward_hooks;

/// A state that is not packed.
pub(crate) fn as_it_is<T>(state: T) -> T {
    state
}

macro_rules! point_to_runners {
    ($($pointer:ty),+) => {$(
        impl<R: Runner + ?Sized> Runner for $pointer {
            type Input = R::Input;
            type Output = R::Output;
            type ProducerState = R::ProducerState;
            type ConsumerState = R::ConsumerState;
            type Summary = R::Summary;

            forward_hooks!(self, (**self) => producer, consumer);
        }
    )+};
}

point_to_runners!(Box<R>, Arc<R>, &R);

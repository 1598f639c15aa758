//! The settings for what a run survives: errors, devices that fail, hooks that do not return.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use gangline_scheduler::{Backoff, OnError};

use super::Builder;
use crate::api::pool::OrderKind;
use crate::base::MaxFailures;
use crate::error::Error;
use crate::journal::Journal;
use crate::policy::{Stragglers, Verdict};
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Sets the handling of items that fail. By default the first error ends the run.
    ///
    /// With [`OnError::Skip`] the run goes on after an item that failed. That holds for an error or panic
    /// of `producer_work` and of the hook for batches, for an `Err` of the input of
    /// [`try_run`](crate::Pool::try_run), and for items that a [limit](Builder::max_batch_cost) refuses.
    /// [`consumer_skipped`](Runner::consumer_skipped) is called in the item's place.
    /// [`account`](crate::Pool::account) counts the item as failed, and [`failures`](crate::Pool::failures)
    /// has its error. [`outputs`](crate::Pool::outputs) yields the error and goes on.
    ///
    /// These still end the run:
    ///
    /// - A hook of the consumer that fails, since it would fail at the next item too.
    ///   [`classify`](Builder::classify) can decide otherwise for an error that `consumer_work` returns.
    /// - A panic of the input.
    /// - The loss of the last producer. A producer is lost if it failed to rebuild its state after a panic,
    ///   was [quarantined](Builder::quarantine_after), or was [abandoned](Builder::item_timeout).
    ///
    /// A device that fails at everything is quickly free again, and so takes many items. Set
    /// [`quarantine_after`](Builder::quarantine_after) or [`max_failures`](Builder::max_failures), or have
    /// `classify` stop at its errors.
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let builder = OrderedRunner::builder(parse).devices(2);
    /// let mut runner = builder.on_error(OnError::Skip).build()?;
    /// assert_eq!(runner.run(["1", "two", "3"])?, [1, 3]);
    /// assert_eq!((runner.account().ok, runner.account().failed), (2, 1));
    /// assert_eq!(runner.failures()[0].item(), Some(1));
    /// # Ok(())
    /// # }
    /// ```
    pub fn on_error(mut self, on_error: OnError) -> Self {
        self.policy.on_error = on_error;
        self
    }

    /// Sets a function that decides for each error what to do, instead of [`on_error`](Builder::on_error).
    ///
    /// `classify` is called once for each attempt that failed, or for a batch that fails together. It gets
    /// the error, on the thread where it happened: the producer's, the consumer's, or the feeder's.
    /// [`Error::hook`] and [`Error::is_input`] say what failed; the cause can be downcast. If `classify`
    /// panics, the run stops. Errors that end a run in any case are not passed to it.
    ///
    /// ```
    /// use gangline::{OrderedRunner, Verdict, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let read = map(|_| Ok(()), |_, _, path: &str| Ok(std::fs::read_to_string(path)?));
    /// let mut runner = OrderedRunner::builder(read)
    ///     .devices(2)
    ///     .classify(|error| {
    ///         let cause = std::error::Error::source(error);
    ///         match cause.and_then(|cause| cause.downcast_ref::<std::io::Error>()) {
    ///             Some(error) if error.kind() == std::io::ErrorKind::NotFound => Verdict::Skip,
    ///             _ => Verdict::Stop,
    ///         }
    ///     })
    ///     .build()?;
    /// assert!(runner.run(["/no/such/file"])?.is_empty());
    /// # Ok(())
    /// # }
    /// ```
    pub fn classify(
        mut self,
        classify: impl Fn(&Error) -> Verdict + Send + Sync + 'static,
    ) -> Self {
        self.policy.classify = Some(Arc::new(classify));
        self
    }

    /// Sets the number of further attempts at an item that a producer failed at. The default is none.
    ///
    /// An item is retried after an error or a panic of `producer_work`, or of the hook for batches, but not if
    /// that returned a [wrong number](crate::error::OutputCount) of outputs.
    ///
    /// A retry goes before new items, the first in order before others, and to another producer if there is
    /// one. It goes to the producer that failed the item if [`classify`](Builder::classify) returns
    /// [`Verdict::RetryHere`]. The item first waits for the [`backoff`](Builder::backoff); its producer does
    /// other work meanwhile. [`attempt`](crate::ProducerContext::attempt) tells the hook which attempt it is,
    /// and [`Error::attempt`] which one failed. Only the error of the last attempt counts. In input order the
    /// items behind it wait for it.
    ///
    /// The hook gets each item by value, so a copy is kept while a hook has it. With
    /// [batches](Builder::batch) an item is retried in a batch of its own, also after a batch that failed
    /// together. The search for the guilty item of a batch is not an attempt.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let flaky = map(|_| Ok(()), |cx, _, x: u64| match (x, cx.attempt()) {
    ///     (7, 1) => Err("try again".into()),
    ///     _ => Ok(x),
    /// });
    /// let builder = OrderedRunner::builder(flaky).devices(2).retries(2);
    /// let mut runner = builder.backoff(Duration::from_millis(1), Duration::from_secs(1)).build()?;
    /// assert_eq!(runner.run(0..9)?, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn retries(mut self, retries: u32) -> Self
    where
        R::Input: Clone,
    {
        self.policy.retries = retries;
        if retries > 0 {
            self.copy = Some(R::Input::clone);
        }
        self
    }

    /// Sets how long an item waits before it is [retried](Builder::retries): `first` before the second
    /// attempt.
    ///
    /// The time doubles with each further attempt, up to `most`. The defaults are 100 ms and 10 s. A
    /// [drain](crate::CancelToken::drain) ends the wait. [`build`](Builder::build) refuses a `most` below `first`.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let flaky = map(|_| Ok(()), |cx, _, x: u64| if cx.attempt() < 3 { Err("busy".into()) } else { Ok(x) });
    /// let builder = OrderedRunner::builder(flaky).devices(2).retries(2);
    /// // 1 ms before the second attempt, 2 ms before the third.
    /// let mut pool = builder.backoff(Duration::from_millis(1), Duration::from_secs(1)).build()?;
    /// assert_eq!(pool.run([7])?, [7]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.policy.backoff = Backoff { first, most };
        self
    }

    /// Sets how many items may fail before the run fails too: a number, or a [share](MaxFailures::share) of
    /// the items.
    ///
    /// By default there is no limit.
    ///
    /// The run then ends with [`Error::TooManyFailures`]. Errors that are not [skipped](Builder::on_error)
    /// do not count: the first of them ends the run.
    ///
    /// [`build`](Builder::build) refuses a share that is not between 0 and 1. It also refuses this setting
    /// if no item is ever skipped: without [`OnError::Skip`] and without [`classify`](Builder::classify).
    ///
    /// ```
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
    /// let builder = OrderedRunner::builder(parse).devices(1).on_error(OnError::Skip);
    /// let mut pool = builder.max_failures(1).build()?;
    /// assert_eq!(pool.run(["1", "x", "3"])?, [1, 3]);
    /// assert!(pool.run(["x", "y", "3"]).is_err());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn max_failures(mut self, most: impl Into<MaxFailures>) -> Self {
        self.policy.max_failures = Some(most.into());
        self
    }

    /// Takes a producer out of service after `failures` consecutive items that it failed and that succeeded
    /// elsewhere.
    ///
    /// An item, in turn, is to blame once `failures` different producers, at least two, have failed it. By
    /// default no producer is quarantined.
    ///
    /// A GPU that is gone fails every item of all its producers. So if all producers that have failed an
    /// item share a GPU, the item is not to blame until a producer without that GPU has failed it too. That
    /// applies only if there is such a producer. A producer that lost a [speculative](Builder::speculate)
    /// race does not count until it has returned.
    ///
    /// To find out which side is to blame, another producer tries a failed item at once, if possible one
    /// that shares no GPU with the first. That goes on until a producer succeeds, `failures` producers have
    /// failed the item, or all have. Only then do [`retries`](Builder::retries) and
    /// [`on_error`](Builder::on_error) apply. Each try is an [attempt](crate::ProducerContext::attempt). A
    /// [`Skip`](Verdict::Skip) or [`Stop`](Verdict::Stop) of [`classify`](Builder::classify) applies at
    /// once.
    ///
    /// Meanwhile a producer that has failed `failures` items in a row takes no new items, so one that fails
    /// fast does not run through the whole input. Bad items that come in a row only cost it that wait.
    ///
    /// A quarantined producer takes part in no run until the runner is closed and
    /// [activated](crate::Pool::activate). The last producer is never quarantined: no other could show that
    /// it is at fault. Its items go to the others, and the run goes on if at least
    /// [`min_producers`](Builder::min_producers) are left.
    ///
    /// [`build`](Builder::build) refuses 0.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let broken = map(|_| Ok(()), |cx, _, x: u64| match cx.producer() {
    ///     0 => Err("the device is gone".into()),
    ///     _ => Ok(x),
    /// });
    /// let mut runner = OrderedRunner::builder(broken).devices(2).quarantine_after(3).build()?;
    /// assert_eq!(runner.run(0..100)?.len(), 100, "all of them");
    /// # Ok(())
    /// # }
    /// ```
    pub fn quarantine_after(mut self, failures: usize) -> Self
    where
        R::Input: Clone,
    {
        self.policy.quarantine_after = Some(failures);
        self.copy = Some(R::Input::clone);
        self
    }

    /// Declares the work safe to repeat, so that other producers may start copies of slow items.
    ///
    /// The first result wins. Two rules decide when a call is copied, after at least 10 ms:
    ///
    /// - After three times the 95th percentile of this run's calls, the next free producer copies the head of the
    ///   line, before new items. In a [service](crate::Service), this holds for each call.
    /// - While the run stands still, an idle producer copies any call after 1.25 times that percentile. A run stands
    ///   still if its window is full, or its input has ended, and the consumer waits.
    ///
    /// Copies are at most 2 % of the calls, or eight. In a run that stands still, idle producers go beyond that
    /// after the longer time. If most copies of the head gain nothing, since the items themselves are slow, only
    /// idle producers copy. A producer that shares the slow GPU helps only if all other GPUs are slow too.
    ///
    /// An error of one of the two counts only if the other fails too. The run does not wait for the one
    /// that lost: its [`is_cancelled`](crate::ProducerContext::is_cancelled) turns true, and it takes part
    /// in no run until it has returned. A copy of each item is kept while a hook has it.
    ///
    /// A [batch](Builder::batch) is copied as a whole. The first result of each of its items wins, and a call has
    /// lost when all its items have other results. Parts of a split batch go to other producers at once.
    ///
    /// [`close`](crate::Pool::close) waits for a producer that lost and has not returned, for at most the
    /// [item timeout](Builder::item_timeout), or else the [run timeout](Builder::run_timeout). Then its
    /// thread is abandoned. With neither limit, `close` waits until the hook returns.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let stuck = map(|_| Ok(()), |cx, _, x: u64| {
    ///     while cx.producer() == 0 && !cx.is_cancelled() {
    ///         std::thread::yield_now(); // a device that is much slower than the others
    ///     }
    ///     Ok(x)
    /// });
    /// let mut runner = OrderedRunner::builder(stuck).devices(2).speculate().build()?;
    /// assert_eq!(runner.run(0..9)?.len(), 9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn speculate(mut self) -> Self
    where
        R::Input: Clone,
    {
        self.policy.stragglers = Stragglers::Copy;
        self.copy = Some(R::Input::clone);
        self
    }

    /// Sets the minimum number of live producers. Building or running fails below it.
    ///
    /// The [report](crate::Pool::report) says which producers were lost, and why.
    ///
    /// By default all producers have to be ready when the runner is built, and one is enough afterwards.
    /// [`build`](Builder::build) refuses 0, and more than there are places.
    ///
    /// A run that is left with fewer ends with [`Error::TooFewProducers`]. So does a later run, unless abandoned
    /// producers have come back by then, [`replace_lost`](Builder::replace_lost) starts others in their places, or the
    /// runner was closed and activated.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let flaky = map(
    ///     |cx| if cx.producer() == 0 { Err("no such GPU".into()) } else { Ok(()) },
    ///     |_, _, x: u64| Ok(x),
    /// );
    /// let mut pool = OrderedRunner::builder(flaky).devices(3).min_producers(2).build()?;
    /// assert_eq!(pool.run(0..3)?, [0, 1, 2]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn min_producers(mut self, producers: usize) -> Self {
        self.policy.min_producers = Some(producers);
        self
    }

    /// Sets how long a producer may work on an item; after that the item fails with [`Error::TimedOut`].
    ///
    /// A thread cannot be ended from outside, so the thread of that producer is abandoned.
    ///
    /// The item is then treated as any that failed: see [`retries`](Builder::retries) and
    /// [`on_error`](Builder::on_error). The run goes on if at least
    /// [`min_producers`](Builder::min_producers) are left. The items of a [batch](Builder::batch) are
    /// worked on together and time out together, after the sum of their limits.
    ///
    /// A thread checks the limit sixteen times within the shortest limit, but at most every millisecond, so
    /// a producer is abandoned up to two such ticks late. Time in which the whole process does not run,
    /// since it was stopped by a signal or the machine was asleep, counts as one tick.
    ///
    /// [`is_cancelled`](crate::ProducerContext::is_cancelled) turns true for the hook of an abandoned producer.
    /// If the hook returns after all, its result is dropped, and the producer takes part again: in the same run
    /// if that is still going on, else in the next. Until then it is no live producer.
    /// [`replace_lost`](Builder::replace_lost) starts another in its place before the next run.
    ///
    /// [`build`](Builder::build) refuses 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let stuck = map(|_| Ok(()), |cx, _, x: u64| {
    ///     while x == 1 && !cx.is_cancelled() {
    ///         std::thread::sleep(Duration::from_millis(1));
    ///     }
    ///     Ok(x)
    /// });
    /// let builder = OrderedRunner::builder(stuck).devices(2);
    /// let mut pool = builder.item_timeout(Duration::from_millis(20)).build()?;
    /// assert!(pool.run(0..3).unwrap_err().is_timeout());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn item_timeout(mut self, limit: Duration) -> Self {
        self.limits.item = Some(limit);
        self
    }

    /// Sets how long a `producer_init` may take; after that its thread is abandoned, as by
    /// [`item_timeout`](Builder::item_timeout).
    ///
    /// Building then fails with [`Error::TimedOut`], unless enough others are
    /// [ready](Builder::min_producers). If a state is being rebuilt during a run, the run goes on with the
    /// other producers, and they take over the items of this one.
    ///
    /// [`build`](Builder::build) refuses 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x))).devices(2);
    /// let mut pool = builder.init_timeout(Duration::from_secs(60)).build()?;
    /// assert_eq!(pool.run([1])?, [1]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn init_timeout(mut self, limit: Duration) -> Self {
        self.limits.init = Some(limit);
        self
    }

    /// Sets how long a run, or an [`outputs`](crate::Pool::outputs) call, may take. After that it ends with
    /// [`Error::RunTimedOut`].
    ///
    /// Running hooks are asked to give up, as by a cancel. Those that have not returned within a sixteenth
    /// of the limit, or 100 ms if that is more, are abandoned, also one of the consumer. If an abandoned
    /// consumer hook returns after all, no other hook is called, and its state is dropped. An iterator that
    /// does not return from `next()` cannot be abandoned. In a [pipeline](crate::Pipeline) the limit is
    /// that of its own stage, and abandons only that stage's hooks.
    ///
    /// [`build`](Builder::build) refuses 0.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x))).devices(2);
    /// let mut pool = builder.run_timeout(Duration::from_millis(50)).build()?;
    /// assert!(pool.run(0..).unwrap_err().is_timeout(), "an endless input");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn run_timeout(mut self, limit: Duration) -> Self {
        self.limits.run = Some(limit);
        self
    }

    /// Gives each item a key: its name in errors, in the [report](crate::Pool::report) and in progress.
    ///
    /// `key` is called for each item after it was pulled, on the feeding thread. Keys need not be unique: the
    /// index of an item tells it from others of its key. With a [journal](Builder::journal), which has to
    /// find an item again, those after the first get a number, `a#2`, and all keys of a run are kept in
    /// memory. Without one, only keys of items in flight are. If `key` panics, the item fails with [`Error::KeyPanicked`], like one that a
    /// [limit](Builder::max_batch_cost) refuses. In a [pipeline](crate::Pipeline) an item keeps its key through
    /// the stages that follow, unless one has a key of its own.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let parse = map(|_| Ok(()), |_, _, (_, text): (&str, &str)| Ok(text.parse::<i32>()?));
    /// let mut runner = OrderedRunner::builder(parse).devices(2).key(|&(id, _)| id).build()?;
    /// let error = runner.run([("x", "1"), ("y", "one")]).unwrap_err();
    /// assert_eq!(error.key(), Some("y"));
    /// # Ok(())
    /// # }
    /// ```
    pub fn key<K: Display>(mut self, key: impl Fn(&R::Input) -> K + Send + Sync + 'static) -> Self {
        self.name = Some(Box::new(move |input| key(input).to_string()));
        self
    }

    /// Records in a file which items are done, so that a later run does not repeat them. With
    /// [`key`](Builder::key), the keys of all items of a run are kept in memory.
    ///
    /// See [`Journal`], and `docs/resume.md` of the repository for the details.
    ///
    /// A record is committed after [`consumer_work`](Runner::consumer_work) has returned `Ok` and
    /// [`consumer_flush`](Runner::consumer_flush) has run. Items are identified by their index in the
    /// input, by index and [hash](Builder::hashed_by), or, better, by their [`key`](Builder::key). The
    /// summary covers the items of one run; [`last_note`](crate::ConsumerContext::last_note) tells
    /// `consumer_init` how far earlier runs came.
    ///
    /// Each [`run`](crate::Pool::run) opens the journal, and fails with [`Error::Journal`] if it cannot be
    /// continued. A new journal is therefore for one run. In a [pipeline](crate::Pipeline) the
    /// first stage has the journal, and an item is done once the last consumer has it.
    /// [`outputs`](crate::Pool::outputs) and later stages have none, and fail with
    /// [`Error::JournalUnsupported`].
    ///
    /// ```
    /// use gangline::{Journal, OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("run.journal");
    /// let squares = || map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
    /// let builder = || OrderedRunner::builder(squares()).devices(2);
    /// let mut runner = builder().journal(Journal::at(&path)).build()?;
    /// assert_eq!(runner.run(0..3)?, [0, 1, 4]);
    /// let mut runner = builder().journal(Journal::at(&path).resume()).build()?;
    /// assert_eq!(runner.run(0..5)?, [9, 16], "the first three are done");
    /// assert_eq!(runner.account().already_done, 3);
    /// # Ok(())
    /// # }
    /// ```
    pub fn journal(mut self, journal: impl Into<Journal>) -> Self {
        self.journal = Some(journal.into());
        self
    }

    /// Lets a [journal](Builder::journal) detect that an item differs from the one that had its index.
    ///
    /// `hash` has to give the same number for the same item in every run. (The standard library's
    /// `DefaultHasher` does not promise that from one version to the next.) It has no effect if items have
    /// a [`key`](Builder::key).
    ///
    /// ```
    /// use gangline::{Journal, OrderedRunner, map};
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("run.journal");
    /// let squares = || map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
    /// let builder = || OrderedRunner::builder(squares()).devices(2).hashed_by(|&x| x);
    /// builder().journal(Journal::at(&path)).build()?.run([1, 2])?;
    /// let mut pool = builder().journal(Journal::at(&path).resume()).build()?;
    /// assert!(pool.run([1, 7]).is_err(), "7 is not the item that was done");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn hashed_by(mut self, hash: impl Fn(&R::Input) -> u64 + Send + Sync + 'static) -> Self {
        self.hash = Some(Box::new(hash));
        self
    }
}

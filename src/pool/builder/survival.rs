//! What a run survives: errors, devices that fail, hooks that do not return.

use std::fmt::Display;
use std::sync::Arc;
use std::time::Duration;

use super::Builder;
use crate::error::Error;
use crate::journal::Journal;
use crate::policy::{Backoff, MaxFailures, OnError, Stragglers, Verdict};
use crate::pool::OrderKind;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// What becomes of items that fail: by default the first error ends the run.
    ///
    /// With [`OnError::Skip`] the item is left out and the run goes on. That goes for an error or panic of
    /// `producer_work` and of the hook for batches, for an `Err` of the input of
    /// [`try_run`](crate::Pool::try_run), and for items that a [limit](Builder::max_batch_cost) refuses. The consumer
    /// gets a call of [`consumer_skipped`](Runner::consumer_skipped) in the item's place;
    /// [`account`](crate::Pool::account) counts it as failed, and [`failures`](crate::Pool::failures) has the
    /// error. A [stream](crate::Pool::outputs) yields the error and goes on.
    ///
    /// What still ends the run: a hook of the consumer that fails, since what it writes to will not be
    /// there for the next item either ([`classify`](Builder::classify) can say otherwise of an error that
    /// `consumer_work` returns); a panic of the input; and that no producer is left, since each has
    /// failed to make its state anew after a panic, was [quarantined](Builder::quarantine_after) or
    /// [written off](Builder::item_timeout).
    ///
    /// A device that fails at everything is quickly free again, and takes many items: set
    /// [`quarantine_after`](Builder::quarantine_after) or [`max_failures`](Builder::max_failures), or have `classify`
    /// stop at its errors.
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

    /// Decides for each error what becomes of it, instead of [`on_error`](Builder::on_error).
    ///
    /// `classify` is called once for each attempt that failed, or for a batch that fails together, with its
    /// error, on the thread where that happened: the producer's, the consumer's, or the one that feeds. [`Error::hook`] and
    /// [`Error::is_input`] tell what failed; the cause can be downcast. If it panics, the run stops. It is
    /// not asked about what ends a run in any case.
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

    /// How many attempts there are at an item after the first, where a producer failed at it: with an
    /// error or a panic of `producer_work`, or of the hook for batches. None without it.
    ///
    /// An item is tried again before new ones are taken, the first in order before others, and on another
    /// producer where there is one. It waits for that as long as [`backoff`](Builder::backoff) says,
    /// which keeps no producer from other work. [`attempt`](crate::ProducerContext::attempt) tells the hook which
    /// attempt it is, and an error which one failed. Only what the last one failed with counts; in input order
    /// the items behind it wait for it.
    ///
    /// The hook gets each item by value, so a copy is kept while it has it. With
    /// [batches](Builder::batch) an item is tried again in a batch of its own, also one that failed together
    /// with others. The search for the guilty item of a batch is no attempt.
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

    /// How long an item waits before it is [tried again](Builder::retries): `first` before the second
    /// attempt, twice as long before each after that, and `most` at most. 100 ms and 10 s without it.
    pub fn backoff(mut self, first: Duration, most: Duration) -> Self {
        self.policy.backoff = Backoff { first, most };
        self
    }

    /// How many items may fail and be left out before the run fails too: a number, or a
    /// [share](MaxFailures::share) of the items. Any number without it.
    ///
    /// The run then ends with [`Error::TooManyFailures`]. It says nothing about errors that are not
    /// [skipped](Builder::on_error), of which the first ends the run.
    ///
    /// A share that is not between 0 and 1 is refused by [`build`](Builder::build), and so is this where no item is
    /// ever left out: without [`OnError::Skip`] and without [`classify`](Builder::classify).
    pub fn max_failures(mut self, most: impl Into<MaxFailures>) -> Self {
        self.policy.max_failures = Some(most.into());
        self
    }

    /// Fences a producer off whose device fails: after `failures` items in a row that it failed and others
    /// were done with. And blames an item once so many different producers, two at least, have failed it. No
    /// producer is quarantined without it.
    ///
    /// A GPU that is gone fails everything for all its producers. So as long as all that have failed an item have
    /// a GPU in common, it is not to blame before a producer without that one has failed it too, if there is one. (One
    /// that has lost a race, see [`speculate`](Builder::speculate), is not there until it has returned.)
    ///
    /// It has to be known whose fault a failure is. So an item that fails is tried by another producer at
    /// once, before it is judged, by one that shares no GPU with the first if there is one, until one is done with it, or so
    /// many producers have failed it, or all there are; only then [`retries`](Builder::retries) and
    /// [`on_error`](Builder::on_error) say what becomes of it. (Each try is an [attempt](crate::ProducerContext::attempt). What [`classify`](Builder::classify)
    /// says outright, [`Skip`](Verdict::Skip) or [`Stop`](Verdict::Stop), goes at once.) Meanwhile a
    /// producer that has failed so many in a row takes nothing new, so one that fails fast does not go
    /// through the whole input; bad items that come in a row cost it no more than that wait.
    ///
    /// A producer that was quarantined takes part in no run until the runner is closed and
    /// [activated](crate::Pool::activate). The last one never is: there is no other to show that it fails.
    /// Its items go to the others, and the run goes on with those, if they are at least
    /// [`min_producers`](Builder::min_producers).
    ///
    /// 0 is refused by [`build`](Builder::build).
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

    /// Says that to work on an item twice does no harm, which lets producers help each other: when the run
    /// stands still on an item that a producer is slow at, and another is idle, that one starts the item too,
    /// and the first result wins.
    ///
    /// A run stands still when its window is full, or its input has ended, and the consumer waits. An item is slow
    /// once it has taken twice as long as items do on average, and 10 ms at least. Since what is slow may be the
    /// GPU, a producer that shares it helps only if all on other GPUs are slow themselves. An error of
    /// one of the two counts only when the other fails too. The run does not wait for the one that lost: its
    /// [`is_cancelled`](crate::ProducerContext::is_cancelled) turns true, and it takes no part in a run until it has
    /// returned. A copy is kept of each item while a hook has it.
    ///
    /// A [batch](Builder::batch) is started anew as a whole, once its call has taken twice as long as calls do on average. Each
    /// of its items goes to whoever is done with it first, and a call has lost when that is so of all its
    /// items. What a producer still has to do beside that call, of a batch that was split, goes to others at once.
    ///
    /// [`close`](crate::Pool::close) waits for one that has not returned as long as [an item](Builder::item_timeout)
    /// may take, or [a run](Builder::run_timeout) where there is no limit on items; then its thread is abandoned.
    /// With neither it waits until the hook returns.
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

    /// With how few producers the runner is worth having: it is built, and runs go on, while at least so many
    /// are left. The [report](crate::Pool::report) tells which are not, and why.
    ///
    /// Without it all have to be ready when the runner is built; afterwards one is enough. More than there
    /// are, and 0, are refused by [`build`](Builder::build).
    ///
    /// A run that is left with fewer ends with [`Error::TooFewProducers`], and so does every later one until
    /// the runner is closed and activated.
    pub fn min_producers(mut self, producers: usize) -> Self {
        self.policy.min_producers = Some(producers);
        self
    }

    /// How long a producer may work on an item. One that takes longer is written off: its thread cannot be
    /// ended, so it is abandoned, and the item fails with [`Error::TimedOut`].
    ///
    /// The item is then judged as any that failed ([`retries`](Builder::retries), on another producer;
    /// [`on_error`](Builder::on_error)), and the run goes on with the other producers, if they are at
    /// least [`min_producers`](Builder::min_producers). Items of a [batch](Builder::batch) are worked on
    /// together, and have so much time for each of them. They time out together.
    ///
    /// The limit is kept by a thread that ticks, sixteen times within the shortest limit but at most every
    /// millisecond, so a producer is written off up to two ticks late. Time in which the whole process does not
    /// run (stopped by a signal, a machine asleep) counts as one tick.
    ///
    /// The place of a producer that was written off stays empty until the runner is closed and activated.
    /// Should its hook return after all, what it returns is dropped, `producer_end` is called, and the thread
    /// ends; [`is_cancelled`](crate::ProducerContext::is_cancelled) tells the hook.
    ///
    /// 0 is refused by [`build`](Builder::build).
    pub fn item_timeout(mut self, limit: Duration) -> Self {
        self.limits.item = Some(limit);
        self
    }

    /// How long a `producer_init` may take. One that takes longer is abandoned as by
    /// [`item_timeout`](Builder::item_timeout): building fails with [`Error::TimedOut`], unless enough others
    /// are [ready](Builder::min_producers). Where a state is made anew during a run, that goes on with the
    /// other producers, and they work on the items that this one had.
    ///
    /// 0 is refused by [`build`](Builder::build).
    pub fn init_timeout(mut self, limit: Duration) -> Self {
        self.limits.init = Some(limit);
        self
    }

    /// How long a run, or a stream, may take. One that takes longer ends with [`Error::RunTimedOut`].
    ///
    /// Hooks that are running are asked to give up, as by a cancel; those that have not returned within a
    /// sixteenth of the limit, or 100 ms if that is more, are abandoned, also one of the consumer: should it
    /// return after all, no other hook is called, and its state is dropped. Only an iterator that does not
    /// return from `next()` cannot be left. In a [pipeline](crate::Pipeline) the limit is that of its own stage,
    /// whose hooks are the only ones that it leaves behind.
    ///
    /// 0 is refused by [`build`](Builder::build).
    pub fn run_timeout(mut self, limit: Duration) -> Self {
        self.limits.run = Some(limit);
        self
    }

    /// Gives each item a key: what it is called in errors, in the [report](crate::Pool::report) and in progress.
    ///
    /// `key` is called for each item when it was pulled, on the thread that feeds. Keys need not be
    /// different: of several items with one key those after the first are told apart by a number, `a#2`,
    /// for which all keys of a run are kept in memory. If it panics, the item fails with
    /// [`Error::KeyPanicked`], as one that a [limit](Builder::max_batch_cost) refuses.
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

    /// Writes down which items are done, so that a later run need not do them again: see [`Journal`], and
    /// `docs/resume.md` of the repository for the whole of it.
    ///
    /// A record is committed after [`consumer_work`](Runner::consumer_work) returned `Ok` and after
    /// [`consumer_flush`](Runner::consumer_flush). Items are known by their place in the input, or, better, by their
    /// [`key`](Builder::key), or by their place and a [hash](Builder::hashed_by). The summary is that of the
    /// items of one run; [`last_note`](crate::ConsumerContext::last_note) tells `consumer_init` how far earlier ones were.
    ///
    /// The journal is opened by each [`run`](crate::Pool::run), which fails with [`Error::Journal`] when it cannot be
    /// gone on with; one that is new is therefore for one run. Streams and pipelines have none, and fail
    /// with [`Error::JournalUnsupported`].
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

    /// Has a [journal](Builder::journal) notice that an item is not the one that was in its place: `hash` has to
    /// give the same number for the same item in every run. (The standard library's `DefaultHasher` does
    /// not promise that from one version to the next.) Where items have a [`key`](Builder::key) it says nothing.
    pub fn hashed_by(mut self, hash: impl Fn(&R::Input) -> u64 + Send + Sync + 'static) -> Self {
        self.hash = Some(Box::new(hash));
        self
    }

    /// Whether these values make sense together, for so many producers.
    pub(super) fn check_survival(&self, producers: usize) -> Result<(), Error> {
        if let Some(share) = self.policy.max_failures.and_then(|most| most.bad_share()) {
            return Err(Error::Share { share });
        }
        if self.policy.max_failures.is_some() && !self.policy.may_skip() {
            return Err(Error::NoneSkipped {});
        }
        if self.policy.quarantine_after == Some(0) {
            return Err(Error::FenceAfter {});
        }
        if let Some(least) =
            self.policy.min_producers.filter(|least| !(1..=producers).contains(least))
        {
            return Err(Error::MinProducers { least, producers });
        }
        match self.limits.zero() {
            Some(limit) => Err(Error::ZeroTimeout { limit }),
            None => Ok(()),
        }
    }
}

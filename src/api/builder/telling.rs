//! The settings for observers, progress and reports.

use std::collections::BTreeMap;
use std::time::Duration;

use gangline_scheduler::OnError;

use super::Builder;
use crate::api::pool::OrderKind;
use crate::base::{HumanDuration, Measure, Order};
use crate::observe::event::Observer;
use crate::observe::event_log::Detail;
use crate::policy::Stragglers;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Adds an observer of each run: a closure, or a type of its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::event::Event;
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let (sender, started) = std::sync::mpsc::channel();
    /// let mut runner = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)))
    ///     .devices(2)
    ///     .observer(move |_: Duration, event: &Event| {
    ///         if let Event::ItemStarted { item, producer, .. } = event {
    ///             sender.send((*item, *producer)).unwrap();
    ///         }
    ///     })
    ///     .build()?;
    /// runner.run(0..5)?;
    /// assert_eq!(started.try_iter().count(), 5);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Observers are called on a thread of their own, so a slow one does not slow the run down. Events of
    /// items that it does not keep up with are [dropped](crate::event::Event::EventsLost). At its end a run waits
    /// one second for an observer that has not returned; then the observer is abandoned with its thread.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        let observers = self.observers.get_mut();
        observers.expect("it is never locked, so it is not poisoned").push(Box::new(observer));
        self.told.detail = Detail::Items;
        self
    }

    /// Shows the progress of runs on the terminal: [`Progress`](crate::Progress) without options.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)));
    /// let mut pool = builder.devices(2).progress().build()?;
    /// assert_eq!(pool.run(0..3)?, [0, 1, 2]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "progress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "progress")))]
    pub fn progress(self) -> Self {
        self.observer(crate::Progress::new())
    }

    /// Shows the [`progress`](Builder::progress), with `work` as the name of the work, there and in
    /// [reports](crate::Pool::report).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)));
    /// let mut pool = builder.devices(2).progress_desc("copy numbers").build()?;
    /// assert_eq!(pool.run(0..3)?, [0, 1, 2]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    #[cfg(feature = "progress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "progress")))]
    pub fn progress_desc(self, work: impl Into<String>) -> Self {
        let work = work.into();
        self.observer(crate::Progress::new().desc(work.clone())).describe(work)
    }

    /// Makes the [report](crate::Pool::report) cover each item, with a picture and a trace of the
    /// producers.
    ///
    /// It then has the times of items, the slowest items, and when each producer worked.
    ///
    /// By default a report has only what is measured at waits, which costs nothing for an item. With a
    /// timeline each item costs its producer two readings of the clock.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)));
    /// let mut pool = builder.devices(2).timeline().build()?;
    /// pool.run(0..100)?;
    /// println!("{}", pool.report());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn timeline(mut self) -> Self {
        self.told.detail = Detail::Items;
        self
    }

    /// Names the work, at the head of reports.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let builder = OrderedRunner::builder(map(|_| Ok(()), |_, _, x: u64| Ok(x)));
    /// let mut pool = builder.devices(2).describe("copy numbers").build()?;
    /// pool.run(0..3)?;
    /// assert!(pool.report().to_string().contains("copy numbers"));
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn describe(mut self, work: impl Into<String>) -> Self {
        self.told.description = Some(work.into());
        self
    }

    /// Lists the window, the order, and the settings that differ from their defaults.
    pub(super) fn listed(&self) -> BTreeMap<String, String> {
        let mut list = BTreeMap::new();
        let mut add = |name: &str, value: Option<String>| {
            list.extend(value.map(|value| (name.to_owned(), value)));
        };
        let time = |time: Option<Duration>| time.map(|time| format!("{:#}", HumanDuration(time)));
        let set = |is_set: bool| is_set.then(|| "yes".to_owned());
        let number = |number: Option<usize>| number.map(|number| number.to_string());
        let window = self.window.map_or("grows as needed".to_owned(), |items| items.to_string());
        let order = match self.order {
            Order::Input => "input",
            Order::Completion => "completion",
        };
        add("window", Some(window));
        add("order", Some(order.to_owned()));
        add("batch", self.batch.map(|batch| batch.to_string()));
        for (measure, name) in [
            (Measure::Cost, "max_batch_cost"),
            (Measure::Padded, "max_padded_size"),
            (Measure::Memory, "window_memory"),
        ] {
            add(name, self.measures.most(measure).map(|most| most.to_string()));
        }
        add("least_open", number(Some(self.measures.least()).filter(|&items| items > 1)));
        let policy = &self.policy;
        add("seed", (self.seed != 0).then(|| self.seed.to_string()));
        add("on_error", (policy.on_error == OnError::Skip).then(|| "skip".to_owned()));
        add("retries", (policy.retries > 0).then(|| policy.retries.to_string()));
        let backoff = (policy.retries > 0).then_some(policy.backoff);
        add("backoff", time(backoff.map(|backoff| backoff.first)));
        add("classify", set(policy.classify.is_some()));
        add("max_failures", policy.max_failures.map(|most| most.to_string()));
        add("quarantine_after", number(policy.quarantine_after));
        add("min_producers", number(policy.min_producers));
        add("replace_lost", number(Some(self.replacements).filter(|&most| most > 0)));
        add("speculate", set(policy.stragglers == Stragglers::Copy));
        add("item_timeout", time(self.limits.item));
        add("init_timeout", time(self.limits.init));
        add("run_timeout", time(self.limits.run));
        add("recycle_after", self.recycle_after.map(|items| items.to_string()));
        add("end_timeout", time(self.limits.end));
        add("key", set(self.name.is_some()));
        add("hashed_by", set(self.hash.is_some()));
        add("journal", self.journal.as_ref().map(|journal| journal.path().display().to_string()));
        add("timeline", set(self.told.detail == Detail::Items));
        add("lock_gpus", set(self.gpu_lock.is_some()));
        add("stack_size", number(self.stack_size));
        add("around_producers", set(self.wrapper.is_some()));
        list
    }
}

//! What is told of runs, and to whom.

use super::Builder;
use crate::engine::chronicle::Detail;
use crate::event::Observer;
use crate::pool::OrderKind;
use crate::runner::Runner;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Tells `observer` what happens in each run and stream: a closure, or a type of its own.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{Event, OrderedRunner, map};
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
    /// Observers are called on a thread of their own, so a slow one does not slow the run down: events of
    /// items that it does not keep up with are [left out](crate::Event::EventsLost). At its end a run
    /// waits for one that has not returned, for a second; then it is abandoned, with the thread.
    pub fn observer(mut self, observer: impl Observer + 'static) -> Self {
        let observers = self.observers.get_mut();
        observers.expect("it is never locked, so it is not poisoned").push(Box::new(observer));
        self.told.detail = Detail::Items;
        self
    }

    /// Shows on the terminal how far runs are: [`Progress`](crate::Progress), as it is without options.
    #[cfg(feature = "progress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "progress")))]
    pub fn progress(self) -> Self {
        self.observer(crate::Progress::new())
    }

    /// As [`progress`](Builder::progress), for work that is called `work`, there and in
    /// [reports](crate::Pool::report).
    #[cfg(feature = "progress")]
    #[cfg_attr(docsrs, doc(cfg(feature = "progress")))]
    pub fn progress_desc(self, work: impl Into<String>) -> Self {
        let work = work.into();
        self.observer(crate::Progress::new().desc(work.clone())).describe(work)
    }

    /// Has the [report](crate::Pool::report) tell of each item: how long producers worked on them, the
    /// slowest, and when each producer worked, as a picture and as a trace.
    ///
    /// Without it a report has what is measured where somebody waits, which costs an item nothing. With it an item
    /// costs its producer two looks at the clock.
    pub fn timeline(mut self) -> Self {
        self.told.detail = Detail::Items;
        self
    }

    /// What the work is called, at the head of reports.
    pub fn describe(mut self, work: impl Into<String>) -> Self {
        self.told.description = Some(work.into());
        self
    }
}

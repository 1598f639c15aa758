//! The settings for how long a producer lives, and what follows it.

use super::Builder;
use crate::api::pool::OrderKind;
use crate::error::{BuildError, Error};
use crate::runner::Runner;

/// Each replacement that may come has a lane in the hand-over of each run.
const MOST_REPLACEMENTS: usize = 256;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Starts another producer in the place of one that is lost, at most `max` times until the pool is closed.
    ///
    /// By default a pool goes on with the producers that are left. A producer is lost if its hook exceeds the
    /// [item timeout](Builder::item_timeout) or the [init timeout](Builder::init_timeout), if it is
    /// [quarantined](Builder::quarantine_after), or if its `producer_init` fails.
    ///
    /// The new producer is a thread with a state of its own, on the same place and with the same
    /// [number](crate::ProducerContext::producer). A run goes on meanwhile; the new producer takes part as soon
    /// as its `producer_init` has returned. If the run ends before, it waits for that hook, for which
    /// [`is_cancelled`](crate::ProducerContext::is_cancelled) turns true. A producer that was lost when the pool
    /// was built, or at the end of a run, is replaced when the next run begins.
    ///
    /// - An abandoned hook keeps its thread, and its state, until it returns. The device has to have room for
    ///   both. If the hook returns after all, its result is dropped. Its thread calls `producer_end` and ends.
    /// - A producer that was quarantined, or failed to build its state, first ends: the new `producer_init`
    ///   begins when its `producer_end` has returned.
    /// - A `producer_init` that fails loses the new producer too, which counts as one of `max`.
    ///
    /// A run ends with [`Error::TooFewProducers`] only if fewer than
    /// [`min_producers`](Builder::min_producers) are left and none can be replaced any more. Producers that are
    /// being started count as left.
    ///
    /// The [report](crate::Pool::report) counts the
    /// [replacements](crate::report::ProducerReport::replacements) on each place, and observers get
    /// [`ProducerReplaced`](crate::event::Event::ProducerReplaced). [`activate`](crate::Pool::activate) allows
    /// `max` anew. [`build`](Builder::build) refuses more than 256: each needs about 1 KiB of memory in every run.
    ///
    /// ```
    /// use std::time::Duration;
    /// use gangline::{OnError, OrderedRunner, map};
    ///
    /// // Every fifth item hangs until the run gives it up.
    /// let hangs = map(|_| Ok(()), |cx, _, x: u64| {
    ///     while x % 5 == 0 && !cx.is_cancelled() {
    ///         std::thread::sleep(Duration::from_millis(1));
    ///     }
    ///     Ok(x)
    /// });
    /// let builder = OrderedRunner::builder(hangs).devices(1).on_error(OnError::Skip);
    /// let mut pool = builder.item_timeout(Duration::from_millis(20)).replace_lost(8).build()?;
    /// assert_eq!(pool.run(0..10)?, [1, 2, 3, 4, 6, 7, 8, 9]);
    /// assert_eq!(pool.report().producers[0].replacements, 2);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn replace_lost(mut self, max: usize) -> Self {
        self.replacements = max;
        self
    }

    /// Checks that these values are allowed.
    pub(super) fn check_lifespan(&self) -> Result<(), Error> {
        match self.replacements {
            given if given > MOST_REPLACEMENTS => {
                Err(BuildError::Replacements { given, most: MOST_REPLACEMENTS }.into())
            }
            _ => Ok(()),
        }
    }
}

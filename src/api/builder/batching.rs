//! Settings of batches, and of the sizes of items.

use super::Builder;
use crate::api::pool::OrderKind;
use crate::base::Measure;
use crate::error::BuildError;
use crate::run::measures::Amount;
use crate::runner::{BatchHook, Runner};
use crate::scheduler::batch::Batch;

impl<R: Runner + 'static, O: OrderKind> Builder<R, O> {
    /// Has a producer take several items at once.
    ///
    /// [`producer_work_batch`](Runner::producer_work_batch) is then called instead of
    /// [`producer_work`](Runner::producer_work), also for a batch of one. The consumer still sees single
    /// outputs, in the runner's order.
    ///
    /// A runner without that hook works on the items of a batch one by one, which gains nothing. Closures
    /// take batches if the runner is made by [`map_batches`](crate::map_batches).
    ///
    /// [`build`](Builder::build) refuses a batch of 0 items, and one that is larger than the
    /// [window](Builder::window). It refuses any batch for a runner of [`map`](crate::map()): its closure takes
    /// single items.
    ///
    /// ```
    /// use gangline::{Batch, OrderedRunner, map_batches};
    ///
    /// let lengths = map_batches(
    ///     |_| Ok(()),
    ///     |_, (), texts: &mut Vec<&str>| Ok(texts.iter().map(|text| Ok(text.len())).collect()),
    /// );
    /// let mut pool = OrderedRunner::builder(lengths).devices(2).batch(Batch::up_to(32)).build()?;
    /// assert_eq!(pool.run(["one", "three"])?, [3, 5]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn batch(mut self, batch: Batch) -> Self {
        self.batch = Some(batch);
        self
    }

    /// Bounds the total cost of the items of a [batch](Builder::batch): tokens, pixels, bytes.
    ///
    /// An incomplete batch counts as full if the next item would exceed the limit.
    ///
    /// `cost` is called once for each item, on the feeding thread, after the item was pulled. An item that
    /// alone costs more than `most` fails with [`Error::TooLarge`](crate::Error::TooLarge) before any hook sees it. An item for
    /// which `cost` panics fails with [`Error::MeasurePanicked`](crate::Error::MeasurePanicked).
    ///
    /// ```
    /// use gangline::{Batch, OrderedRunner};
    ///
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/common/lengths.rs"));
    /// # fn main() -> gangline::Result<()> {
    /// // `Lengths` is a type that implements `producer_work_batch`.
    /// let mut runner = OrderedRunner::builder(Lengths)
    ///     .devices(2)
    ///     .batch(Batch::up_to(32))
    ///     .max_batch_cost(4_096, |text| text.len())
    ///     .build()?;
    /// assert_eq!(runner.run(["mush".to_owned(), "whoa".to_owned()])?, [4, 4]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// [`build`](Builder::build) refuses a `most` of 0, and a cost limit without a `batch`.
    pub fn max_batch_cost<N: Amount>(
        mut self,
        most: N,
        cost: impl Fn(&R::Input) -> N + Send + Sync + 'static,
    ) -> Self {
        self.measures.set(Measure::Cost, most, cost);
        self
    }

    /// Bounds the padded size of a [batch](Builder::batch): its largest `size` times the number of its
    /// items.
    ///
    /// Items of similar sizes go together, none more than twice as large as another: the items nearest in
    /// size to the first that waits, also if others were read in between. The consumer still sees the
    /// runner's order.
    ///
    /// If no more items can come, for the reasons that [`Batch`] names, the batch with the first item goes
    /// first. Before that, a full batch may overtake it. The more items the [window](Builder::window) has
    /// to choose from, the less is padded.
    ///
    /// `size` is called like the function of [`max_batch_cost`](Builder::max_batch_cost), and items fail
    /// likewise. If both limits are given, a batch keeps both.
    ///
    /// The limits learned from running out of memory are then padded sizes too: see
    /// [`learned_batch_limits`](crate::Pool::learned_batch_limits). A simulated device still counts
    /// [items](crate::testing::Script::out_of_memory_above).
    ///
    /// ```
    /// use gangline::{Batch, OrderedRunner};
    ///
    /// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/common/lengths.rs"));
    /// # fn main() -> gangline::Result<()> {
    /// // `Lengths` is a type that implements `producer_work_batch`.
    /// let mut runner = OrderedRunner::builder(Lengths)
    ///     .devices(2)
    ///     .batch(Batch::up_to(32))
    ///     .max_padded_size(8_192, |text| text.len())
    ///     .build()?;
    /// assert_eq!(runner.run([3, 500, 4].map(|length| "x".repeat(length)))?, [3, 500, 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn max_padded_size<N: Amount>(
        mut self,
        most: N,
        size: impl Fn(&R::Input) -> N + Send + Sync + 'static,
    ) -> Self {
        self.measures.set(Measure::Padded, most, size);
        self
    }

    /// Bounds the total weight of the items in flight, beside their number: bytes of memory, say.
    ///
    /// An item that was pulled and does not fit waits for room, so memory may hold one item more. An item
    /// that alone weighs more than `most` is handed to a producer when all others are consumed.
    ///
    /// `weight` is called once for each item, on the feeding thread. An item for which it panics fails with
    /// [`Error::MeasurePanicked`](crate::Error::MeasurePanicked). [`build`](Builder::build) refuses a `most` of 0.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let lengths = map(|_| Ok(()), |_, _, image: Vec<u8>| Ok(image.len()));
    /// let mut runner = OrderedRunner::builder(lengths)
    ///     .devices(2)
    ///     .window_weight(1 << 30, |image| image.len())
    ///     .build()?;
    /// assert_eq!(runner.run([vec![0; 1 << 20], vec![0; 5]])?, [1 << 20, 5]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn window_weight<N: Amount>(
        mut self,
        most: N,
        weight: impl Fn(&R::Input) -> N + Send + Sync + 'static,
    ) -> Self {
        self.measures.set(Measure::Weight, most, weight);
        self
    }

    /// Checks the rule of batches against the runner and the window.
    pub(super) fn check_batch(&self) -> Result<(), BuildError> {
        let most = self.batch.map_or(1, |batch| batch.most());
        if most == 0 {
            return Err(BuildError::Batch {});
        }
        if self.batch.is_some() && self.runner.batch_hook() == BatchHook::Missing {
            return Err(BuildError::SingleItems {});
        }
        match self.window.filter(|&window| window < most) {
            Some(window) => Err(BuildError::Window { window, least: most }),
            None => Ok(()),
        }
    }
}

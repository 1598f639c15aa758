//! Settings of batches, and of the sizes of items.

use gangline_scheduler::batch::Batch;

use super::Builder;
use crate::api::pool::OrderKind;
use crate::base::Measure;
use crate::run::measures::Amount;
use crate::runner::Runner;

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
    /// [`Batch::auto`] chooses the size for each device.
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
    /// let mut pool = OrderedRunner::builder(lengths).devices(2).batch(Batch::auto()).build()?;
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

    /// Bounds the memory of the items in flight, in bytes and beside their number: of inputs that wait or are worked on,
    /// and of outputs that wait for their turn and their consumer.
    ///
    /// `input` and `output` say how many bytes a value takes. `input` is called once for each item, on the feeding thread
    /// when the item was pulled. `output` is called once for each output, on the producer's thread when the hook has returned
    /// it. An item counts as its input until its output is known, and then as its output, until it is consumed. Pass
    /// `|_| 0` for values that are not to count.
    ///
    /// The bound is hard as far as sizes can be known. What is not known yet counts as the largest that was seen in this
    /// run: an item before it is pulled, and an output before its hook has returned. So sums exceed `bytes` only
    ///
    /// - by as much as an input or output is larger than all before it. If `input` returns what the output will take, where
    ///   that is known, no output is a surprise. Before its first output is known, a run has at most as many items in flight
    ///   as producers work on at once, or fewer if these would not fit;
    /// - by one item that is larger than the bound. It goes alone, when all others are consumed;
    /// - by the items that [`least_open`](Builder::least_open) allows whatever they take.
    ///
    /// What a hook allocates while it works does not count, nor do the copies of inputs that
    /// [`retries`](Builder::retries) and [`speculate`](Builder::speculate) keep.
    ///
    /// In a pipeline all stages with a bound share one: the smallest of theirs. The output of a stage is the input of the next,
    /// and counts in both while it passes on. A stage without items may always take one, for which room is kept free: a
    /// bound that has no room for the largest item of each stage is exceeded by these. Open parents of an
    /// [expansion](crate::Pipeline::expand) and what is gathered of their parts do not count; they are bounded by
    /// [`open_parents`](crate::expansion::Expand::open_parents).
    ///
    /// An item for which `input` or `output` panics fails with [`Error::MeasurePanicked`](crate::Error::MeasurePanicked), and
    /// is not tried again. [`build`](Builder::build) refuses a bound of 0. It does not apply to a
    /// [`Service`](crate::Service).
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let pixels = map(|_| Ok(()), |_, _, size: usize| Ok(vec![0_u8; size * size]));
    /// let mut runner = OrderedRunner::builder(pixels)
    ///     .devices(2)
    ///     .window_memory(1 << 30, |size| size * size, |pixels| pixels.len())
    ///     .build()?;
    /// assert_eq!(runner.run([1 << 10, 5])?.len(), 2);
    /// # Ok(())
    /// # }
    /// ```
    pub fn window_memory<N: Amount>(
        mut self,
        bytes: N,
        input: impl Fn(&R::Input) -> N + Send + Sync + 'static,
        output: impl Fn(&R::Output) -> N + Send + Sync + 'static,
    ) -> Self {
        self.measures.set(Measure::Memory, bytes, input);
        self.measures.set_output(output);
        self
    }

    /// Sets the number of items that may be in flight whatever they take in [memory](Builder::window_memory). The default
    /// is 1, which 0 counts as.
    ///
    /// With the number of producers times the largest batch, no producer has to wait for the bound.
    ///
    /// ```
    /// use std::sync::Barrier;
    ///
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// let both = Barrier::new(2);
    /// let meet = map(|_| Ok(()), move |_, _, pixels: Vec<u8>| {
    ///     both.wait();
    ///     Ok(pixels)
    /// });
    /// let mut pool = OrderedRunner::builder(meet)
    ///     .devices(2)
    ///     .window_memory(1 << 10, |pixels| pixels.len(), |pixels| pixels.len())
    ///     .least_open(2)
    ///     .build()?;
    /// // Each is larger than the bound, and they are worked on at once.
    /// assert_eq!(pool.run((0..4).map(|_| vec![0; 1 << 20]))?.len(), 4);
    /// # Ok(())
    /// # }
    /// ```
    pub fn least_open(mut self, items: usize) -> Self {
        self.measures.set_least(items);
        self
    }
}

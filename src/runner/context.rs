//! The context that a hook gets with its call.

mod listening;

use std::sync::Arc;

use crate::cfg::CfgNode;
use crate::concurrency::bell::Bells;
use crate::device::Device;
use crate::runner::item_seed::seed_of;
use crate::runner::producer_setup::ProducerSetup;
use crate::runner::wanted::{AbandonFlag, OpenItems, Wanted};

/// The context of a producer's hook: the device, the configuration, the items.
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// let work = map(
///     |cx| Ok(format!("model on {}", cx.device())), // once for each producer
///     |cx, model: &mut String, x: u64| Ok(format!("{x} by {model}, attempt {}", cx.attempt())),
/// );
/// let mut pool = OrderedRunner::new(work, "cpu")?;
/// assert_eq!(pool.run([7])?, ["7 by model on cpu, attempt 1"]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct ProducerContext<'a> {
    setup: &'a ProducerSetup,
    items: &'a [u64],
    /// The indices that the hook sees, if they are not those of this process's run.
    shown: Option<&'a [u64]>,
    attempt: u32,
    wanted: &'a Wanted,
    /// Whether anything waits for this call. `None` where that is certain.
    flag: Option<AbandonFlag<'a>>,
    /// In a service.
    open: Option<&'a dyn OpenItems>,
    /// Rung when a lease is revoked, where one can be.
    revoked: Option<&'a Bells>,
}

impl<'a> ProducerContext<'a> {
    pub(crate) fn new(setup: &'a ProducerSetup, wanted: &'a Wanted, items: &'a [u64]) -> Self {
        let (shown, flag, open, revoked) = (None, None, None, None);
        ProducerContext { setup, items, shown, attempt: 1, wanted, flag, open, revoked }
    }

    /// Returns the same context for another attempt.
    pub(crate) fn with_attempt(self, attempt: u32) -> Self {
        ProducerContext { attempt, ..self }
    }

    /// Returns the same context as the run of another process has it. For backends.
    #[doc(hidden)]
    pub fn shown_as(self, items: &'a [u64], attempt: u32) -> Self {
        debug_assert_eq!(items.len(), self.items.len(), "each item has an index");
        ProducerContext { shown: Some(items), attempt, ..self }
    }

    /// The same, for a producer that may be abandoned.
    pub(crate) fn with_abandon_flag(self, flag: Option<AbandonFlag<'a>>) -> Self {
        ProducerContext { flag, ..self }
    }

    /// The same, for items whose callers may go away.
    pub(crate) fn with_open_items(self, open: Option<&'a dyn OpenItems>) -> Self {
        ProducerContext { open, ..self }
    }

    /// Returns the producer's device; the first, if its place has several.
    pub fn device(&self) -> &'a Device {
        &self.devices()[0]
    }

    /// Returns all devices of the producer's place, in the order of the device list: at least one.
    pub fn devices(&self) -> &'a [Device] {
        self.setup.place.devices()
    }

    /// Returns the producer's number, from 0, which is also its position in the device list.
    pub fn producer(&self) -> usize {
        self.setup.producer
    }

    /// Returns the number of producers of the runner: the places in its device list. Producers that were
    /// lost during a run count too.
    ///
    /// With [`producer`](ProducerContext::producer) it divides work that does not come from the input: the
    /// files of a data set, or the seeds of a random generator.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let shard = map(
    ///     |cx| Ok(format!("{} of {}", cx.producer() + 1, cx.producers())),
    ///     |_, shard: &mut String, _: u64| Ok(shard.clone()),
    /// );
    /// let mut pool = OrderedRunner::new(shard, 1)?;
    /// assert_eq!(pool.run([0])?, ["1 of 1"]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn producers(&self) -> usize {
        self.setup.producers
    }

    /// Returns the runner's configuration, as it was when the runner was built or last activated.
    pub fn cfg(&self) -> &'a CfgNode {
        &self.setup.cfg
    }

    /// Returns the indices in the run of this call's inputs, ascending.
    ///
    /// Empty in [`producer_init`](crate::Runner::producer_init) and
    /// [`producer_end`](crate::Runner::producer_end).
    pub fn items(&self) -> &'a [u64] {
        self.shown.unwrap_or(self.items)
    }

    /// Returns the index in the run of this call's input, if there is exactly one.
    pub fn item(&self) -> Option<u64> {
        match self.items() {
            [item] => Some(*item),
            _ => None,
        }
    }

    /// Returns the seed for the random numbers of this call's input.
    ///
    /// It depends only on the [seed of the run](crate::Builder::seed) and the [index](ProducerContext::item) of the
    /// item. So an item has the same random numbers on any number of producers, on threads, in child processes and in
    /// a cluster. They are the same at each attempt, and in a run that resumes by a
    /// [journal](crate::Builder::journal). They change if the input has other items before it.
    ///
    /// In a batch, ask [`at(i)`](ProducerContext::at) for the seed of each item: the seed of a whole batch is that of
    /// its first item. In [`producer_init`](crate::Runner::producer_init) and
    /// [`producer_end`](crate::Runner::producer_end) there is no item, and the seed is that for the index `u64::MAX`.
    ///
    /// Each stage of a [pipeline](crate::Pool::then) has a seed of its own. An item has the same index in all stages,
    /// so set different seeds. Behind a stage without order, the index counts the items as they arrive.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let counts = |producers| {
    ///     // Draws points, and counts those in the circle.
    ///     let circle = map(
    ///         |_| Ok(()),
    ///         |cx, _, points: u64| {
    ///             let mut state = cx.item_seed(); // mostly `SmallRng::seed_from_u64(cx.item_seed())`
    ///             let mut draw = || {
    ///                 state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
    ///                 (state >> 33) as f64 / (1_u64 << 31) as f64
    ///             };
    ///             Ok((0..points).filter(|_| draw().hypot(draw()) < 1.0).count())
    ///         },
    ///     );
    ///     OrderedRunner::new(circle, producers)?.run([100; 20])
    /// };
    /// assert_eq!(counts(1)?, counts(4)?);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn item_seed(&self) -> u64 {
        seed_of(self.setup.seed, self.items().first().copied().unwrap_or(u64::MAX))
    }

    /// Returns the same context, narrowed to the `i`-th of this call's inputs.
    ///
    /// # Panics
    ///
    /// If there is no `i`-th input.
    pub fn at(&self, i: usize) -> ProducerContext<'a> {
        let shown = self.shown.map(|shown| &shown[i..=i]);
        ProducerContext { items: &self.items[i..=i], shown, ..*self }
    }

    /// Returns the number of this attempt at the items, from 1; see [`retries`](crate::Builder::retries).
    ///
    /// The search for the guilty item of a batch is not an attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns whether the result of this call is no longer wanted.
    ///
    /// It turns true if the run was cancelled, was stopped or has failed elsewhere, or if its
    /// [`Outputs`](crate::Outputs) was dropped. It also turns true if the call exceeded its
    /// [timeout](crate::Builder::item_timeout), or if [another producer](crate::Builder::speculate)
    /// finished the item first. The result of the call is then dropped, so a computation of seconds or more
    /// should check this and give up.
    ///
    /// In a [service](crate::Service) it is also true once no caller waits for any of the items: ask
    /// [`at(i)`](ProducerContext::at) for one item of a batch.
    ///
    /// ```
    /// use gangline::{OrderedRunner, map};
    ///
    /// let work = map(
    ///     |_| Ok(()),
    ///     |cx, (), steps: u64| {
    ///         for _ in 0..steps {
    ///             if cx.is_cancelled() {
    ///                 return Err("given up".into()); // nothing reads it
    ///             }
    ///         }
    ///         if steps == 3 { Err("broken".into()) } else { Ok(steps) }
    ///     },
    /// );
    /// let error = OrderedRunner::new(work, 2)?.run([3, u64::MAX]).unwrap_err();
    /// assert_eq!(error.item(), Some(0), "the endless item did not keep the run from its end");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn is_cancelled(&self) -> bool {
        self.wanted.gave_up_on(self.items.first().copied())
            || self.flag.is_some_and(|flag| flag.is_set())
            || self.open.is_some_and(|open| self.has_items_and_none_is_open(open))
    }

    /// Returns the producer's device as a candle device, made once per producer, on its thread.
    ///
    /// A CUDA device has a stream of its own, so that producers on one GPU overlap. Tensors of different
    /// producers do not mix, even on the same GPU: load weights onto this device, and return results as
    /// plain data or as tensors on the CPU.
    ///
    /// # Errors
    ///
    /// If the device cannot be opened, or if the devices are only [names](crate::Devices::names_only).
    #[cfg(feature = "candle")]
    #[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
    pub fn candle_device(&self) -> crate::Result<candle_core::Device> {
        Ok(self.setup.candle.get()?[0].clone())
    }

    /// Returns all devices of the producer's place as candle devices, in the order of
    /// [`devices`](ProducerContext::devices). See [`candle_device`](ProducerContext::candle_device).
    ///
    /// # Errors
    ///
    /// The errors of [`candle_device`](ProducerContext::candle_device).
    #[cfg(feature = "candle")]
    #[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
    pub fn candle_devices(&self) -> crate::Result<Vec<candle_core::Device>> {
        Ok(self.setup.candle.get()?.to_vec())
    }

    /// Opens weights for a network of candle-nn on the producer's device.
    ///
    /// `weights` are one or more [`Weights`](crate::device::Weights): paths of safetensors files, the bytes of
    /// such files, or tensors by name. Of a model in several files, give all; a tensor is taken from the first
    /// that has it. A tensor is converted to `dtype` and copied to the device when the network asks for it, so
    /// the device holds nothing else.
    ///
    /// ```
    /// use gangline::candle_core::{DType, Device, Tensor};
    /// use gangline::candle_nn::{Linear, Module, linear};
    /// use gangline::{OrderedRunner, map};
    ///
    /// # fn main() -> gangline::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("gangline-weights-{}", std::process::id()));
    /// # let weights = [("out.weight", Tensor::ones((1, 2), DType::F32, &Device::Cpu)?),
    /// #     ("out.bias", Tensor::ones(1, DType::F32, &Device::Cpu)?)].map(|(name, t)| (name.to_owned(), t));
    /// # gangline::candle_core::safetensors::save(&weights.into_iter().collect(), &path)?;
    /// # let file = path.clone();
    /// let score = map(
    ///     move |cx| {
    ///         let weights = cx.var_builder([&file], DType::F32)?; // say, "model.safetensors"
    ///         Ok(linear(2, 1, weights.pp("out"))?)
    ///     },
    ///     |cx, out: &mut Linear, x: [f32; 2]| {
    ///         let x = Tensor::from_slice(&x, (1, 2), &cx.candle_device()?)?;
    ///         Ok(out.forward(&x)?.squeeze(0)?.to_vec1::<f32>()?)
    ///     },
    /// );
    /// let mut pool = OrderedRunner::new(score, 2)?;
    /// assert_eq!(pool.run([[1.0, 2.0]])?, [[4.0]]);
    /// # std::fs::remove_file(&path)?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Memory
    ///
    /// A file is read whole, and its bytes are freed with the `VarBuilder`, mostly at the end of
    /// `producer_init`. So while producers start, each holds the file once. To hold it once for all, read it
    /// before the runner is built, and give the bytes: they are borrowed. Files are not mapped into memory:
    /// candle's `VarBuilder::from_mmaped_safetensors` is an `unsafe` function, since another process may
    /// change the file. With `unsafe` of your own, call it on [`candle_device`](ProducerContext::candle_device).
    ///
    /// # Errors
    ///
    /// The errors of [`candle_device`](ProducerContext::candle_device), and those of a file that cannot be read, or is
    /// no safetensors file. A tensor that is missing or has another shape is an error of candle, when it is asked
    /// for.
    #[cfg(feature = "candle")]
    #[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
    pub fn var_builder<'w>(
        &self,
        weights: impl IntoIterator<Item = impl Into<crate::device::Weights<'w>>>,
        dtype: candle_core::DType,
    ) -> crate::Result<candle_nn::VarBuilder<'w>> {
        Ok(crate::device::var_builder(weights, dtype, self.candle_device()?)?)
    }
}

/// The context of a consumer's hook.
///
/// ```
/// use gangline::{ConsumerContext, OnError, OrderedRunner, ProducerContext, Result, Runner};
///
/// /// Notes what became of each row, up to the first that is 0.
/// struct Rows;
///
/// impl Runner for Rows {
///     type Input = &'static str;
///     type Output = u64;
///     type ProducerState = ();
///     type ConsumerState = Vec<String>;
///     type Summary = Vec<String>;
///
///     fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> {
///         Ok(())
///     }
///     fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), row: &'static str) -> Result<u64> {
///         Ok(row.parse()?)
///     }
///     fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<String>> {
///         Ok(vec![])
///     }
///     fn consumer_work(&self, cx: &ConsumerContext<'_>, rows: &mut Vec<String>, y: u64) -> Result<()> {
///         let item = cx.item().expect("a result belongs to an item");
///         rows.push(format!("row {item}: {y}"));
///         if y == 0 {
///             cx.stop();
///         }
///         Ok(())
///     }
///     fn consumer_skipped(
///         &self,
///         cx: &ConsumerContext<'_>,
///         rows: &mut Vec<String>,
///         _: &gangline::Error,
///     ) -> Result<()> {
///         rows.push(format!("row {}: failed", cx.item().unwrap_or_default()));
///         Ok(())
///     }
///     fn consumer_end(&self, _: &ConsumerContext<'_>, rows: Vec<String>) -> Result<Vec<String>> {
///         Ok(rows)
///     }
/// }
///
/// let mut pool = OrderedRunner::builder(Rows).devices(2).on_error(OnError::Skip).build()?;
/// let rows = pool.run(["7", "x", "0", "9"])?;
/// assert_eq!(rows, ["row 0: 7", "row 1: failed", "row 2: 0"]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Clone, Copy)]
pub struct ConsumerContext<'a> {
    cfg: &'a CfgNode,
    item: Option<u64>,
    failed_stage: Option<usize>,
    run: &'a dyn RunControl,
}

impl<'a> ConsumerContext<'a> {
    pub(crate) fn new(cfg: &'a CfgNode, run: &'a dyn RunControl, item: Option<u64>) -> Self {
        ConsumerContext { cfg, item, failed_stage: None, run }
    }

    /// For an item that failed in this stage, numbered from 1.
    pub(crate) fn of_failure(self, stage: usize) -> Self {
        ConsumerContext { failed_stage: Some(stage), ..self }
    }

    /// Returns the runner's configuration, as it was when the runner was built or last activated.
    pub fn cfg(&self) -> &'a CfgNode {
        self.cfg
    }

    /// Returns the index in the run of the item that this output belongs to.
    ///
    /// `None` in [`consumer_init`](crate::Runner::consumer_init) and
    /// [`consumer_end`](crate::Runner::consumer_end).
    pub fn item(&self) -> Option<u64> {
        self.item
    }

    /// Returns the item's index in the input of a [`Pipeline`](crate::Pipeline), also behind stages that have changed
    /// the order. Of a single pool it is [`item`](ConsumerContext::item).
    ///
    /// `None` if it is not known: after a stage in completion order, the first stage must have a
    /// [key](crate::Builder::key), a [hash](crate::Builder::hashed_by) or a [journal](crate::Builder::journal).
    ///
    /// ```
    /// use gangline::{Order, OrderedRunner, UnorderedRunner, each};
    ///
    /// let parse = each(|text: &str| Ok(text.parse::<u64>()?));
    /// let parse = UnorderedRunner::builder(parse).devices(2).key(|text| (*text).to_owned()).build()?;
    /// let rows = each(|x: u64| Ok(x)).fold(
    ///     |_| Ok(vec![]),
    ///     |cx, rows, x| {
    ///         rows.push((cx.input_item(), x));
    ///         Ok(())
    ///     },
    /// );
    /// let mut rows = parse.then(OrderedRunner::new(rows, 1)?).run(["5", "6"])?;
    /// rows.sort();
    /// assert_eq!(rows, [(Some(0), 5), (Some(1), 6)]);
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn input_item(&self) -> Option<u64> {
        self.run.input_of(self.item?)
    }

    /// Returns the number of the stage of a pipeline in which the item failed, from 1, as
    /// [`StageFailure::stage`](crate::pipeline::StageFailure::stage). Of a single pool it is 1.
    ///
    /// `None` in other hooks than [`consumer_skipped`](crate::Runner::consumer_skipped).
    ///
    /// ```
    /// use gangline::{ConsumerContext, Error, Result};
    ///
    /// // In the runner of the last stage.
    /// fn consumer_skipped(cx: &ConsumerContext<'_>, lost: &mut Vec<String>, _: &Error) -> Result<()> {
    ///     if let (Some(item), Some(stage)) = (cx.input_item(), cx.failed_stage()) {
    ///         lost.push(format!("row {item} was lost in stage {stage}"));
    ///     }
    ///     Ok(())
    /// }
    /// ```
    pub fn failed_stage(&self) -> Option<usize> {
        self.failed_stage
    }

    /// Returns the key of that item, if [keys](crate::Builder::key) are in use.
    pub fn key(&self) -> Option<String> {
        self.run.name_of(self.item?).map(|name| name.to_string())
    }

    /// Returns whether the run was cancelled, or failed at an item that comes before this one.
    pub fn is_cancelled(&self) -> bool {
        self.run.gave_up_on(self.item)
    }

    /// Ends the run without failing it.
    ///
    /// No further input is taken. Once the current hook returns `Ok`, `consumer_work` is not called again
    /// in this run. Unconsumed items are dropped and counted as cancelled, and their failures no longer
    /// fail the run. `consumer_end` is called, and the run returns its summary. If the current hook returns
    /// `Err`, the run fails with it.
    pub fn stop(&self) {
        self.run.stop();
    }

    /// Stores `note` in the [journal](crate::Builder::journal) with the next commit: say, the length of the
    /// file that the consumer writes. A [`sink`](crate::sink) does that by itself.
    ///
    /// It is stored if the hook that calls this returns `Ok`. The last note counts. A note of
    /// [`consumer_end`](crate::Runner::consumer_end) is committed at once, by itself. Without a journal
    /// this does nothing.
    ///
    /// # Errors
    ///
    /// If the note is longer than 64 KiB.
    pub fn note(&self, note: impl Into<Vec<u8>>) -> crate::Result<()> {
        self.run.note(note.into())
    }

    pub(crate) fn has_journal(&self) -> bool {
        self.run.has_journal()
    }

    /// Returns the last note that an earlier run committed to the same journal; `None` if there is none.
    pub fn last_note(&self) -> Option<&'a [u8]> {
        self.run.last_note()
    }
}

impl std::fmt::Debug for ConsumerContext<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ConsumerContext").field("item", &self.item).finish_non_exhaustive()
    }
}

/// What the consumer's hooks can request of their run.
pub(crate) trait RunControl: Send + Sync {
    fn stop(&self);
    fn gave_up_on(&self, item: Option<u64>) -> bool;
    /// Returns the key of an item in flight.
    fn name_of(&self, item: u64) -> Option<Arc<str>>;
    /// See [`ConsumerContext::input_item`].
    fn input_of(&self, item: u64) -> Option<u64>;
    fn has_journal(&self) -> bool;
    /// See [`ConsumerContext::note`].
    fn note(&self, note: Vec<u8>) -> crate::Result<()>;
    /// See [`ConsumerContext::last_note`].
    fn last_note(&self) -> Option<&[u8]>;
}

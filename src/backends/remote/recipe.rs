//! Recipes: how a worker makes the runner that its coordinator has.

use std::error::Error as StdError;
use std::fmt;

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::codec::Codec;
use super::failure::{CallFailure, RemoteFailure};
use super::item_codec::{ItemCodec, unless_panics};
use crate::base::Result;
use crate::cfg::CfgNode;
use crate::runner::Runner;

/// How a worker process makes a runner: a name, and a function from the configuration.
///
/// A worker cannot receive a Rust value. So the runner value of the coordinator, with all that it holds, is
/// not sent: the worker calls `make` with the [configuration](crate::Builder::cfg). A runner that holds weights
/// loads them in `make`, or better in [`producer_init`](Runner::producer_init). Secrets belong in the
/// environment, which the worker inherits, not in the configuration.
///
/// ```no_run
/// use gangline::process::{Processes, Recipe};
/// use gangline::{CfgNode, ConsumerContext, OrderedRunner, ProducerContext, Result, Runner};
///
/// struct Powers {
///     exponent: u32,
/// }
///
/// impl Powers {
///     fn from_cfg(cfg: &CfgNode) -> Result<Self> {
///         Ok(Powers { exponent: cfg.get("exponent")? })
///     }
/// }
///
/// impl Runner for Powers {
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
///         Ok(x.pow(self.exponent))
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
/// static POWERS: Recipe<Powers> = Recipe::new("powers", Powers::from_cfg);
///
/// fn main() -> Result<()> {
///     gangline::worker_main(&[&POWERS]);
///     let cfg = CfgNode::new().with("exponent", 3)?;
///     let builder = OrderedRunner::builder(Powers::from_cfg(&cfg)?).cfg(cfg);
///     let mut pool = builder.devices(2).processes(&POWERS, Processes::new()).build()?;
///     println!("{}", pool.run(0..100)?);
///     Ok(())
/// }
/// ```
pub struct Recipe<R: Runner> {
    make: fn(&CfgNode) -> Result<R>,
    prepare: Option<PrepareBatch<R>>,
    finish: Option<FinishBatch<R>>,
    pub(crate) items: ItemCodec<R::Input, R::Output>,
}

/// Prepares the inputs of a batch for its hook.
type PrepareBatch<R> = fn(&R, &mut Vec<<R as Runner>::Input>) -> Result<()>;

/// Finishes the outputs of a batch, which its hook has returned.
type FinishBatch<R> = fn(&R, &mut Vec<Result<<R as Runner>::Output>>) -> Result<()>;

impl<R: Runner> Clone for Recipe<R> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<R: Runner> Copy for Recipe<R> {}

impl<R: Runner + 'static> Recipe<R>
where
    R::Input: Serialize + DeserializeOwned,
    R::Output: Serialize + DeserializeOwned,
{
    /// Makes a recipe. `name` tells the recipes of one program apart; `make` is called once in each worker.
    ///
    /// A function that returns a `Result` of anyhow or eyre is called in a closure, whose `?` converts the error:
    ///
    /// ```
    /// use gangline::closures::FnMap;
    /// use gangline::process::Recipe;
    /// use gangline::{CfgNode, map};
    /// # use gangline::{ProducerContext, Result};
    /// # fn init(_: &ProducerContext<'_>) -> Result<()> {
    /// #     Ok(())
    /// # }
    /// # fn work(_: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
    /// #     Ok(x)
    /// # }
    ///
    /// fn make(cfg: &CfgNode) -> anyhow::Result<FnMap<(), u64, u64>> {
    ///     anyhow::ensure!(cfg.get::<u64>("limit")? > 0, "the limit is 0");
    ///     Ok(map(init, work))
    /// }
    ///
    /// static LIMITED: Recipe<FnMap<(), u64, u64>> = Recipe::new("limited", |cfg| Ok(make(cfg)?));
    /// ```
    pub const fn new(name: &'static str, make: fn(&CfgNode) -> Result<R>) -> Self {
        Recipe { make, prepare: None, finish: None, items: ItemCodec::new(name) }
    }

    /// Sets a version. A worker with a recipe of another version refuses to serve, and the error names both.
    ///
    /// It matters for workers of another program file: see
    /// [`Processes::program`](crate::process::Processes::program).
    pub const fn version(mut self, version: &'static str) -> Self {
        self.items.version = version;
        self
    }

    /// Has a worker call `prepare` for the inputs of each batch, before
    /// [`producer_work_batch`](Runner::producer_work_batch) gets them. It replaces them by others, for example decoded ones.
    ///
    /// While batches take less than 20 ms, the next one is prepared on a thread of its own while the hook works on the one
    /// before. An error or a panic is one of the hook. With another number of inputs, the batch fails.
    ///
    /// ```
    /// use gangline::closures::FnMap;
    /// use gangline::process::Recipe;
    /// use gangline::{CfgNode, Result, map};
    /// # use gangline::ProducerContext;
    /// # fn init(_: &ProducerContext<'_>) -> Result<()> {
    /// #     Ok(())
    /// # }
    /// # fn work(_: &ProducerContext<'_>, _: &mut (), image: Vec<u8>) -> Result<u64> {
    /// #     Ok(image.len() as u64)
    /// # }
    /// # fn unpacked(image: &[u8]) -> Vec<u8> {
    /// #     image.to_vec()
    /// # }
    ///
    /// fn make(_: &CfgNode) -> Result<FnMap<(), Vec<u8>, u64>> {
    ///     Ok(map(init, work))
    /// }
    ///
    /// static IMAGES: Recipe<FnMap<(), Vec<u8>, u64>> =
    ///     Recipe::new("images", make).prepare_batch(|_, images| {
    ///         images.iter_mut().for_each(|image| *image = unpacked(image));
    ///         Ok(())
    ///     });
    /// ```
    pub const fn prepare_batch(
        mut self,
        prepare: fn(&R, &mut Vec<R::Input>) -> Result<()>,
    ) -> Self {
        self.prepare = Some(prepare);
        self
    }

    /// Has a worker call `finish` for the outputs of each batch, before they are encoded. It replaces them by others, for
    /// example copies of what is on a GPU.
    ///
    /// If another batch has been sent ahead, as it is while batches take less than 20 ms, its hook works meanwhile: `finish`
    /// is called on a thread of its own. So the hook must not use memory again that its last outputs refer to. An error or a
    /// panic is one of the batch, but costs no state. With another number of outputs, the batch fails.
    ///
    /// ```
    /// use gangline::closures::FnMap;
    /// use gangline::process::Recipe;
    /// use gangline::{CfgNode, Result, map};
    /// # use gangline::ProducerContext;
    /// # fn init(_: &ProducerContext<'_>) -> Result<()> {
    /// #     Ok(())
    /// # }
    /// # fn work(_: &ProducerContext<'_>, _: &mut (), seed: u64) -> Result<Vec<u8>> {
    /// #     Ok(vec![7; seed as usize])
    /// # }
    /// # fn packed(image: &[u8]) -> Vec<u8> {
    /// #     image.to_vec()
    /// # }
    ///
    /// fn make(_: &CfgNode) -> Result<FnMap<(), u64, Vec<u8>>> {
    ///     Ok(map(init, work))
    /// }
    ///
    /// static DRAWN: Recipe<FnMap<(), u64, Vec<u8>>> =
    ///     Recipe::new("drawn", make).finish_batch(|_, images| {
    ///         images.iter_mut().flatten().for_each(|image| *image = packed(image));
    ///         Ok(())
    ///     });
    /// ```
    #[expect(clippy::type_complexity, reason = "a name for it would have to be public")]
    pub const fn finish_batch(
        mut self,
        finish: fn(&R, &mut Vec<Result<R::Output>>) -> Result<()>,
    ) -> Self {
        self.finish = Some(finish);
        self
    }

    /// Sets how values are written. The default is [`Postcard`](crate::process::Postcard).
    pub const fn codec(mut self, codec: &'static dyn Codec) -> Self {
        self.items.codec = codec;
        self
    }

    /// Lets errors of this type keep their type on their way from a worker, so that
    /// [`classify`](crate::Builder::classify) can downcast them. Call it again for further types, up to 8.
    ///
    /// Other errors arrive as their texts, in a [`RemoteError`](crate::error::RemoteError). The marks
    /// [`OutOfMemory`](crate::error::OutOfMemory) and [`DeviceLost`](crate::error::DeviceLost) arrive with either.
    ///
    /// # Panics
    ///
    /// With a ninth type; in a `static`, that is an error of compilation.
    pub const fn error<E>(mut self) -> Self
    where
        E: StdError + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        self.items = self.items.error::<E>();
        self
    }
}

impl<R: Runner> Recipe<R> {
    /// Its name, and how its inputs, outputs and errors are written: for backends.
    #[doc(hidden)]
    pub fn items(&self) -> &ItemCodec<R::Input, R::Output> {
        &self.items
    }

    /// Makes the runner from the configuration that its coordinator has sent. A panic is an error. For backends.
    ///
    /// # Errors
    ///
    /// If the configuration cannot be read, or the function of the recipe fails.
    #[doc(hidden)]
    pub fn make(&self, cfg: &str) -> Result<(R, CfgNode), CallFailure> {
        let cfg = CfgNode::from_yaml_str(cfg);
        let unread = |error| CallFailure::Cfg(RemoteFailure::of(&self.items, error));
        let mut cfg = cfg.map_err(|error| unread(error.into()))?;
        cfg.freeze();
        let runner = unless_panics(|| (self.make)(&cfg));
        let runner =
            runner.map_err(|error| CallFailure::Make(RemoteFailure::of(&self.items, error)))?;
        Ok((runner, cfg))
    }
}

#[cfg(all(feature = "processes", target_os = "linux"))]
impl<R: Runner> Recipe<R> {
    /// Reads the inputs of a batch, and prepares them. A panic is an error.
    pub(crate) fn decode_batch(&self, runner: &R, parts: &[&[u8]]) -> Result<Vec<R::Input>> {
        let inputs = parts.iter().map(|part| self.items.decode_input(part));
        let mut inputs = inputs.collect::<Result<Vec<_>>>()?;
        if let Some(prepare) = self.prepare {
            unless_panics(|| prepare(runner, &mut inputs))?;
        }
        match inputs.len() == parts.len() {
            true => Ok(inputs),
            false => {
                let (prepared, of) = (inputs.len(), parts.len());
                Err(format!("{prepared} inputs were prepared of {of}").into())
            }
        }
    }

    /// Finishes the outputs of a batch. A panic is an error.
    pub(crate) fn finish(&self, runner: &R, outputs: &mut Vec<Result<R::Output>>) -> Result<()> {
        match self.finish {
            Some(finish) => unless_panics(|| finish(runner, outputs)),
            None => Ok(()),
        }
    }
}

impl<R: Runner> fmt::Debug for Recipe<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let items = &self.items;
        f.debug_struct("Recipe")
            .field("name", &items.name())
            .field("terms", &items.terms())
            .finish()
    }
}

//! Run one stream of inputs through several devices, CPU threads or GPUs, and get the results in order.
//!
//! You have inputs (files, images, rows), devices, and something expensive to set up on each device,
//! such as a loaded model. You implement one trait, [`Runner`], and hand over a device list and any
//! iterator. Every device stays busy, results come in input order, memory stays bounded, nothing hangs
//! whatever fails, and an error of a hook says which item, which device and which hook.
//!
//! # A first run
//!
//! Two closures make a runner: one makes the state of a producer, one makes an output of an input.
//! There is a producer for each place of the device list; `3` stands for three on the CPU.
//!
//! ```
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let squares = map(
//!     |_cx| Ok(()),                     // the state of each producer: none
//!     |_cx, _state, x: u64| Ok(x * x),  // one output of one input
//! );
//! let mut runner = OrderedRunner::new(squares, 3)?;
//! assert_eq!(runner.run(0..5)?, [0, 1, 4, 9, 16]);
//! # Ok(())
//! # }
//! ```
//!
//! The results are collected in order. To do something else with them, give the runner a consumer:
//!
//! ```
//! # use gangline::{UnorderedRunner, map};
//! # fn main() -> gangline::Result<()> {
//! let sum_of_squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x)).fold(
//!     |_cx| Ok(0),                                // the state of the consumer, made for each run
//!     |_cx, sum, y| { *sum += y; Ok(()) },        // takes each output
//! );
//! let mut runner = UnorderedRunner::new(sum_of_squares, 3)?;
//! assert_eq!(runner.run(0..100)?, 328_350);
//! # Ok(())
//! # }
//! ```
//!
//! # The trait
//!
//! A type of your own that implements [`Runner`] has a name, documentation, and all the hooks. The
//! producer hooks run on a thread for each device; the consumer hooks on one thread for each run.
//! States never leave their thread, so they need not be `Send`.
//!
//! ```
//! use gangline::{CfgNode, ConsumerContext, ProducerContext, Result, Runner, UnorderedRunner};
//!
//! struct SumOfPowers;
//!
//! impl Runner for SumOfPowers {
//!     type Input = u64;
//!     type Output = u64;
//!     type ProducerState = u32;
//!     type ConsumerState = u64;
//!     type Summary = u64;
//!
//!     fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<u32> {
//!         Ok(cx.cfg().get("exponent")?)
//!     }
//!     fn producer_work(&self, _: &ProducerContext<'_>, exponent: &mut u32, x: u64) -> Result<u64> {
//!         Ok(x.pow(*exponent))
//!     }
//!     fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<u64> {
//!         Ok(0)
//!     }
//!     fn consumer_work(&self, _: &ConsumerContext<'_>, sum: &mut u64, y: u64) -> Result<()> {
//!         *sum += y;
//!         Ok(())
//!     }
//!     fn consumer_end(&self, _: &ConsumerContext<'_>, sum: u64) -> Result<u64> {
//!         Ok(sum)
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let cfg = CfgNode::new().with("exponent", 3)?;
//! let mut runner = UnorderedRunner::with_cfg(SumOfPowers, 3, cfg)?;
//! assert_eq!(runner.run(0..100)?, 24_502_500);
//! runner.close()?;
//! # Ok(())
//! # }
//! ```
//!
//! Building the runner calls `producer_init` on all devices at the same time. The producers live until
//! [`close`](Pool::close) or drop: any number of runs uses the same loaded models.
//!
//! # Devices
//!
//! A device list is text, as users type it: `cpu*4` is four producers on the CPU, `cuda:0,cuda:1` one on
//! each of two GPUs, `cuda:0*2` two on one GPU, `cuda:all` one on each there is, `cuda:0+cuda:1` one
//! producer that owns both. See [`Devices`]. A device that this build or this machine does not have is an
//! error when the runner is built, never a silent fall back to the CPU; `cuda:0|cpu` asks for one, which is
//! told.
//!
//! ```
//! # use gangline::{OrderedRunner, map};
//! let nothing = || map(|_| Ok(()), |_, _, x: u64| Ok(x));
//! assert!(OrderedRunner::new(nothing(), "cpu*4").is_ok());
//! let error = OrderedRunner::new(nothing(), "cpu:4").unwrap_err();
//! assert!(error.to_string().contains("cpu*N"), "it says what to write instead: {error}");
//! ```
//!
//! A list such as Scipion's `0 1` or `0-3`, to be shared out among a number of producers, is a [`GpuList`];
//! [`Devices::from_cfg`] takes it from the keys `use_gpu` and `gpu_list` of a configuration.
//!
//! With the feature `candle`, which is on by default, [`ProducerContext`] has `candle_device()`.
//!
//! # Order
//!
//! [`OrderedRunner`] gives the consumer the results 0, 1, 2, ... as the input had them.
//! [`UnorderedRunner`] gives them as they are finished. With [`AnyOrderRunner`] you choose when you build it.
//!
//! # Batches
//!
//! A GPU is busy only when it gets many items at a time. Implement
//! [`producer_work_batch`](Runner::producer_work_batch), and say how batches are formed: exactly so many
//! items ([`Batch::of`]), what is there when a producer is free ([`Batch::up_to`]), and how long to wait for
//! more ([`within`](Batch::within)). The consumer sees single outputs all the same, in order.
//!
//! ```
//! # use gangline::{Batch, ConsumerContext, OrderedRunner, ProducerContext, Result, Runner};
//! # struct Doubler;
//! impl Runner for Doubler {
//! #   type Input = u64;
//! #   type Output = u64;
//! #   type ProducerState = ();
//! #   type ConsumerState = Vec<u64>;
//! #   type Summary = Vec<u64>;
//! #   fn producer_init(&self, _: &ProducerContext<'_>) -> Result<()> { Ok(()) }
//! #   fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Vec<u64>> { Ok(vec![]) }
//! #   fn consumer_work(&self, _: &ConsumerContext<'_>, all: &mut Vec<u64>, y: u64) -> Result<()> {
//! #       all.push(y);
//! #       Ok(())
//! #   }
//! #   fn consumer_end(&self, _: &ConsumerContext<'_>, all: Vec<u64>) -> Result<Vec<u64>> { Ok(all) }
//!     // ... and the other hooks
//!     fn producer_work(&self, _: &ProducerContext<'_>, _: &mut (), x: u64) -> Result<u64> {
//!         Ok(2 * x)
//!     }
//!     fn producer_work_batch(
//!         &self,
//!         _: &ProducerContext<'_>,
//!         _: &mut (),
//!         inputs: &mut Vec<u64>,
//!     ) -> Result<Vec<Result<u64>>> {
//!         Ok(inputs.iter().map(|x| Ok(2 * x)).collect())
//!     }
//! }
//!
//! # fn main() -> Result<()> {
//! let mut runner = OrderedRunner::builder(Doubler).devices(2).batch(Batch::of(4)).build()?;
//! assert_eq!(runner.run(0..6)?, [0, 2, 4, 6, 8, 10]);
//! # Ok(())
//! # }
//! ```
//!
//! A batch that fails while all inputs are still in `inputs` is split and tried again until the guilty
//! item stands alone: the error names that one, and in input order those before it are consumed. One that
//! the device has no memory for is split without blame. [`max_batch_cost`](Builder::max_batch_cost) and
//! [`max_padded_size`](Builder::max_padded_size) bound batches of items of many sizes, and [`testing`] simulates devices.
//!
//! # What bounds memory
//!
//! Items that are given out and not yet consumed never exceed the *window*, whatever is slow: a source,
//! a device, the consumer, or one item that everything behind it waits for. By default the window starts
//! at three items, or [batches](Builder::batch), for each producer and grows while items are fast;
//! [`window`](Builder::window) fixes it, and [`window_weight`](Builder::window_weight) bounds what the items weigh together.
//!
//! # Errors
//!
//! A hook that fails or panics ends the run, with an error that names the hook, the item, the device and
//! the cause. In input order the items before the failed one are consumed first. The runner stays usable.
//!
//! ```
//! use gangline::{Hook, OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let mut runner = OrderedRunner::new(
//!     map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?)),
//!     2,
//! )?;
//! let error = runner.run(["1", "2", "three", "4"]).unwrap_err();
//! assert_eq!(error.hook(), Some(Hook::ProducerWork));
//! assert_eq!(error.item(), Some(2));
//! assert!(format!("{error:#}").ends_with("invalid digit found in string"));
//!
//! let account = runner.account();
//! assert_eq!((account.ok, account.failed), (2, 1));
//! assert_eq!(runner.run(["5"])?, [5]);
//! # Ok(())
//! # }
//! ```
//!
//! To go on after a bad item, say so with [`on_error`](Builder::on_error): it is left out, and
//! [`failures`](Pool::failures) has its error. [`classify`](Builder::classify) decides for each error, and
//! [`max_failures`](Builder::max_failures) says how many are too many. With
//! [`retries`](Builder::retries) an item is tried again first. The consumer is told in the item's
//! place, by [`consumer_skipped`](Runner::consumer_skipped). Or make the failure part of the output:
//! `type Output = io::Result<Image>`.
//!
//! # Ending early
//!
//! The consumer ends a run with [`ConsumerContext::stop`]; anybody else with a [`CancelToken`]. `cancel`
//! drops what is in progress; `drain` takes no more input and completes what was given out.
//!
//! ```
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let first_hundred = map(|_| Ok(()), |_, _, x: u64| Ok(x)).fold(
//!     |_| Ok(Vec::new()),
//!     |cx, all: &mut Vec<u64>, x| {
//!         all.push(x);
//!         if all.len() == 100 {
//!             cx.stop();
//!         }
//!         Ok(())
//!     },
//! );
//! let endless = 0..;
//! assert_eq!(OrderedRunner::new(first_hundred, 2)?.run(endless)?.len(), 100);
//! # Ok(())
//! # }
//! ```
//!
//! # Streams
//!
//! [`outputs`](Pool::outputs) gives the outputs as an iterator, without the consumer hooks.
//! [`try_run`](Pool::try_run) and [`try_outputs`](Pool::try_outputs) take inputs that can fail, such as
//! the stream of another runner.
//!
//! ```
//! use gangline::{OrderedRunner, map};
//! use std::io::BufRead;
//!
//! # fn main() -> gangline::Result<()> {
//! let mut lengths = OrderedRunner::new(map(|_| Ok(()), |_, _, line: String| Ok(line.len())), 2)?;
//! let file: &[u8] = b"one\nthree\n";
//! for length in lengths.try_outputs(file.lines()) {
//!     println!("{}", length?);
//! }
//! # Ok(())
//! # }
//! ```
//!
//! # Stages
//!
//! Work that takes several kinds of devices, such as decoding on the CPU and inference on a GPU, is a
//! runner for each kind, one [`then`](Pool::then) the next. All work at the same time, each with its own
//! producers, batches and window. The last consumer gets the results, in order.
//!
//! ```
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let decode = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<f32>()?));
//! let infer = map(|_| Ok(0.5), |_, factor: &mut f32, x: f32| Ok(x * *factor));
//! let mut decode = OrderedRunner::new(decode, "cpu*4")?;
//! let mut infer = OrderedRunner::new(infer, "cpu*2")?; // on a GPU: "cuda:0"
//! assert_eq!(decode.then(&mut infer).run(["1", "2", "3"])?, [0.5, 1.0, 1.5]);
//! # Ok(())
//! # }
//! ```
//!
//! A stream can feed the next runner too. But it pulls its input and gives its results on one thread: while
//! a source pauses, what is ready waits with it. In a [`Pipeline`] nothing does.
//!
//! # Features
//!
//! | feature | brings |
//! |---|---|
//! | `candle` (default) | `ProducerContext::candle_device()`, and `candle_core` and `candle_nn` re-exported; `rayon` |
//! | `rayon` | a rayon pool for each producer on the CPU, with its share of the cores: `Builder::cpu_threads` |
//! | `progress` | `Progress`: how a run gets on, on the terminal or as lines of a log |
//! | `nvml` (with `cuda`) | UUIDs of GPUs from NVIDIA's driver; nothing is needed to build |
//! | `cuda`, `cudnn`, `metal`, `mkl` | these back ends of candle; each needs its toolkit to build |
//!
//! Without default features the library is the same, less candle and the rayon pools.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod account;
mod batch;
mod batches;
mod cancel;
mod cfg;
#[cfg(all(feature = "cli", target_os = "linux"))]
#[doc(hidden)]
pub mod cli;
mod closures;
#[cfg(feature = "rayon")]
mod cpu_threads;
mod device;
mod engine;
mod error;
mod event;
mod failure;
mod journal;
mod limits;
mod measures;
mod order;
mod out_of_memory;
mod outputs;
mod pipeline;
mod plain;
mod policy;
mod pool;
#[cfg(feature = "progress")]
mod progress;
pub mod report;
mod runner;
mod scheduler;
mod sync;
mod task_results;
pub mod testing;

pub use crate::account::Account;
pub use crate::batch::Batch;
pub use crate::batches::{Batches, InBatches};
pub use crate::cancel::{CancelToken, Guard};
pub use crate::cfg::{CfgError, CfgNode, PathProblem};
pub use crate::closures::{Fold, Map, map};
#[cfg(feature = "rayon")]
#[cfg_attr(docsrs, doc(cfg(feature = "rayon")))]
pub use crate::cpu_threads::CpuThreads;
pub use crate::device::{Device, DeviceError, Devices, GpuHolder, GpuList, GpuLock, IntoDevices};
pub use crate::error::{BoxError, Error, Hook, OutputCount, PanicMessage, Result, Site};
pub use crate::event::{Destination, Event, Observer, Origin, ProducerTotals, Totals};
pub use crate::failure::Failure;
#[doc(hidden)]
pub use crate::journal::read_any_bytes as read_any_journal;
pub use crate::journal::{Difference, Journal, JournalError, KeyKind, Repair};
pub use crate::limits::TimeLimit;
pub use crate::measures::{Amount, Measure};
pub use crate::order::Order;
pub use crate::out_of_memory::OutOfMemory;
pub use crate::outputs::Outputs;
pub use crate::pipeline::Pipeline;
pub use crate::policy::{MaxFailures, OnError, Verdict};
pub use crate::pool::{
    AnyOrderRunner, Builder, CompletionOrder, InputOrder, OrderKind, OrderedRunner, Pool,
    RuntimeOrder, UnorderedRunner,
};
#[cfg(feature = "progress")]
#[cfg_attr(docsrs, doc(cfg(feature = "progress")))]
pub use crate::progress::Progress;
pub use crate::report::RunReport;
pub use crate::runner::{ConsumerContext, ProducerContext, Runner};
pub use crate::task_results::{TaskResult, TaskResults};

/// The version of `config` that [`CfgNode`] is a [`Source`](config::Source) of.
pub use config;

#[cfg(feature = "candle")]
pub use candle_core;
#[cfg(feature = "candle")]
pub use candle_nn;

/// The pages of the manual, whose examples are tests.
#[cfg(doctest)]
mod manual {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[doc = include_str!("../docs/from-python.md")]
    mod from_python {}
    #[doc = include_str!("../docs/from-gpupool.md")]
    mod from_gpupool {}
    #[doc = include_str!("../docs/config.md")]
    mod config {}
    #[doc = include_str!("../docs/batches.md")]
    mod batches {}
    #[doc = include_str!("../docs/gpus.md")]
    mod gpus {}
    #[doc = include_str!("../docs/reports.md")]
    mod reports {}
    #[doc = include_str!("../docs/resume.md")]
    mod resume {}
    #[cfg(feature = "progress")]
    #[doc = include_str!("../docs/progress.md")]
    mod progress {}
}

/// What must not compile.
#[cfg(doctest)]
mod compile_fail;

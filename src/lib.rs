//! Run one stream of inputs through several devices, CPU threads or GPUs, and get the results in order.
//!
//! You have inputs (files, images, rows), devices, and something expensive to set up on each device, such as a
//! loaded model. You implement one trait, [`Runner`], and pass a device list and any iterator. Every device
//! stays busy, results come in input order, memory stays bounded, and no failure hangs the run. An error says
//! which item, device and hook it is from.
//!
//! # A first run
//!
//! Two closures make a runner: the first builds the state of a producer, the second turns an input into an
//! output. A *producer* is a thread with its own device and state; `3` stands for three producers on the CPU.
//!
//! ```
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let squares = map(
//!     |_cx| Ok(()),                     // the state of each producer: none
//!     |_cx, _state, x: u64| Ok(x * x),  // one output for one input
//! );
//! let mut runner = OrderedRunner::new(squares, 3)?;
//! assert_eq!(runner.run(0..5)?, [0, 1, 4, 9, 16]);
//! # Ok(())
//! # }
//! ```
//!
//! The results are collected in order. To do something else with them, add a *consumer*:
//!
//! ```
//! # use gangline::{UnorderedRunner, map};
//! # fn main() -> gangline::Result<()> {
//! let sum_of_squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x)).fold(
//!     |_cx| Ok(0),                                // the state of the consumer, new in each run
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
//! A type of your own that implements [`Runner`] has all the hooks. The producer hooks run on one thread per
//! device, the consumer hooks on one thread per run. States never leave their thread, so they need not be
//! `Send`.
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
//! [`close`](Pool::close) or drop, so every run uses the same loaded models.
//!
//! # Devices
//!
//! A device list is text, as users type it; see [`Devices`]:
//!
//! | list | producers |
//! |---|---|
//! | `cpu*4` | four on the CPU |
//! | `cuda:0,cuda:1` | one on each of two GPUs |
//! | `cuda:0*2` | two on one GPU |
//! | `cuda:all` | one on each GPU |
//! | `cuda:0+cuda:1` | one that owns both |
//! | `cuda:0\|cpu` | one on the GPU, or on the CPU if there is no GPU |
//!
//! If a device is missing, building fails. A fallback has to be allowed, as in the last line; it is logged as a
//! warning and recorded in the report.
//!
//! ```
//! # use gangline::{OrderedRunner, map};
//! let nothing = || map(|_| Ok(()), |_, _, x: u64| Ok(x));
//! assert!(OrderedRunner::new(nothing(), "cpu*4").is_ok());
//! let error = OrderedRunner::new(nothing(), "cpu:4").unwrap_err();
//! assert!(error.to_string().contains("cpu*N"), "the error says how to write it: {error}");
//! ```
//!
//! [`Devices::from_cfg`] reads Scipion's keys `use_gpu` and `gpu_list` from a configuration. With the feature
//! `candle`, which is on by default, [`ProducerContext`] has `candle_device()`.
//!
//! # Order
//!
//! [`OrderedRunner`] gives the consumer the results in input order: 0, 1, 2, ... [`UnorderedRunner`] gives them
//! in completion order. [`AnyOrderRunner`] lets you choose when you build it.
//!
//! # Batches
//!
//! A GPU needs many items at a time. Implement [`producer_work_batch`](Runner::producer_work_batch) and
//! choose a rule: [`Batch::of`] waits for a full batch, [`Batch::up_to`] takes what is ready, and
//! [`within`](Batch::within) limits the wait. The consumer still sees one output per item, in order.
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
//! If a batch fails while all inputs are still in `inputs`, it is split and tried again until the bad item
//! stands alone. If the device runs out of memory, the batch is split and no item is marked as failed; later
//! batches are capped at the size that fit. [`max_batch_cost`](Builder::max_batch_cost) and
//! [`max_padded_size`](Builder::max_padded_size) bound batches of items of different sizes.
//!
//! # What bounds memory
//!
//! An item is *in flight* from the moment it is read until its result has been consumed. The items in flight
//! never exceed the *window*, however slow a source, a device, the consumer or a single item is. The default
//! window starts at three items, or [batches](Builder::batch), per producer and grows while items are fast.
//! [`window`](Builder::window) fixes it, and [`window_weight`](Builder::window_weight) bounds the total weight
//! of the inputs in flight.
//!
//! # Errors
//!
//! A hook that fails or panics ends the run. The error names the hook, the item, the device and the cause. In
//! input order the items before the failed one are consumed first. The runner stays usable.
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
//! To go on after a bad item, skip it. [`failures`](Pool::failures) has its error, and
//! [`consumer_skipped`](Runner::consumer_skipped) is called in its place. Always limit the failures: a broken
//! device is free again at once, and fails many items.
//!
//! ```
//! use gangline::{MaxFailures, OnError, OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
//! let mut runner = OrderedRunner::builder(parse)
//!     .devices(2)
//!     .on_error(OnError::Skip)
//!     .max_failures(MaxFailures::share(0.5))
//!     .build()?;
//! assert_eq!(runner.run(["1", "two", "3"])?, [1, 3]);
//! assert_eq!((runner.account().ok, runner.account().failed), (2, 1));
//! println!("{:#}", runner.failures()[0]);
//! # Ok(())
//! # }
//! ```
//!
//! [`classify`](Builder::classify) decides for each error whether to retry, skip or stop.
//!
//! # Retries
//!
//! [`retries`](Builder::retries) gives a failed item more attempts, on another producer if there is one.
//! [`quarantine_after`](Builder::quarantine_after) takes a producer out of service after consecutive failures
//! of items that succeed elsewhere. [`item_timeout`](Builder::item_timeout) abandons a hook that does not
//! return, and [`speculate`](Builder::speculate) starts a second copy of a slow item on an idle producer.
//!
//! ```
//! use std::time::Duration;
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let flaky = map(|_| Ok(()), |cx, _, x: u64| match (x, cx.attempt()) {
//!     (7, 1) => Err("the network is down".into()),
//!     _ => Ok(x),
//! });
//! let mut runner = OrderedRunner::builder(flaky)
//!     .devices(2)
//!     .retries(2)
//!     .backoff(Duration::from_millis(1), Duration::from_secs(1))
//!     .quarantine_after(3)
//!     .item_timeout(Duration::from_secs(60))
//!     .build()?;
//! assert_eq!(runner.run(0..9)?, [0, 1, 2, 3, 4, 5, 6, 7, 8]);
//! # Ok(())
//! # }
//! ```
//!
//! # Ending early
//!
//! The consumer ends a run with [`ConsumerContext::stop`]. Any other thread uses a [`CancelToken`]: `cancel`
//! drops what is in flight, `drain` reads no more input and completes what is in flight.
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
//! # Outputs as an iterator
//!
//! [`outputs`](Pool::outputs) gives the outputs as an iterator, without the consumer hooks.
//! [`try_run`](Pool::try_run) and [`try_outputs`](Pool::try_outputs) take inputs that can fail, such as the
//! outputs of another runner.
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
//! Some work needs several kinds of devices, such as decoding on the CPU and inference on a GPU. Write a runner
//! for each and connect them with [`then`](Pool::then). All stages work at the same time, each with its
//! own producers, batches and window. The last consumer gets the results, in order.
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
//! The outputs of one runner can also be the input of the next. But they are pulled and given on one thread:
//! while a source pauses, ready results wait. In a [`Pipeline`] they do not.
//!
//! # Reports
//!
//! [`report`](Pool::report) says how a run went: the account, the share of time each part worked, every
//! failure, and one sentence on what limited the run. [`timeline`](Builder::timeline) adds latencies and the
//! slowest items. A [`RunReport`] prints as text and converts to JSON, HTML and a trace for Perfetto.
//!
//! ```
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
//! let mut runner = OrderedRunner::builder(squares).devices(2).timeline().build()?;
//! let (result, report) = runner.run_with_report(0..1_000);
//! assert_eq!(result?.len(), 1_000);
//! assert_eq!(report.account.ok, 1_000);
//! println!("{report}");
//! # Ok(())
//! # }
//! ```
//!
//! # Progress
//!
//! With the feature `progress`, `Builder::progress` shows a live display on a terminal, and one line every few
//! seconds in a log. For your own display, pass an [`observer`](Builder::observer).
//!
//! ```
//! # #[cfg(feature = "progress")]
//! # fn main() -> gangline::Result<()> {
//! use gangline::{OrderedRunner, map};
//!
//! let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
//! let mut runner = OrderedRunner::builder(squares).devices(2).progress().build()?;
//! assert_eq!(runner.run(0..3)?, [0, 1, 4]);
//! # Ok(())
//! # }
//! # #[cfg(not(feature = "progress"))]
//! # fn main() {}
//! ```
//!
//! # Resuming
//!
//! A [`journal`](Builder::journal) is a file that records which items are done. The next run, in this process
//! or another, leaves those out. The consumer can have each output exactly once; see `docs/resume.md`.
//!
//! ```
//! use gangline::{Journal, OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let path = std::env::temp_dir().join(format!("lesson-{}.journal", std::process::id()));
//! let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
//! let journal = Journal::at(&path).resume();
//! let mut runner = OrderedRunner::builder(squares).devices(2).journal(journal).build()?;
//! assert_eq!(runner.run(0..3)?, [0, 1, 4]);
//! assert_eq!(runner.run(0..5)?, [9, 16]);
//! assert_eq!(runner.account().already_done, 3);
//! # std::fs::remove_file(&path)?;
//! # Ok(())
//! # }
//! ```
//!
//! # Testing
//!
//! [`testing`] simulates devices that run out of memory, fail, panic, are slow or die. The hooks are your own,
//! so a test on any machine shows what your runner does on a bad GPU.
//!
//! ```
//! use gangline::testing::{Script, Simulated};
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
//! let dying = Simulated::new(squares).on(0, Script::new().dies_at(3));
//! let mut runner = OrderedRunner::builder(dying).devices(2).quarantine_after(2).build()?;
//! assert_eq!(runner.run(0..9)?.len(), 9, "the other producer did the rest");
//! # Ok(())
//! # }
//! ```
//!
//! # When to use rayon instead
//!
//! Use rayon if the work is a plain function on data in memory. It needs less code and, for items of less
//! than a microsecond, less time:
//!
//! ```
//! use rayon::prelude::*;
//!
//! let squares: Vec<u64> = (0..5_u64).into_par_iter().map(|x| x * x).collect();
//! assert_eq!(squares, [0, 1, 4, 9, 16]);
//! ```
//!
//! Use gangline if you need one of these:
//!
//! - a state per device that is expensive or not `Send`;
//! - results in order from an input that does not fit in memory;
//! - batches for a GPU;
//! - retries, timeouts, or an account of every item.
//!
//! ```
//! use std::rc::Rc;
//! use gangline::{OrderedRunner, map};
//!
//! # fn main() -> gangline::Result<()> {
//! let model = map(|_| Ok(Rc::new(2)), |_, model: &mut Rc<u64>, x: u64| Ok(x * **model));
//! let mut runner = OrderedRunner::new(model, 2)?;
//! let mut outputs = runner.outputs(0..); // an endless input
//! assert_eq!(outputs.nth(1_000).transpose()?, Some(2_000));
//! # Ok(())
//! # }
//! ```
//!
//! # Features
//!
//! | feature | adds |
//! |---|---|
//! | `candle` (default) | `ProducerContext::candle_device()`, and `candle_core` and `candle_nn` re-exported; `rayon` |
//! | `rayon` | a rayon pool for each producer on the CPU, with its share of the cores: `Builder::cpu_threads` |
//! | `progress` | `Progress`: a live display on a terminal, lines in a log |
//! | `nvml` (with `cuda`) | UUIDs of GPUs from NVIDIA's driver; nothing is needed to build |
//! | `cuda`, `cudnn`, `metal`, `mkl` | these backends of candle; each needs its toolkit to build |
//!
//! Without default features the library is the same, except for candle and the rayon pools.

#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
mod backend;
mod base;
mod batch;
mod cfg;
mod concurrency;
pub mod device;
mod engine;
pub mod error;
pub mod journal;
mod observe;
mod policy;
mod runner;
#[cfg_attr(not(test), expect(dead_code, reason = "the engine does not use it yet"))]
mod scheduler;
pub mod testing;

pub use crate::api::builder::Builder;
pub use crate::api::map::map;
pub use crate::api::outputs::Outputs;
pub use crate::api::pipeline::Pipeline;
pub use crate::api::pool::{AnyOrderRunner, OrderedRunner, Pool, UnorderedRunner};
pub use crate::base::{BoxError, Hook, MaxFailures, Order, Result};
pub use crate::batch::Batch;
pub use crate::cfg::CfgNode;
pub use crate::concurrency::cancel::CancelToken;
pub use crate::device::{Device, Devices};
pub use crate::error::Error;
pub use crate::journal::Journal;
pub use crate::observe::account::Account;
#[cfg(feature = "progress")]
#[cfg_attr(docsrs, doc(cfg(feature = "progress")))]
pub use crate::observe::progress::Progress;
pub use crate::observe::report::RunReport;
pub use crate::observe::{event, report};
pub use crate::policy::{OnError, Verdict};
pub use crate::runner::{ConsumerContext, ProducerContext, Runner};

/// The types behind [`map`], and what [`results`](closures::Map::results) collects.
pub mod closures {
    pub use crate::api::map::{Fold, Map};
    pub use crate::api::task_results::{TaskResult, TaskResults};
}

/// GPUs: lists of them as Scipion writes them, and locks.
pub mod gpu {
    pub use crate::device::{GpuHolder, GpuList, GpuLock};
}

/// Inputs: lists made of an iterator's items, channels that end with a token, and sizes of items.
pub mod input {
    pub use crate::api::batches::{Batches, InBatches};
    pub use crate::concurrency::cancel::Guard;
    pub use crate::engine::measures::Amount;
}

/// The order of results, as a value and as a type.
pub mod order {
    pub use crate::api::pool::{CompletionOrder, InputOrder, OrderKind, RuntimeOrder};
    pub use crate::base::Order;
}

#[cfg(fuzzing)]
#[doc(hidden)]
pub use crate::journal::read_any_bytes as read_any_journal;

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

// The labels of `links.md` come first, so links lead to items here, and to files on a code host.
#![doc = include_str!("lesson/links.md")]
#![doc = include_str!("lesson.md")]
#![cfg_attr(docsrs, feature(doc_cfg))]

mod api;
#[doc(hidden)]
pub mod backend;
mod backends;
mod base;
mod concurrency;
pub mod device;
mod engine;
pub mod error;
#[cfg(any(doc, doctest))]
pub mod guide;
pub mod journal;
mod observe;
mod policy;
mod producers;
mod run;
mod runner;
pub mod testing;

pub use crate::api::builder::Builder;
pub use crate::api::map::{each, map};
pub use crate::api::map_batches::map_batches;
pub use crate::api::outputs::Outputs;
pub use crate::api::pipeline::Pipeline;
pub use crate::api::pool::{AnyOrderRunner, OrderedRunner, Pool, UnorderedRunner};
pub use crate::api::service::Service;
pub use crate::api::sink;
pub use crate::api::terminator::Terminator;
pub use crate::api::work::Work;
#[cfg(all(feature = "processes", target_os = "linux"))]
#[cfg_attr(docsrs, doc(cfg(feature = "processes")))]
pub use crate::backends::process::worker_entry::worker_main;
pub use crate::base::{BoxError, Hook, Order, Result};
pub use crate::concurrency::cancel::CancelToken;
pub use crate::device::{Device, Devices};
pub use crate::error::Error;
pub use crate::journal::Journal;
#[cfg(feature = "progress")]
#[cfg_attr(docsrs, doc(cfg(feature = "progress")))]
pub use crate::observe::progress::Progress;
pub use crate::observe::report::RunReport;
pub use crate::observe::{event, report};
pub use crate::policy::Verdict;
pub use crate::runner::{ConsumerContext, ProducerContext, Runner};

/// The types behind [`map`] and [`map_batches`], a type for all of them, and what
/// [`results`](closures::Map::results) collects.
pub mod closures {
    pub use crate::api::boxed::{BoxRunner, BoxState};
    pub use crate::api::map::{FnMap, Fold, Map};
    pub use crate::api::map_batches::MapBatches;
    pub use crate::api::task_results::{TaskOutput, TaskResult, TaskResults};
    pub use crate::api::work::Collect;
}

/// Pipelines in the making, between [`expand`](Pool::expand) and [`gather`](expansion::OpenPipeline::gather).
pub mod expansion {
    pub use crate::api::expand::{Expand, ExpandFn, OpenPipeline, TryExpandFn};
    pub use crate::api::gather::{Gather, GatherFn, GatherIntoFn, GatherResultsFn};
    pub use crate::engine::expand::Unfold;
    pub use crate::engine::gather::FoldParts;
}

/// GPUs: lists of them as Scipion writes them, and locks.
pub mod gpu {
    pub use crate::device::{GpuHolder, GpuList, GpuLock};
}

/// Inputs: lists made of an iterator's items, channels that end with a token, and sizes of items.
pub mod input {
    pub use crate::api::batches::{Batches, InBatches};
    pub use crate::api::guard::{Guard, GuardedReceiver};
    pub use crate::concurrency::time_aside::waiting;
    pub use crate::run::measures::Amount;
}

/// Metrics of runs, for Prometheus and others.
#[cfg(feature = "metrics")]
#[cfg_attr(docsrs, doc(cfg(feature = "metrics")))]
pub mod metrics {
    pub use crate::observe::metrics::Metrics;
}

/// The orders of results, as types; [`Order`] is the value.
pub mod order {
    pub use crate::api::pool::{CompletionOrder, InputOrder, OrderKind, RuntimeOrder};
}

/// The stages of a [`Pipeline`], and their failures.
pub mod pipeline {
    pub use crate::api::stage::{IntoStage, Stage, StageFailure};
}

/// Answers of a [`Service`] that are still to come.
pub mod service {
    pub use crate::api::service::{Background, Call, Full, Ticket};
    pub use crate::api::service::{
        SendError, StreamOptions, StreamReceiver, StreamResult, StreamSender,
    };
}

/// Producers in child processes: see [`Builder::processes`].
#[cfg(all(feature = "processes", target_os = "linux"))]
#[cfg_attr(docsrs, doc(cfg(feature = "processes")))]
pub mod process {
    pub use crate::backends::memory::shared_bytes::SharedBytes;
    pub use crate::backends::memory::shared_memory::SharedMemory;
    pub use crate::backends::process::fork_server::ForkServer;
    pub use crate::backends::process::processes::Processes;
    pub use crate::backends::process::worker_entry::AnyRecipe;
    pub use crate::backends::remote::codec::{Codec, MessagePack, Postcard};
    pub use crate::backends::remote::recipe::Recipe;
}

/// [`Outputs`] that own what they come from, and inputs and outputs as streams of async code.
pub mod stream {
    pub use crate::api::into_outputs::IntoOutputs;
    #[cfg(feature = "futures")]
    #[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
    pub use crate::api::streams::{OutputsStream, RunStream};
}

/// What the fuzzer calls.
#[cfg(fuzzing)]
#[doc(hidden)]
pub mod fuzzing {
    #[cfg(all(feature = "processes", target_os = "linux"))]
    pub use crate::backends::process::any_bytes::read_any_bytes as read_any_frames;
    pub use crate::device::any_text::read_any_bytes as read_any_devices;
    pub use crate::journal::any_bytes::read_any_bytes as read_any_journal;
}

// rustdoc puts the documentation of the item itself behind what stands here, which has the links into this crate.
#[doc(inline)]
pub use gangline_config::CfgNode;
/// The version of `config` that [`CfgNode`] is a [`Source`](config::Source) of.
pub use gangline_config::config;
/// How many items of a run ended in each way: [`Pool::account`].
///
/// ```
/// use gangline::{OnError, OrderedRunner, each};
///
/// let roots = each(|x: i64| x.checked_isqrt().ok_or_else(|| "negative".into()));
/// let mut pool = OrderedRunner::builder(roots).devices(1).on_error(OnError::Skip).build()?;
/// assert_eq!(pool.run([4, -1, 9])?, [2, 3]);
/// let account = pool.account();
/// assert_eq!((account.ok, account.failed, account.cancelled, account.unread), (2, 1, 0, Some(0)));
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
#[doc(inline)]
pub use gangline_report::Account;
/// What a run does about an item that failed: [`Builder::on_error`].
///
#[doc(inline)]
pub use gangline_scheduler::OnError;
/// How batches are formed for [`Runner::producer_work_batch`].
///
/// ```
/// use gangline::{Batch, OrderedRunner};
///
/// # include!(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/common/lengths.rs"));
/// # fn main() -> gangline::Result<()> {
/// // `Lengths` is a type that implements `producer_work_batch`.
/// let mut runner = OrderedRunner::builder(Lengths).devices(2).batch(Batch::auto()).build()?;
/// assert_eq!(runner.run(["mush", "gee", "haw"].map(String::from))?, [4, 3, 3]);
/// # Ok(())
/// # }
/// ```
///
#[doc(inline)]
pub use gangline_scheduler::batch::Batch;

pub(crate) use gangline_config as cfg;

/// The version of `crossbeam-channel` whose receivers [`CancelToken::guard`] takes.
pub use crossbeam_channel;
/// The version of `futures-core` with the trait of the streams that [`Pool::run_stream`] takes.
#[cfg(feature = "futures")]
#[cfg_attr(docsrs, doc(cfg(feature = "futures")))]
pub use futures_core;

#[cfg(feature = "candle")]
pub use candle_core;
#[cfg(feature = "candle")]
pub use candle_nn;

/// The examples of the README are tests, as those of the guides are.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
mod readme {}

/// What must not compile.
#[cfg(doctest)]
mod compile_fail;

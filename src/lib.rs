//! gangline.

mod account;
mod cancel;
mod cfg;
mod closures;
mod device;
mod engine;
mod error;
mod order;
mod pool;
mod runner;
mod stream;
mod sync;

pub use crate::account::Account;
pub use crate::cancel::{CancelToken, Guard};
pub use crate::cfg::{CfgError, CfgNode, PathProblem};
pub use crate::closures::{Fold, Map, map};
pub use crate::device::{Device, DeviceError, Devices, IntoDevices};
pub use crate::error::{BoxError, Error, Hook, PanicMessage, Result, Site};
pub use crate::order::Order;
pub use crate::pool::{
    Builder, Handle, InChosenOrder, InCompletionOrder, InInputOrder, Kind, OrderedRunner, Pool,
    UnorderedRunner,
};
pub use crate::runner::{ConsumerContext, ProducerContext, Runner};
pub use crate::stream::Stream;

/// The version of `config` that [`CfgNode`] is a [`Source`](config::Source) of.
pub use config;

#[cfg(feature = "candle")]
pub use candle_core;

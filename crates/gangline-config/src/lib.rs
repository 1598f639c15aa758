//! Configuration: a tree of values with dotted paths.
//!
//! A part of [gangline](https://docs.rs/gangline), published in step with it: use `gangline::CfgNode`.

#[cfg(any(test, fuzzing))]
mod any_bytes;
mod de;
mod entered;
mod env;
mod error;
mod files;
mod format;
mod json;
mod key;
mod layers;
mod load;
mod near;
mod node;
mod path;
mod save;
mod scalar;
pub mod segment;
mod ser;
mod toml;
mod tree;
mod yaml;

pub use self::error::{CfgError, PathProblem};
pub use self::node::CfgNode;
/// The version of `config` that [`CfgNode`] is a [`Source`](config::Source) of.
pub use config;

/// What the fuzzer calls.
#[cfg(fuzzing)]
#[doc(hidden)]
pub use self::any_bytes::read_any_bytes;

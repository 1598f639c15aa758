//! Configuration: a tree of values with dotted paths.
//!
//! A part of [gangline](https://docs.rs/gangline), published in step with it: use `gangline::CfgNode`.

mod de;
mod error;
mod key;
mod layers;
mod near;
mod node;
mod path;
mod scalar;
pub mod segment;
mod ser;
#[cfg(feature = "files")]
mod text;
mod tree;

pub use self::error::{CfgError, PathProblem};
pub use self::node::CfgNode;
/// The version of `config` that [`CfgNode`] is a [`Source`](config::Source) of.
pub use config;

/// What the fuzzer calls.
#[cfg(all(fuzzing, feature = "files"))]
#[doc(hidden)]
pub use self::text::read_any_bytes;

//! What child processes and the workers of a cluster have in common: how a runner is made elsewhere, and how its inputs,
//! outputs and errors are written as bytes. Each has a protocol of its own, for good reasons.

pub(crate) mod check;
pub(crate) mod codec;
pub(crate) mod failure;
pub(crate) mod item_codec;
pub(crate) mod recipe;

//! Memory that several processes of this machine use.

pub(crate) mod arena;
pub(crate) mod shared_bytes;
pub(crate) mod shared_memory;

mod ranges;

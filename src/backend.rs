//! Where producers live. Today: threads of this process.

#[cfg_attr(not(feature = "rayon"), path = "backend/no_cpu_pool.rs")]
pub(crate) mod cpu_pool;
pub(crate) mod threads;

//! What stands in for [`CpuPool`] in a build without rayon.

use std::thread::{self, ThreadId};

use crate::error::Error;
use crate::runner::ProducerSetup;

/// No pool.
pub(crate) struct CpuPool;

/// The current thread: producers have no other.
pub(crate) fn producer_thread() -> ThreadId {
    thread::current().id()
}

impl CpuPool {
    pub(crate) fn of(_: &ProducerSetup, _: &str, _: Option<usize>) -> Self {
        CpuPool
    }

    pub(crate) fn run<T>(self, work: impl FnOnce(Result<(), Error>) -> T) -> T {
        work(Ok(()))
    }
}

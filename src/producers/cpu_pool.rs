//! The rayon pool of one producer.

use std::cell::Cell;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread::{self, JoinHandle, ThreadId};
use std::vec;

use crossbeam_channel::bounded;
use rayon::{ThreadBuilder, ThreadPool, ThreadPoolBuilder};

use crate::concurrency::spawn::spawn;
use crate::error::Error;
use crate::runner::ProducerSetup;

/// A pool with the producer's own thread as its first.
///
/// rayon offers `use_current_thread` for that, which leaks the pool for the sake of callers that
/// return from under it, and leaves its other threads to end when they like. The thread of a
/// producer is ours from its start to its end. So it runs the pool's first worker as an ordinary
/// one, and the producer is a job: the pool goes when the job is done, and so do its threads.
pub(crate) struct CpuPool {
    /// `None`: no pool, and the producer uses the global one.
    threads: Option<usize>,
    name: String,
    stack_size: Option<usize>,
}

/// The workers of a pool, not started yet.
type PoolThreads = vec::IntoIter<ThreadBuilder>;

thread_local! {
    /// The producer's thread that this thread works for, where it is another.
    static LEADER: Cell<Option<ThreadId>> = const { Cell::new(None) };
}

/// The thread of the producer that the current thread works for, or else the current thread.
pub(crate) fn producer_thread() -> ThreadId {
    LEADER.get().unwrap_or_else(|| thread::current().id())
}

impl CpuPool {
    /// The pool of the producer at this place. `name` is the name of its thread.
    pub(crate) fn of(setup: &ProducerSetup, name: &str, stack_size: Option<usize>) -> Self {
        CpuPool { threads: setup.cpu_threads, name: name.to_owned(), stack_size }
    }

    /// Calls `work` on the current thread, inside the pool, or with the reason why there is none.
    /// Returns when all that was spawned in the pool is done and its other threads have ended.
    pub(crate) fn run<T: Send + 'static>(
        self,
        work: impl FnOnce(Result<(), Error>) -> T + Send + 'static,
    ) -> T {
        let Some(threads) = self.threads else { return work(Ok(())) };
        match self.build(threads) {
            Ok((pool, pool_threads)) => self.lead(pool, pool_threads, work),
            Err(error) => work(Err(error)),
        }
    }

    fn build(&self, threads: usize) -> Result<(ThreadPool, PoolThreads), Error> {
        let mut pool_threads = Vec::new();
        let keep = |pool_thread| {
            pool_threads.push(pool_thread);
            Ok(())
        };
        match ThreadPoolBuilder::new().num_threads(threads).spawn_handler(keep).build() {
            Ok(pool) => Ok((pool, pool_threads.into_iter())),
            Err(source) => {
                Err(Error::Thread { name: self.name.clone(), source: io::Error::other(source) })
            }
        }
    }

    fn lead<T: Send + 'static>(
        self,
        pool: ThreadPool,
        mut pool_threads: PoolThreads,
        work: impl FnOnce(Result<(), Error>) -> T + Send + 'static,
    ) -> T {
        let own = pool_threads.next().expect("a pool has at least one thread");
        let (done, result) = bounded(1);
        // No other worker runs yet, so none can take the job from this thread.
        pool.spawn(move || {
            let mut helpers = Vec::new();
            let started = self.start(pool_threads, &mut helpers);
            // rayon would abort; a bug of ours is to be seen where the thread is joined.
            let outcome = catch_unwind(AssertUnwindSafe(|| work(started)));
            done.send((outcome, helpers)).expect("the receiver waits below");
        });
        // The pool now ends with the last job in it.
        drop(pool);
        own.run();
        let (outcome, helpers) = result.recv().expect("the job is done when its pool has ended");
        for helper in helpers {
            helper.join().unwrap_or_else(|payload| resume_unwind(payload));
        }
        outcome.unwrap_or_else(|payload| resume_unwind(payload))
    }

    fn start(
        &self,
        pool_threads: PoolThreads,
        helpers: &mut Vec<JoinHandle<()>>,
    ) -> Result<(), Error> {
        let leader = thread::current().id();
        for pool_thread in pool_threads {
            let name = format!("{}-{}", self.name, pool_thread.index());
            let work = move || {
                LEADER.set(Some(leader));
                pool_thread.run();
            };
            helpers.push(spawn(name, self.stack_size, work)?);
        }
        Ok(())
    }
}

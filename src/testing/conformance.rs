//! The laws of a run, as checks of a runner of your own or of a place where producers live.
//!
//! A wrapper that forwards hooks may forget one; a new backend may lose a result. [`check_all`] finds out. It
//! is given a function that makes a builder from the suite's own runner, the [`Probe`]: inside the wrapper,
//! with the devices and the backend that are to be checked. The suite sets orders, windows, batches, retries
//! and policies, runs items that pass, fail, panic, wait or are cancelled, and compares.
//!
//! ```
//! use gangline::AnyOrderRunner;
//! use gangline::testing::{Simulated, conformance};
//!
//! conformance::check_all(|probe| {
//!     AnyOrderRunner::builder(Simulated::new(probe)).devices(2) // `Simulated` is the wrapper
//! })?;
//! # Ok::<(), gangline::testing::conformance::BrokenLaw>(())
//! ```
//!
//! For producers in child processes, a recipe in the worker makes the probe by [`Probe::from_cfg`], and the
//! function adds `.processes(&RECIPE, Processes::new())`.
//!
//! [`BrokenLaw`] names the law, and its source says what was seen: print both, as `?` in a test does. Panics are
//! part of the suite, so standard error has lines such as `task 0 panics on purpose` although all laws hold.
//!
//! Producers may live in other processes of this machine: hooks of the suite meet it at ports of the loopback
//! address, and leave notes in the folder of temporary files.

mod gate;
mod life;
mod probe;
mod record;
mod results;
mod trial;

use std::fmt;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use crossbeam_channel::{RecvTimeoutError, bounded};

pub use self::probe::{Answer, Answers, Probe, State, Task};
use self::trial::Make;
use crate::api::builder::Builder;
use crate::api::pool::RuntimeOrder;
use crate::base::{BoxError, Result, debug_with_causes};
use crate::runner::Runner;

/// The time after which a law that is not yet decided counts as a hang.
const LIMIT: Duration = Duration::from_secs(60);

/// The laws, to be checked one by one.
///
/// ```
/// use std::time::Duration;
///
/// use gangline::AnyOrderRunner;
/// use gangline::testing::conformance::Laws;
///
/// let laws = Laws::new(|probe| AnyOrderRunner::builder(probe).devices(3));
/// laws.ordered()?;
/// laws.limit(Duration::from_secs(20)).paired()?;
/// # Ok::<(), gangline::testing::conformance::BrokenLaw>(())
/// ```
pub struct Laws<R: Runner> {
    make: Arc<Make<R>>,
    limit: Duration,
}

/// The name of a law.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Law {
    /// Any single fault ends the run.
    NoHang,
    /// Every item pulled has one outcome.
    Accounted,
    /// An error says item, device, hook, attempt and cause.
    Named,
    /// Items in flight never exceed the window.
    Bounded,
    /// Results and failures come in order.
    Ordered,
    /// No item waits for a later one, and none for a slow one.
    Prompt,
    /// Hooks that begin something have one that ends it.
    Paired,
    /// A run can be cancelled, wherever it waits.
    Cancelled,
    /// After close and drop, nothing is left.
    Clean,
    /// A panic belongs to its item, and its state is not used again.
    Panics,
    /// Batches reach `producer_work_batch` whole.
    Batched,
}

/// A law that does not hold.
#[non_exhaustive]
pub struct BrokenLaw {
    /// The law.
    pub law: Law,
    /// What was expected, and what was seen.
    pub source: BoxError,
}

/// Checks all laws, in the order of [`Law`].
///
/// `make` gives the suite's runner a builder with two devices or more. It is called often, for each pool anew.
///
/// # Errors
///
/// The first law that does not hold.
///
/// # Panics
///
/// If `make` panics.
///
/// ```
/// use gangline::AnyOrderRunner;
/// use gangline::testing::conformance::check_all;
///
/// check_all(|probe| AnyOrderRunner::builder(probe).devices(2))?;
/// # Ok::<(), gangline::testing::conformance::BrokenLaw>(())
/// ```
pub fn check_all<R>(
    make: impl Fn(Probe) -> Builder<R, RuntimeOrder> + Send + Sync + 'static,
) -> Result<(), BrokenLaw>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    Laws::new(make).check_all()
}

impl<R> Laws<R>
where
    R: Runner<Input = Task, Output = Answer, Summary = Answers> + 'static,
{
    /// The laws for what this function builds: see [`check_all`].
    pub fn new(make: impl Fn(Probe) -> Builder<R, RuntimeOrder> + Send + Sync + 'static) -> Self {
        Laws { make: Arc::new(make), limit: LIMIT }
    }

    /// Sets the time after which a law counts as broken, since something hangs. The default is 60 s.
    ///
    /// The thread of the check is then left to itself.
    pub fn limit(mut self, limit: Duration) -> Self {
        self.limit = limit;
        self
    }

    /// Checks all laws, in the order of [`Law`].
    ///
    /// # Errors
    ///
    /// The first law that does not hold.
    pub fn check_all(&self) -> Result<(), BrokenLaw> {
        self.no_hang()?;
        self.accounted()?;
        self.named()?;
        self.bounded()?;
        self.ordered()?;
        self.prompt()?;
        self.paired()?;
        self.cancelled()?;
        self.clean()?;
        self.panics()?;
        self.batched()
    }

    /// Checks that errors and panics of hooks and of the input end a run, and that the next one is well.
    ///
    /// # Errors
    ///
    /// If that is not so.
    pub fn no_hang(&self) -> Result<(), BrokenLaw> {
        self.check(Law::NoHang, |make, _| life::no_hang(make))
    }

    /// Checks that the account adds up, also after errors, a stop and skipped items.
    ///
    /// # Errors
    ///
    /// If that is not so.
    pub fn accounted(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Accounted, |make, _| results::accounted(make))
    }

    /// Checks what errors say.
    ///
    /// # Errors
    ///
    /// If something is missing in them.
    pub fn named(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Named, |make, _| results::named(make))
    }

    /// Checks the number of items in flight.
    ///
    /// # Errors
    ///
    /// If it exceeds the window, or if the window cannot be filled.
    pub fn bounded(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Bounded, |make, _| results::bounded(make))
    }

    /// Checks the order of results, of failures and of what a failure leaves.
    ///
    /// # Errors
    ///
    /// If the order is wrong, or if an item is lost or consumed twice.
    pub fn ordered(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Ordered, |make, _| results::ordered(make))
    }

    /// Checks that results come before the input goes on, and past a slow item.
    ///
    /// # Errors
    ///
    /// If an item waits for another.
    pub fn prompt(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Prompt, |make, _| results::prompt(make))
    }

    /// Checks the calls of `producer_end` and `consumer_end`.
    ///
    /// # Errors
    ///
    /// If one is missing or called too often.
    pub fn paired(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Paired, |make, _| life::paired(make))
    }

    /// Checks that a run can be cancelled in a hook and in the input, and can be drained.
    ///
    /// # Errors
    ///
    /// If it goes on, or if the next run is harmed.
    pub fn cancelled(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Cancelled, |make, _| life::cancelled(make))
    }

    /// Checks that the runner, and the threads of this process that called its hooks, end with the pool.
    ///
    /// # Errors
    ///
    /// If one of them is left.
    pub fn clean(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Clean, |make, limit| life::clean(make, limit))
    }

    /// Checks the errors of panics in `producer_work`, and that the states that saw them are replaced.
    ///
    /// # Errors
    ///
    /// If a panic has another item's name, or if its state is used again.
    pub fn panics(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Panics, |make, _| life::panics(make))
    }

    /// Checks that a batch reaches `producer_work_batch` as a whole, with the right items.
    ///
    /// # Errors
    ///
    /// If that is not so.
    pub fn batched(&self) -> Result<(), BrokenLaw> {
        self.check(Law::Batched, |make, _| results::batched(make))
    }

    /// Runs a check on a thread of its own, since it may hang.
    fn check(
        &self,
        law: Law,
        check: impl FnOnce(&Make<R>, Duration) -> Result<()> + Send + 'static,
    ) -> Result<(), BrokenLaw> {
        let (make, limit) = (self.make.clone(), self.limit);
        let (done, outcome) = bounded(1);
        let work = move || {
            // The receiver is gone if this took too long.
            _ = done.send(check(&*make, limit));
        };
        let thread = thread::Builder::new().name("gangline-conformance".to_owned()).spawn(work);
        let thread = thread.map_err(|error| BrokenLaw { law, source: error.into() })?;
        let outcome = match outcome.recv_timeout(limit) {
            Ok(outcome) => outcome,
            Err(RecvTimeoutError::Timeout) => {
                return Err(BrokenLaw { law, source: format!("no end within {limit:?}").into() });
            }
            Err(RecvTimeoutError::Disconnected) => Ok(()),
        };
        thread.join().unwrap_or_else(|payload| std::panic::resume_unwind(payload));
        outcome.map_err(|source| BrokenLaw { law, source })
    }
}

impl<R: Runner> fmt::Debug for Laws<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Laws").field("limit", &self.limit).finish_non_exhaustive()
    }
}

impl fmt::Display for BrokenLaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the law {:?} does not hold", self.law)
    }
}

debug_with_causes!(BrokenLaw);

impl std::error::Error for BrokenLaw {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

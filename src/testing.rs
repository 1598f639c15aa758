//! Checks of a runner, and devices that fail on purpose.
//!
//! [`Simulated`] puts scripts of faults in front of a runner's hooks: a device that runs out of memory,
//! fails at certain calls, is slow, or dies. The runner itself is the real one.
//!
//! ```
//! use gangline::testing::{Script, Simulated};
//! use gangline::{Batch, OrderedRunner, map_batches};
//!
//! # fn main() -> gangline::Result<()> {
//! let squares = map_batches(
//!     |_| Ok(()),
//!     |_, (), xs: &mut Vec<u64>| Ok(xs.iter().map(|x| Ok(x * x)).collect()),
//! );
//! let small = Script::new().out_of_memory_above(3);
//! let mut runner = OrderedRunner::builder(Simulated::new(squares).on(0, small))
//!     .devices(1)
//!     .batch(Batch::of(8))
//!     .build()?;
//! assert_eq!(runner.run(0..8)?, [0, 1, 4, 9, 16, 25, 36, 49], "nothing is lost");
//!
//! let sizes: Vec<_> = runner.runner().calls().iter().map(|call| call.items.len()).collect();
//! assert_eq!(sizes, [8, 4, 2, 2, 2, 2], "8 and 4 were too many");
//! assert_eq!(runner.learned_batch_limits(), [Some(2)]);
//! # Ok(())
//! # }
//! ```
//!
//! [`check_batches`] checks that lists have the answers of single inputs. [`conformance`] checks that a wrapper or a
//! backend keeps the laws of a run.

mod batches;
pub mod conformance;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

pub use self::batches::{
    AnsweredList, BatchCheck, BatchFault, BatchFaultKind, BatchLaw, BatchReport, BatchSize,
    BrokenBatches, LawState, ListEnd, check_batches,
};
#[cfg(all(feature = "processes", target_os = "linux"))]
#[cfg_attr(docsrs, doc(cfg(feature = "processes")))]
pub use crate::backends::remote::check::{CheckError, check_recipe};
use crate::base::debug_with_causes;
use crate::error::OutOfMemory;
use crate::error::Result;
use crate::runner::{ProducerContext, Runner, forward_hooks};

/// A runner with producers on simulated devices, each with a [`Script`] of faults.
///
/// A fault replaces the call of the runner's own hook, so the inputs of a batch stay as they were.
/// Producers without a script work as usual.
///
/// ```
/// use gangline::testing::{Script, Simulated};
/// use gangline::{OrderedRunner, each};
///
/// // The second of two devices fails at each call from its first on. The other does all of the work.
/// let squares = Simulated::new(each(|x: u64| Ok(x * x))).on(1, Script::new().dies_at(1));
/// let builder = OrderedRunner::builder(squares).devices(2).retries(1).quarantine_after(3);
/// let mut pool = builder.build()?;
/// assert_eq!(pool.run(0..100)?.len(), 100);
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Debug)]
pub struct Simulated<R> {
    runner: R,
    scripts: BTreeMap<usize, Script>,
    others: Script,
    log: Mutex<CallLog>,
}

/// The faults of one simulated device. An empty script has none.
///
/// Calls are those of `producer_work` and `producer_work_batch` on that device, counted from 1 across runs.
///
/// ```
/// use gangline::testing::{Script, Simulated};
/// use gangline::{OnError, OrderedRunner, each};
///
/// let third_fails = Script::new().fails_at(3);
/// let squares = Simulated::new(each(|x: u64| Ok(x * x))).on(0, third_fails);
/// // One producer, so that the third call is the third item.
/// let mut pool = OrderedRunner::builder(squares).devices(1).on_error(OnError::Skip).build()?;
/// assert_eq!(pool.run(0..5)?, [0, 1, 9, 16]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Debug, Clone, Default)]
pub struct Script {
    most_items: Option<usize>,
    failing: Vec<u64>,
    panicking: Vec<u64>,
    dying: Option<u64>,
    delay: Duration,
}

/// The record of one call of `producer_work` or `producer_work_batch`.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Call {
    /// The producer's number.
    pub producer: usize,
    /// The indices in the run of the call's items.
    pub items: Vec<u64>,
    /// The fault that replaced the runner's hook.
    pub fault: Option<Fault>,
}

/// A fault of a simulated device; also the error that the call fails with.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// The call had more items than fit in the device's memory. The cause of an [`OutOfMemory`].
    #[non_exhaustive]
    OutOfMemory {
        /// The number of items that fit.
        most: usize,
    },
    /// The script makes this call fail.
    #[non_exhaustive]
    Failed {
        /// The number of the call, from 1.
        call: u64,
    },
    /// The script makes this call panic.
    #[non_exhaustive]
    Panicked {
        /// The number of the call, from 1.
        call: u64,
    },
    /// The device is dead.
    #[non_exhaustive]
    Dead {
        /// The number of the call that it died at, from 1.
        call: u64,
    },
}

#[derive(Debug, Default)]
struct CallLog {
    calls: Vec<Call>,
    /// The number of calls of each producer so far.
    counts: BTreeMap<usize, u64>,
}

impl Script {
    /// Makes a script without faults.
    pub fn new() -> Self {
        Self::default()
    }

    /// Makes calls with more than `items` items [run out of memory](OutOfMemory).
    ///
    /// It counts items, however large they are. If batches have a [padded
    /// size](crate::Builder::max_padded_size) or a [cost](crate::Builder::max_batch_cost), the runner still
    /// learns a limit in that measure.
    pub fn out_of_memory_above(mut self, items: usize) -> Self {
        self.most_items = Some(items);
        self
    }

    /// Makes the call with that number fail. May be given several times.
    pub fn fails_at(mut self, call: u64) -> Self {
        self.failing.push(call);
        self
    }

    /// Makes the call with that number panic. May be given several times.
    pub fn panics_at(mut self, call: u64) -> Self {
        self.panicking.push(call);
        self
    }

    /// Makes every call from that number on fail, and `producer_init` too.
    pub fn dies_at(mut self, call: u64) -> Self {
        self.dying = Some(call);
        self
    }

    /// Makes each call take that much longer: its thread sleeps.
    pub fn slower_by(mut self, time: Duration) -> Self {
        self.delay = time;
        self
    }

    fn fault(&self, call: u64, items: usize) -> Option<Fault> {
        if let Some(call) = self.dying.filter(|&dying| call >= dying) {
            Some(Fault::Dead { call })
        } else if self.panicking.contains(&call) {
            Some(Fault::Panicked { call })
        } else if self.failing.contains(&call) {
            Some(Fault::Failed { call })
        } else {
            let most = self.most_items.filter(|&most| items > most)?;
            Some(Fault::OutOfMemory { most })
        }
    }
}

impl<R> Simulated<R> {
    /// Puts `runner` on devices without faults.
    pub fn new(runner: R) -> Self {
        Simulated { runner, scripts: BTreeMap::new(), others: Script::new(), log: Mutex::default() }
    }

    /// Sets the faults of this producer's device.
    pub fn on(mut self, producer: usize, script: Script) -> Self {
        self.scripts.insert(producer, script);
        self
    }

    /// Sets the faults of all devices that have no script of their own.
    pub fn everywhere(mut self, script: Script) -> Self {
        self.others = script;
        self
    }

    /// Returns the runner itself.
    pub fn runner(&self) -> &R {
        &self.runner
    }

    /// Returns all calls so far of `producer_work` and `producer_work_batch`, in the order in which they
    /// began.
    pub fn calls(&self) -> Vec<Call> {
        self.log().calls.clone()
    }

    fn script(&self, producer: usize) -> &Script {
        self.scripts.get(&producer).unwrap_or(&self.others)
    }

    /// Applies the faults that come before the runner's own hook.
    fn before_work(&self, cx: &ProducerContext<'_>) -> Result<()> {
        let script = self.script(cx.producer());
        let fault = self.log().note(cx, script);
        std::thread::sleep(script.delay);
        match fault {
            None => Ok(()),
            Some(fault @ Fault::OutOfMemory { .. }) => Err(OutOfMemory::new(fault).into()),
            Some(fault @ Fault::Panicked { .. }) => panic!("{fault}"),
            Some(fault) => Err(fault.into()),
        }
    }

    fn log(&self) -> MutexGuard<'_, CallLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CallLog {
    fn note(&mut self, cx: &ProducerContext<'_>, script: &Script) -> Option<Fault> {
        let count = self.counts.entry(cx.producer()).or_default();
        *count += 1;
        let items = cx.items().to_vec();
        let fault = script.fault(*count, items.len());
        self.calls.push(Call { producer: cx.producer(), items, fault });
        fault
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Fault::OutOfMemory { most } => write!(f, "simulated: memory for {most} items only"),
            Fault::Failed { call } => write!(f, "simulated: call {call} fails"),
            Fault::Panicked { call } => write!(f, "simulated: call {call} panics"),
            Fault::Dead { call } => write!(f, "simulated: the device died at call {call}"),
        }
    }
}

debug_with_causes!(Fault);

impl std::error::Error for Fault {}

impl<R: Runner> Runner for Simulated<R> {
    type Input = R::Input;
    type Output = R::Output;
    type ProducerState = R::ProducerState;
    type ConsumerState = R::ConsumerState;
    type Summary = R::Summary;

    forward_hooks!(self, self.runner => batch_hook, producer_end, consumer);

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<R::ProducerState> {
        let calls = self.log().counts.get(&cx.producer()).copied().unwrap_or(0);
        match self.script(cx.producer()).dying {
            Some(call) if calls >= call => Err(Fault::Dead { call }.into()),
            _ => self.runner.producer_init(cx),
        }
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut R::ProducerState,
        input: R::Input,
    ) -> Result<R::Output> {
        self.before_work(cx)?;
        self.runner.producer_work(cx, state, input)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut R::ProducerState,
        inputs: &mut Vec<R::Input>,
    ) -> Result<Vec<Result<R::Output>>> {
        self.before_work(cx)?;
        self.runner.producer_work_batch(cx, state, inputs)
    }
}

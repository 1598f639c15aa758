//! What has the hooks of one producer called.

use std::time::Instant;

use gangline_scheduler::LeaseId;

use crate::error::Error;
use crate::run::Run;
use crate::runner::Wanted;

/// Where the hooks of one producer run.
///
/// A value of it is made, used and dropped on the producer's own thread. That thread joins runs, notices lost
/// states, and reports failures of `producer_init`. The backend leases items, has the hooks called on them, and
/// settles the outcomes.
///
/// What the scheduler allows: several leases at a time, released leases of which no hook has begun, and
/// answers that are late, repeated or missing. Their leases are stale then.
pub trait Backend<I, T> {
    /// Calls `producer_init` while the pool is built. `wanted` tells that hook when to give up.
    fn start(&mut self, wanted: &Wanted) -> Result<(), Error>;

    /// Whether the state that `producer_init` made is alive.
    fn is_ready(&self) -> bool;

    /// Calls `producer_init` in a run if there is no state. `lease`: the one that needs the state, if any.
    fn prepare(&mut self, run: &Run<I, T>, lease: Option<LeaseId>) -> Result<(), Error>;

    /// Works on items of a run until there are no more for this producer.
    fn work_on(&mut self, run: &Run<I, T>) -> NextStep;

    /// Calls `producer_end` if the state is alive.
    fn end(&mut self) -> Result<(), Error>;

    /// Calls `producer_end` in a run, since the state is to be recycled: a new one is [prepared](Backend::prepare).
    fn end_in(&mut self, run: &Run<I, T>) -> Result<(), Error>;

    /// Takes care of what it keeps while no run needs it. Returns when to call it again, if it is to be.
    fn tidy(&mut self) -> Option<Instant> {
        None
    }
}

/// What a producer does after its part in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NextStep {
    /// It takes part in the next run.
    On,
    /// It is lost, and takes part in no further run.
    Away,
    /// It was abandoned in a hook, which has returned: it takes part again.
    Return,
    /// It ends its state, builds a new one, and takes part again.
    Recycle,
}

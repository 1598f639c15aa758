//! What a worker needs of a runner: a service over its devices, with encoded items.
//!
//! The layers above implement it, since they hold services. So the client of the broker stays here.

#![expect(unnameable_types, reason = "they are of a trait that no other crate implements")]

use std::any::Any;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use crossbeam_channel::Receiver;
use gangline::backend::{BatchLimits, CallFailure, Terms};
use gangline::error::Crash;
use gangline::process::Processes;
use gangline::{Devices, Hook};
use gangline_scheduler::batch::Size;

use super::hook_times::HookTimes;

/// A recipe, as a worker of a cluster uses it.
pub trait Host: Sync {
    /// The name by which coordinators ask for it.
    fn recipe(&self) -> &'static str;
    /// What both sides must agree on.
    fn terms(&self) -> Terms;
    /// Makes the runner and its producers.
    fn load(
        &self,
        cfg: &str,
        settings: &LoadSettings,
    ) -> Result<Arc<dyn LoadedRunner>, CallFailure>;
    /// A copy that another thread can have.
    fn share(&self) -> Arc<dyn Host + Send>;
}

/// How the producers of a worker are made.
#[derive(Debug, Clone)]
pub struct LoadSettings {
    pub(crate) devices: Devices,
    pub(crate) seed: u64,
    pub(crate) item_timeout: Option<Duration>,
    pub(crate) init_timeout: Option<Duration>,
    pub(crate) stack_size: Option<usize>,
    pub(crate) batch: Option<BatchLimits>,
    pub(crate) place: HookPlace,
}

/// Where the hooks of a worker run.
#[derive(Debug, Clone)]
pub(crate) enum HookPlace {
    Threads,
    /// A child process for each producer.
    Processes(Box<Processes>),
}

/// A service over the devices of a worker.
pub trait LoadedRunner: Send + Sync {
    /// The number of items that its producers can work on at the same time, in their largest batches.
    fn capacity(&self) -> usize;
    /// The number of its producers.
    fn producers(&self) -> usize;
    /// The longest of its producers' last calls of `producer_init`.
    fn init(&self) -> Duration;
    /// The times of its hooks since it was made.
    fn hook_times(&self) -> HookTimes;
    /// Works on one item. Dropping the future gives the item up.
    fn submit(&self, task: ItemTask) -> Pin<Box<dyn Future<Output = TaskAnswer> + Send>>;
    /// Ends the producers. It waits for their hooks.
    fn close(&self);
}

/// One item for a service.
pub struct ItemTask {
    /// Its index in the coordinator's run.
    pub(crate) item: u64,
    pub(crate) attempt: u32,
    /// The cost and the padded size, as the coordinator has measured them.
    pub(crate) size: Size,
    /// The encoded input.
    pub(crate) input: Vec<u8>,
    /// Is called before a hook gets the item. The channel that it returns ends once the notice to the coordinator is on its
    /// way. A hook that could end this process waits for that.
    pub(crate) begin: Box<dyn Fn() -> Receiver<()> + Send + Sync>,
    /// Dropped when no hook has the item any more.
    #[expect(dead_code, reason = "its drop says it")]
    pub(crate) over: Box<dyn Any + Send>,
}

/// What a service says of an item.
#[derive(Debug)]
pub enum TaskAnswer {
    /// The encoded output.
    Output(Vec<u8>),
    Failed {
        failure: CallFailure,
        /// The device of the hook.
        device: Option<String>,
    },
    TimedOut(Timeout),
    Crashed {
        crash: Crash,
        device: Option<String>,
    },
    /// The service has ended: no hook has answered for the item.
    Ended {
        reason: String,
        /// The end of its last producer, if the hook of that took too long.
        timeout: Option<Timeout>,
    },
}

/// A hook that took too long.
#[derive(Debug)]
pub struct Timeout {
    pub(crate) hook: Hook,
    pub(crate) limit: Duration,
    pub(crate) device: Option<String>,
}

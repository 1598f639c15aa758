//! Everything that can go wrong, as one type.

mod build;
mod out_of_memory;
mod site;
mod text;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use self::build::BuildError;
pub use self::out_of_memory::OutOfMemory;
pub(crate) use self::out_of_memory::is_out_of_memory;
pub use self::site::Site;
use crate::base::debug_with_causes;
pub use crate::base::{BoxError, Hook, MaxFailures, Measure, PanicMessage, Result, TimeLimit};
pub use crate::cfg::{CfgError, PathProblem};
use crate::concurrency::spawn::SpawnError;
use crate::device::Device;
pub use crate::device::DeviceError;
pub use crate::journal::JournalError;

/// What building or running a runner can fail with.
///
/// The text of an error says which hook, which item and which device; [`source`] holds the cause.
/// The alternate form, `{error:#}`, appends the whole chain of causes, and so does `Debug`, which is
/// what a `main` that returns the error prints.
///
/// [`source`]: std::error::Error::source
#[non_exhaustive]
pub enum Error {
    /// A hook returned an error.
    #[non_exhaustive]
    HookFailed {
        /// The hook.
        hook: Hook,
        /// The item, device and attempt of the call.
        site: Box<Site>,
        /// What the hook returned.
        source: BoxError,
    },
    /// A hook panicked.
    #[non_exhaustive]
    HookPanicked {
        /// The hook.
        hook: Hook,
        /// The item, device and attempt of the call.
        site: Box<Site>,
        /// The panic's own message.
        source: PanicMessage,
    },
    /// The caller's iterator yielded an error.
    #[non_exhaustive]
    InputFailed {
        /// The index that the item would have had.
        item: u64,
        /// What the iterator yielded.
        source: BoxError,
    },
    /// The caller's iterator panicked. It was not called again.
    #[non_exhaustive]
    InputPanicked {
        /// The index that the item would have had.
        item: u64,
        /// The panic's own message.
        source: PanicMessage,
    },
    /// An item of a batch that failed together, where errors are
    /// [skipped over](crate::OnError::Skip). The error of the first of them names them all.
    #[non_exhaustive]
    BatchFailed {
        /// The item's index in the run.
        item: u64,
        /// The index of the batch's first item.
        first: u64,
        /// The item's key, if [keys](crate::Builder::key) were asked for.
        key: Option<Arc<str>>,
    },
    /// More items failed than [may](crate::Builder::max_failures).
    #[non_exhaustive]
    TooManyFailures {
        /// How many failed.
        failed: u64,
        /// Of how many that were done with.
        items: u64,
        /// How many may fail.
        most: MaxFailures,
        /// The last of them, which [`failures`](crate::Pool::failures) then lacks; `None` where it was
        /// given out or not kept.
        source: Option<Box<Error>>,
    },
    /// The function that [classifies](crate::Builder::classify) errors panicked, and so the run ended. What
    /// the error says of items and hooks is what the one says that was to be classified.
    #[non_exhaustive]
    ClassifyPanicked {
        /// The panic's own message.
        message: PanicMessage,
        /// What was to be classified.
        source: Box<Error>,
    },
    /// Too few producers are left: the devices of the others failed. [`close`](crate::Pool::close) and
    /// [`activate`](crate::Pool::activate) start all anew.
    #[non_exhaustive]
    TooFewProducers {
        /// How many are left.
        here: usize,
        /// How many there [have to be](crate::Builder::min_producers).
        least: usize,
        /// What the last of the others failed with, where that was no failure of an item.
        source: Option<Box<Error>>,
    },
    /// A hook took longer than it [may](crate::Builder::item_timeout). Its thread was abandoned.
    #[non_exhaustive]
    TimedOut {
        /// The hook.
        hook: Hook,
        /// The item, device and attempt of the call.
        site: Box<Site>,
        /// How long it was let.
        limit: Duration,
    },
    /// The run took longer than it [may](crate::Builder::run_timeout).
    #[non_exhaustive]
    RunTimedOut {
        /// How long it may take.
        limit: Duration,
    },
    /// A setting of a [`Builder`](crate::Builder) is not allowed. Only
    /// [`build`](crate::Builder::build) returns it.
    Build(BuildError),
    /// A [`CancelToken`](crate::CancelToken) ended what was in progress.
    #[non_exhaustive]
    Cancelled {},
    /// The runner is closed.
    #[non_exhaustive]
    Closed {},
    /// The runner is active where it must be closed.
    #[non_exhaustive]
    Active {},
    /// A hook tried to run the very runner whose hook it is, by way of a stream of it that was
    /// leaked: the producer that the hook is on could not take part.
    #[non_exhaustive]
    OwnThread {},
    /// The devices cannot be used. Its text is that of the [`DeviceError`], and its cause that
    /// one's cause, so that nothing is said twice along the chain.
    #[non_exhaustive]
    Devices {
        /// What is wrong with them, and what is allowed.
        source: DeviceError,
    },
    /// One item alone is more than a batch may be. No hook has seen it.
    #[non_exhaustive]
    TooLarge {
        /// The item's index in the run.
        item: u64,
        /// What was measured.
        measure: Measure,
        /// What the item was measured to be.
        amount: u64,
        /// What a batch may be at most.
        most: u64,
        /// The item's key, if [keys](crate::Builder::key) were asked for.
        key: Option<Arc<str>>,
    },
    /// A function that measures items panicked. No hook has seen the item.
    #[non_exhaustive]
    MeasurePanicked {
        /// The item's index in the run.
        item: u64,
        /// What was measured.
        measure: Measure,
        /// The item's key, if [keys](crate::Builder::key) were asked for.
        key: Option<Arc<str>>,
        /// The panic's own message.
        source: PanicMessage,
    },
    /// The function that gives items their [keys](crate::Builder::key) panicked. No hook has seen the item.
    #[non_exhaustive]
    KeyPanicked {
        /// The item's index in the run.
        item: u64,
        /// The panic's own message.
        source: PanicMessage,
    },
    /// The journal cannot be gone on with, or written.
    #[non_exhaustive]
    Journal {
        /// What is wrong with it.
        source: JournalError,
    },
    /// A journal is for runs, with a consumer whose work it can write down, and not for streams and pipelines.
    #[non_exhaustive]
    JournalUnsupported {},
    /// A text is not the report of a run, as [`RunReport::to_json`](crate::RunReport::to_json) writes it.
    #[non_exhaustive]
    Report {
        /// Where, and what is wrong with it.
        source: BoxError,
    },
    /// The operating system gave no thread.
    #[non_exhaustive]
    Thread {
        /// The name that the thread would have had.
        name: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl Error {
    /// The hook that failed or panicked.
    pub fn hook(&self) -> Option<Hook> {
        self.call().map(|(hook, _)| hook)
    }

    /// The index in the run of the item that failed, when there is exactly one.
    pub fn item(&self) -> Option<u64> {
        match self.items() {
            [item] => Some(*item),
            _ => None,
        }
    }

    /// The indices in the run of the items that failed together, ascending.
    pub fn items(&self) -> &[u64] {
        match self {
            Error::InputFailed { item, .. }
            | Error::InputPanicked { item, .. }
            | Error::TooLarge { item, .. }
            | Error::MeasurePanicked { item, .. }
            | Error::KeyPanicked { item, .. }
            | Error::BatchFailed { item, .. } => std::slice::from_ref(item),
            Error::TooManyFailures { source: Some(source), .. }
            | Error::ClassifyPanicked { source, .. } => source.items(),
            _ => self.call().map_or(&[], |(_, site)| &site.items),
        }
    }

    /// The device of the producer whose hook failed, the first if it has several.
    pub fn device(&self) -> Option<&Device> {
        self.call()?.1.device.as_ref()
    }

    /// Which attempt at the item failed, from 1.
    pub fn attempt(&self) -> Option<u32> {
        self.call()?.1.attempt
    }

    /// The key of the item that failed, when there is exactly one and [keys](crate::Builder::key) were
    /// asked for.
    pub fn key(&self) -> Option<&str> {
        match self {
            Error::TooLarge { key, .. }
            | Error::MeasurePanicked { key, .. }
            | Error::BatchFailed { key, .. } => key.as_deref(),
            Error::TooManyFailures { source: Some(source), .. }
            | Error::ClassifyPanicked { source, .. } => source.key(),
            _ => self.call()?.1.key.as_deref(),
        }
    }

    /// The same of these items alone: with the others it was no failure.
    pub(crate) fn of_items(mut self, items: &[u64]) -> Self {
        if let Error::HookFailed { site, .. }
        | Error::HookPanicked { site, .. }
        | Error::TimedOut { site, .. } = &mut self
        {
            site.items = items.to_vec();
        }
        self
    }

    /// Where the key of the one item is that failed, if there is a place for it.
    pub(crate) fn key_mut(&mut self) -> Option<&mut Option<Arc<str>>> {
        match self {
            Error::TooLarge { key, .. }
            | Error::MeasurePanicked { key, .. }
            | Error::BatchFailed { key, .. } => Some(key),
            Error::HookFailed { site, .. }
            | Error::HookPanicked { site, .. }
            | Error::TimedOut { site, .. } => Some(&mut site.key),
            Error::ClassifyPanicked { source, .. } => source.key_mut(),
            _ => None,
        }
    }

    /// The number of the producer whose hook failed.
    pub fn producer(&self) -> Option<usize> {
        self.call()?.1.producer
    }

    /// Whether user code panicked: a hook, the caller's iterator, or a function that measures items or classifies errors.
    pub fn is_panic(&self) -> bool {
        matches!(
            self,
            Error::HookPanicked { .. }
                | Error::InputPanicked { .. }
                | Error::MeasurePanicked { .. }
                | Error::KeyPanicked { .. }
                | Error::ClassifyPanicked { .. }
        )
    }

    /// Whether a [limit on time](crate::Builder::item_timeout) ended it.
    pub fn is_timeout(&self) -> bool {
        match self {
            Error::TimedOut { .. } | Error::RunTimedOut { .. } => true,
            Error::TooFewProducers { source: Some(source), .. }
            | Error::ClassifyPanicked { source, .. } => source.is_timeout(),
            _ => false,
        }
    }

    /// Whether a [`CancelToken`](crate::CancelToken) ended it.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Error::Cancelled { .. })
    }

    /// Whether the runner was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Closed { .. })
    }

    /// Whether the caller's iterator failed or panicked. Where that is another runner's stream,
    /// [`source`](std::error::Error::source) is that runner's error.
    pub fn is_input(&self) -> bool {
        match self {
            Error::InputFailed { .. } | Error::InputPanicked { .. } => true,
            Error::ClassifyPanicked { source, .. } => source.is_input(),
            _ => false,
        }
    }

    /// Whether this is the error that a stream of another runner ended with.
    pub(crate) fn ends_input(&self) -> bool {
        let Error::InputFailed { source, .. } = self else { return false };
        let Some(error) = source.downcast_ref::<Error>() else { return false };
        match error {
            Error::Cancelled {}
            | Error::Closed {}
            | Error::OwnThread {}
            | Error::TooManyFailures { .. }
            | Error::TooFewProducers { .. }
            | Error::RunTimedOut { .. }
            | Error::Thread { .. } => true,
            error => error.hook() == Some(Hook::ProducerInit),
        }
    }

    /// Whether a producer failed at an item.
    pub(crate) fn is_of_work(&self) -> bool {
        matches!(self.hook(), Some(Hook::ProducerWork | Hook::ProducerWorkBatch))
    }

    /// Whether a hook of the consumer failed.
    pub(crate) fn is_of_consumer(&self) -> bool {
        matches!(
            self.hook(),
            Some(
                Hook::ConsumerInit
                    | Hook::ConsumerWork
                    | Hook::ConsumerSkipped
                    | Hook::ConsumerFlush
                    | Hook::ConsumerEnd
            )
        )
    }

    /// How many items it fails: those of a batch fail together.
    pub(crate) fn failed_items(&self) -> u64 {
        self.items().len().max(1) as u64
    }

    fn call(&self) -> Option<(Hook, &Site)> {
        match self {
            Error::HookFailed { hook, site, .. }
            | Error::HookPanicked { hook, site, .. }
            | Error::TimedOut { hook, site, .. } => Some((*hook, site)),
            Error::TooFewProducers { source: Some(source), .. }
            | Error::ClassifyPanicked { source, .. } => source.call(),
            _ => None,
        }
    }
}

impl From<SpawnError> for Error {
    fn from(SpawnError { name, source }: SpawnError) -> Self {
        Error::Thread { name, source }
    }
}

impl From<BuildError> for Error {
    fn from(source: BuildError) -> Self {
        Error::Build(source)
    }
}

impl From<JournalError> for Error {
    fn from(source: JournalError) -> Self {
        Error::Journal { source }
    }
}

impl From<DeviceError> for Error {
    fn from(source: DeviceError) -> Self {
        Error::Devices { source }
    }
}

/// The cause of the failure of a [`producer_work_batch`](crate::Runner::producer_work_batch) that gave
/// more or fewer outputs than it had inputs: which belong together cannot be told.
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct OutputCount {
    /// How many inputs the hook had.
    pub inputs: usize,
    /// How many outputs it gave.
    pub outputs: usize,
}

impl fmt::Display for OutputCount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let OutputCount { inputs, outputs } = self;
        write!(f, "{outputs} outputs were given for {inputs} inputs")
    }
}

debug_with_causes!(OutputCount);

impl std::error::Error for OutputCount {}

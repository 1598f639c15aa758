//! Everything that can go wrong, as one type.

use std::fmt;

use crate::device::{Device, DeviceError};
use crate::measures::Measure;

/// Any error, as hooks return it: `?` turns the errors of candle, `std::io`, anyhow and
/// [`CfgNode`](crate::CfgNode) into it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a hook.
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

/// One of the hooks of a [`Runner`](crate::Runner).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Hook {
    /// [`Runner::producer_init`](crate::Runner::producer_init).
    ProducerInit,
    /// [`Runner::producer_work`](crate::Runner::producer_work).
    ProducerWork,
    /// [`Runner::producer_work_batch`](crate::Runner::producer_work_batch).
    ProducerWorkBatch,
    /// [`Runner::producer_end`](crate::Runner::producer_end).
    ProducerEnd,
    /// [`Runner::consumer_init`](crate::Runner::consumer_init).
    ConsumerInit,
    /// [`Runner::consumer_work`](crate::Runner::consumer_work).
    ConsumerWork,
    /// [`Runner::consumer_skipped`](crate::Runner::consumer_skipped).
    ConsumerSkipped,
    /// [`Runner::consumer_end`](crate::Runner::consumer_end).
    ConsumerEnd,
}

impl fmt::Display for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Hook::ProducerInit => "producer_init",
            Hook::ProducerWork => "producer_work",
            Hook::ProducerWorkBatch => "producer_work_batch",
            Hook::ProducerEnd => "producer_end",
            Hook::ConsumerInit => "consumer_init",
            Hook::ConsumerWork => "consumer_work",
            Hook::ConsumerSkipped => "consumer_skipped",
            Hook::ConsumerEnd => "consumer_end",
        })
    }
}

/// Where a hook was called: on which device, for which items, on which attempt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Site {
    /// The items of the call, by their index in the run, ascending; empty for hooks without items.
    pub items: Vec<u64>,
    /// The first device of the producer; `None` for hooks of the consumer.
    pub device: Option<Device>,
    /// The producer's number, from 0; `None` for hooks of the consumer.
    pub worker: Option<usize>,
    /// 1 for the first attempt; `None` for hooks without items.
    pub attempt: Option<u32>,
}

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.items.as_slice() {
            [] => {}
            [item] => write!(f, " for item {item}")?,
            [first, .., last] => {
                write!(f, " for {} items from {first} to {last}", self.items.len())?;
            }
        }
        if let Some(device) = self.device {
            write!(f, " on {device}")?;
        }
        match (self.worker, self.attempt) {
            (Some(worker), Some(attempt)) => write!(f, " (producer {worker}, attempt {attempt})"),
            (Some(worker), None) => write!(f, " (producer {worker})"),
            (None, Some(attempt)) if attempt > 1 => write!(f, " (attempt {attempt})"),
            (None, _) => Ok(()),
        }
    }
}

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
    FailedTogether {
        /// The item's index in the run.
        item: u64,
        /// The index of the batch's first item.
        first: u64,
    },
    /// More items failed than [may](crate::Builder::max_failures).
    #[non_exhaustive]
    TooManyFailures {
        /// How many failed.
        failed: u64,
        /// Of how many that were done with.
        items: u64,
        /// The last of them, which [`failures`](crate::Handle::failures) then lacks; `None` where it was
        /// given out or not kept.
        source: Option<Box<Error>>,
    },
    /// A share that is not between 0 and 1.
    #[non_exhaustive]
    Share {
        /// What was given.
        share: f64,
    },
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
    /// A batch cannot have no items.
    #[non_exhaustive]
    Batch {},
    /// The window has no room for what one producer takes at once: one item, or the largest
    /// [batch](crate::Batch).
    #[non_exhaustive]
    Window {
        /// What was asked for, in items.
        window: usize,
        /// The smallest window that works, in items.
        least: usize,
    },
    /// A limit on what is measured of items is 0, which nothing is below.
    #[non_exhaustive]
    Limit {
        /// What is measured.
        measure: Measure,
    },
    /// A limit on the size of batches was given, and no rule for how they are formed.
    #[non_exhaustive]
    NoBatch {
        /// What is limited.
        measure: Measure,
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
    },
    /// A function that measures items panicked. No hook has seen the item.
    #[non_exhaustive]
    MeasurePanicked {
        /// The item's index in the run.
        item: u64,
        /// What was measured.
        measure: Measure,
        /// The panic's own message.
        source: PanicMessage,
    },
    /// Producers on the CPU cannot compute with no thread.
    #[non_exhaustive]
    CpuThreads {},
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
            | Error::FailedTogether { item, .. } => std::slice::from_ref(item),
            Error::TooManyFailures { source: Some(source), .. } => source.items(),
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

    /// Whether user code panicked: a hook, the caller's iterator, or a function that measures items.
    pub fn is_panic(&self) -> bool {
        matches!(
            self,
            Error::HookPanicked { .. }
                | Error::InputPanicked { .. }
                | Error::MeasurePanicked { .. }
        )
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
        matches!(self, Error::InputFailed { .. } | Error::InputPanicked { .. })
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
                Hook::ConsumerInit | Hook::ConsumerWork | Hook::ConsumerSkipped | Hook::ConsumerEnd
            )
        )
    }

    /// How many items it fails: those of a batch fail together.
    pub(crate) fn failed_items(&self) -> u64 {
        self.items().len().max(1) as u64
    }

    fn call(&self) -> Option<(Hook, &Site)> {
        match self {
            Error::HookFailed { hook, site, .. } | Error::HookPanicked { hook, site, .. } => {
                Some((*hook, site))
            }
            _ => None,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::HookFailed { hook, site, .. } => write!(f, "{hook} failed{site}"),
            Error::HookPanicked { hook, site, .. } => write!(f, "{hook} panicked{site}"),
            Error::InputFailed { item, .. } => write!(f, "the input failed at item {item}"),
            Error::InputPanicked { item, .. } => write!(f, "the input panicked at item {item}"),
            Error::FailedTogether { item, first } => {
                write!(f, "item {item} failed in a batch with item {first}")
            }
            Error::TooManyFailures { failed, items, .. } => {
                write!(f, "too many failures: {failed} of {items} items")
            }
            Error::Share { share } => {
                write!(f, "a share of {share} is none; write one from 0 to 1")
            }
            Error::Cancelled { .. } => f.write_str("cancelled"),
            Error::Closed { .. } => f.write_str("the runner is closed; call `activate` first"),
            Error::Active { .. } => f.write_str("the runner is active; call `close` first"),
            Error::OwnThread { .. } => f.write_str("a runner cannot be run by a hook of its own"),
            Error::Devices { source } => write!(f, "{source}"),
            Error::Window { window, least } => {
                write!(f, "a window of {window} items is too small; at least {least} is needed")
            }
            Error::Batch {} => f.write_str("a batch needs room for at least one item, not 0"),
            Error::Limit { measure } => {
                write!(f, "the limit on the {measure} of items must be at least 1, not 0")
            }
            Error::NoBatch { measure } => {
                write!(f, "a limit on the {measure} needs a rule for batches; call `batch` too")
            }
            Error::TooLarge { item, measure, amount, most } => {
                write!(
                    f,
                    "item {item} has a {measure} of {amount}; a batch may have {most} at most"
                )
            }
            Error::MeasurePanicked { item, measure, .. } => {
                write!(f, "measuring the {measure} of item {item} panicked")
            }
            Error::CpuThreads {} => f.write_str("a CPU producer needs at least one thread, not 0"),
            Error::Thread { name, .. } => write!(f, "the thread {name} could not be started"),
        }?;
        if f.alternate() { write_causes(f, self) } else { Ok(()) }
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self:#}")
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::HookFailed { source, .. } | Error::InputFailed { source, .. } => {
                Some(source.as_ref())
            }
            Error::HookPanicked { source, .. }
            | Error::InputPanicked { source, .. }
            | Error::MeasurePanicked { source, .. } => Some(source),
            Error::Devices { source } => source.source(),
            Error::Thread { source, .. } => Some(source),
            Error::TooManyFailures { source, .. } => {
                source.as_deref().map(|error| error as &(dyn std::error::Error + 'static))
            }
            Error::FailedTogether { .. }
            | Error::Share { .. }
            | Error::Cancelled {}
            | Error::Closed {}
            | Error::Active {}
            | Error::OwnThread {}
            | Error::Batch {}
            | Error::Limit { .. }
            | Error::NoBatch { .. }
            | Error::TooLarge { .. }
            | Error::CpuThreads {}
            | Error::Window { .. } => None,
        }
    }
}

impl From<DeviceError> for Error {
    fn from(source: DeviceError) -> Self {
        Error::Devices { source }
    }
}

/// The cause of the failure of a [`producer_work_batch`](crate::Runner::producer_work_batch) that gave
/// more or fewer outputs than it had inputs: which belong together cannot be told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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

impl std::error::Error for OutputCount {}

/// The text of a caught panic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PanicMessage(pub(crate) String);

impl fmt::Display for PanicMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PanicMessage {}

fn write_causes(f: &mut fmt::Formatter<'_>, error: &Error) -> fmt::Result {
    let mut said = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        let text = error.to_string();
        // Many errors have their cause in their own text too.
        if !said.ends_with(&text) {
            write!(f, ": {text}")?;
        }
        said = text;
        cause = error.source();
    }
    Ok(())
}

//! Everything that can go wrong, as one type.

mod site;
mod told;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use self::site::Key;
pub use self::site::{Hook, Site};
use self::told::write_causes;
pub(crate) use self::told::{debug_is_told, write_told};
use crate::device::{Device, DeviceError};
use crate::journal::JournalError;
use crate::limits::TimeLimit;
use crate::measures::Measure;
use crate::policy::MaxFailures;

/// Any error, as hooks return it: `?` turns the errors of candle, `std::io`, anyhow and
/// [`CfgNode`](crate::CfgNode) into it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a hook.
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

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
    /// A producer cannot be quarantined after no failure.
    #[non_exhaustive]
    FenceAfter {},
    /// A number of producers that there cannot be.
    #[non_exhaustive]
    MinProducers {
        /// How many there were to be at least.
        least: usize,
        /// How many there are.
        producers: usize,
    },
    /// A limit of no time at all.
    #[non_exhaustive]
    ZeroTimeout {
        /// What would have no time.
        limit: TimeLimit,
    },
    /// A share that is not between 0 and 1.
    #[non_exhaustive]
    Share {
        /// What was given.
        share: f64,
    },
    /// It was said how many items may [fail](crate::Builder::max_failures), and the first that does ends the run.
    #[non_exhaustive]
    NoneSkipped {},
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

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::HookFailed { hook, site, .. } => write!(f, "{hook} failed{site}"),
            Error::HookPanicked { hook, site, .. } => write!(f, "{hook} panicked{site}"),
            Error::InputFailed { item, .. } => write!(f, "the input failed at item {item}"),
            Error::InputPanicked { item, .. } => write!(f, "the input panicked at item {item}"),
            Error::BatchFailed { item, first, key } => {
                let key = Key(key.as_deref());
                write!(f, "item {item}{key} failed in a batch with item {first}")
            }
            Error::TooManyFailures { failed, items, most, .. } => {
                write!(
                    f,
                    "too many failures: {failed} of {items} items, and at most {most} may fail"
                )
            }
            Error::ClassifyPanicked { message, .. } => {
                write!(f, "classifying an error panicked with {:?}", message.0)
            }
            Error::TooFewProducers { here, least, .. } => {
                write!(f, "too few producers are left: {here}, and there have to be {least}")
            }
            Error::TimedOut { hook, site, limit } => {
                write!(
                    f,
                    "{hook} took longer than {}{site}; its thread was abandoned",
                    Exact(*limit)
                )
            }
            Error::RunTimedOut { limit } => write!(f, "the run took longer than {}", Exact(*limit)),
            Error::FenceAfter {} => f.write_str("quarantine_after must be at least 1, got 0"),
            Error::MinProducers { least, producers } => write!(
                f,
                "min_producers must be from 1 to {producers}, the number of producers; got {least}"
            ),
            Error::ZeroTimeout { limit } => {
                write!(f, "the limit for {limit} must be more than no time")
            }
            Error::Share { share } => {
                write!(f, "a share of {share} is none; write one from 0 to 1")
            }
            Error::NoneSkipped {} => f.write_str(
                "the first failure ends the run, so `max_failures` allows for none; call \
                 `on_error(OnError::Skip)` too",
            ),
            Error::Cancelled { .. } => f.write_str("cancelled"),
            Error::Closed { .. } => f.write_str("the runner is closed; call `activate` first"),
            Error::Active { .. } => f.write_str("the runner is active; call `close` first"),
            Error::OwnThread { .. } => f.write_str("a runner cannot be run by a hook of its own"),
            Error::Devices { source } => write!(f, "{source}"),
            Error::Window { window, least: least @ 1 } => {
                write!(f, "a window of {window} items is too small; at least {least} is needed")
            }
            Error::Window { window, least } => write!(
                f,
                "a window of {window} items is too small for batches of up to {least}; at least {least} \
                 is needed"
            ),
            Error::Batch {} => f.write_str("a batch needs room for at least one item, not 0"),
            Error::Limit { measure } => {
                write!(f, "the limit on the {measure} of items must be at least 1, not 0")
            }
            Error::NoBatch { measure } => {
                write!(f, "a limit on the {measure} needs a rule for batches; call `batch` too")
            }
            Error::TooLarge { item, measure, amount, most, key } => {
                let key = Key(key.as_deref());
                write!(
                    f,
                    "item {item}{key} has a {measure} of {amount}; a batch may have {most} at most"
                )
            }
            Error::MeasurePanicked { item, measure, key, .. } => {
                write!(f, "measuring the {measure} of item {item}{} panicked", Key(key.as_deref()))
            }
            Error::KeyPanicked { item, .. } => write!(f, "the key of item {item} panicked"),
            Error::Journal { source } => write!(f, "{source}"),
            Error::JournalUnsupported {} => {
                f.write_str("a journal is for `run`, and not for streams and pipelines")
            }
            Error::Report { .. } => f.write_str("this is not the report of a run"),
            Error::CpuThreads {} => f.write_str("a CPU producer needs at least one thread, not 0"),
            Error::Thread { name, .. } => write!(f, "the thread {name} could not be started"),
        }?;
        if f.alternate() { write_causes(f, self) } else { Ok(()) }
    }
}

debug_is_told!(Error);

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::HookFailed { source, .. }
            | Error::InputFailed { source, .. }
            | Error::Report { source } => Some(source.as_ref()),
            Error::HookPanicked { source, .. }
            | Error::InputPanicked { source, .. }
            | Error::MeasurePanicked { source, .. }
            | Error::KeyPanicked { source, .. } => Some(source),
            Error::Devices { source } => source.source(),
            Error::Journal { source } => source.source(),
            Error::Thread { source, .. } => Some(source),
            Error::TooManyFailures { source, .. } | Error::TooFewProducers { source, .. } => {
                source.as_deref().map(|error| error as &(dyn std::error::Error + 'static))
            }
            Error::ClassifyPanicked { source, .. } => Some(source.as_ref()),
            Error::BatchFailed { .. }
            | Error::TimedOut { .. }
            | Error::RunTimedOut { .. }
            | Error::FenceAfter {}
            | Error::JournalUnsupported {}
            | Error::MinProducers { .. }
            | Error::ZeroTimeout { .. }
            | Error::Share { .. }
            | Error::NoneSkipped {}
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

debug_is_told!(OutputCount);

impl std::error::Error for OutputCount {}

/// The text of a caught panic.
#[derive(Clone, PartialEq, Eq)]
pub struct PanicMessage(pub(crate) String);

impl fmt::Display for PanicMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

debug_is_told!(PanicMessage);

impl std::error::Error for PanicMessage {}

/// A time as it was given: `150 ms`.
struct Exact(Duration);

impl fmt::Display for Exact {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = format!("{:?}", self.0);
        let unit = text.find(char::is_alphabetic).unwrap_or(text.len());
        write!(f, "{} {}", &text[..unit], &text[unit..])
    }
}

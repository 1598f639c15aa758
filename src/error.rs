//! The errors of building and running a runner.

mod build;
mod convert;
mod device_lost;
mod error_display;
mod origin;
mod out_of_memory;
mod output_count;
mod site;
pub(crate) mod untried;
mod worker_error;
mod wrapper_error;

use std::sync::Arc;
use std::time::Duration;

pub use self::build::BuildError;
pub use self::device_lost::DeviceLost;
pub(crate) use self::device_lost::{costs_state, is_device_lost};
pub(crate) use self::error_display::text_of;
pub use self::out_of_memory::OutOfMemory;
pub(crate) use self::out_of_memory::is_out_of_memory;
pub use self::output_count::OutputCount;
pub use self::site::Site;
pub use self::untried::Untried;
pub(crate) use self::untried::{is_untried, reason};
pub use self::worker_error::{Crash, FrameError, RemoteError, WorkerError};
pub use self::wrapper_error::WrapperError;
pub(crate) use crate::base::{BoxError, Hook, Result};
pub use crate::base::{MaxFailures, Measure, PanicMessage, TimeLimit};
use crate::device::Device;
pub use crate::device::DeviceError;
pub use crate::journal::JournalError;
#[doc(inline)]
pub use gangline_config::{CfgError, PathProblem};

/// An error of building or running a runner.
///
/// The text of an error names the hook, the item and the device; [`source`] holds the cause. The alternate
/// form, `{error:#}`, appends the whole chain of causes, and so does `Debug`, which is what a `main` that
/// returns the error prints.
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// let parse = map(|_| Ok(()), |_, _, text: &str| Ok(text.parse::<i32>()?));
/// let error = OrderedRunner::new(parse, 1)?.run(["1", "two"]).unwrap_err();
/// assert_eq!(error.item(), Some(1));
/// assert!(format!("{error:#}").ends_with("invalid digit found in string"));
/// # Ok::<(), gangline::BoxError>(())
/// ```
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
    /// The child process of the hook died.
    #[non_exhaustive]
    HookCrashed {
        /// The hook.
        hook: Hook,
        /// The item, device and attempt of the call.
        site: Box<Site>,
        /// The signal or status, and what the process printed at last.
        source: Crash,
    },
    /// A child process or another backend cannot serve.
    #[non_exhaustive]
    Worker {
        /// Why.
        source: Box<WorkerError>,
    },
    /// The caller's iterator, or that of an [expansion](crate::Pool::try_expand), yielded an error.
    #[non_exhaustive]
    InputFailed {
        /// The index that the item would have had.
        item: u64,
        /// What the iterator yielded.
        source: BoxError,
    },
    /// The caller's iterator, or that of an [expansion](crate::Pool::expand), panicked. It was not called
    /// again.
    #[non_exhaustive]
    InputPanicked {
        /// The index that the item would have had.
        item: u64,
        /// The panic's own message.
        source: PanicMessage,
    },
    /// An item of a batch that failed together, while errors are [skipped](crate::OnError::Skip) or in a
    /// [service](crate::Service). The error of the first item of the batch names them all.
    #[non_exhaustive]
    BatchFailed {
        /// The item's index in the run.
        item: u64,
        /// The index of the batch's first item.
        first: u64,
        /// The item's key, if [keys](crate::Builder::key) are in use.
        key: Option<Arc<str>>,
        /// The error of the batch, in a service. In a run, the first item's failure has it.
        source: Option<Arc<Error>>,
    },
    /// A part of an item failed, or the item could not be made of its parts: see
    /// [`expand`](crate::Pool::expand). The accessors for hooks, devices and attempts answer for the failure
    /// of the part.
    #[non_exhaustive]
    PartFailed {
        /// The index of the item in the run of its own stage.
        item: u64,
        /// The item's key, if [keys](crate::Builder::key) are in use in its stage.
        key: Option<Arc<str>>,
        /// The index of the part in the item. `None` if the item itself failed.
        part: Option<u64>,
        /// How it failed. There the index of the item is that of the part among the parts of all items.
        source: Box<Error>,
    },
    /// A function that [gathers](crate::expansion::OpenPipeline::gather) parts panicked.
    #[non_exhaustive]
    GatherPanicked {
        /// The panic's own message.
        source: PanicMessage,
    },
    /// More items failed than [`max_failures`](crate::Builder::max_failures) allows.
    #[non_exhaustive]
    TooManyFailures {
        /// The number of items that failed.
        failed: u64,
        /// The number of items that were finished, failed ones included.
        items: u64,
        /// The limit.
        most: MaxFailures,
        /// The last failure, which [`failures`](crate::Pool::failures) then lacks; `None` if it was yielded
        /// or not kept.
        source: Option<Box<Error>>,
    },
    /// The function that [classifies](crate::Builder::classify) errors panicked, which ended the run. The
    /// accessors for items and hooks answer for the error that was being classified.
    #[non_exhaustive]
    ClassifyPanicked {
        /// The panic's own message.
        message: PanicMessage,
        /// The error that was being classified.
        source: Box<Error>,
    },
    /// Too few producers are left: the devices of the others failed, or they are still in a hook that exceeded its
    /// timeout, and take part again when it returns. [`replace_lost`](crate::Builder::replace_lost) starts others in their
    /// places before the next run. Call [`close`](crate::Pool::close) and
    /// [`activate`](crate::Pool::activate) to start all of them again.
    #[non_exhaustive]
    TooFewProducers {
        /// The number of producers left.
        here: usize,
        /// The [minimum](crate::Builder::min_producers).
        least: usize,
        /// The first item in order that timed out, or the failure of the last producer that was lost. `None` if
        /// an item failed with it.
        source: Option<Box<Error>>,
    },
    /// A hook exceeded its [timeout](crate::Builder::item_timeout). Its thread was abandoned, or its process
    /// was killed.
    #[non_exhaustive]
    TimedOut {
        /// The hook.
        hook: Hook,
        /// The item, device and attempt of the call.
        site: Box<Site>,
        /// The time limit that was exceeded.
        limit: Duration,
    },
    /// The run exceeded its [timeout](crate::Builder::run_timeout).
    #[non_exhaustive]
    RunTimedOut {
        /// The time limit that was exceeded.
        limit: Duration,
    },
    /// A setting of a [`Builder`](crate::Builder) is not allowed. Only
    /// [`build`](crate::Builder::build) returns it.
    Build(BuildError),
    /// A call of a [service](crate::Service) was not answered by its
    /// [deadline](crate::Service::with_deadline).
    #[non_exhaustive]
    DeadlineExceeded {
        /// The time that the call had.
        limit: Duration,
        /// The item of the call, and the hook call that had it. Empty for a call that waited for its place.
        site: Box<Site>,
    },
    /// A [service](crate::Service) ended by itself: too few producers are left, or its time is over. Every
    /// open and every later call is answered with it.
    #[non_exhaustive]
    ServiceEnded {
        /// What ended it.
        source: Arc<Error>,
    },
    /// A [`CancelToken`](crate::CancelToken) ended what was in progress.
    #[non_exhaustive]
    Cancelled {},
    /// The runner or the service is closed.
    #[non_exhaustive]
    Closed {},
    /// The runner is active where it must be closed.
    #[non_exhaustive]
    Active {},
    /// A hook tried to run the runner that it belongs to, through an `Outputs` of it that was leaked. The
    /// hook's own producer could not take part.
    #[non_exhaustive]
    OwnThread {},
    /// The runner was built before a `fork`, and is used in the child. Its threads run in the parent only. Dropping
    /// the runner in the child ends nothing, and runs no destructor of its values. Build a runner after the
    /// `fork`, or call [`close`](crate::Pool::close) and [`activate`](crate::Pool::activate) in the child.
    #[non_exhaustive]
    Forked {
        /// The process that built the runner.
        built_in: u32,
        /// The process that used it.
        here: u32,
    },
    /// The devices cannot be used. The text is that of the [`DeviceError`], and the cause is the cause of
    /// that error, so that nothing is repeated along the chain.
    #[non_exhaustive]
    Devices {
        /// What is wrong with the devices, and what is allowed.
        source: DeviceError,
    },
    /// One item alone exceeds the limit of a batch. No hook has seen it.
    #[non_exhaustive]
    TooLarge {
        /// The item's index in the run.
        item: u64,
        /// What was measured.
        measure: Measure,
        /// The item's size in that measure.
        amount: u64,
        /// The limit of a batch.
        most: u64,
        /// The item's key, if [keys](crate::Builder::key) are in use.
        key: Option<Arc<str>>,
    },
    /// A function that measures items panicked. No hook has seen the item.
    #[non_exhaustive]
    MeasurePanicked {
        /// The item's index in the run.
        item: u64,
        /// What was measured.
        measure: Measure,
        /// The item's key, if [keys](crate::Builder::key) are in use.
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
    /// The journal cannot be continued, or not written.
    #[non_exhaustive]
    Journal {
        /// What is wrong with it.
        source: JournalError,
    },
    /// [`outputs`](crate::Pool::outputs) was used with a journal, which records the consumer's work and so is
    /// for `run` only; or a later stage of a pipeline has one, which is for its first stage.
    #[non_exhaustive]
    JournalUnsupported {},
    /// A text is not a report as [`RunReport::to_json`](crate::RunReport::to_json) writes it.
    #[non_exhaustive]
    Report {
        /// Where the text is wrong, and why.
        source: BoxError,
    },
    /// The function of [`around_producers`](crate::Builder::around_producers) did not call a producer once.
    #[non_exhaustive]
    Wrapper {
        /// The number of the producer.
        producer: usize,
        /// What the function did.
        source: WrapperError,
    },
    /// The operating system refused a thread.
    #[non_exhaustive]
    Thread {
        /// The name that the thread would have had.
        name: String,
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl Error {
    /// Returns the hook that failed or panicked.
    pub fn hook(&self) -> Option<Hook> {
        self.call().map(|(hook, _)| hook)
    }

    /// Returns the index in the run of the item that failed, if there is exactly one.
    ///
    /// ```
    /// use gangline::{OrderedRunner, each};
    ///
    /// let parse = each(|text: &str| Ok(text.parse::<u64>()?));
    /// let mut pool = OrderedRunner::builder(parse).devices(1).key(|text| *text).build()?;
    /// let error = pool.run(["1", "x"]).unwrap_err();
    /// assert_eq!((error.item(), error.key(), error.attempt()), (Some(1), Some("x"), Some(1)));
    /// assert!(!error.is_panic() && !error.is_timeout() && !error.is_cancelled());
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    pub fn item(&self) -> Option<u64> {
        match self.items() {
            [item] => Some(*item),
            _ => None,
        }
    }

    /// Returns the indices in the run of the items that failed together, ascending.
    pub fn items(&self) -> &[u64] {
        match self {
            Error::InputFailed { item, .. }
            | Error::InputPanicked { item, .. }
            | Error::TooLarge { item, .. }
            | Error::MeasurePanicked { item, .. }
            | Error::KeyPanicked { item, .. }
            | Error::PartFailed { item, .. }
            | Error::BatchFailed { item, .. } => std::slice::from_ref(item),
            Error::TooManyFailures { source: Some(source), .. }
            | Error::ClassifyPanicked { source, .. } => source.items(),
            _ => self.site().map_or(&[], |site| &site.items),
        }
    }

    /// Returns the index of the part that failed, in the item that was [expanded](crate::Pool::expand).
    ///
    /// [`item`](Error::item) and [`key`](Error::key) are those of the expanded item.
    pub fn part(&self) -> Option<u64> {
        match self {
            Error::PartFailed { part, .. } => *part,
            Error::TooManyFailures { source: Some(source), .. } => source.part(),
            _ => None,
        }
    }

    /// Returns the device of the producer in which a hook failed; the first if it has several.
    pub fn device(&self) -> Option<&Device> {
        self.site()?.device.as_ref()
    }

    /// Returns the number of the attempt that failed, from 1.
    pub fn attempt(&self) -> Option<u32> {
        self.site()?.attempt
    }

    /// Returns the key of the item that failed, if there is exactly one and [keys](crate::Builder::key) are
    /// in use.
    pub fn key(&self) -> Option<&str> {
        match self {
            Error::TooLarge { key, .. }
            | Error::MeasurePanicked { key, .. }
            | Error::PartFailed { key, .. }
            | Error::BatchFailed { key, .. } => key.as_deref(),
            Error::TooManyFailures { source: Some(source), .. }
            | Error::ClassifyPanicked { source, .. } => source.key(),
            _ => self.site()?.key.as_deref(),
        }
    }

    /// Returns the same error for these items alone: the others did not fail.
    pub(crate) fn of_items(mut self, items: &[u64]) -> Self {
        if let Error::HookFailed { site, .. }
        | Error::HookPanicked { site, .. }
        | Error::HookCrashed { site, .. }
        | Error::TimedOut { site, .. } = &mut self
        {
            site.items = items.to_vec();
        }
        self
    }

    /// Returns the place for the key of the one item that failed, if the error has one.
    pub(crate) fn key_mut(&mut self) -> Option<&mut Option<Arc<str>>> {
        match self {
            Error::TooLarge { key, .. }
            | Error::MeasurePanicked { key, .. }
            | Error::BatchFailed { key, .. } => Some(key),
            Error::HookFailed { site, .. }
            | Error::HookPanicked { site, .. }
            | Error::HookCrashed { site, .. }
            | Error::TimedOut { site, .. } => Some(&mut site.key),
            Error::ClassifyPanicked { source, .. } => source.key_mut(),
            _ => None,
        }
    }

    /// Returns the number of the producer in which a hook failed.
    pub fn producer(&self) -> Option<usize> {
        self.site()?.producer
    }

    /// Returns whether user code panicked: a hook, the caller's iterator, or a function that measures items
    /// or classifies errors.
    pub fn is_panic(&self) -> bool {
        match self {
            Error::HookPanicked { .. }
            | Error::InputPanicked { .. }
            | Error::MeasurePanicked { .. }
            | Error::KeyPanicked { .. }
            | Error::GatherPanicked { .. }
            | Error::ClassifyPanicked { .. }
            | Error::Wrapper { source: WrapperError::Panicked(_), .. } => true,
            Error::PartFailed { source, .. } => source.is_panic(),
            _ => false,
        }
    }

    /// Returns whether a [time limit](crate::Builder::item_timeout) caused it.
    pub fn is_timeout(&self) -> bool {
        match self {
            Error::TimedOut { .. } | Error::RunTimedOut { .. } | Error::DeadlineExceeded { .. } => {
                true
            }
            Error::ServiceEnded { source } | Error::BatchFailed { source: Some(source), .. } => {
                source.is_timeout()
            }
            Error::TooFewProducers { source: Some(source), .. }
            | Error::PartFailed { source, .. }
            | Error::ClassifyPanicked { source, .. } => source.is_timeout(),
            _ => false,
        }
    }

    /// Returns whether a [`CancelToken`](crate::CancelToken) caused it.
    pub fn is_cancelled(&self) -> bool {
        matches!(self, Error::Cancelled { .. })
    }

    /// Returns whether the runner was closed.
    pub fn is_closed(&self) -> bool {
        matches!(self, Error::Closed { .. })
    }

    /// Returns whether the caller's iterator, or that of an [expansion](crate::Pool::expand), failed or
    /// panicked. If the iterator is another runner's `Outputs`, [`source`](std::error::Error::source) is that
    /// runner's error.
    pub fn is_input(&self) -> bool {
        match self {
            Error::InputFailed { .. } | Error::InputPanicked { .. } => true,
            Error::PartFailed { source, .. } | Error::ClassifyPanicked { source, .. } => {
                source.is_input()
            }
            _ => false,
        }
    }

    fn site(&self) -> Option<&Site> {
        match self {
            Error::DeadlineExceeded { site, .. } => Some(site),
            _ => self.call().map(|(_, site)| site),
        }
    }

    fn call(&self) -> Option<(Hook, &Site)> {
        match self {
            Error::HookFailed { hook, site, .. }
            | Error::HookPanicked { hook, site, .. }
            | Error::HookCrashed { hook, site, .. }
            | Error::TimedOut { hook, site, .. } => Some((*hook, site)),
            Error::TooFewProducers { source: Some(source), .. }
            | Error::PartFailed { source, .. }
            | Error::ClassifyPanicked { source, .. } => source.call(),
            Error::BatchFailed { source: Some(source), .. } => source.call(),
            _ => None,
        }
    }
}

//! What errors say, and their causes.

use std::fmt;
use std::sync::Arc;

use gangline_report::NOT_A_REPORT;

use super::Error;
use super::site::ShownKey;
use crate::base::HumanDuration;
use crate::base::causes::write_causes;
use crate::base::debug_with_causes;
use crate::base::panic::catch;

/// Formats an error and its causes. That runs user code, which may panic.
pub(crate) fn text_of(error: &Error) -> Arc<str> {
    catch(|| format!("{error:#}"))
        .unwrap_or_else(|_| "an error whose text panics".to_owned())
        .into()
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::HookFailed { hook, site, .. } => write!(f, "{hook} failed{site}"),
            Error::HookPanicked { hook, site, .. } => write!(f, "{hook} panicked{site}"),
            Error::HookCrashed { hook, site, .. } => write!(f, "{hook} crashed{site}"),
            Error::Worker { source } => write!(f, "{source}"),
            Error::InputFailed { item, .. } => write!(f, "the input failed at item {item}"),
            Error::InputPanicked { item, .. } => write!(f, "the input panicked at item {item}"),
            Error::BatchFailed { item, key, .. } | Error::TooLarge { item, key, .. } => {
                write!(f, "item {item}{} {}", ShownKey(key.as_deref()), Unplaced(self))
            }
            Error::PartFailed { item, key, part, .. } => {
                write_part(f, *item, key.as_deref(), *part)
            }
            Error::GatherPanicked { .. } => write!(f, "{}", Unplaced(self)),
            Error::TooManyFailures { failed, items, most, .. } => {
                write!(f, "too many failures: {failed} of {items} items; at most {most} may fail")
            }
            Error::ClassifyPanicked { message, .. } => {
                write!(f, "classifying an error panicked with {:?}", message.to_string())
            }
            Error::TooFewProducers { here, least, .. } => {
                write!(f, "too few producers are left: {here}; min_producers is {least}")
            }
            Error::TimedOut { hook, site, .. } => write!(f, "{hook} {}{site}", Unplaced(self)),
            Error::RunTimedOut { .. } => write!(f, "the run {}", Unplaced(self)),
            Error::DeadlineExceeded { site, .. } => write!(f, "the call{site} {}", Unplaced(self)),
            Error::ServiceEnded { .. } => f.write_str("the service has ended"),
            Error::Cancelled { .. } => f.write_str("cancelled"),
            Error::Closed { .. } => {
                f.write_str("the service or runner is closed; `activate` opens a runner again")
            }
            Error::Active { .. } => f.write_str("the runner is active; call `close` first"),
            Error::OwnThread { .. } => {
                f.write_str("a runner cannot be run by one of its own hooks")
            }
            Error::Forked { built_in, here } => write_forked(f, *built_in, *here),
            Error::Build(source) => write!(f, "{source}"),
            Error::Devices { source } => write!(f, "{source}"),
            Error::MeasurePanicked { item, measure, key, .. } => {
                let key = ShownKey(key.as_deref());
                write!(f, "measuring the {measure} of item {item}{key} panicked")
            }
            Error::KeyPanicked { item, .. } => write!(f, "the key of item {item} panicked"),
            Error::Journal { source } => write!(f, "{source}"),
            Error::JournalUnsupported {} => {
                f.write_str("a journal works with `run`, not with `outputs`; in a pipeline, give it to the first stage")
            }
            Error::Report { .. } => f.write_str(NOT_A_REPORT),
            Error::Wrapper { producer, .. } => {
                write!(f, "the function around producer {producer} failed")
            }
            Error::Thread { name, .. } => write!(f, "the thread {name} could not be started"),
        }?;
        if f.alternate() { write_causes(f, self) } else { Ok(()) }
    }
}

fn write_forked(f: &mut fmt::Formatter<'_>, built_in: u32, here: u32) -> fmt::Result {
    write!(
        f,
        "process {here} is a fork of process {built_in}, where the threads of the runner are; build the runner after \
         the fork, or call `close` and `activate` in the child"
    )
}

/// Writes which part of which item failed.
fn write_part(
    f: &mut fmt::Formatter<'_>,
    item: u64,
    key: Option<&str>,
    part: Option<u64>,
) -> fmt::Result {
    write!(f, "item {item}{}", ShownKey(key))?;
    part.iter().try_for_each(|part| write!(f, ", part {part}"))?;
    f.write_str(" failed")
}

/// What an error says beside its hook, item and device: the end of its text, or all of it.
pub(super) struct Unplaced<'a>(pub(super) &'a Error);

impl fmt::Display for Unplaced<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Error::TimedOut { limit, .. } | Error::RunTimedOut { limit } => {
                write!(f, "took longer than {:#}", HumanDuration(*limit))
            }
            Error::DeadlineExceeded { limit, .. } => {
                write!(f, "was not answered within {:#}", HumanDuration(*limit))
            }
            Error::BatchFailed { first, .. } => write!(f, "failed in a batch with item {first}"),
            Error::TooLarge { measure, amount, most, .. } => {
                write!(f, "has a {measure} of {amount}; a batch may have {most} at most")
            }
            Error::GatherPanicked { .. } => f.write_str("gathering the parts panicked"),
            error => write!(f, "{error}"),
        }
    }
}

debug_with_causes!(Error);

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Error::HookFailed { source, .. }
            | Error::InputFailed { source, .. }
            | Error::Report { source } => Some(source.as_ref()),
            Error::HookPanicked { source, .. }
            | Error::InputPanicked { source, .. }
            | Error::MeasurePanicked { source, .. }
            | Error::GatherPanicked { source }
            | Error::KeyPanicked { source, .. } => Some(source),
            Error::HookCrashed { source, .. } => Some(source),
            Error::Worker { source } => source.source(),
            Error::Devices { source } => source.source(),
            Error::Journal { source } => source.source(),
            Error::Thread { source, .. } => Some(source),
            Error::Wrapper { source, .. } => Some(source),
            Error::TooManyFailures { source, .. } | Error::TooFewProducers { source, .. } => {
                source.as_deref().map(|error| error as &(dyn std::error::Error + 'static))
            }
            Error::PartFailed { source, .. } | Error::ClassifyPanicked { source, .. } => {
                Some(source.as_ref())
            }
            Error::BatchFailed { source, .. } => {
                source.as_deref().map(|error| error as &(dyn std::error::Error + 'static))
            }
            Error::ServiceEnded { source } => Some(source.as_ref()),
            Error::DeadlineExceeded { .. }
            | Error::TimedOut { .. }
            | Error::RunTimedOut { .. }
            | Error::JournalUnsupported {}
            | Error::Cancelled {}
            | Error::Closed {}
            | Error::Active {}
            | Error::OwnThread {}
            | Error::Forked { .. }
            | Error::TooLarge { .. }
            | Error::Build(_) => None,
        }
    }
}

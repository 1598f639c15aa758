//! Errors of the library as exceptions of the package.

use std::error::Error as StdError;
use std::fmt;

use gangline::error::WorkerError;
use gangline::report::HumanDuration;
use gangline::{BoxError, Error, Hook};
use gangline_nats::ClusterError;
use pyo3::prelude::*;

use crate::expansion::ExpandFailed;
use crate::failure::TaskFailed;

/// Options that make no pool.
#[derive(Debug)]
pub(crate) enum Refused {
    /// Two options exclude each other.
    Both {
        first: &'static str,
        second: &'static str,
    },
    Value {
        name: &'static str,
        value: String,
        source: Box<Error>,
    },
    Time {
        name: String,
        text: String,
    },
    Cfg {
        source: BoxError,
    },
}

impl Refused {
    pub(crate) fn value(name: &'static str, value: &str, source: Error) -> Self {
        Refused::Value { name, value: value.to_owned(), source: Box::new(source) }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Both { first, second } => {
                write!(f, "the argument {first}= cannot be used with {second}=")
            }
            Refused::Value { name, value, source } => {
                write!(f, "invalid value '{value}' for {name}=: {source}")
            }
            Refused::Time { name, text } => write!(
                f,
                "invalid value '{text}' for {name}=: write a time of up to a year, such as 30, 200ms or 1h 30m"
            ),
            Refused::Cfg { source } => write!(f, "the functions cannot be sent: {source}"),
        }
    }
}

impl StdError for Refused {}

impl From<Refused> for PyErr {
    fn from(refused: Refused) -> Self {
        raised(PoolErrorClass::Any, refused.to_string())
    }
}

/// The classes of `gangline._errors` for errors that belong to no item.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PoolErrorClass {
    Any,
    Closed,
    Forked,
    NoWorkers,
    DeadlineExceeded,
    Full,
}

impl PoolErrorClass {
    fn of(error: &Error) -> Self {
        match error {
            Error::Closed { .. } | Error::Cancelled { .. } => PoolErrorClass::Closed,
            Error::Forked { .. } => PoolErrorClass::Forked,
            Error::DeadlineExceeded { .. } => PoolErrorClass::DeadlineExceeded,
            Error::ServiceEnded { .. } | Error::TooFewProducers { .. } => PoolErrorClass::NoWorkers,
            error if matches!(cluster_error(error), Some(ClusterError::NoWorkers { .. })) => {
                PoolErrorClass::NoWorkers
            }
            error if causes(error).any(|cause| failed_load(cause).is_some()) => {
                PoolErrorClass::NoWorkers
            }
            _ => PoolErrorClass::Any,
        }
    }

    fn name(self) -> &'static str {
        match self {
            PoolErrorClass::Any => "PoolError",
            PoolErrorClass::Closed => "Closed",
            PoolErrorClass::Forked => "Forked",
            PoolErrorClass::NoWorkers => "NoWorkers",
            PoolErrorClass::DeadlineExceeded => "DeadlineExceeded",
            PoolErrorClass::Full => "Full",
        }
    }
}

/// An exception of this class.
pub(crate) fn raised(class: PoolErrorClass, text: String) -> PyErr {
    Python::attach(|py| {
        let raised = || {
            let class = py.import("gangline._errors")?.getattr(class.name())?;
            PyResult::Ok(PyErr::from_value(class.call1((text,))?))
        };
        raised().unwrap_or_else(|error| error)
    })
}

/// The exception for an error that belongs to no item.
pub(crate) fn pool_failure(error: &Error) -> PyErr {
    pool_failure_in(None, error)
}

/// The exception for an error that belongs to no item, but to a stage of a pipeline.
pub(crate) fn pool_failure_in(stage: Option<&str>, error: &Error) -> PyErr {
    raised(PoolErrorClass::of(error), text_in(stage, text_of_pool(error)))
}

/// Says in which stage of a pipeline something happened, if it is one.
pub(crate) fn text_in(stage: Option<&str>, text: String) -> String {
    match stage {
        Some(stage) => format!("in {stage}: {text}"),
        None => text,
    }
}

/// The exception for a wait on a thread of the pool's workers.
pub(crate) fn own_thread() -> PyErr {
    raised(PoolErrorClass::Any, OWN_THREAD.to_owned())
}

const OWN_THREAD: &str = "a task on a thread of a pool must not wait for this pool";

/// Why no worker can go on, for a person.
fn text_of_pool(error: &Error) -> String {
    if let Some((worker, source)) = causes(error).find_map(failed_load) {
        return format!("load failed on worker {worker}: {}", text_of_source(source));
    }
    if let Some(ClusterError::NoWorkers { here, least, waited, refusals, .. }) =
        cluster_error(error)
    {
        let why = match &refusals[..] {
            [] => "start them by `gangline worker --nats ADDRESS --serve python`".to_owned(),
            refusals => refusals.join("; "),
        };
        let waited = HumanDuration(*waited);
        return format!(
            "{here} of at least {least} workers take part after a wait of {waited:#}: {why}"
        );
    }
    match error {
        Error::ServiceEnded { source, .. } => text_of_pool(source),
        Error::Closed { .. } => "the pool was closed".to_owned(),
        Error::DeadlineExceeded { limit, .. } => {
            format!("the call was not answered within {limit:?}")
        }
        Error::OwnThread { .. } => OWN_THREAD.to_owned(),
        Error::Cancelled { .. } => "the pool was ended".to_owned(),
        Error::Forked { built_in, .. } => {
            format!("this pool is of process {built_in}: make one in this process, a fork of it")
        }
        error => format!("{error:#}"),
    }
}

/// Why an item failed: the exception with its traceback, or what became of its worker.
pub(crate) fn text_of_item(error: &Error) -> String {
    match error {
        Error::HookFailed { source, .. } => text_of_source(source.as_ref()),
        Error::HookCrashed { source, .. } => format!("the worker died: {source}"),
        Error::TimedOut { limit, .. } => format!("the attempt took longer than {limit:?}"),
        Error::BatchFailed { source: Some(source), .. } => text_of_item(source),
        Error::PartFailed { source, .. } => text_of_item(source),
        Error::InputFailed { source, .. } => source.to_string(),
        error => format!("{error:#}"),
    }
}

/// Where an item of a pipeline failed: the stage or the expansion, and the part.
pub(crate) fn text_of_place(error: &Error, stage: &str) -> String {
    let expansion = causes(error).find_map(|cause| cause.downcast_ref::<ExpandFailed>());
    let name = expansion.map_or(stage, |failed| &failed.name);
    match error.part() {
        Some(part) => format!("{name}, part {part}"),
        None => name.to_owned(),
    }
}

/// How the exception of a task is found in the error of its item.
pub(crate) fn task_failed(error: &Error) -> Option<&TaskFailed> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

/// Whether an attempt failed since its worker, on another machine, is gone.
pub(crate) fn has_lost_its_worker(error: &Error) -> bool {
    matches!(cluster_error(error), Some(ClusterError::WorkerLost { .. }))
}

/// What is wrong with the workers on other machines, if that is the cause.
fn cluster_error(error: &Error) -> Option<&ClusterError> {
    match error {
        Error::Worker { source, .. } => match &**source {
            WorkerError::Backend { source, .. } => source.downcast_ref(),
            _ => None,
        },
        Error::ServiceEnded { source, .. } => cluster_error(source),
        error => causes(error).find_map(|cause| cause.downcast_ref()),
    }
}

/// The number of the stage of a pipeline, from 1, whose workers are lost.
pub(crate) fn lost_stage(error: &Error) -> Option<usize> {
    causes(error).find_map(|cause| match cause.downcast_ref()? {
        Error::HookFailed { site, .. }
        | Error::HookPanicked { site, .. }
        | Error::HookCrashed { site, .. }
        | Error::TimedOut { site, .. } => site.stage,
        _ => None,
    })
}

/// An error, what it was caused by, and so on.
fn causes<'a>(error: &'a Error) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    let first: &(dyn StdError + 'static) = error;
    std::iter::successors(Some(first), |&error| error.source())
}

/// The number of the worker, and the cause, if this is a failure of `load`.
fn failed_load<'a>(
    error: &'a (dyn StdError + 'static),
) -> Option<(usize, &'a (dyn StdError + 'static))> {
    let error = error.downcast_ref::<Error>()?;
    let (Some(Hook::ProducerInit), Some(worker)) = (error.hook(), error.producer()) else {
        return None;
    };
    Some((worker, error.source()?))
}

fn text_of_source(source: &(dyn StdError + 'static)) -> String {
    let task = std::iter::successors(Some(source), |&error| error.source())
        .find_map(|cause| cause.downcast_ref::<TaskFailed>());
    task.map_or_else(|| source.to_string(), |task| task.text.clone())
}

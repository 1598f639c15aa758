//! What the errors of other modules are as an [`Error`].

use gangline_report::ReportError;

use super::{BuildError, DeviceError, Error, JournalError, WorkerError};
use crate::concurrency::home_process::UsedInFork;
use crate::concurrency::spawn::SpawnError;

impl From<SpawnError> for Error {
    fn from(SpawnError { name, source }: SpawnError) -> Self {
        Error::Thread { name, source }
    }
}

impl From<UsedInFork> for Error {
    fn from(UsedInFork { home, here }: UsedInFork) -> Self {
        Error::Forked { built_in: home, here }
    }
}

impl From<WorkerError> for Error {
    fn from(source: WorkerError) -> Self {
        Error::Worker { source: Box::new(source) }
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

impl From<ReportError> for Error {
    fn from(ReportError { source, .. }: ReportError) -> Self {
        Error::Report { source }
    }
}

impl From<DeviceError> for Error {
    fn from(source: DeviceError) -> Self {
        Error::Devices { source }
    }
}

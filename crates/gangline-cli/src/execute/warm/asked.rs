//! A job that a warm worker is asked for, and why it has no answer.

use std::time::{Duration, SystemTime};

use crate::execute::job_runner::{Tried, Worked};
use crate::execute::list_failure::ListFailure;
use crate::output::outcome::{JobResult, Printed};
use crate::output::place::ResultPlace;
use crate::plan::job::Job;

/// A job that a worker is asked for.
pub(super) struct Asked<'a> {
    pub(super) job: &'a Job,
    pub(super) attempt: u32,
    pub(super) results: Option<ResultPlace>,
    pub(super) printed: Printed,
    pub(super) started: SystemTime,
    pub(super) took: Duration,
    /// What became of it, once that is known.
    pub(super) worked: Option<Worked>,
}

/// Why jobs have no answer.
pub(super) struct Broken {
    pub(super) result: JobResult,
    pub(super) whole: ListFailure,
}

impl<'a> Asked<'a> {
    pub(super) fn new(tried: &Tried<'a>) -> Asked<'a> {
        let &Tried { job, attempt } = tried;
        let (results, printed, took, worked) = Default::default();
        Asked { job, attempt, results, printed, started: SystemTime::now(), took, worked }
    }

    /// Whether it has not ended.
    pub(super) fn is_open(&self) -> bool {
        self.worked.is_none()
    }
}

//! State that all slots of a run share.

use std::collections::BTreeSet;
use std::env;
use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock};
use std::time::Duration;

use crate::args::halt::{HaltAction, Tally};
use crate::args::limit::{Durations, JobTimeout};
use crate::error::{CliError, Context};
use crate::execute::brake::Brake;
use crate::execute::groups::Groups;
use crate::execute::process::ProcessEnd;
use crate::exit;
use crate::locking::lock;
use crate::output::early_end::EarlyEnd;
use crate::output::joblog::JobLog;
use crate::output::outcome::{JobOutcome, JobResult, Printed};
use crate::output::place::ResultPlace;
use crate::output::results::ResultsTarget;
use crate::output::summary::Summary;
use crate::output::terminal::Terminal;
use crate::plan::rules::{Files, Rules};

/// Records of each job, and decisions that depend on other jobs.
#[derive(Debug)]
pub(crate) struct SharedRun {
    pub(crate) groups: Arc<Groups>,
    pub(crate) terminal: Terminal,
    pub(crate) joblog: Option<JobLog>,
    pub(crate) results: Option<ResultsTarget>,
    pub(crate) rules: Rules,
    pub(crate) brake: Brake,
    /// The number of jobs of the run, once it is known.
    pub(crate) total: OnceLock<u64>,
    /// The program of all jobs, once a job has found that it is not there.
    pub(crate) missing_program: OnceLock<OsString>,
    durations: Durations,
    state: Mutex<SharedState>,
}

#[derive(Debug, Default)]
struct SharedState {
    tally: Tally,
    /// The first failure that is not a job's.
    error: Option<CliError>,
    /// The jobs that were ended with the run, and the first one whose outcome has met `--halt`.
    ended: BTreeSet<u64>,
    halted_after: Option<u64>,
    /// Whether a warm worker was killed while it ended.
    has_cut_off_end: bool,
    /// The number of lanes that are counted, and of their jobs.
    counted_lanes: usize,
    counted_jobs: u64,
}

impl SharedRun {
    pub(crate) fn new(
        groups: Arc<Groups>,
        terminal: Terminal,
        joblog: Option<JobLog>,
        results: Option<ResultsTarget>,
        rules: Rules,
        brake: Brake,
    ) -> SharedRun {
        let (total, missing_program, durations, state) = Default::default();
        SharedRun {
            groups,
            terminal,
            joblog,
            results,
            rules,
            brake,
            total,
            missing_program,
            durations,
            state,
        }
    }

    /// The time limit of a job, if it is known yet.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.durations.limit(self.rules.timeout?)
    }

    /// Records the outcome of a job, and returns its effect on other jobs.
    pub(crate) fn record(&self, outcome: &JobOutcome) -> HaltAction {
        self.keep(outcome);
        self.count_outcome(outcome)
    }

    /// Counts the outcome of a job, and returns its effect on other jobs.
    pub(crate) fn count_outcome(&self, outcome: &JobOutcome) -> HaltAction {
        let mut state = lock(&self.state);
        match &outcome.result {
            result if result.is_ok() => state.tally.ok += 1,
            // The job did not cause it.
            JobResult::Ended(ProcessEnd::Halted) => {
                state.ended.insert(outcome.number);
                return HaltAction::GoOn;
            }
            JobResult::NoProgram(_) | JobResult::NoWorkerLeft => {
                return HaltAction::GoOn;
            }
            _ => state.tally.failed += 1,
        }
        let order = state.tally.order(self.rules.halt, self.total.get().copied());
        if order != HaltAction::GoOn {
            state.halted_after.get_or_insert(outcome.number);
        }
        drop(state);
        if outcome.result.is_ok() {
            self.durations.push(outcome.took);
            if matches!(self.rules.timeout, Some(JobTimeout::Medians(_))) {
                self.groups.ring();
            }
        }
        order
    }

    fn keep(&self, outcome: &JobOutcome) {
        let mut printed = lock(&outcome.printed);
        let logged = self.joblog.as_ref().map(|log| log.write(outcome, printed.received));
        let write = |place: &ResultPlace| {
            place.write(&Summary::of(outcome).text()?, [&printed.stdout, &printed.stderr])
        };
        let kept = outcome.results.as_ref().map(write);
        printed.are_results_lost = matches!(kept, Some(Err(_)));
        if self.rules.files == Files::Named {
            printed.file = self.file_of(outcome, &printed);
        }
        drop(printed);
        if let JobResult::NotKept(error) = &outcome.result {
            let (number, directory) = (outcome.number, env::temp_dir());
            let what =
                format!("the output of job {number} cannot be kept in {}", directory.display());
            self.fail_output(&what, io::Error::new(error.kind(), error.to_string()));
        }
        if let Some(Err(error)) = logged {
            self.fail_output("the log of jobs cannot be written", error);
        }
        if let Some(Err(error)) = kept {
            let what = format!("the results of job {} cannot be written", outcome.number);
            self.fail_output(&what, error);
        }
    }

    /// The file that has the standard output of a job: one of its results, or one of its own.
    fn file_of(&self, outcome: &JobOutcome, printed: &Printed) -> Option<PathBuf> {
        if let Some(place) = &outcome.results {
            return Some(place.stdout());
        }
        let written = tempfile::Builder::new()
            .prefix("gangline-")
            .suffix(".out")
            .tempfile()
            .and_then(|mut file| printed.stdout.write_to(&mut file).map(|()| file))
            .and_then(|file| file.keep().map_err(|error| error.error));
        match written {
            Ok((_, path)) => Some(path),
            Err(error) => {
                self.fail_output("the output of a job cannot be kept in a file", error);
                None
            }
        }
    }

    pub(crate) fn fail_output(&self, what: &str, error: io::Error) {
        let exit = match error.kind() {
            io::ErrorKind::BrokenPipe => exit::BROKEN_PIPE,
            _ => exit::OUTPUT,
        };
        self.fail(CliError::new(exit, Context::new(what, error)));
    }

    /// Flushes the results of jobs whose outputs are not printed yet.
    pub(crate) fn sync_unprinted(&self) -> io::Result<()> {
        self.results.as_ref().map_or(Ok(()), ResultsTarget::sync_unprinted)
    }

    /// A failure that is not a job's; the first one counts.
    pub(crate) fn fail(&self, error: CliError) {
        lock(&self.state).error.get_or_insert(error);
    }

    /// One of the lanes has this number of jobs.
    pub(crate) fn count(&self, jobs: u64, lanes: usize) {
        let mut state = lock(&self.state);
        state.counted_lanes += 1;
        state.counted_jobs += jobs;
        if state.counted_lanes == lanes {
            self.total.get_or_init(|| state.counted_jobs);
        }
    }

    /// Whether the outcomes of jobs have ended the run.
    pub(crate) fn is_halted(&self) -> bool {
        lock(&self.state).halted_after.is_some()
    }

    /// The jobs that were ended with the run, and what ended it.
    pub(crate) fn early_end(&self) -> EarlyEnd {
        let state = lock(&self.state);
        let halt = state.halted_after.map(|job| (self.rules.halt.to_string(), job));
        EarlyEnd { halt, ended: state.ended.clone() }
    }

    /// Records that a warm worker was killed while it ended.
    pub(crate) fn cut_off_end(&self) {
        lock(&self.state).has_cut_off_end = true;
    }

    pub(crate) fn has_cut_off_end(&self) -> bool {
        lock(&self.state).has_cut_off_end
    }

    pub(crate) fn has_failed(&self) -> bool {
        lock(&self.state).error.is_some()
    }

    pub(crate) fn take_error(&self) -> Option<CliError> {
        lock(&self.state).error.take()
    }

    pub(crate) fn tally(&self) -> Tally {
        lock(&self.state).tally
    }
}

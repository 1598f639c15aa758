//! State that all slots of a run share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use crate::args::halt::{Halt, Order, Tally};
use crate::args::limit::{Durations, Timeout};
use crate::error::{CliError, Context};
use crate::execute::groups::Groups;
use crate::execute::process::End;
use crate::exit;
use crate::output::joblog::JobLog;
use crate::output::outcome::{JobResult, Outcome};
use crate::output::results::Results;
use crate::output::terminal::Terminal;

/// Records of each job, and decisions that depend on other jobs.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) groups: Arc<Groups>,
    pub(crate) terminal: Terminal,
    pub(crate) joblog: Option<JobLog>,
    pub(crate) results: Option<Results>,
    pub(crate) rules: Rules,
    durations: Durations,
    state: Mutex<State>,
}

/// The user's settings for failures and times.
#[derive(Debug, Clone)]
pub(crate) struct Rules {
    pub(crate) retries: u32,
    pub(crate) retry_delay: Duration,
    pub(crate) timeout: Option<Timeout>,
    pub(crate) kill_after: Duration,
    pub(crate) max_output: Option<u64>,
    pub(crate) halt: Halt,
    pub(crate) showing: Output,
}

/// When a job's output is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Output {
    /// Complete, when its turn comes.
    Whole,
    /// Line by line, as it arrives.
    Lines,
}

#[derive(Debug, Default)]
struct State {
    tally: Tally,
    /// The first failure that is not a job's.
    error: Option<CliError>,
    is_halted: bool,
}

impl Shared {
    pub(crate) fn new(
        groups: Arc<Groups>,
        terminal: Terminal,
        joblog: Option<JobLog>,
        results: Option<Results>,
        rules: Rules,
    ) -> Shared {
        let (durations, state) = Default::default();
        Shared { groups, terminal, joblog, results, rules, durations, state }
    }

    /// The time limit of a job, if it is known yet.
    pub(crate) fn limit(&self) -> Option<Duration> {
        self.durations.limit(self.rules.timeout?)
    }

    /// Records the outcome of a job, and returns its effect on other jobs.
    pub(crate) fn record(&self, outcome: &Outcome) -> Order {
        self.keep(outcome);
        let mut state = self.state();
        match &outcome.result {
            result if result.is_ok() => state.tally.ok += 1,
            // The job did not cause it.
            JobResult::Ended(End::Halted) => return Order::GoOn,
            _ => state.tally.failed += 1,
        }
        let order = state.tally.order(self.rules.halt);
        drop(state);
        if outcome.result.is_ok() {
            self.durations.push(outcome.took);
            if matches!(self.rules.timeout, Some(Timeout::Medians(_))) {
                self.groups.ring();
            }
            return Order::GoOn;
        }
        order
    }

    fn keep(&self, outcome: &Outcome) {
        let printed = outcome.printed.lock().expect("nothing panics with the lock held");
        let logged = self.joblog.as_ref().map(|log| log.write(outcome, printed.received));
        let kept = self.results.as_ref().map(|results| results.write(outcome, &printed));
        drop(printed);
        if let Some(Err(error)) = logged {
            self.fail_output("the log of jobs cannot be written", error);
        }
        if let Some(Err(error)) = kept {
            self.fail_output("the results of a job cannot be written", error);
        }
    }

    pub(crate) fn fail_output(&self, what: &str, error: io::Error) {
        let exit = match error.kind() {
            io::ErrorKind::BrokenPipe => exit::BROKEN_PIPE,
            _ => exit::OUTPUT,
        };
        self.fail(CliError::new(exit, Context::new(what, error)));
    }

    /// A failure that is not a job's; the first one counts.
    pub(crate) fn fail(&self, error: CliError) {
        self.state().error.get_or_insert(error);
    }

    /// Failures have ended the run.
    pub(crate) fn halt(&self) {
        self.state().is_halted = true;
    }

    pub(crate) fn is_halted(&self) -> bool {
        self.state().is_halted
    }

    pub(crate) fn has_failed(&self) -> bool {
        self.state().error.is_some()
    }

    pub(crate) fn take_error(&self) -> Option<CliError> {
        self.state().error.take()
    }

    pub(crate) fn tally(&self) -> Tally {
        self.state().tally
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with the lock held")
    }
}

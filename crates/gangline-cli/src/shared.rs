//! State that all slots of a run share.

use std::io;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use super::error::{CliError, Context};
use super::exit;
use super::groups::Groups;
use super::halt::{Halt, Order, Tally};
use super::joblog::JobLog;
use super::limit::{Durations, Timeout};
use super::outcome::{JobResult, Outcome};
use super::process::End;
use super::results::Results;
use super::terminal::Terminal;

/// Records of each job, and decisions that depend on other jobs.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) groups: Arc<Groups>,
    pub(super) terminal: Terminal,
    pub(super) joblog: Option<JobLog>,
    pub(super) results: Option<Results>,
    pub(super) rules: Rules,
    durations: Durations,
    state: Mutex<State>,
}

/// The user's settings for failures and times.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    pub(super) retries: u32,
    pub(super) retry_delay: Duration,
    pub(super) timeout: Option<Timeout>,
    pub(super) kill_after: Duration,
    pub(super) max_output: Option<u64>,
    pub(super) halt: Halt,
    pub(super) showing: Output,
}

/// When a job's output is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Output {
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
    pub(super) fn new(
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
    pub(super) fn limit(&self) -> Option<Duration> {
        self.durations.limit(self.rules.timeout?)
    }

    /// Records the outcome of a job, and returns its effect on other jobs.
    pub(super) fn record(&self, outcome: &Outcome) -> Order {
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

    pub(super) fn fail_output(&self, what: &str, error: io::Error) {
        let exit = match error.kind() {
            io::ErrorKind::BrokenPipe => exit::BROKEN_PIPE,
            _ => exit::OUTPUT,
        };
        self.fail(CliError::new(exit, Context::new(what, error)));
    }

    /// A failure that is not a job's; the first one counts.
    pub(super) fn fail(&self, error: CliError) {
        self.state().error.get_or_insert(error);
    }

    /// Failures have ended the run.
    pub(super) fn halt(&self) {
        self.state().is_halted = true;
    }

    pub(super) fn is_halted(&self) -> bool {
        self.state().is_halted
    }

    pub(super) fn has_failed(&self) -> bool {
        self.state().error.is_some()
    }

    pub(super) fn take_error(&self) -> Option<CliError> {
        self.state().error.take()
    }

    pub(super) fn tally(&self) -> Tally {
        self.state().tally
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("nothing panics with the lock held")
    }
}

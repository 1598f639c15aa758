//! A run: what was typed, resolved into what is done.

use std::env;
use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use crate::args::cluster::ClusterArgs;
use crate::args::list_size::ListSize;
use crate::args::printing::RecordFields;
use crate::args::warm::WarmWorkers;
use crate::args::{LockArgs, RunArgs};
use crate::broker;
use crate::error::{CliError, Context};
use crate::exit;
use crate::output::joblog::Existing;
use crate::output::terminal::{FailureMessages, OnTerminal};
use crate::plan::job::Needs;
use crate::plan::rules::{Output, Rules, StartLimits};
use crate::plan::slot::Showing;
use crate::plan::template::quoted;
use gangline::{CfgNode, Journal, Order};

/// What a run does with the jobs of its lanes.
#[derive(Debug)]
pub(crate) struct JobRun {
    /// The words of the command, quoted for a shell.
    pub(crate) command: Vec<String>,
    pub(crate) rules: Rules,
    pub(crate) limits: StartLimits,
    /// The number of attempts after the first.
    pub(crate) retries: u32,
    /// The time that running jobs have after SIGTERM.
    pub(crate) grace: Duration,
    pub(crate) order: Order,
    /// The number of outputs that may wait for an earlier job's.
    pub(crate) window: usize,
    /// Set if inputs go to warm workers.
    pub(crate) warm: Option<WarmWorkers>,
    /// Set if jobs run on the workers of a cluster.
    pub(crate) cluster: Option<ClusterRun>,
    pub(crate) locks: LockArgs,
    pub(crate) earlier: EarlierRun,
    pub(crate) journal: Option<JournalRun>,
    pub(crate) joblog: Option<PathBuf>,
    pub(crate) results: Option<PathBuf>,
    pub(crate) reports: Vec<PathBuf>,
    pub(crate) records: Option<RecordFields>,
    pub(crate) progress: ProgressShown,
    pub(crate) on_terminal: OnTerminal,
    pub(crate) failures: FailureMessages,
}

/// What is done with the jobs that an earlier run has recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EarlierRun {
    /// Records are new.
    None,
    /// Those that are done are skipped.
    Resumed,
    /// Those that failed run again, by the journal.
    Failed,
    /// The same, by the log.
    FailedByLog,
}

/// The journal of a run.
#[derive(Debug)]
pub(crate) struct JournalRun {
    path: PathBuf,
    /// Whether the run goes on if the file system has no locks.
    is_unlockable: bool,
    /// The settings that must match for it to be resumed.
    pub(crate) decides: CfgNode,
}

/// The cluster of a run, and what its jobs take along.
#[derive(Debug)]
#[cfg_attr(
    not(feature = "nats"),
    expect(dead_code, reason = "a build without a client refuses it")
)]
pub(crate) struct ClusterRun {
    /// The address of the broker.
    pub(crate) url: String,
    pub(crate) lease: Duration,
    pub(crate) wait_for: Duration,
    /// Where relative paths begin.
    pub(crate) folder: PathBuf,
    /// The names of the variables that jobs get.
    pub(crate) variables: Vec<OsString>,
    pub(crate) showing: Showing,
}

/// What standard error shows of the progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProgressShown {
    None,
    /// One line.
    Line,
    /// The current job of each slot too.
    Bar,
}

/// The default number of outputs that may wait for an earlier job's. A job that takes hundreds of times as
/// long as the others then keeps no slot idle.
const WINDOW: usize = 1_000;

impl JobRun {
    pub(crate) fn new(args: &RunArgs) -> Result<JobRun, CliError> {
        let RunArgs { placement, output, failure, record, printing, warm, .. } = args;
        let rules = Rules::of(args);
        let is_whole = rules.showing == Output::Whole;
        let order = match rules.showing == Output::LinesInOrder || is_whole && !output.no_keep_order
        {
            true => Order::Input,
            false => Order::Completion,
        };
        // A job that printed itself would print these characters too.
        let is_raw = output.raw || rules.showing == Output::Relayed;
        let command = args.command_words().iter().map(|word| quoted(word));
        let command: Vec<String> = command.collect();
        Ok(JobRun {
            journal: JournalRun::of(args, &command)?,
            command,
            rules,
            limits: StartLimits::of(args),
            retries: failure.retries,
            grace: failure.grace,
            order,
            window: output.window.unwrap_or(WINDOW),
            warm: warm.warm.then(|| warm.workers.clone()),
            cluster: ClusterRun::of(args)?,
            locks: placement.locks.clone(),
            earlier: match (record.resume, record.resume_failed, record.retry_failed) {
                (true, ..) => EarlierRun::Resumed,
                (_, true, _) => EarlierRun::Failed,
                (.., true) => EarlierRun::FailedByLog,
                _ => EarlierRun::None,
            },
            joblog: record.joblog.clone(),
            results: output.results.clone(),
            reports: record.report.clone(),
            records: printing.records,
            progress: match (record.bar, record.eta) {
                (true, _) => ProgressShown::Bar,
                (false, true) => ProgressShown::Line,
                (false, false) => ProgressShown::None,
            },
            on_terminal: if is_raw { OnTerminal::Raw } else { OnTerminal::Escape },
            failures: if printing.quiet { FailureMessages::Quiet } else { FailureMessages::Shown },
        })
    }

    /// The largest list, if jobs are sent in lists.
    pub(crate) fn batch(&self) -> Option<ListSize> {
        self.warm.as_ref()?.batch
    }

    /// Whether records of an earlier run are continued.
    pub(crate) fn existing(&self) -> Existing {
        if self.earlier == EarlierRun::None { Existing::Replace } else { Existing::GoOn }
    }

    /// Whether the number of all jobs is shown, or decides about the end of the run.
    pub(crate) fn needs_total(&self) -> bool {
        self.progress != ProgressShown::None || self.rules.halt.needs_total()
    }
}

impl ClusterRun {
    fn of(args: &RunArgs) -> Result<Option<ClusterRun>, CliError> {
        let Some(nats) = &args.cluster.nats else { return Ok(None) };
        if !cfg!(feature = "nats") {
            let text = "--nats needs the feature `nats`, without which this program was compiled";
            return Err(CliError::new(exit::USAGE, text));
        }
        let url = broker::of_run(nats)?;
        let unknown =
            |error| CliError::new(exit::USAGE, Context::new("this folder has no name", error));
        let folder = env::current_dir().map_err(unknown)?;
        let ClusterArgs { env: variables, lease, wait_for, .. } = &args.cluster;
        let (variables, showing) = (variables.clone(), Showing::of(&args.placement));
        let (lease, wait_for) = (*lease, *wait_for);
        Ok(Some(ClusterRun { url, lease, wait_for, folder, variables, showing }))
    }
}

impl JournalRun {
    fn of(args: &RunArgs, command: &[String]) -> Result<Option<JournalRun>, CliError> {
        let Some(path) = args.record.journal.clone() else { return Ok(None) };
        let mut cfg = CfgNode::new()
            .with("command", command)
            .and_then(|cfg| cfg.with("shell", args.inputs.shell))
            .and_then(|cfg| cfg.with("warm", args.warm.warm));
        for (name, value) in args.inputs.effects_on_commands() {
            cfg = cfg.and_then(|cfg| cfg.with(name, value));
        }
        let decides = cfg.map_err(|error| CliError::new(exit::INTERNAL, error))?;
        Ok(Some(JournalRun { path, is_unlockable: args.record.no_journal_lock, decides }))
    }

    /// The file of a lane: it has one writer, so jobs without a GPU have their own.
    pub(crate) fn path(&self, needs: Needs) -> PathBuf {
        let mut path = self.path.as_os_str().to_owned();
        if needs == Needs::NoGpu {
            path.push(".no-gpu");
        }
        path.into()
    }

    /// The journal of a lane, for the library.
    pub(crate) fn of_lane(&self, needs: Needs, earlier: EarlierRun) -> Journal {
        let journal = Journal::at(self.path(needs)).runner("gangline run", "1");
        let journal = if self.is_unlockable { journal.unlockable() } else { journal };
        match earlier {
            EarlierRun::Resumed => journal.resume(),
            EarlierRun::Failed => journal.rerun_failed(),
            EarlierRun::None | EarlierRun::FailedByLog => journal,
        }
    }
}

//! What holds for each job of a run: failures and times, and what is printed.

use std::path::PathBuf;
use std::time::Duration;

use crate::args::RunArgs;
use crate::args::halt::Halt;
use crate::args::limit::JobTimeout;
use crate::args::running::{Running, TermSequence};
use crate::args::workers::Workers;
use crate::output::stdio;

/// The rules for all jobs of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Rules {
    pub(crate) retry_delay: Duration,
    pub(crate) timeout: Option<JobTimeout>,
    /// How a job is ended.
    pub(crate) ending: TermSequence,
    pub(crate) nice: Option<i32>,
    pub(crate) max_output: Option<u64>,
    pub(crate) halt: Halt,
    pub(crate) showing: Output,
    pub(crate) commands: Announced,
    pub(crate) files: Files,
}

/// When a job's output is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Output {
    /// Complete, when its turn comes.
    #[default]
    Whole,
    /// Line by line, as it arrives.
    Lines,
    /// Line by line once the outputs of all jobs before it are complete.
    LinesInOrder,
    /// The job itself prints.
    Direct,
    /// This process prints it as it arrives. A job that printed to a non-blocking stream itself would lose output.
    Relayed,
}

/// Whether the command of a job is printed when it starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Announced {
    Yes,
    #[default]
    No,
}

/// Whether the name of a file with the standard output of a job is printed in its place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Files {
    Named,
    #[default]
    None,
}

/// The user's limits on starts.
#[derive(Debug, Clone, Default)]
pub(crate) struct StartLimits {
    pub(crate) delay: Duration,
    /// The number of running processes of the machine from which on no job starts.
    pub(crate) load: Option<f64>,
    /// The number of bytes of memory below which no job starts.
    pub(crate) memfree: Option<u64>,
    /// The file that has the available memory, if it is not the system's.
    pub(crate) meminfo: Option<PathBuf>,
    /// A file with the number of jobs at once.
    pub(crate) jobs: Option<PathBuf>,
}

impl Rules {
    pub(super) fn of(RunArgs { running, output, failure, printing, .. }: &RunArgs) -> Rules {
        let pause = || TermSequence::with_pause(failure.kill_after);
        let showing = match (printing.ungroup, output.line_buffer, output.keep_order) {
            (true, ..) if stdio::are_blocking() => Output::Direct,
            (true, ..) => Output::Relayed,
            (_, true, true) => Output::LinesInOrder,
            (_, true, false) => Output::Lines,
            (_, false, _) => Output::Whole,
        };
        Rules {
            retry_delay: failure.retry_delay,
            timeout: failure.timeout,
            ending: running.termseq.clone().unwrap_or_else(pause),
            nice: running.nice,
            max_output: output.max_output,
            halt: failure.halt,
            showing,
            commands: if printing.verbose { Announced::Yes } else { Announced::No },
            files: if printing.files { Files::Named } else { Files::None },
        }
    }
}

impl Output {
    /// Whether a job may print before it has ended.
    pub(crate) fn is_early(self) -> bool {
        self != Output::Whole
    }
}

impl StartLimits {
    pub(super) fn of(RunArgs { running, placement, .. }: &RunArgs) -> StartLimits {
        let Running { delay, load, memfree, .. } = *running;
        let jobs = match &placement.workers {
            Some(Workers::File(path)) => Some(path.clone()),
            Some(Workers::Number(_)) | None => None,
        };
        StartLimits { delay, load, memfree, meminfo: running.meminfo.clone(), jobs }
    }
}

//! The options of warm workers.

use std::time::Duration;

use clap::{ArgAction, Args, Command};

use crate::args::limit::duration;
use crate::args::list_size::ListSize;
use crate::args::number::{at_least_one, unsigned};

/// The options of `gangline run` for warm workers.
#[derive(Debug, Args)]
#[command(next_help_heading = "Warm workers")]
pub(crate) struct WarmArgs {
    /// Start COMMAND once for each slot, and send it a line of JSON for each input
    #[arg(long, action = ArgAction::SetTrue, conflicts_with_all = ["shell", "job_file", "line_buffer"])]
    pub(crate) warm: bool,
    #[command(flatten)]
    pub(crate) workers: WarmWorkers,
}

/// How warm workers are started and ended, and what they are sent.
#[derive(Debug, Clone, Args)]
pub(crate) struct WarmWorkers {
    /// Start all workers before the first job, and not each for its first
    #[arg(long, action = ArgAction::SetTrue, requires = "warm")]
    pub(crate) preload: bool,
    /// Send up to N inputs at once, as a list, to a worker that takes lists; auto chooses the number
    #[arg(long, value_name = "N|auto", requires = "warm")]
    pub(crate) batch: Option<ListSize>,
    /// Wait TIME at most for a list to be full
    #[arg(long, value_name = "TIME", default_value = "5ms", value_parser = duration, requires = "batch")]
    pub(crate) batch_wait: Duration,
    #[command(flatten)]
    pub(crate) times: WorkerTimes,
    /// Restart a worker at most N times without a result in between
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = unsigned::<u32>, requires = "warm")]
    pub(crate) max_restarts: u32,
}

/// The options of each command that starts warm workers: `run`, `serve` and `check`.
#[derive(Debug, Clone, Args)]
pub(crate) struct WorkerTimes {
    /// Let the libraries of each worker use N threads [default: the cores divided by the workers, unless OMP_NUM_THREADS is set]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) threads: Option<usize>,
    /// Wait TIME at most until a worker is ready
    #[arg(long, value_name = "TIME", default_value = "5m", value_parser = duration)]
    pub(crate) start_timeout: Duration,
    /// Wait TIME at most until a worker has ended after its last input
    #[arg(long, value_name = "TIME", default_value = "30s", value_parser = duration)]
    pub(crate) end_timeout: Duration,
}

impl WorkerTimes {
    /// Makes these options of `gangline run` need `--warm`. Workers of the other commands are always warm.
    pub(crate) fn of_warm(run: Command) -> Command {
        ["threads", "start_timeout", "end_timeout"]
            .into_iter()
            .fold(run, |run, option| run.mut_arg(option, |arg| arg.requires("warm")))
    }
}

//! The arguments of `gangline check`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Args};

use crate::args::device_names::DeviceNames;
use crate::args::limit::{JobTimeout, time_limit};
use crate::args::list_size::ListSize;
use crate::args::number::at_least_one;
use crate::args::warm::WorkerTimes;
use crate::args::workers::{WorkerCount, Workers};
use crate::args::{RunArgs, Subcommands, parse, sections};
use gangline::gpu::GpuList;

/// Check that a worker answers in lists as it answers alone
#[derive(Debug, Args)]
#[command(after_long_help = sections::CHECK)]
#[command(override_usage = "gangline check [OPTIONS] [--] COMMAND... [::: SAMPLE...]")]
pub(crate) struct CheckArgs {
    /// The command of the worker; samples may follow after ::: or, as files, after ::::
    #[arg(value_name = "COMMAND", required = true, trailing_var_arg = true)]
    #[arg(value_parser = clap::value_parser!(OsString))]
    pub(crate) command: Vec<OsString>,
    /// Check a worker on each of these devices, one after the other: cuda:all, cuda:0-3, cuda:0+cuda:1, cpu [default: cpu]
    #[arg(long, value_name = "DEVICES", conflicts_with = "gpu_list")]
    pub(crate) devices: Option<DeviceNames>,
    /// Check a worker on each of these GPUs: all, "0 1", 0-3
    #[arg(long, value_name = "LIST")]
    pub(crate) gpu_list: Option<GpuList>,
    /// Check lists of up to N samples [default: 32]
    #[arg(long, value_name = "N", value_parser = at_least_one)]
    pub(crate) batch: Option<usize>,
    /// Take numbers as equal if they differ by at most T, or by that share of the larger one
    #[arg(long, value_name = "T", default_value = "0.0001", value_parser = tolerance)]
    pub(crate) tolerance: f64,
    /// Print the result as JSON: docs/check.schema.json describes it
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) json: bool,
    /// Read one sample from each line of FILE
    #[arg(short = 'a', long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Take each sample as a JSON value, which the worker gets as it is
    #[arg(long, action = ArgAction::SetTrue, conflicts_with_all = ["csv", "tsv"])]
    pub(crate) jsonl: bool,
    /// Read samples from the columns of FILE, commas between them
    #[arg(long, value_name = "FILE", conflicts_with = "input")]
    pub(crate) csv: Option<PathBuf>,
    /// Read samples from the columns of FILE, tabs between them
    #[arg(long, value_name = "FILE", conflicts_with_all = ["input", "csv"])]
    pub(crate) tsv: Option<PathBuf>,
    /// End a worker that takes longer than TIME, as in 30s, for a list [default: no limit]
    #[arg(long, value_name = "TIME", value_parser = time_limit)]
    pub(crate) timeout: Option<Duration>,
    #[command(flatten)]
    pub(crate) times: WorkerTimes,
}

/// The size of the largest list, unless it is given.
const MOST: usize = 32;

impl CheckArgs {
    /// The size of the largest list.
    pub(crate) fn most(&self) -> usize {
        self.batch.unwrap_or(MOST)
    }

    /// `gangline run --warm` with these options: the worker of a check is that of a run.
    pub(crate) fn run(&self) -> Result<RunArgs, clap::Error> {
        let words = ["gangline", "run", "--warm", "--preload", "--"].map(OsString::from);
        let words = [words.to_vec(), self.command.clone()].concat();
        let Subcommands::Run(run) = parse(&words)?.command else {
            unreachable!("the first word names the subcommand")
        };
        let mut run = *run;
        run.placement.devices.clone_from(&self.devices);
        run.placement.gpu_list.clone_from(&self.gpu_list);
        if self.devices.is_none() && self.gpu_list.is_none() {
            run.placement.workers = Some(Workers::Number(WorkerCount::Number(1)));
        }
        run.inputs.input = self.input.iter().cloned().collect();
        run.inputs.csv.clone_from(&self.csv);
        run.inputs.tsv.clone_from(&self.tsv);
        run.inputs.jsonl = self.jsonl;
        run.failure.timeout = self.timeout.map(JobTimeout::After);
        run.warm.workers.batch = Some(ListSize::AtMost(self.most()));
        run.warm.workers.times.clone_from(&self.times);
        Ok(run)
    }
}

fn tolerance(text: &str) -> Result<f64, &'static str> {
    let number = text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
    number.ok_or("write a number from 0, as in 0.001 or 1e-3")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tolerance_is_a_number_from_0() {
        assert_eq!(tolerance("1e-3"), Ok(0.001));
        assert_eq!(tolerance("0"), Ok(0.0));
        for text in ["-1", "nan", "inf", "", "1%"] {
            assert!(tolerance(text).is_err(), "{text}");
        }
    }
}

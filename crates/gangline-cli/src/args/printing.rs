//! Options for what is printed beside the outputs of jobs, and how.

use std::ffi::OsString;

use clap::{ArgAction, Args, ValueEnum};

#[derive(Debug, Args)]
#[command(next_help_heading = "Output")]
pub(crate) struct Printing {
    /// Put the input and a tab before each line of a job's output
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "tagstring")]
    pub(crate) tag: bool,
    /// Put TEXT, which may have marks, and a tab before each line of a job's output
    #[arg(long, alias = "tag-string", value_name = "TEXT")]
    pub(crate) tagstring: Option<OsString>,
    /// Let jobs write to the terminal directly: outputs may mix
    #[arg(
        short = 'u',
        long,
        action = ArgAction::SetTrue,
        conflicts_with_all = [
            "keep_order", "line_buffer", "results", "files", "tag", "tagstring", "max_output", "warm", "records"
        ]
    )]
    pub(crate) ungroup: bool,
    /// Print the command of each job on standard error when it starts
    #[arg(short = 't', long, action = ArgAction::SetTrue)]
    pub(crate) verbose: bool,
    /// Print no messages about jobs that fail or are tried again
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) quiet: bool,
    /// Keep the standard output of each job in a file, and print its name instead
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "line_buffer")]
    pub(crate) files: bool,
    /// Print a line of JSON for each job, with its input, and its output or error
    #[arg(long, value_name = "FIELDS", value_enum, num_args = 0..=1, require_equals = true, default_missing_value = "all")]
    #[arg(conflicts_with_all = ["files", "line_buffer", "tag", "tagstring"])]
    pub(crate) records: Option<RecordFields>,
}

/// What a record has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum RecordFields {
    All,
    /// All but the input and the key, which the reader may know by the number of the job
    Outcome,
}

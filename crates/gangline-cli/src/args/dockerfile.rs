//! The arguments of `gangline dockerfile`.

use std::path::PathBuf;

use clap::{ArgAction, Args};

use crate::args::list_size::ListSize;
use crate::args::sections;

/// Print a Dockerfile for a worker in Python
#[derive(Debug, Args)]
#[command(after_long_help = sections::DOCKERFILE)]
#[command(override_usage = "gangline dockerfile [OPTIONS] SCRIPT.py [FILE...]")]
pub(crate) struct DockerfileArgs {
    /// The script of the worker, in this folder or below
    #[arg(value_name = "SCRIPT.py")]
    pub(crate) script: PathBuf,
    /// Files and folders that it needs, such as its model; they keep their places
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Answer HTTP requests on port 8080, with `gangline serve` [default]
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "run")]
    pub(crate) serve: bool,
    /// Read inputs from standard input, with `gangline run --warm`
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) run: bool,
    /// Use a GPU: start the container with --gpus all
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) gpu: bool,
    /// Send the worker up to N inputs at once; auto chooses the number
    #[arg(long, value_name = "N|auto")]
    pub(crate) batch: Option<ListSize>,
    /// Print the .dockerignore instead, which leaves everything else out of the build
    #[arg(long, action = ArgAction::SetTrue, conflicts_with = "write")]
    pub(crate) ignore: bool,
    /// Write Dockerfile and .dockerignore here; a file that is there already is an error
    #[arg(long, action = ArgAction::SetTrue)]
    pub(crate) write: bool,
}

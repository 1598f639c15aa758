//! A process that serves drivers on other machines.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use gangline::Devices;
use gangline::process::Processes;
use pyo3::prelude::*;

use crate::threads::Threads;
use crate::{runner, stage};

/// Becomes a worker of a cluster if the environment says so, and never returns then. `program` and its arguments start a
/// child of it, for each of its devices.
pub(crate) fn serve(py: Python<'_>, program: OsString, arguments: Vec<OsString>) {
    let recipes: [&dyn gangline_nats::ClusterRecipe; 2] = [runner::recipe(py), stage::recipe(py)];
    py.detach(|| {
        let mut processes = Processes::new()
            .program(program)
            .args(arguments)
            .max_frame(u32::MAX)
            // Functions do not ask whether their driver still waits.
            .kill_after(Duration::from_secs(1))
            .printed(|_, bytes| _ = std::io::stderr().write_all(bytes));
        for (name, value) in Threads::of(None, workers()).variables {
            processes = processes.env(name, value);
        }
        gangline_nats::worker_main_with(processes, &recipes);
    });
}

/// The number of workers in this process's share of its machine. If the list is wrong, the worker says so.
fn workers() -> usize {
    let devices = std::env::var("GANGLINE_DEVICES").ok().filter(|list| !list.is_empty());
    let devices = devices.map_or_else(|| Ok(Devices::available()), |list| list.parse());
    devices.map_or(1, |devices| devices.len())
}

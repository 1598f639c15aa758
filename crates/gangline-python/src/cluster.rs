//! Workers on other machines: the option `nats` of a pool, and a process that serves them.

use std::ffi::OsString;
use std::io::Write;
use std::time::Duration;

use gangline::Devices;
use gangline::process::Processes;
use gangline_nats::Nats;
use pyo3::prelude::*;

use crate::errors::Refused;
use crate::options::{Threads, read_time};
use crate::runner;
use crate::stage;

/// The workers of a broker, as the package's Python has checked the option. Times are texts.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct ClusterOption {
    url: String,
    credentials: Option<OsString>,
    root_certificates: Option<OsString>,
    is_insecure: bool,
    namespace: String,
    pub(crate) max_workers: usize,
    wait_for: Option<String>,
    lease_time: Option<String>,
}

impl ClusterOption {
    /// The same for the library. A pool begins with this number of workers.
    pub(crate) fn nats(&self, min_workers: Option<usize>) -> Result<Nats, Refused> {
        let nats = Nats::connect(&self.url)
            .namespace(&self.namespace)
            .max_workers(self.max_workers)
            .min_workers(min_workers.unwrap_or(1));
        let nats = match &self.credentials {
            Some(path) => nats.credentials(path),
            None => nats,
        };
        let nats = match &self.root_certificates {
            Some(path) => nats.root_certificates(path),
            None => nats,
        };
        let nats = if self.is_insecure { nats.insecure() } else { nats };
        let time = |name, text: &Option<String>| {
            text.as_deref().map(|text| read_time(name, text)).transpose()
        };
        let set = |nats, time: Option<Duration>, setter: fn(Nats, Duration) -> Nats| match time {
            Some(time) => setter(nats, time),
            None => nats,
        };
        let nats = set(nats, time("wait_for", &self.wait_for)?, Nats::wait_for);
        Ok(set(nats, time("lease_time", &self.lease_time)?, Nats::lease_time))
    }
}

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

//! The module `gangline._native`: Python functions as runners of the library.
//!
//! Its classes have few methods and no policy. What they return is pickled values, and records as tuples; the
//! package's Python makes values and records of them.
#![cfg(target_os = "linux")]

mod answer;
mod calls;
mod cluster;
mod cluster_worker;
mod default_window;
mod errors;
mod expansion;
mod failure;
mod item;
mod line;
mod messages;
mod objects;
mod options;
mod outcome;
mod outcome_queue;
mod pipeline;
mod pool;
mod prints;
mod recorded_stage;
mod report;
mod run;
mod run_input;
mod runner;
mod setup;
mod shared;
mod stage;
mod stream;
mod threads;
mod times;
mod value;
mod wait;
mod yaml;

use std::ffi::OsString;
use std::sync::{Mutex, MutexGuard};

use pyo3::prelude::*;

/// The native part of the package `gangline`.
#[pymodule(gil_used = false)]
mod _native {
    use super::*;
    #[pymodule_export]
    use crate::calls::NativeCalls;
    #[pymodule_export]
    use crate::objects::NativeObjects;
    #[pymodule_export]
    use crate::pipeline::NativePipeline;
    #[pymodule_export]
    use crate::pool::NativePool;
    #[pymodule_export]
    use crate::prints::NativePrints;
    #[pymodule_export]
    use crate::report::NativeReport;
    #[pymodule_export]
    use crate::run::NativeRun;
    #[pymodule_export]
    use crate::stream::NativeStream;

    /// Reads a YAML 1.1 text, whose top is a node, as PyYAML does.
    #[pyfunction]
    fn read_yaml(text: &str) -> PyResult<Py<PyAny>> {
        yaml::read(text)
    }

    /// Writes a dictionary of plain values as YAML.
    #[pyfunction]
    fn write_yaml(value: Bound<'_, PyAny>) -> PyResult<String> {
        yaml::write(&value)
    }

    /// Returns the seconds of a time such as `50ms`. An error names the argument that had it.
    #[pyfunction]
    fn read_time(argument: &str, text: &str) -> PyResult<f64> {
        Ok(times::read_time(argument, text)?.as_secs_f64())
    }

    /// Serves the pool that has started this process as a worker. Returns at once in any other process.
    #[pyfunction]
    fn worker_main(py: Python<'_>) {
        let (pools, stages) = (runner::recipe(py), stage::recipe(py));
        py.detach(|| gangline::worker_main(&[pools, stages]));
    }

    /// Serves the broker that the environment names. Returns at once if it names none. The program with these arguments is
    /// started for each device of this worker.
    #[pyfunction]
    fn worker_of_cluster(py: Python<'_>, program: OsString, arguments: Vec<OsString>) {
        cluster_worker::serve(py, program, arguments);
    }
}

/// Takes a lock of ours. Nothing of the user's runs under it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().expect("nothing panics under this lock")
}

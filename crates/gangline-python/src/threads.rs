//! The number of threads that the libraries of a worker use.

use std::env;

/// The threads that the libraries of a worker may use.
pub(crate) struct Threads {
    pub(crate) count: u64,
    /// The variables that the environment of the workers lacks.
    pub(crate) variables: Vec<(&'static str, String)>,
}

impl Threads {
    /// The number that was given, or that of the environment, or a worker's share of the cores.
    pub(crate) fn of(given: Option<usize>, workers: usize) -> Self {
        let set = |name: &&str| env::var_os(name).is_none() || given.is_some();
        let share = || (num_cpus::get() / workers.max(1)).max(1);
        let count = given.or_else(threads_of_environment).unwrap_or_else(share);
        let variables = THREAD_VARIABLES.iter().copied().filter(set);
        Threads {
            count: count as u64,
            variables: variables.map(|name| (name, count.to_string())).collect(),
        }
    }
}

/// The variables that set the number of threads of a library. Most libraries read the first if their own is not set.
const THREAD_VARIABLES: [&str; 4] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"];

/// The number of threads that the user has set, of the outermost level: of `4` or `4,2`.
fn threads_of_environment() -> Option<usize> {
    let value = env::var(THREAD_VARIABLES[0]).ok()?;
    value.split(',').next()?.trim().parse().ok().filter(|threads| *threads > 0)
}

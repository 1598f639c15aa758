//! The number of threads of a warm worker.

use std::env;
use std::ffi::OsString;
use std::process::Command;

/// Limits the threads of a worker's libraries, which otherwise take all cores in each worker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Threads {
    /// The number of `--threads`, which overrides the environment.
    Given(usize),
    /// Each worker's share of the cores, unless the user has set a variable.
    Share(usize),
}

/// The variables that set the number of threads of a library. Most libraries read the first if their own is not
/// set. Those in Rust read the last, such as candle and the tokenizers of Hugging Face.
const VARIABLES: [&str; 4] =
    ["OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"];

impl Threads {
    /// Takes the number of `--threads`, or divides the cores among the workers that run at once.
    pub(crate) fn new(given: Option<usize>, at_once: usize) -> Threads {
        match given {
            Some(threads) => Threads::Given(threads),
            None => Threads::Share((num_cpus::get() / at_once.max(1)).max(1)),
        }
    }

    /// Sets the variables of a worker that are not set yet, and returns the number of its threads.
    pub(crate) fn limit(self, command: &mut Command) -> usize {
        let threads = match self {
            Threads::Given(threads) => threads,
            Threads::Share(share) => value(command, VARIABLES[0]).and_then(number).unwrap_or(share),
        };
        for variable in VARIABLES {
            if matches!(self, Threads::Given(_)) || value(command, variable).is_none() {
                command.env(variable, threads.to_string());
            }
        }
        threads
    }
}

/// The value of a variable in the command, or else in the environment.
fn value(command: &Command, variable: &str) -> Option<OsString> {
    let mut own = command.get_envs().filter(|(name, _)| *name == variable);
    match own.next() {
        Some((_, value)) => value.map(Into::into),
        None => env::var_os(variable),
    }
}

/// Reads the number of the outermost level from a value such as `4` or `4,2`.
fn number(value: OsString) -> Option<usize> {
    let value = value.into_string().ok()?;
    let outermost = value.split(',').next()?.trim();
    outermost.parse().ok().filter(|threads| *threads > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(threads: Threads, set: &[(&str, &str)], expected: usize, variables: [&str; 4]) {
        let mut command = Command::new("worker");
        VARIABLES.iter().for_each(|variable| _ = command.env_remove(variable));
        command.envs(set.iter().copied());
        assert_eq!(threads.limit(&mut command), expected, "{set:?}");
        let found = VARIABLES.map(|variable| value(&command, variable).unwrap());
        assert_eq!(found, variables.map(OsString::from), "{set:?}");
    }

    #[test]
    fn a_variable_that_is_set_stays() {
        let share = Threads::Share(2);
        check(share, &[("MKL_NUM_THREADS", "7")], 2, ["2", "2", "7", "2"]);
        check(share, &[("RAYON_NUM_THREADS", "7")], 2, ["2", "2", "2", "7"]);
        check(share, &[("OPENBLAS_NUM_THREADS", "")], 2, ["2", "", "2", "2"]);
        check(share, &[("OMP_NUM_THREADS", "x")], 2, ["x", "2", "2", "2"]);
    }

    #[test]
    fn the_number_of_openmp_counts_for_all() {
        let share = Threads::Share(2);
        check(share, &[("OMP_NUM_THREADS", "5")], 5, ["5", "5", "5", "5"]);
        check(share, &[("OMP_NUM_THREADS", "4,2")], 4, ["4,2", "4", "4", "4"]);
        check(share, &[("OMP_NUM_THREADS", "0")], 2, ["0", "2", "2", "2"]);
    }

    #[test]
    fn an_option_counts_before_the_variables() {
        check(Threads::Given(3), &[("OMP_NUM_THREADS", "5")], 3, ["3", "3", "3", "3"]);
    }
}

//! The variables that say how many threads candle has on the CPU.

#[cfg(test)]
mod tests;

use std::env;
use std::io;

use super::Devices;
use super::cpu_threads::cores;

/// What candle reads before each matrix product, and rayon once.
const RAYON: &str = "RAYON_NUM_THREADS";
/// The number of candle's own threads, which the whole process has once.
const OWN: &str = "CANDLE_NUM_THREADS";

/// A variable of the environment and its value.
pub(crate) type CandleVariable = (&'static str, String);

/// Executes this program once more, with the variables from which candle takes its number of threads on the CPU.
///
/// Without `RAYON_NUM_THREADS`, candle counts the cores before each matrix product. On Linux it reads `/proc/cpuinfo`
/// for that, which takes longer than a small product. Without `CANDLE_NUM_THREADS`, it starts a thread for each core,
/// and producers wait for each other to use them. The example `digits` is at least four times as fast with both
/// variables: docs/performance.md has figures.
///
/// A program cannot safely set a variable of its own. So the operating system executes it again, as the same process with
/// the same arguments and standard streams, in about a millisecond. Call this function at the start of `main`, since
/// everything before the call happens twice. It returns at once and does nothing
///
/// - in the process that was executed again, and if you have set `RAYON_NUM_THREADS` yourself;
/// - if no place of `devices` has the CPU;
/// - on Windows, where a process cannot execute another program.
///
/// `RAYON_NUM_THREADS` becomes the number of cores, which rayon and [`cpu_threads`](crate::Builder::cpu_threads) assume
/// without it, so pools keep their sizes. With several places on the CPU, `CANDLE_NUM_THREADS` becomes 1, unless you have
/// set it. Programs that this one starts inherit both.
///
/// Child processes and workers of a cluster are started with such variables, and do not need the function.
///
/// # Errors
///
/// If the operating system refuses, for example because the file of the program was deleted. The program can go on, but
/// candle is slower then.
///
/// ```no_run
/// use gangline::Devices;
/// use gangline::device::candle_threads;
///
/// fn main() -> gangline::Result<()> {
///     let devices = Devices::available();
///     candle_threads(&devices)?; // everything else comes after this line
///     // ...
///     Ok(())
/// }
/// ```
pub fn candle_threads(devices: &Devices) -> io::Result<()> {
    match devices.count_on_cpu() {
        0 => Ok(()),
        producers => execute_again(candle_variables(producers)),
    }
}

/// The variables of a process with this number of producers on the CPU; none if the user has set them.
pub(crate) fn candle_variables(producers: usize) -> Vec<CandleVariable> {
    let own = (producers > 1 && env::var_os(OWN).is_none()).then(|| (OWN, "1".to_owned()));
    rayon_variable(None).map_or_else(Vec::new, |rayon| [rayon].into_iter().chain(own).collect())
}

/// The variable of a process whose hooks have a pool of this size, or the global one; `None` if the user has set it.
pub(crate) fn rayon_variable(threads: Option<usize>) -> Option<CandleVariable> {
    let is_set = env::var_os(RAYON).is_some();
    (!is_set).then(|| (RAYON, threads.unwrap_or_else(cores).to_string()))
}

/// Warns once per process if candle will count the cores before each matrix product.
#[cfg(any(feature = "candle", all(test, unix)))]
pub(super) fn warn_if_candle_counts() {
    static WARNED: std::sync::Once = std::sync::Once::new();
    if cfg!(target_os = "linux") && rayon_variable(None).is_some() {
        WARNED.call_once(|| {
            tracing::warn!(
                "candle counts the cores before each matrix product, which takes most of the time of small networks on \
                 the CPU; call `gangline::device::candle_threads` at the start of `main`, or set {RAYON}"
            );
        });
    }
}

#[cfg(unix)]
fn execute_again(variables: Vec<CandleVariable>) -> io::Result<()> {
    use std::os::unix::process::CommandExt as _;

    if variables.is_empty() {
        return Ok(());
    }
    // Under its own name, which process lists show. They would show `/proc/self/exe` as `exe`.
    let mut command = std::process::Command::new(env::current_exe()?);
    let mut arguments = env::args_os();
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    Err(command.args(arguments).envs(variables).exec())
}

#[cfg(not(unix))]
fn execute_again(_: Vec<CandleVariable>) -> io::Result<()> {
    Ok(())
}

//! Time that an input spends waiting, and not working.

use std::cell::Cell;
use std::time::Duration;

use super::now;

thread_local! {
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Calls `wait` for an input, and counts its time as waiting.
///
/// A report counts the time inside an input's `next` as work of the source, and may say that the source
/// limited the run. An iterator that holds items back on purpose, until a limit of its own allows the next
/// one, wraps that wait in this function. The report then has it in
/// [`source_waiting`](crate::RunReport::source_waiting). Elsewhere it only calls `wait`.
///
/// ```
/// use std::thread::sleep;
/// use std::time::Duration;
/// use gangline::{OrderedRunner, input, map};
///
/// let one_each_millisecond = (0..20_u64).inspect(|_| {
///     input::waiting(|| sleep(Duration::from_millis(1)));
/// });
/// let mut pool = OrderedRunner::new(map(|_| Ok(()), |_, (), x: u64| Ok(x)), 1)?;
/// let sum: u64 = pool.outputs(one_each_millisecond).map(Result::unwrap).sum();
///
/// assert_eq!(sum, 190);
/// assert!(pool.report().source_waiting >= Duration::from_millis(20));
/// # Ok::<(), gangline::Error>(())
/// ```
pub fn waiting<T>(wait: impl FnOnce() -> T) -> T {
    let began = now();
    let waited = wait();
    WAITED.set(WAITED.get() + (now() - began));
    waited
}

/// How long inputs have waited on this thread since the last call.
pub(crate) fn take_waited() -> Duration {
    WAITED.take()
}

//! Time that a hook or an input spends, and that is no work.

use std::cell::{Cell, RefCell};
use std::time::{Duration, Instant};

use gangline_report::TimeKind;

use super::now;

/// A time within a call of a hook that is no work.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TimeAside {
    pub(crate) kind: TimeKind,
    pub(crate) cause: &'static str,
    pub(crate) ended: Instant,
    pub(crate) took: Duration,
}

/// More times of one call are added to those that the thread has.
const MOST: usize = 64;

thread_local! {
    static HAS_ANY: Cell<bool> = const { Cell::new(false) };
    static TIMES: RefCell<Vec<TimeAside>> = const { RefCell::new(Vec::new()) };
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
    /// How long inputs have waited on this thread.
    static WAITED: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Calls `run` within a hook of a producer, and counts its time as `kind`, and not as work.
///
/// A report says where the time of each producer went, and what limited the run. It takes the time of a hook for work. A
/// hook that loads a model for its first item, waits for a limit on its rate, or writes a record says so with this
/// function. `cause` names what [holds work back](TimeKind::HeldBack): the report adds up the times of each cause.
///
/// Only the outermost call on a thread counts. Elsewhere than on the thread of a hook, and in child processes and
/// workers of a cluster, it only calls `run`.
///
/// ```
/// use std::thread::sleep;
/// use std::time::Duration;
/// use gangline::event::{TimeKind, count_as};
/// use gangline::{OrderedRunner, map};
///
/// let polite = map(
///     |_| Ok(()),
///     |_, (), page: u64| {
///         count_as(TimeKind::HeldBack, "the limit of the site", || sleep(Duration::from_millis(2)));
///         Ok(page)
///     },
/// );
/// let mut pool = OrderedRunner::new(polite, 1)?;
/// pool.run(0..5)?;
///
/// let report = pool.report();
/// assert!(report.producers[0].times.held_back >= Duration::from_millis(10));
/// assert!(report.held_back_by["the limit of the site"] >= Duration::from_millis(10));
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub fn count_as<T>(kind: TimeKind, cause: &'static str, run: impl FnOnce() -> T) -> T {
    if kind == TimeKind::Work || IS_INSIDE.replace(true) {
        return run();
    }
    let _inside = OutermostAside { kind, cause, began: now() };
    run()
}

/// A call of [`count_as`], which may end by a panic.
struct OutermostAside {
    kind: TimeKind,
    cause: &'static str,
    began: Instant,
}

impl Drop for OutermostAside {
    fn drop(&mut self) {
        let OutermostAside { kind, cause, began } = *self;
        IS_INSIDE.set(false);
        let ended = now();
        let took = ended - began;
        TIMES.with_borrow_mut(|times| {
            let same = |it: &&mut TimeAside| it.kind == kind && it.cause == cause;
            if times.len() < MOST {
                times.push(TimeAside { kind, cause, ended, took });
            } else if let Some(last) = times.iter_mut().rev().find(same) {
                last.took += took;
            }
        });
        HAS_ANY.set(true);
    }
}

/// Whether the hook that was called last on this thread has counted time as no work.
#[inline]
pub(crate) fn has_aside() -> bool {
    HAS_ANY.get()
}

/// Takes the times of the hook that was called last on this thread.
pub(crate) fn take_aside() -> Vec<TimeAside> {
    HAS_ANY.set(false);
    TIMES.take()
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

//! Settings of a builder that are not allowed.

use std::fmt;
use std::time::Duration;

use crate::base::{HumanDuration, Measure, TimeLimit, debug_with_causes};

/// A setting of a [`Builder`](crate::Builder) that is not allowed.
///
/// [`build`](crate::Builder::build) returns it as [`Error::Build`](crate::Error::Build), before any
/// producer is started.
///
/// ```
/// use gangline::error::BuildError;
/// use gangline::{Error, OrderedRunner, map};
///
/// let squares = map(|_| Ok(()), |_, _, x: u64| Ok(x * x));
/// let error = OrderedRunner::builder(squares).devices(2).window(0).build().unwrap_err();
/// assert!(matches!(error, Error::Build(BuildError::Window { window: 0, least: 1, .. })));
/// assert_eq!(error.to_string(), "window must be at least 1 item, got 0");
/// ```
#[derive(Clone, PartialEq)]
#[non_exhaustive]
pub enum BuildError {
    /// The [window](crate::Builder::window) has no room for what one producer takes at once: one item, or
    /// the largest [batch](crate::Batch).
    #[non_exhaustive]
    Window {
        /// The given window, in items.
        window: usize,
        /// The smallest window that is allowed, in items.
        least: usize,
    },
    /// The [batch](crate::Builder::batch) has no room for an item.
    #[non_exhaustive]
    Batch {},
    /// A rule for [batches](crate::Builder::batch) was given for a runner of [`map`](crate::map()). Its closure
    /// takes single items; that of [`map_batches`](crate::map_batches) takes batches.
    #[non_exhaustive]
    SingleItems {},
    /// A limit on what is measured of items is 0.
    #[non_exhaustive]
    Limit {
        /// What is measured.
        measure: Measure,
    },
    /// A limit on the size of batches was given without a rule for [batches](crate::Builder::batch).
    #[non_exhaustive]
    NoBatch {
        /// What is limited.
        measure: Measure,
    },
    /// [`quarantine_after`](crate::Builder::quarantine_after) is 0.
    #[non_exhaustive]
    QuarantineAfter {},
    /// [`min_producers`](crate::Builder::min_producers) is 0, or larger than the number of producers.
    #[non_exhaustive]
    MinProducers {
        /// The given minimum.
        least: usize,
        /// The number of producers.
        producers: usize,
    },
    /// [`recycle_after`](crate::Builder::recycle_after) is 0.
    #[non_exhaustive]
    RecycleAfter {},
    /// The producers were to be in two places, such as in child processes and in a cluster.
    #[non_exhaustive]
    Backends {
        /// The method of the builder that was called first.
        one: &'static str,
        /// The method that was called after it.
        other: &'static str,
    },
    /// The first time of [`backoff`](crate::Builder::backoff) is longer than the longest.
    #[non_exhaustive]
    Backoff {
        /// The given first time.
        first: Duration,
        /// The given longest time.
        most: Duration,
    },
    /// The [latency](crate::Batch::latency) of batches is 0, or no longer than the time that an incomplete batch
    /// [waits](crate::Batch::within) for more items.
    #[non_exhaustive]
    Latency {
        /// The given latency.
        latency: Duration,
        /// The given wait; zero if none was given.
        wait: Duration,
    },
    /// A timeout is zero.
    #[non_exhaustive]
    ZeroTimeout {
        /// Which timeout.
        limit: TimeLimit,
    },
    /// A [share](crate::error::MaxFailures::share) of failures is not between 0 and 1.
    #[non_exhaustive]
    Share {
        /// The given share.
        share: f64,
    },
    /// [`max_failures`](crate::Builder::max_failures) was given, and the first failure ends the run.
    #[non_exhaustive]
    NoneSkipped {},
    /// The number of threads of a producer on the CPU, `Builder::cpu_threads`, is 0.
    #[non_exhaustive]
    CpuThreads {},
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BuildError::Window { window, least: 1 } => {
                write!(f, "window must be at least 1 item, got {window}")
            }
            BuildError::Window { window, least } => write!(
                f,
                "window must be at least {least} items for batches of up to {least}, got {window}"
            ),
            BuildError::Batch {} => f.write_str("batch must have room for at least 1 item, got 0"),
            BuildError::SingleItems {} => f.write_str(
                "batch needs a closure that takes batches, and that of `map` takes single items; \
                 make the runner with `map_batches`, or leave `batch` out",
            ),
            BuildError::Limit { measure } => {
                write!(f, "{} must be at least 1, got 0", setting(*measure))
            }
            BuildError::NoBatch { measure } => write!(
                f,
                "{} needs a rule for batches; call `batch` too, such as `batch(Batch::up_to(32))`",
                setting(*measure)
            ),
            BuildError::QuarantineAfter {} => {
                f.write_str("quarantine_after must be at least 1, got 0")
            }
            BuildError::MinProducers { least, producers } => {
                write!(f, "min_producers must be between 1 and {producers}, got {least}")
            }
            BuildError::RecycleAfter {} => f.write_str(
                "recycle_after must be at least 1 item, got 0; leave it out to keep the states",
            ),
            BuildError::Backends { one, other } => {
                write!(f, "{one} is not available with `{other}`; leave one of the two out")
            }
            BuildError::Backoff { first, most } => {
                let (first, most) = (HumanDuration(*first), HumanDuration(*most));
                write!(
                    f,
                    "the first time of backoff must be at most its longest, {most:#}, got {first:#}"
                )
            }
            BuildError::Latency { latency, wait } => write_latency(f, *latency, *wait),
            BuildError::ZeroTimeout { limit } => {
                write!(f, "{limit} must be more than 0 s, got 0 s; leave it out for no limit")
            }
            BuildError::Share { share } => {
                write!(f, "the share of max_failures must be between 0 and 1, got {share}")
            }
            BuildError::NoneSkipped {} => f.write_str(
                "max_failures has no effect while the first failure ends the run; call \
                 `on_error(OnError::Skip)` or `classify` too",
            ),
            BuildError::CpuThreads {} => f.write_str("cpu_threads must be at least 1, got 0"),
        }
    }
}

debug_with_causes!(BuildError);

impl std::error::Error for BuildError {}

fn write_latency(f: &mut fmt::Formatter<'_>, latency: Duration, wait: Duration) -> fmt::Result {
    if wait.is_zero() {
        return f.write_str("the latency of batch must be more than 0 s, got 0 s");
    }
    let (latency, wait) = (HumanDuration(latency), HumanDuration(wait));
    write!(
        f,
        "the latency of batch must be longer than the wait of an incomplete one, {wait:#}, got {latency:#}"
    )
}

/// The method of the builder that sets the limit.
fn setting(measure: Measure) -> &'static str {
    match measure {
        Measure::Cost => "max_batch_cost",
        Measure::Padded => "max_padded_size",
        Measure::Memory => "window_memory",
    }
}

//! What is seen of runs: events, accounts, reports and progress.

pub(crate) mod account;
pub(crate) mod batch_choice;
pub mod event;
pub(crate) mod event_log;
pub(crate) mod failure;
#[cfg(feature = "metrics")]
pub(crate) mod metrics;
pub(crate) mod observing;
#[cfg(feature = "progress")]
pub(crate) mod progress;
pub(crate) mod provenance;
pub mod report;
pub(crate) mod run_stats;
pub(crate) mod text_style;
pub(crate) mod worker_report;

/// Serde for durations as numbers of seconds, which other programs read without our documentation.
mod seconds {
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
        // Rounded once, so that 2.345 s stay 2.345.
        to.serialize_f64(time.as_nanos() as f64 / 1e9)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
        let seconds = f64::deserialize(from)?;
        Duration::try_from_secs_f64(seconds).map_err(|_| {
            D::Error::custom(format_args!("{seconds} is not a valid number of seconds"))
        })
    }
}

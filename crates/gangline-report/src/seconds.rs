//! Serde for durations as numbers of seconds, which other programs read without our documentation.

use std::time::Duration;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn serialize<S: Serializer>(time: &Duration, to: S) -> Result<S::Ok, S::Error> {
    // Rounded once, so that 2.345 s stay 2.345.
    to.serialize_f64(time.as_nanos() as f64 / 1e9)
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    let seconds = f64::deserialize(from)?;
    Duration::try_from_secs_f64(seconds)
        .map_err(|_| D::Error::custom(format_args!("{seconds} is not a valid number of seconds")))
}

/// Durations by name, such as `{"--load": 1.5}`.
pub(super) mod by_name {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(crate) fn serialize<S: Serializer>(
        times: &BTreeMap<String, Duration>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_map(times.iter().map(|(name, time)| (name, time.as_nanos() as f64 / 1e9)))
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<BTreeMap<String, Duration>, D::Error> {
        let times = BTreeMap::<String, f64>::deserialize(from)?;
        let time = |(name, seconds): (String, f64)| match Duration::try_from_secs_f64(seconds) {
            Ok(time) => Ok((name, time)),
            Err(_) => {
                Err(D::Error::custom(format_args!("{seconds} is not a valid number of seconds")))
            }
        };
        times.into_iter().map(time).collect()
    }
}

//! Times as the package's Python writes them.

use std::time::Duration;

use crate::errors::Refused;

/// Reads a time: a number of seconds, or numbers with units, such as `1m 30s` or `200ms`.
pub(crate) fn read_time(name: &str, text: &str) -> Result<Duration, Refused> {
    let seconds = || Duration::try_from_secs_f64(text.parse().ok()?).ok();
    let read = seconds().or_else(|| humantime::parse_duration(text).ok());
    let read = read.filter(|time| *time <= LONGEST && !text.starts_with('+'));
    read.ok_or_else(|| Refused::Time { name: name.to_owned(), text: text.to_owned() })
}

/// A year: later moments may exceed the range of a clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

//! `--timeout`: a time, or a multiple of the median time of jobs.

use std::str::FromStr;
use std::sync::Mutex;
use std::time::Duration;

use thiserror::Error;

use crate::locking::lock;

/// The time limit of a job.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) enum JobTimeout {
    After(Duration),
    /// A multiple of the median of the successful jobs.
    Medians(f64),
}

/// The times of successful jobs, as far as a median needs them.
#[derive(Debug, Default)]
pub(crate) struct Durations(Mutex<Vec<Duration>>);

/// With fewer jobs, the median is not significant.
const LEAST: usize = 3;

/// The times that are kept: the median of the first thousand represents all.
const MOST: usize = 1_000;

impl Durations {
    pub(crate) fn push(&self, took: Duration) {
        let mut sorted = lock(&self.0);
        if sorted.len() < MOST {
            let at = sorted.partition_point(|other| *other <= took);
            sorted.insert(at, took);
        }
    }

    /// The limit of a job, once it is known.
    pub(crate) fn limit(&self, timeout: JobTimeout) -> Option<Duration> {
        match timeout {
            JobTimeout::After(limit) => Some(limit),
            JobTimeout::Medians(times) => {
                let sorted = lock(&self.0);
                let median = (sorted.len() >= LEAST).then(|| sorted[sorted.len() / 2])?;
                Duration::try_from_secs_f64(median.as_secs_f64() * times).ok()
            }
        }
    }
}

impl FromStr for JobTimeout {
    type Err = TimeError;

    fn from_str(text: &str) -> Result<Self, TimeError> {
        let times = match (text.strip_suffix('x'), text.strip_suffix('%')) {
            _ if text.starts_with('+') => return Err(TimeError::Time),
            (Some(times), _) => times.parse(),
            (_, Some(percent)) => percent.parse().map(|percent: f64| percent / 100.0),
            _ => return time_limit(text).map(JobTimeout::After),
        };
        match times {
            Ok(times) if times.is_finite() && times > 0.0 => Ok(JobTimeout::Medians(times)),
            _ => Err(TimeError::Times),
        }
    }
}

/// Parses a time that is not 0.
pub(crate) fn time_limit(text: &str) -> Result<Duration, TimeError> {
    duration(text).and_then(|limit| match limit.is_zero() {
        true => Err(TimeError::NoTime),
        false => Ok(limit),
    })
}

/// Parses a time: a number of seconds, or numbers with units, such as `1m 30s` or `200ms`.
pub(crate) fn duration(text: &str) -> Result<Duration, TimeError> {
    // A sign would be read as a part of the number.
    if text.starts_with('+') {
        return Err(TimeError::Time);
    }
    let seconds = || Duration::try_from_secs_f64(text.parse().ok()?).ok();
    let time = seconds().or_else(|| humantime::parse_duration(text).ok());
    time.filter(|time| *time <= LONGEST).ok_or(TimeError::Time)
}

/// A year: later moments may exceed the range of a clock.
const LONGEST: Duration = Duration::from_secs(366 * 24 * 60 * 60);

/// A text that is not a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub(crate) enum TimeError {
    #[error("write a time of up to a year, such as 30, 200ms or 1h 30m")]
    Time,
    #[error("write a time above 0, such as 30, 200ms or 1h 30m")]
    NoTime,
    #[error("write how many times the median it may be, such as 3x or 300%")]
    Times,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read() {
        let after = |millis| Ok(JobTimeout::After(Duration::from_millis(millis)));
        assert_eq!("30".parse(), after(30_000));
        assert_eq!("0.2".parse(), after(200));
        assert_eq!("1m 30s".parse(), after(90_000));
        assert_eq!("200ms".parse(), after(200));
        assert_eq!("3x".parse(), Ok(JobTimeout::Medians(3.0)));
        assert_eq!("250%".parse(), Ok(JobTimeout::Medians(2.5)));
        assert_eq!("-1".parse::<JobTimeout>(), Err(TimeError::Time));
        assert_eq!("soon".parse::<JobTimeout>(), Err(TimeError::Time));
        assert_eq!("+1".parse::<JobTimeout>(), Err(TimeError::Time));
        assert_eq!("+3x".parse::<JobTimeout>(), Err(TimeError::Time));
        assert_eq!("0s".parse::<JobTimeout>(), Err(TimeError::NoTime));
        assert_eq!("0x".parse::<JobTimeout>(), Err(TimeError::Times));
        assert_eq!("infx".parse::<JobTimeout>(), Err(TimeError::Times));
    }

    #[test]
    fn a_median_is_known_after_three() {
        let durations = Durations::default();
        let limit = || durations.limit(JobTimeout::Medians(2.0));
        durations.push(Duration::from_secs(9));
        durations.push(Duration::from_secs(1));
        assert_eq!(limit(), None);
        durations.push(Duration::from_secs(2));
        assert_eq!(limit(), Some(Duration::from_secs(4)));
    }
}

//! Time as the scheduler sees it, a value that is passed in, and the one format of durations.

#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

/// A moment of a run, in nanoseconds since its start.
///
/// Time in which the whole process was stopped does not count, so a timeout measures work.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct RunTime(u64);

impl RunTime {
    /// The start of the run.
    pub const START: RunTime = RunTime(0);

    /// The moment that is `elapsed` after the start of the run.
    pub fn at(elapsed: Duration) -> Self {
        RunTime(nanos(elapsed))
    }

    /// The moment that is `time` after this one.
    pub fn after(self, time: Duration) -> Self {
        RunTime(self.0.saturating_add(nanos(time)))
    }

    /// The time from `earlier` to this moment; zero if `earlier` is the later one.
    pub fn since(self, earlier: RunTime) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// Writes a duration for people, in the unit that fits: `340 ns`, `12.3 ms`, `4.20 s`, `3 min 05 s`,
/// `2 h 05 min`, `3 d 04 h`.
///
/// Reports, progress, errors and the program all use it.
///
/// | format | for | writes |
/// |---|---|---|
/// | `{}` | measured times | three digits up to a minute |
/// | `{:.1}` | a time that counts up on a display | seconds, with a tenth below 10 s; rounded down |
/// | `{:#}` | a limit that was set | the exact time, without trailing zeros |
///
/// ```
/// use std::time::Duration;
/// # mod gangline {
/// #     pub mod report {
/// #         pub use gangline_scheduler::HumanDuration;
/// #     }
/// # }
/// use gangline::report::HumanDuration;
///
/// let limit = HumanDuration(Duration::from_millis(1_500));
/// assert_eq!(format!("{limit}, {limit:.1}, {limit:#}"), "1.50 s, 1.5 s, 1.5 s");
/// assert_eq!(HumanDuration(Duration::from_secs(185)).to_string(), "3 min 05 s");
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct HumanDuration(pub Duration);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match (f.alternate(), f.precision()) {
            (true, _) => exact(self.0),
            (false, Some(_)) => so_far(self.0),
            (false, None) => measured(self.0),
        };
        // Not `f.pad`, for which a precision is a length.
        match f.width() {
            Some(width) => write!(f, "{text:>width$}"),
            None => f.write_str(&text),
        }
    }
}

fn measured(time: Duration) -> String {
    let seconds = time.as_secs_f64();
    match seconds {
        0.0 => "0 s".to_owned(),
        // Values from here on round to the next unit at three digits.
        ..0.999_5e-6 => format!("{} ns", time.subsec_nanos()),
        ..0.999_5e-3 => format!("{} µs", three_digits(seconds * 1e6)),
        ..0.999_5 => format!("{} ms", three_digits(seconds * 1e3)),
        ..59.95 => format!("{} s", three_digits(seconds)),
        _ => long(time.as_secs().saturating_add(u64::from(time.subsec_millis() >= 500))),
    }
}

fn so_far(time: Duration) -> String {
    match time.as_secs() {
        seconds @ 0..10 => format!("{seconds}.{} s", time.subsec_millis() / 100),
        seconds @ 10..60 => format!("{seconds} s"),
        seconds => long(seconds),
    }
}

fn exact(time: Duration) -> String {
    match (time.as_secs(), time.subsec_nanos()) {
        (seconds @ 60.., 0) if seconds < HOUR => long(seconds).replace(" 00 s", ""),
        (seconds @ HOUR.., 0) if seconds.is_multiple_of(HOUR) => format!("{} h", seconds / HOUR),
        (seconds @ HOUR.., 0) if seconds.is_multiple_of(MINUTE) => {
            format!("{} h {:02} min", seconds / HOUR, seconds / MINUTE % 60)
        }
        // The debug format is exact too: `150ms`.
        _ => {
            let text = format!("{time:?}");
            let unit = text.find(char::is_alphabetic).unwrap_or(text.len());
            format!("{} {}", &text[..unit], &text[unit..])
        }
    }
}

const MINUTE: u64 = 60;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// A time of a minute or more, in two units.
fn long(seconds: u64) -> String {
    match seconds {
        ..HOUR => format!("{} min {:02} s", seconds / MINUTE, seconds % MINUTE),
        HOUR..DAY => format!("{} h {:02} min", seconds / HOUR, seconds / MINUTE % 60),
        _ => format!("{} d {:02} h", seconds / DAY, seconds / HOUR % 24),
    }
}

/// A number from 1 to 1,000.
fn three_digits(number: f64) -> String {
    match number {
        ..9.995 => format!("{number:.2}"),
        ..99.95 => format!("{number:.1}"),
        _ => format!("{number:.0}"),
    }
}

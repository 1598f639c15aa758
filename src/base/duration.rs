//! The one format of durations.

use std::fmt;
use std::time::Duration;

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

#[cfg(test)]
mod tests {
    use super::*;

    fn texts<const N: usize>(seconds: [f64; N], write: fn(HumanDuration) -> String) -> [String; N] {
        seconds.map(|seconds| write(HumanDuration(Duration::from_secs_f64(seconds))))
    }

    #[test]
    fn a_measured_time_has_three_digits() {
        let nanos = [0, 7, 999, 1_234, 999_499, 999_700, 12_345_678, 999_600_000, 1_000_000_000];
        let measured = nanos.map(|nanos| HumanDuration(Duration::from_nanos(nanos)).to_string());
        let expected = [
            "0 s", "7 ns", "999 ns", "1.23 µs", "999 µs", "1.00 ms", "12.3 ms", "1.00 s", "1.00 s",
        ];
        assert_eq!(measured, expected);
        let long = texts([59.94, 59.96, 3_599.4, 3_599.6, 90_000.0], |time| time.to_string());
        assert_eq!(long, ["59.9 s", "1 min 00 s", "59 min 59 s", "1 h 00 min", "1 d 01 h"]);
        assert!(!HumanDuration(Duration::MAX).to_string().is_empty());
    }

    #[test]
    fn a_time_on_a_display_is_never_ahead() {
        let shown = texts([0.0, 4.27, 9.99, 10.0, 59.9, 60.0, 185.0, 7_500.0, 273_600.0], |time| {
            format!("{time:.1}")
        });
        let expected = [
            "0.0 s",
            "4.2 s",
            "9.9 s",
            "10 s",
            "59 s",
            "1 min 00 s",
            "3 min 05 s",
            "2 h 05 min",
            "3 d 04 h",
        ];
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_limit_is_written_as_it_was_set() {
        let limits = texts(
            [0.15, 1.0, 1.5, 30.0, 60.0, 90.0, 90.5, 300.0, 3_600.0, 5_400.0, 3_601.0, 0.0],
            |time| format!("{time:#}"),
        );
        let expected = [
            "150 ms",
            "1 s",
            "1.5 s",
            "30 s",
            "1 min",
            "1 min 30 s",
            "90.5 s",
            "5 min",
            "1 h",
            "1 h 30 min",
            "3601 s",
            "0 ns",
        ];
        assert_eq!(limits, expected);
    }
}

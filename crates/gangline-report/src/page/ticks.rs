//! Round marks of the axes of charts.

use std::time::Duration;

use crate::formats::Count;

/// A mark of an axis: its place as a share of the axis, and its label.
pub(super) struct Tick {
    pub(super) at: f64,
    pub(super) label: String,
}

/// A narrow screen has room for six labels: five steps.
const MOST_STEPS: f64 = 5.0;

/// A unit of time, by its length in seconds. An axis has the largest unit of which it is two or more.
const UNITS: [(f64, &str); 7] = [
    (86_400.0, "d"),
    (3_600.0, "h"),
    (60.0, "min"),
    (1.0, "s"),
    (1e-3, "ms"),
    (1e-6, "µs"),
    (1e-9, "ns"),
];

/// Prefixes of large values: the label of a narrow screen has seven characters.
const PREFIXES: [(f64, &str); 3] = [(1e9, " G"), (1e6, " M"), (1e3, " k")];
const LARGE: f64 = 10_000.0;

/// Marks an axis that begins at 0 and ends at `lasted`, at round times.
pub(super) fn times(lasted: Duration) -> Vec<Tick> {
    let seconds = lasted.as_secs_f64();
    let is_unit = |(unit, _): &(f64, &str)| seconds >= 2.0 * unit;
    let (unit, name) = UNITS.into_iter().find(is_unit).unwrap_or(UNITS[UNITS.len() - 1]);
    let most = seconds / unit;
    let step = round_step(most);
    let values = (0..).map(|n| f64::from(n) * step).take_while(|value| *value <= most * 1.000_001);
    let tick = |value| Tick { at: value / most, label: format!("{} {name}", number(value, step)) };
    values.map(tick).collect()
}

/// Marks an axis from 0 to a round value that is not less than `most`, and returns that value.
pub(super) fn values(most: f64) -> (f64, Vec<Tick>) {
    let step = round_step(most);
    let steps = (most / step * 0.999_999).ceil().max(1.0) as u32;
    let top = f64::from(steps) * step;
    let prefix = PREFIXES.into_iter().find(|(prefix, _)| top >= LARGE && top >= *prefix);
    let (unit, name) = prefix.unwrap_or((1.0, ""));
    let tick = |n| {
        let value = f64::from(n) * step;
        let name = if n == 0 { "" } else { name };
        Tick { at: value / top, label: format!("{}{name}", number(value / unit, step / unit)) }
    };
    (top, (0..=steps).map(tick).collect())
}

/// Marks a logarithmic axis at powers of ten, in seconds.
pub(super) fn powers(from: i32, until: i32) -> Vec<Tick> {
    let all = f64::from(until - from);
    let step = (all / MOST_STEPS).ceil().max(1.0) as usize;
    let tick = |power: i32| {
        // The axis has one unit for each three powers: 1 ms, 10 ms, 100 ms, 1 s.
        let thousands = power.div_euclid(3).clamp(-3, 0);
        let value = 10_f64.powi(power - 3 * thousands);
        let name = ["ns", "µs", "ms", "s"][(thousands + 3) as usize];
        let label = format!("{} {name}", Count(value.round() as u64));
        Tick { at: f64::from(power - from) / all, label }
    };
    (from..=until).step_by(step).map(tick).collect()
}

/// Returns the least of 1, 2, 5, 10, 20, ... and their tenths that makes at most five steps of `most`.
fn round_step(most: f64) -> f64 {
    let least = most.max(f64::MIN_POSITIVE) / MOST_STEPS;
    let power = 10_f64.powi(least.log10().floor() as i32);
    let steps = [1.0, 2.0, 5.0].map(|digit| digit * power);
    steps.into_iter().find(|step| *step >= least * 0.999_999).unwrap_or(10.0 * power)
}

/// A multiple of a round step, with the decimals that the step has.
fn number(value: f64, step: f64) -> String {
    let decimals = (-step.log10().floor()).clamp(0.0, 300.0) as usize;
    match decimals {
        0 => Count(value.round() as u64).to_string(),
        _ if value == 0.0 => "0".to_owned(),
        _ => format!("{value:.decimals$}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(ticks: &[Tick]) -> String {
        ticks.iter().map(|tick| tick.label.clone()).collect::<Vec<_>>().join(", ")
    }

    #[test]
    fn times_are_round_in_the_unit_of_the_run() {
        for (lasted, expected) in [
            (13.0, "0 s, 5 s, 10 s"),
            (10.0, "0 s, 2 s, 4 s, 6 s, 8 s, 10 s"),
            (2.1, "0 s, 0.5 s, 1.0 s, 1.5 s, 2.0 s"),
            (1.3, "0 ms, 500 ms, 1,000 ms"),
            (0.004_2, "0 ms, 1 ms, 2 ms, 3 ms, 4 ms"),
            (1_500.0, "0 min, 5 min, 10 min, 15 min, 20 min, 25 min"),
            (86_400.0, "0 h, 5 h, 10 h, 15 h, 20 h"),
            (1e6, "0 d, 5 d, 10 d"),
            (1e-9, "0 ns, 0.2 ns, 0.4 ns, 0.6 ns, 0.8 ns, 1.0 ns"),
        ] {
            assert_eq!(labels(&times(Duration::from_secs_f64(lasted))), expected);
        }
    }

    #[test]
    fn powers_have_the_unit_of_their_size() {
        for (from, until, expected) in [
            (-3, 0, "1 ms, 10 ms, 100 ms, 1 s"),
            (-1, 4, "100 ms, 1 s, 10 s, 100 s, 1,000 s, 10,000 s"),
            (-9, 0, "1 ns, 100 ns, 10 µs, 1 ms, 100 ms"),
        ] {
            assert_eq!(labels(&powers(from, until)), expected);
        }
    }

    #[test]
    fn values_end_at_a_round_one() {
        for (most, top, expected) in [
            (805.0, 1_000.0, "0, 200, 400, 600, 800, 1,000"),
            (1.0, 1.0, "0, 0.2, 0.4, 0.6, 0.8, 1.0"),
            (3.1, 4.0, "0, 1, 2, 3, 4"),
            (123_456_789.0, 150_000_000.0, "0, 50 M, 100 M, 150 M"),
            (11_000.0, 15_000.0, "0, 5 k, 10 k, 15 k"),
        ] {
            let (found, ticks) = values(most);
            assert_eq!((found, labels(&ticks).as_str()), (top, expected));
            assert_eq!(ticks.last().map(|tick| tick.at), Some(1.0));
        }
        assert!(values(0.0).1.len() > 1, "not without end");
    }
}

use super::*;

fn texts<const N: usize>(seconds: [f64; N], write: fn(HumanDuration) -> String) -> [String; N] {
    seconds.map(|seconds| write(HumanDuration(Duration::from_secs_f64(seconds))))
}

#[test]
fn a_measured_time_has_three_digits() {
    let nanos = [0, 7, 999, 1_234, 999_499, 999_700, 12_345_678, 999_600_000, 1_000_000_000];
    let measured = nanos.map(|nanos| HumanDuration(Duration::from_nanos(nanos)).to_string());
    let expected =
        ["0 s", "7 ns", "999 ns", "1.23 µs", "999 µs", "1.00 ms", "12.3 ms", "1.00 s", "1.00 s"];
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

#[test]
fn times_add_up_and_never_overflow() {
    let second = Duration::from_secs(1);
    let one = RunTime::START.after(second);
    assert_eq!(one, RunTime::at(second));
    assert_eq!(one.since(RunTime::START), second);
    assert_eq!(RunTime::START.since(one), Duration::ZERO);
    assert_eq!(one.after(Duration::MAX).after(second), RunTime::at(Duration::MAX));
}

//! Measures how far predictions of reports are off: `cargo bench -p gangline-bench --bench what_if`.
//!
//! Runs of items that sleep are recorded, and `RunReport::what_if` predicts them with other settings. The same runs with
//! these settings follow. Each row is a setting, with the predicted and the measured time, and how much the first is off.
#![expect(clippy::print_stdout, reason = "a benchmark prints its figures")]

use std::thread::sleep;
use std::time::Duration;

use gangline::report::{HumanDuration, Settings};
use gangline::{AnyOrderRunner, Order, Result, RunReport, map};

/// The settings of a run.
#[derive(Clone, Copy)]
struct Setting {
    producers: usize,
    window: Option<usize>,
    order: Order,
}

const BASE: Setting = Setting { producers: 2, window: None, order: Order::Input };

fn main() -> Result<()> {
    // Without it `cargo test` asks only whether the program works.
    let is_measured = std::env::args().any(|argument| argument == "--bench");
    let items = if is_measured { 400 } else { 4 };
    println!("| items | setting | recorded | predicted | measured | off |");
    println!("|---|---|---:|---:|---:|---:|");
    let mut worst: f64 = 0.0;
    for (name, times) in durations(items) {
        for (recorded, others) in plans() {
            let report = run(recorded, &times)?;
            for &other in &others {
                let off = compare(name, &report, other, &times)?;
                worst = worst.max(off.abs());
            }
        }
    }
    println!("\nat most {:.1} % off; the aim is 5 %", 100.0 * worst);
    Ok(())
}

/// What is recorded, and what is predicted from it.
fn plans() -> Vec<(Setting, Vec<Setting>)> {
    let wide = |producers| Setting { producers, ..BASE };
    let window = |producers, items| Setting { window: Some(items), ..wide(producers) };
    let any = |setting| Setting { order: Order::Completion, ..setting };
    vec![
        (BASE, vec![wide(1), wide(4), wide(8), window(2, 4), any(window(2, 4))]),
        (window(4, 8), vec![window(4, 64), window(4, 5), any(window(4, 8)), window(8, 64)]),
    ]
}

/// Items of 5 ms on average.
fn durations(items: usize) -> Vec<(&'static str, Vec<Duration>)> {
    let mean = Duration::from_millis(5);
    let uneven = (0..items).map(|index| mean.mul_f64([0.2, 0.4, 1.0, 2.4][index * 7 % 4]));
    let rare = (0..items).map(|index| mean.mul_f64(if index % 100 == 10 { 40.0 } else { 0.6 }));
    vec![
        ("equal", vec![mean; items]),
        ("uneven", uneven.collect()),
        ("1 in 100 slow", rare.collect()),
    ]
}

fn run(Setting { producers, window, order }: Setting, times: &[Duration]) -> Result<RunReport> {
    let work = map(
        |_| Ok(()),
        |_, (), time: Duration| {
            sleep(time);
            Ok(())
        },
    );
    let mut builder = AnyOrderRunner::builder(work).devices(producers).order(order).timeline();
    if let Some(items) = window {
        builder = builder.window(items);
    }
    let (done, report) = builder.build()?.run_with_report(times.to_vec());
    done?;
    Ok(report)
}

/// Prints a row, and returns by which share the prediction is off.
fn compare(name: &str, report: &RunReport, other: Setting, times: &[Duration]) -> Result<f64> {
    let before = &report.provenance.settings;
    let mut settings = Settings::new().producers(other.producers).order(other.order);
    if let Some(items) = other.window.filter(|items| before["window"] != items.to_string()) {
        settings = settings.window(items);
    }
    let prediction = report.what_if(&settings);
    let measured = run(other, times)?.lasted;
    for refused in &prediction.refused {
        println!("{}: {}", refused.setting, refused.why);
    }
    let off = prediction.lasted.as_secs_f64() / measured.as_secs_f64() - 1.0;
    let Setting { producers, window, order } = other;
    let window = window.map_or("default".to_owned(), |items| items.to_string());
    println!(
        "| {name} | {producers} producers, window {window}, {order:?} | {} | {} | {} | {:.1} % |",
        HumanDuration(report.lasted),
        HumanDuration(prediction.lasted),
        HumanDuration(measured),
        100.0 * off
    );
    Ok(off)
}

//! The plots of this benchmark.

use std::ops::Range;
use std::path::Path;

use gangline::BoxError;
use plotters::prelude::*;

use crate::chart::{
    Area, BLACK, BLUE, Dot, GREY, Line, ORANGE, Pen, SIZE, SKY, VERMILION, builder, draw, explain,
    layout, save, style,
};
use crate::gangs::Gang;
use crate::many::Sleepers;
use crate::speedup::{AMOUNTS, Curve};
use crate::subject::Kind;
use crate::throughput::Throughput;

/// The series of the time per item. More of them hide each other.
const DRAWN: [Kind; 5] = [
    Kind::PlainLoop,
    Kind::ParBridge,
    Kind::Channels,
    Kind::Gangline(Gang::ORDERED),
    Kind::Gangline(Gang::ORDERED_64),
];

pub fn time_per_item(
    throughput: &Throughput,
    threads: usize,
    folder: &Path,
) -> Result<(), BoxError> {
    let lines = lines_of_times(throughput);
    if lines.iter().all(|line| line.points.len() < 2) {
        return Ok(());
    }
    let mut svg = String::new();
    draw_times(&lines, threads, &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
    save(folder, "time-per-item", &svg)
}

fn draw_times(lines: &[Line], threads: usize, root: &Area<'_>) -> Result<(), BoxError> {
    let title = "Time per item, by the work on it";
    let subtitle = format!(
        "{threads} producers or threads, u64 in and out; lower is better; both axes logarithmic"
    );
    let (plot, legend) = layout(root, title, &subtitle)?;
    let (x, y) = (reach(lines, |point| point.0), reach(lines, |point| point.1));
    let mut chart = builder(&plot).build_cartesian_2d(x.log_scale(), y.log_scale())?;
    let mut mesh = chart.configure_mesh();
    style(&mut mesh);
    mesh.x_labels(7).y_labels(7).x_label_formatter(&duration).y_label_formatter(&duration);
    mesh.x_desc("work per item (what the plain loop takes)").y_desc("time per item");
    mesh.draw()?;
    draw(&mut chart, lines)?;
    explain(&legend, lines)?;
    Ok(root.present()?)
}

pub fn speedup(curves: &[Curve], cores: usize, folder: &Path) -> Result<(), BoxError> {
    let lines = lines_of_speedups(curves, cores);
    let mut svg = String::new();
    draw_speedups(&lines, cores, &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
    save(folder, "speed-up", &svg)
}

fn draw_speedups(lines: &[Line], cores: usize, root: &Area<'_>) -> Result<(), BoxError> {
    let most = lines[0].points.len();
    let title = "Speed-up over the plain loop, by the number of producers";
    let subtitle = format!("{cores} cores, u64 in and out; higher is better");
    let (plot, legend) = layout(root, title, &subtitle)?;
    let (x, y) = (0.8..most as f64 + 0.2, 0.0..cores as f64 + 0.25);
    let mut chart = builder(&plot).build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    style(&mut mesh);
    mesh.x_labels(most).x_label_formatter(&|x| format!("{x:.0}"));
    mesh.y_label_formatter(&|y| format!("{y:.1} ×"));
    mesh.x_desc("producers, or threads").y_desc("times as fast as the plain loop");
    mesh.draw()?;
    draw(&mut chart, lines)?;
    explain(&legend, lines)?;
    Ok(root.present()?)
}

/// The plot of producers with hooks that sleep. They need no cores, so there may be more producers than cores.
pub fn sleepers(points: &[Sleepers], folder: &Path) -> Result<(), BoxError> {
    if points.len() < 2 {
        return Ok(());
    }
    let line = |label: &str, pen: Pen, of: fn(&Sleepers) -> f64| Line {
        label: label.to_owned(),
        pen,
        points: points.iter().map(|point| (point.producers as f64, of(point))).collect(),
    };
    let ideal = Pen { color: GREY, width: 2, dot: Dot::Hollow };
    let own = Kind::Gangline(Gang::ORDERED);
    let lines = [
        line(own.name(), pen(own), |point| point.gangline),
        line(Kind::Channels.name(), pen(Kind::Channels), |point| point.channels),
        line("ideal", ideal, |point| point.producers as f64),
    ];
    let mut svg = String::new();
    draw_sleepers(&lines, &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
    save(folder, "producers", &svg)
}

fn draw_sleepers(lines: &[Line], root: &Area<'_>) -> Result<(), BoxError> {
    let title = "Speed-up by the number of producers, items that sleep for 1 ms";
    let subtitle =
        "over one producer without any overhead; higher is better; both axes logarithmic";
    let (plot, legend) = layout(root, title, subtitle)?;
    let (x, y) = (reach(lines, |point| point.0), reach(lines, |point| point.1));
    let (x, y) = (x.log_scale().base(2.0), y.log_scale().base(2.0));
    let mut chart = builder(&plot).build_cartesian_2d(x, y)?;
    let mut mesh = chart.configure_mesh();
    style(&mut mesh);
    mesh.x_labels(10).x_label_formatter(&|x| format!("{x:.0}"));
    mesh.y_labels(10).y_label_formatter(&|y| format!("{y:.0} ×"));
    mesh.x_desc("producers").y_desc("times as fast as one producer");
    mesh.draw()?;
    draw(&mut chart, lines)?;
    explain(&legend, lines)?;
    Ok(root.present()?)
}

fn lines_of_times(throughput: &Throughput) -> Vec<Line> {
    let mut amounts = throughput.amounts.clone();
    amounts.sort_by_key(|amount| amount.time);
    let point = |kind, amount| {
        Some((throughput.of(Kind::PlainLoop, amount)?, throughput.of(kind, amount)?))
    };
    let line = |&kind: &Kind| Line {
        label: kind.name().to_owned(),
        pen: pen(kind),
        points: amounts.iter().filter_map(|&amount| point(kind, amount)).collect(),
    };
    let mut lines: Vec<Line> = DRAWN.iter().map(line).collect();
    // The legend lists series from top to bottom by their left ends.
    lines.sort_by(|a, b| b.points[0].1.total_cmp(&a.points[0].1));
    lines
}

fn lines_of_speedups(curves: &[Curve], cores: usize) -> Vec<Line> {
    let most = curves.iter().map(|curve| curve.speedups.len()).max().unwrap_or(1);
    let ideal = (1..=most).map(|threads| (threads as f64, threads.min(cores) as f64)).collect();
    let ideal_pen = Pen { color: GREY, width: 2, dot: Dot::Hollow };
    let mut lines = vec![Line { label: "ideal".to_owned(), pen: ideal_pen, points: ideal }];
    lines.extend(curves.iter().map(|curve| {
        let dot = if curve.amount == AMOUNTS[0] { Dot::Hollow } else { Dot::Filled };
        Line {
            label: format!("{}, {}", curve.kind.name(), curve.amount.name),
            pen: Pen { dot, ..pen(curve.kind) },
            points: (1..).map(f64::from).zip(curve.speedups.iter().copied()).collect(),
        }
    }));
    lines
}

fn pen(kind: Kind) -> Pen {
    let (color, width, dot) = match kind {
        Kind::PlainLoop => (BLACK, 2, Dot::Filled),
        Kind::ParBridge => (ORANGE, 2, Dot::Filled),
        Kind::Channels => (SKY, 2, Dot::Filled),
        Kind::Gangline(Gang::ORDERED) => (BLUE, 3, Dot::Filled),
        Kind::Gangline(_) => (VERMILION, 3, Dot::Filled),
        _ => (GREY, 2, Dot::Filled),
    };
    Pen { color, width, dot }
}

/// The range of an axis: that of the lines, with a margin.
fn reach(lines: &[Line], coordinate: impl Fn(&(f64, f64)) -> f64) -> Range<f64> {
    let values = || lines.iter().flat_map(|line| &line.points).map(&coordinate);
    let least = values().fold(f64::INFINITY, f64::min);
    let most = values().fold(0.0, f64::max);
    least / 1.5..most * 1.5
}

/// Powers of ten, from nanoseconds.
fn duration(nanoseconds: &f64) -> String {
    match *nanoseconds {
        ns if ns < 1e3 => format!("{} ns", rounded(ns)),
        ns if ns < 1e6 => format!("{} µs", rounded(ns / 1e3)),
        ns => format!("{} ms", rounded(ns / 1e6)),
    }
}

/// Rounds off the digits that a logarithm introduces.
fn rounded(value: f64) -> f64 {
    (value * 100.0).round() / 100.0
}

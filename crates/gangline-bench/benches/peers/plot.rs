//! The plots, as SVG, for light pages and for dark ones.

use std::fs;
use std::ops::Range;
use std::path::Path;

use gangline::BoxError;
use plotters::chart::MeshStyle;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

use crate::gangs::Gang;
use crate::speedup::{AMOUNTS, Curve};
use crate::subject::Kind;
use crate::throughput::Throughput;

const SIZE: (u32, u32) = (960, 600);
const LEGEND_WIDTH: u32 = 250;
const TITLE_HEIGHT: u32 = 62;
const FONT: &str = "sans-serif";
const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(225, 225, 225);

// The Okabe-Ito palette, which is safe for colour-blind readers.
const BLACK: RGBColor = RGBColor(0, 0, 0);
const ORANGE: RGBColor = RGBColor(230, 159, 0);
const SKY: RGBColor = RGBColor(86, 180, 233);
const BLUE: RGBColor = RGBColor(0, 114, 178);
const VERMILION: RGBColor = RGBColor(213, 94, 0);
const GREY: RGBColor = RGBColor(140, 140, 140);

/// What stands on a dark page for each colour: text and lines of the same contrast.
const ON_DARK: [(RGBColor, RGBColor); 9] = [
    (WHITE, RGBColor(13, 17, 23)),
    (INK, RGBColor(201, 209, 217)),
    (PALE, RGBColor(48, 54, 61)),
    (GREY, RGBColor(139, 148, 158)),
    (BLACK, RGBColor(240, 246, 252)),
    (BLUE, RGBColor(47, 129, 247)),
    (SKY, RGBColor(165, 225, 255)),
    (ORANGE, RGBColor(240, 173, 20)),
    (VERMILION, RGBColor(255, 123, 69)),
];

/// The series of the time per item. More of them hide each other.
const DRAWN: [Kind; 5] = [
    Kind::PlainLoop,
    Kind::ParBridge,
    Kind::Channels,
    Kind::Gangline(Gang::ORDERED),
    Kind::Gangline(Gang::ORDERED_64),
];

type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
type Chart<'a, C> = ChartContext<'a, SVGBackend<'a>, C>;

struct Line {
    label: String,
    pen: Pen,
    points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
struct Pen {
    color: RGBColor,
    width: u32,
    dot: Dot,
}

#[derive(Clone, Copy)]
enum Dot {
    Filled,
    Hollow,
}

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

/// Writes `name.svg` and `name-dark.svg`.
fn save(folder: &Path, name: &str, svg: &str) -> Result<(), BoxError> {
    let text = |RGBColor(red, green, blue): RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
    let recolored = |svg: String, (light, dark)| svg.replace(&text(light), &text(dark));
    let dark = ON_DARK.into_iter().fold(svg.to_owned(), recolored);
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{name}.svg")), svg)?;
    Ok(fs::write(folder.join(format!("{name}-dark.svg")), dark)?)
}

/// The title on top, the plot at the left, the legend at the right.
fn layout<'a>(
    root: &Area<'a>,
    title: &str,
    subtitle: &str,
) -> Result<(Area<'a>, Area<'a>), BoxError> {
    root.fill(&WHITE)?;
    root.draw(&Text::new(title.to_owned(), (20, 14), (FONT, 21).into_font().color(&INK)))?;
    root.draw(&Text::new(subtitle.to_owned(), (20, 42), (FONT, 14).into_font().color(&INK)))?;
    let (_, below) = root.split_vertically(TITLE_HEIGHT);
    Ok(below.split_horizontally(SIZE.0 - LEGEND_WIDTH))
}

fn builder<'a, 'b>(plot: &'b Area<'a>) -> ChartBuilder<'b, 'b, SVGBackend<'a>>
where
    'a: 'b,
{
    let mut builder = ChartBuilder::on(plot);
    builder.margin(12).x_label_area_size(48).y_label_area_size(70);
    builder
}

fn style<X, Y>(mesh: &mut MeshStyle<'_, '_, X, Y, SVGBackend<'_>>)
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    mesh.label_style((FONT, 14).into_font().color(&INK));
    mesh.axis_desc_style((FONT, 15).into_font().color(&INK));
    mesh.axis_style(GREY).bold_line_style(PALE).light_line_style(TRANSPARENT);
}

fn draw<'a, C>(chart: &mut Chart<'a, C>, lines: &[Line]) -> Result<(), BoxError>
where
    C: CoordTranslate<From = (f64, f64)>,
{
    // The first series is drawn last, on top of the others.
    for Line { pen, points, .. } in lines.iter().rev() {
        chart.draw_series(LineSeries::new(points.clone(), pen.stroke()))?;
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, WHITE.filled())))?;
        chart.draw_series(points.iter().map(|&point| Circle::new(point, 4, pen.fill())))?;
    }
    Ok(())
}

fn explain(legend: &Area<'_>, lines: &[Line]) -> Result<(), BoxError> {
    for (line, y) in lines.iter().zip((24..).step_by(26)) {
        let pen = line.pen;
        legend.draw(&PathElement::new([(4, y), (36, y)], pen.stroke()))?;
        legend.draw(&Circle::new((20, y), 4, WHITE.filled()))?;
        legend.draw(&Circle::new((20, y), 4, pen.fill()))?;
        let font = (FONT, 14).into_font().color(&INK);
        legend.draw(&Text::new(line.label.clone(), (44, y - 6), font))?;
    }
    Ok(())
}

impl Pen {
    fn stroke(self) -> ShapeStyle {
        self.color.stroke_width(self.width)
    }

    fn fill(self) -> ShapeStyle {
        match self.dot {
            Dot::Filled => self.color.filled(),
            Dot::Hollow => self.color.stroke_width(2),
        }
    }
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

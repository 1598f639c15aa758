//! A chart of when each producer worked: one row each, darker is busier.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::markup::{MOST_PRODUCERS, more, push, section as begin};
use super::plot;
use super::plot::{BELOW, LEFT, RIGHT, WIDTH};
use crate::observe::report::run_report::RunReport;
use crate::observe::report::span::IncidentKind;
use crate::observe::report::text::{Html, Many, Percent, clipped, left_out};
use crate::observe::report::timeline::Timeline;

/// Narrower columns could not be distinguished.
const MOST_COLUMNS: usize = 256;

/// The number of shades from idle to fully busy.
const SHADES: u32 = 8;

/// Rows are tall if they are few, and shrink to fit on a screen.
const TALLEST: f64 = 22.0;
const LOWEST: f64 = 4.0;
const HEIGHT: f64 = 480.0;
const TEXT: f64 = 13.0;

/// Room for the first label, which may be taller than its row.
const ABOVE: f64 = 6.0;

pub(super) fn section(report: &RunReport) -> String {
    let Some(timeline) = &report.timeline else { return String::new() };
    let rows = timeline.busy_ns.len().min(report.producers.len()).min(MOST_PRODUCERS);
    if rows == 0 || report.lasted.is_zero() {
        return String::new();
    }
    let mut section = begin("Timeline", &chart(report, timeline, rows));
    section.push_str(&legend());
    more(&mut section, left_out(MOST_PRODUCERS, report.producers.len(), 0), "producers");
    section + "</section>\n"
}

fn chart(report: &RunReport, timeline: &Timeline, rows: usize) -> String {
    let tall = (HEIGHT / rows as f64).clamp(LOWEST, TALLEST);
    let height = ABOVE + rows as f64 * tall + BELOW;
    let text = format!(
        "{}, each a row from the beginning of the run to its end; the darker, the more of the time \
         it worked. A red mark is a failure.",
        Many(rows as u64, "producer")
    );
    let mut svg = plot::begin("busy", height, "When each producer worked", &text);
    let labelled = (TEXT / tall).ceil() as usize;
    for producer in 0..rows {
        let y = ABOVE + producer as f64 * tall;
        let name = label(report, producer);
        let busy = Percent(report.producers[producer].busy).to_string();
        push(&mut svg, format_args!("<g><title>{name}: {} busy</title>", Html(&busy)));
        push_row(&mut svg, &Row { y, tall }, report, timeline, producer);
        svg.push_str("</g>\n");
        if producer.is_multiple_of(labelled) {
            let (x, y) = (LEFT - 8.0, y + tall / 2.0 + 4.0);
            push(
                &mut svg,
                format_args!("<text class=\"end\" x=\"{x}\" y=\"{y:.1}\">{name}</text>\n"),
            );
        }
    }
    plot::push_time_axis(&mut svg, height - BELOW + 1.0, report.lasted);
    svg + "</svg>\n</div>\n"
}

struct Row {
    y: f64,
    tall: f64,
}

fn label(report: &RunReport, producer: usize) -> String {
    let place = clipped(&report.producers[producer].place, 12);
    format!("{producer} {}", Html(&place))
}

fn push_row(svg: &mut String, row: &Row, report: &RunReport, timeline: &Timeline, producer: usize) {
    let (y, tall) = (row.y + 0.5, row.tall - 1.0);
    let width = RIGHT - LEFT;
    push(
        svg,
        format_args!(
            "<rect class=\"track\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width}\" height=\"{tall:.1}\"/>"
        ),
    );
    for (shade, path) in shades(row, report, timeline, producer) {
        let opacity = f64::from(shade) / f64::from(SHADES);
        push(svg, format_args!("<path class=\"busy\" fill-opacity=\"{opacity}\" d=\"{path}\"/>"));
    }
    let marks = marks(row, report, producer);
    if !marks.is_empty() {
        push(svg, format_args!("<path class=\"mark\" d=\"{marks}\"/>"));
    }
}

/// One path per shade: adjacent columns of one shade form one rectangle.
fn shades(
    row: &Row,
    report: &RunReport,
    timeline: &Timeline,
    producer: usize,
) -> BTreeMap<u32, String> {
    let shares = timeline.shares(producer, MOST_COLUMNS, report.lasted);
    let shades: Vec<u32> = shares.iter().map(|&share| shade(share)).collect();
    let extent = timeline.extent(MOST_COLUMNS).as_secs_f64() / report.lasted.as_secs_f64();
    let column = (RIGHT - LEFT) * extent / shares.len().max(1) as f64;
    let (y, tall) = (row.y + 0.5, row.tall - 1.0);
    let mut paths = BTreeMap::<u32, String>::new();
    let mut start = 0;
    for run in shades.chunk_by(|one, other| one == other) {
        let from = LEFT + start as f64 * column;
        let until = (LEFT + (start + run.len()) as f64 * column).min(RIGHT);
        start += run.len();
        if run[0] > 0 {
            let path = paths.entry(run[0]).or_default();
            let wide = until - from;
            write!(path, "M{from:.2} {y:.1}h{wide:.2}v{tall:.1}h-{wide:.2}z")
                .expect("writing to a text does not fail");
        }
    }
    paths
}

/// A small share is not drawn as none.
fn shade(share: f64) -> u32 {
    (share * f64::from(SHADES) - 0.01).ceil().clamp(0.0, f64::from(SHADES)) as u32
}

/// Marks failures, at most one per distinguishable position.
fn marks(row: &Row, report: &RunReport, producer: usize) -> String {
    let here = report.incidents.iter().filter(|incident| {
        incident.producer == Some(producer) && incident.kind != IncidentKind::Retried
    });
    let place = |at: f64| (at / report.lasted.as_secs_f64()).min(1.0) * (RIGHT - LEFT);
    let mut places: Vec<u64> =
        here.map(|incident| place(incident.at.as_secs_f64()) as u64).collect();
    places.dedup();
    let mark = |x: u64| format!("M{} {:.1}v{:.1}", LEFT + x as f64, row.y, row.tall);
    places.into_iter().map(mark).collect()
}

fn legend() -> String {
    let mut legend = format!(
        "<svg viewBox=\"0 0 {WIDTH} 18\" role=\"img\" aria-label=\"Shades from idle to busy\">\
         <text class=\"end\" x=\"{}\" y=\"12\">idle</text>",
        LEFT - 8.0
    );
    for shade in 0..=SHADES {
        let (x, opacity) = (LEFT + 18.0 * f64::from(shade), f64::from(shade) / f64::from(SHADES));
        push(
            &mut legend,
            format_args!(
                "<rect class=\"track\" x=\"{x}\" y=\"2\" width=\"16\" height=\"12\"/><rect class=\"busy\" \
                 fill-opacity=\"{opacity}\" x=\"{x}\" y=\"2\" width=\"16\" height=\"12\"/>"
            ),
        );
    }
    let x = LEFT + 18.0 * f64::from(SHADES + 1) + 6.0;
    push(
        &mut legend,
        format_args!(
            "<text x=\"{x}\" y=\"12\">busy</text><path class=\"mark\" d=\"M{} 2v12\"/>\
             <text x=\"{}\" y=\"12\">failure</text></svg>\n",
            x + 52.0,
            x + 60.0
        ),
    );
    legend
}

//! The charts of a page: when each producer worked, and items done over time.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::observe::report::formats::{
    Html, Many, Percent, Time, capitalised, clipped, item, push, rate,
};
use crate::observe::report::outline::PRODUCERS;
use crate::observe::report::producer_report::ProducerReport;
use crate::observe::report::run_report::RunReport;
use crate::observe::report::span::{IncidentKind, Span};
use crate::observe::report::stragglers::{slow_items, slow_producers};
use crate::observe::report::timeline::Timeline;

/// The width of a chart, and the positions where its time begins and ends.
const WIDTH: f64 = 960.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 940.0;

/// The height that the axis needs below a chart.
const BELOW: f64 = 22.0;

/// Narrower columns could not be distinguished.
const MOST_BUSY_COLUMNS: usize = 256;

/// The number of shades from idle to fully busy.
const SHADES: u32 = 8;

/// Rows are tall if they are few, and shrink to fit on a screen.
const TALLEST: f64 = 30.0;
const LOWEST: f64 = 4.0;
const HEIGHT: f64 = 480.0;
const TEXT: f64 = 13.0;

/// Room for the first label, which may be taller than its row.
const ABOVE: f64 = 6.0;

/// More columns would show how the ends of batches fall into them.
const MOST_RATES: usize = 120;

const TOP: f64 = 10.0;
const BOTTOM: f64 = 140.0;

/// Draws when each producer worked: one row each, darker is busier.
pub(super) fn busy_chart(report: &RunReport, timeline: &Timeline) -> String {
    let rows = timeline.busy_ns.len().min(report.producers.len()).min(PRODUCERS.page);
    let tall = (HEIGHT / rows as f64).clamp(LOWEST, TALLEST);
    let height = ABOVE + rows as f64 * tall + BELOW;
    let words = report.words();
    let text = format!(
        "{}, each a row from the beginning of the run to its end; the darker, the more of the time \
         it worked. A red mark is a failure, an orange outline {} {} that took much longer than others.",
        Many(rows as u64, words.producer),
        words.article,
        words.item,
    );
    let mut svg = begin("busy", height, &format!("When each {} worked", words.producer), &text);
    let labelled = (TEXT / tall).ceil() as usize;
    let slow: Vec<usize> = slow_producers(report).into_iter().map(|slow| slow.producer).collect();
    for producer in 0..rows {
        let y = ABOVE + producer as f64 * tall;
        let name = label(report, producer);
        let busy = Percent(report.producers[producer].busy).to_string();
        let ProducerReport { stage, place, .. } = &report.producers[producer];
        let stage = stage.as_ref().map_or(String::new(), |stage| format!("{stage}, "));
        let title = format!("{producer} {stage}{place}: {busy} busy");
        push!(svg, "<g><title>{}</title>", Html(&title));
        push_row(&mut svg, &ChartRow { y, tall }, report, timeline, producer);
        svg.push_str("</g>\n");
        if producer.is_multiple_of(labelled) {
            let (x, y) = (LEFT - 8.0, y + tall / 2.0 + 4.0);
            // On a narrow screen, letters are larger, and there is room for fewer.
            let minor = if (producer / labelled).is_multiple_of(2) || tall == TALLEST {
                ""
            } else {
                " minor"
            };
            let warn = if slow.contains(&producer) { " slow" } else { "" };
            push!(svg, "<text class=\"end{minor}{warn}\" x=\"{x}\" y=\"{y:.1}\">{name}</text>\n");
        }
    }
    push_time_axis(&mut svg, height - BELOW + 1.0, report.lasted);
    svg + "</svg>\n" + &legend()
}

struct ChartRow {
    y: f64,
    tall: f64,
}

/// A narrow screen omits the place, or the stage of a pipeline.
fn label(report: &RunReport, producer: usize) -> String {
    let ProducerReport { stage, place, .. } = &report.producers[producer];
    let name = clipped(stage.as_ref().unwrap_or(place), 12);
    format!("{producer}<tspan class=\"minor\"> {}</tspan>", Html(&name))
}

fn push_row(
    svg: &mut String,
    row: &ChartRow,
    report: &RunReport,
    timeline: &Timeline,
    producer: usize,
) {
    let (y, tall) = (row.y + 0.5, row.tall - 1.0);
    let width = RIGHT - LEFT;
    push!(
        svg,
        "<rect class=\"track\" x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width}\" height=\"{tall:.1}\"/>"
    );
    for (shade, path) in shades(row, report, timeline, producer) {
        let opacity = f64::from(shade) / f64::from(SHADES);
        push!(svg, "<path class=\"busy\" fill-opacity=\"{opacity}\" d=\"{path}\"/>");
    }
    push_stragglers(svg, row, report, producer);
    let marks = marks(row, report, producer);
    if !marks.is_empty() {
        push!(svg, "<path class=\"mark\" d=\"{marks}\"/>");
    }
}

/// One path per shade: adjacent columns of one shade form one rectangle.
fn shades(
    row: &ChartRow,
    report: &RunReport,
    timeline: &Timeline,
    producer: usize,
) -> BTreeMap<u32, String> {
    let shares = timeline.shares(producer, MOST_BUSY_COLUMNS, report.lasted);
    let shades: Vec<u32> = shares.iter().map(|&share| shade(share)).collect();
    let extent = timeline.extent(MOST_BUSY_COLUMNS).as_secs_f64() / report.lasted.as_secs_f64();
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
            push!(path, "M{from:.2} {y:.1}h{wide:.2}v{tall:.1}h-{wide:.2}z");
        }
    }
    paths
}

/// A small share is not drawn as none.
fn shade(share: f64) -> u32 {
    (share * f64::from(SHADES) - 0.01).ceil().clamp(0.0, f64::from(SHADES)) as u32
}

/// Outlines the attempts that took much longer than others.
fn push_stragglers(svg: &mut String, row: &ChartRow, report: &RunReport, producer: usize) {
    for slow in slow_items(report).into_iter().filter(|slow| slow.producer == producer) {
        let is_it = |span: &&Span| {
            (span.item, span.producer, span.attempt) == (slow.item, producer, slow.attempt)
        };
        let Some(span) = report.spans.iter().find(is_it) else { continue };
        let [from, until] =
            [span.start, span.start + span.took].map(|at| position(at.as_secs_f64(), report));
        let name = item(report.words(), slow.item, slow.key.as_deref());
        push!(
            svg,
            "<rect class=\"straggler\" x=\"{from:.1}\" y=\"{:.1}\" width=\"{:.1}\" \
                 height=\"{:.1}\"><title>{}: {}</title></rect>",
            row.y + 1.0,
            (until - from).max(1.0),
            (row.tall - 2.0).max(1.0),
            Html(&name),
            Time(slow.took)
        );
    }
}

/// Marks failures, at most one per distinguishable position.
fn marks(row: &ChartRow, report: &RunReport, producer: usize) -> String {
    let here = report.incidents.iter().filter(|incident| {
        incident.producer == Some(producer) && incident.kind != IncidentKind::Retried
    });
    let mut places: Vec<u64> =
        here.map(|incident| position(incident.at.as_secs_f64(), report) as u64).collect();
    places.dedup();
    let mark = |x: u64| format!("M{x} {:.1}v{:.1}", row.y, row.tall);
    places.into_iter().map(mark).collect()
}

fn legend() -> String {
    let mut legend = "<p class=\"legend\"><span>idle</span>".to_owned();
    for shade in 0..=SHADES {
        let opacity = f64::from(shade) / f64::from(SHADES);
        push!(legend, "<i class=\"shade\"><i style=\"opacity:{opacity}\"></i></i>");
    }
    legend.push_str(
        "<span>busy</span><i class=\"failure\"></i><span>failure</span>\
         <i class=\"outline\"></i><span>straggler</span></p>\n",
    );
    legend
}

/// Draws the items done per second over time.
pub(super) fn throughput_chart(report: &RunReport) -> String {
    let rates = report.throughput.rates(MOST_RATES, report.lasted);
    let most = rates.iter().map(|&(_, rate)| rate).fold(f64::MIN_POSITIVE, f64::max);
    let items = capitalised(report.words().items);
    let title = format!("{items} done over time");
    let text = format!(
        "{items} per second, from the beginning of the run to its end after {}; at most {}.",
        Time(report.lasted),
        rate(most)
    );
    let mut svg = begin("throughput", BOTTOM + BELOW, &title, &text);
    let mut line = String::new();
    for (until, rate) in rates {
        // One step per rate.
        let (x, y) = (position(until, report), BOTTOM - rate / most * (BOTTOM - TOP));
        push!(line, "V{y:.1}H{x:.2}");
    }
    push!(svg, "<path class=\"area\" d=\"M{LEFT} {BOTTOM}{line}V{BOTTOM}z\"/>\n");
    push!(svg, "<path class=\"curve\" d=\"M{LEFT} {BOTTOM}{line}\"/>\n");
    push_rates(&mut svg, most);
    push_time_axis(&mut svg, BOTTOM, report.lasted);
    svg + "</svg>\n"
}

/// The place of a time of the run, in seconds.
fn position(at: f64, report: &RunReport) -> f64 {
    LEFT + (at / report.lasted.as_secs_f64()).min(1.0) * (RIGHT - LEFT)
}

fn push_rates(svg: &mut String, most: f64) {
    for share in [0.0, 0.5, 1.0] {
        let y = BOTTOM - share * (BOTTOM - TOP);
        let unit = if share == 1.0 { "/s" } else { "" };
        push!(
            svg,
            "<path class=\"axis\" d=\"M{LEFT} {y}h-4\"/><text class=\"end\" x=\"{}\" y=\"{}\">{}{unit}\
                 </text>\n",
            LEFT - 8.0,
            y + 4.0,
            rate(most * share)
        );
    }
}

/// Begins a chart; `text` describes it for screen readers.
fn begin(id: &str, height: f64, title: &str, text: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{title}</title>\n\
         <desc id=\"{id}-desc\">{text}</desc>\n"
    )
}

/// Adds the time axis, which begins with the run.
fn push_time_axis(svg: &mut String, y: f64, lasted: Duration) {
    push!(svg, "<path class=\"axis\" d=\"M{LEFT} {y}H{RIGHT}\"/>\n");
    for quarter in 0..=4 {
        let x = LEFT + (RIGHT - LEFT) * f64::from(quarter) / 4.0;
        let class = match quarter {
            4 => "end",
            1 | 3 => "middle minor",
            _ => "middle",
        };
        let time = Time(lasted / 4 * quarter);
        push!(
            svg,
            "<path class=\"axis\" d=\"M{x} {y}v4\"/><text class=\"{class}\" x=\"{x}\" y=\"{}\">\
                 {time}</text>\n",
            y + 16.0
        );
    }
}

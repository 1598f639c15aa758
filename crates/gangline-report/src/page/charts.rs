//! The charts of a page: when each producer worked, the load of GPUs, and items done over time.
//!
//! A drawing has the width of the page, and its labels are text beside it, so that they keep their size on a phone.

use std::collections::BTreeMap;
use std::time::Duration;

use super::ticks::{self, Tick};
use crate::formats::{Count, Html, Many, Percent, Time, capitalised, clipped, item, push, rate};
use crate::gpu_load::GpuSample;
use crate::outline::{LONGEST_KEY, PRODUCERS, matters};
use crate::producer_report::ProducerReport;
use crate::run_report::RunReport;
use crate::span::{AttemptCounts, IncidentKind, Span};
use crate::stragglers::{notable_first, slow_items, slow_producers, stage_of};
use crate::time_kind::TimeKind;
use crate::timeline::{KindTimeline, Throughput, Timeline};

/// The units of a drawing, which is stretched to the width of the page.
const WIDTH: f64 = 1_000.0;
const TALL: f64 = 20.0;
const HEIGHT: f64 = 120.0;

/// Narrower columns could not be distinguished.
const MOST_BUSY_COLUMNS: usize = 256;

/// The number of shades from idle to fully busy.
const SHADES: u32 = 8;

/// More columns would show how the ends of batches fall into them.
const MOST_RATES: usize = 120;

/// The least columns of a chart of rates, and the items that each further column has on average.
const LEAST_RATES: usize = 12;
const FEWEST_OF_A_RATE: u64 = 10;

/// A longer place or stage is clipped, since labels have one line.
const LONGEST_LABEL: usize = 12;

/// Draws when each producer worked: one row each, darker is busier.
pub(super) fn busy_chart(report: &RunReport, timeline: &Timeline) -> String {
    let (order, open) = notable_first(report);
    let is_drawn = |producer: &usize| *producer < timeline.busy_ns.len();
    let rows = order.len().min(PRODUCERS);
    let words = report.words();
    let mut chart = format!(
        "<figure class=\"chart\" aria-label=\"When each {} worked: {}, each a row from the beginning of the \
         run to its end; the darker, the more of the time it worked. Other colours are other kinds of its time.\">\n",
        words.producer,
        Many(rows as u64, words.producer),
    );
    let slow: Vec<usize> = slow_producers(report).into_iter().map(|slow| slow.producer).collect();
    let push_lanes = |chart: &mut String, producers: &[usize]| {
        for &producer in producers.iter().filter(|it| is_drawn(it)) {
            push_lane(chart, report, timeline, producer, slow.contains(&producer));
        }
    };
    push_lanes(&mut chart, &order[..open]);
    push_time_axis(&mut chart, report.lasted);
    chart.push_str(&legend(report, timeline));
    if open < rows {
        push!(chart, "<details class=\"rest\"><summary>{} more</summary>\n", rows - open);
        push_lanes(&mut chart, &order[open..rows]);
        push_time_axis(&mut chart, report.lasted);
        chart.push_str("</details>\n");
    }
    chart + "</figure>\n"
}

fn push_lane(
    chart: &mut String,
    report: &RunReport,
    timeline: &Timeline,
    producer: usize,
    is_slow: bool,
) {
    let ProducerReport { stage, place, busy, .. } = &report.producers[producer];
    let name = clipped(stage.as_ref().unwrap_or(place), LONGEST_LABEL);
    let stage = stage.as_ref().map_or(String::new(), |stage| format!("{stage}, "));
    let title = format!("{producer} {stage}{place}: {} busy", Percent(*busy));
    let class = if is_slow { "label slow" } else { "label" };
    open_row(chart, class, (&producer.to_string(), &name), &title);
    push_shades(
        chart,
        TimeKind::Work.name(),
        &columns(report, timeline, &timeline.busy_ns[producer]),
    );
    for KindTimeline { kind, ns } in shown_kinds(report, timeline) {
        if let Some(bins) = ns.get(producer) {
            push_shades(chart, kind.name(), &columns(report, timeline, bins));
        }
    }
    push_stragglers(chart, report, producer);
    let marked: [MarkedKinds; 2] = [
        ("again", |kind| kind == IncidentKind::Retried),
        ("mark", |kind| kind != IncidentKind::Retried),
    ];
    for (class, is_shown) in marked {
        let marks = marks(report, producer, is_shown);
        if !marks.is_empty() {
            push_seen(chart, class, &marks, "");
        }
    }
    chart.push_str("</svg></div>\n");
}

/// Begins a row of a chart, beside its two labels.
fn open_row(chart: &mut String, class: &str, (label, minor): (&str, &str), title: &str) {
    push!(
        chart,
        "<div class=\"lane\"><span class=\"{class}\">{} <span class=\"minor\">{}</span></span>{}<title>{}</title>\n\
         <rect class=\"track\" width=\"{WIDTH}\" height=\"{TALL}\"/>",
        Html(label),
        Html(minor),
        drawing(TALL),
        Html(title)
    );
}

/// Begins a drawing. It is a row or a plot of the height that its class has.
fn drawing(height: f64) -> String {
    format!("<svg viewBox=\"0 0 {WIDTH} {height}\" preserveAspectRatio=\"none\" role=\"img\">")
}

/// Draws a path above a wider one in the colour of the page. So it stands out from every shade, and from its like.
fn push_seen(chart: &mut String, class: &str, path: &str, title: &str) {
    push!(
        chart,
        "<path class=\"halo\" d=\"{path}\"/><path class=\"{class}\" d=\"{path}\">{title}</path>"
    );
}

/// Shares of a row of a chart: where each ends, and the share from 0 to 1.
type Columns = Vec<(f64, f64)>;

fn columns(report: &RunReport, timeline: &Timeline, bins: &[u64]) -> Columns {
    let shares = timeline.shares(bins, MOST_BUSY_COLUMNS, report.lasted);
    let extent = timeline.extent(MOST_BUSY_COLUMNS).as_secs_f64() / report.lasted.as_secs_f64();
    let column = WIDTH * extent / shares.len().max(1) as f64;
    (1..).map(|number| f64::from(number) * column).zip(shares).collect()
}

/// Adds shares to a row. They have one path per shade: adjacent columns of one shade form one rectangle.
fn push_shades(chart: &mut String, class: &str, columns: &Columns) {
    let mut paths = BTreeMap::<u32, String>::new();
    let mut from = 0.0;
    for run in columns.chunk_by(|one, other| shade(one.1) == shade(other.1)) {
        let (until, share) = run[run.len() - 1];
        let until = until.min(WIDTH);
        if shade(share) > 0 {
            let path = paths.entry(shade(share)).or_default();
            let wide = until - from;
            push!(path, "M{from:.2} 0h{wide:.2}v{TALL}h-{wide:.2}z");
        }
        from = until;
    }
    for (shade, path) in paths {
        let opacity = f64::from(shade) / f64::from(SHADES);
        push!(chart, "<path class=\"{class}\" fill-opacity=\"{opacity}\" d=\"{path}\"/>");
    }
}

/// A small share is not drawn as none.
fn shade(share: f64) -> u32 {
    (share * f64::from(SHADES) - 0.01).ceil().clamp(0.0, f64::from(SHADES)) as u32
}

/// Outlines the attempts that took much longer than others.
fn push_stragglers(chart: &mut String, report: &RunReport, producer: usize) {
    let (of_producer, number) = stage_of(report, producer);
    for slow in slow_items(report).into_iter().filter(|slow| slow.producer == producer) {
        let is_it = |span: &&Span| {
            (span.item, span.producer, span.attempt) == (slow.item, number, slow.attempt)
        };
        let Some(span) = of_producer.spans.iter().find(is_it) else { continue };
        let [from, until] =
            [span.start, span.start + span.took].map(|at| position(at.as_secs_f64(), report));
        let name = item(report.words(), slow.item, slow.key.as_deref(), LONGEST_KEY);
        let wide = (until - from).max(1.0);
        let (top, tall) = (2.0, TALL - 4.0);
        let path = format!("M{from:.1} {top}h{wide:.1}v{tall}h-{wide:.1}z");
        let title = format!("<title>{}: {}</title>", Html(&name), Time(slow.took));
        push_seen(chart, "straggler", &path, &title);
    }
}

/// The class of a mark, and the kinds of incidents that have it.
type MarkedKinds = (&'static str, fn(IncidentKind) -> bool);

/// Marks incidents of a producer, at most one per distinguishable position.
fn marks(report: &RunReport, producer: usize, is_shown: fn(IncidentKind) -> bool) -> String {
    let here = report.incidents.iter();
    let here = here.filter(|it| it.producer == Some(producer) && is_shown(it.kind));
    let mut places: Vec<u64> =
        here.map(|incident| position(incident.at.as_secs_f64(), report) as u64).collect();
    places.dedup();
    places.into_iter().map(|x| format!("M{x} 0v{TALL}")).collect()
}

/// The kinds of time that have a colour, beside work.
fn shown_kinds<'a>(
    report: &'a RunReport,
    timeline: &'a Timeline,
) -> impl Iterator<Item = &'a KindTimeline> {
    timeline.others.iter().filter(|it| matters(report, it.kind))
}

fn legend(report: &RunReport, timeline: &Timeline) -> String {
    let other = |it: &KindTimeline| {
        format!("<span><i class=\"kind {}\"></i> {}</span> ", it.kind.name(), it.kind.text())
    };
    let is_retried = report.incidents.iter().any(|it| it.kind == IncidentKind::Retried);
    let again = match is_retried {
        true => "<span><i class=\"failure retried\"></i> failure that was retried</span> ",
        false => "",
    };
    let others: String = shown_kinds(report, timeline).map(other).collect();
    format!(
        "<p class=\"legend\">{} {others}{again}<span><i class=\"failure\"></i> failure</span> \
         <span><i class=\"outline\"></i> straggler</span></p>\n",
        shade_scale("waiting for input", "work")
    )
}

/// All shades, between the words for none and for all.
fn shade_scale(none: &str, all: &str) -> String {
    let mut scale = format!("<span>{none} ");
    for shade in 0..=SHADES {
        let opacity = f64::from(shade) / f64::from(SHADES);
        push!(scale, "<i class=\"shade\"><i style=\"opacity:{opacity}\"></i></i>");
    }
    scale + " " + all + "</span>"
}

/// Draws the load and the memory of each GPU: a row each, darker is more.
pub(super) fn gpu_chart(report: &RunReport) -> String {
    let mut chart = "<figure class=\"chart\" aria-label=\"The load and the memory in use of each GPU, each a row from \
                     the beginning of the run to its end; the darker, the more.\">\n"
        .to_owned();
    for gpu in &report.gpus {
        let columns = |share: &dyn Fn(&GpuSample) -> f64| -> Columns {
            let column = |it: &GpuSample| (position(it.at.as_secs_f64(), report), share(it));
            gpu.samples.iter().map(column).collect()
        };
        let device = clipped(&gpu.device, LONGEST_LABEL);
        push_gpu_row(&mut chart, &device, "load", &columns(&|it| it.busy));
        push_gpu_row(&mut chart, &device, "memory", &columns(&|it| gpu.memory_share(it)));
    }
    push_time_axis(&mut chart, report.lasted);
    push!(chart, "<p class=\"legend\">{}</p>\n", shade_scale("0 %", "100 %"));
    chart + "</figure>\n"
}

fn push_gpu_row(chart: &mut String, device: &str, what: &str, columns: &Columns) {
    open_row(chart, "label", (device, what), &format!("{device}: {what}"));
    push_shades(chart, TimeKind::Work.name(), columns);
    chart.push_str("</svg></div>\n");
}

/// Draws the items done per second over time.
pub(super) fn throughput_chart(report: &RunReport) -> String {
    let rates = report.throughput.rates(rate_columns(&report.throughput), report.lasted);
    let most = rates.iter().map(|&(_, rate)| rate).fold(f64::MIN_POSITIVE, f64::max);
    let items = capitalised(report.words().items);
    let text = format!(
        "{items} per second, from the beginning of the run to its end after {}; at most {}.",
        Time(report.lasted),
        rate(most)
    );
    let (top, marks) = ticks::values(most);
    let mut line = String::new();
    for (until, rate) in rates {
        // One step per rate.
        let (x, y) = (position(until, report), HEIGHT - rate / top * HEIGHT);
        push!(line, "V{y:.1}H{x:.2}");
    }
    let mut chart = format!("<figure class=\"chart\" aria-label=\"{text}\">\n");
    push_plot(&mut chart, &format!("{items} per second"), &text, &marks, &line);
    push_time_axis(&mut chart, report.lasted);
    chart + "</figure>\n"
}

/// The number of columns of a chart of rates. With few items in each, whole numbers would look like pulses.
fn rate_columns(throughput: &Throughput) -> usize {
    let items = throughput.items.iter().fold(0, |sum: u64, it| sum.saturating_add(*it));
    let enough = usize::try_from(items / FEWEST_OF_A_RATE).unwrap_or(MOST_RATES);
    enough.clamp(LEAST_RATES, MOST_RATES)
}

/// Draws how many attempts took how long.
pub(super) fn distribution_chart(times: &AttemptCounts) -> String {
    let AttemptCounts { from, until, counts } = times;
    let most = counts.iter().copied().max().unwrap_or(0);
    let bound = |power| Time(Duration::from_secs_f64(10_f64.powi(power)));
    let text = format!(
        "Attempts by the time that they took, from {} to {}; at most {} in a column.",
        bound(*from),
        bound(*until),
        Count(most)
    );
    let (top, marks) = ticks::values(most as f64);
    let column = WIDTH / counts.len() as f64;
    let step = |(index, count): (usize, &u64)| {
        let (x, y) = ((index + 1) as f64 * column, HEIGHT - *count as f64 / top * HEIGHT);
        format!("V{y:.1}H{x:.2}")
    };
    let line: String = counts.iter().enumerate().map(step).collect();
    let mut chart = format!("<figure class=\"chart\" aria-label=\"{text}\">\n");
    push_plot(&mut chart, "Attempts, by the time that they took", &text, &marks, &line);
    push_ticks(&mut chart, &ticks::powers(*from, *until));
    chart + "</figure>\n"
}

/// Adds a plot of a line above 0, below a note.
fn push_plot(chart: &mut String, note: &str, title: &str, marks: &[Tick], line: &str) {
    push!(chart, "<p class=\"note\">{note}</p>\n<div class=\"lane plot\">");
    push_scale(chart, marks);
    chart.push_str(&drawing(HEIGHT));
    push!(chart, "<title>{title}</title>\n{}", grid(marks));
    push!(chart, "<path class=\"area\" d=\"M0 {HEIGHT}{line}V{HEIGHT}z\"/>\n");
    push!(chart, "<path class=\"curve\" d=\"M0 {HEIGHT}{line}\"/></svg></div>\n");
}

/// The place of a time of the run, in seconds.
fn position(at: f64, report: &RunReport) -> f64 {
    (at / report.lasted.as_secs_f64()).min(1.0) * WIDTH
}

fn grid(marks: &[Tick]) -> String {
    let line = |tick: &Tick| format!("M0 {:.1}h{WIDTH}", HEIGHT - tick.at * HEIGHT);
    format!("<path class=\"axis\" d=\"{}\"/>\n", marks.iter().map(line).collect::<String>())
}

/// Adds the labels at the left of a plot.
fn push_scale(chart: &mut String, marks: &[Tick]) {
    chart.push_str("<span class=\"scale\">");
    for Tick { at, label } in marks {
        push!(chart, "<span style=\"bottom:{:.2}%\">{label}</span>", 100.0 * at);
    }
    chart.push_str("</span>");
}

/// Adds the time axis, which begins with the run.
fn push_time_axis(chart: &mut String, lasted: Duration) {
    push_ticks(chart, &ticks::times(lasted));
}

/// Adds the labels below a chart.
fn push_ticks(chart: &mut String, ticks: &[Tick]) {
    chart.push_str("<div class=\"lane\"><span></span><div class=\"times\">");
    for Tick { at, label } in ticks {
        push!(chart, "<span style=\"left:{:.2}%\">{label}</span>", 100.0 * at);
    }
    chart.push_str("</div></div>\n");
}

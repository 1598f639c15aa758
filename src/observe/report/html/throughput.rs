//! A chart of items done per second over time.

use std::fmt::Write as _;

use super::markup::{push, section as begin};
use super::plot;
use super::plot::{BELOW, LEFT, RIGHT, rate};
use crate::observe::report::run_report::RunReport;
use crate::observe::report::text::{Time, capitalised};

/// More columns would show how the ends of batches fall into them.
const MOST_COLUMNS: usize = 120;

const TOP: f64 = 10.0;
const BOTTOM: f64 = 140.0;

pub(super) fn section(report: &RunReport) -> String {
    let rates = report.throughput.rates(MOST_COLUMNS, report.lasted);
    let most = rates.iter().map(|&(_, rate)| rate).fold(0.0, f64::max);
    if most <= 0.0 {
        return String::new();
    }
    let items = capitalised(report.words().items);
    let title = format!("{items} done over time");
    let text = format!(
        "{items} per second, from the beginning of the run to its end after {}; at most {}.",
        Time(report.lasted),
        rate(most)
    );
    let mut svg = plot::begin("throughput", BOTTOM + BELOW, &title, &text);
    let line = line(&rates, most, report.lasted.as_secs_f64());
    push(&mut svg, format_args!("<path class=\"area\" d=\"M{LEFT} {BOTTOM}{line}V{BOTTOM}z\"/>\n"));
    push(&mut svg, format_args!("<path class=\"curve\" d=\"M{LEFT} {BOTTOM}{line}\"/>\n"));
    push_rates(&mut svg, most);
    plot::push_time_axis(&mut svg, BOTTOM, report.lasted);
    begin(&title, &format!("{svg}</svg>\n")) + "</section>\n"
}

/// One step per rate.
fn line(rates: &[(f64, f64)], most: f64, lasted: f64) -> String {
    let mut line = String::new();
    for (until, rate) in rates {
        let x = LEFT + (until / lasted).min(1.0) * (RIGHT - LEFT);
        let y = BOTTOM - rate / most * (BOTTOM - TOP);
        write!(line, "V{y:.1}H{x:.2}").expect("writing to a text does not fail");
    }
    line
}

fn push_rates(svg: &mut String, most: f64) {
    for share in [0.0, 0.5, 1.0] {
        let y = BOTTOM - share * (BOTTOM - TOP);
        let unit = if share == 1.0 { "/s" } else { "" };
        push(
            svg,
            format_args!(
                "<path class=\"axis\" d=\"M{LEFT} {y}h-4\"/><text class=\"end\" x=\"{}\" y=\"{}\">{}{unit}\
                 </text>\n",
                LEFT - 8.0,
                y + 4.0,
                rate(most * share)
            ),
        );
    }
}

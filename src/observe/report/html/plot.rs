//! What the charts share: their frame in user units, and the time axis.

use std::time::Duration;

use super::markup::push;
use crate::observe::report::text::{Count, Time};

/// The width of a chart, and the positions where its time begins and ends.
pub(super) const WIDTH: f64 = 960.0;
pub(super) const LEFT: f64 = 120.0;
pub(super) const RIGHT: f64 = 940.0;

/// The height that the axis needs below a chart.
pub(super) const BELOW: f64 = 22.0;

/// Begins a chart; `text` describes it for screen readers.
pub(super) fn begin(id: &str, height: f64, title: &str, text: &str) -> String {
    format!(
        "<svg viewBox=\"0 0 {WIDTH} {height}\" role=\"img\" \
         aria-labelledby=\"{id}-title {id}-desc\">\n<title id=\"{id}-title\">{title}</title>\n\
         <desc id=\"{id}-desc\">{text}</desc>\n"
    )
}

/// Adds the time axis, which begins with the run.
pub(super) fn push_time_axis(svg: &mut String, y: f64, lasted: Duration) {
    push(svg, format_args!("<path class=\"axis\" d=\"M{LEFT} {y}H{RIGHT}\"/>\n"));
    for quarter in 0..=4 {
        let x = LEFT + (RIGHT - LEFT) * f64::from(quarter) / 4.0;
        let class = match quarter {
            4 => "end",
            1 | 3 => "middle minor",
            _ => "middle",
        };
        let time = Time(lasted / 4 * quarter);
        push(
            svg,
            format_args!(
                "<path class=\"axis\" d=\"M{x} {y}v4\"/><text class=\"{class}\" x=\"{x}\" y=\"{}\">\
                 {time}</text>\n",
                y + 16.0
            ),
        );
    }
}

/// Formats items per second in three digits.
pub(crate) fn rate(rate: f64) -> String {
    match rate {
        0.0 => "0".to_owned(),
        ..9.995 => format!("{rate:.2}"),
        ..99.95 => format!("{rate:.1}"),
        _ => Count(rate.round() as u64).to_string(),
    }
}

//! The plot of this benchmark: a group of bars for each row.

use std::path::Path;

use gangline::BoxError;
use plotters::prelude::*;

use crate::chart::{
    Area, BLUE, Dot, FONT, INK, Line, Pen, SIZE, SKY, VERMILION, builder, explain, layout, save,
    style,
};
use crate::{Row, WAYS, Way};

/// Draws `window.svg` and `window-dark.svg`.
pub(crate) fn draw_rows(rows: &[Row], folder: &Path) -> Result<(), BoxError> {
    let mut svg = String::new();
    draw(rows, &SVGBackend::with_string(&mut svg, SIZE).into_drawing_area())?;
    save(folder, "window", &svg)
}

fn draw(rows: &[Row], root: &Area<'_>) -> Result<(), BoxError> {
    let title = "What order costs, by the durations of items";
    let subtitle = "share of the rate that no overhead would allow (line: 1); items of 20 ms on average that sleep";
    let (plot, legend) = layout(root, title, subtitle)?;
    let mut chart = builder(&plot).build_cartesian_2d(0.0..rows.len() as f64, 0.0..1.05)?;
    let mut mesh = chart.configure_mesh();
    style(&mut mesh);
    mesh.disable_x_mesh().x_labels(0).y_label_formatter(&|y| format!("{y:.1}"));
    mesh.x_desc("producers, for each kind of durations").y_desc("share of the limit");
    mesh.draw()?;
    let limit = [(0.0, 1.0), (rows.len() as f64, 1.0)];
    chart.draw_series(LineSeries::new(limit, INK.stroke_width(1)))?;
    let font = || (FONT, 13).into_font().color(&INK);
    for (place, row) in rows.iter().enumerate() {
        let left = place as f64;
        for (bar, (share, way)) in row.shares.iter().zip(WAYS).enumerate() {
            let from = left + 0.14 + 0.24 * bar as f64;
            let corners = [(from, 0.0), (from + 0.22, *share)];
            chart.draw_series([Rectangle::new(corners, color(way).filled())])?;
        }
        // Above the axis, inside the bars: the labels of the axis would stand between the groups.
        let number = Text::new(row.producers.to_string(), (left + 0.4, 0.04), font().color(&WHITE));
        chart.draw_series([number])?;
        if rows.get(place.wrapping_sub(1)).is_none_or(|before| before.durations != row.durations) {
            let name = Text::new(row.durations.to_string(), (left + 0.1, 1.045), font());
            chart.draw_series([name])?;
        }
    }
    let line = |way: Way| Line {
        label: name(way).to_owned(),
        pen: Pen { color: color(way), width: 3, dot: Dot::Filled },
        points: vec![],
    };
    explain(&legend, &WAYS.map(line))?;
    Ok(root.present()?)
}

fn name(way: Way) -> &'static str {
    match way {
        Way::Ordered => "ordered, default window",
        Way::OrderedWide => "ordered, window(512)",
        Way::Unordered => "unordered",
    }
}

fn color(way: Way) -> RGBColor {
    match way {
        Way::Ordered => BLUE,
        Way::OrderedWide => SKY,
        Way::Unordered => VERMILION,
    }
}

//! Charts as SVG, for light pages and for dark ones; shared by the benchmarks.

use std::fs;
use std::path::Path;

use gangline::BoxError;
use plotters::chart::MeshStyle;
use plotters::coord::ranged1d::{Ranged, ValueFormatter};
use plotters::coord::{CoordTranslate, Shift};
use plotters::prelude::*;

pub const SIZE: (u32, u32) = (960, 600);
const LEGEND_WIDTH: u32 = 250;
const TITLE_HEIGHT: u32 = 62;
pub const FONT: &str = "sans-serif";
pub const INK: RGBColor = RGBColor(40, 40, 40);
const PALE: RGBColor = RGBColor(225, 225, 225);

// The Okabe-Ito palette, which is safe for colour-blind readers.
pub const BLACK: RGBColor = RGBColor(0, 0, 0);
pub const ORANGE: RGBColor = RGBColor(230, 159, 0);
pub const SKY: RGBColor = RGBColor(86, 180, 233);
pub const BLUE: RGBColor = RGBColor(0, 114, 178);
pub const VERMILION: RGBColor = RGBColor(213, 94, 0);
pub const GREY: RGBColor = RGBColor(140, 140, 140);

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

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Chart<'a, C> = ChartContext<'a, SVGBackend<'a>, C>;

pub struct Line {
    pub label: String,
    pub pen: Pen,
    pub points: Vec<(f64, f64)>,
}

#[derive(Clone, Copy)]
pub struct Pen {
    pub color: RGBColor,
    pub width: u32,
    pub dot: Dot,
}

#[derive(Clone, Copy)]
pub enum Dot {
    Filled,
    Hollow,
}

/// Writes `name.svg` and `name-dark.svg`.
pub fn save(folder: &Path, name: &str, svg: &str) -> Result<(), BoxError> {
    let text = |RGBColor(red, green, blue): RGBColor| format!("#{red:02X}{green:02X}{blue:02X}");
    let recolored = |svg: String, (light, dark)| svg.replace(&text(light), &text(dark));
    let dark = ON_DARK.into_iter().fold(svg.to_owned(), recolored);
    fs::create_dir_all(folder)?;
    fs::write(folder.join(format!("{name}.svg")), svg)?;
    Ok(fs::write(folder.join(format!("{name}-dark.svg")), dark)?)
}

/// The title on top, the plot at the left, the legend at the right.
pub fn layout<'a>(
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

pub fn builder<'a, 'b>(plot: &'b Area<'a>) -> ChartBuilder<'b, 'b, SVGBackend<'a>>
where
    'a: 'b,
{
    let mut builder = ChartBuilder::on(plot);
    builder.margin(12).x_label_area_size(48).y_label_area_size(70);
    builder
}

pub fn style<X, Y>(mesh: &mut MeshStyle<'_, '_, X, Y, SVGBackend<'_>>)
where
    X: Ranged<ValueType = f64> + ValueFormatter<f64>,
    Y: Ranged<ValueType = f64> + ValueFormatter<f64>,
{
    mesh.label_style((FONT, 14).into_font().color(&INK));
    mesh.axis_desc_style((FONT, 15).into_font().color(&INK));
    mesh.axis_style(GREY).bold_line_style(PALE).light_line_style(TRANSPARENT);
}

pub fn draw<'a, C>(chart: &mut Chart<'a, C>, lines: &[Line]) -> Result<(), BoxError>
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

pub fn explain(legend: &Area<'_>, lines: &[Line]) -> Result<(), BoxError> {
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

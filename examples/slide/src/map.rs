//! The probability map of a slide: blends tiles into it, and writes the files of a slide.

use std::io::{Cursor, Write};
use std::path::Path;

use gangline::{Result, sink};
use gangline_slide_support::{Regions, Rings};
use serde_json::{Value, json};
use tiff_reader::constants::Compression;
use tiff_reader::{Tag, TagValue};
use tiff_writer::{ImageBuilder, TiffWriter, WriteOptions};

use crate::options::Options;
use crate::slide::Corner;
use crate::tissue::Work;

/// A map while tiles are added: the sums of weighted probabilities, and of weights. The sums are integers, so their order
/// does not matter.
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    sums: Vec<u32>,
    weights: Vec<u32>,
}

/// A line of the table.
pub(crate) type Row = (String, u32, u32, usize, usize, String, usize, String, String);

/// The columns of the table.
pub(crate) const HEADER: [&str; 9] =
    ["slide", "width", "height", "sections", "tiles", "tissue", "areas", "positive", "mean"];

/// The number of the tag of TIFF for a text.
const DESCRIPTION: u16 = 270;
/// The side of a tile of the map's file.
const SIDE: usize = 256;
/// The weight of a tile grows for this many cells from its edges.
const RAMP: usize = 8;

impl Canvas {
    pub(crate) fn new(work: &Work, options: &Options) -> Canvas {
        let level = &work.slide.levels[options.level];
        let cells = |length: u32| length.div_ceil(options.cell) as usize;
        let (width, height) = (cells(level.width), cells(level.height));
        let zeros = vec![0; width * height];
        Canvas { width, height, sums: zeros.clone(), weights: zeros }
    }

    /// Adds the cells of a tile. Its weight falls towards its edges, so that no seam shows.
    pub(crate) fn add(&mut self, corner: Corner, cells: &[u8], options: &Options) {
        let side = options.cells();
        let weight = |at: usize| (at + 1).min(side - at).min(RAMP) as u32;
        let [left, top] = corner.map(|at| (at / options.cell) as usize);
        for y in 0..side.min(self.height - top) {
            for x in 0..side.min(self.width - left) {
                let (place, weight) = ((top + y) * self.width + left + x, weight(x) * weight(y));
                self.sums[place] += weight * u32::from(cells[y * side + x]);
                self.weights[place] += weight;
            }
        }
    }

    /// Writes the map and the areas of a slide, and returns the slide's line. Each file is complete or does not exist.
    pub(crate) fn write(&self, work: &Work, options: &Options) -> Result<Row> {
        let parts = self.sums.iter().zip(&self.weights);
        let values: Vec<u8> =
            parts.map(|(sum, weight)| sum.checked_div(*weight).unwrap_or(0) as u8).collect();
        let name = work.slide.name.clone();
        let scale = f64::from(options.cell) * work.slide.levels[options.level].downsample;
        whole(&options.output.join(format!("{name}.map.tif")), &self.tiff(&values, scale)?)?;
        let positive: Vec<bool> = values.iter().map(|&value| value >= options.threshold).collect();
        let areas = areas(&Regions::of(self.width, &positive), &values, work, scale);
        let count = areas.len();
        let areas = json!({"type": "FeatureCollection", "features": areas});
        whole(&options.output.join(format!("{name}.geojson")), areas.to_string().as_bytes())?;

        let level = &work.slide.levels[0];
        let seen = self.weights.iter().filter(|weight| **weight > 0).count().max(1) as f64;
        let positive = positive.iter().filter(|cell| **cell).count() as f64 / seen;
        let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / seen / 255.0;
        let [tissue, positive, mean] =
            [work.tissue.share, positive, mean].map(|share| format!("{share:.4}"));
        let (sections, tiles) = (work.tissue.sections.len(), work.tiles.len());
        Ok((name, level.width, level.height, sections, tiles, tissue, count, positive, mean))
    }

    /// One grey pixel for each cell: 255 is a probability of 1; 0 is also a cell without a tile.
    fn tiff(&self, values: &[u8], scale: f64) -> Result<Vec<u8>> {
        let description = json!({"downsample": scale, "probability": "value / 255"}).to_string();
        let image = ImageBuilder::new(self.width as u32, self.height as u32)
            .tiles(SIDE as u32, SIDE as u32)
            .compression(Compression::Deflate)
            .tag(Tag::new(DESCRIPTION, TagValue::Ascii(description)));
        let mut file = TiffWriter::new(Cursor::new(Vec::new()), WriteOptions::default())?;
        let image = file.add_image(image)?;
        let rows = (0..self.height).step_by(SIDE);
        let corners = rows.flat_map(|y| (0..self.width).step_by(SIDE).map(move |x| (x, y)));
        for (number, (x, y)) in corners.enumerate() {
            let mut tile = vec![0; SIDE * SIDE];
            let lines = values.chunks_exact(self.width).skip(y);
            for (to, from) in tile.chunks_exact_mut(SIDE).zip(lines) {
                let from = &from[x..self.width.min(x + SIDE)];
                to[..from.len()].copy_from_slice(from);
            }
            file.write_block(&image, number, &tile)?;
        }
        Ok(file.finish()?.into_inner())
    }
}

/// The regions as QuPath reads them: polygons in pixels of the largest level.
fn areas(regions: &Regions, values: &[u8], work: &Work, scale: f64) -> Vec<Value> {
    let mut sums = vec![0; regions.found.len() + 1];
    for (&label, &value) in regions.labels.iter().zip(values) {
        sums[label as usize] += u64::from(value);
    }
    let level = &work.slide.levels[0];
    let at = |cell: i32, length: u32| (f64::from(cell) * scale).min(f64::from(length));
    let means = sums[1..].iter().zip(&regions.found);
    let means = means.map(|(&sum, region)| sum as f64 / region.size as f64 / 255.0);
    let feature = |(rings, mean): (Rings, f64)| {
        let corners = |ring: Vec<[i32; 2]>| -> Vec<_> {
            ring.into_iter().map(|[x, y]| [at(x, level.width), at(y, level.height)]).collect()
        };
        let rings: Vec<_> = rings.into_iter().map(corners).collect();
        json!({
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": rings},
            "properties": {
                "objectType": "annotation",
                "classification": {"name": "Positive", "color": [200, 0, 0]},
                "measurements": {"Mean probability": mean},
            },
        })
    };
    regions.outlines().into_iter().zip(means).map(feature).collect()
}

fn whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = sink::atomic_file(path)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}

//! The probability map of a slide: blends tiles into it, and writes the files of a slide.

use std::io::{Cursor, Write};
use std::path::Path;

use gangline::{Result, sink};
use serde_json::{Value, json};
use tiff::encoder::TiffEncoder;

use crate::job::{self, Work};
use crate::options::Options;
use crate::regions::{Regions, Rings};
use crate::slide::Corner;
use crate::tiled::{SIDE, write_page};

/// A map while tiles are added: the sums of weighted probabilities, and of weights. The sums are integers, so their order
/// does not matter.
pub(crate) struct Canvas {
    width: usize,
    height: usize,
    sums: Vec<u32>,
    weights: Vec<u32>,
}

/// A line of the table.
pub(crate) type Row = (String, u32, u32, u32, usize, String, usize, String, String);

/// The columns of the table.
pub(crate) const HEADER: [&str; 9] =
    ["slide", "width", "height", "sections", "tiles", "tissue", "areas", "positive", "mean"];

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
        let name = job::name(&work.slide.path);
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
        let (sections, tiles) = (work.tissue.sections.count, work.tiles.len());
        Ok((name, level.width, level.height, sections, tiles, tissue, count, positive, mean))
    }

    /// One grey pixel for each cell: 255 is a probability of 1; 0 is also a cell without a tile.
    fn tiff(&self, values: &[u8], scale: f64) -> Result<Vec<u8>> {
        let description = json!({"downsample": scale, "probability": "value / 255"}).to_string();
        let size = [self.width as u32, self.height as u32];
        let mut bytes = Cursor::new(Vec::new());
        let mut file = TiffEncoder::new(&mut bytes)?;
        write_page(&mut file, size, 1, 0, &description, |x, y| {
            let side = SIDE as usize;
            let mut tile = vec![0; side * side];
            let lines = values.chunks_exact(self.width).skip(y as usize);
            for (to, from) in tile.chunks_exact_mut(side).zip(lines) {
                let from = &from[x as usize..self.width.min(x as usize + side)];
                to[..from.len()].copy_from_slice(from);
            }
            tile
        })?;
        Ok(bytes.into_inner())
    }
}

/// The regions as QuPath reads them: polygons in pixels of the largest level.
fn areas(regions: &Regions, values: &[u8], work: &Work, scale: f64) -> Vec<Value> {
    let mut sums = vec![(0_u64, 0_u64); regions.count as usize + 1];
    for (&label, &value) in regions.labels.iter().zip(values) {
        let (sum, count) = &mut sums[label as usize];
        (*sum, *count) = (*sum + u64::from(value), *count + 1);
    }
    let level = &work.slide.levels[0];
    let at = |cell: i64, length: u32| (cell as f64 * scale).min(f64::from(length));
    let outlines = regions.outlines().into_iter().zip(&sums[1..]);
    let feature = |(rings, (sum, count)): (Rings, &(u64, u64))| {
        let corners = |ring: Vec<(i64, i64)>| -> Vec<_> {
            ring.into_iter().map(|(x, y)| [at(x, level.width), at(y, level.height)]).collect()
        };
        let rings: Vec<_> = rings.into_iter().map(corners).collect();
        json!({
            "type": "Feature",
            "geometry": {"type": "Polygon", "coordinates": rings},
            "properties": {
                "objectType": "annotation",
                "classification": {"name": "Positive", "color": [200, 0, 0]},
                "measurements": {"Mean probability": *sum as f64 / *count as f64 / 255.0},
            },
        })
    };
    outlines.map(feature).collect()
}

fn whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = sink::atomic_file(path)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}

//! The probability map of a slide: blends tiles into it, and writes the files of a slide.

use std::io::{Cursor, Write};
use std::path::Path;

use gangline::{Result, sink};
use serde_json::{Value, json};
use tiff::encoder::TiffEncoder;

use crate::job::{Options, Work};
use crate::regions::{Corner, Regions, Rings};
use crate::tiled::{Packing, Page, SIDE, Sample};
use crate::tissue::Tile;

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
        let cells = |length: u32| length.div_ceil(options.grid.cell) as usize;
        let [width, height] = work.size.map(cells);
        let zeros = vec![0; width * height];
        Canvas { width, height, sums: zeros.clone(), weights: zeros }
    }

    /// Adds the cells of a tile. Its weight falls towards its edges, so that no seam shows.
    pub(crate) fn add(&mut self, tile: Tile, cells: &[u8], options: &Options) {
        let side = options.cells();
        let weight = |at: usize| (at + 1).min(side - at).min(RAMP) as u32;
        let [left, top] = [tile.x, tile.y].map(|at| (at / options.grid.cell) as usize);
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
        let name = work.slide.path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        whole(
            &options.output.join(format!("{name}.map.tif")),
            &self.tiff(&values, work, options)?,
        )?;
        let positive: Vec<bool> = values.iter().map(|&value| value >= options.threshold).collect();
        let areas = areas(&Regions::of(self.width, &positive), &values, work, options);
        let count = areas.len();
        let areas = json!({"type": "FeatureCollection", "features": areas});
        whole(&options.output.join(format!("{name}.geojson")), areas.to_string().as_bytes())?;

        let level = &work.slide.levels[0];
        let seen = self.weights.iter().filter(|weight| **weight > 0).count().max(1) as f64;
        let positive = positive.iter().filter(|cell| **cell).count() as f64 / seen;
        let mean = values.iter().map(|&value| f64::from(value)).sum::<f64>() / seen / 255.0;
        let number = |value: f64| format!("{value:.4}");
        let (sections, tissue) = (work.sections, number(work.tissue));
        let (tiles, positive) = (work.tiles.len(), number(positive));
        Ok((
            name,
            level.width,
            level.height,
            sections,
            tiles,
            tissue,
            count,
            positive,
            number(mean),
        ))
    }

    /// One grey pixel for each cell: 255 is a probability of 1; 0 is also a cell without a tile.
    fn tiff(&self, values: &[u8], work: &Work, options: &Options) -> Result<Vec<u8>> {
        let downsample = f64::from(options.grid.cell) * work.downsample;
        let page = Page {
            width: self.width as u32,
            height: self.height as u32,
            colours: 1,
            sample: Sample::Byte,
            packing: Packing::Deflate,
            reduced: 0,
            description: json!({"downsample": downsample, "probability": "value / 255"})
                .to_string(),
        };
        let mut bytes = Cursor::new(Vec::new());
        page.write(&mut TiffEncoder::new(&mut bytes)?, |x, y| {
            let mut tile = vec![0; (SIDE * SIDE) as usize];
            let (x, y) = (x as usize, y as usize);
            let length = (SIDE as usize).min(self.width - x);
            for (row, line) in
                tile.chunks_exact_mut(SIDE as usize).take(self.height - y).enumerate()
            {
                line[..length].copy_from_slice(&values[(y + row) * self.width + x..][..length]);
            }
            tile
        })?;
        Ok(bytes.into_inner())
    }
}

/// The regions as QuPath reads them: polygons in pixels of the largest level.
fn areas(regions: &Regions, values: &[u8], work: &Work, options: &Options) -> Vec<Value> {
    let mut sums = vec![(0_u64, 0_u64); regions.count as usize + 1];
    for (&label, &value) in regions.labels.iter().zip(values) {
        let (sum, count) = &mut sums[label as usize];
        (*sum, *count) = (*sum + u64::from(value), *count + 1);
    }
    let (level, scale) = (&work.slide.levels[0], f64::from(options.grid.cell) * work.downsample);
    let at = |cell: usize, length: u32| (cell as f64 * scale).min(f64::from(length));
    let outlines = regions.outlines().into_iter().zip(&sums[1..]);
    let feature = |(rings, (sum, count)): (Rings, &(u64, u64))| {
        let corner = |(x, y): Corner| [at(x, level.width), at(y, level.height)];
        let rings: Vec<Vec<_>> =
            rings.into_iter().map(|ring| ring.into_iter().map(corner).collect()).collect();
        let mean = *sum as f64 / *count as f64 / 255.0;
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
    outlines.map(feature).collect()
}

fn whole(path: &Path, bytes: &[u8]) -> Result<()> {
    let mut file = sink::atomic_file(path)?;
    file.write_all(bytes)?;
    Ok(file.commit()?)
}

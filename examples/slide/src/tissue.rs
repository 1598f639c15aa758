//! The tissue of a slide, and the tiles that cover it.

use gangline::Result;

use crate::options::Options;
use crate::regions::Regions;
use crate::slide::{Corner, Reader, Slide};

/// The tissue of a slide, on a grid of cells.
#[derive(Debug)]
pub(crate) struct Tissue {
    /// Pixels of the largest level on the side of a cell.
    step: f64,
    /// The pieces of tissue: the slide's sub-sections.
    pub(crate) sections: Regions,
    /// The share of cells that are tissue.
    pub(crate) share: f64,
}

/// The largest number of cells on the longer side of the mask.
const LONGEST: u32 = 2048;
/// The difference of a pixel's colours below which it is noise on glass.
const LEAST_COLOUR: usize = 24;
/// The number of cells below which a region is dirt.
const LEAST_CELLS: usize = 12;

impl Tissue {
    /// Finds the pixels of the smallest level that have more colour than glass. The threshold is Otsu's.
    pub(crate) fn find(reader: &mut Reader, slide: &Slide) -> Result<Tissue> {
        let last = slide.levels.len() - 1;
        let level = slide.level(last)?;
        let every = level.width.max(level.height).div_ceil(LONGEST) as usize;
        let mut colour = Vec::new();
        for y in (0..level.height).step_by(every) {
            let line = reader.pixels(slide, last, [0, y], [level.width, 1])?;
            let range =
                |rgb: &[u8]| rgb.iter().max().zip(rgb.iter().min()).map_or(0, |(a, b)| a - b);
            colour.extend(line.chunks_exact(3).step_by(every).map(range));
        }
        let width = (level.width as usize).div_ceil(every);
        let threshold = otsu(&colour).max(LEAST_COLOUR);
        let mut cells: Vec<bool> = colour.iter().map(|&it| usize::from(it) > threshold).collect();
        let regions = Regions::of(width, &cells);
        let mut sizes = vec![0; regions.count as usize + 1];
        regions.labels.iter().for_each(|&label| sizes[label as usize] += 1);
        for (cell, &label) in cells.iter_mut().zip(&regions.labels) {
            *cell &= sizes[label as usize] >= LEAST_CELLS;
        }
        let share = cells.iter().filter(|cell| **cell).count() as f64 / cells.len() as f64;
        let step = level.downsample * every as f64;
        Ok(Tissue { step, sections: Regions::of(width, &cells), share })
    }

    /// The tiles of all sections, one section after the other, each row by row.
    pub(crate) fn tiles(&self, slide: &Slide, options: &Options) -> Result<Vec<Corner>> {
        let level = slide.level(options.level)?;
        let step = self.step / level.downsample;
        let Regions { width, labels, count } = &self.sections;
        // The first and last cell of each section, across and down.
        let mut bounds = vec![[(usize::MAX, 0); 2]; *count as usize];
        for (i, &label) in labels.iter().enumerate().filter(|(_, label)| **label != 0) {
            for (bound, at) in bounds[label as usize - 1].iter_mut().zip([i % width, i / width]) {
                *bound = (bound.0.min(at), bound.1.max(at));
            }
        }
        let corners = |(first, last): (usize, usize), length: u32| {
            let first = (first as f64 * step) as u32 / options.cell * options.cell;
            let end = (((last + 1) as f64 * step) as u32).min(length);
            // The last tile reaches the end.
            let rest = end.saturating_sub(first + options.tile).div_ceil(options.stride());
            (0..=rest).map(move |i| first + i * options.stride())
        };
        let mut tiles = Vec::new();
        for ([across, down], label) in bounds.into_iter().zip(1..) {
            for y in corners(down, level.height) {
                let row = corners(across, level.width).map(|x| [x, y]);
                tiles.extend(row.filter(|corner| self.has(label, *corner, options.tile, step)));
            }
        }
        Ok(tiles)
    }

    /// Whether a tile has a cell of a section. A cell has `step` pixels on its side.
    fn has(&self, label: u32, corner: Corner, side: u32, step: f64) -> bool {
        let Regions { width, labels, .. } = &self.sections;
        let [columns, rows] = corner.map(|from| {
            let from = f64::from(from) / step;
            from as usize..(from + f64::from(side) / step).ceil() as usize
        });
        let columns = columns.start.min(*width)..columns.end.min(*width);
        let rows = rows.start..rows.end.min(labels.len() / width);
        rows.into_iter().any(|y| labels[y * width..][columns.clone()].contains(&label))
    }
}

/// Otsu's threshold: the one at which values below and above differ most.
fn otsu(values: &[u8]) -> usize {
    let mut histogram = [0_u64; 256];
    values.iter().for_each(|&value| histogram[usize::from(value)] += 1);
    let total: u64 = histogram.iter().zip(0..).map(|(count, value)| count * value).sum();
    let (mut below, mut sum) = (0_u64, 0_u64);
    let mut best = (0.0, 0);
    for (value, count) in histogram.iter().enumerate() {
        below += count;
        sum += count * value as u64;
        let above = values.len() as u64 - below;
        if below > 0 && above > 0 {
            let means = (total - sum) as f64 / above as f64 - sum as f64 / below as f64;
            let between = below as f64 * above as f64 * means * means;
            if between > best.0 {
                best = (between, value);
            }
        }
    }
    best.1
}

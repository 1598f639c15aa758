//! The tissue of a slide, and the tiles that cover it.

use gangline::Result;

use crate::regions::Regions;
use crate::slide::{Reader, Slide};

/// A square for the model, by its upper left corner in pixels of the level that the model sees.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    pub(crate) x: u32,
    pub(crate) y: u32,
}

/// The division of slides into tiles.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Grid {
    pub(crate) level: usize,
    /// Pixels of a tile's side.
    pub(crate) side: u32,
    /// Pixels from one tile to the next.
    pub(crate) stride: u32,
    /// Pixels of the side of a cell of the map. Both of the above are multiples of it.
    pub(crate) cell: u32,
}

/// The tissue of a slide, on a grid of cells.
#[derive(Debug)]
pub(crate) struct Tissue {
    /// Pixels of the largest level on the side of a cell.
    step: f64,
    regions: Regions,
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
        let level = slide.levels.len() - 1;
        let page = slide.level(level)?;
        let every = page.width.max(page.height).div_ceil(LONGEST);
        let (width, height) =
            (page.width.div_ceil(every) as usize, page.height.div_ceil(every) as usize);
        let mut colour = vec![0_u8; width * height];
        let across = page.width.div_ceil(page.tile.0);
        for index in 0..across * page.height.div_ceil(page.tile.1) {
            let tile = reader.tile(slide, level, index)?;
            let (left, top) = (index % across * page.tile.0, index / across * page.tile.1);
            for (i, rgb) in tile.rgb.chunks_exact(3).enumerate() {
                let (x, y) = (left + i as u32 % tile.width, top + i as u32 / tile.width);
                if x.is_multiple_of(every) && y.is_multiple_of(every) {
                    let range = rgb.iter().max().zip(rgb.iter().min());
                    let (most, least) = range.expect("a pixel has three colours");
                    colour[(y / every) as usize * width + (x / every) as usize] = most - least;
                }
            }
        }
        let threshold = otsu(&colour).max(LEAST_COLOUR);
        let mut cells: Vec<bool> =
            colour.iter().map(|&value| usize::from(value) > threshold).collect();
        let mut sizes = vec![0; cells.len() + 1];
        let regions = Regions::of(width, &cells);
        regions.labels.iter().for_each(|&label| sizes[label as usize] += 1);
        for (cell, &label) in cells.iter_mut().zip(&regions.labels) {
            *cell &= sizes[label as usize] >= LEAST_CELLS;
        }
        let share = cells.iter().filter(|cell| **cell).count() as f64 / cells.len() as f64;
        let step = page.downsample * f64::from(every);
        Ok(Tissue { step, regions: Regions::of(width, &cells), share })
    }

    /// The number of pieces of tissue: the slide's sub-sections.
    pub(crate) fn sections(&self) -> u32 {
        self.regions.count
    }

    /// The tiles of all sections, one section after the other, each row by row.
    pub(crate) fn tiles(&self, slide: &Slide, grid: Grid) -> Result<Vec<Tile>> {
        let level = slide.level(grid.level)?;
        let step = self.step / level.downsample;
        let mut bounds = vec![None::<[usize; 4]>; self.sections() as usize];
        let place = |i: usize| (i % self.regions.width, i / self.regions.width);
        for (i, &label) in self.regions.labels.iter().enumerate().filter(|(_, label)| **label != 0)
        {
            let (x, y) = place(i);
            let [x0, y0, x1, y1] = bounds[label as usize - 1].unwrap_or([x, y, x, y]);
            bounds[label as usize - 1] = Some([x0.min(x), y0.min(y), x1.max(x), y1.max(y)]);
        }
        let first = |cell: usize| (cell as f64 * step) as u32 / grid.cell * grid.cell;
        let end = |cell: usize, length: u32| (((cell + 1) as f64 * step) as u32).min(length);
        let steps = |from, to: u32| {
            // The last tile reaches the end.
            let rest = to.saturating_sub(from + grid.side).div_ceil(grid.stride);
            (0..=rest).map(move |i| from + i * grid.stride)
        };
        let mut tiles = Vec::new();
        for (section, [x0, y0, x1, y1]) in bounds.into_iter().flatten().enumerate() {
            for y in steps(first(y0), end(y1, level.height)) {
                for x in steps(first(x0), end(x1, level.width)) {
                    if self.has(
                        section as u32 + 1,
                        [x, y].map(|at| f64::from(at) / step),
                        f64::from(grid.side) / step,
                    ) {
                        tiles.push(Tile { x, y });
                    }
                }
            }
        }
        Ok(tiles)
    }

    /// Whether a square has a cell of a section. The corner and the side are in cells.
    fn has(&self, label: u32, corner: [f64; 2], side: f64) -> bool {
        let Regions { width, labels, .. } = &self.regions;
        let [columns, rows] = corner.map(|from| from as usize..(from + side).ceil() as usize);
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

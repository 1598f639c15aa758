//! The tissue of a slide, and the tiles that cover it.

use std::path::Path;

use gangline::Result;
use gangline_slide_support::{Region, Regions};

use crate::options::Options;
use crate::slide::{Corner, Level, Slide, TileCache};

/// A slide, and the tiles to work on.
pub(crate) struct Work {
    pub(crate) slide: Slide,
    pub(crate) tissue: Tissue,
    pub(crate) tiles: Vec<Corner>,
}

/// The tissue of a slide, on a grid of cells.
pub(crate) struct Tissue {
    /// Pixels of the largest level on the side of a cell.
    step: f64,
    cells: Regions,
    /// The pieces of tissue, with their labels in `cells`: the slide's sub-sections.
    pub(crate) sections: Vec<(u32, Region)>,
    /// The share of cells that are tissue.
    pub(crate) share: f64,
}

/// The largest number of cells on the longer side of the mask.
const LONGEST: u32 = 2048;
/// The least number, unless the slide has fewer pixels. Pyramids may end in a single pixel.
const SHORTEST: u32 = 256;
/// The difference of a pixel's colours below which it is noise on glass.
const LEAST_COLOUR: usize = 24;
/// The number of cells below which a region is dirt.
const LEAST_CELLS: usize = 12;

impl Work {
    /// Opens a slide, and finds its tissue.
    pub(crate) fn open(
        number: u64,
        path: &Path,
        cache: &TileCache,
        options: &Options,
    ) -> Result<Work> {
        let slide = Slide::open(number, path)?;
        let tissue = Tissue::find(cache, &slide)?;
        Ok(Work { tiles: tissue.tiles(&slide, options)?, tissue, slide })
    }
}

impl Tissue {
    /// Finds the pixels of the smallest level with enough of them that have more colour than glass. The threshold is
    /// Otsu's.
    fn find(cache: &TileCache, slide: &Slide) -> Result<Tissue> {
        let is_enough = |level: &Level| level.width.max(level.height) >= SHORTEST;
        let last = slide.levels.iter().rposition(is_enough).unwrap_or(0);
        let level = slide.level(last)?;
        let every = level.width.max(level.height).div_ceil(LONGEST) as usize;
        let mut colour = Vec::new();
        for y in (0..level.height).step_by(every) {
            let line = slide.pixels(cache, last, [0, y], [level.width, 1])?;
            let range =
                |rgb: &[u8]| rgb.iter().max().zip(rgb.iter().min()).map_or(0, |(a, b)| a - b);
            colour.extend(line.chunks_exact(3).step_by(every).map(range));
        }
        let threshold = otsu(&colour).max(LEAST_COLOUR);
        let tissue: Vec<bool> = colour.iter().map(|&it| usize::from(it) > threshold).collect();
        let cells = Regions::of((level.width as usize).div_ceil(every), &tissue);
        let sections = (1..).zip(cells.found.iter().cloned());
        let sections: Vec<_> = sections.filter(|(_, it)| it.size >= LEAST_CELLS).collect();
        let size: usize = sections.iter().map(|(_, section)| section.size).sum();
        let step = level.downsample * every as f64;
        Ok(Tissue { step, cells, sections, share: size as f64 / tissue.len() as f64 })
    }

    /// The tiles of all sections, one section after the other, each row by row.
    fn tiles(&self, slide: &Slide, options: &Options) -> Result<Vec<Corner>> {
        let level = slide.level(options.level)?;
        let step = self.step / level.downsample;
        let corners = |(first, last): (usize, usize), length: u32| {
            let first = (first as f64 * step) as u32 / options.cell * options.cell;
            let end = (((last + 1) as f64 * step) as u32).min(length);
            // The last tile reaches the end.
            let rest = end.saturating_sub(first + options.tile).div_ceil(options.stride());
            (0..=rest).map(move |i| first + i * options.stride())
        };
        let mut tiles = Vec::new();
        for (label, section) in &self.sections {
            for y in corners(section.rows, level.height) {
                let row = corners(section.columns, level.width).map(|x| [x, y]);
                tiles.extend(row.filter(|corner| self.has(*label, *corner, options.tile, step)));
            }
        }
        Ok(tiles)
    }

    /// Whether a tile has a cell of a section. A cell has `step` pixels on its side.
    fn has(&self, label: u32, corner: Corner, side: u32, step: f64) -> bool {
        let Regions { width, labels, .. } = &self.cells;
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

#[cfg(test)]
mod tests {
    use clap::Parser;
    use gangline_slide_support::Specimen;

    use super::*;
    use crate::options::Command;
    use crate::slide::Bytes;

    #[test]
    fn tiles_cover_all_tissue() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slide.tif");
        let specimen = Specimen::new(0, 600);
        specimen.write(&path).unwrap();
        let words = "slide run --slides s --model m --output o --tile 64 --overlap 25 --cell 8";
        let Command::Run(options) = Command::parse_from(words.split(' ')) else { panic!("run") };
        let cache = TileCache::with_weighter(100, 1 << 20, Bytes);
        let work = Work::open(0, &path, &cache, &options).unwrap();
        assert_eq!(work.tissue.sections.len(), 3);
        for (x, y) in (0..600).flat_map(|y| (0..600).map(move |x| (x, y))) {
            let has = |at: u32, from: u32| (from..from + 64).contains(&at);
            let is_covered = work.tiles.iter().any(|tile| has(x, tile[0]) && has(y, tile[1]));
            assert!(is_covered || !specimen.is_tissue(x, y), "{x} {y}");
        }
    }
}

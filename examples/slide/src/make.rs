//! Slides with known tissue, and a model that finds its dark parts, to try the program with.

use std::fs::File;
use std::io::BufWriter;
use std::path::Path;

use gangline::Result;
use tiff::encoder::TiffEncoder;

use crate::job::at;
use crate::onnx;
use crate::options::Make;
use crate::tiled::{SIDE, write_page};

/// Pieces of tissue, and darker spots in them. Colours are computed from the place, so no slide has to be in memory.
struct Specimen {
    side: u32,
    /// Each lies above those before it.
    discs: Vec<Disc>,
}

struct Disc {
    x: f64,
    y: f64,
    radius: f64,
    rgb: [u8; 3],
}

const GLASS: [u8; 3] = [238, 238, 238];
const TISSUE: [u8; 3] = [226, 160, 190];
const SPOT: [u8; 3] = [120, 60, 150];

/// Writes slides into a folder, `truth.csv` with the pixels of the spots, and `model.onnx`.
pub(crate) fn make(options: &Make) -> Result<()> {
    let folder = &options.output;
    std::fs::create_dir_all(folder).map_err(|e| at(folder, &e))?;
    let mut truth = String::from("slide,spots\n");
    for number in 0..options.slides {
        let name = format!("slide-{number:03}.tif");
        // Slides of a folder differ in size.
        let specimen = Specimen::new(number, options.side - options.side / 8 * (number % 4));
        truth += &format!("{name},{}\n", specimen.write(&folder.join(&name))?);
    }
    std::fs::write(folder.join("truth.csv"), truth)?;
    Ok(std::fs::write(folder.join("model.onnx"), onnx::darkness(options.width))?)
}

impl Specimen {
    fn new(number: u32, side: u32) -> Specimen {
        let length = f64::from(side);
        let mut random = (1..).map(|i| f64::from(noise(number, i) % 1000) / 1000.0);
        let mut next = || random.next().expect("it never ends");
        let mut discs = Vec::new();
        // One piece in each of three corners, with a spot on the left and one on the right.
        for (x, y) in [(0.27, 0.27), (0.73, 0.3), (0.35, 0.74)] {
            let [x, y] = [x, y].map(|at| (at + (next() - 0.5) * 0.06) * length);
            let radius = (0.12 + 0.06 * next()) * length;
            discs.push(Disc { x, y, radius, rgb: TISSUE });
            for side in [-0.45, 0.45] {
                let y = y + (next() - 0.5) * radius;
                let x = x + side * radius;
                discs.push(Disc { x, y, radius: (0.1 + 0.15 * next()) * radius, rgb: SPOT });
            }
        }
        Specimen { side, discs }
    }

    /// Returns the number of pixels in the spots.
    fn write(&self, path: &Path) -> Result<u64> {
        let mut file = TiffEncoder::new(BufWriter::new(File::create(path)?))?;
        let mut spots = 0;
        let mut scale = 1;
        while scale == 1 || self.side / scale >= SIDE {
            let (size, reduced) = ([self.side / scale; 2], u32::from(scale > 1));
            write_page(&mut file, size, 3, reduced, "slide make", |left, top| {
                let mut tile = Vec::with_capacity((SIDE * SIDE * 3) as usize);
                for (x, y) in (0..SIDE * SIDE).map(|i| (left + i % SIDE, top + i / SIDE)) {
                    let rgb = self.colour(x * scale, y * scale);
                    spots += u64::from(scale == 1 && rgb == SPOT);
                    let grain = noise(x * scale, y * scale).to_le_bytes();
                    tile.extend([0, 1, 2].map(|i| rgb[i] + grain[i] % 12));
                }
                tile
            })?;
            scale *= 4;
        }
        Ok(spots)
    }

    /// The colour of a pixel, without its grain.
    fn colour(&self, x: u32, y: u32) -> [u8; 3] {
        let is_within =
            |disc: &&Disc| (f64::from(x) - disc.x).hypot(f64::from(y) - disc.y) < disc.radius;
        self.discs.iter().rev().find(is_within).map_or(GLASS, |disc| disc.rgb)
    }
}

/// A number without a pattern for each pair.
fn noise(x: u32, y: u32) -> u32 {
    let mut z = x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca6b).rotate_left(16);
    z = (z ^ (z >> 15)).wrapping_mul(0x2c1b_3c6d);
    z = (z ^ (z >> 12)).wrapping_mul(0x297a_2d39);
    z ^ (z >> 15)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clap::Parser;

    use super::*;
    use crate::options::Command;
    use crate::slide::{Bytes, Reader, Slide, TileCache};
    use crate::tissue::Tissue;

    fn reader() -> Reader {
        Reader::new(Arc::new(TileCache::with_weighter(100, 1 << 20, Bytes)))
    }

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let specimen = Specimen::new(3, 600);
        let path = folder.path().join("slide.tif");
        specimen.write(&path).unwrap();
        let slide = Slide::open(0, &path).unwrap();
        assert_eq!(slide.levels.len(), 1);
        // Across four tiles of the file, and beyond the edge of the slide.
        for (x, y) in [(200, 240), (520, 560)] {
            let pixels = reader().pixels(&slide, 0, [x, y], [100, 100]).unwrap();
            for (i, rgb) in pixels.chunks_exact(3).enumerate() {
                let (x, y) = (x + i as u32 % 100, y + i as u32 / 100);
                let is_within = x < 600 && y < 600;
                let (wanted, grain) = (specimen.colour(x, y), noise(x, y).to_le_bytes());
                let wanted =
                    [0, 1, 2].map(|i| if is_within { wanted[i] + grain[i] % 12 } else { 255 });
                assert_eq!(rgb, wanted, "{x} {y}");
            }
        }
    }

    #[test]
    fn tiles_cover_all_tissue() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slide.tif");
        let specimen = Specimen::new(0, 600);
        specimen.write(&path).unwrap();
        let slide = Slide::open(0, &path).unwrap();
        let tissue = Tissue::find(&mut reader(), &slide).unwrap();
        assert_eq!(tissue.sections.count, 3);
        let words = "slide run --slides s --model m --output o --tile 64 --overlap 25 --cell 8";
        let Command::Run(options) = Command::parse_from(words.split(' ')) else { panic!("run") };
        let tiles = tissue.tiles(&slide, &options).unwrap();
        for (x, y) in (0..600).flat_map(|y| (0..600).map(move |x| (x, y))) {
            let has = |at: u32, from: u32| (from..from + 64).contains(&at);
            let is_covered = tiles.iter().any(|tile| has(x, tile[0]) && has(y, tile[1]));
            assert!(is_covered || specimen.colour(x, y) == GLASS, "{x} {y}");
        }
    }
}

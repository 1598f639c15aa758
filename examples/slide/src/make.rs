//! Slides with known tissue, and a model that finds its dark parts, to try the program with.

use std::fs::File;
use std::io::{BufWriter, Seek, Write};
use std::path::Path;

use gangline::Result;
use tiff::encoder::{TiffEncoder, TiffKind};

use crate::job::at;
use crate::onnx;
use crate::tiled::{Packing, Page, SIDE, Sample};

/// Pieces of tissue, with darker spots in them. Colours are computed from the place, so no slide has to be in memory.
struct Specimen {
    side: u32,
    pieces: Vec<Disc>,
    spots: Vec<Disc>,
    /// Its samples are floats, and one is not a number.
    is_broken: bool,
}

#[derive(Clone, Copy)]
struct Disc {
    x: f64,
    y: f64,
    radius: f64,
}

/// Writes slides into a folder, `truth.csv` with the pixels of the spots, and `model.onnx`. Every other slide is
/// BigTIFF with LZW. With `faulty`, there are also a truncated slide, an empty file, and one that is not a number.
pub(crate) fn make(folder: &Path, slides: u64, side: u32, width: u64, faulty: bool) -> Result<()> {
    std::fs::create_dir_all(folder).map_err(|e| at(folder, &e))?;
    let mut truth = String::from("slide,spots\n");
    for number in 0..slides {
        let name = format!("slide-{number:03}.tif");
        // Slides of a folder differ in size.
        let specimen = Specimen::new(number, side - side / 8 * (number % 4) as u32);
        let spots = specimen.write(&folder.join(&name), number % 2 == 1)?;
        truth += &format!("{name},{spots}\n");
    }
    if faulty {
        let path = folder.join("faulty-truncated.tif");
        Specimen::new(1, side).write(&path, false)?;
        let length = path.metadata()?.len();
        File::options().write(true).open(&path)?.set_len(length / 2)?;
        File::create(folder.join("faulty-empty.tif"))?;
        let broken = Specimen { is_broken: true, ..Specimen::new(2, side) };
        broken.write(&folder.join("faulty-nan.tif"), false)?;
    }
    std::fs::write(folder.join("truth.csv"), truth)?;
    Ok(std::fs::write(folder.join("model.onnx"), onnx::darkness(width))?)
}

impl Specimen {
    fn new(number: u64, side: u32) -> Specimen {
        let length = f64::from(side);
        let mut random = (1..).map(move |i| f64::from(noise(number as u32, i) % 1000) / 1000.0);
        let mut next = || random.next().expect("it never ends");
        let (mut pieces, mut spots) = (Vec::new(), Vec::new());
        // One piece in each of three corners.
        for (x, y) in [(0.27, 0.27), (0.73, 0.3), (0.35, 0.74)] {
            let [dx, dy] = [next(), next()].map(|shift| (shift - 0.5) * 0.06);
            let piece = Disc {
                x: (x + dx) * length,
                y: (y + dy) * length,
                radius: (0.12 + 0.06 * next()) * length,
            };
            pieces.push(piece);
            for side in [-0.45, 0.45] {
                let x = piece.x + side * piece.radius;
                let y = piece.y + (next() - 0.5) * piece.radius;
                spots.push(Disc { x, y, radius: (0.1 + 0.15 * next()) * piece.radius });
            }
        }
        Specimen { side, pieces, spots, is_broken: false }
    }

    /// Returns the number of pixels in the spots.
    fn write(&self, path: &Path, is_big: bool) -> Result<u64> {
        let file = BufWriter::new(File::create(path)?);
        match is_big {
            true => self.write_pages(TiffEncoder::new_big(file)?, Packing::Lzw),
            false => self.write_pages(TiffEncoder::new(file)?, Packing::Deflate),
        }
    }

    fn write_pages<W: Write + Seek, K: TiffKind>(
        &self,
        mut file: TiffEncoder<W, K>,
        packing: Packing,
    ) -> Result<u64> {
        let mut spots = 0;
        let mut scale = 1;
        while scale == 1 || self.side / scale >= SIDE {
            let (width, sample) =
                (self.side / scale, if self.is_broken { Sample::Float } else { Sample::Byte });
            let reduced = u32::from(scale > 1);
            let description = String::new();
            let page =
                Page { width, height: width, colours: 3, sample, packing, reduced, description };
            page.write(&mut file, |left, top| {
                let mut tile = Vec::with_capacity((SIDE * SIDE * 3) as usize);
                for (x, y) in
                    (top..top + SIDE).flat_map(|y| (left..left + SIDE).map(move |x| (x, y)))
                {
                    let (rgb, is_spot) = self.colour(x * scale, y * scale);
                    spots += u64::from(is_spot && scale == 1);
                    tile.extend(rgb);
                }
                if self.is_broken { self.floats(&tile, scale == 1) } else { tile }
            })?;
            scale *= 4;
        }
        Ok(spots)
    }

    fn colour(&self, x: u32, y: u32) -> ([u8; 3], bool) {
        let within = |disc: &Disc| {
            (f64::from(x) - disc.x).powi(2) + (f64::from(y) - disc.y).powi(2) < disc.radius.powi(2)
        };
        let (rgb, is_spot) = match self.pieces.iter().any(within) {
            false => ([238, 238, 238], false),
            true if self.spots.iter().any(within) => ([120, 60, 150], true),
            true => ([226, 160, 190], false),
        };
        let grain = noise(x, y).to_le_bytes();
        ([0, 1, 2].map(|i| rgb[i] + grain[i] % 12), is_spot)
    }

    fn floats(&self, bytes: &[u8], is_largest: bool) -> Vec<u8> {
        let value = |(i, &byte): (usize, &u8)| match i {
            // One NaN in each tile of the largest level, so that a tile with tissue has one.
            1000 if is_largest => f32::NAN,
            _ => f32::from(byte) / 255.0,
        };
        bytes.iter().enumerate().flat_map(|pair| value(pair).to_ne_bytes()).collect()
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

    use super::*;
    use crate::slide::{Bytes, Reader, Slide, TileCache};
    use crate::tissue::{Grid, Tissue};

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        for is_big in [false, true] {
            let specimen = Specimen::new(3, 600);
            let path = folder.path().join("slide.tif");
            specimen.write(&path, is_big).unwrap();
            let slide = Slide::open(u64::from(is_big), &path).unwrap();
            assert_eq!(slide.levels.len(), 1);
            let mut reader = Reader::new(Arc::new(TileCache::with_weighter(100, 1 << 20, Bytes)));
            // Across four tiles of the file, and beyond the edge of the slide.
            for (x, y) in [(200, 240), (520, 560)] {
                let square = reader.square(&slide, 0, x, y, 100).unwrap();
                for (i, rgb) in square.chunks_exact(3).enumerate() {
                    let (x, y) = (x + i as u32 % 100, y + i as u32 / 100);
                    let is_within = x < 600 && y < 600;
                    let wanted = if is_within { specimen.colour(x, y).0 } else { [255; 3] };
                    assert_eq!(rgb, wanted, "{x} {y}");
                }
            }
        }
    }

    #[test]
    fn tiles_cover_all_tissue() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("slide.tif");
        let specimen = Specimen::new(0, 600);
        specimen.write(&path, false).unwrap();
        let slide = Slide::open(0, &path).unwrap();
        let mut reader = Reader::new(Arc::new(TileCache::with_weighter(100, 1 << 20, Bytes)));
        let tissue = Tissue::find(&mut reader, &slide).unwrap();
        assert_eq!(tissue.sections(), 3);
        let tiles = tissue.tiles(&slide, Grid { level: 0, side: 64, stride: 48, cell: 8 }).unwrap();
        for (x, y) in (0..600).flat_map(|y| (0..600).map(move |x| (x, y))) {
            let is_glass = specimen.colour(x, y).0[1] > 200;
            let has = |at: u32, from: u32| (from..from + 64).contains(&at);
            assert!(
                is_glass || tiles.iter().any(|tile| has(x, tile.x) && has(y, tile.y)),
                "{x} {y}"
            );
        }
    }
}

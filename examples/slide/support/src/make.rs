//! Slides with known tissue, and a model that finds its dark parts.

use std::fs::File;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use clap::{Args, value_parser};
use gangline::Result;
use tiff_core::{Compression, PhotometricInterpretation};
use tiff_writer::{ImageBuilder, TiffWriter, WriteOptions};

use crate::onnx;

/// Writes slides with known tissue and a model, to try the program with
#[derive(Debug, Args)]
pub struct Make {
    /// Folder for the slides, model.onnx and truth.csv
    #[arg(long, value_name = "FOLDER")]
    pub output: PathBuf,
    /// Number of slides
    #[arg(long, value_name = "N", default_value_t = 4)]
    pub slides: u32,
    /// Side of the largest slide, in pixels
    #[arg(long, value_name = "PIXELS", default_value_t = 3000, value_parser = value_parser!(u32).range(512..))]
    pub side: u32,
    /// Channels of the model's layers
    #[arg(long, value_name = "N", default_value_t = 16, value_parser = value_parser!(u64).range(1..))]
    pub width: u64,
}

/// Pieces of tissue, and darker spots in them. Colours are computed from the place, so no slide has to be in memory.
#[derive(Debug)]
pub struct Specimen {
    side: u32,
    /// Each lies above those before it.
    discs: Vec<Disc>,
}

#[derive(Debug)]
struct Disc {
    x: f64,
    y: f64,
    radius: f64,
    rgb: [u8; 3],
}

const GLASS: [u8; 3] = [238, 238, 238];
const TISSUE: [u8; 3] = [226, 160, 190];
const SPOT: [u8; 3] = [120, 60, 150];

/// The side of a tile of the files.
const SIDE: u32 = 256;

impl Make {
    /// Writes slides into the folder, `truth.csv` with the pixels of the spots, and `model.onnx`.
    pub fn write(&self) -> Result<()> {
        let folder = &self.output;
        std::fs::create_dir_all(folder).map_err(|e| format!("{}: {e}", folder.display()))?;
        let mut truth = String::from("slide,spots\n");
        for number in 0..self.slides {
            let name = format!("slide-{number:03}.tif");
            // Slides of a folder differ in size.
            let specimen = Specimen::new(number, self.side - self.side / 8 * (number % 4));
            truth += &format!("{name},{}\n", specimen.write(&folder.join(&name))?);
        }
        std::fs::write(folder.join("truth.csv"), truth)?;
        Ok(std::fs::write(folder.join("model.onnx"), onnx::darkness(self.width))?)
    }
}

impl Specimen {
    /// Returns the specimen of a slide, by its number in the folder, and the slide's side in pixels.
    pub fn new(number: u32, side: u32) -> Specimen {
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

    /// Writes the slide, and returns the number of pixels in its spots.
    pub fn write(&self, path: &Path) -> Result<u64> {
        let file = BufWriter::new(File::create(path)?);
        let mut file = TiffWriter::new(file, WriteOptions::default())?;
        let (mut spots, mut scale) = (0, 1);
        while scale == 1 || self.side / scale >= SIDE {
            let side = self.side / scale;
            let page = ImageBuilder::new(side, side)
                .samples_per_pixel(3)
                .photometric(PhotometricInterpretation::Rgb)
                .tiles(SIDE, SIDE)
                .compression(Compression::Deflate)
                .deflate_level(1);
            let page = file.add_image(if scale > 1 { page.overview() } else { page })?;
            let across = side.div_ceil(SIDE);
            for number in 0..across * across {
                let (left, top) = (number % across * SIDE, number / across * SIDE);
                let places = (0..SIDE * SIDE).map(|i| (left + i % SIDE, top + i / SIDE));
                let mut tile = Vec::with_capacity((SIDE * SIDE * 3) as usize);
                for (x, y) in places.map(|(x, y)| (x * scale, y * scale)) {
                    spots += u64::from(scale == 1 && self.colour(x, y) == SPOT);
                    tile.extend(self.pixel(x, y));
                }
                file.write_block(&page, number as usize, &tile)?;
            }
            scale *= 4;
        }
        file.finish()?;
        Ok(spots)
    }

    /// Red, green and blue of a pixel, with their grain.
    pub fn pixel(&self, x: u32, y: u32) -> [u8; 3] {
        let (rgb, grain) = (self.colour(x, y), noise(x, y).to_le_bytes());
        [0, 1, 2].map(|i| rgb[i] + grain[i] % 12)
    }

    /// Whether a pixel shows tissue.
    pub fn is_tissue(&self, x: u32, y: u32) -> bool {
        self.colour(x, y) != GLASS
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

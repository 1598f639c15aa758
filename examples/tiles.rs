//! Whole images through a filter that sees tiles: `cargo run --release --example tiles`
//!
//! Each image is cut into tiles that overlap. Two producers sharpen them, 32 at a time, from whichever images
//! they are. The tiles of an image are blended where they overlap, and the image is written when it is whole.
//! Kill it at any moment, and start it again with the same options: it goes on with the images that are not
//! written yet. A loop on one thread makes the same files, to the byte.
#![expect(clippy::print_stdout, clippy::print_stderr, reason = "an example talks to its user")]

#[path = "common/args.rs"]
mod args;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use gangline::{Account, Batch, Journal, OrderedRunner, Result, map, map_batches, sink};

use self::args::{Args, Flag};

const SIDE: usize = 96;
const OVERLAP: usize = 16;

const FLAGS: &[Flag] = &[
    Flag { name: "--images", value: "N", help: "how many images (7)" },
    Flag {
        name: "--output",
        value: "FOLDER",
        help: "the images; their journal is in it (in the folder for temporary files)",
    },
];

/// Grey values, row by row.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Image {
    number: u64,
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// A square of an image, or less at its edges, with its upper left corner there.
#[derive(Debug, Clone)]
struct Tile {
    x: usize,
    y: usize,
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

/// Sums of weighted pixels, and of the weights. Whole numbers, so the order of the sums does not matter.
struct Canvas {
    width: usize,
    values: Vec<u32>,
    weights: Vec<u32>,
}

/// Makes an image in place of decoding one.
fn open(number: u64) -> Image {
    let size = number as usize % 7;
    let (width, height) = (200 + 37 * size, 150 + 53 * size);
    let pixel = |i: usize| {
        let (x, y) = (i % width, i / width);
        let wave = (x * x / 97 + y * (number as usize + 3)) % 256;
        (wave ^ (x * y / 61 % 64)) as u8
    };
    Image { number, width, height, pixels: (0..width * height).map(pixel).collect() }
}

/// The tiles of an image, cut one by one as they are asked for.
fn tiles(image: Arc<Image>) -> impl Iterator<Item = Tile> + Send {
    let starts = |length: usize| (0..length.saturating_sub(OVERLAP).max(1)).step_by(SIDE - OVERLAP);
    let corners: Vec<_> =
        starts(image.height).flat_map(|y| starts(image.width).map(move |x| (x, y))).collect();
    corners.into_iter().map(move |(x, y)| {
        let (width, height) = (SIDE.min(image.width - x), SIDE.min(image.height - y));
        let row = |y: usize| &image.pixels[y * image.width + x..][..width];
        let pixels = (y..y + height).flat_map(row).copied().collect();
        Tile { x, y, width, height, pixels }
    })
}

/// Stands for a network: makes each pixel differ more from the mean of those around it.
fn sharpen(tile: &Tile) -> Tile {
    let at = |x: isize, y: isize| {
        let x = x.clamp(0, tile.width as isize - 1) as usize;
        let y = y.clamp(0, tile.height as isize - 1) as usize;
        i32::from(tile.pixels[y * tile.width + x])
    };
    let pixel = |i: usize| {
        let (x, y) = ((i % tile.width) as isize, (i / tile.width) as isize);
        let around = (-1..=1).flat_map(|dy| (-1..=1).map(move |dx| (dx, dy)));
        let sum: i32 = around.map(|(dx, dy)| at(x + dx, y + dy)).sum();
        (2 * at(x, y) - sum / 9).clamp(0, 255) as u8
    };
    Tile { pixels: (0..tile.pixels.len()).map(pixel).collect(), ..tile.clone() }
}

impl Canvas {
    fn new(image: &Image) -> Self {
        let zeros = vec![0; image.width * image.height];
        Canvas { width: image.width, values: zeros.clone(), weights: zeros }
    }

    /// Adds a tile. Its weight falls towards its edges, so that no seam shows.
    fn add(&mut self, tile: &Tile) {
        let weight = |at: usize, length: usize| (at + 1).min(length - at).min(OVERLAP) as u32;
        for (i, &pixel) in tile.pixels.iter().enumerate() {
            let (x, y) = (i % tile.width, i / tile.width);
            let weight = weight(x, tile.width) * weight(y, tile.height);
            let place = (tile.y + y) * self.width + tile.x + x;
            self.values[place] += weight * u32::from(pixel);
            self.weights[place] += weight;
        }
    }

    fn finish(&self, image: &Image) -> Image {
        let pixels = self.values.iter().zip(&self.weights);
        let pixels = pixels.map(|(value, weight)| (value / weight) as u8).collect();
        Image { pixels, ..image.clone() }
    }
}

pub(crate) fn path_of(number: u64, folder: &Path) -> PathBuf {
    folder.join(format!("{number}.pgm"))
}

/// Writes an image, whole or not at all.
fn write(image: &Image, folder: &Path) -> Result<PathBuf> {
    let path = path_of(image.number, folder);
    let mut file = sink::atomic_file(&path)?;
    writeln!(file, "P5 {} {} 255", image.width, image.height)?;
    file.write_all(&image.pixels)?;
    file.commit()?;
    Ok(path)
}

/// All images through the pipeline, but for those that an earlier run has written. An image is done once its line
/// is printed; the journal says so on the disk before the next image is.
pub(crate) fn in_parallel(folder: &Path, images: u64) -> Result<Account> {
    let sharpener = map_batches(
        |_| Ok(()),
        |_, (), tiles: &mut Vec<Tile>| Ok(tiles.iter().map(|tile| Ok(sharpen(tile))).collect()),
    );
    let place = folder.to_owned();
    let writer = map(
        |_| Ok(()),
        move |_, (), (image, canvas): (Arc<Image>, Canvas)| write(&canvas.finish(&image), &place),
    );
    let writer = writer.fold(
        |_| Ok(()),
        |_, (), path: PathBuf| {
            println!("wrote {}", path.display());
            Ok(())
        },
    );

    let journal = Journal::at(folder.join("journal")).runner("tiles", "1").resume().commit_items(1);
    let open = map(|_| Ok(()), |_, (), number| Ok(open(number)));
    let open = OrderedRunner::builder(open).devices(1).journal(journal).build()?;
    let sharpen = OrderedRunner::builder(sharpener).devices(2).batch(Batch::of(32)).build()?;
    let write = OrderedRunner::new(writer, 2)?;
    let mut pipeline = open
        .expand(|image| tiles(image.clone()))
        .then(sharpen)
        .gather(Canvas::new, |canvas, _, _, tile| canvas.add(&tile))
        .then(write);
    pipeline.run(0..images)?;
    Ok(pipeline.account())
}

/// The same, one image after the other.
pub(crate) fn in_sequence(folder: &Path, images: u64) -> Result<()> {
    (0..images).try_for_each(|number| {
        let image = Arc::new(open(number));
        let mut canvas = Canvas::new(&image);
        tiles(image.clone()).for_each(|tile| canvas.add(&sharpen(&tile)));
        write(&canvas.finish(&image), folder).map(|_| ())
    })
}

/// Makes the files both ways. Returns how many images the pipeline has written, and how many earlier runs have.
pub(crate) fn run(folder: &Path, images: u64) -> Result<(u64, u64)> {
    let folders = ["pipeline", "loop"].map(|name| folder.join(name));
    for folder in &folders {
        std::fs::create_dir_all(folder)?;
    }
    let account = in_parallel(&folders[0], images)?;
    in_sequence(&folders[1], images)?;
    for number in 0..images {
        let [fast, slow] = [0, 1].map(|way| std::fs::read(path_of(number, &folders[way])));
        if fast? != slow? {
            return Err(format!("image {number} is not that of the loop").into());
        }
    }
    Ok((account.ok, account.already_done))
}

fn main() -> ExitCode {
    args::main("Sharpens images tile by tile, and goes on after a kill.", FLAGS, |args: &Args| {
        let images = args.get("--images")?.unwrap_or(7);
        let in_temp = || std::env::temp_dir().join("gangline-tiles");
        let folder: PathBuf = args.get("--output")?.unwrap_or_else(in_temp);
        let (written, earlier) = run(&folder, images)?;
        println!("{written} images written and {earlier} written earlier, the same as from a loop");
        println!("delete {} to begin again", folder.display());
        Ok(())
    })
}

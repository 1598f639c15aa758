//! Slides: the levels of a tiled TIFF or BigTIFF, and squares of their pixels.

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gangline::Result;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tiff::ColorType;
use tiff::decoder::{ChunkType, Decoder, DecodingResult};
use tiff::tags::Tag;

/// A slide as its file describes it.
#[derive(Debug)]
pub(crate) struct Slide {
    /// Its index in the folder, which is part of the key of its cached tiles.
    pub(crate) number: u64,
    pub(crate) path: PathBuf,
    /// From the largest to the smallest.
    pub(crate) levels: Vec<Level>,
}

/// A page of the file that shows the whole slide.
#[derive(Debug)]
pub(crate) struct Level {
    page: usize,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Width and height of a tile of the file.
    pub(crate) tile: (u32, u32),
    /// Pixels of the largest level on one of this level.
    pub(crate) downsample: f64,
}

/// A tile of the file, without its part beyond the slide: red, green and blue, row by row.
#[derive(Debug)]
pub(crate) struct Pixels {
    pub(crate) width: u32,
    pub(crate) rgb: Vec<u8>,
}

/// Decoded tiles of all slides, by slide, level and index. Several threads read overlapping squares at about the same
/// time. So one thread decodes a tile, and the others wait for it.
pub(crate) type TileCache = Cache<(u64, usize, u32), Arc<Pixels>, Bytes>;

/// Weighs cached tiles by their memory.
#[derive(Clone)]
pub(crate) struct Bytes;

/// Reads slides on one thread.
pub(crate) struct Reader {
    cache: Arc<TileCache>,
    /// The file that was read last, and the slide and level.
    open: Option<(u64, usize, Decoder<BufReader<File>>)>,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum SlideError {
    #[error(
        "no page is tiled: convert the slide, with `vips tiffsave --tile --pyramid` for example"
    )]
    NotTiled,
    #[error("the colours of a page are on separate planes, and have to be together")]
    Planar,
    #[error("pixels are {0}, and have to be grey, RGB or YCbCr of 8 or 16 bits or floats")]
    Colours(String),
    #[error("a pixel is {0}, and has to be from 0 to 1")]
    Number(f32),
    #[error("level {level} was asked for, and the slide has {levels}")]
    NoLevel { level: usize, levels: usize },
}

impl Slide {
    pub(crate) fn open(number: u64, path: &Path) -> Result<Slide> {
        let mut decoder = Decoder::new(BufReader::new(File::open(path)?))?;
        let mut levels = Vec::<Level>::new();
        for page in 0.. {
            if decoder.get_chunk_type() == ChunkType::Tile {
                if decoder.find_tag_unsigned(Tag::PlanarConfiguration)? == Some(2_u16) {
                    return Err(SlideError::Planar.into());
                }
                let (width, height) = decoder.dimensions()?;
                let (whole, last) = match (levels.first(), levels.last()) {
                    (Some(first), Some(last)) => ((first.width, first.height), last.width),
                    _ => ((width, height), u32::MAX),
                };
                let downsample = f64::from(whole.0) / f64::from(width);
                let shape = f64::from(whole.1) / f64::from(height) / downsample;
                // Not levels: a label or macro image has another shape, and a further focus layer has the same size.
                if width < last && (0.9..1.1).contains(&shape) {
                    let tile = decoder.chunk_dimensions();
                    levels.push(Level { page, width, height, tile, downsample });
                }
            }
            if !decoder.more_images() {
                break;
            }
            decoder.next_image()?;
        }
        match levels.is_empty() {
            true => Err(SlideError::NotTiled.into()),
            false => Ok(Slide { number, path: path.to_owned(), levels }),
        }
    }

    pub(crate) fn level(&self, level: usize) -> Result<&Level> {
        let none = SlideError::NoLevel { level, levels: self.levels.len() };
        Ok(self.levels.get(level).ok_or(none)?)
    }
}

impl Reader {
    pub(crate) fn new(cache: Arc<TileCache>) -> Reader {
        Reader { cache, open: None }
    }

    /// Returns a square of a level. Its part beyond the slide is white.
    pub(crate) fn square(
        &mut self,
        slide: &Slide,
        level: usize,
        x: u32,
        y: u32,
        side: u32,
    ) -> Result<Vec<u8>> {
        let Level { width, height, tile: (tile_width, tile_height), .. } = *slide.level(level)?;
        let across = width.div_ceil(tile_width);
        let (right, bottom) = ((x + side).min(width), (y + side).min(height));
        let mut square = vec![255; side as usize * side as usize * 3];
        for row in y / tile_height..bottom.div_ceil(tile_height) {
            for column in x / tile_width..right.div_ceil(tile_width) {
                let tile = self.tile(slide, level, row * across + column)?;
                let (left, top) = (column * tile_width, row * tile_height);
                let columns = x.max(left)..right.min(left + tile_width);
                let length = columns.len() * 3;
                for line in y.max(top)..bottom.min(top + tile_height) {
                    let from = ((line - top) * tile.width + columns.start - left) as usize * 3;
                    let to = ((line - y) * side + columns.start - x) as usize * 3;
                    square[to..to + length].copy_from_slice(&tile.rgb[from..from + length]);
                }
            }
        }
        Ok(square)
    }

    /// Returns a tile of the file, by its index in a level.
    pub(crate) fn tile(&mut self, slide: &Slide, level: usize, index: u32) -> Result<Arc<Pixels>> {
        let cache = self.cache.clone();
        cache.get_or_insert_with(&(slide.number, level, index), || {
            self.decode(slide, level, index).map(Arc::new)
        })
    }

    fn decode(&mut self, slide: &Slide, level: usize, index: u32) -> Result<Pixels> {
        if self.open.as_ref().is_none_or(|open| (open.0, open.1) != (slide.number, level)) {
            let mut decoder = Decoder::new(BufReader::new(File::open(&slide.path)?))?;
            decoder.seek_to_image(slide.level(level)?.page)?;
            self.open = Some((slide.number, level, decoder));
        }
        let (_, _, decoder) = self.open.as_mut().expect("it was opened above");
        let colours = decoder.colortype()?;
        let (width, _) = decoder.chunk_data_dimensions(index);
        Ok(Pixels { width, rgb: rgb(decoder.read_chunk(index)?, colours)? })
    }
}

impl Weighter<(u64, usize, u32), Arc<Pixels>> for Bytes {
    fn weight(&self, _: &(u64, usize, u32), pixels: &Arc<Pixels>) -> u64 {
        pixels.rgb.len() as u64
    }
}

fn rgb(decoded: DecodingResult, colours: ColorType) -> Result<Vec<u8>, SlideError> {
    let other = || SlideError::Colours(format!("{colours:?}"));
    let samples: Vec<u8> = match decoded {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) => samples.iter().map(|sample| (sample >> 8) as u8).collect(),
        DecodingResult::F32(samples) => {
            let bytes = samples.iter().map(|sample| match sample {
                0.0..=1.0 => Ok((sample * 255.0).round() as u8),
                _ => Err(SlideError::Number(*sample)),
            });
            bytes.collect::<Result<_, _>>()?
        }
        _ => return Err(other()),
    };
    Ok(match colours {
        ColorType::RGB(_) => samples,
        ColorType::RGBA(_) => samples.chunks_exact(4).flat_map(|s| [s[0], s[1], s[2]]).collect(),
        ColorType::Gray(_) => samples.iter().flat_map(|&s| [s; 3]).collect(),
        ColorType::YCbCr(_) => samples.chunks_exact(3).flat_map(of_ycbcr).collect(),
        _ => return Err(other()),
    })
}

/// As JPEG defines it: the decoder of JPEG leaves the colours as they are in the file.
fn of_ycbcr(sample: &[u8]) -> [u8; 3] {
    let (y, cb, cr) =
        (f32::from(sample[0]), f32::from(sample[1]) - 128.0, f32::from(sample[2]) - 128.0);
    let rgb = [y + 1.402 * cr, y - 0.344_136 * cb - 0.714_136 * cr, y + 1.772 * cb];
    rgb.map(|value| value.round() as u8)
}

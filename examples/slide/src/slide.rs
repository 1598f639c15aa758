//! Slides: the levels of a tiled TIFF or BigTIFF, and rectangles of their pixels.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use gangline::Result;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tiff::ColorType;
use tiff::decoder::ifd::Value;
use tiff::decoder::{ChunkType, Decoder, DecodingResult};
use tiff::tags::{IfdPointer, Tag};

/// A slide as its file describes it.
#[derive(Debug)]
pub(crate) struct Slide {
    /// Its index in the folder, which is part of the key of its cached tiles.
    number: u64,
    pub(crate) path: PathBuf,
    /// From the largest to the smallest.
    pub(crate) levels: Vec<Level>,
}

/// A page of the file that shows the whole slide.
#[derive(Debug)]
pub(crate) struct Level {
    page: IfdPointer,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Width and height of a tile of the file.
    tile: (u32, u32),
    /// Pixels of the largest level on one of this level.
    pub(crate) downsample: f64,
}

/// The upper left corner of a rectangle, in pixels of a level. Also stands for a tile for the model.
pub(crate) type Corner = [u32; 2];

/// Decoded tiles of all slides, by slide, level and index: red, green and blue, row by row. Several threads read
/// rectangles that overlap at about the same time. So one thread decodes a tile, and the others wait for it.
pub(crate) type TileCache = Cache<(u64, usize, u32), Arc<Vec<u8>>, Bytes>;

/// Weighs cached tiles by their memory.
#[derive(Clone)]
pub(crate) struct Bytes;

/// Reads slides on one thread.
pub(crate) struct Reader {
    cache: Arc<TileCache>,
    /// The slide and level that were read last, and their file.
    open: Option<(u64, usize, Decoder<Paged>)>,
}

/// A file with another header, which names another first page: the decoder comes to pages in SubIFDs only so.
struct Paged {
    file: BufReader<File>,
    header: Vec<u8>,
}

const NEEDED: &str = "RGB or YCbCr is needed, in whole numbers of 8 or 16 bits, or floats of 32";
const UNTILED: &str =
    "no page is tiled: convert the slide, with `vips tiffsave --tile --pyramid` for example";

impl Slide {
    pub(crate) fn open(number: u64, path: &Path) -> Result<Slide> {
        let mut decoder = decoder(path, None)?;
        let mut levels = Vec::new();
        loop {
            add_level(&mut levels, &mut decoder)?;
            let below = decoder.find_tag(Tag::SubIfd)?.map(Value::into_ifd_vec).transpose()?;
            for page in below.unwrap_or_default() {
                add_level(&mut levels, &mut self::decoder(path, Some(page))?)?;
            }
            if !decoder.more_images() {
                break;
            }
            decoder.next_image()?;
        }
        match levels.is_empty() {
            true => Err(UNTILED.into()),
            false => Ok(Slide { number, path: path.to_owned(), levels }),
        }
    }

    pub(crate) fn level(&self, level: usize) -> Result<&Level> {
        let none =
            || format!("level {level} was asked for, and the slide has {}", self.levels.len());
        Ok(self.levels.get(level).ok_or_else(none)?)
    }
}

/// Adds the decoder's page if it is a level, and not a label or macro image, which has another shape, or a further focus
/// layer, which has the same size.
fn add_level(levels: &mut Vec<Level>, decoder: &mut Decoder<Paged>) -> Result<()> {
    let (width, height) = decoder.dimensions()?;
    let (whole, last) = match &levels[..] {
        [first, .., last] => ((first.width, first.height), last.width),
        [only] => ((only.width, only.height), only.width),
        [] => ((width, height), u32::MAX),
    };
    let downsample = f64::from(whole.0) / f64::from(width);
    let shape = f64::from(whole.1) / f64::from(height) / downsample;
    let is_level = width < last && (0.9..1.1).contains(&shape);
    if is_level && decoder.get_chunk_type() == ChunkType::Tile {
        if decoder.find_tag_unsigned(Tag::PlanarConfiguration)? == Some(2_u16) {
            return Err("its colours are on separate planes, and have to be together".into());
        }
        let page = decoder.ifd_pointer().ok_or("it has no page")?;
        let tile = decoder.chunk_dimensions();
        levels.push(Level { page, width, height, tile, downsample });
    }
    Ok(())
}

/// Opens a file at a page, or at its first.
fn decoder(path: &Path, page: Option<IfdPointer>) -> Result<Decoder<Paged>> {
    let mut file = BufReader::new(File::open(path)?);
    let mut header = vec![0; 16];
    file.read_exact(&mut header)?;
    file.rewind()?;
    if let Some(IfdPointer(page)) = page {
        let is_big = header[2..4].contains(&43);
        let place = if is_big { 8..16 } else { 4..8 };
        let mut bytes = page.to_le_bytes()[..place.len()].to_vec();
        if header[0] == b'M' {
            bytes.reverse();
        }
        header[place].copy_from_slice(&bytes);
    }
    Ok(Decoder::new(Paged { file, header })?)
}

impl Read for Paged {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let at = self.file.stream_position()? as usize;
        let length = self.file.read(buffer)?;
        let header = self.header.get(at..).unwrap_or_default();
        let replaced = header.len().min(length);
        buffer[..replaced].copy_from_slice(&header[..replaced]);
        Ok(length)
    }
}

impl Seek for Paged {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        self.file.seek(to)
    }
}

impl Reader {
    pub(crate) fn new(cache: Arc<TileCache>) -> Reader {
        Reader { cache, open: None }
    }

    /// Returns a rectangle of a level: red, green and blue, row by row. Its part beyond the slide is white.
    pub(crate) fn pixels(
        &mut self,
        slide: &Slide,
        level: usize,
        [x, y]: Corner,
        [wide, high]: [u32; 2],
    ) -> Result<Vec<u8>> {
        let Level { width, height, tile: (tile_width, tile_height), .. } = *slide.level(level)?;
        let across = width.div_ceil(tile_width);
        let (right, bottom) = ((x + wide).min(width), (y + high).min(height));
        let mut pixels = vec![255; wide as usize * high as usize * 3];
        for row in y / tile_height..bottom.div_ceil(tile_height) {
            for column in x / tile_width..right.div_ceil(tile_width) {
                let tile = self.tile(slide, level, row * across + column)?;
                let (left, top) = (column * tile_width, row * tile_height);
                // A decoded tile ends with the slide.
                let stride = tile_width.min(width - left);
                let columns = x.max(left)..right.min(left + tile_width);
                for line in y.max(top)..bottom.min(top + tile_height) {
                    let from = ((line - top) * stride + columns.start - left) as usize * 3;
                    let to = ((line - y) * wide + columns.start - x) as usize * 3;
                    let length = columns.len() * 3;
                    pixels[to..to + length].copy_from_slice(&tile[from..from + length]);
                }
            }
        }
        Ok(pixels)
    }

    fn tile(&mut self, slide: &Slide, level: usize, index: u32) -> Result<Arc<Vec<u8>>> {
        let cache = self.cache.clone();
        cache.get_or_insert_with(&(slide.number, level, index), || {
            if self.open.as_ref().is_none_or(|open| (open.0, open.1) != (slide.number, level)) {
                let page = slide.level(level)?.page;
                self.open = Some((slide.number, level, decoder(&slide.path, Some(page))?));
            }
            let (_, _, decoder) = self.open.as_mut().expect("it was opened above");
            let colours = decoder.colortype()?;
            Ok(Arc::new(rgb(decoder.read_chunk(index)?, colours)?))
        })
    }
}

impl Weighter<(u64, usize, u32), Arc<Vec<u8>>> for Bytes {
    fn weight(&self, _: &(u64, usize, u32), pixels: &Arc<Vec<u8>>) -> u64 {
        pixels.len() as u64
    }
}

fn rgb(decoded: DecodingResult, colours: ColorType) -> Result<Vec<u8>> {
    let other = || format!("pixels are {colours:?}: {NEEDED}");
    let samples: Vec<u8> = match decoded {
        DecodingResult::U8(samples) => samples,
        DecodingResult::U16(samples) => samples.iter().map(|sample| (sample >> 8) as u8).collect(),
        DecodingResult::F32(samples) => {
            let bytes = samples.iter().map(|sample| match sample {
                0.0..=1.0 => Ok((sample * 255.0).round() as u8),
                _ => Err(format!("a pixel is {sample}, and has to be from 0 to 1")),
            });
            bytes.collect::<Result<_, _>>()?
        }
        _ => return Err(other().into()),
    };
    Ok(match colours {
        ColorType::RGB(_) => samples,
        ColorType::RGBA(_) => samples.chunks_exact(4).flat_map(|s| [s[0], s[1], s[2]]).collect(),
        ColorType::YCbCr(_) => samples.chunks_exact(3).flat_map(of_ycbcr).collect(),
        _ => return Err(other().into()),
    })
}

/// As JPEG defines it: the decoder of JPEG leaves the colours as they are in the file.
fn of_ycbcr(sample: &[u8]) -> [u8; 3] {
    let (y, cb, cr) =
        (f32::from(sample[0]), f32::from(sample[1]) - 128.0, f32::from(sample[2]) - 128.0);
    let rgb = [y + 1.402 * cr, y - 0.344_136 * cb - 0.714_136 * cr, y + 1.772 * cb];
    rgb.map(|value| value.round() as u8)
}

//! Slides: the levels of a tiled TIFF or BigTIFF, and rectangles of their pixels.

use std::cmp::Reverse;
use std::path::Path;
use std::sync::Arc;

use gangline::Result;
use gangline_slide_support::open_tiff;
use quick_cache::Weighter;
use quick_cache::sync::Cache;
use tiff_reader::PhotometricInterpretation::{Palette, Rgb, YCbCr};
use tiff_reader::constants::Compression::{self, Deflate, DeflateOld, Jpeg, Lzw, PackBits};
use tiff_reader::{Ifd, OpenOptions, TagValue, TiffFile};

/// A slide, whose file is open until it is dropped. Several threads may read it at once.
pub(crate) struct Slide {
    /// Its index in the folder, which is part of the key of its cached tiles.
    number: u64,
    pub(crate) name: String,
    file: TiffFile,
    /// From the largest to the smallest.
    pub(crate) levels: Vec<Level>,
}

/// A page of the file that shows the whole slide.
pub(crate) struct Level {
    page: Ifd,
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// Pixels of the largest level on one of this level.
    pub(crate) downsample: f64,
}

/// The upper left corner of a rectangle, in pixels of a level. Also stands for a tile for the model.
pub(crate) type Corner = [u32; 2];

/// Decoded tiles of all slides, by slide, level and corner: red, green and blue, row by row. Several threads read
/// rectangles that overlap at about the same time. So one thread decodes a tile, and the others wait for it.
pub(crate) type TileCache = Cache<(u64, usize, Corner), Arc<Vec<u8>>, Bytes>;

/// Weighs cached tiles by their memory.
#[derive(Clone)]
pub(crate) struct Bytes;

/// The numbers of tags.
const NEW_SUBFILE_TYPE: u16 = 254;
const IMAGE_DESCRIPTION: u16 = 270;
/// Bits of NewSubfileType: a smaller version of another page; a mask, and the macro image of an SVS.
const REDUCED: u32 = 1;
const OTHER: u32 = 4 | 8;
/// Words for pages that do not show the slide as it is.
const OTHERS: [&str; 4] = ["label", "macro", "mask", "probability"];
/// The sample formats of TIFF, by number.
const FORMS: [&str; 4] = ["other numbers", "unsigned numbers", "signed numbers", "floats"];
const NEEDED: &str = "Rgb, YCbCr or Palette as unsigned numbers of 8 or 16 bits is needed, or Rgb as floats of 32 bits, \
    and no compression, Deflate, LZW, JPEG or PackBits";
const UNTILED: &str =
    "no page is tiled: convert the slide, with `vips tiffsave --tile --pyramid` for example";

impl Slide {
    pub(crate) fn open(number: u64, path: &Path) -> Result<Slide> {
        // The cache for all slides has its tiles.
        let settings = OpenOptions { block_cache_bytes: 0, ..OpenOptions::default() };
        let (file, pages) = open_tiff(path, settings)?;
        let levels = levels(pages)?;
        match levels.is_empty() {
            true => Err(UNTILED.into()),
            false => Ok(Slide { number, name: name(path), file, levels }),
        }
    }

    pub(crate) fn level(&self, level: usize) -> Result<&Level> {
        let none =
            || format!("level {level} was asked for, and the slide has {}", self.levels.len());
        Ok(self.levels.get(level).ok_or_else(none)?)
    }

    /// Returns a rectangle of a level: red, green and blue, row by row. Its part beyond the slide is white.
    pub(crate) fn pixels(
        &self,
        cache: &TileCache,
        level: usize,
        [x, y]: Corner,
        [wide, high]: [u32; 2],
    ) -> Result<Vec<u8>> {
        let Level { ref page, width, height, .. } = *self.level(level)?;
        let (tile_width, tile_height) = page.tile_width().zip(page.tile_height()).ok_or(UNTILED)?;
        let (right, bottom) = ((x + wide).min(width), (y + high).min(height));
        let mut pixels = vec![255; wide as usize * high as usize * 3];
        for top in (y / tile_height * tile_height..bottom).step_by(tile_height as usize) {
            for left in (x / tile_width * tile_width..right).step_by(tile_width as usize) {
                // A decoded tile ends with the slide.
                let (across, down) = (tile_width.min(width - left), tile_height.min(height - top));
                let tile = cache.get_or_insert_with(&(self.number, level, [left, top]), || {
                    decode(&self.file, page, [left, top, across, down]).map(Arc::new)
                })?;
                let columns = x.max(left)..right.min(left + across);
                for line in y.max(top)..bottom.min(top + down) {
                    let from = ((line - top) * across + columns.start - left) as usize * 3;
                    let to = ((line - y) * wide + columns.start - x) as usize * 3;
                    let length = columns.len() * 3;
                    pixels[to..to + length].copy_from_slice(&tile[from..from + length]);
                }
            }
        }
        Ok(pixels)
    }
}

/// The name of a slide, by which the journal and its files know it.
pub(crate) fn name(slide: &Path) -> String {
    slide.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

/// Returns the tiled pages that show the whole slide, from the largest to the smallest, wherever they are in the file. The
/// slide is the largest page that is not another image. Of pages of one size, such as focus layers, the first counts.
///
/// # Errors
///
/// A level that cannot be read.
fn levels(pages: Vec<Ifd>) -> Result<Vec<Level>> {
    let mut pages: Vec<Ifd> =
        pages.into_iter().filter(|page| page.is_tiled() && area(page) > 0).collect();
    pages.sort_by_key(|page| Reverse(area(page)));
    if !pages.iter().all(is_another_image) {
        pages.retain(|page| !is_another_image(page));
    }
    let is_full = |page: &&Ifd| kind(page) & REDUCED == 0;
    // A label may be larger than the slide, and say that it is reduced. A reduced page of the slide's shape is a level.
    let Some(full) = pages.iter().find(is_full).or(pages.first()).map(sides) else {
        return Ok(Vec::new());
    };
    let whole = pages.iter().map(sides).find(|whole| is_level(full, *whole)).unwrap_or(full);
    pages.retain(|page| sides(page) == whole || is_level(sides(page), whole));
    pages.dedup_by_key(|page| page.width());
    let level = |page: Ifd| {
        check_pixels(&page)?;
        let [width, height] = sides(&page);
        let downsample = f64::from(whole[0]) / f64::from(width);
        Ok(Level { page, width, height, downsample })
    };
    pages.into_iter().map(level).collect()
}

/// Whether a page shows the whole of a slide in less detail: both of its sides are those of the slide divided by one
/// whole number, up to rounding. The sides of a label or macro image rarely are.
fn is_level(sides: [u32; 2], whole: [u32; 2]) -> bool {
    let longer = usize::from(whole[1] > whole[0]);
    let factor = (f64::from(whole[longer]) / f64::from(sides[longer])).round();
    let fits = |(side, whole): (u32, u32)| {
        let wanted = f64::from(whole) / factor;
        (f64::from(side) - wanted).abs() <= f64::max(1.0, wanted / 500.0)
    };
    factor >= 2.0 && sides.into_iter().zip(whole).all(fits)
}

/// Whether a page says that it shows something else: a label, a macro image or a mask. Scanners say so in a line of a few
/// words, beside other lines.
fn is_another_image(page: &Ifd) -> bool {
    let text = match page.tag(IMAGE_DESCRIPTION).map(|tag| &tag.value) {
        Some(TagValue::Ascii(text)) => text.trim().to_lowercase(),
        _ => String::new(),
    };
    // These describe all images of a file.
    let is_structured = text.starts_with(['<', '{']);
    let names = |line: &str| {
        let words = line.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
        let words: Vec<&str> = words.collect();
        words.len() <= 4 && words.iter().any(|word| OTHERS.contains(word))
    };
    kind(page) & OTHER != 0 || !is_structured && text.lines().any(names)
}

/// The bits of the tag NewSubfileType.
fn kind(page: &Ifd) -> u32 {
    match page.tag(NEW_SUBFILE_TYPE).map(|tag| &tag.value) {
        Some(TagValue::Long(kind)) => kind.first().copied().unwrap_or(0),
        Some(TagValue::Short(kind)) => kind.first().copied().map_or(0, u32::from),
        _ => 0,
    }
}

fn sides(page: &Ifd) -> [u32; 2] {
    [page.width(), page.height()]
}

fn area(page: &Ifd) -> u64 {
    u64::from(page.width()) * u64::from(page.height())
}

fn check_pixels(page: &Ifd) -> Result<()> {
    let (forms, bits) = (page.sample_format()?, page.bits_per_sample()?);
    let ([form, ..], [bits, ..]) = (&forms[..], &bits[..]) else { return Err(NEEDED.into()) };
    let colours = page.photometric_interpretation_enum();
    let is_known = matches!(
        (colours, form, bits),
        (Some(Rgb | YCbCr | Palette), 1, 8 | 16) | (Some(Rgb), 3, 32)
    );
    let packed = Compression::from_code(page.compression());
    let plain = Compression::None;
    if !is_known || ![Deflate, DeflateOld, Jpeg, Lzw, plain, PackBits].map(Some).contains(&packed) {
        let colours = colours.map_or("unknown".to_owned(), |colours| format!("{colours:?}"));
        let (packed, code) = (packed.map_or("unknown", Compression::name), page.compression());
        let form = FORMS.get(usize::from(*form)).unwrap_or(&FORMS[0]);
        let found =
            format!("{colours} as {form} of {bits} bits, compressed with {packed} ({code})");
        return Err(format!("its pixels are {found}: {NEEDED}").into());
    }
    Ok(())
}

/// Returns a tile of a page: red, green and blue, row by row.
fn decode(file: &TiffFile, page: &Ifd, [left, top, across, down]: [u32; 4]) -> Result<Vec<u8>> {
    let [left, top, across, down] = [left, top, across, down].map(|length| length as usize);
    let bytes = file.read_decoded_window_bytes_from_ifd(page, top, left, down, across)?;
    let layout = page.decoded_raster_layout()?;
    let (size, samples) = (layout.bytes_per_sample, layout.samples_per_pixel);
    if (size, samples) == (1, 3) {
        return Ok(bytes);
    }
    let sample = |bytes: &[u8]| match *bytes {
        [low, high] => Ok((u16::from_ne_bytes([low, high]) >> 8) as u8),
        [a, b, c, d] => match f32::from_ne_bytes([a, b, c, d]) {
            value @ 0.0..=1.0 => Ok((value * 255.0).round() as u8),
            value => Err(format!("a pixel is {value}, and has to be from 0 to 1").into()),
        },
        _ => Ok(bytes[0]),
    };
    // Behind the colours is transparency.
    let pixels = bytes.chunks_exact(size * samples);
    pixels.flat_map(|pixel| pixel.chunks_exact(size).take(3)).map(sample).collect()
}

impl Weighter<(u64, usize, Corner), Arc<Vec<u8>>> for Bytes {
    fn weight(&self, _: &(u64, usize, Corner), pixels: &Arc<Vec<u8>>) -> u64 {
        pixels.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use gangline_slide_support::Specimen;

    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let folder = tempfile::tempdir().unwrap();
        let specimen = Specimen::new(3, 600);
        let path = folder.path().join("slide.tif");
        specimen.write(&path).unwrap();
        let slide = Slide::open(0, &path).unwrap();
        assert_eq!(slide.levels.len(), 1);
        let cache = TileCache::with_weighter(100, 1 << 20, Bytes);
        // Across four tiles of the file, and beyond the edge of the slide.
        for (x, y) in [(200, 240), (520, 560)] {
            let pixels = slide.pixels(&cache, 0, [x, y], [100, 100]).unwrap();
            for (i, rgb) in pixels.chunks_exact(3).enumerate() {
                let (x, y) = (x + i as u32 % 100, y + i as u32 / 100);
                let is_within = x < 600 && y < 600;
                let wanted = if is_within { specimen.pixel(x, y) } else { [255; 3] };
                assert_eq!(rgb, wanted, "{x} {y}");
            }
        }
    }
}

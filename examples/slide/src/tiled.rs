//! Writes pages of tiled TIFF, for maps and for slides to try the program with: the crate `tiff` writes strips only.

use std::io::{Seek, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gangline::Result;
use tiff::encoder::TiffEncoder;
use tiff::tags::Tag;

/// The side of a tile of the files that are written.
pub(crate) const SIDE: u32 = 256;

/// Writes a page of grey, or of red, green and blue. `reduced` is 1 if it is a smaller copy of the first page. `tile` gets
/// the upper left corner of each tile, and returns its bytes, also beyond the page.
pub(crate) fn write_page<W: Write + Seek>(
    file: &mut TiffEncoder<W>,
    [width, height]: [u32; 2],
    colours: u16,
    reduced: u32,
    description: &str,
    mut tile: impl FnMut(u32, u32) -> Vec<u8>,
) -> Result<()> {
    let mut page = file.image_directory()?;
    let (mut offsets, mut lengths) = (Vec::new(), Vec::new());
    for y in (0..height).step_by(SIDE as usize) {
        for x in (0..width).step_by(SIDE as usize) {
            let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
            encoder.write_all(&tile(x, y))?;
            let packed = encoder.finish()?;
            lengths.push(u32::try_from(packed.len())?);
            offsets.push(u32::try_from(page.write_data(packed.as_slice())?)?);
        }
    }
    let each = |value: u16| vec![value; usize::from(colours)];
    page.write_tag(Tag::NewSubfileType, reduced)?;
    page.write_tag(Tag::ImageWidth, width)?;
    page.write_tag(Tag::ImageLength, height)?;
    page.write_tag(Tag::BitsPerSample, each(8).as_slice())?;
    page.write_tag(Tag::Compression, 8_u16)?;
    page.write_tag(Tag::PhotometricInterpretation, if colours == 3 { 2_u16 } else { 1 })?;
    page.write_tag(Tag::ImageDescription, description)?;
    page.write_tag(Tag::SamplesPerPixel, colours)?;
    page.write_tag(Tag::PlanarConfiguration, 1_u16)?;
    page.write_tag(Tag::TileWidth, SIDE)?;
    page.write_tag(Tag::TileLength, SIDE)?;
    page.write_tag(Tag::TileOffsets, offsets.as_slice())?;
    page.write_tag(Tag::TileByteCounts, lengths.as_slice())?;
    page.write_tag(Tag::SampleFormat, each(1).as_slice())?;
    Ok(page.finish()?)
}

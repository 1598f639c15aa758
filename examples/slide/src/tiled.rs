//! Writes pages of tiled TIFF, for maps and for slides to try the program with.

use std::io::{Seek, Write};

use flate2::Compression;
use flate2::write::ZlibEncoder;
use gangline::Result;
use tiff::encoder::{TiffEncoder, TiffKind};
use tiff::tags::Tag;

/// The side of a tile of the files that are written.
pub(crate) const SIDE: u32 = 256;

/// How the bytes of tiles are compressed, with its number in TIFF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packing {
    Lzw = 5,
    Deflate = 8,
}

/// The kind of a sample, with its number in TIFF.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sample {
    Byte = 1,
    Float = 3,
}

/// A page that is written.
pub(crate) struct Page {
    pub(crate) width: u32,
    pub(crate) height: u32,
    /// 1 for grey, 3 for red, green and blue.
    pub(crate) colours: u16,
    pub(crate) sample: Sample,
    pub(crate) packing: Packing,
    /// 0, or 1 if it is a smaller copy of the first page.
    pub(crate) reduced: u32,
    pub(crate) description: String,
}

impl Page {
    /// Writes the page. `tile` gets the upper left corner of each tile, and returns its bytes, also beyond the page.
    pub(crate) fn write<W: Write + Seek, K: TiffKind>(
        &self,
        file: &mut TiffEncoder<W, K>,
        mut tile: impl FnMut(u32, u32) -> Vec<u8>,
    ) -> Result<()> {
        let mut page = file.image_directory()?;
        let (mut offsets, mut lengths) = (Vec::new(), Vec::new());
        for y in (0..self.height).step_by(SIDE as usize) {
            for x in (0..self.width).step_by(SIDE as usize) {
                let packed = self.packing.pack(&tile(x, y))?;
                lengths.push(K::convert_offset(packed.len() as u64)?);
                offsets.push(K::convert_offset(page.write_data(packed.as_slice())?)?);
            }
        }
        let colours = usize::from(self.colours);
        let bits = if self.sample == Sample::Float { 32_u16 } else { 8 };
        page.write_tag(Tag::NewSubfileType, self.reduced)?;
        page.write_tag(Tag::ImageWidth, self.width)?;
        page.write_tag(Tag::ImageLength, self.height)?;
        page.write_tag(Tag::BitsPerSample, vec![bits; colours].as_slice())?;
        page.write_tag(Tag::Compression, self.packing as u16)?;
        page.write_tag(Tag::PhotometricInterpretation, if colours == 3 { 2_u16 } else { 1 })?;
        if !self.description.is_empty() {
            page.write_tag(Tag::ImageDescription, self.description.as_str())?;
        }
        page.write_tag(Tag::SamplesPerPixel, self.colours)?;
        page.write_tag(Tag::PlanarConfiguration, 1_u16)?;
        page.write_tag(Tag::TileWidth, SIDE)?;
        page.write_tag(Tag::TileLength, SIDE)?;
        page.write_tag(Tag::TileOffsets, K::convert_slice(&offsets))?;
        page.write_tag(Tag::TileByteCounts, K::convert_slice(&lengths))?;
        page.write_tag(Tag::SampleFormat, vec![self.sample as u16; colours].as_slice())?;
        Ok(page.finish()?)
    }
}

impl Packing {
    fn pack(self, bytes: &[u8]) -> Result<Vec<u8>> {
        match self {
            Packing::Lzw => {
                let mut encoder =
                    weezl::encode::Encoder::with_tiff_size_switch(weezl::BitOrder::Msb, 8);
                Ok(encoder.encode(bytes)?)
            }
            Packing::Deflate => {
                let mut encoder = ZlibEncoder::new(Vec::new(), Compression::fast());
                encoder.write_all(bytes)?;
                Ok(encoder.finish()?)
            }
        }
    }
}

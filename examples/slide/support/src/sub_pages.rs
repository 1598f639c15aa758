//! Pages of a TIFF below another page, in its tag SubIFDs.

use gangline::Result;
use tiff_reader::{ByteOrder, Ifd, TiffFile};

/// The number of the tag.
const SUB_IFDS: u16 = 330;
/// The types of numbers of 8 bytes: LONG8 and IFD8.
const LONG: [u16; 2] = [16, 18];

/// Returns the pages below a page: in OME-TIFF, its smaller levels.
///
/// Reads the tag by itself. To tiff-reader 0.10 it is bytes if it has the type IFD, which most programs give it.
///
/// # Errors
///
/// The file cannot be read, or has no page where the tag says.
pub fn sub_pages(file: &TiffFile, page: &Ifd) -> Result<Vec<Ifd>> {
    let Some(index) = page.tags().iter().position(|tag| tag.code == SUB_IFDS) else {
        return Ok(Vec::new());
    };
    let tag = &page.tags()[index];
    // The bytes before the entries of a page, of an entry, before its value, and of its value.
    let (head, entry, ahead, room) = if file.is_bigtiff() { (8, 20, 12, 8) } else { (2, 12, 8, 4) };
    let number = |bytes: &[u8]| {
        let join = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        match file.byte_order() {
            ByteOrder::LittleEndian => bytes.iter().rev().fold(0, join),
            ByteOrder::BigEndian => bytes.iter().fold(0, join),
        }
    };
    let width = if LONG.contains(&tag.tag_type.to_code()) { 8 } else { 4 };
    let length = usize::try_from(tag.count)? * width;
    let mut at = page.offset() + head + index as u64 * entry + ahead;
    if length > room {
        // The value is the place of the numbers.
        at = number(&file.source().read_exact_at(at, room)?);
    }
    let places = file.source().read_exact_at(at, length)?;
    places.chunks_exact(width).map(|place| Ok(file.read_ifd_at_offset(number(place))?)).collect()
}

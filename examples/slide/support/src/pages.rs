//! All pages of a TIFF, also those in the tag SubIFDs, in files that have a tag twice.

use std::collections::HashSet;
use std::path::Path;
use std::sync::Arc;

use gangline::Result;
use tiff_reader::header::TiffHeader;
use tiff_reader::source::{FileSource, TiffSource};
use tiff_reader::{ByteOrder, Ifd, OpenOptions, TiffFile, error};

/// The number of the tag.
const SUB_IFDS: u16 = 330;
/// The types of numbers of 8 bytes: LONG8 and IFD8.
const LONG: [u16; 2] = [16, 18];
/// The number of the type of bytes.
const BYTES: u16 = 1;

/// Opens a TIFF or BigTIFF, and returns its pages in the order of the file, each before those in its tag SubIFDs: in
/// OME-TIFF, its smaller levels.
///
/// If a page has a tag twice, the first one counts, as in libtiff, OpenSlide and tifffile. tiff-reader 0.10 refuses such
/// a page, so it gets the others as empty tags with free numbers.
///
/// # Errors
///
/// The file cannot be read, or has no page where it says.
pub fn open_tiff(path: &Path, settings: OpenOptions) -> Result<(TiffFile, Vec<Ifd>)> {
    let file = FileSource::open(path)?;
    let start = usize::try_from(file.len().min(16))?;
    let header = TiffHeader::parse(&file.read_exact_at(0, start)?)?;
    let mut walk = Walk { file: &file, header: &header, changes: Vec::new() };
    let tree = walk.chain();
    let changes = walk.changes;
    let file = TiffFile::from_source_with_options(Arc::new(Changed { file, changes }), settings)?;
    let mut pages = Vec::new();
    for page in file.ifds() {
        pages.push(page.clone());
        let below = tree.iter().filter(|(above, _)| *above == page.offset());
        for (_, place) in below {
            pages.push(file.read_ifd_at_offset(*place)?);
        }
    }
    Ok((file, pages))
}

/// A file with other bytes in some places.
struct Changed {
    file: FileSource,
    changes: Vec<(u64, Vec<u8>)>,
}

impl TiffSource for Changed {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_exact_at(&self, offset: u64, len: usize) -> error::Result<Vec<u8>> {
        let mut bytes = self.file.read_exact_at(offset, len)?;
        for (start, change) in &self.changes {
            for (place, byte) in (*start..).zip(change) {
                let index = place.checked_sub(offset).and_then(|index| usize::try_from(index).ok());
                if let Some(old) = index.and_then(|index| bytes.get_mut(index)) {
                    *old = *byte;
                }
            }
        }
        Ok(bytes)
    }
}

/// A walk over the pages of a file, before tiff-reader reads them.
struct Walk<'a> {
    file: &'a FileSource,
    header: &'a TiffHeader,
    changes: Vec<(u64, Vec<u8>)>,
}

impl Walk<'_> {
    /// Returns the pages in SubIFDs, each behind the page of the chain that it is below. Ends where the file cannot be
    /// read: tiff-reader then finds the same, and has an error for it.
    fn chain(&mut self) -> Vec<(u64, u64)> {
        let (mut tree, mut next) = (Vec::new(), self.header.first_ifd_offset);
        let (mut chained, mut seen) = (HashSet::new(), HashSet::new());
        while next != 0 && chained.insert(next) {
            let page = next;
            let Some((mut below, after)) = self.page(page) else { break };
            // Those below a page below a page are also below the first.
            while let Some(place) = below.pop() {
                if seen.insert(place) {
                    tree.push((page, place));
                    below.extend(self.page(place).map(|(below, _)| below).unwrap_or_default());
                }
            }
            next = after;
        }
        tree
    }

    /// Returns the pages below a page, the last first, and the next page of the chain. `None` if it cannot be read.
    fn page(&mut self, place: u64) -> Option<(Vec<u64>, u64)> {
        // The bytes before the entries of a page, of an entry, before its value, and of its value.
        let (head, length, ahead, room) = self.layout();
        let count =
            usize::try_from(self.number(&self.file.read_exact_at(place, head).ok()?)).ok()?;
        let start = place.checked_add(head as u64)?;
        let bytes = self.file.read_exact_at(start, count.checked_mul(length)? + room).ok()?;
        let (entries, next) = bytes.split_at(count * length);
        let entries: Vec<&[u8]> = entries.chunks_exact(length).collect();
        let codes: Vec<u16> = entries.iter().map(|entry| self.short(&entry[..2])).collect();
        let mut known: HashSet<u16> = codes.iter().copied().collect();
        let (mut first, mut below) = (HashSet::new(), Vec::new());
        for ((entry, code), at) in entries.iter().zip(codes).zip((start..).step_by(length)) {
            if first.insert(code) {
                if code == SUB_IFDS {
                    let width = if LONG.contains(&self.short(&entry[2..4])) { 8 } else { 4 };
                    below = self.places(&entry[4..ahead], &entry[ahead..], width)?;
                }
                continue;
            }
            let free = (0..=u16::MAX).rev().find(|code| known.insert(*code))?;
            let mut empty = [self.bytes(free), self.bytes(BYTES)].concat();
            empty.resize(length, 0);
            self.changes.push((at, empty));
        }
        below.reverse();
        Some((below, self.number(next)))
    }

    /// Returns the numbers of `width` bytes of an entry.
    fn places(&self, count: &[u8], value: &[u8], width: usize) -> Option<Vec<u64>> {
        let length = usize::try_from(self.number(count)).ok()?.checked_mul(width)?;
        let places = match value.get(..length) {
            Some(places) => places.to_vec(),
            // The value is the place of the numbers.
            None => self.file.read_exact_at(self.number(value), length).ok()?,
        };
        Some(places.chunks_exact(width).map(|place| self.number(place)).collect())
    }

    fn layout(&self) -> (usize, usize, usize, usize) {
        if self.header.is_bigtiff() { (8, 20, 12, 8) } else { (2, 12, 8, 4) }
    }

    fn number(&self, bytes: &[u8]) -> u64 {
        let join = |sum: u64, byte: &u8| sum << 8 | u64::from(*byte);
        match self.header.byte_order {
            ByteOrder::LittleEndian => bytes.iter().rev().fold(0, join),
            ByteOrder::BigEndian => bytes.iter().fold(0, join),
        }
    }

    fn short(&self, bytes: &[u8]) -> u16 {
        self.number(bytes) as u16
    }

    fn bytes(&self, number: u16) -> [u8; 2] {
        match self.header.byte_order {
            ByteOrder::LittleEndian => number.to_le_bytes(),
            ByteOrder::BigEndian => number.to_be_bytes(),
        }
    }
}

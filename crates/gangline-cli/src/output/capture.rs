//! The output of a job: a little in memory, the rest on disk.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};

use rustix::fs::{FallocateFlags, fallocate};

/// Kept in memory per stream of a job. If a thousand jobs wait to print, they hold 32 MiB.
const IN_MEMORY: usize = 16 * 1_024;

/// One stream of one job.
#[derive(Debug, Default)]
pub(crate) struct Captured {
    head: Vec<u8>,
    rest: Option<CapturedRest>,
}

#[derive(Debug)]
struct CapturedRest {
    spill: Arc<Spill>,
    /// Its pieces, in order: one unless two streams were written in turns.
    pieces: Vec<CapturedPiece>,
}

#[derive(Debug, Clone, Copy)]
struct CapturedPiece {
    offset: u64,
    length: u64,
}

/// A nameless file for the output of all jobs of one slot; it disappears with the process. One file per job
/// could exceed the limit on open files.
#[derive(Debug, Default)]
pub(crate) struct Spill {
    file: OnceLock<File>,
    room: Mutex<SpillRoom>,
}

#[derive(Debug, Default)]
struct SpillRoom {
    end: u64,
    /// The number of bytes that are still needed.
    wanted: u64,
}

/// Appends to the captured output.
struct Appending<'a> {
    captured: &'a mut Captured,
    spill: &'a Arc<Spill>,
}

impl Write for Appending<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.captured.push(self.spill, bytes)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Captured {
    pub(crate) fn push(&mut self, spill: &Arc<Spill>, bytes: &[u8]) -> io::Result<()> {
        let room = IN_MEMORY.saturating_sub(self.head.len());
        let (head, rest) = match self.rest {
            Some(_) => (&[][..], bytes),
            None => bytes.split_at(room.min(bytes.len())),
        };
        self.head.extend_from_slice(head);
        if rest.is_empty() {
            return Ok(());
        }
        let piece = spill.write(rest)?;
        let kept = self.rest.get_or_insert_with(|| CapturedRest::new(spill));
        kept.push(piece);
        Ok(())
    }

    /// Appends all of another capture.
    pub(crate) fn append(&mut self, spill: &Arc<Spill>, other: &Captured) -> io::Result<()> {
        other.write_to(&mut Appending { captured: self, spill })
    }

    pub(crate) fn len(&self) -> u64 {
        self.head.len() as u64 + self.rest.as_ref().map_or(0, CapturedRest::len)
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Writes all of it.
    pub(crate) fn write_to(&self, writer: &mut dyn Write) -> io::Result<()> {
        writer.write_all(&self.head)?;
        match &self.rest {
            None => Ok(()),
            Some(rest) => rest.pieces.iter().try_for_each(|piece| rest.spill.copy(*piece, writer)),
        }
    }

    /// The end of the output, at most `most` bytes.
    pub(crate) fn tail(&self, most: usize) -> Vec<u8> {
        let Some(piece) = self.rest.as_ref().and_then(|rest| rest.pieces.last().map(|p| (rest, p)))
        else {
            return self.head[self.head.len().saturating_sub(most)..].to_vec();
        };
        let (rest, piece) = piece;
        let length = piece.length.min(most as u64);
        let last = CapturedPiece { offset: piece.offset + piece.length - length, length };
        let mut tail = Vec::new();
        // If it cannot be read, writing the whole output reports the error.
        let _ = rest.spill.copy(last, &mut tail);
        tail
    }
}

impl CapturedRest {
    fn new(spill: &Arc<Spill>) -> CapturedRest {
        CapturedRest { spill: Arc::clone(spill), pieces: Vec::new() }
    }

    fn len(&self) -> u64 {
        self.pieces.iter().map(|piece| piece.length).sum()
    }

    fn push(&mut self, piece: CapturedPiece) {
        match self.pieces.last_mut() {
            Some(last) if last.offset + last.length == piece.offset => last.length += piece.length,
            _ => self.pieces.push(piece),
        }
    }
}

impl Drop for CapturedRest {
    fn drop(&mut self) {
        self.pieces.iter().for_each(|piece| self.spill.release(*piece));
    }
}

impl Spill {
    fn write(&self, bytes: &[u8]) -> io::Result<CapturedPiece> {
        let file = self.file()?;
        let mut room = self.room();
        let piece = CapturedPiece { offset: room.end, length: bytes.len() as u64 };
        room.end += piece.length;
        room.wanted += piece.length;
        drop(room);
        file.write_all_at(bytes, piece.offset).inspect_err(|_| self.release(piece))?;
        Ok(piece)
    }

    fn copy(&self, piece: CapturedPiece, writer: &mut dyn Write) -> io::Result<()> {
        let file = self.file()?;
        let mut buffer = vec![0; 64 * 1_024];
        let (mut offset, end) = (piece.offset, piece.offset + piece.length);
        while offset < end {
            let length = buffer.len().min((end - offset) as usize);
            file.read_exact_at(&mut buffer[..length], offset)?;
            writer.write_all(&buffer[..length])?;
            offset += length as u64;
        }
        Ok(())
    }

    /// Frees space that is no longer needed. If the file system cannot punch a hole, the space is freed once
    /// nothing in the file is needed.
    fn release(&self, piece: CapturedPiece) {
        let Some(file) = self.file.get() else { return };
        let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let _ = fallocate(file, hole, piece.offset, piece.length);
        let mut room = self.room();
        room.wanted -= piece.length;
        if room.wanted == 0 && file.set_len(0).is_ok() {
            room.end = 0;
        }
    }

    fn file(&self) -> io::Result<&File> {
        match self.file.get() {
            Some(file) => Ok(file),
            None => {
                let file = tempfile::tempfile()?;
                Ok(self.file.get_or_init(|| file))
            }
        }
    }

    fn room(&self) -> MutexGuard<'_, SpillRoom> {
        self.room.lock().expect("nothing panics with the lock held")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(captured: &Captured) -> Vec<u8> {
        let mut text = Vec::new();
        captured.write_to(&mut text).unwrap();
        text
    }

    #[test]
    fn two_streams_that_take_turns_stay_apart() {
        let spill = Arc::new(Spill::default());
        let [mut a, mut b] = [Captured::default(), Captured::default()];
        for _ in 0..5 {
            a.push(&spill, &[b'a'; 10_000]).unwrap();
            b.push(&spill, &[b'b'; 7_000]).unwrap();
        }
        assert_eq!(written(&a), [b'a'; 50_000]);
        assert_eq!(written(&b), [b'b'; 35_000]);
        assert_eq!((a.len(), b.len()), (50_000, 35_000));
        assert_eq!(b.tail(3), b"bbb");
        assert!(a.head.len() <= IN_MEMORY);
    }

    #[test]
    fn the_disk_is_given_back() {
        let spill = Arc::new(Spill::default());
        let mut first = Captured::default();
        first.push(&spill, &vec![1; 1 << 20]).unwrap();
        let mut second = Captured::default();
        second.push(&spill, &vec![2; 1 << 20]).unwrap();
        drop(first);
        assert_eq!(written(&second), vec![2; 1 << 20]);
        drop(second);
        assert_eq!(spill.file().unwrap().metadata().unwrap().len(), 0);
    }

    #[test]
    fn what_fits_into_memory_needs_no_file() {
        let spill = Arc::new(Spill::default());
        let mut captured = Captured::default();
        captured.push(&spill, &[0; IN_MEMORY]).unwrap();
        assert!(spill.file.get().is_none());
        assert_eq!(captured.tail(2), [0, 0]);
    }
}

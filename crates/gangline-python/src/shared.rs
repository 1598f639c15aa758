//! Large values in memory that the driver and its workers share, as the package's Python writes and reads them.

use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use gangline::process::{SharedBytes, SharedMemory};
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::{PyList, PyTuple};

/// The alignment of each part of a value, in bytes: `gangline._shared.ALIGNMENT`.
const ALIGNMENT: usize = 64;

/// From this size on, an output is mapped, in bytes. A smaller one is copied, since the caller may keep many.
const MAPPED_OUTPUT: usize = 1 << 20;

/// From this size on, an input of a worker is mapped, in bytes: `work` mostly drops it when it returns.
const MAPPED_INPUT: usize = 64 << 10;

/// Keeps a value in its place while Python looks at it.
#[pyclass(frozen, module = "gangline._native")]
struct NativeHold {
    _bytes: SharedBytes,
}

/// The memory that this process writes: that of the worker which it is, or the one of all its pools.
pub(crate) fn memory() -> SharedMemory {
    static OF_DRIVER: OnceLock<SharedMemory> = OnceLock::new();
    SharedMemory::of_worker().unwrap_or_else(|| OF_DRIVER.get_or_init(SharedMemory::new).clone())
}

/// Copies the pieces of a stream, and buffers, into the memory. `lengths` has that of the whole stream first. `None` if they are short, or if there is no room for them.
pub(crate) fn write(
    pieces: &Bound<'_, PyList>,
    buffers: &Bound<'_, PyList>,
    lengths: &[usize],
) -> PyResult<Option<SharedBytes>> {
    let size = lengths.iter().map(|length| length.next_multiple_of(ALIGNMENT)).sum();
    let Some(room) = memory().reserve(size) else { return Ok(None) };
    let (file, start) = room.file().expect("it is a range");
    let py = pieces.py();
    let module = py.import("gangline._shared")?;
    match module.call_method1("write", (file.as_raw_fd(), start, pieces, buffers)) {
        Ok(_) => Ok(Some(room)),
        // There are no pages for it.
        Err(error) if error.is_instance_of::<PyOSError>(py) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Returns the parts of a value in shared memory, as `gangline._shared.view` does; or `None` if it is on the heap.
pub(crate) fn view<'py>(
    py: Python<'py>,
    bytes: &SharedBytes,
    lengths: &[usize],
) -> PyResult<Option<Bound<'py, PyTuple>>> {
    let Some((file, start)) = bytes.file() else { return Ok(None) };
    let hold = NativeHold { _bytes: bytes.clone() };
    let module = py.import("gangline._shared")?;
    let mapped_from = match SharedMemory::of_worker() {
        Some(_) => MAPPED_INPUT,
        None => MAPPED_OUTPUT,
    };
    let arguments = (file.as_raw_fd(), start, lengths.to_vec(), hold, mapped_from);
    let view = module.call_method1("view", arguments)?;
    Ok(Some(view.cast_into()?))
}

/// Cuts the parts of a value out of its bytes.
pub(crate) fn parts<'a>(bytes: &'a [u8], lengths: &'a [usize]) -> impl Iterator<Item = &'a [u8]> {
    let mut start = 0;
    lengths.iter().map(move |length| {
        let part = bytes.get(start..start + length).unwrap_or_default();
        start += length.next_multiple_of(ALIGNMENT);
        part
    })
}

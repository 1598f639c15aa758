//! Values of Python on their way between the driver and a worker.

use std::sync::Arc;

use gangline::process::SharedBytes;
use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyList, PyTuple};
use serde::{Deserialize, Serialize};
use serde_bytes::ByteBuf;

use crate::shared;

/// Values from this size on go through shared memory, in bytes.
const LARGE: usize = 64 << 10;

/// A value that a pool works on, which Rust passes on unread.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Value {
    /// The stream of a pickle, and the buffers that it refers to.
    Pickled {
        stream: ByteBuf,
        buffers: Vec<ByteBuf>,
        /// The name of the item in a journal. It stays in the driver.
        #[serde(skip)]
        key: String,
    },
    /// A large value: the parts of `Pickled`, the stream first, behind one another in shared memory.
    Shared {
        bytes: SharedBytes,
        lengths: Vec<usize>,
        #[serde(skip)]
        key: String,
    },
    /// An object itself, for a worker that is a thread of this process: a tuple with it alone.
    #[serde(skip)]
    Object { object: Arc<Py<PyTuple>>, key: String },
    /// An input that could not be pickled. Its item fails, and reaches no worker.
    #[serde(skip)]
    Unsendable { key: String },
}

impl Value {
    /// Takes an output from Python: a tuple of the pieces of a pickle and of its buffers, which are copied, or a tuple
    /// with an object.
    pub(crate) fn of(packed: &Bound<'_, PyAny>) -> PyResult<Self> {
        Value::with_key(packed, String::new())
    }

    /// Copies an input out of Python: a tuple of the name in a journal, or `None`, and of an output's tuple, or `None`
    /// if it could not be pickled.
    pub(crate) fn of_input(input: &Bound<'_, PyAny>) -> PyResult<Self> {
        let (key, packed): (Option<String>, Option<Bound<'_, PyAny>>) = input.extract()?;
        let key = key.unwrap_or_default();
        match packed {
            Some(packed) => Value::with_key(&packed, key),
            None => Ok(Value::Unsendable { key }),
        }
    }

    fn with_key(packed: &Bound<'_, PyAny>, key: String) -> PyResult<Self> {
        if let Ok(object) = packed.cast::<PyTuple>()
            && object.len() == 1
        {
            return Ok(Value::Object { object: Arc::new(object.clone().unbind()), key });
        }
        let (pieces, buffers): (Bound<'_, PyList>, Bound<'_, PyList>) = packed.extract()?;
        if let Some((bytes, lengths)) = share(&pieces, &buffers)? {
            return Ok(Value::Shared { bytes, lengths, key });
        }
        let mut stream = vec![];
        for piece in pieces {
            append(&mut stream, &piece)?;
        }
        let copy = |buffer| {
            let mut bytes = vec![];
            append(&mut bytes, &buffer).map(|()| ByteBuf::from(bytes))
        };
        let buffers = buffers.iter().map(copy).collect::<PyResult<_>>()?;
        Ok(Value::Pickled { stream: ByteBuf::from(stream), buffers, key })
    }

    /// Copies a value into Python: the stream, and the buffers, which can be written to.
    pub(crate) fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        match self {
            Value::Pickled { stream, buffers, .. } => {
                let buffers = buffers.iter().map(|buffer| PyByteArray::new(py, buffer));
                (PyBytes::new(py, stream), PyList::new(py, buffers)?).into_pyobject(py)
            }
            Value::Shared { bytes, lengths, .. } => {
                if let Some(view) = shared::view(py, bytes, lengths)? {
                    return Ok(view);
                }
                let mut parts = shared::parts(bytes.as_slice().unwrap_or_default(), lengths);
                let stream = PyBytes::new(py, parts.next().unwrap_or_default());
                let buffers = PyList::new(
                    py,
                    parts.map(|part| PyByteArray::new(py, part)).collect::<Vec<_>>(),
                )?;
                (stream, buffers).into_pyobject(py)
            }
            Value::Object { object, .. } => Ok(object.bind(py).clone()),
            Value::Unsendable { .. } => unreachable!("it is not encoded, so no worker has it"),
        }
    }

    /// The name of the item in a journal.
    pub(crate) fn key(&self) -> &str {
        match self {
            Value::Pickled { key, .. }
            | Value::Shared { key, .. }
            | Value::Object { key, .. }
            | Value::Unsendable { key } => key,
        }
    }

    /// The number of bytes. Those of an object are not known.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Value::Pickled { stream, buffers, .. } => {
                let buffers: usize = buffers.iter().map(|buffer| buffer.len()).sum();
                (stream.len() + buffers) as u64
            }
            Value::Shared { bytes, .. } => bytes.len() as u64,
            Value::Object { .. } | Value::Unsendable { .. } => 0,
        }
    }
}

/// Copies a large value into shared memory, if there is room. Returns the lengths of the stream and of the buffers too.
fn share(
    pieces: &Bound<'_, PyList>,
    buffers: &Bound<'_, PyList>,
) -> PyResult<Option<(SharedBytes, Vec<usize>)>> {
    let length = |part: Bound<'_, PyAny>| part.len();
    let pieces_lengths = pieces.iter().map(length).collect::<PyResult<Vec<_>>>()?;
    let buffer_lengths = buffers.iter().map(length).collect::<PyResult<Vec<_>>>()?;
    let stream = pieces_lengths.iter().sum();
    if stream + buffer_lengths.iter().sum::<usize>() < LARGE {
        return Ok(None);
    }
    let lengths: Vec<usize> = [stream].into_iter().chain(buffer_lengths).collect();
    let shared = shared::write(pieces, buffers, &lengths)?;
    Ok(shared.map(|bytes| (bytes, lengths)))
}

/// Appends the bytes of a `bytes` or a `memoryview`.
fn append(bytes: &mut Vec<u8>, source: &Bound<'_, PyAny>) -> PyResult<()> {
    if let Ok(source) = source.cast::<PyBytes>() {
        bytes.extend_from_slice(source.as_bytes());
        return Ok(());
    }
    // The interface of buffers is in the stable ABI since Python 3.11 only.
    let copied = source.call_method0("tobytes")?;
    bytes.extend_from_slice(copied.cast::<PyBytes>()?.as_bytes());
    Ok(())
}

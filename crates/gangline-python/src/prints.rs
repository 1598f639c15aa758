//! What workers print, on its way to the driver's standard error.

use gangline::crossbeam_channel::{Receiver, Sender, bounded};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

/// Lines, or pieces of long ones, that wait for the thread that shows them. Beyond that, a worker's own thread waits: a
/// task that prints much must not fill the memory.
const CAPACITY: usize = 64;

/// How many bytes are shown at a time.
const MOST_AT_ONCE: usize = 1 << 20;

/// Where workers' prints, and messages of the pool, go.
#[derive(Clone)]
pub(crate) struct PrintSender(Sender<Vec<u8>>);

/// Where they come out.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativePrints(Receiver<Vec<u8>>);

pub(crate) fn prints() -> (PrintSender, NativePrints) {
    let (sender, receiver) = bounded(CAPACITY);
    (PrintSender(sender), NativePrints(receiver))
}

impl PrintSender {
    /// Waits until there is room. Once nothing shows them any more, prints are dropped.
    pub(crate) fn send(&self, bytes: &[u8]) {
        _ = self.0.send(bytes.to_vec());
    }
}

#[pymethods]
impl NativePrints {
    /// Waits for something that was printed. `None` once the pool has ended.
    fn take<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let taken = py.detach(|| {
            let mut taken = self.0.recv().ok()?;
            while taken.len() < MOST_AT_ONCE {
                match self.0.try_recv() {
                    Ok(more) => taken.extend_from_slice(&more),
                    Err(_) => break,
                }
            }
            Some(taken)
        });
        taken.map(|taken| PyBytes::new(py, &taken))
    }
}

//! Python objects that threads of this process use, as the garbage collector sees them.

use std::collections::HashMap;
use std::mem::take;
use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyReferenceError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;

use crate::lock;

/// The objects that the threads of one pool use: functions of the user's, and the states of workers.
///
/// A function may name its own pool. If threads owned the function, they would keep the pool, and the pool the threads. So the
/// pool owns it, by this, and a thread has a [`HeldObject`]. While a thread calls it, it has a reference of its own.
#[pyclass(frozen, module = "gangline._native")]
#[derive(Default)]
pub(crate) struct NativeObjects(Arc<HeldObjects>);

/// The objects by their numbers.
#[derive(Default)]
pub(crate) struct HeldObjects(Mutex<Slots>);

#[derive(Default)]
struct Slots {
    objects: HashMap<u64, Py<PyAny>>,
    /// The number of the last one.
    last: u64,
}

/// An object that a pool owns until this is dropped.
pub(crate) struct HeldObject {
    objects: Arc<HeldObjects>,
    number: u64,
}

#[pymethods]
impl NativeObjects {
    #[new]
    fn new() -> Self {
        NativeObjects::default()
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // What is not shown to the collector stays alive.
        let Ok(slots) = self.0.0.try_lock() else { return Ok(()) };
        slots.objects.values().try_for_each(|object| visit.call(object))
    }

    fn __clear__(&self) {
        let objects = take(&mut lock(&self.0.0).objects);
        drop(objects);
    }
}

impl NativeObjects {
    /// The objects for those that use them.
    pub(crate) fn held(&self) -> &Arc<HeldObjects> {
        &self.0
    }
}

impl HeldObjects {
    /// Takes an object in.
    pub(crate) fn hold(self: &Arc<Self>, object: Py<PyAny>) -> HeldObject {
        let mut slots = lock(&self.0);
        slots.last += 1;
        let number = slots.last;
        slots.objects.insert(number, object);
        HeldObject { objects: self.clone(), number }
    }
}

impl HeldObject {
    /// The object, for a call.
    ///
    /// # Errors
    ///
    /// If the garbage collector has taken it, with its pool.
    pub(crate) fn get<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let slots = lock(&self.objects.0);
        let object = slots.objects.get(&self.number).map(|object| object.bind(py).clone());
        object.ok_or_else(|| PyReferenceError::new_err("the pool is gone"))
    }
}

impl Drop for HeldObject {
    fn drop(&mut self) {
        let object = lock(&self.objects.0).objects.remove(&self.number);
        // Without the lock: it may be the last reference.
        drop(object);
    }
}

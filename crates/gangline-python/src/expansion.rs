//! Python functions that make parts of an output, in the driver.

use std::collections::VecDeque;
use std::sync::Arc;

use gangline::BoxError;
use pyo3::prelude::*;
use thiserror::Error;

use crate::item::StageItem;
use crate::objects::{HeldObject, HeldObjects};
use crate::value::Value;

/// A Python function that makes parts of a parent.
#[derive(Debug, FromPyObject)]
#[pyo3(from_item_all)]
pub(crate) struct Expansion {
    name: String,
    /// `gangline._stages.Expansion`.
    function: Py<PyAny>,
    /// The number of parents that are expanded and not yet gathered.
    open_parents: Option<usize>,
}

/// The same, where threads may call it.
pub(crate) struct HeldExpansion {
    name: Arc<str>,
    function: Arc<HeldObject>,
    pub(crate) open_parents: Option<usize>,
}

/// The parts of one parent. They are made while the next stage has room.
pub(crate) struct Parts {
    name: Arc<str>,
    source: Source,
    ready: VecDeque<Value>,
}

/// Where the parts come from.
enum Source {
    /// The function has not been called yet.
    Parent {
        function: Arc<HeldObject>,
        parent: Arc<StageItem>,
    },
    /// `gangline._stages.Parts`.
    Begun(Py<PyAny>),
    Ended,
}

/// An expansion has raised an exception.
#[derive(Debug, Error)]
#[error("{text}")]
pub(crate) struct ExpandFailed {
    /// The name of the function.
    pub(crate) name: Arc<str>,
    /// The first line, an empty line, and the traceback.
    pub(crate) text: String,
}

impl Expansion {
    /// Gives the function to the pipeline.
    pub(crate) fn held(self, objects: &Arc<HeldObjects>) -> HeldExpansion {
        let function = Arc::new(objects.hold(self.function));
        HeldExpansion { name: self.name.into(), function, open_parents: self.open_parents }
    }
}

impl HeldExpansion {
    /// What the library calls with each parent.
    pub(crate) fn into_function(self) -> impl Fn(&Arc<StageItem>) -> Parts + Send + Sync + 'static {
        move |parent| {
            let (function, parent) = (self.function.clone(), parent.clone());
            Parts {
                name: self.name.clone(),
                source: Source::Parent { function, parent },
                ready: VecDeque::new(),
            }
        }
    }
}

impl Parts {
    /// Has the package's Python make at least one part, unless there are no more.
    fn make(&mut self) -> Result<(), BoxError> {
        let source = std::mem::replace(&mut self.source, Source::Ended);
        let failed = Python::attach(|py| {
            let parts = match source {
                Source::Parent { function, parent } => {
                    function.get(py)?.call1((parent.content.to_python(py)?,))?.unbind()
                }
                Source::Begun(parts) => parts,
                Source::Ended => return Ok(None),
            };
            let taken = parts.call_method0(py, "take")?;
            let (packed, failed): (Vec<Bound<'_, PyAny>>, Option<String>) = taken.extract(py)?;
            for part in &packed {
                self.ready.push_back(Value::of(part)?);
            }
            if !packed.is_empty() {
                self.source = Source::Begun(parts);
            }
            PyResult::Ok(failed)
        })?;
        match failed {
            Some(text) => Err(ExpandFailed { name: self.name.clone(), text }.into()),
            None => Ok(()),
        }
    }
}

impl Iterator for Parts {
    type Item = Result<StageItem, BoxError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ready.is_empty()
            && let Err(failed) = self.make()
        {
            return Some(Err(failed));
        }
        self.ready.pop_front().map(|part| Ok(StageItem::new(part)))
    }
}

impl Drop for Parts {
    /// Ends a generator that was not read to its end.
    fn drop(&mut self) {
        if let Source::Begun(parts) = std::mem::replace(&mut self.source, Source::Ended) {
            // After the interpreter's end there is nothing to end.
            _ = Python::try_attach(|_| drop(parts));
        }
    }
}

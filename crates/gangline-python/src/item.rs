//! What the stages of a pipeline pass on, unread.

use gangline::ProducerContext;
use pyo3::prelude::*;
use pyo3::types::PyList;
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Made, OfAnswer};
use crate::value::Value;

/// What one stage of a pipeline passes to the next: an input, an output, or a parent with the outputs for its parts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct StageItem {
    pub(crate) content: Content,
    pub(crate) made: Made,
}

/// One value, or several that become one where a Python function needs it.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Content {
    One(Value),
    /// A parent, and the outputs for its parts in their order.
    Gathered {
        parent: Box<Content>,
        outputs: Vec<Content>,
    },
}

/// What a worker's Python is called with for one item.
pub(crate) trait Given {
    fn given<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>>;
}

impl StageItem {
    /// An input of a pipeline, or a part.
    pub(crate) fn new(value: Value) -> Self {
        StageItem { content: Content::One(value), made: Made::default() }
    }

    /// Turns the item into that behind a stage that passes everything on.
    pub(crate) fn passed(self, cx: &ProducerContext<'_>) -> Self {
        let made = Made { attempt: cx.attempt(), ..Made::default() };
        StageItem { made, ..self }
    }

    /// A parent with the outputs for its parts, each with the part's index.
    pub(crate) fn gathered(parent: StageItem, mut outputs: Vec<(u64, StageItem)>) -> Self {
        outputs.sort_unstable_by_key(|(part, _)| *part);
        let outputs = outputs.into_iter().map(|(_, output)| output.content).collect();
        let content = Content::Gathered { parent: Box::new(parent.content), outputs };
        StageItem { content, made: Made::default() }
    }

    /// The number of bytes, as far as it is known.
    pub(crate) fn size(&self) -> u64 {
        self.content.size()
    }

    /// The name of an input: what a journal knows it by.
    pub(crate) fn key(&self) -> &str {
        match &self.content {
            Content::One(value) => value.key(),
            Content::Gathered { .. } => unreachable!("an input is one value"),
        }
    }
}

impl Content {
    /// The number of bytes, as far as it is known.
    pub(crate) fn size(&self) -> u64 {
        match self {
            Content::One(value) => value.size(),
            Content::Gathered { parent, outputs } => {
                parent.size() + outputs.iter().map(Content::size).sum::<u64>()
            }
        }
    }

    /// A value as the package's Python has it; or a tuple of `None`, the parent, and a list of the outputs.
    pub(crate) fn to_python<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        match self {
            Content::One(value) => Ok(value.to_python(py)?.into_any()),
            Content::Gathered { parent, outputs } => {
                let outputs = outputs.iter().map(|output| output.to_python(py));
                let outputs = PyList::new(py, outputs.collect::<PyResult<Vec<_>>>()?)?;
                let gathered = (py.None(), parent.to_python(py)?, outputs);
                Ok(gathered.into_pyobject(py)?.into_any())
            }
        }
    }
}

impl OfAnswer for StageItem {
    fn of_answer(Answer { value, made }: Answer) -> Self {
        StageItem { content: Content::One(value), made }
    }

    fn value(&self) -> Option<&Value> {
        match &self.content {
            Content::One(value) => Some(value),
            Content::Gathered { .. } => None,
        }
    }

    fn made(&self) -> Made {
        self.made
    }
}

impl Given for Value {
    fn given<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        Ok(self.to_python(py)?.into_any())
    }
}

impl Given for StageItem {
    fn given<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.content.to_python(py)
    }
}

//! Plain values as YAML, for the configurations of easycore.

use std::fmt;

use gangline::CfgNode;
use gangline::error::CfgError;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBool, PyDict, PyFloat, PyInt, PyList, PyString};
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{Error as _, Serialize, Serializer};

/// Reads a node as a dictionary, whose keys have the order of the text.
pub(crate) fn read(text: &str) -> PyResult<Py<PyAny>> {
    let built = CfgNode::from_yaml_11_str(text).and_then(|node| node.extract::<Built>());
    built.map(|Built(value)| value).map_err(|error| value_error(&error))
}

/// Writes a dictionary of plain values.
pub(crate) fn write(value: &Bound<'_, PyAny>) -> PyResult<String> {
    let node = CfgNode::from_value(Given(value.clone()));
    node.and_then(|node| node.to_yaml()).map_err(|error| value_error(&error))
}

fn value_error(error: &CfgError) -> PyErr {
    PyValueError::new_err(format!("{error:#}"))
}

/// What a text says, as an object of Python.
struct Built(Py<PyAny>);

struct Builder;

impl<'de> Deserialize<'de> for Built {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(Builder)
    }
}

impl Builder {
    fn build<E: serde::de::Error>(
        f: impl for<'py> FnOnce(Python<'py>) -> PyResult<Bound<'py, PyAny>>,
    ) -> Result<Built, E> {
        Python::attach(|py| f(py).map(|value| Built(value.unbind()))).map_err(E::custom)
    }
}

impl<'de> Visitor<'de> for Builder {
    type Value = Built;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a plain value")
    }

    fn visit_unit<E: serde::de::Error>(self) -> Result<Built, E> {
        Builder::build(|py| Ok(py.None().into_bound(py)))
    }

    fn visit_bool<E: serde::de::Error>(self, value: bool) -> Result<Built, E> {
        Builder::build(|py| Ok(PyBool::new(py, value).to_owned().into_any()))
    }

    fn visit_i64<E: serde::de::Error>(self, value: i64) -> Result<Built, E> {
        Builder::build(|py| Ok(value.into_pyobject(py)?.into_any()))
    }

    fn visit_u64<E: serde::de::Error>(self, value: u64) -> Result<Built, E> {
        Builder::build(|py| Ok(value.into_pyobject(py)?.into_any()))
    }

    fn visit_i128<E: serde::de::Error>(self, value: i128) -> Result<Built, E> {
        Builder::build(|py| Ok(value.into_pyobject(py)?.into_any()))
    }

    fn visit_u128<E: serde::de::Error>(self, value: u128) -> Result<Built, E> {
        Builder::build(|py| Ok(value.into_pyobject(py)?.into_any()))
    }

    fn visit_f64<E: serde::de::Error>(self, value: f64) -> Result<Built, E> {
        Builder::build(|py| Ok(PyFloat::new(py, value).into_any()))
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Built, E> {
        Builder::build(|py| Ok(PyString::new(py, text).into_any()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Built, A::Error> {
        let mut elements = vec![];
        while let Some(Built(element)) = list.next_element()? {
            elements.push(element);
        }
        Builder::build(|py| Ok(PyList::new(py, elements)?.into_any()))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut node: A) -> Result<Built, A::Error> {
        let mut entries = vec![];
        while let Some((key, Built(value))) = node.next_entry::<String, Built>()? {
            entries.push((key, value));
        }
        Builder::build(|py| {
            let dict = PyDict::new(py);
            entries.iter().try_for_each(|(key, value)| dict.set_item(key, value))?;
            Ok(dict.into_any())
        })
    }
}

/// An object of Python, which is written if it is plain.
struct Given<'py>(Bound<'py, PyAny>);

impl Serialize for Given<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Given(value) = self;
        if value.is_none() {
            serializer.serialize_unit()
        } else if let Ok(value) = value.cast::<PyBool>() {
            serializer.serialize_bool(value.is_true())
        } else if value.is_instance_of::<PyInt>() {
            match value.extract::<i64>() {
                Ok(value) => serializer.serialize_i64(value),
                Err(_) => serializer.serialize_i128(value.extract().map_err(S::Error::custom)?),
            }
        } else if let Ok(value) = value.cast::<PyFloat>() {
            serializer.serialize_f64(value.value())
        } else if let Ok(value) = value.cast::<PyString>() {
            let text: String = value.extract().map_err(S::Error::custom)?;
            serializer.serialize_str(&text)
        } else if let Ok(list) = value.cast::<PyList>() {
            serializer.collect_seq(list.iter().map(Given))
        } else if let Ok(dict) = value.cast::<PyDict>() {
            let keys = dict.keys().extract::<Vec<String>>().map_err(S::Error::custom)?;
            serializer.collect_map(keys.into_iter().zip(dict.values().iter().map(Given)))
        } else {
            let kind = value.get_type();
            Err(S::Error::custom(format!(
                "{kind} is no plain value: numbers, texts, lists and nodes"
            )))
        }
    }
}

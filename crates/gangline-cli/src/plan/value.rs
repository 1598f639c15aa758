//! The inputs of a job as one JSON value.

use std::collections::BTreeMap;
use std::ffi::OsString;

use serde_json::value::{RawValue, to_raw_value};

use crate::args::inputs::InputArgs;

/// How the inputs of a job become a value.
#[derive(Debug, Clone, Default)]
pub(crate) struct Shape {
    /// Their names, if any has one.
    pub(crate) names: Vec<OsString>,
    pub(crate) form: InputForm,
}

/// What an input is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum InputForm {
    #[default]
    Text,
    /// Any JSON value.
    Json,
}

impl InputForm {
    pub(crate) fn of(inputs: &InputArgs) -> InputForm {
        if inputs.jsonl { InputForm::Json } else { InputForm::Text }
    }

    /// One input as a value, on one line. `None` if it is not of this form.
    fn value(self, text: &str) -> Option<Box<RawValue>> {
        match self {
            InputForm::Text => to_raw_value(text).ok(),
            // A line end is white space in JSON, except in a text, which has none.
            InputForm::Json => RawValue::from_string(text.replace(['\n', '\r'], " ")).ok(),
        }
    }
}

impl Shape {
    /// The value of a job: that of its input, a list if it has several, or an object if they have names. An input
    /// without a name has its number, from 1. `None` if one is not UTF-8, or not of its form.
    pub(crate) fn value(&self, fields: &[OsString]) -> Option<Box<RawValue>> {
        let texts = fields.iter().map(|field| field.to_str());
        let texts = texts.collect::<Option<Vec<_>>>()?;
        let values = texts.iter().map(|text| self.form.value(text));
        let values = values.collect::<Option<Vec<_>>>()?;
        let names = self.names.iter().map(|name| Some(name.to_str()?.to_owned()));
        shaped(&names.collect::<Option<Vec<_>>>()?, values).ok()
    }

    /// The value of a job in the same shape, in which bytes that are not UTF-8 are replaced. An input that is not of its
    /// form is a text.
    pub(crate) fn lossy_value(&self, fields: &[OsString]) -> serde_json::Result<Box<RawValue>> {
        let values = fields.iter().map(|field| {
            let text = field.to_string_lossy();
            self.form.value(&text).map_or_else(|| to_raw_value(&text), Ok)
        });
        let values = values.collect::<Result<Vec<_>, _>>()?;
        let mut names: Vec<String> = Vec::with_capacity(self.names.len());
        for (at, name) in self.names.iter().enumerate() {
            let name = name.to_string_lossy().into_owned();
            // Two names may differ in replaced bytes only.
            names.push(if names.contains(&name) { (at + 1).to_string() } else { name });
        }
        shaped(&names, values)
    }
}

/// One value, a list of several, or an object of those that have names.
fn shaped(names: &[String], values: Vec<Box<RawValue>>) -> serde_json::Result<Box<RawValue>> {
    if names.is_empty() {
        return match <[_; 1]>::try_from(values) {
            Ok([value]) => Ok(value),
            Err(values) => to_raw_value(&values),
        };
    }
    let named = values.into_iter().enumerate().map(|(at, value)| {
        let name = names.get(at).filter(|name| !name.is_empty());
        (name.cloned().unwrap_or_else(|| (at + 1).to_string()), value)
    });
    to_raw_value(&named.collect::<BTreeMap<_, _>>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(fields: &[&str], names: &[&str], form: InputForm, expected: Option<&str>) {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let value = Shape { names: words(names), form }.value(&words(fields));
        assert_eq!(value.as_deref().map(RawValue::get), expected);
    }

    #[test]
    fn records_are_objects() {
        check(&["1", "x"], &["id", "name"], InputForm::Text, Some(r#"{"id":"1","name":"x"}"#));
        check(&["1", "x"], &["id", ""], InputForm::Text, Some(r#"{"2":"x","id":"1"}"#));
        check(&["a"], &[], InputForm::Text, Some(r#""a""#));
        check(&["a", "b"], &[], InputForm::Text, Some(r#"["a","b"]"#));
    }

    #[test]
    fn what_is_not_utf_8_has_the_same_shape() {
        use std::os::unix::ffi::OsStringExt;
        let words = |words: &[&[u8]]| -> Vec<OsString> {
            words.iter().map(|word| OsString::from_vec(word.to_vec())).collect()
        };
        let check = |fields: &[&[u8]], names: &[&[u8]], form, expected: &str| {
            let shape = Shape { names: words(names), form };
            assert!(shape.value(&words(fields)).is_none());
            assert_eq!(shape.lossy_value(&words(fields)).unwrap().get(), expected);
        };
        let (text, json) = (InputForm::Text, InputForm::Json);
        check(&[b"caf\xe9"], &[], text, "\"caf\u{fffd}\"");
        check(&[b"caf\xe9", b"3"], &[], text, "[\"caf\u{fffd}\",\"3\"]");
        check(&[b"caf\xe9", b"3"], &[b"name", b""], text, "{\"2\":\"3\",\"name\":\"caf\u{fffd}\"}");
        check(&[b"1", b"2"], &[b"\xe9", b"\xe8"], text, "{\"2\":\"2\",\"\u{fffd}\":\"1\"}");
        check(&[b"{\"a\":\"\xff\"}"], &[], json, "{\"a\":\"\u{fffd}\"}");
        check(&[b"{\xff}", b"1"], &[], json, "[\"{\u{fffd}}\",1]");
    }

    #[test]
    fn values_stay_as_they_are() {
        let large = "{\"b\": 12345678901234567890123, \"a\":\r\n1e999}";
        let sent = "{\"b\": 12345678901234567890123, \"a\":  1e999}";
        check(&[large], &[], InputForm::Json, Some(sent));
        check(&["null", "[1, 2]"], &[], InputForm::Json, Some("[null,[1, 2]]"));
        check(&["NaN"], &[], InputForm::Json, None);
        check(&[""], &[], InputForm::Json, None);
    }
}

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

    /// One input as a value, on one line. `None` if it is not UTF-8, or not of this form.
    fn value(self, field: &OsString) -> Option<Box<RawValue>> {
        let text = field.to_str()?;
        match self {
            InputForm::Text => to_raw_value(text).ok(),
            // A line end is white space in JSON, except in a text, which has none.
            InputForm::Json => RawValue::from_string(text.replace(['\n', '\r'], " ")).ok(),
        }
    }
}

impl Shape {
    /// The value of a job: that of its input, a list if it has several, or an object if they have names. An input
    /// without a name has its number, from 1. `None` if one is not UTF-8.
    pub(crate) fn value(&self, fields: &[OsString]) -> Option<Box<RawValue>> {
        if self.names.is_empty() {
            return match fields {
                [field] => self.form.value(field),
                fields => {
                    let values = fields.iter().map(|field| self.form.value(field));
                    to_raw_value(&values.collect::<Option<Vec<_>>>()?).ok()
                }
            };
        }
        let named = fields.iter().enumerate().map(|(at, field)| {
            let name = self.names.get(at).filter(|name| !name.is_empty());
            let name = match name {
                Some(name) => name.to_str()?.to_owned(),
                None => (at + 1).to_string(),
            };
            Some((name, self.form.value(field)?))
        });
        to_raw_value(&named.collect::<Option<BTreeMap<_, _>>>()?).ok()
    }
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
    fn values_stay_as_they_are() {
        let large = "{\"b\": 12345678901234567890123, \"a\":\r\n1e999}";
        let sent = "{\"b\": 12345678901234567890123, \"a\":  1e999}";
        check(&[large], &[], InputForm::Json, Some(sent));
        check(&["null", "[1, 2]"], &[], InputForm::Json, Some("[null,[1, 2]]"));
        check(&["NaN"], &[], InputForm::Json, None);
        check(&[""], &[], InputForm::Json, None);
    }
}

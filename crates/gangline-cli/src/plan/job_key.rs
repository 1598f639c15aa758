//! `--key`: the part of an input that a job is known by.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::plan::template::quoted;
use crate::plan::value::InputForm;

/// Where the key of a job is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum JobKey {
    /// In all its inputs.
    #[default]
    Inputs,
    /// In the column with that index.
    Column(usize),
    /// In the value of that name in a JSON object.
    Member(String),
}

impl JobKey {
    /// Finds the column of this name. In JSON, each object is searched when it is read. The error names the columns.
    pub(crate) fn new(name: &str, names: &[OsString], form: InputForm) -> Result<JobKey, String> {
        if form == InputForm::Json {
            return Ok(JobKey::Member(name.to_owned()));
        }
        let column = names.iter().position(|column| column == name);
        column.map(JobKey::Column).ok_or_else(|| {
            let known: Vec<_> = names.iter().filter(|name| !name.is_empty()).collect();
            match known.is_empty() {
                true => "--key is the name of a column, or with --jsonl of a value in each object: use --csv, --tsv, \
                         --header : or --jsonl"
                    .into(),
                false => {
                    let known: Vec<_> = known.iter().map(|name| name.to_string_lossy()).collect();
                    format!("--key {name} is not one of the columns {}", known.join(", "))
                }
            }
        })
    }

    /// Returns the key of a job; `Ok(None)` stands for all inputs. If the input has no such value, the error is the
    /// name of the key.
    pub(crate) fn of(&self, fields: &[OsString]) -> Result<Option<Arc<str>>, &str> {
        match self {
            JobKey::Inputs => Ok(None),
            JobKey::Column(at) => Ok(fields.get(*at).map(|field| quoted(field).into())),
            JobKey::Member(name) => match fields {
                [field] => member(field, name).map(Some).ok_or(name),
                _ => Err(name),
            },
        }
    }
}

fn member(field: &OsString, name: &str) -> Option<Arc<str>> {
    let members: BTreeMap<&str, &RawValue> = serde_json::from_str(field.to_str()?).ok()?;
    let value = members.get(name)?.get();
    Some(match serde_json::from_str::<String>(value) {
        Ok(text) => quoted(text.as_ref()).into(),
        Err(_) => value.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(key: &JobKey, fields: &[&str], expected: Result<Option<&str>, &str>) {
        let fields: Vec<_> = fields.iter().map(OsString::from).collect();
        assert_eq!(key.of(&fields).as_ref().map(Option::as_deref), expected.as_ref().copied());
    }

    #[test]
    fn a_key_is_a_column_or_a_value_of_an_object() {
        let names = ["id", "name"].map(OsString::from);
        let column = JobKey::new("name", &names, InputForm::Text).unwrap();
        check(&column, &["1", "a x"], Ok(Some("'a x'")));
        let member = JobKey::new("name", &[], InputForm::Json).unwrap();
        check(&member, &[r#"{"name":"a x","id":1}"#], Ok(Some("'a x'")));
        check(&member, &[r#"{"name":[1, 2]}"#], Ok(Some("[1, 2]")));
        check(&member, &[r#"{"id":1}"#], Err("name"));
        check(&member, &["3"], Err("name"));
        check(&JobKey::Inputs, &["a"], Ok(None));
    }

    #[test]
    fn a_column_that_is_missing_is_refused() {
        let refused = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(OsString::from).collect();
            JobKey::new("name", &names, InputForm::Text).unwrap_err()
        };
        assert!(refused(&[""]).contains("--header :"));
        assert_eq!(refused(&["id", "x"]), "--key name is not one of the columns id, x");
    }
}

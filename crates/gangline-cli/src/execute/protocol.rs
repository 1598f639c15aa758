//! The messages between the program and a warm worker: lines of JSON.
//!
//! ```text
//! gangline   {"gangline":1,"worker":0,"gpus":["0"]}             once, when it was started
//! worker     {"gangline":1}                                    when it is ready
//! gangline   {"item":7,"attempt":1,"input":"a.mrc"}            for each input, one at a time
//! worker     {"item":7,"output":..}                            its result, any JSON
//!            {"item":7,"error":"out of focus"}                  or why there is none
//! ```
//!
//! After the last input, the program closes the worker's standard input, and the worker should exit.

use std::ffi::OsString;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::plain::{Plain, beginning};

/// The only version of the protocol.
pub(crate) const VERSION: u64 = 1;

/// The first line.
#[derive(Debug, Serialize)]
pub(crate) struct Hello<'a> {
    pub(crate) gangline: u64,
    pub(crate) worker: usize,
    pub(crate) gpus: &'a [String],
}

/// One input.
#[derive(Debug, Serialize)]
pub(crate) struct Item {
    pub(crate) item: u64,
    pub(crate) attempt: u32,
    pub(crate) input: Value,
}

/// A worker's answer to an item.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Answer {
    Output(Value),
    Error(String),
}

/// A line that violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    NotJson(String),
    Version(String),
    OtherItem { found: String, expected: u64 },
    NoAnswer(String),
}

#[derive(Deserialize)]
struct Ready {
    gangline: u64,
}

#[derive(Deserialize)]
struct Reply {
    item: u64,
    // `null` is a valid output.
    #[serde(default, deserialize_with = "present")]
    output: Option<Value>,
    error: Option<String>,
}

fn present<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// A message as a line.
pub(crate) fn line(message: &impl Serialize) -> Vec<u8> {
    let mut line = serde_json::to_vec(message).expect("texts and numbers are JSON");
    line.push(b'\n');
    line
}

/// The input of an item: a text, a list of texts if a job has several, or an object if they have names. An input
/// without a name has its number, from 1. `None` if one is not UTF-8.
pub(crate) fn input(fields: &[OsString], names: &[OsString]) -> Option<Value> {
    let text = |field: &OsString| field.to_str().map(str::to_owned);
    let value = |field: &OsString| text(field).map(Value::String);
    if names.is_empty() {
        return match fields {
            [field] => value(field),
            fields => fields.iter().map(value).collect(),
        };
    }
    let object: Option<Map<String, Value>> = fields
        .iter()
        .enumerate()
        .map(|(at, field)| {
            let name = names.get(at).filter(|name| !name.is_empty());
            let name = name.map_or_else(|| Some((at + 1).to_string()), text);
            Some((name?, value(field)?))
        })
        .collect();
    object.map(Value::Object)
}

/// Reads a worker's ready message.
pub(crate) fn read_ready(line: &[u8]) -> Result<(), Violation> {
    match serde_json::from_slice(line) {
        Ok(Ready { gangline: VERSION }) => Ok(()),
        Ok(Ready { .. }) => Err(Violation::Version(shown(line))),
        Err(_) => Err(Violation::NotJson(shown(line))),
    }
}

/// Reads a worker's answer to the item with that number.
pub(crate) fn read_answer(line: &[u8], expected: u64) -> Result<Answer, Violation> {
    let Reply { item, output, error } =
        serde_json::from_slice(line).map_err(|_| Violation::NotJson(shown(line)))?;
    match (item == expected, output, error) {
        (false, ..) => Err(Violation::OtherItem { found: shown(line), expected }),
        (true, Some(output), None) => Ok(Answer::Output(output)),
        (true, None, Some(error)) => Ok(Answer::Error(error)),
        (true, ..) => Err(Violation::NoAnswer(shown(line))),
    }
}

/// Formats an output for printing: a text unchanged, `null` as nothing, other values as JSON.
pub(crate) fn printed(output: &Value) -> Vec<u8> {
    let mut text = match output {
        Value::Null => return Vec::new(),
        Value::String(text) => text.clone().into_bytes(),
        other => other.to_string().into_bytes(),
    };
    text.push(b'\n');
    text
}

const MOST_SHOWN: usize = 200;

fn shown(line: &[u8]) -> String {
    let text = String::from_utf8_lossy(line);
    let text = Plain(text.trim_end()).to_string();
    if text.len() > MOST_SHOWN { format!("{}...", beginning(&text, MOST_SHOWN)) } else { text }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Violation::NotJson(line) => write!(
                f,
                "printed a line that is not of the protocol (use standard output for the protocol only): {line}"
            ),
            Violation::Version(line) => {
                write!(f, "speaks another version of the protocol than {VERSION}: {line}")
            }
            Violation::OtherItem { found, expected } => {
                write!(f, "answered item {found} instead of {expected}")
            }
            Violation::NoAnswer(line) => {
                write!(f, "answered with neither an output nor an error, or with both: {line}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read() {
        let answer = |line: &str| read_answer(line.as_bytes(), 7);
        assert_eq!(answer(r#"{"item":7,"output":3}"#), Ok(Answer::Output(3.into())));
        assert_eq!(answer(r#"{"item":7,"output":null,"x":1}"#), Ok(Answer::Output(Value::Null)));
        assert_eq!(answer(r#"{"item":7,"error":"no"}"#), Ok(Answer::Error("no".into())));
        assert!(matches!(answer(r#"{"item":8,"output":3}"#), Err(Violation::OtherItem { .. })));
        assert!(matches!(answer(r#"{"item":7}"#), Err(Violation::NoAnswer(_))));
        assert!(matches!(
            answer(r#"{"item":7,"output":1,"error":"x"}"#),
            Err(Violation::NoAnswer(_))
        ));
        assert!(matches!(answer("Loading model..."), Err(Violation::NotJson(_))));
    }

    #[test]
    fn a_worker_of_another_version_is_not_ready() {
        assert_eq!(read_ready(b"{\"gangline\":1}\n"), Ok(()));
        assert!(matches!(read_ready(b"{\"gangline\":2}"), Err(Violation::Version(_))));
        assert!(matches!(read_ready(b"{}"), Err(Violation::NotJson(_))));
    }

    #[test]
    fn records_are_objects() {
        let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
        let record = input(&words(&["1", "x"]), &words(&["id", "name"]));
        assert_eq!(record.unwrap().to_string(), r#"{"id":"1","name":"x"}"#);
        let mixed = input(&words(&["1", "x"]), &words(&["id", ""]));
        assert_eq!(mixed, serde_json::from_str(r#"{"2":"x","id":"1"}"#).ok());
        assert_eq!(input(&words(&["a"]), &[]), Some("a".into()));
        assert_eq!(input(&words(&["a", "b"]), &[]).unwrap().to_string(), r#"["a","b"]"#);
    }
}

//! The messages between the program and a warm worker: lines of JSON.
//!
//! ```text
//! gangline   {"gangline":1,"worker":0,"gpus":["0"],"threads":4} once, when it was started
//! worker     {"gangline":1}                                    when it is ready
//! gangline   {"item":7,"attempt":1,"input":"a.mrc"}            for each input, one at a time
//! worker     {"item":7,"output":..}                            its result, any JSON
//!            {"item":7,"error":"out of focus"}                  or why there is none
//! ```
//!
//! After the last input, the program closes the worker's standard input, and the worker should exit.

use std::borrow::Cow;
use std::ffi::OsString;
use std::fmt;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
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
    pub(crate) threads: usize,
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
    /// An answer with a value that cannot be read: `NaN`, half of a surrogate pair, a number that is too large.
    Unreadable(String),
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

/// An answer with unparsed values, since a value that cannot be read fails the item and does not blame the worker.
#[derive(Deserialize)]
struct Reply<'a> {
    item: u64,
    // `null` is a valid output.
    #[serde(borrow, default, deserialize_with = "present")]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
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
    let text = String::from_utf8_lossy(line);
    let mut fault = match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(_) => Some("it has text that is not UTF-8".to_owned()),
    };
    let replaced;
    let reply = match serde_json::from_str(&text) {
        Ok(reply) => reply,
        Err(_) => {
            let (word, rest) = replace_non_finite(&text);
            fault = fault.or(word.map(|word| format!("{word} is not JSON")));
            replaced = rest;
            serde_json::from_str(&replaced).map_err(|_| Violation::NotJson(shown(line)))?
        }
    };
    let Reply { item, output, error } = reply;
    if item != expected {
        return Err(Violation::OtherItem { found: shown(line), expected });
    }
    let read = match (output, error, fault) {
        (Some(_), Some(_), _) | (None, None, _) => return Err(Violation::NoAnswer(shown(line))),
        (_, _, Some(fault)) => return Ok(Answer::Unreadable(fault)),
        (Some(output), None, None) => serde_json::from_str(output.get()).map(Answer::Output),
        (None, Some(error), None) => serde_json::from_str(error.get()).map(Answer::Error),
    };
    match read {
        Err(error) if error.is_data() => Err(Violation::NotJson(shown(line))),
        read => Ok(read.unwrap_or_else(|error| Answer::Unreadable(error.to_string()))),
    }
}

/// Replaces `NaN`, `-Infinity` and the like, which are not JSON, by `null`. Returns the first of these words, and
/// the new text.
fn replace_non_finite(text: &str) -> (Option<String>, Cow<'_, str>) {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#""(?:[^"\\]|\\.)*"|([-+]?\b(?i:nan|inf(?:inity)?)\b)"#)
            .expect("the pattern is valid")
    });
    let mut first = None;
    let rest = WORDS.replace_all(text, |found: &Captures<'_>| match found.get(1) {
        Some(word) => {
            first.get_or_insert_with(|| word.as_str().to_owned());
            "null".to_owned()
        }
        None => found[0].to_owned(),
    });
    (first, rest)
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
        assert!(matches!(answer(r#"{"item":7,"error":3}"#), Err(Violation::NotJson(_))));
        assert_eq!(answer(r#"{"item":7,"output":3,"error":null}"#), Ok(Answer::Output(3.into())));
    }

    #[track_caller]
    fn is_unreadable(line: impl AsRef<[u8]>, why: &str) {
        match read_answer(line.as_ref(), 7) {
            Ok(Answer::Unreadable(found)) => assert!(found.contains(why), "{found}"),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_value_that_cannot_be_read_is_the_fault_of_its_item() {
        for word in ["NaN", "Infinity", "-Infinity", "nan", "-inf", "inf"] {
            let why = format!("{word} is not JSON");
            is_unreadable(format!(r#"{{"item":7,"output":{word}}}"#), &why);
            is_unreadable(format!(r#"{{"output":{{"a":["NaN\"",0.5,{word}]}},"item":7}}"#), &why);
        }
        is_unreadable(r#"{"item":7,"output":[Infinity,NaN]}"#, "Infinity is not JSON");
        is_unreadable(r#"{"item":7,"output":1e999}"#, "number out of range");
        is_unreadable(r#"{"item":7,"output":["\ud800"]}"#, "hex escape");
        is_unreadable(r#"{"item":7,"error":"\udc00"}"#, "hex escape");
        is_unreadable(b"{\"item\":7,\"output\":\"\xe9\"}", "not UTF-8");
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        is_unreadable(format!(r#"{{"item":7,"output":{deep}}}"#), "recursion limit");
    }

    #[test]
    fn what_is_no_answer_is_the_fault_of_its_worker() {
        let answer = |line: &str| read_answer(line.as_bytes(), 7);
        for line in ["NaN", r#"{"item":NaN,"output":1}"#, r#"{"item":7,"output":NaNs}"#, "{NaN}"] {
            assert!(matches!(answer(line), Err(Violation::NotJson(_))), "{line}");
        }
        let other = answer(r#"{"item":8,"output":NaN}"#);
        assert!(matches!(other, Err(Violation::OtherItem { .. })));
        let both = answer(r#"{"item":7,"output":NaN,"error":"x"}"#);
        assert!(matches!(both, Err(Violation::NoAnswer(_))));
        let text = answer(r#"{"item":7,"output":"NaN, Infinity"}"#);
        assert_eq!(text, Ok(Answer::Output("NaN, Infinity".into())));
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

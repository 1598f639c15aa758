//! The messages between the program and a warm worker: lines of JSON.
//!
//! ```text
//! gangline   {"gangline":2,"worker":0,"gpus":["0"],"threads":4,"batch":8}   once, when it was started
//! worker     {"gangline":2,"batch":true}                        when it is ready, if it takes lists
//!            {"gangline":1}                                     or one item at a time
//! gangline   {"items":[{"item":7,"attempt":1,"input":"a.mrc"},..]}   a list, or one item without the list
//! worker     {"item":7,"output":..}                             the result of an item, any JSON
//!            {"item":7,"error":"out of focus"}                  or why there is none
//!            {"item":7,"error":"no image","kind":"input"}       the same, if no worker could accept the input
//!            {"oom":true}                                       the list is too large for the device
//!            {"error":"..","of":"list"}                         the list failed as a whole
//!            {"log":"..","level":"info"}                        a message, also before it is ready
//! ```
//!
//! After the last input, the program closes the worker's standard input, and the worker should exit.

#[cfg(any(test, fuzzing))]
pub(crate) mod any_bytes;
mod lossy_text;

use std::borrow::Cow;
use std::fmt;
use std::num::NonZeroU64;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use self::lossy_text::{lossy_text, replace_non_finite};
use crate::execute::list_failure::ListFailure;
use crate::output::json_text::{compact, without_mark};
use crate::plain::{Plain, beginning};

/// The version of the protocol. Workers of version 1 are understood.
pub(crate) const VERSION: u64 = 2;

/// The first line.
#[derive(Debug, Serialize)]
pub(crate) struct FirstLine<'a> {
    pub(crate) gangline: u64,
    pub(crate) worker: usize,
    pub(crate) gpus: &'a [String],
    pub(crate) threads: usize,
    /// The largest list that is sent.
    pub(crate) batch: usize,
}

/// One input.
#[derive(Debug, Serialize)]
pub(crate) struct Item<'a> {
    pub(crate) item: u64,
    pub(crate) attempt: u32,
    pub(crate) input: &'a RawValue,
}

/// Several inputs.
#[derive(Debug, Serialize)]
pub(crate) struct ItemList<'a> {
    pub(crate) items: Vec<Item<'a>>,
}

/// What a message to a worker may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum MessageForm {
    /// One item.
    #[default]
    Items,
    /// A list of items.
    Lists,
}

/// What a worker says after it got a message.
#[derive(Debug)]
pub(crate) enum WorkerReply {
    /// To the item in that place.
    Answer(usize, WorkerAnswer),
    /// The message failed as a whole, and why.
    Whole(ListFailure, String),
    /// Something to be shown, in whole lines.
    Log(Vec<u8>),
}

/// A worker's answer to an item.
#[derive(Debug)]
pub(crate) enum WorkerAnswer {
    Output(Box<RawValue>),
    Error(String),
    /// An error with `"kind":"input"`: no attempt could succeed.
    BadInput(String),
    /// An answer with a value that cannot be read: `NaN`, half of a surrogate pair, a number that is too large.
    Unreadable(String),
}

/// A line that violates the protocol.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Violation {
    NotJson(String),
    NotReady(String),
    Version(String),
    OtherItem { found: u64, expected: Vec<u64> },
    Twice(u64),
    NoAnswer(String),
}

#[derive(Deserialize)]
struct ReadyLine {
    gangline: u64,
    #[serde(default)]
    batch: bool,
    /// How many messages the worker reads before it answers. The program sends one at a time: a second one would wait
    /// behind a slow item while another worker is free, for 25 to 60 us between two messages. The key is checked, so
    /// that a later version may use it.
    #[expect(dead_code, reason = "it is only checked")]
    ahead: Option<NonZeroU64>,
}

/// An answer with unparsed values, since a value that cannot be read fails the item and does not blame the worker.
#[derive(Deserialize)]
struct Keys<'a> {
    item: Option<u64>,
    // `null` is a valid output.
    #[serde(borrow, default, deserialize_with = "present")]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    /// What is at fault. Any other value than `input` is ignored, as an unknown key is.
    #[serde(borrow)]
    kind: Option<&'a RawValue>,
    #[serde(default)]
    oom: bool,
    #[serde(borrow)]
    of: Option<Cow<'a, str>>,
    #[serde(borrow)]
    log: Option<&'a RawValue>,
    #[serde(borrow)]
    level: Option<&'a RawValue>,
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

/// Reads a worker's ready message. A byte order mark at the beginning of a line is no part of it.
pub(crate) fn read_ready(line: &[u8]) -> Result<MessageForm, Violation> {
    let line = without_mark(line);
    #[derive(Deserialize)]
    struct Version {
        gangline: u64,
    }
    let Ok(Version { gangline }) = serde_json::from_slice(line) else {
        return Err(Violation::NotJson(shown(line)));
    };
    if !(1..=VERSION).contains(&gangline) {
        return Err(Violation::Version(shown(line)));
    }
    match serde_json::from_slice(line) {
        Ok(ReadyLine { gangline: VERSION, batch: true, .. }) => Ok(MessageForm::Lists),
        Ok(_) => Ok(MessageForm::Items),
        // Keys that version 1 does not have were ignored by it.
        Err(_) if gangline == 1 => Ok(MessageForm::Items),
        Err(_) => Err(Violation::NotReady(shown(line))),
    }
}

/// The text of a message for the log that comes before the ready message, in whole lines; `None` if the line is another
/// message.
pub(crate) fn read_log(line: &[u8]) -> Option<Vec<u8>> {
    match read_reply(line, &|_| Ok(0)) {
        Ok(WorkerReply::Log(text)) => Some(text),
        _ => None,
    }
}

/// Reads what a worker says after it got a message. `place` finds an item among those that it has in hand.
///
/// Replaces what is not Unicode in texts about an item, such as its error: a reason must not be lost. An output that is
/// not Unicode cannot be read.
pub(crate) fn read_reply(
    line: &[u8],
    place: &dyn Fn(u64) -> Result<usize, Violation>,
) -> Result<WorkerReply, Violation> {
    let line = without_mark(line);
    let text = String::from_utf8_lossy(line);
    let mut fault = match text {
        Cow::Borrowed(_) => None,
        Cow::Owned(_) => Some("it has text that is not UTF-8".to_owned()),
    };
    let replaced;
    let keys = match serde_json::from_str(&text) {
        Ok(keys) => keys,
        Err(_) => {
            let (word, rest) = replace_non_finite(&text);
            fault = fault.or(word.map(|word| format!("{word} is not JSON")));
            replaced = rest;
            serde_json::from_str(&replaced).map_err(|_| Violation::NotJson(shown(line)))?
        }
    };
    let text_of = |value: &RawValue| lossy_text(value).map_err(|_| Violation::NotJson(shown(line)));
    let Keys { item, output, error, kind, oom, of, log, level } = keys;
    match (item, error, log) {
        (Some(item), error, _) => {
            let at = place(item)?;
            let answer = match (output, error, fault) {
                (Some(_), Some(_), _) | (None, None, _) => {
                    return Err(Violation::NoAnswer(shown(line)));
                }
                (None, Some(error), _) if kind.is_some_and(is_input) => {
                    WorkerAnswer::BadInput(text_of(error)?)
                }
                (None, Some(error), _) => WorkerAnswer::Error(text_of(error)?),
                (Some(_), None, Some(fault)) => WorkerAnswer::Unreadable(fault),
                (Some(output), None, None) => match compact(output) {
                    Ok(output) => WorkerAnswer::Output(output),
                    Err(error) => WorkerAnswer::Unreadable(error.to_string()),
                },
            };
            Ok(WorkerReply::Answer(at, answer))
        }
        (None, ..) if oom => Ok(WorkerReply::Whole(ListFailure::OutOfMemory, OUT_OF_MEMORY.into())),
        (None, Some(error), _) if of.as_deref() == Some("list") => {
            Ok(WorkerReply::Whole(ListFailure::Rejected, text_of(error)?))
        }
        (None, None, Some(log)) => {
            let log = text_of(log)?;
            let level = level.map(text_of).transpose()?;
            let level = level.map_or_else(String::new, |level| format!("{level}: "));
            Ok(WorkerReply::Log(format!("{level}{}\n", log.trim_end()).into_bytes()))
        }
        _ => Err(Violation::NotJson(shown(line))),
    }
}

fn is_input(kind: &RawValue) -> bool {
    kind.get() == "\"input\""
}

const OUT_OF_MEMORY: &str = "the device is out of memory";

const MOST_SHOWN: usize = 200;

/// The most items that are named of those that a worker has in hand.
const MOST_NAMED: usize = 8;

const ALLOWED: &str = "{\"item\":N,\"output\":..}, {\"item\":N,\"error\":\"text\"}, {\"oom\":true}, \
                       {\"error\":\"text\",\"of\":\"list\"} and {\"log\":\"text\"}";

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
                "printed a line that is not of the protocol (use standard output for the protocol only): {line}; \
                 allowed are {ALLOWED}; before them comes {{\"gangline\":2}}"
            ),
            Violation::NotReady(line) => write!(
                f,
                "answered the first line with {line}; allowed are {{\"gangline\":1}} and {{\"gangline\":2}}, the \
                 latter with \"batch\":true or false and \"ahead\": a number from 1"
            ),
            Violation::Version(line) => {
                write!(f, "speaks another version of the protocol than 1 and {VERSION}: {line}")
            }
            Violation::OtherItem { found, expected } => {
                let shown = expected.iter().take(MOST_NAMED).map(u64::to_string);
                let shown = shown.collect::<Vec<_>>().join(", ");
                let more = if expected.len() > MOST_NAMED { ", .." } else { "" };
                write!(f, "answered item {found} instead of {shown}{more}")
            }
            Violation::Twice(item) => write!(f, "answered item {item} twice"),
            Violation::NoAnswer(line) => {
                write!(f, "answered with neither an output nor an error, or with both: {line}")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn in_hand(number: u64) -> Result<usize, Violation> {
        match number {
            7 => Ok(0),
            found => Err(Violation::OtherItem { found, expected: vec![7] }),
        }
    }

    fn read_answer(line: &[u8]) -> Result<WorkerAnswer, Violation> {
        match read_reply(line, &in_hand)? {
            WorkerReply::Answer(0, answer) => Ok(answer),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_are_read() {
        let answer = |line: &str| read_answer(line.as_bytes());
        is_output(r#"{"item":7,"output":3}"#, "3");
        is_output(r#"{"item":7,"output":null,"x":1}"#, "null");
        is_output(
            r#"{"item":7,"output":[ 18446744073709551617, 0.10 ]}"#,
            "[18446744073709551617,0.10]",
        );
        assert!(
            matches!(answer(r#"{"item":7,"error":"no"}"#), Ok(WorkerAnswer::Error(text)) if text == "no")
        );
        assert!(matches!(answer(r#"{"item":8,"output":3}"#), Err(Violation::OtherItem { .. })));
        assert!(matches!(answer(r#"{"item":7}"#), Err(Violation::NoAnswer(_))));
        assert!(matches!(
            answer(r#"{"item":7,"output":1,"error":"x"}"#),
            Err(Violation::NoAnswer(_))
        ));
        assert!(matches!(answer("Loading model..."), Err(Violation::NotJson(_))));
        assert!(matches!(answer(r#"{"item":7,"error":3}"#), Err(Violation::NotJson(_))));
        is_output(r#"{"item":7,"output":3,"error":null}"#, "3");
        is_output(r#"{"item":7,"output":3,"kind":"input"}"#, "3");
    }

    #[test]
    fn an_error_can_be_that_of_the_input() {
        let answer = |kind: &str| {
            let line = format!("{{\"item\":7,\"error\":\"no\",\"kind\":{kind}}}");
            read_answer(line.as_bytes())
        };
        assert!(matches!(answer("\"input\""), Ok(WorkerAnswer::BadInput(text)) if text == "no"));
        for kind in ["\"model\"", "null", "3", "{\"input\":1}", "\"\\ud800\""] {
            assert!(matches!(answer(kind), Ok(WorkerAnswer::Error(_))), "{kind}");
        }
    }

    #[track_caller]
    fn is_output(line: &str, expected: &str) {
        match read_answer(line.as_bytes()) {
            Ok(WorkerAnswer::Output(found)) => assert_eq!(found.get(), expected),
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    fn is_unreadable(line: impl AsRef<[u8]>, why: &str) {
        match read_answer(line.as_ref()) {
            Ok(WorkerAnswer::Unreadable(found)) => assert!(found.contains(why), "{found}"),
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
        is_unreadable(b"{\"item\":7,\"output\":\"\xe9\"}", "not UTF-8");
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        is_unreadable(format!(r#"{{"item":7,"output":{deep}}}"#), "recursion limit");
    }

    #[test]
    fn a_text_that_is_not_unicode_keeps_its_rest() {
        let error = |line: &[u8]| match read_answer(line) {
            Ok(WorkerAnswer::Error(text)) => text,
            other => panic!("{other:?}"),
        };
        assert_eq!(error(b"{\"item\":7,\"error\":\"caf\xe9.mrc\"}"), "caf\u{fffd}.mrc");
        assert_eq!(
            error(br#"{"item":7,"error":"\udce9\ud800x\ud83d\ude00"}"#),
            "\u{fffd}\u{fffd}x😀"
        );
        assert_eq!(error(br#"{"item":7,"error":"no","score":NaN}"#), "no");
        assert_eq!(error(b"{\"item\":7,\"error\":\"no\",\"name\":\"\xff\"}"), "no");
        let whole = br#"{"error":"caf\udce9","of":"list"}"#;
        assert!(matches!(
            read_reply(whole, &in_hand),
            Ok(WorkerReply::Whole(ListFailure::Rejected, why)) if why == "caf\u{fffd}"
        ));
        let log = read_log(b"{\"log\":\"caf\xe9 \\udce9\",\"level\":\"\\ud800\"}");
        assert_eq!(log.as_deref(), Some("\u{fffd}: caf\u{fffd} \u{fffd}\n".as_bytes()));
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_a_line() {
        assert_eq!(read_ready(b"\xef\xbb\xbf{\"gangline\":1}"), Ok(MessageForm::Items));
        assert!(read_log("\u{feff}{\"log\":\"a\"}".as_bytes()).is_some());
        is_output("\u{feff}{\"item\":7,\"output\":\"\u{feff}\"}", "\"\u{feff}\"");
        assert!(read_ready("\u{feff}\u{feff}{\"gangline\":1}".as_bytes()).is_err());
    }

    #[test]
    fn what_is_no_answer_is_the_fault_of_its_worker() {
        let answer = |line: &str| read_answer(line.as_bytes());
        for line in ["NaN", r#"{"item":NaN,"output":1}"#, r#"{"item":7,"output":NaNs}"#, "{NaN}"] {
            assert!(matches!(answer(line), Err(Violation::NotJson(_))), "{line}");
        }
        let other = answer(r#"{"item":8,"output":NaN}"#);
        assert!(matches!(other, Err(Violation::OtherItem { .. })));
        let both = answer(r#"{"item":7,"output":NaN,"error":"x"}"#);
        assert!(matches!(both, Err(Violation::NoAnswer(_))));
        is_output(r#"{"item":7,"output":"NaN, Infinity"}"#, "\"NaN, Infinity\"");
    }

    #[test]
    fn a_worker_of_another_version_is_not_ready() {
        assert_eq!(read_ready(b"{\"gangline\":1}\n"), Ok(MessageForm::Items));
        assert_eq!(read_ready(b"{\"gangline\":1,\"batch\":true}\n"), Ok(MessageForm::Items));
        let marked = "\u{feff}{\"gangline\":2}\r\n";
        assert_eq!(read_ready(marked.as_bytes()), Ok(MessageForm::Items));
        assert_eq!(read_log("\u{feff}{\"log\":\"a\"}".as_bytes()), Some(b"a\n".to_vec()));
        assert_eq!(read_ready(b"{\"gangline\":2,\"ahead\":3}\n"), Ok(MessageForm::Items));
        assert_eq!(read_ready(b"{\"gangline\":2,\"batch\":true}"), Ok(MessageForm::Lists));
        assert!(matches!(read_ready(b"{\"gangline\":3}"), Err(Violation::Version(_))));
        assert!(matches!(read_ready(b"{}"), Err(Violation::NotJson(_))));
        for keys in [r#""batch":8"#, r#""ahead":0"#, r#""ahead":true"#] {
            let line = format!(r#"{{"gangline":2,{keys}}}"#);
            assert!(matches!(read_ready(line.as_bytes()), Err(Violation::NotReady(_))), "{line}");
        }
    }

    #[test]
    fn a_list_can_fail_as_a_whole() {
        let reply = |line: &str| read_reply(line.as_bytes(), &in_hand);
        let why = |line: &str| match reply(line) {
            Ok(WorkerReply::Whole(whole, why)) => (whole, why),
            other => panic!("{other:?}"),
        };
        assert_eq!(why(r#"{"oom":true}"#), (ListFailure::OutOfMemory, OUT_OF_MEMORY.into()));
        assert_eq!(why(r#"{"error":"bad","of":"list"}"#), (ListFailure::Rejected, "bad".into()));
        let log =
            |line: &str| read_log(line.as_bytes()).map(|text| String::from_utf8(text).unwrap());
        let lines = log(r#"{"log":"a\nb\n","level":"info"}"#);
        assert_eq!(lines.as_deref(), Some("info: a\nb\n"));
        assert_eq!(log(r#"{"log":"a"}"#).as_deref(), Some("a\n"));
        for line in [r#"{"oom":false}"#, r#"{"error":"bad"}"#, r#"{"log":3}"#, r#"{"oom":1}"#] {
            assert!(matches!(reply(line), Err(Violation::NotJson(_))), "{line}");
        }
    }
}

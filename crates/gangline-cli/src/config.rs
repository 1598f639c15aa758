//! `gangline config`.

use std::fmt::Write;

use gangline::config::{Map, Source, Value, ValueKind};

use crate::args::ConfigArgs;
use crate::error::{CliError, Context};
use crate::exit;
use gangline::BoxError;
use gangline::CfgNode;

/// Writes a file's config node as YAML, with a comment that gives the origin of each value. If several
/// origins set it, the last counts: files with their bases, the environment, `--set`.
pub(crate) fn show(args: &ConfigArgs) -> Result<Vec<u8>, CliError> {
    let mut node = CfgNode::load(&args.file).map_err(|error| refused("the file", error))?;
    if let Some(prefix) = &args.env {
        node = node.with_env(prefix).map_err(|error| refused("the environment", error))?;
    }
    for assignment in &args.set {
        node.apply(assignment).map_err(|error| refused("--set", error))?;
    }
    let table = node.collect().map_err(|error| refused("the node", error))?;
    let mut lines = Vec::new();
    put_table(&table, 0, &mut lines);
    Ok(aligned(&lines).into_bytes())
}

/// One line: the text, and its comment.
struct ConfigLine {
    text: String,
    origin: Option<String>,
}

fn put_table(table: &Map<String, Value>, depth: usize, lines: &mut Vec<ConfigLine>) {
    for (key, value) in table {
        let begin = format!("{:indent$}{}:", "", key_text(key), indent = 2 * depth);
        match &value.kind {
            ValueKind::Table(inner) if !inner.is_empty() => {
                lines.push(ConfigLine { text: begin, origin: None });
                put_table(inner, depth + 1, lines);
            }
            _ => {
                let text = format!("{begin} {}", flow(value));
                lines.push(ConfigLine { text, origin: Some(origin(value)) });
            }
        }
    }
}

fn origin(value: &Value) -> String {
    match (value.origin(), &value.kind) {
        (Some(origin), _) => origin.to_owned(),
        // A list merged from others has no origin of its own.
        (None, ValueKind::Array(values)) if !values.is_empty() => origin(&values[0]),
        (None, _) => "set".into(),
    }
}

/// A value on one line.
fn flow(value: &Value) -> String {
    match &value.kind {
        ValueKind::Nil => "null".into(),
        ValueKind::Boolean(truth) => truth.to_string(),
        ValueKind::I64(number) => number.to_string(),
        ValueKind::I128(number) => number.to_string(),
        ValueKind::U64(number) => number.to_string(),
        ValueKind::U128(number) => number.to_string(),
        ValueKind::Float(number) if number.is_nan() => ".nan".into(),
        ValueKind::Float(number) if number.is_infinite() => {
            if *number > 0.0 {
                ".inf".into()
            } else {
                "-.inf".into()
            }
        }
        ValueKind::Float(number) => format!("{number:?}"),
        ValueKind::String(text) => quoted(text),
        ValueKind::Array(values) => {
            format!("[{}]", values.iter().map(flow).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Table(table) => {
            let entries =
                table.iter().map(|(key, value)| format!("{}: {}", key_text(key), flow(value)));
            format!("{{{}}}", entries.collect::<Vec<_>>().join(", "))
        }
    }
}

fn key_text(key: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"_-".contains(&byte);
    match key.bytes().all(plain) && key.starts_with(|first: char| first.is_ascii_alphabetic()) {
        true => key.to_owned(),
        false => quoted(key),
    }
}

/// In quotes, as JSON and YAML write it.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}

/// With all comments in one column.
fn aligned(lines: &[ConfigLine]) -> String {
    let column = lines
        .iter()
        .filter(|line| line.origin.is_some())
        .map(|line| line.text.chars().count())
        .filter(|width| *width <= WIDEST)
        .max()
        .unwrap_or_default();
    let mut text = String::new();
    for line in lines {
        let _ = match &line.origin {
            Some(origin) => writeln!(text, "{:column$}  # {origin}", line.text),
            None => writeln!(text, "{}", line.text),
        };
    }
    text
}

/// A longer value does not push the comments out of view.
const WIDEST: usize = 60;

fn refused(what: &str, error: impl Into<BoxError>) -> CliError {
    CliError::new(exit::USAGE, Context::new(format!("{what} is not a valid configuration"), error))
}

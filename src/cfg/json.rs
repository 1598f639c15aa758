//! JSON, in and out.

use std::error::Error;

use config::{Map, Value, ValueKind};
use serde::de::DeserializeSeed;

use super::error::MAX_DEPTH;
use super::ser::{Tree, TreeSeed};

/// JSON as one of `config`'s formats: its own keeps the last of two equal keys and rounds integers
/// of more than 64 bits, both in silence.
#[derive(Debug, Clone, Copy)]
pub(super) struct Json;

impl config::Format for Json {
    fn parse(
        &self,
        uri: Option<&String>,
        text: &str,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>> {
        if text.trim().is_empty() {
            return Ok(Map::new());
        }
        let mut parser = serde_json::Deserializer::from_str(text);
        let value = TreeSeed { room: MAX_DEPTH }.deserialize(&mut parser)?;
        parser.end()?;
        check_integers(text)?;
        match with_origin(value, uri).kind {
            ValueKind::Table(table) => Ok(table),
            _ => Err("the top must be an object, at line 1, column 1".into()),
        }
    }
}

pub(super) fn to_string(value: &Value) -> Result<String, Box<dyn Error + Send + Sync>> {
    Ok(serde_json::to_string_pretty(&Tree(value))? + "\n")
}

fn with_origin(value: Value, uri: Option<&String>) -> Value {
    let kind = match value.kind {
        ValueKind::Array(list) => {
            ValueKind::Array(list.into_iter().map(|value| with_origin(value, uri)).collect())
        }
        ValueKind::Table(table) => {
            let entries = table.into_iter();
            ValueKind::Table(entries.map(|(key, value)| (key, with_origin(value, uri))).collect())
        }
        kind => kind,
    };
    Value::new(uri, kind)
}

/// Refuses integers of more than 64 bits in a valid text: the parser makes floats of them.
fn check_integers(text: &str) -> Result<(), String> {
    for (i, line) in text.lines().enumerate() {
        if let Some((start, number)) = numbers(line).find(|(_, number)| is_oversized(number)) {
            let (line, column) = (i + 1, line[..start].chars().count() + 1);
            return Err(format!(
                "{number} does not fit in 64 bits at line {line}, column {column}"
            ));
        }
    }
    Ok(())
}

/// The numbers of a line, outside its strings, with where they start. Strings end on their line.
fn numbers(line: &str) -> impl Iterator<Item = (usize, &str)> {
    let mut rest = line;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(|c: char| c != '"' && !is_numeric(c));
            if let Some(string) = rest.strip_prefix('"') {
                rest = after_string(string);
                continue;
            }
            let start = line.len() - rest.len();
            let end = rest.find(|c| !is_numeric(c)).unwrap_or(rest.len());
            let (number, after) = rest.split_at(end);
            rest = after;
            return (!number.is_empty()).then_some((start, number));
        }
    })
}

fn is_numeric(c: char) -> bool {
    c.is_ascii_digit() || matches!(c, '-' | '+' | '.' | 'e' | 'E')
}

fn after_string(string: &str) -> &str {
    let mut escaped = false;
    let end = string.find(|c| {
        let ends = c == '"' && !escaped;
        escaped = c == '\\' && !escaped;
        ends
    });
    end.map_or("", |end| &string[end + 1..])
}

fn is_oversized(number: &str) -> bool {
    let digits = number.strip_prefix('-').unwrap_or(number);
    !digits.is_empty()
        && digits.bytes().all(|b| b.is_ascii_digit())
        && number.parse::<i64>().is_err()
        && number.parse::<u64>().is_err()
}

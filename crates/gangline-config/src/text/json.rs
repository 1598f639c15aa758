//! JSON, in and out.

use std::error::Error;

use config::{Map, Value, ValueKind};
use serde::de::DeserializeSeed;

use crate::error::MAX_DEPTH;
use crate::scalar;
use crate::ser::{Tree, TreeSeed};

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
        let mut value = TreeSeed { room: MAX_DEPTH }.deserialize(&mut parser)?;
        parser.end()?;
        restore(&mut value, &mut numbers(text))?;
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

/// Restores the integers of more than 64 bits, which the parser has turned into floats. `numbers` are the numbers of the
/// text; the tree has them in the same order.
fn restore<'t>(
    value: &mut Value,
    numbers: &mut impl Iterator<Item = Number<'t>>,
) -> Result<(), String> {
    match &mut value.kind {
        ValueKind::Array(list) => list.iter_mut().try_for_each(|value| restore(value, numbers)),
        ValueKind::Table(table) => table.values_mut().try_for_each(|value| restore(value, numbers)),
        ValueKind::Nil | ValueKind::Boolean(_) | ValueKind::String(_) => Ok(()),
        kind => {
            let number = numbers.next().expect("the tree has the numbers of the text");
            if is_oversized(number.text) {
                *kind = scalar::resolve(number.text).map_err(|problem| number.at(problem))?;
            }
            Ok(())
        }
    }
}

/// A number in a text, and the line and the column where it starts.
#[derive(Debug, Clone, Copy)]
struct Number<'t> {
    text: &'t str,
    line: usize,
    column: usize,
}

impl Number<'_> {
    fn at(&self, problem: String) -> String {
        format!("{problem} at line {}, column {}", self.line, self.column)
    }
}

/// The numbers of a valid text, outside its strings.
fn numbers(text: &str) -> impl Iterator<Item = Number<'_>> {
    text.lines().zip(1..).flat_map(|(line, number)| numbers_of_line(line, number))
}

/// Strings end on their line.
fn numbers_of_line(line: &str, number: usize) -> impl Iterator<Item = Number<'_>> {
    let mut rest = line;
    std::iter::from_fn(move || {
        loop {
            rest = rest.trim_start_matches(|c: char| c != '"' && c != '-' && !c.is_ascii_digit());
            if let Some(string) = rest.strip_prefix('"') {
                rest = after_string(string);
                continue;
            }
            let column = line[..line.len() - rest.len()].chars().count() + 1;
            let end = rest.find(|c| !is_numeric(c)).unwrap_or(rest.len());
            let (text, after) = rest.split_at(end);
            rest = after;
            return (!text.is_empty()).then_some(Number { text, line: number, column });
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

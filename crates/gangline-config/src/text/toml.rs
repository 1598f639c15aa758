//! TOML, in through `config`'s own parser, and out.

use std::error::Error;
use std::fmt::Write;
use std::num::ParseIntError;

use config::{FileFormat, Map, Value, ValueKind};

use crate::tree::Table;

/// TOML as one of `config`'s formats. Dates come in as text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Toml;

impl config::Format for Toml {
    fn parse(
        &self,
        uri: Option<&String>,
        text: &str,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>> {
        FileFormat::Toml.parse(uri, text).map_err(|error| locate(error, text))
    }
}

/// Text that [`Toml`] reads as the same tree. The tree holds no null and no integer over `i64::MAX`.
pub(super) fn to_string(value: &Value) -> String {
    let mut text = String::new();
    if let ValueKind::Table(table) = &value.kind {
        write_table(&mut text, "", table);
    }
    text
}

/// Says where the integer is that was too large: `config` does not. Other errors end with a line break,
/// which would end up in the middle of a log line.
fn locate(error: Box<dyn Error + Send + Sync>, text: &str) -> Box<dyn Error + Send + Sync> {
    let place = error.is::<ParseIntError>().then(|| find_oversized(text)).flatten();
    match place {
        Some((line, column, number)) => {
            format!("{number} does not fit in 64 bits at line {line}, column {column}").into()
        }
        None => error.to_string().trim_end().into(),
    }
}

fn find_oversized(text: &str) -> Option<(usize, usize, &str)> {
    let is_number = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '-' | '_');
    text.lines().enumerate().find_map(|(i, line)| {
        let number = line.split(|c| !is_number(c)).find(|word| is_oversized(word))?;
        let column = line[..line.find(number)?].chars().count() + 1;
        Some((i + 1, column, number))
    })
}

fn is_oversized(word: &str) -> bool {
    let digits = word.replace('_', "");
    let unsigned = digits.strip_prefix(['+', '-']).unwrap_or(&digits);
    let (radix, unsigned) = match unsigned.get(..2) {
        Some("0x") => (16, &unsigned[2..]),
        Some("0o") => (8, &unsigned[2..]),
        Some("0b") => (2, &unsigned[2..]),
        _ => (10, unsigned),
    };
    let is_integer = !unsigned.is_empty() && unsigned.chars().all(|c| c.is_digit(radix));
    is_integer && i64::from_str_radix(unsigned, radix).is_err()
}

/// Writes the plain values of a table, then its tables under their headers.
fn write_table(text: &mut String, header: &str, table: &Table) {
    let is_table = |value: &Value| matches!(value.kind, ValueKind::Table(_));
    for (key, value) in table.iter().filter(|(_, value)| !is_table(value)) {
        write_line(text, format_args!("{} = {}", quoted_key(key), inline(value)));
    }
    for (key, value) in table {
        let ValueKind::Table(table) = &value.kind else { continue };
        let key = quoted_key(key);
        let header = if header.is_empty() { key } else { format!("{header}.{key}") };
        let gap = if text.is_empty() { "" } else { "\n" };
        write_line(text, format_args!("{gap}[{header}]"));
        write_table(text, &header, table);
    }
}

fn write_line(text: &mut String, line: std::fmt::Arguments<'_>) {
    writeln!(text, "{line}").expect("a String takes all that is written to it");
}

fn inline(value: &Value) -> String {
    match &value.kind {
        ValueKind::Float(x) if x.is_nan() => "nan".to_owned(),
        ValueKind::Float(x) => format!("{x:?}"),
        ValueKind::String(text) => quoted(text),
        ValueKind::Array(list) => {
            format!("[{}]", list.iter().map(inline).collect::<Vec<_>>().join(", "))
        }
        ValueKind::Table(table) if table.is_empty() => "{}".to_owned(),
        ValueKind::Table(table) => {
            let entries = table.iter().map(|(k, v)| format!("{} = {}", quoted_key(k), inline(v)));
            format!("{{ {} }}", entries.collect::<Vec<_>>().join(", "))
        }
        kind => kind.to_string(),
    }
}

fn quoted_key(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-');
    if key.bytes().all(is_bare) { key.to_owned() } else { quoted(key) }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            // Also what TOML allows but an editor may eat: a byte order mark, line separators.
            c if c.is_control() || matches!(c, '\u{feff}' | '\u{2028}' | '\u{2029}') => {
                quoted.push_str(&format!("\\u{:04X}", u32::from(c)));
            }
            c => quoted.push(c),
        }
    }
    quoted + "\""
}

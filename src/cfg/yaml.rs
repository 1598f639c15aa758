//! YAML, in and out. No other file names the parser.

use std::error::Error;
use std::fmt;

use config::{Map, Value, ValueKind};
use serde::de::{self, Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::options::{MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Location, Options, Spanned};

use super::ser::Tree;
use super::tree::{Fault, FaultKind, MAX_DEPTH, Table, inner};

/// YAML as one of `config`'s formats: its own fails on `.inf`, rounds large integers and keeps `<<`
/// as a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Yaml;

impl config::Format for Yaml {
    fn parse(
        &self,
        uri: Option<&String>,
        text: &str,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>> {
        match parse(uri, text)?.kind {
            ValueKind::Table(table) => Ok(table),
            // Nothing but comments.
            ValueKind::Nil => Ok(Map::new()),
            _ => Err("the top must be a map, from keys to values".into()),
        }
    }
}

/// Any value in YAML's notation. Its keys are not checked.
pub(super) fn parse(
    uri: Option<&String>,
    text: &str,
) -> Result<Value, Box<dyn Error + Send + Sync>> {
    let raw = serde_saphyr::from_str_with_options::<Raw>(text, options())?;
    Ok(Reader { uri, text }.value(raw, MAX_DEPTH)?)
}

pub(super) fn to_string(value: &Value) -> Result<String, Box<dyn Error + Send + Sync>> {
    Ok(serde_saphyr::to_string(&Tree(value))?)
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
        // A tag never calls anything. One that nobody reads is a mistake, not decoration.
        reject_unsupported_tags: true,
        strict_booleans: true,
        merge_keys: MergeKeyPolicy::Merge,
        non_finite_float_policy: NonFiniteFloatPolicy::PassThrough,
        crop_radius: 60,
    }
}

/// A value as it stands in the text. A float keeps its place, since the parser takes `007` and
/// integers of more than 64 bits for floats, and only the text tells.
type Raw = Spanned<RawKind>;

enum RawKind {
    Scalar(ValueKind),
    List(Vec<Raw>),
    Node(Vec<(String, Raw)>),
}

impl<'de> Deserialize<'de> for RawKind {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(RawVisitor)
    }
}

struct RawVisitor;

impl<'de> Visitor<'de> for RawVisitor {
    type Value = RawKind;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<RawKind, E> {
        Ok(RawKind::Scalar(ValueKind::Nil))
    }

    fn visit_bool<E>(self, b: bool) -> Result<RawKind, E> {
        Ok(RawKind::Scalar(b.into()))
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<RawKind, E> {
        Ok(RawKind::Scalar(n.into()))
    }

    fn visit_u64<E: de::Error>(self, n: u64) -> Result<RawKind, E> {
        super::tree::integer(n).map(RawKind::Scalar).map_err(E::custom)
    }

    fn visit_f64<E>(self, x: f64) -> Result<RawKind, E> {
        Ok(RawKind::Scalar(x.into()))
    }

    fn visit_str<E>(self, text: &str) -> Result<RawKind, E> {
        Ok(RawKind::Scalar(text.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<RawKind, A::Error> {
        let mut elements = Vec::new();
        while let Some(element) = list.next_element()? {
            elements.push(element);
        }
        Ok(RawKind::List(elements))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<RawKind, A::Error> {
        let mut entries = Vec::new();
        while let Some(entry) = map.next_entry()? {
            entries.push(entry);
        }
        Ok(RawKind::Node(entries))
    }
}

/// Makes values of what was parsed, with the text at hand.
struct Reader<'t> {
    uri: Option<&'t String>,
    text: &'t str,
}

impl Reader<'_> {
    fn value(&self, raw: Raw, room: usize) -> Result<Value, Fault> {
        let kind = match raw.value {
            RawKind::Scalar(ValueKind::Float(x)) => self.number(x, raw.defined)?,
            RawKind::Scalar(kind) => kind,
            RawKind::List(list) => {
                let room = inner(room)?;
                let values = list.into_iter().map(|raw| self.value(raw, room));
                ValueKind::Array(values.collect::<Result<_, _>>()?)
            }
            RawKind::Node(entries) => {
                let room = inner(room)?;
                let entries = entries.into_iter();
                let values = entries.map(|(key, raw)| Ok((key, self.value(raw, room)?)));
                ValueKind::Table(values.collect::<Result<Table, Fault>>()?)
            }
        };
        Ok(Value::new(self.uri, kind))
    }

    /// What the parser took for the float `x`.
    fn number(&self, x: f64, place: Location) -> Result<ValueKind, Fault> {
        let text = self.written_at(place).unwrap_or_default();
        let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
        let is_integer = !unsigned.is_empty() && unsigned.bytes().all(|b| b.is_ascii_digit());
        let too_large = x.is_infinite() && unsigned.starts_with(|c: char| c.is_ascii_digit());
        if !is_integer && !too_large {
            return Ok(x.into());
        }
        let too_large = || {
            let (line, column) = (place.line(), place.column());
            let said = format!("{text} does not fit in 64 bits at line {line}, column {column}");
            Fault::new(FaultKind::Said(said))
        };
        // `007` is 7, as YAML 1.2 has it.
        let integer = text.parse::<i64>().map(ValueKind::I64);
        integer.or_else(|_| text.parse::<u64>().map(ValueKind::U64)).map_err(|_| too_large())
    }

    fn written_at(&self, place: Location) -> Option<&str> {
        let start = usize::try_from(place.span().byte_offset()?).ok()?;
        let len = usize::try_from(place.span().byte_len()?).ok()?;
        self.text.get(start..start + len).map(str::trim)
    }
}

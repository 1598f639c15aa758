//! From the tree to the caller's types.

use std::fmt;

use config::{Value, ValueKind};
use serde::de::value::{MapAccessDeserializer, MapDeserializer, SeqDeserializer};
use serde::de::{self, DeserializeOwned, Deserializer, IntoDeserializer, Unexpected, Visitor};
use serde::forward_to_deserialize_any;
use serde_path_to_error::Segment;

use super::error::CfgError;
use super::near::near;
use super::segment::join;
use super::tree::Table;

/// Reads the value at `path` as a `T`; an error names the place inside it.
pub(super) fn read<T: DeserializeOwned>(value: &Value, path: &str) -> Result<T, CfgError> {
    serde_path_to_error::deserialize(ValueDe(value)).map_err(|error| {
        let origin = origin_of(value, error.path()).map(str::to_owned);
        let inside = dotted(error.path());
        let gap = if path.is_empty() || inside.is_empty() { "" } else { "." };
        let path = format!("{path}{gap}{inside}");
        CfgError::Type { path, origin, source: error.into_inner().into() }
    })
}

/// What `T` makes of nothing: `None` for an `Option`, else `path` is missing.
pub(super) fn read_absent<T: DeserializeOwned>(root: &Value, path: &str) -> Result<T, CfgError> {
    T::deserialize(Absent)
        .map_err(|_| CfgError::Missing { path: path.to_owned(), near: near(root, path) })
}

fn dotted(path: &serde_path_to_error::Path) -> String {
    path.iter().fold(String::new(), |dotted, segment| match segment {
        Segment::Seq { index } => join(&dotted, &index.to_string()),
        Segment::Map { key } => join(&dotted, key),
        Segment::Enum { variant } => join(&dotted, variant),
        Segment::Unknown => dotted,
    })
}

/// The origin of the value at `path`, or of the last one on the way there.
fn origin_of<'v>(value: &'v Value, path: &serde_path_to_error::Path) -> Option<&'v str> {
    let mut last = value;
    for segment in path {
        let inside = match (&last.kind, segment) {
            (ValueKind::Table(table), Segment::Map { key } | Segment::Enum { variant: key }) => {
                table.get(key)
            }
            (ValueKind::Array(list), Segment::Seq { index }) => list.get(*index),
            _ => None,
        };
        last = inside.unwrap_or(last);
    }
    last.origin()
}

/// Why a value is no `T`, in serde's words.
#[derive(Debug)]
struct Mismatch(String);

impl fmt::Display for Mismatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Mismatch {}

impl de::Error for Mismatch {
    fn custom<T: fmt::Display>(message: T) -> Self {
        Mismatch(message.to_string())
    }
}

/// A value as a serde deserializer. Unlike `config`'s own it never turns a text into a number.
struct ValueDe<'v>(&'v Value);

type TableDe<'v> = MapDeserializer<'v, Entries<'v>, Mismatch>;
type Entries<'v> = std::iter::Map<
    <&'v Table as IntoIterator>::IntoIter,
    fn((&'v String, &'v Value)) -> (KeyDe<'v>, ValueDe<'v>),
>;

fn entries(table: &Table) -> TableDe<'_> {
    MapDeserializer::new(table.into_iter().map(|(key, value)| (KeyDe(key), ValueDe(value))))
}

impl<'de> Deserializer<'de> for ValueDe<'de> {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match &self.0.kind {
            ValueKind::Nil => visitor.visit_unit(),
            ValueKind::Boolean(b) => visitor.visit_bool(*b),
            ValueKind::I64(n) => visitor.visit_i64(*n),
            ValueKind::U64(n) => visitor.visit_u64(*n),
            ValueKind::I128(n) => visitor.visit_i128(*n),
            ValueKind::U128(n) => visitor.visit_u128(*n),
            ValueKind::Float(x) => visitor.visit_f64(*x),
            ValueKind::String(text) => visitor.visit_borrowed_str(text),
            ValueKind::Array(list) => {
                let mut list = SeqDeserializer::new(list.iter().map(ValueDe));
                let made = visitor.visit_seq(&mut list)?;
                list.end().map(|()| made)
            }
            ValueKind::Table(table) => {
                let mut entries = entries(table);
                let made = visitor.visit_map(&mut entries)?;
                entries.end().map(|()| made)
            }
        }
    }

    fn deserialize_f32<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        self.deserialize_f64(visitor)
    }

    fn deserialize_f64<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        // serde reads smaller integers as floats by itself.
        match self.0.kind {
            ValueKind::I128(n) => visitor.visit_f64(n as f64),
            ValueKind::U128(n) => visitor.visit_f64(n as f64),
            _ => self.deserialize_any(visitor),
        }
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        match self.0.kind {
            ValueKind::Nil => visitor.visit_none(),
            _ => visitor.visit_some(self),
        }
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        match &self.0.kind {
            ValueKind::String(name) => visitor.visit_enum(name.as_str().into_deserializer()),
            ValueKind::Table(table) if table.len() == 1 => {
                visitor.visit_enum(MapAccessDeserializer::new(entries(table)))
            }
            _ => self.deserialize_any(visitor),
        }
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 char str string bytes byte_buf unit
        unit_struct seq tuple tuple_struct map struct identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Mismatch> for ValueDe<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// A key. Keys are text; for a `HashMap<u32, _>` they are read as what is asked for.
struct KeyDe<'v>(&'v str);

macro_rules! read_key {
    ($($method:ident => $visit:ident)*) => {$(
        fn $method<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
            match self.0.parse() {
                Ok(read) => visitor.$visit(read),
                Err(_) => visitor.visit_borrowed_str(self.0),
            }
        }
    )*};
}

impl<'de> Deserializer<'de> for KeyDe<'de> {
    type Error = Mismatch;

    read_key! {
        deserialize_bool => visit_bool
        deserialize_i8 => visit_i8
        deserialize_i16 => visit_i16
        deserialize_i32 => visit_i32
        deserialize_i64 => visit_i64
        deserialize_i128 => visit_i128
        deserialize_u8 => visit_u8
        deserialize_u16 => visit_u16
        deserialize_u32 => visit_u32
        deserialize_u64 => visit_u64
        deserialize_u128 => visit_u128
    }

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_borrowed_str(self.0)
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(
        self,
        _name: &'static str,
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _name: &'static str,
        _variants: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Mismatch> {
        visitor.visit_enum(self.0.into_deserializer())
    }

    forward_to_deserialize_any! {
        f32 f64 char str string bytes byte_buf unit unit_struct seq tuple tuple_struct map struct
        identifier ignored_any
    }
}

impl<'de> IntoDeserializer<'de, Mismatch> for KeyDe<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

/// No value. Only an `Option` can be made of it.
struct Absent;

impl<'de> Deserializer<'de> for Absent {
    type Error = Mismatch;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        Err(de::Error::invalid_type(Unexpected::Other("nothing"), &visitor))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Mismatch> {
        visitor.visit_none()
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf unit
        unit_struct newtype_struct seq tuple tuple_struct map struct enum identifier ignored_any
    }
}

//! JSON as a text, with all digits of its numbers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Number, Value};

use crate::plan::lines::BYTE_ORDER_MARK;

/// Reads the value that a text is, if every reader of JSON accepts it.
///
/// # Errors
///
/// It is not JSON, a text in it is not Unicode, a number is not finite as a float, or it has more than 127 levels:
/// recursive readers such as Python's fail on deep values.
pub(crate) fn checked(text: &[u8]) -> serde_json::Result<Box<RawValue>> {
    serde_json::from_slice::<CheckedJson>(text)?;
    serde_json::from_slice(text)
}

/// The number of values in an array, of which each passes [`checked`]. Keeps none of them.
pub(crate) fn checked_count(array: &[u8]) -> serde_json::Result<usize> {
    serde_json::from_slice::<Vec<CheckedJson>>(array).map(|values| values.len())
}

/// The text without the byte order mark that some programs write at its beginning, and that JSON does not have.
pub(crate) fn without_mark(text: &[u8]) -> &[u8] {
    text.strip_prefix(BYTE_ORDER_MARK).unwrap_or(text)
}

/// Reads a value in which every key is data. `serde_json::Value` reads an object with one of its own keys, such as
/// `$serde_json::private::RawValue`, as something else or as an error.
pub(crate) fn value(text: &str) -> serde_json::Result<Value> {
    serde_json::from_str::<PlainValue>(text).map(|PlainValue(value)| value)
}

/// The value without white space between its parts, and with texts as short as they can be written.
///
/// `serde_json::Value` is no way to get there: it rounds whole numbers beyond 64 bits, and gives keys of `serde_json`
/// itself another meaning.
pub(crate) fn compact(value: &RawValue) -> serde_json::Result<Box<RawValue>> {
    let value = checked(value.get().as_bytes())?;
    let mut rest = value.get();
    let mut short = String::with_capacity(rest.len());
    while let Some(at) = rest.find(|c: char| c == '"' || c.is_ascii_whitespace()) {
        short.push_str(&rest[..at]);
        let (_, from) = rest.split_at(at);
        let end = match from.starts_with('"') {
            true => end_of_text(from),
            false => 1,
        };
        if end > 1 {
            let text: String = serde_json::from_str(&from[..end])?;
            short.push_str(&serde_json::to_string(&text)?);
        }
        rest = &from[end..];
    }
    short.push_str(rest);
    RawValue::from_string(short)
}

/// The number of bytes of the text with which valid JSON begins, with its quotes.
fn end_of_text(json: &str) -> usize {
    let mut is_escaped = false;
    let end = json.bytes().skip(1).position(|byte| {
        let is_end = byte == b'"' && !is_escaped;
        is_escaped = byte == b'\\' && !is_escaped;
        is_end
    });
    end.expect("a text in valid JSON ends") + 2
}

/// Checks a value and keeps nothing of it.
struct CheckedJson;

impl<'de> Deserialize<'de> for CheckedJson {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<CheckedJson, D::Error> {
        deserializer.deserialize_any(CheckingVisitor)
    }
}

struct CheckingVisitor;

impl<'de> Visitor<'de> for CheckingVisitor {
    type Value = CheckedJson;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_bool<E>(self, _: bool) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_i64<E>(self, _: i64) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_u64<E>(self, _: u64) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_f64<E>(self, _: f64) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_str<E>(self, _: &str) -> Result<CheckedJson, E> {
        Ok(CheckedJson)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<CheckedJson, A::Error> {
        while let Some(CheckedJson) = values.next_element()? {}
        Ok(CheckedJson)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<CheckedJson, A::Error> {
        while let Some((CheckedJson, CheckedJson)) = entries.next_entry()? {}
        Ok(CheckedJson)
    }
}

/// A value, read without the meaning that `serde_json` gives to keys of its own.
struct PlainValue(Value);

impl<'de> Deserialize<'de> for PlainValue {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<PlainValue, D::Error> {
        deserializer.deserialize_any(PlainVisitor)
    }
}

struct PlainVisitor;

impl<'de> Visitor<'de> for PlainVisitor {
    type Value = PlainValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<PlainValue, E> {
        Ok(PlainValue(Value::Null))
    }

    fn visit_bool<E>(self, value: bool) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<PlainValue, E> {
        Ok(PlainValue(Number::from_f64(value).map_or(Value::Null, Value::Number)))
    }

    fn visit_str<E>(self, value: &str) -> Result<PlainValue, E> {
        Ok(PlainValue(value.into()))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut values: A) -> Result<PlainValue, A::Error> {
        let mut all = Vec::new();
        while let Some(PlainValue(value)) = values.next_element()? {
            all.push(value);
        }
        Ok(PlainValue(Value::Array(all)))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<PlainValue, A::Error> {
        let mut all = Map::new();
        while let Some((key, PlainValue(value))) = entries.next_entry()? {
            all.insert(key, value);
        }
        Ok(PlainValue(Value::Object(all)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        let value = RawValue::from_string(text.to_owned()).unwrap();
        assert_eq!(compact(&value).unwrap().get(), expected);
    }

    #[test]
    fn a_short_value_is_the_same_value() {
        check(r#"{ "a" : [ 1, 2 ],"b c": "d  e" }"#, r#"{"a":[1,2],"b c":"d  e"}"#);
        check(r#""\u00e9\u20ac \" \\" "#, r#""é€ \" \\""#);
        check(r#"["\\", "\\\"]", "\n\u0001"]"#, r#"["\\","\\\"]","\n\u0001"]"#);
        check("[]", "[]");
        check(" null ", "null");
    }

    #[test]
    fn numbers_keep_their_digits() {
        check("[18446744073709551617, -1.50, 1E5]", "[18446744073709551617,-1.50,1E5]");
    }

    #[test]
    fn no_key_has_a_meaning_of_its_own() {
        let keys = r#"{"$serde_json::private::RawValue":"[1,","$serde_json::private::Number":"x"}"#;
        check(keys, keys);
        for key in ["RawValue", "Number"] {
            for inner in ["\"[1,\"", "1", "{\"a\":[null,-2,0.5,true]}"] {
                let text = format!("{{\"$serde_json::private::{key}\":{inner}}}");
                assert_eq!(value(&text).unwrap().to_string(), text);
            }
        }
    }

    #[test]
    fn what_some_readers_refuse_is_an_error() {
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        for text in ["1e999", r#"["\ud800"]"#, &deep] {
            assert!(checked(text.as_bytes()).is_err(), "{text}");
        }
    }
}

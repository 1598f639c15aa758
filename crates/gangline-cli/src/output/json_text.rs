//! JSON as a text, with all digits of its numbers.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

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
    }

    #[test]
    fn what_some_readers_refuse_is_an_error() {
        let deep = "[".repeat(1_000) + &"]".repeat(1_000);
        for text in ["1e999", r#"["\ud800"]"#, &deep] {
            assert!(checked(text.as_bytes()).is_err(), "{text}");
        }
    }
}

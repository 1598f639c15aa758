//! The values in the body of a request.

use axum::http::StatusCode;
use data_encoding::BASE64;
use serde_json::value::{RawValue, to_raw_value};

use crate::output::json_text::{checked, checked_count, without_mark};
use crate::serve::form::BodyForm;
use crate::serve::multipart::{OnlyPart, only_part};
use crate::serve::refusal::Refusal;

/// The values of one request.
#[derive(Debug)]
pub(crate) enum AskedValues {
    One(Box<RawValue>),
    /// The values of an array. Their answers are an array too.
    Several(Vec<Box<RawValue>>),
}

impl AskedValues {
    /// Reads a body of that form, with at most `most` values.
    pub(crate) fn read(body: &[u8], form: &BodyForm, most: usize) -> Result<AskedValues, Refusal> {
        match form {
            BodyForm::Json => AskedValues::of_json(body, most),
            BodyForm::Bytes(name) => Ok(AskedValues::of_bytes(body, name.as_deref())),
            BodyForm::Multipart(boundary) => {
                let OnlyPart { bytes, name } = only_part(body, boundary)?;
                Ok(AskedValues::of_bytes(bytes, name.as_deref()))
            }
        }
    }

    /// Reads JSON: an array of at most `most` values, or one value that is no array.
    fn of_json(body: &[u8], most: usize) -> Result<AskedValues, Refusal> {
        let body = without_mark(body);
        let refused = |error: serde_json::Error| Refusal::of_json(&error);
        let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
        if first != Some(&b'[') {
            return checked(body).map(AskedValues::One).map_err(refused);
        }
        // Counts the values before any of them takes memory.
        let count = checked_count(body).map_err(refused)?;
        if count > most {
            let text = format!(
                "the array has {count} values, and the server never accepts more than {most} (--queue)"
            );
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, text));
        }
        serde_json::from_slice(body).map(AskedValues::Several).map_err(refused)
    }

    /// Makes one value of bytes: `{"base64":"..","type":"image/png"}`.
    fn of_bytes(body: &[u8], name: Option<&str>) -> AskedValues {
        let named = name.map(|name| ("type".to_owned(), name.into()));
        let text = ("base64".to_owned(), BASE64.encode(body).into());
        let value = serde_json::Map::from_iter([text].into_iter().chain(named));
        AskedValues::One(to_raw_value(&value).expect("texts are JSON"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(body: &str, most: usize) -> Vec<String> {
        match AskedValues::of_json(body.as_bytes(), most).unwrap() {
            AskedValues::One(value) => vec![value.get().to_owned()],
            AskedValues::Several(values) => values.iter().map(|it| it.get().to_owned()).collect(),
        }
    }

    #[track_caller]
    fn check_refused(body: impl AsRef<[u8]>, expected: &str) {
        let refusal = AskedValues::of_json(body.as_ref(), 9).unwrap_err();
        assert!(serde_json::to_string(&refusal).unwrap().contains(expected), "{refusal:?}");
    }

    #[test]
    fn values_stay_as_they_are() {
        assert_eq!(texts(" 12345678901234567890123 ", 1), ["12345678901234567890123"]);
        assert_eq!(
            texts("[1, {\"b\": 1, \"a\":[2]} ,\"x\"]", 3),
            ["1", "{\"b\": 1, \"a\":[2]}", "\"x\""]
        );
        assert_eq!(texts("[[1, 2]]", 1), ["[1, 2]"]);
        assert!(texts("[]", 1).is_empty());
    }

    #[test]
    fn a_mistake_has_its_place() {
        check_refused("{\"a\":\n  1,}", "\"line\":2,\"column\":5");
        check_refused("", "\"line\":1,\"column\":0");
        check_refused(b"\"\xff\"", "\"line\":1,\"column\":2");
        check_refused("[1,\n2", "\"line\":2,\"column\":1");
        check_refused("1 2", "trailing characters");
        check_refused("\"\\ud800\"", "\"line\":1");
        check_refused("[1e999]", "out of range");
        check_refused("[".repeat(1_000) + &"]".repeat(1_000), "recursion limit");
        check_refused("NaN", "\"line\":1,\"column\":1");
    }

    #[test]
    fn an_array_that_never_fits_is_refused() {
        assert_eq!(texts("[1,2]", 2).len(), 2);
        assert_eq!(AskedValues::of_json(b"[1,2,3]", 2).unwrap_err().status, 413);
    }

    #[test]
    fn bytes_are_an_object() {
        let text = |form| match AskedValues::read(b"\x00\xff", &form, 1).unwrap() {
            AskedValues::One(value) => value.get().to_owned(),
            AskedValues::Several(_) => panic!("they are one value"),
        };
        assert_eq!(text(BodyForm::Bytes(None)), "{\"base64\":\"AP8=\"}");
        let image = BodyForm::Bytes(Some("image/png".to_owned()));
        assert_eq!(text(image), "{\"base64\":\"AP8=\",\"type\":\"image/png\"}");
    }

    #[test]
    fn a_byte_order_mark_is_no_part_of_the_text() {
        for (body, values) in
            [("1", &["1"][..]), (" [1,2]", &["1", "2"]), ("\"\u{feff}\"", &["\"\u{feff}\""])]
        {
            assert_eq!(texts(&format!("\u{feff}{body}"), 2), values);
        }
        check_refused("1\u{feff}", "trailing characters");
        check_refused("\u{feff}\u{feff}1", "expected value");
    }
}

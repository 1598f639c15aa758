//! Requests of any bytes: for the fuzzer, and for tests that make bytes up.

use axum::http::header::{CONTENT_TYPE, HOST, ORIGIN};
use axum::http::{HeaderMap, HeaderValue};
use data_encoding::BASE64;

use crate::output::json_text::{checked, value};
use crate::serve::form::{BodyForm, form};
use crate::serve::host::NamedHost;
use crate::serve::multipart::only_part;
use crate::serve::refusal::{Refusal, with_body};
use crate::serve::spoken_version::SpokenVersion;
use crate::serve::values::AskedValues;

/// The largest number of values.
const MOST: usize = 4;

/// Reads any bytes as the body of a request in each form, and as the headers that choose the form. Checks that what is made
/// of them holds together.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    check_json(bytes);
    check_bytes(bytes);
    check_part(bytes);
    check_headers(bytes);
    if let Some(answer) = with_body(bytes) {
        assert!(answer.starts_with(b"HTTP/1.1 4") && answer.ends_with(b"}"), "it has a body");
    }
    check_line(bytes);
}

/// In whatever pieces the first line comes, its version is the same.
fn check_line(bytes: &[u8]) {
    let (mut whole, mut pieces) = (SpokenVersion::default(), SpokenVersion::default());
    whole.read(bytes);
    bytes.chunks(3).for_each(|piece| pieces.read(piece));
    assert_eq!(whole.is_of_other_version(), pieces.is_of_other_version());
}

fn check_json(body: &[u8]) {
    match AskedValues::read(body, &BodyForm::Json, MOST) {
        Ok(AskedValues::One(found)) => assert!(checked(found.get().as_bytes()).is_ok()),
        Ok(AskedValues::Several(found)) => {
            assert!(found.len() <= MOST, "more never fit");
            let texts: Vec<_> = found.iter().map(|it| it.get()).collect();
            let again = AskedValues::read(
                format!("[{}]", texts.join(",")).as_bytes(),
                &BodyForm::Json,
                MOST,
            );
            let Ok(AskedValues::Several(again)) = again else { panic!("{again:?}") };
            assert!(
                again.iter().map(|it| it.get()).eq(texts),
                "an array of the values is the array"
            );
        }
        Err(refusal) => check_refusal(&refusal, &[400, 413]),
    }
}

/// The bytes of a value, and their type.
fn content(values: AskedValues) -> (Vec<u8>, Option<String>) {
    let AskedValues::One(found) = values else { panic!("bytes are one value") };
    let found = value(found.get()).expect("it is JSON");
    let bytes = found["base64"].as_str().and_then(|text| BASE64.decode(text.as_bytes()).ok());
    (bytes.expect("they are base64"), found["type"].as_str().map(str::to_owned))
}

fn check_bytes(body: &[u8]) {
    for name in [None, Some("image/png".to_owned())] {
        let read = AskedValues::read(body, &BodyForm::Bytes(name.clone()), MOST);
        assert_eq!(content(read.expect("any bytes are bytes")), (body.to_vec(), name));
    }
}

fn check_part(body: &[u8]) {
    // The bytes as a body, and as a file in one.
    match only_part(body, "x") {
        Ok(part) => assert!(
            body.windows(part.bytes.len().max(1)).any(|it| it == part.bytes)
                || part.bytes.is_empty()
        ),
        Err(refusal) => check_refusal(&refusal, &[400]),
    }
    let form = [
        b"--x\r\ncontent-disposition: form-data; filename=a\r\ncontent-type: image/png\r\n\r\n",
        body,
        b"\r\n--x--\r\n",
    ]
    .concat();
    if !body.windows(3).any(|it| it == b"--x") {
        let read = AskedValues::read(&form, &BodyForm::Multipart("x".to_owned()), MOST);
        let (found, name) = content(read.expect("it is a form"));
        assert_eq!((&*found, name.as_deref()), (body, Some("image/png")));
    }
}

fn check_headers(bytes: &[u8]) {
    let Ok(header) = HeaderValue::from_bytes(bytes) else { return };
    let host = header.to_str().ok().and_then(NamedHost::read);
    assert!(
        host.is_none() || !bytes.iter().any(|byte| b" /@[\\?#".contains(byte) && bytes[0] != b'[')
    );
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, header.clone()),
        (HOST, HeaderValue::from_static("a")),
    ]);
    match form(&headers) {
        Ok(BodyForm::Multipart(boundary)) => assert!((1..=70).contains(&boundary.len())),
        Ok(_) => {}
        Err(refusal) => check_refusal(&refusal, &[400, 415]),
    }
    let headers = HeaderMap::from_iter([
        (CONTENT_TYPE, HeaderValue::from_static("text/plain")),
        (HOST, HeaderValue::from_static("a")),
        (ORIGIN, header),
    ]);
    let is_same = String::from_utf8_lossy(bytes).to_ascii_lowercase().ends_with("://a");
    assert!(is_same || form(&headers).is_err(), "another site");
}

fn check_refusal(refusal: &Refusal, statuses: &[u16]) {
    assert!(statuses.contains(&refusal.status.as_u16()), "{refusal:?}");
    assert!(!refusal.text.is_empty(), "it says why");
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_values_or_a_refusal(bytes in vec(any::<u8>(), 0..60)) {
            read_any_bytes(&bytes);
        }

        /// Made of what requests are made of.
        #[test]
        fn requests_that_were_made_up_hold_together(
            parts in vec(prop::sample::select(vec![
                "[", "]", "{", "}", ",", ":", "1", "1e999", "\"a\"", "\"\\ud800\"", "\u{feff}", " ", "\r\n", "--x", "--",
                "\r\n--x", "content-type: a/b", "Content-Transfer-Encoding: base64", "image/png", "; boundary=", "\"",
                "multipart/form-data", "application/json", "http://", "a", "[::1]", "localhost", "HTTP/1.1 4", "00",
                "content-length: 0\r\n",
            ]), 0..12),
        ) {
            read_any_bytes(parts.concat().as_bytes());
        }
    }
}

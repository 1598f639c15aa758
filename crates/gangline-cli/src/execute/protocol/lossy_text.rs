//! The text of a worker that is not quite Unicode, or not quite JSON.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use regex::{Captures, Regex};
use serde::Deserializer as _;
use serde::de::Visitor;
use serde_json::value::RawValue;

/// The text that a JSON value is. Halves of surrogate pairs are replaced.
pub(super) fn lossy_text(value: &RawValue) -> serde_json::Result<String> {
    struct TextVisitor;

    impl Visitor<'_> for TextVisitor {
        type Value = String;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a text")
        }

        fn visit_bytes<E>(self, bytes: &[u8]) -> Result<String, E> {
            let mut text = String::with_capacity(bytes.len());
            for chunk in bytes.utf8_chunks() {
                text.push_str(chunk.valid());
                // Half of a pair has three bytes, each of which is a chunk.
                if chunk.invalid().first().is_some_and(|first| *first >= 0xc0) {
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
            Ok(text)
        }
    }

    // The value is read as bytes, since a text must not have halves of pairs.
    serde_json::Deserializer::from_str(value.get()).deserialize_bytes(TextVisitor)
}

/// Replaces `NaN`, `-Infinity` and the like, which are not JSON, by `null`. Returns the first of these words, and
/// the new text.
pub(super) fn replace_non_finite(text: &str) -> (Option<String>, Cow<'_, str>) {
    static WORDS: LazyLock<Regex> = LazyLock::new(|| {
        Regex::new(r#""(?:[^"\\]|\\.)*"|([-+]?\b(?i:nan|inf(?:inity)?)\b)"#)
            .expect("the pattern is valid")
    });
    let mut first = None;
    let rest = WORDS.replace_all(text, |found: &Captures<'_>| match found.get(1) {
        Some(word) => {
            first.get_or_insert_with(|| word.as_str().to_owned());
            "null".to_owned()
        }
        None => found[0].to_owned(),
    });
    (first, rest)
}

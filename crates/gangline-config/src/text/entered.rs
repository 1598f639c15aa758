//! Values as they are entered on a command line or in a variable.
//!
//! They are read as YAML. A text that YAML would cut, such as a password with a `#`, is kept whole.

use config::Value;
use serde_saphyr::granit_parser::{Event, Parser, ScalarStyle, Span, Tag};

use super::yaml::{self, Malformed};
use crate::error::MAX_DEPTH;
use crate::scalar;

/// Characters between the values of YAML.
const STRUCTURE: [char; 8] = [',', '[', ']', '{', '}', ':', '-', '?'];

/// Characters of the header of a block scalar, such as `|-` or `>2`.
const BLOCK: &[char] = &['|', '>', '+', '-', '1', '2', '3', '4', '5', '6', '7', '8', '9'];

/// Reads an entered value. If YAML would drop a part of it, the whole of it is a text.
pub(super) fn read(origin: &String, text: &str) -> Result<Value, Malformed> {
    match is_cut(text) {
        true => Ok(Value::new(Some(origin), text)),
        false => yaml::parse(Some(origin), text),
    }
}

/// Whether YAML would drop a part of `text`: a comment, an anchor, an alias, a tag, a document marker, a line break.
/// Malformed text is refused later and not kept, unless only its first character makes it malformed.
fn is_cut(text: &str) -> bool {
    let shown = text.trim();
    // Reserved indicators, aliases, and indicators without a value.
    if shown.starts_with(['*', '@', '`', '%']) || matches!(shown, "-" | "?" | ":" | "|" | ">" | "&")
    {
        return true;
    }
    let has_aliases = text.contains('*');
    let mut walk = EventWalk { text, at: 0, depth: 0, has_aliases, is_over: false };
    let mut is_cut = false;
    for event in Parser::new_from_str(text) {
        let Ok((event, span)) = event else { return false };
        is_cut |= walk.cuts(&event, &span);
        if walk.depth > MAX_DEPTH {
            return false;
        }
    }
    is_cut || walk.cuts_gap(text.len())
}

/// A walk through the parser's events, which finds what they drop.
struct EventWalk<'t> {
    text: &'t str,
    /// The end of the last event, in bytes.
    at: usize,
    /// The number of lists and nodes around.
    depth: usize,
    has_aliases: bool,
    /// Whether the document has ended.
    is_over: bool,
}

impl EventWalk<'_> {
    fn cuts(&mut self, event: &Event<'_>, span: &Span) -> bool {
        if self.cuts_event(event, span) {
            return true;
        }
        let is_value = matches!(
            event,
            Event::Scalar(..)
                | Event::Alias(..)
                | Event::SequenceStart(..)
                | Event::SequenceEnd
                | Event::MappingStart(..)
                | Event::MappingEnd
        );
        let Some(range) = span.byte_range().filter(|_| is_value) else { return false };
        let cuts = self.cuts_gap(range.start);
        self.at = self.at.max(range.end);
        cuts
    }

    /// Whether something is dropped between the last value and `start`.
    fn cuts_gap(&self, start: usize) -> bool {
        let gap = self.text.get(self.at..start).unwrap_or_default();
        gap.split_whitespace().any(|word| {
            let word = word.trim_start_matches(STRUCTURE);
            // Unsupported tags are refused with the value that has them.
            let is_kept = word.starts_with('!')
                || (word.starts_with('&') && self.has_aliases)
                || word.trim_end_matches(BLOCK).is_empty();
            !is_kept
        })
    }

    fn cuts_event(&mut self, event: &Event<'_>, span: &Span) -> bool {
        let is_top = self.depth == 0;
        match event {
            Event::DocumentStart(is_explicit, _) => *is_explicit || self.is_over,
            Event::DocumentEnd => {
                self.is_over = true;
                !span.is_empty()
            }
            Event::Scalar(value, style, anchor, tag) => {
                let tag = tag.as_deref();
                is_top && (*anchor != 0 || has_other_tag(tag))
                    || self.cuts_scalar(value, *style, tag, span)
            }
            Event::SequenceStart(_, anchor, tag) | Event::MappingStart(_, anchor, tag) => {
                self.depth += 1;
                is_top && (*anchor != 0 || has_other_tag(tag.as_deref()))
            }
            Event::SequenceEnd | Event::MappingEnd => {
                self.depth -= 1;
                false
            }
            _ => false,
        }
    }

    fn cuts_scalar(&self, value: &str, style: ScalarStyle, tag: Option<&Tag>, span: &Span) -> bool {
        match style {
            ScalarStyle::Plain => {
                let is_text = || matches!(scalar::resolve(value), Ok(config::ValueKind::String(_)));
                let is_whole = match self.depth {
                    // White space around a number may be dropped.
                    0 if tag.is_none() && is_text() => value == self.text,
                    _ => span.slice(self.text) == Some(value),
                };
                !is_whole
            }
            ScalarStyle::Literal | ScalarStyle::Folded => value.is_empty(),
            ScalarStyle::SingleQuoted | ScalarStyle::DoubleQuoted => false,
        }
    }
}

/// Whether the tag is not one of the core schema, and so a part of a text.
fn has_other_tag(tag: Option<&Tag>) -> bool {
    tag.is_some_and(|tag| !tag.is_yaml_core_schema())
}

#[cfg(test)]
mod tests {
    use config::ValueKind;

    use super::*;

    #[track_caller]
    fn is_kept(texts: &[&str]) {
        for text in texts {
            let read = read(&"here".to_owned(), text);
            let read = read.unwrap_or_else(|error| panic!("{text:?}: {error}")).kind;
            assert_eq!(read, ValueKind::from(*text), "{text:?}");
        }
    }

    #[test]
    fn a_text_is_not_cut_at_a_comment() {
        is_kept(&[
            "abc #def",
            "#ff0000",
            "a: b # c",
            "# abc",
            "[1, 2] # x",
            "'a' # b",
            "1 # one",
            "abc\t#d",
            "#",
        ]);
        is_kept(&["{a: 1} #", "a #b: c", "- 1 # x", "p@ss #1"]);
    }

    #[test]
    fn anchors_aliases_and_tags_are_texts() {
        is_kept(&[
            "&x",
            "*x",
            "&x abc",
            "!tag v",
            "!",
            "! abc",
            "!!binary aGk=",
            "*",
            "*.rs",
            "&",
            "&x [1]",
            "!a [1]",
        ]);
        is_kept(&["[&x 1]", "!secret", "!!python/object:x y"]);
    }

    #[test]
    fn markers_and_line_breaks_are_texts() {
        is_kept(&[
            "---",
            "--- abc",
            "abc\n---",
            "...",
            "abc\n...",
            "abc\n---\ndef",
            "%TAG",
            "%",
            "@a",
            "`a`",
        ]);
        is_kept(&[
            "abc\ndef",
            "abc\n\ndef",
            " abc",
            "abc ",
            "abc\n",
            "\u{feff}abc",
            "-",
            "?",
            ":",
            "|",
            ">",
            "|-",
        ]);
        is_kept(&[
            "-----BEGIN KEY-----\nMIIE/+x=\n-----END KEY-----\n",
            "abc ---",
            "a#b",
            "x: y\n---",
        ]);
    }

    #[test]
    fn what_yaml_holds_whole_is_read() {
        for (text, expected) in [
            (" 3 ", "3"),
            ("\"abc #def\"", "'abc #def'"),
            ("'#ff0000'", "'#ff0000'"),
            ("[a, 'b #c', \"d\"]", "[a, 'b #c', d]"),
            ("{a: &x 1, b: *x}", "{a: 1, b: 1}"),
            ("a: b", "{a: b}"),
            ("a:\n- 1\n- b: c\n", "{a: [1, {b: c}]}"),
            ("!!str 007", "'007'"),
            ("[!!str 1,!!int 2]", "['1', 2]"),
            ("|\n  a\n  b\n", "\"a\\nb\\n\""),
            ("", "null"),
            (" ", "null"),
            ("~", "null"),
            ("-1", "-1"),
            ("- a", "[a]"),
            ("''", "''"),
        ] {
            let origin = "here".to_owned();
            let read = read(&origin, text).unwrap_or_else(|error| panic!("{text:?}: {error}"));
            assert_eq!(read.kind, yaml::parse(Some(&origin), expected).unwrap().kind, "{text:?}");
        }
        for text in ["[1", "{a: 1", "'a", "[!tag 1]", "a: b: c", "[*x]"] {
            assert!(read(&"here".to_owned(), text).is_err(), "{text:?}");
        }
    }
}

//! What GNU parallel computes from an input with `--plus`, after the model of the shell: `{%.gz}`, `{:2}`.

use std::borrow::Cow;
use std::str;
use std::sync::Arc;

use regex::bytes::{Captures, NoExpand, Regex};
use serde::{Deserialize, Serialize};

/// A change of an input.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(try_from = "Vec<u8>", into = "Vec<u8>")]
pub(crate) struct Edit {
    /// The operator as it is written inside the braces.
    operator: Vec<u8>,
    kind: EditKind,
}

#[derive(Debug, Clone)]
enum EditKind {
    /// `:-text`: the text instead of an empty input.
    Default(Vec<u8>),
    /// `:2` and `:2:3`: from that character on, and at most that many.
    Slice(usize, usize),
    /// `#a`, `%%b`, `/a/b`: the text instead of what the expression matches.
    Replace { regex: Arc<Regex>, text: Vec<u8>, matches: Matches },
    /// `%.gz`: what the first group matches, which is all before the shortest end.
    Keep(Arc<Regex>),
    /// `^a`, `,a`: what the expression matches, in other letters.
    Case { regex: Arc<Regex>, case: Case, matches: Matches },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Matches {
    First,
    Every,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Case {
    Upper,
    Lower,
}

/// As it is written.
impl From<Edit> for Vec<u8> {
    fn from(edit: Edit) -> Vec<u8> {
        edit.operator
    }
}

impl TryFrom<Vec<u8>> for Edit {
    type Error = &'static str;

    fn try_from(operator: Vec<u8>) -> Result<Edit, &'static str> {
        Edit::parse(&operator).ok_or("no operator")
    }
}

impl Edit {
    /// Whether an operator is written as one of these.
    pub(crate) fn is_one(operator: &[u8]) -> bool {
        match operator {
            [b':', b'-', text @ ..] => !text.is_empty(),
            [b':', rest @ ..] => {
                rest.first().is_some_and(u8::is_ascii_digit)
                    && rest.iter().all(|byte| byte.is_ascii_digit() || *byte == b':')
            }
            [b'#', b'#', rest @ ..] => !rest.is_empty(),
            [b'#' | b'%' | b'^' | b',', rest @ ..] => !rest.is_empty(),
            [b'/', rest @ ..] => rest.iter().skip(1).any(|byte| *byte == b'/'),
            _ => false,
        }
    }

    /// `None` if it is not written as one, or has an expression that is none.
    pub(crate) fn parse(operator: &[u8]) -> Option<Edit> {
        let kind =
            EditKind::parse(str::from_utf8(operator).ok().filter(|_| Edit::is_one(operator))?)?;
        Some(Edit { operator: operator.to_vec(), kind })
    }

    pub(crate) fn of<'a>(&self, input: &'a [u8]) -> Cow<'a, [u8]> {
        match &self.kind {
            EditKind::Default(text) => match input {
                b"" => text.clone().into(),
                input => input.into(),
            },
            EditKind::Slice(begin, length) => slice(input, *begin, *length).into(),
            EditKind::Replace { regex, text, matches: Matches::First } => {
                regex.replace(input, NoExpand(text))
            }
            EditKind::Replace { regex, text, matches: Matches::Every } => {
                regex.replace_all(input, NoExpand(text))
            }
            EditKind::Keep(regex) => match regex.captures(input).and_then(|found| found.get(1)) {
                Some(begin) => input[begin.range()].into(),
                None => input.into(),
            },
            EditKind::Case { regex, case, matches } => {
                let limit = if *matches == Matches::First { 1 } else { 0 };
                regex.replacen(input, limit, |found: &Captures<'_>| in_case(&found[0], *case))
            }
        }
    }
}

impl EditKind {
    fn parse(operator: &str) -> Option<EditKind> {
        let (first, rest) = operator.split_at(1);
        let (is_doubled, rest) = match rest.strip_prefix(first) {
            Some(rest) if first != ":" => (true, rest),
            _ => (false, rest),
        };
        let matches = if is_doubled { Matches::Every } else { Matches::First };
        let remove =
            |regex| Some(EditKind::Replace { regex, text: Vec::new(), matches: Matches::First });
        match first {
            ":" => EditKind::parse_slice(rest),
            // The shortest beginning, and the longest.
            "#" if is_doubled => remove(new(&format!("^(?:{rest})"))?),
            "#" => remove(new(&format!("^(?U:{rest})"))?),
            // The longest end is the first that is found.
            "%" if is_doubled => remove(new(&format!("(?:{rest})$"))?),
            "%" => Some(EditKind::Keep(new(&format!("^((?s-u:.*))(?U:{rest})$"))?)),
            "/" => {
                let (regex, text) = rest.split_once('/')?;
                let regex = match (is_doubled, regex.split_at_checked(1)) {
                    (false, Some(("#", regex))) => format!("^(?:{regex})"),
                    (false, Some(("%", regex))) => format!("(?:{regex})$"),
                    _ => regex.to_owned(),
                };
                Some(EditKind::Replace { regex: new(&regex)?, text: text.into(), matches })
            }
            "^" | "," => {
                let case = if first == "^" { Case::Upper } else { Case::Lower };
                let regex = match matches {
                    Matches::First => format!("^(?:{rest})"),
                    Matches::Every => rest.to_owned(),
                };
                Some(EditKind::Case { regex: new(&regex)?, case, matches })
            }
            _ => None,
        }
    }

    fn parse_slice(text: &str) -> Option<EditKind> {
        if let Some(default) = text.strip_prefix('-') {
            return Some(EditKind::Default(default.into()));
        }
        match text.split_once(':') {
            Some((begin, length)) => {
                Some(EditKind::Slice(begin.parse().ok()?, length.parse().ok()?))
            }
            None => Some(EditKind::Slice(text.parse().ok()?, usize::MAX)),
        }
    }
}

fn new(regex: &str) -> Option<Arc<Regex>> {
    Regex::new(regex).ok().map(Arc::new)
}

/// In characters, or in bytes if the input is not UTF-8.
fn slice(input: &[u8], begin: usize, length: usize) -> &[u8] {
    let Ok(text) = str::from_utf8(input) else {
        let rest = input.get(begin..).unwrap_or_default();
        return &rest[..length.min(rest.len())];
    };
    let after = |count| text.char_indices().nth(count).map_or(text.len(), |(at, _)| at);
    &input[after(begin)..after(begin.saturating_add(length))]
}

fn in_case(text: &[u8], case: Case) -> Vec<u8> {
    match (str::from_utf8(text), case) {
        (Ok(text), Case::Upper) => text.to_uppercase().into(),
        (Ok(text), Case::Lower) => text.to_lowercase().into(),
        (Err(_), Case::Upper) => text.to_ascii_uppercase(),
        (Err(_), Case::Lower) => text.to_ascii_lowercase(),
    }
}

impl PartialEq for Edit {
    fn eq(&self, other: &Edit) -> bool {
        self.operator == other.operator
    }
}

impl Eq for Edit {}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(operator: &str, input: &str, expected: &str) {
        let edit = Edit::parse(operator.as_bytes()).unwrap();
        assert_eq!(&*edit.of(input.as_bytes()), expected.as_bytes(), "{{{operator}}} of {input}");
    }

    #[test]
    fn inputs_are_cut() {
        check(":2", "abcdef", "cdef");
        check(":2:3", "abcdef", "cde");
        check(":9", "abc", "");
        check(":1:1", "äöü", "ö");
        check(":-none", "", "none");
        check(":-none", "a", "a");
    }

    #[test]
    fn beginnings_and_ends_are_removed() {
        check("#ab", "abc", "c");
        check("#bc", "abc", "abc");
        check("#z.*z.", "z.z.z.foo", "z.foo");
        check("##z.*z.", "z.z.z.foo", "foo");
        check("%.gz", "a.gz", "a");
        check("%.gz", "a.gz.x", "a.gz.x");
        check("%.z.*z", "foo.z.z.z", "foo.z");
        check("%%.z.*z", "foo.z.z.z", "foo");
        check("%a|b", "xb", "x");
    }

    #[test]
    fn texts_are_replaced() {
        check("/a/x", "aba", "xba");
        check("//a/x", "aba", "xbx");
        check("/#a/x", "ba", "ba");
        check("/%a/$1", "aba", "ab$1");
        check("/a/", "ab", "b");
    }

    #[test]
    fn letters_are_changed() {
        check("^a", "aba", "Aba");
        check("^b", "aba", "aba");
        check("^^a", "aba", "AbA");
        check("^^.", "aß", "ASS");
        check(",A", "ABA", "aBA");
        check(",,.", "AB", "ab");
    }

    #[test]
    fn other_texts_are_none() {
        for operator in ["", ":", ":x", "#", "/a", "^", ",", "=", "%(", "a"] {
            assert!(Edit::parse(operator.as_bytes()).is_none(), "{operator}");
        }
    }
}

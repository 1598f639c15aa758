//! The segments of a path, and how keys with dots are written in one.

use std::borrow::Cow;

/// Splits a path at its dots. A segment in quotes may have dots, and `\"` and `\\` for a quote and a backslash.
///
/// ```
/// use gangline_config::segment::segments;
///
/// assert_eq!(segments(r#"model."a.pt".size"#), ["model", "a.pt", "size"]);
/// ```
pub fn segments(path: &str) -> Vec<Cow<'_, str>> {
    let mut segments = Vec::new();
    let mut rest = Some(path);
    while let Some(path) = rest {
        let (segment, behind) = first(path, &['.']);
        segments.push(segment);
        rest = behind.strip_prefix('.');
    }
    segments
}

/// Returns a path with one more segment, which is put in quotes if it needs them.
///
/// ```
/// use gangline_config::segment::join;
///
/// assert_eq!(join("model", "size"), "model.size");
/// assert_eq!(join("model", "a.pt"), r#"model."a.pt""#);
/// ```
pub fn join(path: &str, key: &str) -> String {
    let segment = segment(key);
    if path.is_empty() { segment.into_owned() } else { format!("{path}.{segment}") }
}

/// The first segment of a path, which goes to one of `ends`, and what is behind it. Quotes that are not around a
/// whole segment are ordinary characters.
pub(super) fn first<'p>(path: &'p str, ends: &[char]) -> (Cow<'p, str>, &'p str) {
    if let Some((key, behind)) = path.strip_prefix('"').and_then(unquote)
        && (behind.is_empty() || behind.starts_with(ends))
    {
        return (key.into(), behind);
    }
    let (segment, behind) = path.split_at(path.find(ends).unwrap_or(path.len()));
    (segment.into(), behind)
}

/// Reads up to the closing quote. Returns the key, and what is behind the quote.
fn unquote(quoted: &str) -> Option<(String, &str)> {
    let mut key = String::new();
    let mut chars = quoted.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Some((key, &quoted[at + 1..])),
            '\\' if quoted[at + 1..].starts_with(['"', '\\']) => {
                key.extend(chars.next().map(|(_, escaped)| escaped));
            }
            c => key.push(c),
        }
    }
    None
}

fn segment(key: &str) -> Cow<'_, str> {
    if !key.contains('.') && !key.starts_with('"') {
        return key.into();
    }
    format!("\"{}\"", key.replace('\\', "\\\\").replace('"', "\\\"")).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_is_found_again_in_its_path() {
        let keys = [
            "a", "a.b", ".", "..", "a.", ".a", "\"", "a\"b.c", "a\\.b", "\\", "\\\".\"", "1.6",
            "é.ü", "a\\",
        ];
        for one in keys {
            for other in keys {
                let path = join(&join("", one), other);
                assert_eq!(segments(&path), [one, other], "{path}");
            }
        }
    }

    #[test]
    fn other_quotes_are_ordinary_characters() {
        assert_eq!(segments("\"a.b"), ["\"a", "b"]);
        assert_eq!(segments("a\"b.c\""), ["a\"b", "c\""]);
        assert_eq!(segments("\"a\"b.c"), ["\"a\"b", "c"]);
        assert_eq!(segments("keys.\""), ["keys", "\""]);
        assert_eq!(segments("a..b"), ["a", "", "b"]);
        assert_eq!(segments(""), [""]);
    }
}

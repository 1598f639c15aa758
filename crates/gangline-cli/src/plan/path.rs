//! Components of an input that is a path, as bytes.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::plan::edit::Edit;

/// The part of an input that a mark stands for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum PathForm {
    Whole,
    /// `.`, `..`, `...`: without the last one, two or three extensions.
    WithoutExtensions(usize),
    /// `/`: the last component.
    Base,
    /// `//`: the path before that component.
    Directory,
    /// `/.`, `/..`, `/...`: the last component without extensions.
    Stem(usize),
    /// `+/`: the path before that component, or nothing.
    Before,
    /// `+.`, `+..`, `+...`: the last one, two or three extensions, or nothing.
    Extensions(usize),
    /// Computed, which is for any text.
    Edited(Edit),
}

impl PathForm {
    /// The form that GNU parallel writes this way inside the braces of a mark.
    pub(crate) fn parse(operator: &[u8]) -> Option<PathForm> {
        let dots = |dots: &[u8]| {
            let is_count = (1..=3).contains(&dots.len()) && dots.iter().all(|dot| *dot == b'.');
            is_count.then_some(dots.len())
        };
        match operator {
            b"" => Some(PathForm::Whole),
            b"/" => Some(PathForm::Base),
            b"//" => Some(PathForm::Directory),
            b"+/" => Some(PathForm::Before),
            [b'+', rest @ ..] => dots(rest).map(PathForm::Extensions),
            [b'/', rest @ ..] => dots(rest).map(PathForm::Stem),
            rest => dots(rest).map(PathForm::WithoutExtensions),
        }
    }

    pub(crate) fn of<'a>(&self, path: &'a [u8]) -> Cow<'a, [u8]> {
        Cow::Borrowed(match self {
            PathForm::Whole => path,
            PathForm::WithoutExtensions(count) => without_extensions(path, *count),
            PathForm::Base => base(path),
            PathForm::Directory => directory(path),
            PathForm::Stem(count) => without_extensions(base(path), *count),
            PathForm::Before => before(path),
            PathForm::Extensions(count) => extensions(path, *count),
            PathForm::Edited(edit) => return edit.of(path),
        })
    }
}

/// The part after the last slash; trailing slashes are ignored.
fn base(path: &[u8]) -> &[u8] {
    let path = without_slashes(path);
    match last_slash(path) {
        Some(slash) if path.len() > 1 => &path[slash + 1..],
        _ => path,
    }
}

/// The part before the last slash: `.` if there is none, and `/` if it is empty.
fn directory(path: &[u8]) -> &[u8] {
    let path = without_slashes(path);
    match last_slash(path) {
        None => b".",
        Some(slash) => without_slashes(&path[..slash.max(1)]),
    }
}

/// The part before the last slash; empty if there is none.
fn before(path: &[u8]) -> &[u8] {
    &path[..last_slash(without_slashes(path)).unwrap_or(0)]
}

/// Removes the last `count` extensions of the last component, or none if it has fewer.
fn without_extensions(path: &[u8], count: usize) -> &[u8] {
    match extension_dot(path, count) {
        Some(dot) => &path[..dot],
        None => path,
    }
}

/// The last `count` extensions of the last component, or nothing if it has fewer.
fn extensions(path: &[u8], count: usize) -> &[u8] {
    match extension_dot(path, count) {
        Some(dot) => &path[dot + 1..],
        None => b"",
    }
}

/// The dot before the last `count` extensions. A dot at the start of a name, as in `.bashrc`, begins no
/// extension.
fn extension_dot(path: &[u8], count: usize) -> Option<usize> {
    let begin = last_slash(path).map_or(0, |slash| slash + 1);
    let name = &path[begin..];
    let mut dots = (0..name.len()).rev().filter(|at| name[*at] == b'.');
    let dot = dots.nth(count - 1)?;
    (dot > 0 && name != b"..").then_some(begin + dot)
}

fn last_slash(path: &[u8]) -> Option<usize> {
    path.iter().rposition(|byte| *byte == b'/')
}

fn without_slashes(path: &[u8]) -> &[u8] {
    let length = path.iter().rposition(|byte| *byte != b'/').map_or(1, |last| last + 1);
    &path[..length.min(path.len())]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check<const N: usize>(path: &str, operators: [&str; N], expected: [&str; N]) {
        for (operator, expected) in operators.into_iter().zip(expected) {
            let form = PathForm::parse(operator.as_bytes()).unwrap();
            let found = String::from_utf8(form.of(path.as_bytes()).to_vec()).unwrap();
            assert_eq!(found, expected, "{{{operator}}} of {path}");
        }
    }

    #[test]
    fn a_path_has_its_parts() {
        let check = |path, expected| check(path, [".", "/", "//", "/."], expected);
        check("a/b.tar.gz", ["a/b.tar", "b.tar.gz", "a", "b.tar"]);
        check("b", ["b", "b", ".", "b"]);
        check("/b", ["/b", "b", "/", "b"]);
        check("a.d/b", ["a.d/b", "b", "a.d", "b"]);
        check("a/b/", ["a/b/", "b", "a", "b"]);
        check("/", ["/", "/", "/", "/"]);
        check("", ["", "", ".", ""]);
        check("a/.bashrc", ["a/.bashrc", ".bashrc", "a", ".bashrc"]);
        check("..", ["..", "..", ".", ".."]);
        check("a//b", ["a//b", "b", "a", "b"]);
        check("x.", ["x", "x.", ".", "x"]);
    }

    #[test]
    fn several_extensions_go_together() {
        let operators = ["..", "...", "/..", "/...", "+/", "+.", "+..", "+..."];
        check("d/a.b.c.d", operators, ["d/a.b", "d/a", "a.b", "a", "d", "d", "c.d", "b.c.d"]);
        check("d/a.b", operators, ["d/a.b", "d/a.b", "a.b", "a.b", "d", "b", "", ""]);
        check("e", operators, ["e", "e", "e", "e", "", "", "", ""]);
        check("d.x/e", operators, ["d.x/e", "d.x/e", "e", "e", "d.x", "", "", ""]);
        check("/.a.b", operators, ["/.a.b", "/.a.b", ".a.b", ".a.b", "", "b", "", ""]);
    }

    #[test]
    fn other_operators_are_none() {
        for operator in ["....", "+", "///", "/.x", "+//", ".a", ","] {
            assert_eq!(PathForm::parse(operator.as_bytes()), None, "{operator}");
        }
    }
}

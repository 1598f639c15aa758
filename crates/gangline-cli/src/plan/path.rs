//! Components of an input that is a path, as bytes.

/// The part after the last slash; trailing slashes are ignored.
pub(crate) fn base(path: &[u8]) -> &[u8] {
    let path = without_slashes(path);
    match last_slash(path) {
        Some(slash) if path.len() > 1 => &path[slash + 1..],
        _ => path,
    }
}

/// The part before the last slash: `.` if there is none, and `/` if it is empty.
pub(crate) fn directory(path: &[u8]) -> &[u8] {
    let path = without_slashes(path);
    match last_slash(path) {
        None => b".",
        Some(slash) => without_slashes(&path[..slash.max(1)]),
    }
}

/// Removes the extension of the last component. A dot at its start, as in `.bashrc`, begins no extension.
pub(crate) fn without_extension(path: &[u8]) -> &[u8] {
    let begin = last_slash(path).map_or(0, |slash| slash + 1);
    let name = &path[begin..];
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) if dot > 0 && name != b".." => &path[..begin + dot],
        _ => path,
    }
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
    fn check(path: &str, [whole, name, before, stem]: [&str; 4]) {
        let shown = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        let path = path.as_bytes();
        let found =
            [without_extension(path), base(path), directory(path), without_extension(base(path))];
        assert_eq!(found.map(shown), [whole, name, before, stem]);
    }

    #[test]
    fn a_path_has_its_parts() {
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
}

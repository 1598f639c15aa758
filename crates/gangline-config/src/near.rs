//! Which key was probably meant by one that is not there.

use config::{Value, ValueKind};
use strsim::levenshtein;

use super::segment::{join, segments};

/// The path in the tree that differs from this one in a few letters, if there is one: the nearest.
pub(super) fn near(root: &Value, path: &str) -> Option<String> {
    let path = without_quotes(path);
    let most = path.chars().count() / 4;
    let mut paths = Vec::new();
    collect(root, "", &mut paths);
    let near = paths.into_iter().filter_map(|other| {
        let bare = without_quotes(&other);
        let is_near = bare.len().abs_diff(path.len()) <= 4 * most;
        is_near.then(|| (levenshtein(&path, &bare), other))
    });
    let (_, nearest) = near.filter(|(letters, _)| *letters <= most).min()?;
    Some(nearest)
}

/// Returns a path without the quotes around keys with dots, which users often forget.
fn without_quotes(path: &str) -> String {
    segments(path).join(".")
}

fn collect(value: &Value, path: &str, paths: &mut Vec<String>) {
    let ValueKind::Table(table) = &value.kind else { return };
    for (key, value) in table {
        let path = join(path, key);
        collect(value, &path, paths);
        paths.push(path);
    }
}

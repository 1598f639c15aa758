//! Which key was probably meant by one that is not there.

use config::{Value, ValueKind};

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
        is_near.then(|| (distance(&path, &bare), other))
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

/// Returns the edit distance of two texts: the number of letters inserted, deleted or replaced.
fn distance(one: &str, other: &str) -> usize {
    let other: Vec<char> = other.chars().collect();
    let mut row: Vec<usize> = (0..=other.len()).collect();
    for (i, a) in one.chars().enumerate() {
        let mut diagonal = std::mem::replace(&mut row[0], i + 1);
        for (j, &b) in other.iter().enumerate() {
            let changed = diagonal + usize::from(a != b);
            diagonal = row[j + 1];
            row[j + 1] = changed.min(diagonal + 1).min(row[j] + 1);
        }
    }
    row[other.len()]
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn a_letter_is_put_in_left_out_or_another() {
        let from_exponent = ["exponent", "exponnt", "exponnent", "eXponent", "xponents", ""];
        assert_eq!(from_exponent.map(|other| distance("exponent", other)), [0, 1, 1, 1, 2, 8]);
    }
}

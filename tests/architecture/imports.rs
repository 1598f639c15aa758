//! What files import from each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Files, child, has_word};
use crate::{CRATES, LAYERS, PROGRAM};

/// The number of a file's layer, from the top; the crate root is above all.
pub fn layer(file: &str) -> usize {
    let top = file.split("::").next().expect("a text has a first part");
    match LAYERS.iter().position(|names| names.contains(&top)) {
        Some(layer) => layer + 1,
        None => {
            assert!(top.is_empty(), "{top} is in no layer: add it to LAYERS");
            0
        }
    }
}

/// Which files each file imports from. A name that is imported from a file that only passes it on counts as
/// imported from where it is defined.
pub fn imports(code: &Files) -> BTreeMap<String, BTreeSet<String>> {
    let mut exports = BTreeMap::new();
    for (file, text) in code {
        for (path, alias) in
            uses(text).into_iter().filter(|(is_pub, ..)| *is_pub).map(|u| (u.1, u.2))
        {
            if let Some(path) = absolute(file, &path, code) {
                exports.insert(child(file, &alias), path);
            }
        }
    }
    let mut imports = BTreeMap::new();
    for (file, text) in code.iter().filter(|(file, _)| !file.is_empty()) {
        let body = without_uses(text);
        let used = uses(text).into_iter();
        let used = used.filter(|(is_pub, _, alias)| !is_pub || has_word(&body, alias));
        let paths = used.map(|(_, path, _)| path).chain(inline_paths(&body));
        let targets = paths
            .filter_map(|path| absolute(file, &path, code))
            .filter_map(|path| resolve(&path, code, &exports, 0))
            .filter(|target| target != file)
            .collect();
        imports.insert(file.clone(), targets);
    }
    imports
}

/// The leaves of the `use` declarations: whether it is public, the path, and the name that it gets.
fn uses(text: &str) -> Vec<(bool, String, String)> {
    let mut found = Vec::new();
    let mut declaration = String::new();
    for line in text.lines() {
        let start = line.trim_start();
        let starts = ["use ", "pub use ", "pub(crate) use ", "pub(super) use "];
        if declaration.is_empty() && !starts.iter().any(|s| start.starts_with(s)) {
            continue;
        }
        declaration.push_str(start);
        if let Some(whole) = declaration.strip_suffix(';') {
            let (vis, tree) = whole.split_once("use ").expect("it is a use declaration");
            leaves("", tree, &mut |path, alias| {
                found.push((!vis.is_empty(), path.to_owned(), alias.to_owned()));
            });
            declaration.clear();
        }
    }
    found
}

fn leaves(before: &str, tree: &str, each: &mut dyn FnMut(&str, &str)) {
    let tree = tree.trim();
    let Some((head, rest)) = tree.split_once('{') else {
        let (path, alias) = tree.split_once(" as ").unwrap_or((tree, ""));
        let path = format!("{before}{path}");
        let path = path.strip_suffix("::self").unwrap_or(&path);
        let last = path.rsplit("::").next().expect("a text has a last part");
        each(path, if alias.is_empty() { last } else { alias });
        return;
    };
    let before = format!("{before}{head}");
    let body = rest.strip_suffix('}').expect("a list ends");
    let (mut depth, mut start) = (0_usize, 0);
    for (i, c) in body.char_indices() {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                leaves(&before, &body[start..i], each);
                start = i + 1;
            }
            _ => {}
        }
    }
    if !body[start..].trim().is_empty() {
        leaves(&before, &body[start..], each);
    }
}

fn without_uses(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let start = line.trim_start();
        let is_use = inside
            || start.starts_with("use ")
            || start.starts_with("pub") && start.contains(" use ");
        inside = is_use && !line.trim_end().ends_with(';');
        !is_use
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// The paths in code, such as `super::text::clip`.
fn inline_paths(body: &str) -> Vec<String> {
    body.split(|c: char| !(c.is_alphanumeric() || c == '_' || c == ':'))
        .map(|path| path.trim_matches(':'))
        .filter(|path| path.contains("::"))
        .map(str::to_owned)
        .collect()
}

/// The path from the root of the library, or with the crate that it is in; `None` for one of a crate that is not
/// read.
fn absolute(file: &str, path: &str, code: &Files) -> Option<String> {
    let (first, rest) = path.split_once("::").unwrap_or((path, ""));
    match first {
        "crate" => Some(child(home(file), rest)),
        "self" => Some(child(file, rest)),
        "super" => {
            let (mut module, mut rest) = (parent(file), rest);
            while let Some(inner) = rest.strip_prefix("super::") {
                (module, rest) = (parent(module), inner);
            }
            Some(child(module, rest))
        }
        _ if code.contains_key(&child(file, first)) => Some(child(file, path)),
        _ if CRATES.iter().any(|(name, _)| *name == first) => Some(path.to_owned()),
        _ => None,
    }
}

/// The crate that a file is in; empty for the library itself.
fn home(file: &str) -> &str {
    let top = file.split("::").next().unwrap_or_default();
    if CRATES.iter().chain([&PROGRAM]).any(|(name, _)| *name == top) { top } else { "" }
}

fn parent(file: &str) -> &str {
    file.rsplit_once("::").map_or("", |(parent, _)| parent)
}

/// The file in which what stands at `path` is defined.
fn resolve(
    path: &str,
    code: &Files,
    exports: &BTreeMap<String, String>,
    steps: usize,
) -> Option<String> {
    let mut prefix = path;
    loop {
        if let Some(to) = exports.get(prefix).filter(|to| *to != prefix && steps < 8) {
            return resolve(&format!("{to}{}", &path[prefix.len()..]), code, exports, steps + 1);
        }
        if code.contains_key(prefix) {
            return Some(prefix.to_owned()).filter(|file| !file.is_empty());
        }
        prefix = prefix.rsplit_once("::")?.0;
    }
}

/// The groups of files that import each other, each sorted.
pub fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
    let reached: BTreeMap<&String, BTreeSet<&String>> =
        imports.keys().map(|file| (file, reachable(file, imports))).collect();
    let mut seen = BTreeSet::new();
    let mut found = Vec::new();
    for (file, targets) in &reached {
        if !targets.contains(file) || !seen.insert(*file) {
            continue;
        }
        let others =
            targets.iter().filter(|to| reached.get(**to).is_some_and(|r| r.contains(file)));
        let circle: Vec<String> = others.map(|to| (*to).clone()).collect();
        seen.extend(targets.iter().filter(|to| circle.contains(to)));
        found.push(circle);
    }
    found
}

fn reachable<'a>(
    file: &'a String,
    imports: &'a BTreeMap<String, BTreeSet<String>>,
) -> BTreeSet<&'a String> {
    let mut found = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for target in imports.get(file).into_iter().flatten() {
            if found.insert(target) {
                open.push(target);
            }
        }
    }
    found
}

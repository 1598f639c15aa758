//! The files of the library, and their code without comments, strings and tests.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use crate::OUTSIDE;

/// The files by their module path: `engine::run`. In another crate it begins with that crate's name.
pub type Files = BTreeMap<String, String>;

pub fn files_of<'a>(crates: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Files {
    let mut files = Files::new();
    for (name, folder) in crates {
        read(name, &Path::new(env!("CARGO_MANIFEST_DIR")).join(folder), &mut files);
    }
    files
}

fn read(crate_name: &str, root: &Path, files: &mut Files) {
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).expect("src is readable") {
            let path = entry.expect("src is readable").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let name = path.strip_prefix(root).expect("it is below src").with_extension("");
                let name = name.to_str().expect("names are ASCII").replace('/', "::");
                let name = if name == "lib" { String::new() } else { name };
                if !name.starts_with("bin::") {
                    let name = child(crate_name, &name);
                    files.insert(name, fs::read_to_string(&path).expect("it is text"));
                }
            }
        }
    }
}

/// The files of the layers, without comments, strings and tests.
pub fn code(files: &Files) -> Files {
    let tests = test_modules(files);
    let files = files.iter().filter(|(name, _)| !is_outside(name));
    let files = files.filter(|(name, _)| !tests.iter().any(|test| is_inside(name, test)));
    files.map(|(name, text)| (name.clone(), without_tests(&blanked(text)))).collect()
}

fn is_outside(file: &str) -> bool {
    !file.is_empty() && OUTSIDE.contains(&file.split("::").next().unwrap_or(""))
}

fn is_inside(file: &str, module: &str) -> bool {
    file.strip_prefix(module).is_some_and(|rest| rest.is_empty() || rest.starts_with("::"))
}

/// The text without comments and without what is in quotes, line by line as long as it was.
fn blanked(text: &str) -> String {
    let bytes: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut i = 0;
    while i < bytes.len() {
        let rest = &bytes[i..];
        let end = match rest {
            ['/', '/', ..] => i + until(rest, |c| c == '\n'),
            ['r', '"' | '#', ..] if !ends_in_word(&out) => match raw_string(rest) {
                Some(length) => i + length,
                None => i,
            },
            ['"', ..] => i + string(rest),
            ['\'', '\\', ..] => i + 3 + until(&rest[3..], |c| c == '\''),
            ['\'', _, '\'', ..] => i + 3,
            _ => i,
        };
        if end == i {
            out.push(bytes[i]);
            i += 1;
        } else {
            out.extend(bytes[i..end.min(bytes.len())].iter().filter(|c| **c == '\n'));
            i = end;
        }
    }
    out
}

fn ends_in_word(text: &str) -> bool {
    text.ends_with(|c: char| c.is_alphanumeric() || c == '_')
}

fn until(text: &[char], is_end: impl Fn(char) -> bool) -> usize {
    text.iter().position(|c| is_end(*c)).unwrap_or(text.len())
}

fn string(text: &[char]) -> usize {
    let mut i = 1;
    while i < text.len() && text[i] != '"' {
        i += if text[i] == '\\' { 2 } else { 1 };
    }
    i + 1
}

fn raw_string(text: &[char]) -> Option<usize> {
    let marks = until(&text[1..], |c| c != '#');
    if text.get(1 + marks) != Some(&'"') {
        return None;
    }
    let end: Vec<char> = std::iter::once('"').chain(std::iter::repeat_n('#', marks)).collect();
    let from = marks + 2;
    let length = text[from..].windows(end.len()).position(|w| w == end)?;
    Some(from + length + end.len())
}

/// Blanks the items behind `#[cfg(test)]` and the like.
fn without_tests(text: &str) -> String {
    let mut out = String::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        if !is_test_attribute(line) {
            out.push_str(line);
            out.push('\n');
            continue;
        }
        let mut depth = 0_i64;
        for line in lines.by_ref() {
            depth += balance(line, "{([", "})]");
            if depth <= 0 && line.trim_end().ends_with(['}', ';', ',']) {
                break;
            }
        }
    }
    out
}

fn is_test_attribute(line: &str) -> bool {
    let line = line.trim();
    ["#[cfg(test)]", "#[cfg(all(test", "#[cfg(all(shuttle", "#[cfg(doctest)]"]
        .iter()
        .any(|start| line.starts_with(start))
}

pub fn balance(line: &str, opens: &str, closes: &str) -> i64 {
    let count = |of: &str| line.chars().filter(|c| of.contains(*c)).count() as i64;
    count(opens) - count(closes)
}

/// The modules in files of their own that are compiled for tests alone.
fn test_modules(files: &Files) -> Vec<String> {
    let mut found = Vec::new();
    for (file, text) in files {
        let blanked = blanked(text);
        let lines: Vec<&str> = blanked.lines().collect();
        for pair in lines.windows(2) {
            let module = pair[1].trim().trim_start_matches("pub(crate) ").strip_prefix("mod ");
            if let Some(module) = module.filter(|_| is_test_attribute(pair[0])) {
                found.push(child(file, module.trim_end_matches(';')));
            }
        }
    }
    found
}

pub fn child(module: &str, name: &str) -> String {
    match (module, name) {
        ("", name) => name.to_owned(),
        (module, "") => module.to_owned(),
        (module, name) => format!("{module}::{name}"),
    }
}

pub fn has_word(text: &str, word: &str) -> bool {
    words(text).any(|found| found == word)
}

pub fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
}

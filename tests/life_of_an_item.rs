//! Follows an item through the source by the names that docs/architecture.md gives: each file is there, and has
//! the function that is said to be in it. The files that CONTRIBUTING.md names are there too.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

use std::fs;
use std::path::{Path, PathBuf};

/// The header of the table that is checked.
const HEADER: &str = "| step | untracked | tracked |";

#[test]
fn an_item_is_found_where_the_architecture_says() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    let mut files = vec![];
    collect(&root.join("src"), &mut files);
    let rows: Vec<_> = page.lines().skip_while(|line| *line != HEADER).skip(2).collect();
    let rows: Vec<_> = rows.into_iter().take_while(|line| line.starts_with('|')).collect();
    assert!(rows.len() >= 6, "the table is there, with all steps: {rows:?}");
    let mut named = 0;
    for row in rows {
        let mut file = None;
        for name in row.split('`').skip(1).step_by(2) {
            named += 1;
            match name.contains('/') {
                true => file = Some(found(&files, name)),
                false => {
                    let (path, text) = file.as_ref().expect("a file stands before a function");
                    assert!(defines(text, name), "{name} is not in {}", path.display());
                }
            }
        }
    }
    assert!(named > 15, "only {named} names were found");
}

#[test]
fn the_files_that_contributors_are_sent_to_are_there() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(root.join("CONTRIBUTING.md")).unwrap();
    let names = page.split('`').skip(1).step_by(2);
    let is_path =
        |name: &&str| ["src/", "crates/", "tests/"].iter().any(|top| name.starts_with(top));
    let paths: Vec<_> = names.filter(is_path).collect();
    let missing: Vec<_> = paths.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(paths.len() > 20, "only {} paths were found", paths.len());
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        match path.is_dir() {
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}

/// The one file of `src` whose path ends like this.
fn found(files: &[PathBuf], name: &str) -> (PathBuf, String) {
    let end = format!("{name}.rs");
    let mut same = files.iter().filter(|path| path.ends_with(&end));
    let path = same.next().unwrap_or_else(|| panic!("no file is called {end}"));
    assert_eq!(same.next(), None, "{name} is one file");
    (path.clone(), fs::read_to_string(path).unwrap())
}

/// Whether a file defines a function, or a method of a type that it has an `impl` of.
fn defines(text: &str, name: &str) -> bool {
    let (owner, function) = match name.rsplit_once("::") {
        Some((owner, function)) => (Some(owner), function),
        None => (None, name),
    };
    let is_start = |line: &str| {
        let line = line.trim_start();
        [format!("fn {function}("), format!("fn {function}<")]
            .iter()
            .any(|start| line.split("pub(crate) ").last().is_some_and(|line| line.contains(start)))
    };
    let is_owned = owner.is_none_or(|owner| {
        let is_impl = |line: &str| line.starts_with("impl") && line.contains(&format!(" {owner}"));
        text.lines().any(is_impl)
    });
    is_owned && text.lines().any(is_start)
}

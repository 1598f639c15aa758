//! Tests wait for what they test, and not for a time: a sleep is too short on a busy machine, and too long on any other.
//!
//! `waits.txt` lists the sleeps that are left, by file, with their number and what they are for. Where a wall clock is
//! compared with an upper bound the test fails on a busy machine: there is no such comparison.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// `path | number | reason` for each file with sleeps. Work that takes time, pauses before a fault, time that has to pass
/// for a limit, and other programs that are asked again are reasons.
const LISTED: &str = include_str!("waits.txt");

#[test]
fn each_sleep_of_a_test_has_a_reason() {
    let found: BTreeMap<_, _> = test_files()
        .into_iter()
        .map(|(path, text)| (path, text.lines().filter(|line| sleeps(line)).count()))
        .filter(|(_, sleeps)| *sleeps > 0)
        .collect();
    let listed: BTreeMap<_, _> =
        LISTED.lines().filter(|line| !line.starts_with('#')).map(entry).collect();
    for (path, sleeps) in &found {
        let allowed = listed.get(path.as_str()).copied().unwrap_or_default();
        assert_eq!(
            *sleeps, allowed,
            "{path} sleeps so often: wait with a gate, or give a reason in waits.txt"
        );
    }
    for path in listed.keys() {
        assert!(found.contains_key(*path), "{path} is in waits.txt, and does not sleep");
    }
}

#[test]
fn no_test_compares_a_wall_clock_with_an_upper_bound() {
    for (path, text) in test_files() {
        let bound = text.lines().find(|line| has_upper_bound(line));
        assert_eq!(bound, None, "{path}: a busy machine takes longer");
    }
}

#[test]
fn an_upper_bound_of_a_wall_clock_is_seen() {
    assert!(has_upper_bound("    assert!(begun.elapsed() < Duration::from_secs(2));"));
    assert!(has_upper_bound("assert!(report.working <= ms(400), \"{report}\");"));
    assert!(!has_upper_bound("assert!(report.working <= report.lasted, \"{report}\");"));
    assert!(!has_upper_bound("assert!(begun.elapsed() >= Duration::from_secs(2));"));
}

/// Whether an assertion says that a time that was measured is less than one that is written there.
fn has_upper_bound(line: &str) -> bool {
    let Some((left, right)) = line.split_once("assert!(").and_then(|(_, it)| it.split_once(" <"))
    else {
        return false;
    };
    let right = right.trim_start_matches('=').trim_start();
    let is_measured =
        ["elapsed()", "lasted", "working", "waiting", "took"].iter().any(|it| left.ends_with(it));
    is_measured
        && (right.starts_with("Duration::") || right.starts_with("ms(") || right.starts_with("MS"))
}

fn sleeps(line: &str) -> bool {
    line.contains("sleep(") && !line.contains("fn sleep(") && !line.trim_start().starts_with("//")
}

/// A line of the list: the path and the number.
fn entry(line: &str) -> (&str, usize) {
    let parts: Vec<_> = line.split('|').map(str::trim).collect();
    let [path, number, reason] = parts[..] else {
        panic!("`path | number | reason`, not {line:?}")
    };
    assert!(reason.len() > 10, "{path} has no reason");
    (path, number.parse().expect("the second column is a number"))
}

/// The sources of the test programs of all packages, with their paths from the root.
fn test_files() -> Vec<(String, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let crates = fs::read_dir(root.join("crates")).expect("it is a folder");
    let crates = crates.map(|entry| entry.expect("it is readable").path().join("tests"));
    let mut files = Vec::new();
    for folder in [root.join("tests")].into_iter().chain(crates).filter(|it| it.is_dir()) {
        sources(&folder, &mut files);
    }
    let files = files.into_iter().map(|path| {
        let text = fs::read_to_string(&path).expect("a source is text");
        let path = path.strip_prefix(root).expect("it is below the root");
        (path.to_str().expect("our paths are text").to_owned(), text)
    });
    files.filter(|(path, _)| !path.starts_with("tests/architecture")).collect()
}

fn sources(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it is readable").path();
        match path.is_dir() {
            true => sources(&path, files),
            false if path.extension().is_some_and(|ending| ending == "rs") => files.push(path),
            false => {}
        }
    }
}

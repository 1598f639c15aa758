//! What gangline cannot do, as its pages say it: each sentence names the test that shows it.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{REPOSITORY, every_guide, prose, read, root};

/// A page, a part of its text, and a test, or in parentheses why there can be none.
const LIMITS: &str = include_str!("limits.txt");
/// Words with which a page says that something is impossible. A sentence with one of them is in the list.
const WORDS: [&str; 5] =
    ["cannot", "not supported", "unsupported", "does not support", "do not support"];
/// Where tests are.
const FOLDERS: [&str; 4] = ["crates", "python/tests", "src", "tests"];

/// A line of the list.
struct Limit {
    page: String,
    sentence: &'static str,
    shown_by: &'static str,
}

#[test]
fn what_cannot_be_done_is_shown_by_a_test() {
    let names = names();
    let mut count = 0;
    for Limit { page, sentence, shown_by } in limits() {
        assert!(
            words_of(&page).contains(sentence),
            "{page} no longer says {sentence:?}: mend the line in tests/guides/limits.txt"
        );
        let is_reason = shown_by.starts_with('(') && shown_by.ends_with(')');
        assert!(
            is_reason || names.contains(shown_by),
            "{page}: {sentence:?} is shown by {shown_by}, but there is no such test"
        );
        count += 1;
    }
    assert!(count > 150, "{count}");
}

#[test]
fn each_sentence_about_what_is_impossible_is_in_the_list() {
    let limits: Vec<_> = limits().collect();
    for page in pages() {
        let text = words_of(&page);
        let listed = limits.iter().filter(|limit| limit.page == page);
        let places: Vec<_> = listed
            .flat_map(|limit| text.match_indices(limit.sentence))
            .map(|(at, sentence)| at..at + sentence.len())
            .collect();
        for (at, word) in WORDS.iter().flat_map(|word| text.match_indices(word)) {
            let is_listed = places.iter().any(|place| place.contains(&at));
            let ends = [". ", "| "].into_iter().filter_map(|end| text[..at].rfind(end));
            let begin = ends.max().map_or(0, |end| end + 2);
            let sentence = &text[begin..at + word.len()];
            assert!(is_listed, "{page}: no line of tests/guides/limits.txt has {sentence:?}");
        }
    }
}

fn limits() -> impl Iterator<Item = Limit> {
    let mut page = String::new();
    let lines = LIMITS.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines.filter_map(move |line| {
        if let Some(name) = line.strip_prefix("== ") {
            page = name.to_owned();
            return None;
        }
        // A row of a table has such separators too.
        let (sentence, shown_by) =
            line.rsplit_once(" | ").expect("a line has a sentence and a test");
        Some(Limit { page: page.clone(), sentence, shown_by })
    })
}

/// The pages for users.
fn pages() -> impl Iterator<Item = String> {
    let is_for_users =
        |page: &String| !REPOSITORY.iter().any(|name| page.ends_with(&format!("/{name}")));
    let crates = fs::read_dir(root().join("crates")).expect("crates is readable");
    let names = crates.map(|entry| entry.expect("crates is readable").file_name());
    let crates = names.map(|name| format!("crates/{}/README.md", name.to_string_lossy()));
    let crates = crates.filter(|page| root().join(page).exists());
    let front = ["README.md", "python/README.md", "src/lesson.md"].map(str::to_owned);
    front.into_iter().chain(every_guide().filter(is_for_users)).chain(crates)
}

/// A page without its blocks of code, as one line.
fn words_of(page: &str) -> String {
    prose(&read(page)).split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The names of all functions in tests, and of the modules whose examples must not compile.
fn names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    FOLDERS.iter().for_each(|folder| find_names(&root().join(folder), &mut names));
    names
}

fn find_names(folder: &Path, names: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).expect("it is a folder") {
        let path = entry.expect("it is readable").path();
        let ending = path.extension().and_then(|ending| ending.to_str());
        if path.is_dir() {
            find_names(&path, names);
        } else if matches!(ending, Some("rs" | "py")) {
            let text = fs::read_to_string(&path).expect("it is text");
            let starts =
                ["fn ", "def ", "mod "].into_iter().flat_map(|word| text.split(word).skip(1));
            let is_of_name = |c: char| c.is_alphanumeric() || c == '_';
            names.extend(starts.filter_map(|rest| {
                let name = rest.split(|c| !is_of_name(c)).next()?;
                Some(name.to_owned())
            }));
        }
    }
}

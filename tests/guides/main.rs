//! The guides of docs/ as readers meet them: in the repository, in the documentation, from the front pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

mod limits;

/// Pages that are read in the repository only: the list of guides, measurements, and pages for contributors.
const REPOSITORY: &[&str] =
    &["README.md", "architecture.md", "performance.md", "performance-internals.md", "testing.md"];
/// Pages that are in the documentation of another package, and the folder of that.
const ELSEWHERE: &[(&str, &str)] = &[
    ("cluster.md", "crates/gangline-nats"),
    ("command-line.md", "crates/gangline-cli"),
    ("from-parallel.md", "crates/gangline-cli"),
    ("serving.md", "crates/gangline-cli"),
    ("warm-workers.md", "crates/gangline-cli"),
];

/// Pages that readers of the repository begin with. The folder of a link is that of its page.
const PAGES: &[&str] = &[
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "SECURITY.md",
    "crates/gangline-cli/README.md",
    "crates/gangline-config/README.md",
    "crates/gangline-nats/README.md",
    "crates/gangline-report/README.md",
    "crates/gangline-scheduler/README.md",
    "examples/README.md",
    "examples/data/README.md",
    "examples/slide/README.md",
    "python/README.md",
    "src/lesson.md",
];
/// Where a link of `README.md` leaves the files: a page of the code host about the repository, such as its actions.
const CODE_HOST: &str = "../../";

#[test]
fn every_page_is_a_module_of_the_documentation() {
    let list = read("src/guide.rs");
    for name in pages().keys().filter(|name| package_of(name).is_none()) {
        let module = module(name);
        let line = format!("{module}: \"{name}\"");
        assert!(list.contains(&line), "add the line `{line}` to the list in src/guide.rs");
        assert!(
            list.contains(&format!("[`{module}`]")),
            "link {module} at the top of src/guide.rs"
        );
    }
}

/// Checks once ran another command than readers, for which it failed.
#[test]
fn the_test_command_of_the_front_page_is_the_first_that_is_checked() {
    let readme = read("README.md");
    let mut commands = readme.lines().filter(|line| line.starts_with("cargo test"));
    let command = commands.next().expect("README.md says how to run the tests");
    let command = command.split('#').next().expect("a text has a first part").trim_end();
    let checks = read(".ci/run");
    let mut checked = checks.lines().filter(|line| line.starts_with("cargo "));
    assert_eq!(checked.next(), Some(command));
}

#[test]
fn the_front_pages_link_every_guide() {
    let (lesson, list) = (read("src/lesson.md"), read("docs/README.md"));
    for name in pages().keys() {
        assert!(list.contains(&format!("({name})")), "docs/README.md does not link {name}");
        let link = format!("[`guide::{}`]", module(name));
        let is_linked = package_of(name).is_some() || lesson.contains(&link);
        assert!(is_linked, "src/lesson.md does not link {link}");
    }
}

/// One for each language in which users meet gangline. A screen has 50 lines.
#[test]
fn the_front_page_has_a_screen_with_five_pages_for_each_reader() {
    let readme = read("README.md");
    for reader in ["Rust", "Python", "Shell"] {
        let section = readme.split(&format!("\n## {reader}\n")).nth(1).expect("there is one");
        let section = section.split("\n## ").next().expect("a text has a first part");
        let links = section.lines().filter(|line| line.starts_with("| ") && line.contains("]("));
        assert_eq!(links.count(), 5, "{reader}");
        assert!(section.lines().count() <= 50, "{reader}");
    }
}

#[test]
fn the_page_of_the_builder_names_each_of_its_methods() {
    let builder = read("src/api/builder.rs");
    let page = builder.split("#[must_use").next().expect("a text has a first part");
    let files = fs::read_dir(root().join("src/api/builder")).expect("src is readable");
    let mut files: Vec<_> = files.map(|file| file.expect("src is readable").path()).collect();
    files.push(root().join("src/api/builder.rs"));
    let mut names = 0;
    for file in files {
        let text = fs::read_to_string(&file).expect("it is text");
        // What is for backends only.
        let text = text.replace("#[doc(hidden)]\n    pub fn ", "");
        for method in text.lines().filter_map(|line| line.strip_prefix("    pub fn ")) {
            let name = method.split(['(', '<']).next().expect("a text has a first part");
            names += 1;
            assert!(page.contains(&format!("`{name}`")), "name {name} in the table of Builder");
        }
    }
    assert!(names > 30, "{names}");
}

/// A relative link in parentheses would lead nowhere in the documentation, where a page is a module.
#[test]
fn links_to_files_are_labels() {
    for (name, text) in pages() {
        for (i, _) in text.match_indices("](") {
            let target = text[i + 2..].split(')').next().expect("a text has a first part");
            let is_fine = target.starts_with('#') || target.contains("://");
            assert!(
                is_fine,
                "docs/{name}: write the link to {target} as a label: see CONTRIBUTING.md"
            );
        }
    }
}

#[test]
fn labels_lead_to_the_same_place_in_the_repository_and_in_the_documentation() {
    for (name, text) in pages() {
        let file = match package_of(&name) {
            Some(folder) => format!("{folder}/src/links.md"),
            None => "src/guide/links.md".to_owned(),
        };
        let links = read(&file);
        let links = labels(&links);
        for (label, target) in labels(&text) {
            assert_eq!(
                label,
                target.trim_start_matches("../"),
                "docs/{name}: a label names its file"
            );
            assert!(links.contains_key(label), "docs/{name}: {label} is not in {file}");
            let modules = ["crate::guide::", "https://docs.rs/gangline/latest/gangline/guide/"];
            let place = modules.iter().find_map(|start| links[label].strip_prefix(start));
            if let Some(place) = place {
                assert_eq!(place.replace("/index.html", ""), module(label));
            }
        }
    }
}

#[test]
fn labels_of_the_lesson_lead_to_files_in_the_repository_and_to_items_in_the_documentation() {
    let (lesson, links) = (read("src/lesson.md"), read("src/lesson/links.md"));
    let (files, items) = (labels(&lesson), labels(&links));
    assert_eq!(files.keys().collect::<Vec<_>>(), items.keys().collect::<Vec<_>>());
    for (label, item) in items {
        assert_eq!(label.trim_matches('`'), item, "src/lesson/links.md: a label names its item");
    }
}

/// Links as a code host follows them: to a file beside the page, or to a heading.
#[test]
fn links_of_pages_lead_to_files_and_headings() {
    let mut links = 0;
    for page in PAGES.iter().map(|page| (*page).to_owned()).chain(every_guide()) {
        let text = prose(&read(&page));
        let inline = text.match_indices("](").map(|(at, _)| &text[at + 2..]);
        let inline = inline.map(|rest| rest.split(')').next().expect("a text has a first part"));
        for target in inline.chain(labels(&text).into_values()) {
            let is_of_the_host = page == "README.md" && target.starts_with(CODE_HOST);
            if !target.contains("://") && !is_of_the_host {
                check_link(&page, target);
                links += 1;
            }
        }
    }
    assert!(links > 250, "{links}");
}

/// A page for users of another tool, with a program of ours: in Rust, which rustdoc runs, in Python, which
/// `python/tests/test_guides.py` runs, or a command, which `crates/gangline-cli/tests/cli/ported.rs` runs. What rustdoc
/// leaves out is a part of an example.
#[test]
fn pages_for_users_of_other_tools_have_a_program_that_runs() {
    let ported: Vec<_> = pages().into_iter().filter(|(name, _)| is_ported(name)).collect();
    assert!(ported.len() >= 14, "{}", ported.len());
    let examples = examples(&root().join("examples"));
    for (name, text) in &ported {
        let parts = ["use gangline::", "fn main()", "assert"];
        let is_run = |program: &&str| parts.iter().all(|part| program.contains(part));
        let (left_out, python) = (listings(text, "rust,ignore"), listings(text, "python"));
        let has_rust = listings(text, "rust").iter().any(is_run);
        let has_python = python.iter().any(|code| code.contains("import gangline"));
        let has_command =
            listings(text, "console").iter().any(|code| code.contains("gangline run"));
        assert!(has_rust || has_python || has_command, "docs/{name} has no program that runs");
        for listing in left_out {
            let is_in = |example: &String| example.contains(listing);
            assert!(examples.iter().any(is_in), "docs/{name}: no example has\n{listing}");
        }
        let has_ours = python.is_empty() || python.iter().any(|code| code.contains("gangline"));
        assert!(has_ours, "docs/{name} has a program in Python for the other tool only");
    }
}

/// A page that needs a feature is run if the tests of the library ask for the feature.
#[test]
fn every_feature_of_a_guide_is_one_that_tests_have() {
    let (list, manifest) = (read("src/guide.rs"), read("Cargo.toml"));
    let own = manifest.lines().find_map(|line| line.strip_prefix("gangline = { path = \".\", "));
    let own = own.expect("the library is a dependency of its tests");
    for part in list.split("feature = \"").skip(1) {
        let feature = part.split('"').next().expect("a text has a first part");
        let is_tested = own.contains(&format!("\"{feature}\""));
        assert!(is_tested, "tests do not have {feature}, so its guide is not tested");
    }
}

/// The folder of the package whose documentation has a page; `None` for the library.
fn package_of(page: &str) -> Option<&'static str> {
    ELSEWHERE.iter().find(|(name, _)| *name == page).map(|(_, folder)| *folder)
}

fn is_ported(name: &str) -> bool {
    name.starts_with("from-")
}

/// The blocks of code in a language.
fn listings<'a>(text: &'a str, language: &str) -> Vec<&'a str> {
    let begin = format!("\n```{language}\n");
    text.split(&*begin).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// The texts of all programs in a folder, and in those below it.
fn examples(folder: &Path) -> Vec<String> {
    let paths = fs::read_dir(folder).expect("it is a folder");
    let paths = paths.map(|entry| entry.expect("it is readable").path());
    let texts = paths.map(|path| match path.is_dir() {
        true => examples(&path),
        false if path.extension().is_some_and(|ending| ending == "rs") => {
            vec![fs::read_to_string(path).expect("it is text")]
        }
        false => Vec::new(),
    });
    texts.flatten().collect()
}

/// The module of a page, with the heading: `gpus#lists` for `gpus.md#lists`.
fn module(label: &str) -> String {
    let (page, heading) = label.split_once(".md").expect("guides are Markdown");
    format!("{}{heading}", page.replace('-', "_"))
}

/// Fails if the file of a link, or its heading, does not exist. `page` and the file are below the root of the repository.
fn check_link(page: &str, target: &str) {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = match file {
        "" => root().join(page),
        file => root().join(page).parent().expect("a page is in a folder").join(file),
    };
    assert!(path.exists(), "{page} links {target}, but there is no {file}");
    if !heading.is_empty() && path.extension().is_some_and(|ending| ending == "md") {
        let text = prose(&fs::read_to_string(path).expect("it is text"));
        let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
        assert!(headings.any(|found| found == heading), "{page} links {target}: no such heading");
    }
}

/// A page without its blocks of code.
fn prose(text: &str) -> String {
    let mut is_code = false;
    let kept = text.lines().filter(|line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    });
    kept.collect::<Vec<_>>().join("\n")
}

/// The paths of all pages in `docs`.
fn every_guide() -> impl Iterator<Item = String> {
    let entries = fs::read_dir(root().join("docs")).expect("docs is readable");
    let names = entries.map(|entry| entry.expect("docs is readable").file_name());
    names
        .map(|name| format!("docs/{}", name.to_string_lossy()))
        .filter(|path| path.ends_with(".md"))
}

/// The anchor of a heading, as GitHub and rustdoc make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    let kept = text.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().replace(' ', "-")
}

/// The definitions `[label]: target` of a page.
fn labels(text: &str) -> BTreeMap<&str, &str> {
    text.lines().filter_map(|line| line.strip_prefix('[')?.split_once("]: ")).collect()
}

fn pages() -> BTreeMap<String, String> {
    let entries = fs::read_dir(root().join("docs")).expect("docs is readable");
    let entries = entries.map(|entry| entry.expect("docs is readable").path());
    let name = |path: &Path| path.file_name().expect("it is a file").to_string_lossy().into_owned();
    let pages = entries.filter(|path| path.extension().is_some_and(|ending| ending == "md"));
    let pages = pages.filter(|path| !REPOSITORY.contains(&name(path).as_str()));
    pages.map(|path| (name(&path), fs::read_to_string(&path).expect("it is text"))).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).expect("it is text")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

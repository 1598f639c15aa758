//! The guides of docs/ as readers meet them: in the repository, in the documentation, from the front pages.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Pages for contributors, which are not in the documentation.
const CONTRIBUTORS: &[&str] = &["architecture.md", "performance.md", "testing.md"];
/// Pages of the program, which are in its own documentation.
const PROGRAM: &[&str] = &["command-line.md", "serving.md", "warm-workers.md"];

#[test]
fn every_page_is_a_module_of_the_documentation() {
    let list = read("src/guide.rs");
    for name in pages().keys().filter(|name| !PROGRAM.contains(&name.as_str())) {
        let module = module(name);
        let line = format!("{module}: \"{name}\"");
        assert!(list.contains(&line), "add the line `{line}` to the list in src/guide.rs");
        assert!(
            list.contains(&format!("[`{module}`]")),
            "link {module} at the top of src/guide.rs"
        );
    }
}

#[test]
fn the_front_pages_link_every_guide() {
    let (lesson, readme) = (read("src/lesson.md"), read("README.md"));
    for name in pages().keys() {
        assert!(readme.contains(&format!("(docs/{name})")), "README.md does not link docs/{name}");
        let link = format!("[`guide::{}`]", module(name));
        let is_linked = PROGRAM.contains(&name.as_str()) || lesson.contains(&link);
        assert!(is_linked, "src/lesson.md does not link {link}");
    }
}

#[test]
fn the_page_of_the_builder_names_each_of_its_methods() {
    let page = read("src/api/builder.rs");
    let page = page.split("#[must_use").next().expect("a text has a first part");
    let files = fs::read_dir(root().join("src/api/builder")).expect("src is readable");
    let mut names = 0;
    for file in files.map(|file| file.expect("src is readable").path()) {
        let text = fs::read_to_string(&file).expect("it is text");
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
    let (guides, program) = (read("src/guide/links.md"), read("crates/gangline-cli/src/links.md"));
    let (guides, program) = (labels(&guides), labels(&program));
    for (name, text) in pages() {
        let links = if PROGRAM.contains(&name.as_str()) { &program } else { &guides };
        for (label, target) in labels(&text) {
            assert_eq!(
                label,
                target.trim_start_matches("../"),
                "docs/{name}: a label names its file"
            );
            assert!(links.contains_key(label), "docs/{name}: {label} is not in src/guide/links.md");
            check_file(&name, target);
            let modules = ["crate::guide::", "https://docs.rs/gangline/latest/gangline/guide/"];
            let place = modules.iter().find_map(|start| links[label].strip_prefix(start));
            if let Some(place) = place {
                assert_eq!(place.replace("/index.html", ""), module(label));
            }
        }
    }
}

/// The module of a page, with the heading: `gpus#lists` for `gpus.md#lists`.
fn module(label: &str) -> String {
    let (page, heading) = label.split_once(".md").expect("guides are Markdown");
    format!("{}{heading}", page.replace('-', "_"))
}

/// Fails if the file of a link, or its heading, does not exist.
fn check_file(page: &str, target: &str) {
    let (file, heading) = target.split_once('#').unwrap_or((target, ""));
    let path = root().join("docs").join(file);
    assert!(path.exists(), "docs/{page} links {file}, which does not exist");
    if !heading.is_empty() {
        let text = fs::read_to_string(path).expect("it is text");
        let mut headings = text.lines().filter(|line| line.starts_with('#')).map(anchor);
        assert!(headings.any(|found| found == heading), "docs/{page}: {file} has no {heading}");
    }
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
    let pages = pages.filter(|path| !CONTRIBUTORS.contains(&name(path).as_str()));
    pages.map(|path| (name(&path), fs::read_to_string(&path).expect("it is text"))).collect()
}

fn read(file: &str) -> String {
    fs::read_to_string(root().join(file)).expect("it is text")
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

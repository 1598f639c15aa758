//! The pages of the manual, as a reader sees them.

use std::fs;
use std::path::Path;

/// A page shows the lines that a doc test hides, and copying takes them along.
#[test]
fn examples_in_pages_have_no_lines_that_only_a_doc_test_takes() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let docs = fs::read_dir(root.join("docs")).unwrap().map(|entry| entry.unwrap().path());
    let pages = docs.filter(|path| path.extension().is_some_and(|extension| extension == "md"));
    for page in pages.chain([root.join("README.md")]) {
        let text = fs::read_to_string(&page).unwrap();
        let examples = text.split("\n```").filter(|part| part.starts_with("rust"));
        for line in examples.flat_map(str::lines) {
            assert!(line != "#" && !line.starts_with("# "), "{}: {line}", page.display());
        }
    }
}

//! Reads the library with its crates and checks what docs/architecture.md promises of them: imports run down the
//! layers, no files import each other in a circle, files, functions and parameter lists stay short, types stay small,
//! each name stands for one type, and only what calls a hook knows the runner.
//!
//! It reads text, not syntax trees: comments, strings and tests are blanked first, and the code is as rustfmt
//! leaves it.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// The layers, from the top. A file imports from its own layer and those after it.
const LAYERS: &[&[&str]] = &[
    &["api", "testing"],
    &["engine"],
    &["backend"],
    &["producers"],
    &["run"],
    &["observe"],
    &["policy"],
    &["runner"],
    &["error"],
    &["journal"],
    &["device"],
    &["base"],
    &["concurrency"],
    &["gangline_config", "gangline_scheduler"],
];
/// The crates in which layers are, with their folders.
const CRATES: &[(&str, &str)] = &[
    ("", "src"),
    ("gangline_config", "crates/gangline-config/src"),
    ("gangline_scheduler", "crates/gangline-scheduler/src"),
];
/// No part of the layers: the program, and what only documents.
const OUTSIDE: &[&str] = &["", "cli", "compile_fail", "guide"];

/// The program, whose names of types count too.
const PROGRAM: (&str, &str) = ("gangline_cli", "crates/gangline-cli/src");

const MOST_LINES: usize = 500;
const MOST_FUNCTION_LINES: usize = 60;
const MOST_PARAMETERS: usize = 6;
const MOST_IMPL_FILES: usize = 2;
const MOST_METHODS: usize = 40;
/// Of a struct with a field that is not `pub`. One whose fields are all `pub` is plain data.
const MOST_FIELDS: usize = 15;
/// Types with more, and why: the layer, the name, and the most methods and fields.
const LARGE_TYPES: &[(&str, &str, usize, usize)] = &[
    // A method for each option, and a field for most.
    ("api", "Builder", 50, 25),
    // The state that all threads of a run share.
    ("run", "Handover", 40, 18),
    ("engine", "Engine", 40, 16),
    ("backend", "Coordinator", 40, 16),
    // A field for each figure of a report.
    ("observe", "Recorder", 40, 20),
    ("observe", "ReportLane", 40, 19),
    ("observe", "ProgressBoard", 40, 16),
    // Plain data but for fields that conclusions alone need.
    ("observe", "RunReport", 40, 39),
    ("observe", "Totals", 40, 23),
];
/// A file of fewer lines is small.
const SMALL: usize = 50;
const MOST_SMALL_FILES: usize = 40;
/// Below the API, only what calls a hook or makes a runner is generic over it: the rest would be compiled again for
/// each further runner of a program.
const MOST_GENERIC_FILES: usize = 10;
/// The folders that may name a runner: the trait's own, what users hold, and tests.
const OF_RUNNERS: &[&str] = &["api", "runner", "testing"];
/// Names that types in several files share, and why. Every other type has a name of its own.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Batches", "public: makes batches of an iterator; the scheduler has the batches of a run"),
    ("Call", "public: a call of a service; a call that a test records"),
    ("CpuPool", "the feature `rayon` chooses between the two"),
    ("Event", "public: what observers see; what the scheduler asks of the backend"),
    ("Failure", "public: a failure as text; what the scheduler knows of one"),
    ("Inbox", "the model replaces the deque"),
    ("Reader", "the model replaces the ring"),
    ("Sealed", "the usual name of a trait that seals another"),
    ("Stealer", "the model replaces the deque"),
    ("Verdict", "public: the user's about an error; as the scheduler gets it"),
    ("Writer", "public: of a sink; and of the ring, which the model replaces"),
];

#[test]
fn the_source_keeps_to_the_architecture() {
    let found = violations(&files_of(CRATES));
    assert!(found.is_empty(), "{found:#?}");
}

#[test]
fn few_files_are_small() {
    let code = code(&files_of(CRATES));
    let small = code.iter().filter(|(_, text)| text.lines().count() < SMALL);
    let small: Vec<&String> = small.map(|(file, _)| file).collect();
    assert!(small.len() <= MOST_SMALL_FILES, "{}: {small:#?}", small.len());
}

#[test]
fn few_files_are_generic_over_the_runner() {
    let generic = generic_over_runner(&code(&files_of(CRATES)));
    assert!(!generic.is_empty(), "the consumer calls hooks");
    assert!(generic.len() <= MOST_GENERIC_FILES, "{}: {generic:#?}", generic.len());
}

#[test]
fn each_name_stands_for_one_type() {
    let files = files_of(CRATES.iter().chain([&PROGRAM]));
    let (allowed, others): (Vec<String>, Vec<String>) =
        shared_names(&code(&files)).into_iter().partition(|shared| {
            SHARED_NAMES.iter().any(|(name, _)| shared.split(':').next() == Some(*name))
        });
    assert!(others.is_empty(), "{others:#?}");
    assert_eq!(allowed.len(), SHARED_NAMES.len(), "a name is listed that is shared no more");
}

/// The files by their module path: `engine::run`. In another crate it begins with that crate's name.
type Files = BTreeMap<String, String>;

fn files_of<'a>(crates: impl IntoIterator<Item = &'a (&'a str, &'a str)>) -> Files {
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

fn violations(files: &Files) -> BTreeSet<String> {
    let code = code(files);
    let imports = imports(&code);
    let mut found = BTreeSet::new();
    for (file, targets) in &imports {
        for target in targets.iter().filter(|target| layer(file) > layer(target)) {
            found.insert(format!("{file} imports {target}, which is above it"));
        }
    }
    for circle in circles(&imports) {
        found.insert(format!("circle: {}", circle.join(", ")));
    }
    for (file, text) in &code {
        sizes(file, text, &mut found);
    }
    spread_impls(&code, &mut found);
    large_types(&code, &mut found);
    found
}

/// The files of the layers, without comments, strings and tests.
fn code(files: &Files) -> Files {
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

/// The number of a file's layer, from the top; the crate root is above all.
fn layer(file: &str) -> usize {
    let top = file.split("::").next().expect("a text has a first part");
    match LAYERS.iter().position(|names| names.contains(&top)) {
        Some(layer) => layer + 1,
        None => {
            assert!(top.is_empty(), "{top} is in no layer: add it to LAYERS");
            0
        }
    }
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

fn balance(line: &str, opens: &str, closes: &str) -> i64 {
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

fn child(module: &str, name: &str) -> String {
    match (module, name) {
        ("", name) => name.to_owned(),
        (module, "") => module.to_owned(),
        (module, name) => format!("{module}::{name}"),
    }
}

/// Which files each file imports from. A name that is imported from a file that only passes it on counts as
/// imported from where it is defined.
fn imports(code: &Files) -> BTreeMap<String, BTreeSet<String>> {
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

fn has_word(text: &str, word: &str) -> bool {
    words(text).any(|found| found == word)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || c == '_')).filter(|word| !word.is_empty())
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
    if CRATES.iter().any(|(name, _)| *name == top) { top } else { "" }
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
fn circles(imports: &BTreeMap<String, BTreeSet<String>>) -> Vec<Vec<String>> {
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

/// Files, functions and parameter lists that are too long. `text` has neither comments nor tests.
fn sizes(file: &str, text: &str, found: &mut BTreeSet<String>) {
    let lines: Vec<&str> = text.lines().collect();
    if lines.len() > MOST_LINES {
        found.insert(format!("{file} has more than {MOST_LINES} lines"));
    }
    for (i, line) in lines.iter().enumerate() {
        let Some(name) = function(line) else { continue };
        let indent = line.len() - line.trim_start().len();
        let is_end = |line: &&&str| line.len() == indent + 1 && line.ends_with('}');
        let length = lines[i..].iter().position(|line| is_end(&line)).map_or(1, |end| end + 1);
        if !line.ends_with(['}', ';']) && length > MOST_FUNCTION_LINES {
            found.insert(format!("{file}: {name} has more than {MOST_FUNCTION_LINES} lines"));
        }
        if parameters(&lines[i..].join(" ")) > MOST_PARAMETERS {
            found.insert(format!("{file}: {name} has more than {MOST_PARAMETERS} parameters"));
        }
    }
}

/// The name of the function that begins on this line.
fn function(line: &str) -> Option<&str> {
    let (before, rest) = line.split_once("fn ")?;
    let is_prefix =
        |word| ["pub", "crate", "super", "const", "async", "unsafe", "extern"].contains(&word);
    words(before).all(is_prefix).then(|| words(rest).next()).flatten()
}

/// How many parameters the first function of the text has, `self` among them.
fn parameters(text: &str) -> usize {
    let text = &text[text.find("fn ").map_or(0, |at| at + 3)..];
    let (mut angles, mut depth, mut count, mut is_empty) = (0_i32, 0_i32, 0, true);
    let mut last = ' ';
    for c in text.chars() {
        match c {
            '<' => angles += 1,
            '>' if last != '-' && last != '=' => angles -= 1,
            '(' | '[' | '{' if depth > 0 || angles == 0 => depth += 1,
            ')' | ']' | '}' if depth > 0 => {
                depth -= 1;
                if depth == 0 {
                    break;
                }
            }
            ',' if depth == 1 && angles == 0 => {
                count += usize::from(!is_empty);
                is_empty = true;
            }
            c if depth > 0 && !c.is_whitespace() => is_empty = false,
            _ => {}
        }
        last = c;
    }
    count + usize::from(!is_empty)
}

/// Types with inherent `impl` blocks in too many files. `Builder` has a file a topic.
fn spread_impls(code: &Files, found: &mut BTreeSet<String>) {
    let mut homes: BTreeMap<(String, &str), BTreeSet<&String>> = BTreeMap::new();
    for (file, text) in code {
        for line in text.lines().filter(|line| line.starts_with("impl")) {
            let name = implemented(line).filter(|name| *name != "Builder");
            // Types of one name in different layers are different types.
            let top = file.split("::").next().unwrap_or_default().to_owned();
            if let Some(name) = name {
                homes.entry((top, name)).or_default().insert(file);
            }
        }
    }
    for ((top, name), files) in homes {
        if files.len() > MOST_IMPL_FILES {
            found.insert(format!("{top}: {name} has impl blocks in {} files", files.len()));
        }
    }
}

/// Types with too many methods or fields. Types of one name in a layer are one type.
fn large_types(code: &Files, found: &mut BTreeSet<String>) {
    let mut methods: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    let mut fields = methods.clone();
    for (file, text) in code {
        let top = file.split("::").next().unwrap_or_default();
        for block in blocks(text) {
            if let Some(name) = implemented(block[0]) {
                *methods.entry((top, name)).or_default() += block.iter().filter(is_method).count();
            }
            if let Some(("struct", name)) = declared(block[0]) {
                let all: Vec<&str> = block.iter().filter_map(|line| field(line)).collect();
                if !all.iter().all(|line| line.starts_with("pub ")) {
                    fields.insert((top, name), all.len());
                }
            }
        }
    }
    let limits = |of: (&str, &str)| {
        let large = LARGE_TYPES.iter().find(|large| (large.0, large.1) == of);
        large.map_or((MOST_METHODS, MOST_FIELDS), |large| (large.2, large.3))
    };
    for ((top, name), count) in methods {
        if count > limits((top, name)).0 {
            found.insert(format!("{top}: {name} has {count} methods"));
        }
    }
    for ((top, name), count) in fields {
        if count > limits((top, name)).1 {
            found.insert(format!("{top}: {name} has {count} fields"));
        }
    }
}

/// The items with a body, each from its first line to its last.
fn blocks(text: &str) -> Vec<Vec<&str>> {
    let lines: Vec<&str> = text.lines().collect();
    let starts = |line: &&str| line.starts_with("impl") || declared(line).is_some();
    let block = |(i, line): (usize, &&str)| {
        let end = lines[i..].iter().position(|line| *line == "}").filter(|_| starts(line))?;
        Some(lines[i..=i + end].to_vec())
    };
    lines.iter().enumerate().filter_map(block).collect()
}

fn is_method(line: &&&str) -> bool {
    line.len() - line.trim_start().len() == 4 && function(line).is_some()
}

/// The line of a field, from its visibility on.
fn field(line: &str) -> Option<&str> {
    let field = line.strip_prefix("    ").filter(|rest| !rest.starts_with([' ', '#', '}']))?;
    let (name, _) = field.split_once(": ")?;
    words(name).last().filter(|word| name.ends_with(*word) && *word != "where")?;
    // Of a `where` clause: a type parameter is in upper case.
    Some(field).filter(|_| !name.starts_with(|c: char| c.is_uppercase()))
}

/// The kind and the name of the type that is declared on this line.
fn declared(line: &str) -> Option<(&str, &str)> {
    let mut words = words(line).skip_while(|word| ["pub", "crate", "super", "in"].contains(word));
    let kind = words.next().filter(|word| ["struct", "enum", "trait", "union"].contains(word))?;
    Some((kind, words.next()?))
}

/// The files below the API with a type parameter that is a runner.
fn generic_over_runner(code: &Files) -> Vec<String> {
    let is_generic = |text: &str| {
        text.match_indices(": Runner").any(|(i, bound)| {
            !text[i + bound.len()..].starts_with(|c: char| c.is_alphanumeric() || c == '_')
        })
    };
    let below = code
        .iter()
        .filter(|(file, _)| !file.split("::").next().is_some_and(|top| OF_RUNNERS.contains(&top)));
    below.filter(|(_, text)| is_generic(text)).map(|(file, _)| file.clone()).collect()
}

/// The names of types that are declared in more than one file, with those files.
fn shared_names(code: &Files) -> Vec<String> {
    let mut homes: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for (file, text) in code {
        for (_, name) in text.lines().map(str::trim_start).filter_map(declared) {
            homes.entry(name).or_default().insert(file);
        }
    }
    let shared = homes.into_iter().filter(|(_, files)| files.len() > 1);
    shared.map(|(name, files)| format!("{name}: {}", Vec::from_iter(files).join(", "))).collect()
}

/// The type of an inherent `impl` block; `None` for one of a trait.
fn implemented(line: &str) -> Option<&str> {
    let mut rest = line.strip_prefix("impl")?;
    if rest.starts_with('<') {
        let mut depth = 0;
        let mut last = ' ';
        let end = rest.char_indices().find(|(_, c)| {
            depth += match c {
                '<' => 1,
                '>' if last != '-' => -1,
                _ => 0,
            };
            last = *c;
            depth == 0
        });
        rest = &rest[end?.0 + 1..];
    }
    let is_trait = rest.contains(" for ") && !rest.trim_start().starts_with("for<");
    if is_trait { None } else { words(rest).next() }
}

mod checks {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files = files.iter().map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        violations(&files.collect()).into_iter().collect()
    }

    #[test]
    fn an_import_may_run_down_and_not_up() {
        let engine = ("engine::run", "use crate::base::Order;\n");
        assert_eq!(found(&[engine, ("base", "pub struct Order;\n")]), [""; 0]);
        let up = ["base imports engine::run, which is above it"];
        for text in [
            "use crate::engine::run::Run;\n",
            "use crate::engine::{\n    run::{Run, Shape},\n};\n",
            "fn f() -> u8 {\n    crate::engine::run::f()\n}\n",
        ] {
            assert_eq!(found(&[("engine::run", ""), ("base", text)]), up, "{text}");
        }
    }

    #[test]
    fn crates_are_below_the_library() {
        let cfg = ("gangline_config", "mod tree;\npub struct CfgNode;\n");
        let tree = ("gangline_config::tree", "use crate::CfgNode;\n");
        let root = ("", "pub(crate) use gangline_config as cfg;\n");
        let base = ("base", "use crate::cfg::CfgNode;\n");
        assert_eq!(found(&[root, base, cfg, tree]), [""; 0]);
        let circle = ("gangline_config", "use self::tree::Tree;\npub struct CfgNode;\n");
        assert_eq!(
            found(&[root, base, circle, tree]),
            ["circle: gangline_config, gangline_config::tree"]
        );
    }

    #[test]
    fn a_name_that_is_passed_on_comes_from_where_it_is_defined() {
        let files = [
            ("base", "pub use self::hook::Hook;\n"),
            ("base::hook", "pub enum Hook {}\n"),
            ("error", "pub use crate::base::Hook;\n"),
            ("device", "use crate::error::Hook;\n"),
        ];
        assert_eq!(found(&files), [""; 0]);
    }

    #[test]
    fn comments_texts_and_tests_import_nothing() {
        let text = "// use crate::api::Pool;\nconst A: &str = \"\nuse crate::api::Pool;\n\";\n\
                    const B: &str = r#\"\nuse crate::api::Pool;\n\"#;\nconst C: char = '\"';\n\
                    #[cfg(test)]\nmod tests {\n    use crate::api::Pool;\n}\n";
        assert_eq!(found(&[("api", ""), ("base", text)]), [""; 0]);
        let files =
            [("api", ""), ("base", "#[cfg(test)]\nmod t;\n"), ("base::t", "use crate::api::A;\n")];
        assert_eq!(found(&files), [""; 0]);
        let behind = "#[cfg(test)]\nmod tests {}\nuse crate::api::Pool;\n";
        assert_eq!(found(&[("api", ""), ("base", behind)]).len(), 1);
    }

    #[test]
    fn a_circle_is_found_however_long() {
        let files = [
            ("base::a", "use super::b::B;\n"),
            ("base::b", "use super::c::C;\n"),
            ("base::c", "use crate::base::a::A;\n"),
            ("base::d", "use super::a::A;\n"),
        ];
        assert_eq!(found(&files), ["circle: base::a, base::b, base::c"]);
        assert_eq!(found(&files[1..]), [""; 0]);
    }

    #[test]
    fn lengths_are_counted() {
        let lines = |n: usize| "    x();\n".repeat(n);
        let function = |n| format!("pub(crate) fn long() {{\n{}}}\n", lines(n));
        assert_eq!(found(&[("base", &function(58))]), [""; 0]);
        assert_eq!(found(&[("base", &function(59))]), ["base: long has more than 60 lines"]);
        assert_eq!(found(&[("base", &lines(501))]), ["base has more than 500 lines"]);
    }

    #[test]
    fn parameters_are_counted() {
        assert_eq!(parameters("fn f() {}"), 0);
        assert_eq!(parameters("fn f<A: Fn(u8, u8) -> u8, B>(a: A, b: Map<B, (u8, u8)>) {}"), 2);
        assert_eq!(parameters("fn f(\n    &self,\n    f: impl Fn(u8, u8) -> u8,\n) {}"), 2);
        let seven = "fn f(a: u8, b: u8, c: u8, d: u8, e: u8, f: u8, g: u8) {}\n";
        assert_eq!(found(&[("base", seven)]), ["base: f has more than 6 parameters"]);
    }

    #[test]
    fn methods_and_fields_are_counted() {
        let methods =
            |n: usize| "    pub(super) fn f<T>(&self) {\n        fn g() {}\n    }\n".repeat(n);
        let block = |n| format!("impl<T> Part<T> {{\n{}}}\n", methods(n));
        let trait_block = |n| format!("impl<T> Of<u8> for Part<T> {{\n{}}}\n", methods(n));
        assert_eq!(found(&[("base", &(block(40) + &trait_block(9)))]), [""; 0]);
        let both = [("base::a", &*block(20)), ("base::b", &*block(21))];
        assert_eq!(found(&both), ["base: Part has 41 methods"]);
        let fields = |first: &str, n: usize| {
            let rest = "    #[a(b: c)]\n    pub a: Map<\n        B: C,\n    >,\n".repeat(n - 1);
            format!("pub struct Part<T>\nwhere\n    T: Of,\n{{\n    {first}a: u8,\n{rest}}}\n")
        };
        assert_eq!(found(&[("base", &fields("", 15))]), [""; 0]);
        assert_eq!(found(&[("base", &fields("", 16))]), ["base: Part has 16 fields"]);
        assert_eq!(found(&[("base", &fields("pub(crate) ", 16))]).len(), 1);
        assert_eq!(found(&[("base", &fields("pub ", 16))]), [""; 0], "plain data");
    }

    #[test]
    fn type_parameters_are_found_that_are_runners() {
        let files = [
            ("engine::a", "struct A<R: Runner>(R);\n"),
            ("engine::b", "fn b<R>()\nwhere\n    R: Runner<Input = u8> + 'static,\n{\n}\n"),
            ("engine::c", "impl Runner for C {}\nfn c(r: RunnerName) {}\n// R: Runner\n"),
            ("api::d", "struct D<R: Runner>(R);\n"),
        ];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(generic_over_runner(&code(&Files::from(files))), ["engine::a", "engine::b"]);
    }

    #[test]
    fn names_are_counted_by_file() {
        let files = [("base::a", "struct A;\nenum B {}\n"), ("run", "    pub trait A {}\n")];
        let files = files.map(|(name, text)| (name.to_owned(), text.to_owned()));
        assert_eq!(shared_names(&Files::from(files)), ["A: base::a, run"]);
    }

    #[test]
    fn impl_blocks_are_counted_by_file() {
        let block = "impl<T: Into<u8>> Run<T> {}\nimpl Clone for Run<u8> {}\n";
        let files = [("engine::a", block), ("engine::b", block), ("engine::c", block)];
        assert_eq!(found(&files), ["engine: Run has impl blocks in 3 files"]);
        assert_eq!(found(&files[1..]), [""; 0]);
        let builders = block.replace("Run<T>", "Builder<T>");
        let files = ["engine::a", "engine::b", "engine::c"].map(|file| (file, builders.as_str()));
        assert_eq!(found(&files), [""; 0]);
    }
}

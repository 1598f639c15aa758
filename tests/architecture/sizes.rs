//! Lengths, counts and names.

use std::collections::{BTreeMap, BTreeSet};

use crate::source::{Files, words};
use crate::{
    LARGE_TYPES, MOST_FIELDS, MOST_FUNCTION_LINES, MOST_IMPL_FILES, MOST_LINES, MOST_METHODS,
    MOST_PARAMETERS, OF_RUNNERS,
};

/// Files, functions and parameter lists that are too long. `text` has neither comments nor tests.
pub fn sizes(file: &str, text: &str, found: &mut BTreeSet<String>) {
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
pub fn parameters(text: &str) -> usize {
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
pub fn spread_impls(code: &Files, found: &mut BTreeSet<String>) {
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
pub fn large_types(code: &Files, found: &mut BTreeSet<String>) {
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
pub fn generic_over_runner(code: &Files) -> Vec<String> {
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
pub fn shared_names(code: &Files) -> Vec<String> {
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

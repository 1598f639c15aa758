//! Reads the library with its crates and checks what docs/architecture.md promises of them. Imports run down the layers,
//! and no files import each other in a circle. Files, functions and parameter lists stay short, and types small. Each name
//! stands for one type. Only what calls a hook knows the runner.
//!
//! It reads text, not syntax trees: comments, strings and tests are blanked first, and the code is as rustfmt
//! leaves it.

#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

mod checks;
mod imports;
mod sizes;
mod source;
mod waits;

use std::collections::BTreeSet;

use crate::imports::{circles, imports, layer};
use crate::sizes::{generic_over_runner, large_types, shared_names, sizes, spread_impls};
use crate::source::{Files, code, files_of};

/// The layers, from the top. A file imports from its own layer and those after it.
const LAYERS: &[&[&str]] = &[
    &["gangline_nats"],
    &["api", "backend", "testing"],
    &["engine"],
    &["backends"],
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
    &["gangline_report"],
    &["gangline_config"],
    &["gangline_scheduler"],
];

/// The crates in which layers are, with their folders.
const CRATES: &[(&str, &str)] = &[
    ("", "src"),
    ("gangline_config", "crates/gangline-config/src"),
    ("gangline_nats", "crates/gangline-nats/src"),
    ("gangline_report", "crates/gangline-report/src"),
    ("gangline_scheduler", "crates/gangline-scheduler/src"),
];

/// No part of the layers: the program, and what only documents.
const OUTSIDE: &[&str] = &["", "cli", "compile_fail", "guide"];

/// The program, whose lengths, circles and names of types count too.
const PROGRAM: (&str, &str) = ("gangline_cli", "crates/gangline-cli/src");

/// The one circle of the program: the command line is made of its subcommands, which read parts of it.
const OF_COMMAND_LINE: &str = "gangline_cli::args";

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
    ("api", "Builder", 52, 27),
    // Plain data but for fields that conclusions alone need.
    ("gangline_report", "RunReport", 40, 56),
];

/// A file of fewer lines is small.
const SMALL: usize = 50;

const MOST_SMALL_FILES: usize = 40;

/// Below the API, only what calls a hook or makes a runner is generic over it: the rest would be compiled again for
/// each further runner of a program.
const MOST_GENERIC_FILES: usize = 10;

/// The folders that may name a runner: the trait's own, what users hold, and tests.
const OF_RUNNERS: &[&str] = &["api", "gangline_nats", "runner", "testing"];

/// Names that types in several files share, and why. Every other type has a name of its own.
const SHARED_NAMES: &[(&str, &str)] = &[
    ("Call", "public: a call of a service; a call that a test records"),
    ("CpuPool", "the feature `rayon` chooses between the two"),
    ("Inbox", "the model replaces the deque"),
    ("Reader", "the model replaces the ring"),
    ("Sealed", "the usual name of a trait that seals another"),
    ("Stealer", "the model replaces the deque"),
    ("Writer", "public: of a sink; and of the ring, which the model replaces"),
];

#[test]
fn the_source_keeps_to_the_architecture() {
    let mut found = violations(&files_of(CRATES));
    let program = code(&files_of([&PROGRAM]));
    for (file, text) in &program {
        sizes(file, text, &mut found);
    }
    let circles = circles(&imports(&program));
    let others = circles.iter().filter(|files| !files.contains(&OF_COMMAND_LINE.to_owned()));
    found.extend(others.map(|files| format!("circle: {}", files.join(", "))));
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

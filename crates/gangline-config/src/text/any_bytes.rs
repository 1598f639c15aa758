//! Configurations of any bytes: for the fuzzer, and for tests that make bytes up.

use config::{Value, ValueKind};

use super::TextFormat;
use super::env::split_assignment;
use crate::CfgNode;
use crate::error::{CfgError, MAX_DEPTH};
use crate::path::Path;
use crate::segment::join;
use crate::tree;

const FILE: &str = "some-file";

const FORMATS: [TextFormat; 3] = [TextFormat::Yaml, TextFormat::Toml, TextFormat::Json];

/// Reads any bytes as a configuration, as assignments and as variables of the environment, and checks that what
/// is made of them holds together.
///
/// The first byte says as which of these.
///
/// # Panics
///
/// If it does not.
#[cfg_attr(not(fuzzing), expect(unreachable_pub, reason = "the fuzzer alone reaches it"))]
pub fn read_any_bytes(bytes: &[u8]) {
    let [which, text @ ..] = bytes else { return };
    let Ok(text) = str::from_utf8(text) else { return };
    match FORMATS.get(usize::from(*which % 5)) {
        Some(format) => check_text(*format, text),
        None if which % 5 == 3 => {
            let mut cfg = sample();
            text.lines().for_each(|assignment| check_assignment(&mut cfg, assignment));
        }
        None => check_variables(text),
    }
}

fn check_text(format: TextFormat, text: &str) {
    let read = || format.parse(text, Some(FILE));
    let root = match read() {
        Ok(root) => root,
        Err(error) => {
            let shown = error.to_string();
            assert!(shown.contains(FILE), "the error says which file it is about: {shown}");
            assert_eq!(read().expect_err("it was one").to_string(), shown);
            return;
        }
    };
    assert!(tree::same(&root, &read().expect("it was read before")), "read twice");
    check_tree(&root);
}

fn check_tree(root: &Value) {
    let paths = paths(root, "", MAX_DEPTH);
    for (path, value) in &paths {
        let found = Path::parse(path).and_then(|path| path.find(root));
        let found = found.unwrap_or_else(|error| panic!("a key has no path: {error}"));
        assert!(found.is_some_and(|found| std::ptr::eq(found, *value)), "{path:?}");
    }
    for format in FORMATS {
        let text = match format.write(root) {
            Ok(text) => text,
            Err(CfgError::Unsupported { path, .. }) => {
                assert!(paths.iter().any(|(known, _)| *known == path), "{path:?} is named");
                continue;
            }
            Err(error) => panic!("{format:?}: {error}"),
        };
        match format.parse(&text, None) {
            Ok(again) => assert!(tree::same(root, &again), "{format:?} changed it: {text}"),
            // It was nearly as large before, and is indented now.
            Err(CfgError::TooLarge { .. }) => {}
            Err(error) => panic!("{format:?}: {error} in {text}"),
        }
    }
    let mut merged = root.clone();
    tree::merge(&mut merged, root);
    assert!(tree::same(&merged, root), "merged with itself it is the same");
}

/// All values by their paths.
fn paths<'v>(value: &'v Value, path: &str, room: usize) -> Vec<(String, &'v Value)> {
    let children: Vec<(String, &Value)> = match &value.kind {
        ValueKind::Table(table) => table.iter().map(|(key, v)| (join(path, key), v)).collect(),
        ValueKind::Array(list) => {
            list.iter().enumerate().map(|(i, v)| (join(path, &i.to_string()), v)).collect()
        }
        _ => return Vec::new(),
    };
    let room = room.checked_sub(1).expect("it is not nested more deeply than allowed");
    let inner = |(path, value): (String, &'v Value)| {
        let mut all = paths(value, &path, room);
        all.push((path, value));
        all
    };
    children.into_iter().flat_map(inner).collect()
}

fn sample() -> CfgNode {
    let text = "model: {name: x, layers: [1, {size: 2}]}\nlr: 0.1\nMODEL-2: null";
    CfgNode::from_yaml_str(text).expect("it is YAML")
}

/// An assignment is all of the change, or none.
fn check_assignment(cfg: &mut CfgNode, assignment: &str) {
    let before = cfg.clone();
    match cfg.apply(assignment) {
        Ok(()) => {
            let (path, _) = split_assignment(assignment).expect("it was applied");
            assert!(cfg.contains(path), "{path:?} was set");
            check_tree(&cfg.root);
            let mut without = cfg.clone();
            assert!(matches!(without.remove(path), Ok(true)), "{path:?} can be removed");
        }
        Err(error) => {
            assert!(!error.to_string().is_empty());
            assert_eq!(*cfg, before, "an assignment that is refused changes nothing");
        }
    }
}

fn check_variables(text: &str) {
    let pairs = || text.lines().filter_map(|line| line.split_once('='));
    let read = || sample().with_env_pairs("A", pairs());
    match read() {
        Ok(cfg) => {
            check_tree(&cfg.root);
            assert_eq!(read().expect("it was read before"), cfg, "read twice");
            let is_meant = pairs().any(|(name, _)| name.starts_with("A__"));
            assert!(is_meant || cfg == sample(), "other variables are ignored");
        }
        Err(error) => {
            let shown = error.to_string();
            let is_named = pairs().any(|(name, _)| shown.contains(name));
            let has_no_variable = matches!(
                error,
                CfgError::Key { .. }
                    | CfgError::TooDeep { .. }
                    | CfgError::Path { .. }
                    | CfgError::Through { .. }
            );
            assert!(is_named || has_no_variable, "the variable is named: {shown}");
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn any_bytes_are_a_configuration_or_an_error_that_names_it(bytes in vec(any::<u8>(), 0..60)) {
            read_any_bytes(&bytes);
        }

        /// Made of what configurations are made of.
        #[test]
        fn configurations_that_were_made_up_hold_together(
            which in 0_u8..5,
            parts in vec(prop::sample::select(vec![
                "{", "}", "[", "]", ":", ": ", ",", "\n", "\n  ", "- ", "=", " = ", ".", "\"", "'", "&a ", "*a", "<<",
                "? ", "| ", "#", "!!str ", "A__", "__", "model", "layers", "lr", "MODEL", "name", "0", "1", "1.5",
                "-0.0", "1e400", ".inf", ".nan", "nan", "null", "~", "true", "yes", "007", "0x1f", "0o7",
                "18446744073709551615", "18446744073709551616", "1979-05-27", "\\u0007", "\\n", "\u{feff}", "é",
            ]), 0..16),
        ) {
            read_any_bytes(&[&[which], parts.concat().as_bytes()].concat());
        }
    }
}

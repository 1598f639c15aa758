//! The environment, and assignments from a command line, over a tree.

use std::collections::BTreeMap;
use std::ffi::OsString;

use config::{Value, ValueKind};

use super::parse_value;
use crate::error::CfgError;
use crate::path::Path;
use crate::segment::{first, join};

/// Separates the segments of a path in the name of a variable.
const SEPARATOR: &str = "__";

/// Sets the values of all variables with names that start with `prefix` and `__`.
pub(super) fn overlay(
    root: &mut Value,
    prefix: &str,
    pairs: impl Iterator<Item = (OsString, OsString)>,
) -> Result<(), CfgError> {
    let variables = select(prefix, pairs)?;
    for (path, (name, text)) in resolve(root, prefix, variables)? {
        let origin = format!("the environment variable {name}");
        let value = parse_value(&text, &origin, &path)?;
        Path::parse(&path)?.put(root, value)?;
    }
    Ok(())
}

/// Splits `model.lr = 0.1` at the first `=` outside of quoted segments, and removes the white space around it.
pub(super) fn split_assignment(text: &str) -> Result<(&str, &str), CfgError> {
    let end = end_of_path(text.trim_start());
    let (path, value) = end
        .map(|end| text.trim_start().split_at(end))
        .ok_or_else(|| CfgError::Assignment { text: text.to_owned() })?;
    Ok((path.trim(), value[1..].trim()))
}

/// Where the `=` behind the path is.
fn end_of_path(text: &str) -> Option<usize> {
    let mut path = text;
    loop {
        // A space may stand between a quoted segment and the `=`.
        let (_, behind) = first(path, &['.', '=', ' ']);
        match behind.trim_start_matches(' ').chars().next()? {
            '=' => return Some(text.len() - behind.trim_start_matches(' ').len()),
            '.' if behind.starts_with('.') => path = &behind[1..],
            // A space inside of a segment.
            _ => path = behind.trim_start_matches(' '),
        }
    }
}

/// A variable: its name and its text.
type Variable = (String, String);

fn select(
    prefix: &str,
    pairs: impl Iterator<Item = (OsString, OsString)>,
) -> Result<Vec<Variable>, CfgError> {
    let prefix = format!("{prefix}{SEPARATOR}");
    pairs
        .filter(|(name, _)| name.as_encoded_bytes().starts_with(prefix.as_bytes()))
        .map(|(name, text)| match (name.into_string(), text.into_string()) {
            (Ok(name), Ok(text)) => Ok((name, text)),
            (Ok(name), Err(_)) => Err(CfgError::EnvNotUnicode { name: name.into() }),
            (Err(name), _) => Err(CfgError::EnvNotUnicode { name }),
        })
        .collect()
}

/// The variables by the path that each sets. All names are looked up before anything is set, and
/// a node comes before what is inside it.
fn resolve(
    root: &Value,
    prefix: &str,
    variables: Vec<Variable>,
) -> Result<BTreeMap<String, Variable>, CfgError> {
    let mut resolved: BTreeMap<String, Variable> = BTreeMap::new();
    for (name, text) in variables {
        let wanted = fold(&name[prefix.len() + SEPARATOR.len()..]);
        let mut paths = Vec::new();
        find(root, &wanted, "", &mut paths);
        let path = match paths.as_slice() {
            [] => return Err(CfgError::EnvUnknown { name }),
            [_] => paths.remove(0),
            _ => return Err(CfgError::EnvAmbiguous { names: vec![name], paths }),
        };
        if let Some((other, _)) = resolved.get(&path) {
            let names = vec![other.clone(), name];
            return Err(CfgError::EnvAmbiguous { names, paths: vec![path] });
        }
        resolved.insert(path, (name, text));
    }
    Ok(resolved)
}

/// Collects the paths under `value` that `wanted` may mean. Keys may hold the separator
/// themselves, so every way of splitting is tried.
fn find(value: &Value, wanted: &str, path: &str, paths: &mut Vec<String>) {
    for (key, child) in children(value) {
        let Some(rest) = wanted.strip_prefix(&fold(&key)) else { continue };
        let path = join(path, &key);
        if rest.is_empty() {
            paths.push(path);
        } else if let Some(rest) = rest.strip_prefix(SEPARATOR) {
            find(child, rest, &path, paths);
        }
    }
}

fn children(value: &Value) -> Vec<(String, &Value)> {
    match &value.kind {
        ValueKind::Table(table) => table.iter().map(|(key, value)| (key.clone(), value)).collect(),
        ValueKind::Array(list) => {
            list.iter().enumerate().map(|(i, value)| (i.to_string(), value)).collect()
        }
        _ => Vec::new(),
    }
}

/// A name without case. Shells allow no `-` and no dot in the name of a variable.
fn fold(name: &str) -> String {
    name.to_lowercase().replace(['-', '.'], "_")
}

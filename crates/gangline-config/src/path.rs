//! Dotted paths: `model.layers.0.size`.

use std::borrow::Cow;

use config::{Value, ValueKind};

use super::error::{CfgError, MAX_DEPTH, PathProblem};
use super::segment::{join, segments};
use super::tree::{Table, describe, segment_problem};

/// A path that names something: no segment is empty.
#[derive(Debug)]
pub(super) struct Path<'p> {
    text: &'p str,
    segments: Vec<Cow<'p, str>>,
}

impl<'p> Path<'p> {
    pub(super) fn parse(text: &'p str) -> Result<Self, CfgError> {
        let invalid = |problem| CfgError::Path { path: text.to_owned(), problem };
        if text.is_empty() {
            return Err(invalid(PathProblem::Empty));
        }
        let segments = segments(text);
        if let Some(problem) = segments.iter().find_map(|segment| segment_problem(segment)) {
            return Err(invalid(problem));
        }
        if segments.len() > MAX_DEPTH {
            let path = joined(&segments[..MAX_DEPTH]);
            return Err(CfgError::TooDeep { path, origin: None });
        }
        Ok(Path { text, segments })
    }

    pub(super) fn as_str(&self) -> &'p str {
        self.text
    }

    /// How deeply a value at this path may be nested.
    pub(super) fn room(&self) -> usize {
        MAX_DEPTH - self.segments.len()
    }

    /// The value at the path, `None` when there is none.
    pub(super) fn find<'v>(&self, root: &'v Value) -> Result<Option<&'v Value>, CfgError> {
        let mut value = root;
        for (i, segment) in self.segments.iter().enumerate() {
            let child = match &value.kind {
                ValueKind::Table(table) => table.get(&**segment),
                ValueKind::Array(list) => match index(segment) {
                    Some(index) => list.get(index),
                    None => return Err(self.through(i, value)),
                },
                _ => return Err(self.through(i, value)),
            };
            let Some(child) = child else { return Ok(None) };
            value = child;
        }
        Ok(Some(value))
    }

    /// Puts `new` at the path. Nodes that are not there are made.
    pub(super) fn put(&self, root: &mut Value, new: Value) -> Result<(), CfgError> {
        let (last, parents) = self.segments.split_last().expect("a path has a segment");
        let mut value = root;
        for (i, segment) in parents.iter().enumerate() {
            value = self.child(i, value, segment)?;
        }
        let depth = parents.len();
        if let ValueKind::Table(table) = &mut value.kind {
            table.insert(last.to_string(), new);
        } else {
            *self.element(depth, value, last)? = new;
        }
        Ok(())
    }

    /// Takes out the value at the path, `None` when there is none.
    pub(super) fn take(&self, root: &mut Value) -> Result<Option<Value>, CfgError> {
        if self.find(root)?.is_none() {
            return Ok(None);
        }
        let (last, parents) = self.segments.split_last().expect("a path has a segment");
        let mut value = root;
        for (i, segment) in parents.iter().enumerate() {
            value = self.child(i, value, segment)?;
        }
        Ok(match &mut value.kind {
            ValueKind::Table(table) => table.shift_remove(&**last),
            ValueKind::Array(list) => index(last).map(|index| list.remove(index)),
            _ => None,
        })
    }

    fn child<'v>(
        &self,
        depth: usize,
        value: &'v mut Value,
        segment: &str,
    ) -> Result<&'v mut Value, CfgError> {
        if !matches!(value.kind, ValueKind::Table(_)) {
            return self.element(depth, value, segment);
        }
        let ValueKind::Table(table) = &mut value.kind else { unreachable!("it is a table") };
        Ok(table.entry(segment.to_owned()).or_insert_with(|| Value::new(None, Table::new())))
    }

    fn element<'v>(
        &self,
        depth: usize,
        value: &'v mut Value,
        segment: &str,
    ) -> Result<&'v mut Value, CfgError> {
        let (ValueKind::Array(_), Some(index)) = (&value.kind, index(segment)) else {
            return Err(self.through(depth, value));
        };
        let ValueKind::Array(list) = &mut value.kind else { unreachable!("it is a list") };
        let problem = PathProblem::Index { len: list.len() };
        list.get_mut(index).ok_or_else(|| CfgError::Path { path: self.text.to_owned(), problem })
    }

    fn through(&self, depth: usize, value: &Value) -> CfgError {
        CfgError::Through {
            path: self.text.to_owned(),
            at: joined(&self.segments[..depth]),
            origin: value.origin().map(str::to_owned),
            found: describe(value),
        }
    }
}

fn joined(segments: &[Cow<'_, str>]) -> String {
    segments.iter().fold(String::new(), |path, segment| join(&path, segment))
}

fn index(segment: &str) -> Option<usize> {
    let is_number = segment.bytes().all(|b| b.is_ascii_digit());
    // No list is as long as a number that is too large.
    is_number.then(|| segment.parse().unwrap_or(usize::MAX))
}

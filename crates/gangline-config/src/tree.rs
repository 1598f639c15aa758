//! The tree inside a configuration: `config`'s own values, which remember where they came from.

use std::fmt;

use config::{Map, Value, ValueKind};

use super::error::{CfgError, MAX_DEPTH, PathProblem};
use super::segment::join;

pub(super) type Table = Map<String, Value>;

/// What makes a value unfit for a tree, found somewhere inside it.
#[derive(Debug)]
pub(super) struct TreeFault {
    /// Where, from the inside out.
    steps: Vec<String>,
    kind: FaultKind,
}

#[derive(Debug)]
pub(super) enum FaultKind {
    Key(String, PathProblem),
    TooDeep,
    /// What a `Serialize` or a `Deserialize` said.
    Said(String),
}

impl TreeFault {
    pub(super) fn new(kind: FaultKind) -> Self {
        TreeFault { steps: Vec::new(), kind }
    }

    /// Returns the fault as seen from the node that has it under `step`.
    pub(super) fn under(mut self, step: impl fmt::Display) -> Self {
        self.steps.push(step.to_string());
        self
    }

    /// The error for a fault in the value at `path`.
    pub(super) fn at(self, path: &str, origin: Option<&str>) -> CfgError {
        let path = self.steps.iter().rev().fold(path.to_owned(), |path, step| join(&path, step));
        let origin = origin.map(str::to_owned);
        match self.kind {
            FaultKind::Key(key, problem) => CfgError::Key { path, key, origin, problem },
            FaultKind::TooDeep => CfgError::TooDeep { path, origin },
            kind => CfgError::Value { path, origin, source: kind.to_string().into() },
        }
    }
}

impl fmt::Display for FaultKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            FaultKind::Key(key, problem) => write!(f, "the key {key:?} is refused: {problem}"),
            FaultKind::TooDeep => write!(f, "more than {MAX_DEPTH} levels of nesting"),
            FaultKind::Said(text) => f.write_str(text),
        }
    }
}

impl fmt::Display for TreeFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.kind.fmt(f)
    }
}

impl std::error::Error for TreeFault {}

/// An integer as the tree holds it: of the first type of `I64`, `U64`, `I128` and `U128` that it fits, so that equal
/// numbers are equal values.
pub(super) fn integer<N: Copy>(n: N) -> ValueKind
where
    i64: TryFrom<N>,
    u64: TryFrom<N>,
    i128: TryFrom<N>,
    u128: TryFrom<N>,
{
    let narrow =
        i64::try_from(n).map(ValueKind::I64).or_else(|_| u64::try_from(n).map(ValueKind::U64));
    let wide = narrow.or_else(|_| i128::try_from(n).map(ValueKind::I128));
    let widest = wide.or_else(|_| u128::try_from(n).map(ValueKind::U128));
    widest.unwrap_or_else(|_| unreachable!("no integer is wider"))
}

/// Checks keys, depth and integers of what was parsed outside this module.
pub(super) fn adopt(value: Value, room: usize) -> Result<Value, TreeFault> {
    let origin = value.origin().map(str::to_owned);
    let kind = match value.kind {
        ValueKind::I128(n) => integer(n),
        ValueKind::U128(n) => integer(n),
        ValueKind::U64(n) => integer(n),
        ValueKind::Array(list) => {
            let room = inner(room)?;
            let elements = list.into_iter().enumerate();
            let adopted = elements.map(|(i, v)| adopt(v, room).map_err(|fault| fault.under(i)));
            ValueKind::Array(adopted.collect::<Result<_, _>>()?)
        }
        ValueKind::Table(table) => {
            let room = inner(room)?;
            let entries = table.into_iter();
            ValueKind::Table(
                entries.map(|entry| adopt_entry(entry, room)).collect::<Result<_, _>>()?,
            )
        }
        kind => kind,
    };
    Ok(Value::new(origin.as_ref(), kind))
}

fn adopt_entry((key, value): (String, Value), room: usize) -> Result<(String, Value), TreeFault> {
    check_key(&key)?;
    let value = adopt(value, room).map_err(|fault| fault.under(&key))?;
    Ok((key, value))
}

/// The room left inside a node or a list.
pub(super) fn inner(room: usize) -> Result<usize, TreeFault> {
    room.checked_sub(1).ok_or_else(|| TreeFault::new(FaultKind::TooDeep))
}

/// Whether two trees hold the same, wherever it came from and in whatever order the keys are.
///
/// Floats are the same when their bits are, so that `.nan` equals itself and a tree equals what
/// is loaded after it was saved.
pub(super) fn same(a: &Value, b: &Value) -> bool {
    match (&a.kind, &b.kind) {
        (ValueKind::Float(a), ValueKind::Float(b)) => {
            a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
        }
        (ValueKind::Array(a), ValueKind::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| same(a, b))
        }
        (ValueKind::Table(a), ValueKind::Table(b)) => {
            a.len() == b.len() && a.iter().all(|(k, a)| b.get(k).is_some_and(|b| same(a, b)))
        }
        (a, b) => a == b,
    }
}

/// Lays `right` over `left`: nodes are merged key by key, everything else is replaced.
pub(super) fn merge(left: &mut Value, right: &Value) {
    let origin = right.origin().or(left.origin()).map(str::to_owned);
    match (&mut left.kind, &right.kind) {
        (ValueKind::Table(under), ValueKind::Table(over)) => {
            for (key, value) in over {
                merge_entry(under, key, value);
            }
            let kind = std::mem::take(&mut left.kind);
            *left = Value::new(origin.as_ref(), kind);
        }
        _ => *left = right.clone(),
    }
}

fn merge_entry(under: &mut Table, key: &str, value: &Value) {
    match under.get_mut(key) {
        Some(left) => merge(left, value),
        None => {
            under.insert(key.to_owned(), value.clone());
        }
    }
}

/// What a value is, in words.
pub(super) fn describe(value: &Value) -> String {
    match &value.kind {
        ValueKind::Nil => "null".to_owned(),
        ValueKind::Boolean(b) => format!("the boolean {b}"),
        ValueKind::I64(_) | ValueKind::U64(_) | ValueKind::I128(_) | ValueKind::U128(_) => {
            format!("the number {}", value.kind)
        }
        ValueKind::Float(x) => format!("the number {x:?}"),
        ValueKind::String(text) => describe_text(text),
        ValueKind::Array(list) => format!("a list of {}", list.len()),
        ValueKind::Table(table) => format!("a node with {} keys", table.len()),
    }
}

fn describe_text(text: &str) -> String {
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("a text that starts with {:?}", &text[..end]),
        None => format!("the text {text:?}"),
    }
}

/// Refuses a key that a path could not name.
pub(super) fn check_key(key: &str) -> Result<(), TreeFault> {
    let problem = if key.is_empty() { Some(PathProblem::Empty) } else { segment_problem(key) };
    problem.map_or(Ok(()), |problem| Err(TreeFault::new(FaultKind::Key(key.to_owned(), problem))))
}

pub(super) fn segment_problem(segment: &str) -> Option<PathProblem> {
    if segment.is_empty() {
        return Some(PathProblem::EmptySegment);
    }
    has_index(segment).then_some(PathProblem::Brackets)
}

/// Whether a segment reads like `layers[0]`. Other brackets are ordinary characters.
fn has_index(segment: &str) -> bool {
    let Some((name, index)) = segment.strip_suffix(']').and_then(|s| s.rsplit_once('[')) else {
        return false;
    };
    !name.is_empty() && !index.is_empty() && index.bytes().all(|b| b.is_ascii_digit())
}

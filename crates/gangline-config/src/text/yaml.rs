//! Reads and writes YAML. Only this file and `entered.rs` use the parser.
//!
//! The tree is composed here, from the events of serde-saphyr's parser, and not by its
//! deserializer. That one recurses, with 36 KiB of stack a level in a debug build, so that 60 levels
//! end a thread of 2 MiB; and it takes `007` and large integers for floats.

use std::collections::HashMap;
use std::error::Error;
use std::fmt;

use config::{Map, Value, ValueKind};
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, ScanError, Tag};

use super::schema::Schema;
use crate::error::MAX_DEPTH;
use crate::scalar;
use crate::ser::Tree;
use crate::tree::{Table, describe};

/// How much aliases may add: each value counts 1 and each byte of a text or a key 1 more. It is
/// what the largest text without aliases can hold.
const MAX_COPIED: usize = 1 << 20;

/// YAML as one of `config`'s formats: its own fails on `.inf`, rounds large integers and keeps `<<`
/// as a key.
#[derive(Debug, Clone, Copy)]
pub(super) struct Yaml(pub(super) Schema);

impl config::Format for Yaml {
    fn parse(
        &self,
        uri: Option<&String>,
        text: &str,
    ) -> Result<Map<String, Value>, Box<dyn Error + Send + Sync>> {
        let top = compose(Composer { uri, schema: self.0, ..Composer::default() }, text)?;
        match top.kind {
            ValueKind::Table(table) => Ok(table),
            // Nothing but comments.
            ValueKind::Nil => Ok(Map::new()),
            _ => Err(format!("the top must be a node, not {}", describe(&top)).into()),
        }
    }
}

/// Any value in YAML's notation. Its keys are not checked for what paths need.
pub(super) fn parse(uri: Option<&String>, text: &str) -> Result<Value, Malformed> {
    compose(Composer { uri, ..Composer::default() }, text)
}

fn compose(mut composer: Composer<'_>, text: &str) -> Result<Value, Malformed> {
    for event in Parser::new_from_str(text) {
        let (event, span) = event?;
        composer.take(event).map_err(|problem| Malformed::new(problem, &span.start))?;
    }
    Ok(composer.top.unwrap_or_default())
}

pub(super) fn to_string(value: &Value) -> Result<String, Box<dyn Error + Send + Sync>> {
    Ok(serde_saphyr::to_string(&Tree(value))?)
}

/// Why a text is no YAML, and where.
#[derive(Debug)]
pub(super) struct Malformed {
    problem: String,
    line: usize,
    column: usize,
}

impl Malformed {
    fn new(problem: String, place: &Marker) -> Self {
        Malformed { problem, line: place.line(), column: place.col() + 1 }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at line {}, column {}", self.problem, self.line, self.column)
    }
}

impl Error for Malformed {}

impl From<ScanError> for Malformed {
    fn from(error: ScanError) -> Self {
        Malformed::new(error.info(), error.marker())
    }
}

/// A tree in the making. It never recurses, whatever the text.
#[derive(Default)]
struct Composer<'u> {
    uri: Option<&'u String>,
    schema: Schema,
    /// The lists and nodes that are not yet at their end, the outermost first.
    open: Vec<OpenCollection>,
    anchors: HashMap<usize, Anchored>,
    /// What aliases have added so far.
    copied: usize,
    documents: usize,
    top: Option<Value>,
}

/// A list or a node that is not yet at its end, and the number of its anchor, 0 for none.
struct OpenCollection {
    anchor: usize,
    kind: OpenKind,
}

enum OpenKind {
    List(Vec<Value>),
    Node(OpenNode),
}

#[derive(Default)]
struct OpenNode {
    table: Table,
    /// The key that the next value belongs to.
    key: Option<Key>,
    /// The values merged in by `<<`.
    merged: Option<Value>,
}

enum Key {
    Text(String),
    Merge,
}

/// What an alias stands for.
struct Anchored {
    value: Value,
    weight: usize,
    depth: usize,
}

impl Composer<'_> {
    fn take(&mut self, event: Event<'_>) -> Result<(), String> {
        match event {
            Event::DocumentStart(..) => self.start_document(),
            Event::Scalar(text, style, anchor, tag) => {
                self.scalar(&text, style, anchor, tag.as_deref())
            }
            Event::Alias(anchor) => self.alias(anchor),
            Event::SequenceStart(_, anchor, tag) => {
                self.open(anchor, tag.as_deref(), "seq", OpenKind::List(Vec::new()))
            }
            Event::MappingStart(_, anchor, tag) => {
                self.open(anchor, tag.as_deref(), "map", OpenKind::Node(OpenNode::default()))
            }
            Event::SequenceEnd | Event::MappingEnd => self.close(),
            _ => Ok(()),
        }
    }

    fn start_document(&mut self) -> Result<(), String> {
        self.documents += 1;
        if self.documents > 1 {
            return Err("a second document".to_owned());
        }
        Ok(())
    }

    fn scalar(
        &mut self,
        text: &str,
        style: ScalarStyle,
        anchor: usize,
        tag: Option<&Tag>,
    ) -> Result<(), String> {
        let plain = style == ScalarStyle::Plain && tag.is_none();
        let kind = match tag {
            None if plain => self.schema.resolve(text)?,
            None => text.into(),
            Some(tag) => tagged(text, tag)?,
        };
        let Some(node) = self.expects_key() else {
            let value = Value::new(self.uri, kind);
            self.define(anchor, &value);
            return self.push(value);
        };
        node.start_entry(match kind {
            ValueKind::Nil => return Err("a key cannot be null".to_owned()),
            _ if plain && text == "<<" => Key::Merge,
            _ => Key::Text(text.to_owned()),
        })?;
        self.define(anchor, &Value::new(self.uri, text));
        Ok(())
    }

    fn alias(&mut self, anchor: usize) -> Result<(), String> {
        let Some(anchored) = self.anchors.get(&anchor) else {
            return Err("an alias inside of what it stands for".to_owned());
        };
        self.copied = self.copied.saturating_add(anchored.weight);
        if self.copied > MAX_COPIED {
            return Err("the aliases stand for too much".to_owned());
        }
        if self.open.len() + anchored.depth > MAX_DEPTH {
            return Err(too_deep());
        }
        let value = anchored.value.clone();
        match (self.expects_key(), &value.kind) {
            (None, _) => self.push(value),
            (Some(node), ValueKind::String(key)) => node.start_entry(Key::Text(key.clone())),
            (Some(_), _) => Err(format!("a key must be a text, not {}", describe(&value))),
        }
    }

    fn open(
        &mut self,
        anchor: usize,
        tag: Option<&Tag>,
        own_tag: &str,
        kind: OpenKind,
    ) -> Result<(), String> {
        if let Some(tag) = tag.filter(|tag| !tag.is_yaml_core_schema_tag(own_tag)) {
            return Err(unsupported(tag));
        }
        if self.expects_key().is_some() {
            return Err("a key must be a text, not a list or a node".to_owned());
        }
        if self.open.len() >= MAX_DEPTH {
            return Err(too_deep());
        }
        self.open.push(OpenCollection { anchor, kind });
        Ok(())
    }

    fn close(&mut self) -> Result<(), String> {
        let OpenCollection { anchor, kind } =
            self.open.pop().expect("the parser pairs starts and ends");
        let kind = match kind {
            OpenKind::List(elements) => ValueKind::Array(elements),
            OpenKind::Node(node) => ValueKind::Table(node.finish()?),
        };
        let value = Value::new(self.uri, kind);
        self.define(anchor, &value);
        self.push(value)
    }

    fn push(&mut self, value: Value) -> Result<(), String> {
        match self.open.last_mut().map(|open| &mut open.kind) {
            None => self.top = Some(value),
            Some(OpenKind::List(elements)) => elements.push(value),
            Some(OpenKind::Node(node)) => node.finish_entry(value),
        }
        Ok(())
    }

    /// The innermost node, if what comes next is one of its keys.
    fn expects_key(&mut self) -> Option<&mut OpenNode> {
        match &mut self.open.last_mut()?.kind {
            OpenKind::Node(node) if node.key.is_none() => Some(node),
            _ => None,
        }
    }

    fn define(&mut self, anchor: usize, value: &Value) {
        if anchor != 0 {
            let (weight, depth) = measure(value);
            self.anchors.insert(anchor, Anchored { value: value.clone(), weight, depth });
        }
    }
}

impl OpenNode {
    fn start_entry(&mut self, key: Key) -> Result<(), String> {
        let is_known = match &key {
            Key::Text(key) => self.table.contains_key(key),
            Key::Merge => self.merged.is_some(),
        };
        if is_known {
            let key = if let Key::Text(key) = &key { key } else { "<<" };
            return Err(format!("the key {key:?} is there twice"));
        }
        self.key = Some(key);
        Ok(())
    }

    fn finish_entry(&mut self, value: Value) {
        match self.key.take().expect("a key comes before its value") {
            Key::Text(key) => {
                self.table.insert(key, value);
            }
            Key::Merge => self.merged = Some(value),
        }
    }

    /// The node, with what `<<` brought where the node has no key of its own.
    fn finish(mut self) -> Result<Table, String> {
        let sources = match self.merged.map(|merged| merged.kind) {
            None => Vec::new(),
            Some(ValueKind::Array(list)) => list,
            Some(kind) => vec![kind.into()],
        };
        for source in sources {
            let ValueKind::Table(table) = source.kind else {
                return Err(format!("<< takes nodes, not {}", describe(&source)));
            };
            for (key, value) in table {
                self.table.entry(key).or_insert(value);
            }
        }
        Ok(self.table)
    }
}

/// Reads a scalar of the type that its tag names.
fn tagged(text: &str, tag: &Tag) -> Result<ValueKind, String> {
    let is = |name| tag.is_yaml_core_schema_tag(name);
    if is("str") || tag.parts() == ("", "!") || tag.parts() == ("!", "") {
        return Ok(text.into());
    }
    match scalar::resolve(text)? {
        kind
        @ (ValueKind::I64(_) | ValueKind::U64(_) | ValueKind::I128(_) | ValueKind::U128(_))
            if is("int") =>
        {
            Ok(kind)
        }
        ValueKind::I64(n) if is("float") => Ok((n as f64).into()),
        ValueKind::U64(n) if is("float") => Ok((n as f64).into()),
        ValueKind::I128(n) if is("float") => Ok((n as f64).into()),
        ValueKind::U128(n) if is("float") => Ok((n as f64).into()),
        kind @ ValueKind::Float(_) if is("float") => Ok(kind),
        kind @ ValueKind::Boolean(_) if is("bool") => Ok(kind),
        kind @ ValueKind::Nil if is("null") => Ok(kind),
        _ if tag.is_yaml_core_schema() => Err(format!("{text:?} is not what its tag says")),
        _ => Err(unsupported(tag)),
    }
}

/// Refuses the tag. A tag never calls anything, and an unread tag is a mistake, not decoration.
fn unsupported(tag: &Tag) -> String {
    let (handle, suffix) = tag.parts();
    let tag = format!("{handle}{suffix}");
    let instead = if tag.ends_with("python/tuple") {
        "; without it the value is a list, which is also what a tuple is read as"
    } else if tag.contains("python/") {
        "; save plain values: numbers, texts, lists and nodes"
    } else {
        ""
    };
    format!("the tag {tag:?} is not supported{instead}")
}

fn too_deep() -> String {
    format!("more than {MAX_DEPTH} levels of nesting")
}

/// What a copy of `value` weighs, and how deeply it is nested.
fn measure(value: &Value) -> (usize, usize) {
    let (weights, depth) = match &value.kind {
        ValueKind::String(text) => (text.len(), 0),
        ValueKind::Array(list) => sum(list.iter().map(measure)),
        ValueKind::Table(table) => sum(table.iter().map(|(key, value)| {
            let (weight, depth) = measure(value);
            (weight + key.len(), depth)
        })),
        _ => (0, 0),
    };
    (weights + 1, depth)
}

/// The sum of the weights, and the depth of what holds them all.
fn sum(parts: impl Iterator<Item = (usize, usize)>) -> (usize, usize) {
    let (weight, depth) =
        parts.fold((0, 0), |(weight, depth), part| (weight + part.0, depth.max(part.1)));
    (weight, depth + 1)
}

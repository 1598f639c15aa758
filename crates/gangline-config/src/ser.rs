//! From the caller's types to the tree, and the tree as serde sees it.

use std::fmt::Display;

use config::{Value, ValueKind};
use serde::de::{self, DeserializeSeed, Deserializer, MapAccess, SeqAccess, Visitor};
use serde::ser::{self, Serialize, SerializeMap, Serializer};

use super::key::ToKey;
use super::scalar;
use super::tree::check_key;
use super::tree::{FaultKind, Table, TreeFault, inner, integer};

/// The key of the node that serde_json makes of a number when any crate of the program turns its
/// feature `arbitrary_precision` on.
const JSON_NUMBER: &str = "$serde_json::private::Number";

/// The tree for `value`, with at most `room` levels of nodes and lists.
pub(super) fn to_value<T: Serialize + ?Sized>(value: &T, room: usize) -> Result<Value, TreeFault> {
    value.serialize(ToValue { room })
}

/// The tree as a value of JSON. Integers of more than 64 bits are texts there, and what is not finite is null.
pub(super) fn to_json(value: &Value) -> serde_json::Value {
    match &value.kind {
        ValueKind::Nil => serde_json::Value::Null,
        ValueKind::Boolean(b) => (*b).into(),
        ValueKind::I64(n) => (*n).into(),
        ValueKind::U64(n) => (*n).into(),
        ValueKind::I128(n) => n.to_string().into(),
        ValueKind::U128(n) => n.to_string().into(),
        ValueKind::Float(x) => (*x).into(),
        ValueKind::String(text) => text.as_str().into(),
        ValueKind::Array(list) => list.iter().map(to_json).collect(),
        ValueKind::Table(table) => {
            table.iter().map(|(key, value)| (key.clone(), to_json(value))).collect()
        }
    }
}

/// A tree as something to serialise.
pub(super) struct Tree<'v>(pub(super) &'v Value);

impl Serialize for Tree<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match &self.0.kind {
            ValueKind::Nil => serializer.serialize_unit(),
            ValueKind::Boolean(b) => serializer.serialize_bool(*b),
            ValueKind::I64(n) => serializer.serialize_i64(*n),
            ValueKind::U64(n) => serializer.serialize_u64(*n),
            ValueKind::I128(n) => serializer.serialize_i128(*n),
            ValueKind::U128(n) => serializer.serialize_u128(*n),
            ValueKind::Float(x) => serializer.serialize_f64(*x),
            ValueKind::String(text) => serializer.serialize_str(text),
            ValueKind::Array(list) => serializer.collect_seq(list.iter().map(Tree)),
            ValueKind::Table(table) => {
                serializer.collect_map(table.iter().map(|(key, value)| (key, Tree(value))))
            }
        }
    }
}

/// Reads a tree with at most `room` levels from any self-describing format. Two equal keys are an
/// error, as the last would win in silence. Otherwise keys are not checked.
pub(super) struct TreeSeed {
    pub(super) room: usize,
}

impl<'de> DeserializeSeed<'de> for TreeSeed {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeSeed {
    type Value = Value;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a null, boolean, number, text, list or node")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::default())
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::default())
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, inside: D) -> Result<Value, D::Error> {
        inside.deserialize_any(self)
    }

    fn visit_bool<E>(self, b: bool) -> Result<Value, E> {
        Ok(b.into())
    }

    fn visit_i64<E: de::Error>(self, n: i64) -> Result<Value, E> {
        Ok(n.into())
    }

    fn visit_u64<E>(self, n: u64) -> Result<Value, E> {
        Ok(integer(n).into())
    }

    fn visit_i128<E>(self, n: i128) -> Result<Value, E> {
        Ok(integer(n).into())
    }

    fn visit_u128<E>(self, n: u128) -> Result<Value, E> {
        Ok(integer(n).into())
    }

    fn visit_f64<E>(self, x: f64) -> Result<Value, E> {
        Ok(x.into())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        Ok(text.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        let room = inner(self.room).map_err(de::Error::custom)?;
        let mut elements = Vec::new();
        while let Some(element) = list.next_element_seed(TreeSeed { room })? {
            elements.push(element);
        }
        Ok(elements.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        let room = inner(self.room).map_err(de::Error::custom)?;
        let mut table = Table::new();
        while let Some(key) = map.next_key::<String>()? {
            if key == JSON_NUMBER {
                let number = scalar::resolve(&map.next_value::<String>()?);
                return number.map(Value::from).map_err(de::Error::custom);
            }
            if table.contains_key(&key) {
                return Err(de::Error::custom(format_args!("the key {key:?} is there twice")));
            }
            let value = map.next_value_seed(TreeSeed { room })?;
            table.insert(key, value);
        }
        Ok(table.into())
    }
}

impl ser::Error for TreeFault {
    fn custom<T: Display>(message: T) -> Self {
        TreeFault::new(FaultKind::Said(message.to_string()))
    }
}

/// A serde serializer that makes a tree.
struct ToValue {
    room: usize,
}

impl ToValue {
    fn list(self) -> Result<List, TreeFault> {
        Ok(List { room: inner(self.room)?, elements: Vec::new(), variant: None })
    }

    fn node(self) -> Result<Node, TreeFault> {
        Ok(Node { room: inner(self.room)?, table: Table::new(), key: None, variant: None })
    }

    /// The room inside the node that holds an enum's variant.
    fn inside(&self) -> Result<ToValue, TreeFault> {
        Ok(ToValue { room: inner(self.room)? })
    }
}

/// A list in the making; in a node of one key when it is an enum's variant.
struct List {
    room: usize,
    elements: Vec<Value>,
    variant: Option<&'static str>,
}

impl List {
    fn push<T: Serialize + ?Sized>(&mut self, element: &T) -> Result<(), TreeFault> {
        let index = self.elements.len();
        let element = to_value(element, self.room).map_err(|fault| fault.under(index))?;
        self.elements.push(element);
        Ok(())
    }

    fn finish(self) -> Result<Value, TreeFault> {
        Ok(in_variant(self.variant, self.elements.into()))
    }
}

/// A node in the making; in a node of one key when it is an enum's variant.
struct Node {
    room: usize,
    table: Table,
    key: Option<String>,
    variant: Option<&'static str>,
}

impl Node {
    fn insert<T: Serialize + ?Sized>(&mut self, key: String, value: &T) -> Result<(), TreeFault> {
        check_key(&key)?;
        let value = to_value(value, self.room).map_err(|fault| fault.under(&key))?;
        self.table.insert(key, value);
        Ok(())
    }

    fn finish(self) -> Result<Value, TreeFault> {
        Ok(in_variant(self.variant, self.table.into()))
    }
}

fn in_variant(variant: Option<&'static str>, value: Value) -> Value {
    match variant {
        Some(variant) => Table::from_iter([(variant.to_owned(), value)]).into(),
        None => value,
    }
}

macro_rules! integers {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method(self, n: $type) -> Result<Value, TreeFault> {
            Ok(integer(n).into())
        }
    )*};
}

impl Serializer for ToValue {
    type Ok = Value;
    type Error = TreeFault;
    type SerializeSeq = List;
    type SerializeTuple = List;
    type SerializeTupleStruct = List;
    type SerializeTupleVariant = List;
    type SerializeMap = Node;
    type SerializeStruct = Node;
    type SerializeStructVariant = Node;

    integers! {
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_u128: u128,
    }

    fn serialize_bool(self, b: bool) -> Result<Value, TreeFault> {
        Ok(b.into())
    }

    fn serialize_f32(self, x: f32) -> Result<Value, TreeFault> {
        Ok(f64::from(x).into())
    }

    fn serialize_f64(self, x: f64) -> Result<Value, TreeFault> {
        Ok(x.into())
    }

    fn serialize_char(self, c: char) -> Result<Value, TreeFault> {
        Ok(c.to_string().into())
    }

    fn serialize_str(self, text: &str) -> Result<Value, TreeFault> {
        Ok(text.into())
    }

    fn serialize_bytes(self, bytes: &[u8]) -> Result<Value, TreeFault> {
        self.collect_seq(bytes)
    }

    fn serialize_none(self) -> Result<Value, TreeFault> {
        Ok(Value::default())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<Value, TreeFault> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<Value, TreeFault> {
        Ok(Value::default())
    }

    fn serialize_unit_struct(self, _name: &'static str) -> Result<Value, TreeFault> {
        self.serialize_unit()
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<Value, TreeFault> {
        Ok(variant.into())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        value: &T,
    ) -> Result<Value, TreeFault> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        value: &T,
    ) -> Result<Value, TreeFault> {
        let mut node = self.node()?;
        node.insert(variant.to_owned(), value)?;
        node.finish()
    }

    fn serialize_seq(self, _len: Option<usize>) -> Result<List, TreeFault> {
        self.list()
    }

    fn serialize_tuple(self, _len: usize) -> Result<List, TreeFault> {
        self.list()
    }

    fn serialize_tuple_struct(self, _name: &'static str, _len: usize) -> Result<List, TreeFault> {
        self.list()
    }

    fn serialize_tuple_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<List, TreeFault> {
        check_key(variant)?;
        Ok(List { variant: Some(variant), ..self.inside()?.list()? })
    }

    fn serialize_map(self, _len: Option<usize>) -> Result<Node, TreeFault> {
        self.node()
    }

    fn serialize_struct(self, _name: &'static str, _len: usize) -> Result<Node, TreeFault> {
        self.node()
    }

    fn serialize_struct_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
        _len: usize,
    ) -> Result<Node, TreeFault> {
        check_key(variant)?;
        Ok(Node { variant: Some(variant), ..self.inside()?.node()? })
    }
}

macro_rules! lists {
    ($($trait:ident: $method:ident,)*) => {$(
        impl ser::$trait for List {
            type Ok = Value;
            type Error = TreeFault;

            fn $method<T: Serialize + ?Sized>(&mut self, element: &T) -> Result<(), TreeFault> {
                self.push(element)
            }

            fn end(self) -> Result<Value, TreeFault> {
                self.finish()
            }
        }
    )*};
}

lists! {
    SerializeSeq: serialize_element,
    SerializeTuple: serialize_element,
    SerializeTupleStruct: serialize_field,
    SerializeTupleVariant: serialize_field,
}

impl SerializeMap for Node {
    type Ok = Value;
    type Error = TreeFault;

    fn serialize_key<T: Serialize + ?Sized>(&mut self, key: &T) -> Result<(), TreeFault> {
        self.key = Some(key.serialize(ToKey)?);
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), TreeFault> {
        let key = self.key.take().expect("serde calls serialize_key first");
        if self.table.contains_key(&key) {
            let twice = format!("the key {key:?} is there twice");
            return Err(TreeFault::new(FaultKind::Said(twice)));
        }
        self.insert(key, value)
    }

    fn end(self) -> Result<Value, TreeFault> {
        self.finish()
    }
}

macro_rules! nodes {
    ($($trait:ident,)*) => {$(
        impl ser::$trait for Node {
            type Ok = Value;
            type Error = TreeFault;

            fn serialize_field<T: Serialize + ?Sized>(
                &mut self,
                key: &'static str,
                value: &T,
            ) -> Result<(), TreeFault> {
                self.insert(key.to_owned(), value)
            }

            fn end(self) -> Result<Value, TreeFault> {
                self.finish()
            }
        }
    )*};
}

nodes! { SerializeStruct, SerializeStructVariant, }

#[cfg(test)]
mod tests {
    use serde::de::value::{Error, MapDeserializer};

    use super::*;

    #[test]
    fn a_json_number_of_any_precision_is_a_number() {
        let read = |number: &'static str| {
            let node = MapDeserializer::<_, Error>::new([(JSON_NUMBER, number)].into_iter());
            TreeSeed { room: 1 }.deserialize(node)
        };
        assert_eq!(read("18446744073709551615").unwrap().kind, ValueKind::U64(u64::MAX));
        assert_eq!(read("-1.5e3").unwrap().kind, ValueKind::Float(-1500.0));
        assert_eq!(read("18446744073709551616").unwrap().kind, ValueKind::I128(1 << 64));
        assert!(read("340282366920938463463374607431768211456").is_err());
    }
}

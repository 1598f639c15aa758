//! The keys of maps: from the caller's types to text.

use serde::ser::{Impossible, Serialize, Serializer};

use super::tree::{FaultKind, TreeFault};

/// A serde serializer that makes a key. Text is kept; integers and booleans are written out.
pub(super) struct ToKey;

macro_rules! written_keys {
    ($($method:ident: $type:ty,)*) => {$(
        fn $method(self, key: $type) -> Result<String, TreeFault> {
            Ok(key.to_string())
        }
    )*};
}

macro_rules! no_keys {
    ($($method:ident($($argument:ty),*) -> $made:ty;)*) => {$(
        fn $method(self, $(_: $argument),*) -> Result<$made, TreeFault> {
            Err(no_key())
        }
    )*};
}

impl Serializer for ToKey {
    type Ok = String;
    type Error = TreeFault;
    type SerializeSeq = Impossible<String, TreeFault>;
    type SerializeTuple = Impossible<String, TreeFault>;
    type SerializeTupleStruct = Impossible<String, TreeFault>;
    type SerializeTupleVariant = Impossible<String, TreeFault>;
    type SerializeMap = Impossible<String, TreeFault>;
    type SerializeStruct = Impossible<String, TreeFault>;
    type SerializeStructVariant = Impossible<String, TreeFault>;

    written_keys! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str,
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_u128: u128,
    }

    no_keys! {
        serialize_f32(f32) -> String;
        serialize_f64(f64) -> String;
        serialize_bytes(&[u8]) -> String;
        serialize_none() -> String;
        serialize_unit() -> String;
        serialize_unit_struct(&'static str) -> String;
        serialize_seq(Option<usize>) -> Self::SerializeSeq;
        serialize_tuple(usize) -> Self::SerializeTuple;
        serialize_tuple_struct(&'static str, usize) -> Self::SerializeTupleStruct;
        serialize_tuple_variant(&'static str, u32, &'static str, usize) -> Self::SerializeTupleVariant;
        serialize_map(Option<usize>) -> Self::SerializeMap;
        serialize_struct(&'static str, usize) -> Self::SerializeStruct;
        serialize_struct_variant(&'static str, u32, &'static str, usize) -> Self::SerializeStructVariant;
    }

    fn serialize_some<T: Serialize + ?Sized>(self, key: &T) -> Result<String, TreeFault> {
        key.serialize(self)
    }

    fn serialize_unit_variant(
        self,
        _name: &'static str,
        _index: u32,
        variant: &'static str,
    ) -> Result<String, TreeFault> {
        Ok(variant.to_owned())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        key: &T,
    ) -> Result<String, TreeFault> {
        key.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _name: &'static str,
        _index: u32,
        _variant: &'static str,
        _value: &T,
    ) -> Result<String, TreeFault> {
        Err(no_key())
    }
}

fn no_key() -> TreeFault {
    TreeFault::new(FaultKind::Said("a key must be a text, an integer or a boolean".to_owned()))
}

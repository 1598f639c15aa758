//! Finds the numbers that JSON does not have.

use std::fmt;

use serde::ser::{
    Error, Serialize, SerializeMap, SerializeSeq, SerializeStruct, SerializeStructVariant,
    SerializeTuple, SerializeTupleStruct, SerializeTupleVariant, Serializer,
};

/// Why a value is no JSON: the number, or what its own serialisation said.
#[derive(Debug, PartialEq)]
pub(super) enum NotJson {
    Number(f64),
    Said(String),
}

impl fmt::Display for NotJson {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotJson::Number(number) => {
                write!(f, "JSON has no {number}; write it as null with `non_finite_as_null`")
            }
            NotJson::Said(said) => f.write_str(said),
        }
    }
}

impl std::error::Error for NotJson {}

impl Error for NotJson {
    fn custom<T: fmt::Display>(said: T) -> Self {
        NotJson::Said(said.to_string())
    }
}

/// Fails at the first NaN or infinity in `value`, at any depth. `serde_json` writes them as null.
pub(super) fn check_finite<T: Serialize + ?Sized>(value: &T) -> Result<(), NotJson> {
    value.serialize(Finite)
}

/// A serializer that writes nothing.
struct Finite;

macro_rules! accepted {
    ($($method:ident: $type:ty),* $(,)?) => {$(
        fn $method(self, _: $type) -> Result<(), NotJson> {
            Ok(())
        }
    )*};
}

impl Serializer for Finite {
    type Ok = ();
    type Error = NotJson;
    type SerializeSeq = Finite;
    type SerializeTuple = Finite;
    type SerializeTupleStruct = Finite;
    type SerializeTupleVariant = Finite;
    type SerializeMap = Finite;
    type SerializeStruct = Finite;
    type SerializeStructVariant = Finite;

    accepted! {
        serialize_bool: bool, serialize_char: char, serialize_str: &str, serialize_bytes: &[u8],
        serialize_i8: i8, serialize_i16: i16, serialize_i32: i32, serialize_i64: i64,
        serialize_i128: i128, serialize_u8: u8, serialize_u16: u16, serialize_u32: u32,
        serialize_u64: u64, serialize_u128: u128, serialize_unit_struct: &'static str,
    }

    fn serialize_f32(self, number: f32) -> Result<(), NotJson> {
        self.serialize_f64(f64::from(number))
    }

    fn serialize_f64(self, number: f64) -> Result<(), NotJson> {
        if number.is_finite() { Ok(()) } else { Err(NotJson::Number(number)) }
    }

    fn serialize_none(self) -> Result<(), NotJson> {
        Ok(())
    }

    fn serialize_some<T: Serialize + ?Sized>(self, value: &T) -> Result<(), NotJson> {
        value.serialize(self)
    }

    fn serialize_unit(self) -> Result<(), NotJson> {
        Ok(())
    }

    fn serialize_unit_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
    ) -> Result<(), NotJson> {
        Ok(())
    }

    fn serialize_newtype_struct<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotJson> {
        value.serialize(self)
    }

    fn serialize_newtype_variant<T: Serialize + ?Sized>(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        value: &T,
    ) -> Result<(), NotJson> {
        value.serialize(self)
    }

    fn serialize_seq(self, _: Option<usize>) -> Result<Finite, NotJson> {
        Ok(self)
    }

    fn serialize_tuple(self, _: usize) -> Result<Finite, NotJson> {
        Ok(self)
    }

    fn serialize_tuple_struct(self, _: &'static str, _: usize) -> Result<Finite, NotJson> {
        Ok(self)
    }

    fn serialize_tuple_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Finite, NotJson> {
        Ok(self)
    }

    fn serialize_map(self, _: Option<usize>) -> Result<Finite, NotJson> {
        Ok(self)
    }

    fn serialize_struct(self, _: &'static str, _: usize) -> Result<Finite, NotJson> {
        Ok(self)
    }

    fn serialize_struct_variant(
        self,
        _: &'static str,
        _: u32,
        _: &'static str,
        _: usize,
    ) -> Result<Finite, NotJson> {
        Ok(self)
    }
}

macro_rules! elements {
    ($($compound:ident: $method:ident($($name:ty)?)),* $(,)?) => {$(
        impl $compound for Finite {
            type Ok = ();
            type Error = NotJson;

            fn $method<T: Serialize + ?Sized>(
                &mut self,
                $(_: $name,)?
                value: &T,
            ) -> Result<(), NotJson> {
                check_finite(value)
            }

            fn end(self) -> Result<(), NotJson> {
                Ok(())
            }
        }
    )*};
}

elements! {
    SerializeSeq: serialize_element(),
    SerializeTuple: serialize_element(),
    SerializeTupleStruct: serialize_field(),
    SerializeTupleVariant: serialize_field(),
    SerializeStruct: serialize_field(&'static str),
    SerializeStructVariant: serialize_field(&'static str),
}

impl SerializeMap for Finite {
    type Ok = ();
    type Error = NotJson;

    /// `serde_json` refuses such keys by itself.
    fn serialize_key<T: Serialize + ?Sized>(&mut self, _: &T) -> Result<(), NotJson> {
        Ok(())
    }

    fn serialize_value<T: Serialize + ?Sized>(&mut self, value: &T) -> Result<(), NotJson> {
        check_finite(value)
    }

    fn end(self) -> Result<(), NotJson> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(serde::Serialize)]
    struct Plain {
        name: &'static str,
        score: f32,
    }

    #[derive(serde::Serialize)]
    enum Shape {
        Point,
        Circle(f64),
        Line(f64, f64),
        Box { width: f64 },
    }

    #[derive(serde::Serialize)]
    struct Wrapped(f32);

    #[track_caller]
    fn check(finite: impl Serialize, not: impl Serialize) {
        assert_eq!(check_finite(&finite), Ok(()));
        assert!(matches!(check_finite(&not), Err(NotJson::Number(_))));
    }

    #[test]
    fn numbers_are_found_in_every_kind_of_value() {
        check(1.5, f64::NAN);
        check(f32::MAX, f32::INFINITY);
        check((1, None::<f64>, ()), (1, Some(f64::NEG_INFINITY), ()));
        check([[0.0], [1.0]], [[0.0], [f32::NAN]]);
        check(Wrapped(0.0), Wrapped(f32::NAN));
        check(Plain { name: "NaN", score: 0.0 }, Plain { name: "a", score: f32::NAN });
        check(Shape::Point, Shape::Circle(f64::NAN));
        check(Shape::Line(0.0, 1.0), Shape::Line(0.0, f64::NAN));
        check(Shape::Box { width: 1.0 }, Shape::Box { width: f64::INFINITY });
        check(
            std::collections::BTreeMap::from([("null", vec![1.0])]),
            std::collections::BTreeMap::from([("null", vec![1.0, f64::NAN])]),
        );
    }
}

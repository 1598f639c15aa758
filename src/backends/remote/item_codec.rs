//! How the items of a recipe are written and read.

use std::any::type_name;
use std::error::Error as StdError;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::codec::{Codec, CodecFormat, Postcard};
use super::failure::ErrorCodec;
use crate::backends::memory::shared_bytes::apart;
use crate::base::panic::catch;
use crate::base::{BoxError, Result};

/// The largest number of error types that a recipe can name.
const MOST_ERRORS: usize = 8;

/// What a coordinator needs of a recipe: its name, and how inputs, outputs and errors are written and read. The runner
/// is made elsewhere.
pub struct ItemCodec<I, T> {
    pub(super) name: &'static str,
    pub(super) version: &'static str,
    pub(super) codec: &'static dyn Codec,
    input: Wire<I>,
    output: Wire<T>,
    errors: [Option<ErrorType>; MOST_ERRORS],
    /// The index and attempt of an item that comes from a coordinator elsewhere.
    origin: Option<ItemOrigin<I>>,
}

/// How the values of one type are written and read.
struct Wire<T> {
    name: fn() -> &'static str,
    encode: fn(CodecFormat, &T, &mut Vec<u8>) -> Result<()>,
    decode: fn(CodecFormat, &[u8]) -> Result<T>,
}

/// Returns the index and the attempt of an item, as its hook sees them.
type ItemOrigin<T> = fn(&T) -> (u64, u32);

/// How a runner hands on the encoded values of another.
pub struct Relay<I, T> {
    /// Appends what the worker of the other reads as its input.
    pub encode_input: fn(CodecFormat, &I, &mut Vec<u8>) -> Result<()>,
    /// Reads what that worker has written as its output.
    pub decode_output: fn(CodecFormat, &[u8]) -> Result<T>,
    /// The index and attempt that the hook sees.
    pub origin: ItemOrigin<I>,
}

/// Returns `None` if the error is of another type.
type EncodeError = fn(CodecFormat, &(dyn StdError + 'static)) -> Option<Result<Vec<u8>>>;

/// How the errors of one type are written and read.
#[derive(Clone, Copy)]
struct ErrorType {
    encode: EncodeError,
    decode: fn(CodecFormat, &[u8]) -> Result<BoxError>,
}

impl<T> Wire<T> {
    /// Checks that a value is the same after it was encoded and decoded, as far as its bytes tell.
    fn check(&self, format: CodecFormat, value: &T) -> Result<()> {
        let (mut first, mut second) = (vec![], vec![]);
        // What is attached to a message is attached once, when the message is written.
        apart(|| {
            (self.encode)(format, value, &mut first)?;
            let decoded = (self.decode)(format, &first)?;
            (self.encode)(format, &decoded, &mut second)
        })?;
        // In any order: that of a hash map changes.
        first.sort_unstable();
        second.sort_unstable();
        match first == second {
            true => Ok(()),
            false => Err("the decoded value is encoded differently".into()),
        }
    }
}

impl<T> Clone for Wire<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Wire<T> {}

impl<I, T> Clone for ItemCodec<I, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<I, T> Copy for ItemCodec<I, T> {}

impl<I, T> ItemCodec<I, T>
where
    I: Serialize + DeserializeOwned,
    T: Serialize + DeserializeOwned,
{
    pub(super) const fn new(name: &'static str) -> Self {
        let input = Wire { name: type_name::<I>, encode, decode };
        let output = Wire { name: type_name::<T>, encode, decode };
        let errors = [None; MOST_ERRORS];
        ItemCodec { name, version: "", codec: &Postcard, input, output, errors, origin: None }
    }

    /// Names a type of errors.
    pub(super) const fn error<E>(mut self) -> Self
    where
        E: StdError + Serialize + DeserializeOwned + Send + Sync + 'static,
    {
        let mut at = 0;
        while self.errors[at].is_some() {
            at += 1;
            assert!(at < MOST_ERRORS, "a recipe can name 8 types of errors");
        }
        self.errors[at] = Some(ErrorType { encode: encode_error::<E>, decode: decode_error::<E> });
        self
    }
}

impl<I, T> ItemCodec<I, T> {
    /// The name of the recipe.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// What both sides must agree on.
    pub fn terms(&self) -> Terms {
        Terms {
            version: self.version.to_owned(),
            codec: self.format().name().to_owned(),
            input: (self.input.name)().to_owned(),
            output: (self.output.name)().to_owned(),
        }
    }

    /// The codec of a runner that hands on encoded values of this one's: its child processes have the recipe of this.
    pub fn relayed<J, U>(&self, relay: Relay<J, U>) -> ItemCodec<J, U> {
        let ItemCodec { name, version, codec, errors, .. } = *self;
        let input = Wire {
            name: self.input.name,
            encode: relay.encode_input,
            decode: |_, _| Err("a relay decodes no input".into()),
        };
        let output = Wire {
            name: self.output.name,
            encode: |_, _, _| Err("a relay encodes no output".into()),
            decode: relay.decode_output,
        };
        let origin = Some(relay.origin);
        ItemCodec { name, version, codec, input, output, errors, origin }
    }

    /// Whether encoded values are handed on unread: see [`relayed`](Self::relayed).
    #[cfg(feature = "processes")]
    pub(crate) fn is_relayed(&self) -> bool {
        self.origin.is_some()
    }

    /// The indices and the attempt of inputs, as the hook sees them.
    pub(crate) fn origins(&self, inputs: &[I], items: &[u64], attempt: u32) -> (Vec<u64>, u32) {
        let Some(origin) = self.origin else { return (items.to_vec(), attempt) };
        let (items, attempts): (_, Vec<_>) = inputs.iter().map(origin).unzip();
        (items, attempts.into_iter().max().unwrap_or(attempt))
    }

    fn format(&self) -> CodecFormat {
        self.codec.format()
    }

    /// Whether the values of this item are checked for an attribute that the codec cannot handle, before results are wrong.
    fn checks(&self, item: u64) -> bool {
        cfg!(debug_assertions) && item == 0 && self.origin.is_none()
    }

    /// Appends an input of an item. A panic is an error.
    ///
    /// # Errors
    ///
    /// That of the codec.
    pub fn encode_input(&self, item: u64, input: &I, bytes: &mut Vec<u8>) -> Result<()> {
        unless_panics(|| {
            if self.checks(item) {
                self.check_input(input)?;
            }
            (self.input.encode)(self.format(), input, bytes)
        })
    }

    /// Reads an input. A panic is an error.
    ///
    /// # Errors
    ///
    /// That of the codec.
    pub fn decode_input(&self, bytes: &[u8]) -> Result<I> {
        let input = unless_panics(|| (self.input.decode)(self.format(), bytes));
        input.map_err(|error| format!("the input does not decode: {error}").into())
    }

    /// Appends an output of an item. A panic is an error.
    ///
    /// # Errors
    ///
    /// That of the codec.
    pub fn encode_output(&self, item: u64, output: &T, bytes: &mut Vec<u8>) -> Result<()> {
        unless_panics(|| {
            if self.checks(item) {
                self.check_output(output)?;
            }
            (self.output.encode)(self.format(), output, bytes)
        })
    }

    /// Reads an output. A panic is an error.
    ///
    /// # Errors
    ///
    /// That of the codec.
    pub fn decode_output(&self, bytes: &[u8]) -> Result<T> {
        let output = unless_panics(|| (self.output.decode)(self.format(), bytes));
        output.map_err(|error| format!("the output does not decode: {error}").into())
    }

    pub(super) fn check_input(&self, input: &I) -> Result<()> {
        self.input.check(self.format(), input)
    }

    pub(super) fn check_output(&self, output: &T) -> Result<()> {
        self.output.check(self.format(), output)
    }
}

impl<I, T> ErrorCodec for ItemCodec<I, T> {
    fn encode_error(&self, error: &(dyn StdError + 'static)) -> Option<(u32, Vec<u8>)> {
        let types = (0..).zip(self.errors.iter().flatten());
        types
            .into_iter()
            .find_map(|(number, it)| Some((number, (it.encode)(self.format(), error)?.ok()?)))
    }

    fn decode_error(&self, number: u32, bytes: &[u8]) -> Option<BoxError> {
        let it = self.errors.get(number as usize)?.as_ref()?;
        (it.decode)(self.format(), bytes).ok()
    }
}

/// The fingerprint of a recipe.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Terms {
    /// The version of the recipe.
    pub version: String,
    pub(crate) codec: String,
    pub(crate) input: String,
    pub(crate) output: String,
}

impl Terms {
    /// What differs, for a person.
    pub fn difference(&self, coordinator: &Terms) -> Option<String> {
        let each = [
            ("version", &self.version, &coordinator.version),
            ("codec", &self.codec, &coordinator.codec),
            ("input type", &self.input, &coordinator.input),
            ("output type", &self.output, &coordinator.output),
        ];
        let (what, here, there) = each.into_iter().find(|(_, here, there)| here != there)?;
        Some(format!("its {what} is {here:?}, the coordinator's is {there:?}"))
    }
}

fn encode<T: Serialize>(format: CodecFormat, value: &T, bytes: &mut Vec<u8>) -> Result<()> {
    format.encode(value, bytes)
}

fn decode<T: DeserializeOwned>(format: CodecFormat, bytes: &[u8]) -> Result<T> {
    format.decode(bytes)
}

fn encode_error<E: StdError + Serialize + 'static>(
    format: CodecFormat,
    error: &(dyn StdError + 'static),
) -> Option<Result<Vec<u8>>> {
    let error = error.downcast_ref::<E>()?;
    let mut bytes = vec![];
    Some(format.encode(error, &mut bytes).map(|()| bytes))
}

fn decode_error<E: StdError + DeserializeOwned + Send + Sync + 'static>(
    format: CodecFormat,
    bytes: &[u8],
) -> Result<BoxError> {
    Ok(Box::new(format.decode::<E>(bytes)?))
}

/// Calls user code, of which a panic is an error.
pub(super) fn unless_panics<T>(f: impl FnOnce() -> Result<T>) -> Result<T> {
    catch(f).unwrap_or_else(|message| Err(message.into()))
}

/// Says that an input or an output cannot be sent.
pub fn unsent(what: &str, error: &BoxError) -> BoxError {
    format!("the {what} cannot be sent: {error}").into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_difference_names_both_sides() {
        let here = Terms { version: "1".to_owned(), ..Terms::default() };
        let there = Terms { version: "2".to_owned(), ..here.clone() };
        let text = here.difference(&there).unwrap();
        assert_eq!(text, r#"its version is "1", the coordinator's is "2""#);
        assert_eq!(here.difference(&here), None);
    }
}

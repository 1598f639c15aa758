//! How inputs, outputs and errors are written as bytes.

use postcard::ser_flavors::Flavor;
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::base::Result;

/// How a [`Recipe`](super::recipe::Recipe) writes inputs, outputs and errors as bytes: [`Postcard`] or
/// [`MessagePack`].
///
/// ```no_run
/// use gangline::process::{MessagePack, Processes, Recipe};
/// use gangline::{OrderedRunner, each};
///
/// # #[derive(serde::Serialize, serde::Deserialize)]
/// # struct Row { #[serde(flatten)] columns: std::collections::BTreeMap<String, String> }
/// // A field with `serde(flatten)` needs the codec that describes itself.
/// # type Count = gangline::closures::BoxRunner<Row, usize, Vec<usize>>;
/// # fn count(_: &gangline::CfgNode) -> gangline::Result<Count> {
/// #     Ok(gangline::closures::BoxRunner::new(each(|row: Row| Ok(row.columns.len()))))
/// # }
/// static COUNT: Recipe<Count> = Recipe::new("count", count).codec(&MessagePack);
///
/// gangline::worker_main(&[&COUNT]);
/// let builder = OrderedRunner::builder(count(&Default::default())?).devices(2);
/// let mut pool = builder.processes(&COUNT, Processes::new()).build()?;
/// # pool.run([])?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
pub trait Codec: sealed::Coding {}

/// Compact and fast. It does not describe itself: serde's `flatten`, `untagged` and `skip_serializing_if`
/// fail or decode wrongly.
///
/// Bytes go as fast as memory if their field is a `serde_bytes::ByteBuf` or has
/// `#[serde(with = "serde_bytes")]`; a plain `Vec<u8>` is written byte by byte.
#[derive(Debug, Clone, Copy)]
pub struct Postcard;

/// MessagePack with the names of fields. It describes itself, so that every attribute of serde works; larger
/// and slower than [`Postcard`].
#[derive(Debug, Clone, Copy)]
pub struct MessagePack;

impl Codec for Postcard {}
impl Codec for MessagePack {}

mod sealed {
    #[expect(unnameable_types, reason = "no other crate implements it")]
    pub trait Coding: Sync {
        fn format(&self) -> super::CodecFormat;
    }

    impl Coding for super::Postcard {
        fn format(&self) -> super::CodecFormat {
            super::CodecFormat::Postcard
        }
    }

    impl Coding for super::MessagePack {
        fn format(&self) -> super::CodecFormat {
            super::CodecFormat::MessagePack
        }
    }
}

/// The codecs, as a value: a trait object cannot have functions with type parameters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CodecFormat {
    /// That of [`Postcard`].
    Postcard,
    /// That of [`MessagePack`].
    MessagePack,
}

impl CodecFormat {
    pub(super) fn name(self) -> &'static str {
        match self {
            CodecFormat::Postcard => "postcard",
            CodecFormat::MessagePack => "MessagePack",
        }
    }

    /// Appends a value.
    pub(super) fn encode<T: Serialize>(self, value: &T, bytes: &mut Vec<u8>) -> Result<()> {
        match self {
            CodecFormat::Postcard => append(value, bytes)?,
            CodecFormat::MessagePack => rmp_serde::encode::write_named(bytes, value)?,
        }
        Ok(())
    }

    /// Reads a value that takes up all bytes.
    pub(super) fn decode<T: DeserializeOwned>(self, bytes: &[u8]) -> Result<T> {
        match self {
            CodecFormat::Postcard => match postcard::take_from_bytes(bytes)? {
                (value, []) => Ok(value),
                (_, rest) => Err(left_over(rest.len())),
            },
            CodecFormat::MessagePack => {
                let mut rest = bytes;
                let value = rmp_serde::from_read(&mut rest)?;
                match rest {
                    [] => Ok(value),
                    rest => Err(left_over(rest.len())),
                }
            }
        }
    }
}

/// Appends a value in postcard's format. Bytes are copied as slices, where postcard's own appending takes one at a time, which
/// is slow without optimisation.
pub(crate) fn append<T: Serialize + ?Sized>(
    value: &T,
    bytes: &mut Vec<u8>,
) -> std::result::Result<(), postcard::Error> {
    *bytes = postcard::serialize_with_flavor(value, PostcardSink(std::mem::take(bytes)))?;
    Ok(())
}

/// Where postcard writes.
struct PostcardSink(Vec<u8>);

impl Flavor for PostcardSink {
    type Output = Vec<u8>;

    fn try_push(&mut self, byte: u8) -> std::result::Result<(), postcard::Error> {
        self.0.push(byte);
        Ok(())
    }

    fn try_extend(&mut self, bytes: &[u8]) -> std::result::Result<(), postcard::Error> {
        self.0.extend_from_slice(bytes);
        Ok(())
    }

    fn finalize(self) -> std::result::Result<Vec<u8>, postcard::Error> {
        Ok(self.0)
    }
}

fn left_over(bytes: usize) -> crate::base::BoxError {
    format!("{bytes} bytes are left over after the value").into()
}

#[cfg(test)]
mod tests {
    use serde::{Deserialize, Serialize};

    use super::*;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Plain {
        name: String,
        value: Option<f64>,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Flat {
        #[serde(flatten)]
        plain: Plain,
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    #[serde(untagged)]
    enum Untagged {
        Number(u64),
        Text(String),
    }

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Skipping {
        #[serde(skip_serializing_if = "Option::is_none", default)]
        first: Option<u64>,
        second: u64,
    }

    fn plain() -> Plain {
        Plain { name: "x".to_owned(), value: Some(0.5) }
    }

    fn round_trip<T: Serialize + DeserializeOwned>(format: CodecFormat, value: &T) -> Result<T> {
        let mut bytes = vec![];
        format.encode(value, &mut bytes)?;
        format.decode(&bytes)
    }

    #[test]
    fn both_codecs_read_what_they_write() {
        for format in [CodecFormat::Postcard, CodecFormat::MessagePack] {
            assert_eq!(round_trip(format, &plain()).unwrap(), plain());
        }
    }

    /// `docs/processes.md` names the three.
    #[test]
    fn only_a_codec_that_describes_itself_can_flatten_guess_and_skip() {
        fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(value: &T) {
            let read = round_trip(CodecFormat::Postcard, value);
            assert!(read.is_err(), "{read:?}");
            assert_eq!(round_trip(CodecFormat::MessagePack, value).unwrap(), *value);
        }

        check(&Flat { plain: plain() });
        [Untagged::Number(7), Untagged::Text("x".to_owned())].iter().for_each(check);
        check(&Skipping { first: None, second: 7 });
    }

    #[test]
    fn bytes_that_are_left_over_are_an_error() {
        for format in [CodecFormat::Postcard, CodecFormat::MessagePack] {
            let mut bytes = vec![];
            format.encode(&7u8, &mut bytes).unwrap();
            bytes.push(0);
            assert!(format.decode::<u8>(&bytes).is_err(), "{format:?}");
        }
    }
}

//! Weights of networks, for candle-nn.

use std::collections::HashMap;
use std::fs;
use std::path::{Path, PathBuf};

use candle_core::safetensors::{BufferedSafetensors, SliceSafetensors};
use candle_core::{DType, Device, Shape, Tensor};
use candle_nn::var_builder::SimpleBackend;
use candle_nn::{Init, VarBuilder};

use super::DeviceError;

/// Where weights come from: see [`var_builder`](crate::ProducerContext::var_builder).
///
/// It is made of a path (`&str`, `&Path`, `&PathBuf`, `&String`), of the bytes of a safetensors file
/// (`&[u8]`, `&Vec<u8>`), or of tensors by name (`&HashMap<String, Tensor>`).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum Weights<'w> {
    /// A safetensors file.
    File(PathBuf),
    /// The bytes of a safetensors file, for instance read once and shared by all producers.
    Bytes(&'w [u8]),
    /// Tensors by name, on any device.
    Tensors(&'w HashMap<String, Tensor>),
}

/// Opens weights for a network on `device`.
pub(crate) fn var_builder<'w>(
    weights: impl IntoIterator<Item = impl Into<Weights<'w>>>,
    dtype: DType,
    device: Device,
) -> Result<VarBuilder<'w>, DeviceError> {
    let parts: Result<Vec<_>, _> = weights.into_iter().map(|part| open(part.into())).collect();
    Ok(VarBuilder::from_backend(Box::new(WeightParts(parts?)), dtype, device))
}

fn open<'w>(weights: Weights<'w>) -> Result<Box<dyn SimpleBackend + 'w>, DeviceError> {
    let failed = |file: Option<PathBuf>| {
        move |error: candle_core::Error| DeviceError::Weights { file, source: error.into() }
    };
    Ok(match weights {
        Weights::File(path) => {
            let bytes =
                fs::read(&path).map_err(|error| failed(Some(path.clone()))(error.into()))?;
            Box::new(BufferedSafetensors::new(bytes).map_err(failed(Some(path)))?)
        }
        Weights::Bytes(bytes) => Box::new(SliceSafetensors::new(bytes).map_err(failed(None))?),
        // The tensors themselves are shared.
        Weights::Tensors(tensors) => Box::new(tensors.clone()),
    })
}

/// The files of one network. Each tensor is read, converted and copied to the device when it is asked for.
struct WeightParts<'w>(Vec<Box<dyn SimpleBackend + 'w>>);

impl<'w> WeightParts<'w> {
    fn with(&self, name: &str) -> candle_core::Result<&(dyn SimpleBackend + 'w)> {
        let part = self.0.iter().find(|part| part.contains_tensor(name));
        let missing = || candle_core::Error::CannotFindTensor { path: name.to_owned() }.bt();
        part.map(|part| &**part).ok_or_else(missing)
    }
}

impl SimpleBackend for WeightParts<'_> {
    fn get(
        &self,
        shape: Shape,
        name: &str,
        init: Init,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        self.with(name)?.get(shape, name, init, dtype, device)
    }

    fn get_unchecked(
        &self,
        name: &str,
        dtype: DType,
        device: &Device,
    ) -> candle_core::Result<Tensor> {
        self.with(name)?.get_unchecked(name, dtype, device)
    }

    fn contains_tensor(&self, name: &str) -> bool {
        self.with(name).is_ok()
    }
}

/// The second and third lifetime are those of elements of a list: `&[path]` yields references to them.
macro_rules! from {
    ($([$($lifetime:lifetime)*] $source:ty => |$value:ident| $weights:expr;)+) => {$(
        impl<'w, $($lifetime),*> From<$source> for Weights<'w> {
            fn from($value: $source) -> Self {
                $weights
            }
        }
    )+};
}

from! {
    ['a] &'a str => |path| Weights::File(path.into());
    ['a 'b] &'a &'b str => |path| Weights::File((*path).into());
    ['a] &'a String => |path| Weights::File(path.into());
    ['a] &'a Path => |path| Weights::File(path.to_owned());
    ['a 'b] &'a &'b Path => |path| Weights::File(path.to_path_buf());
    ['a] &'a PathBuf => |path| Weights::File(path.clone());
    ['a 'b] &'a &'b PathBuf => |path| Weights::File(path.to_path_buf());
    [] PathBuf => |path| Weights::File(path);
    [] &'w [u8] => |bytes| Weights::Bytes(bytes);
    ['a] &'a &'w [u8] => |bytes| Weights::Bytes(bytes);
    [] &'w Vec<u8> => |bytes| Weights::Bytes(bytes);
    ['a] &'a &'w Vec<u8> => |bytes| Weights::Bytes(bytes);
    [] &'w HashMap<String, Tensor> => |tensors| Weights::Tensors(tensors);
    ['a] &'a &'w HashMap<String, Tensor> => |tensors| Weights::Tensors(tensors);
}

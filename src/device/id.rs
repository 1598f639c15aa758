//! One device, by its kind and index.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

/// One device: what a producer computes on.
///
/// Its text is `cpu`, `cuda:N` or `metal:N`; `cuda` and `metal` alone mean the first one. This is
/// also its form in serde. Parsing does not ask the machine whether the device exists: that is
/// checked when a runner is built.
///
/// There is one CPU, without an index. How many producers share it is a matter of [`Devices`](super::Devices):
/// `cpu*4`.
///
/// ```
/// use gangline::Device;
///
/// assert_eq!("cuda:1".parse::<Device>()?, Device::Cuda(1));
/// assert_eq!("metal".parse::<Device>()?, Device::Metal(0));
/// assert_eq!(Device::Cpu.to_string(), "cpu");
/// # Ok::<(), gangline::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The processor.
    Cpu,
    /// The CUDA device with this index, in the order that the CUDA driver gives them (which
    /// `CUDA_VISIBLE_DEVICES` changes).
    Cuda(usize),
    /// The Metal device with this index.
    Metal(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(index) => write!(f, "cuda:{index}"),
            Device::Metal(index) => write!(f, "metal:{index}"),
        }
    }
}

impl Serialize for Device {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Device {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

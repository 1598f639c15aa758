//! Devices and lists of them.
use std::fmt;

/// One device.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Device {
    /// The processor.
    Cpu,
    /// A CUDA device.
    Cuda(usize),
    /// A Metal device.
    Metal(usize),
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Cpu => f.write_str("cpu"),
            Device::Cuda(n) => write!(f, "cuda:{n}"),
            Device::Metal(n) => write!(f, "metal:{n}"),
        }
    }
}

/// What is wrong with devices.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// No devices.
    #[error("no devices")]
    Empty,
}

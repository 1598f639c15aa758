//! The kinds of device that a machine may lack.

use std::fmt;

use super::id::Device;

/// A kind of device that needs a feature of this crate, a driver and a card.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accelerator {
    Cuda,
    Metal,
}

impl Accelerator {
    pub(super) const ALL: [Accelerator; 2] = [Accelerator::Cuda, Accelerator::Metal];

    /// Its name in texts, which is also the name of its feature.
    pub(super) fn name(self) -> &'static str {
        match self {
            Accelerator::Cuda => "cuda",
            Accelerator::Metal => "metal",
        }
    }

    /// The kind with this name.
    pub(super) fn named(name: &str) -> Option<Accelerator> {
        Self::ALL.into_iter().find(|accelerator| accelerator.name() == name)
    }

    /// The index of the device, if it is of this kind.
    pub(super) fn index_of(self, device: Device) -> Option<usize> {
        match (device, self) {
            (Device::Cuda(index), Accelerator::Cuda)
            | (Device::Metal(index), Accelerator::Metal) => Some(index),
            _ => None,
        }
    }

    /// Its device with this index.
    pub(super) fn device(self, index: usize) -> Device {
        match self {
            Accelerator::Cuda => Device::Cuda(index),
            Accelerator::Metal => Device::Metal(index),
        }
    }
}

impl fmt::Display for Accelerator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

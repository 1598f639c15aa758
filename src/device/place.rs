//! The devices of one producer.

use std::collections::HashSet;
use std::fmt;
use std::ops::RangeFrom;
use std::sync::Arc;

use super::device_error::DeviceError;
use super::id::Device;

/// The most places that a list of devices can have: enough for every machine, and few enough that
/// a slip of the keyboard does not start a million threads.
pub(super) const MAX_PLACES: usize = 65_536;

/// The most devices that one place can have. Without a bound, a few kilobytes of text with ranges
/// joined by `+` would take gigabytes of memory.
pub(super) const MAX_DEVICES: usize = 256;

/// The devices that one producer owns: at least one, all different, in the user's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place(Arc<[Device]>);

impl Place {
    pub(super) fn new(devices: Vec<Device>) -> Result<Place, DeviceError> {
        if devices.is_empty() {
            return Err(DeviceError::EmptyPlace {});
        }
        if devices.len() > MAX_DEVICES {
            return Err(DeviceError::TooManyInPlace { least: devices.len(), most: MAX_DEVICES });
        }
        let mut seen = HashSet::new();
        match devices.iter().find(|device| !seen.insert(**device)) {
            Some(device) => Err(DeviceError::Twice { device: *device }),
            None => Ok(Place(devices.into())),
        }
    }

    pub(super) fn one(device: Device) -> Place {
        Place([device].into())
    }

    /// Returns the devices: at least one.
    pub(crate) fn devices(&self) -> &[Device] {
        &self.0
    }

    /// Returns the devices that a producer can lose: all but the CPU. Losing one fails all producers that
    /// have it.
    pub(crate) fn gpus(&self) -> impl Iterator<Item = Device> {
        self.0.iter().copied().filter(|&device| device != Device::Cpu)
    }

    /// Returns the same kinds of device, counted from 0.
    pub(super) fn renumber(&self) -> Place {
        let mut cuda = 0..;
        let mut metal = 0..;
        let next = |indices: &mut RangeFrom<usize>| {
            indices.next().expect("a place has no more devices than numbers")
        };
        let number = |device: &Device| match device {
            Device::Cpu => Device::Cpu,
            Device::Cuda(_) => Device::Cuda(next(&mut cuda)),
            Device::Metal(_) => Device::Metal(next(&mut metal)),
        };
        Place(self.devices().iter().map(number).collect())
    }

    /// Returns whether the CPU is among the devices.
    #[cfg(feature = "rayon")]
    pub(crate) fn has_cpu(&self) -> bool {
        self.0.contains(&Device::Cpu)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (n, device) in self.devices().iter().enumerate() {
            let plus = if n == 0 { "" } else { "+" };
            write!(f, "{plus}{device}")?;
        }
        Ok(())
    }
}

//! What can be wrong with devices.

use super::Device;
use crate::error::BoxError;

/// What is wrong with devices, and what is allowed instead.
///
/// It is inside [`Error::Devices`](crate::Error::Devices), which shows its text as its own.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is not one device.
    #[error("no devices; at least one is needed, as in cpu, cpu*4 or cuda:0")]
    #[non_exhaustive]
    Empty {},
    /// A place has no devices.
    #[error("a place without devices; each needs at least one")]
    #[non_exhaustive]
    EmptyPlace {},
    /// Nothing stands before or after a comma or a sign.
    #[error("a device is missing in {text:?}; one must stand around each comma and + and before *")]
    #[non_exhaustive]
    EmptyPart {
        /// The whole text.
        text: String,
    },
    /// More places than a list can have.
    #[error("devices for {least} producers or more; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyPlaces {
        /// The places asked for, as far as they were counted.
        least: usize,
        /// The places allowed.
        most: usize,
    },
    /// More devices in one place than it can have.
    #[error("{least} devices or more in one place; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyInPlace {
        /// The devices asked for, as far as they were counted.
        least: usize,
        /// The devices allowed.
        most: usize,
    },
    /// A name that is no device.
    #[error("unknown device {text:?}; known are cpu, cuda:N and metal:N, in lower case")]
    #[non_exhaustive]
    Unknown {
        /// What was written.
        text: String,
    },
    /// A number where a device belongs.
    #[error("{text:?} does not say which kind of device it is; write {instead}")]
    #[non_exhaustive]
    NoKind {
        /// What was written.
        text: String,
        /// What was probably meant.
        instead: String,
    },
    /// The CPU with an index.
    #[error("{text:?} has an index, and cpu takes none; write cpu, or cpu*N for N producers on it")]
    #[non_exhaustive]
    CpuIndex {
        /// What was written.
        text: String,
    },
    /// An index that is no number, or too large for one.
    #[error("{text:?} has no readable index; write {kind}:0, {kind}:0-3 or {kind}:all")]
    #[non_exhaustive]
    BadIndex {
        /// What was written.
        text: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
    },
    /// A range whose end is before its start.
    #[error("the range {text:?} runs backwards; write {kind}:{last}-{first}")]
    #[non_exhaustive]
    Backwards {
        /// What was written.
        text: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
        /// The index that the range starts with.
        first: usize,
        /// The smaller index that it ends with.
        last: usize,
    },
    /// What follows `*` is no number of producers.
    #[error("{text:?} does not end in a number of producers from 1 to {most}, as cpu*4 does")]
    #[non_exhaustive]
    BadCount {
        /// What was written.
        text: String,
        /// The largest number allowed.
        most: usize,
    },
    /// Several devices where one is needed.
    #[error("{text:?} is not one device; one is cpu, cuda:N or metal:N")]
    #[non_exhaustive]
    NotOne {
        /// What was written.
        text: String,
    },
    /// A device stands twice in one place.
    #[error("{device} stands twice in one place; for two producers on it write {device}*2")]
    #[non_exhaustive]
    Twice {
        /// The device.
        device: Device,
    },
    /// This build cannot use such devices.
    #[error(
        "{wanted} needs a build with the feature `{feature}`; \
         as a mere name for the hooks, take it with `Devices::as_labels`"
    )]
    #[non_exhaustive]
    NotBuilt {
        /// The device asked for, as text.
        wanted: String,
        /// The feature that it needs.
        feature: &'static str,
    },
    /// The driver of such devices is there and fails.
    #[error("{wanted} cannot be used: the driver of {kind} does not start")]
    #[non_exhaustive]
    Driver {
        /// The device asked for, as text.
        wanted: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
        /// What the driver says.
        source: BoxError,
    },
    /// All devices of a kind were asked for, and there are none.
    #[error("{kind}:all stands for no device: this machine has no {kind} device")]
    #[non_exhaustive]
    NoneFound {
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
    },
    /// This machine does not have the device.
    #[error("{device} does not exist; this machine has {}", present(*.device, *.found))]
    #[non_exhaustive]
    Missing {
        /// The device.
        device: Device,
        /// How many of its kind there are, with the indices from 0.
        found: usize,
    },
    /// A candle device was asked for, and the devices are only names.
    #[error("{device} is only a name here: the devices were taken with `Devices::as_labels`")]
    #[non_exhaustive]
    Label {
        /// The device.
        device: Device,
    },
    /// The device exists and could not be opened.
    #[error("{device} could not be opened")]
    #[non_exhaustive]
    Open {
        /// The device.
        device: Device,
        /// What the driver says.
        source: BoxError,
    },
}

/// The devices of the same kind that are there.
fn present(device: Device, found: usize) -> String {
    let kind = match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Metal(_) => "metal",
    };
    match found {
        0 => format!("no {kind} device"),
        1 => format!("{kind}:0"),
        _ => format!("{kind}:0 to {kind}:{}", found - 1),
    }
}

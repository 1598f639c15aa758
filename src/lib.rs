//! gangline.

mod device;
mod error;

pub use crate::device::{Device, DeviceError, Devices, IntoDevices};
pub use crate::error::{BoxError, Error, Hook, PanicMessage, Result, Site};

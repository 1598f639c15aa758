//! gangline.

mod device;
mod error;

pub use crate::device::{Device, DeviceError};
pub use crate::error::{BoxError, Error, Hook, PanicMessage, Result, Site};

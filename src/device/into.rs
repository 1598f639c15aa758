//! The values that a list of devices can be made from.

use std::num::NonZero;

use super::devices_text::note_once;
use super::{Device, DeviceError, Devices, MAX_PLACES, Place};

/// A value that the constructors of runners take for their devices.
///
/// | value | places |
/// |---|---|
/// | `3` (a `usize` or `NonZero<usize>`) | three producers on the CPU |
/// | `"cuda:0-1,cpu*2"` (`&str`, `String`) | those of the [text](Devices#text) |
/// | [`Device`], [`Devices`] | one; themselves |
/// | `["cuda:0", "cpu*2"]` | those of all texts, one after the other |
/// | `vec![Device::Cpu, Device::Cuda(0)]` | one producer for each device |
///
/// Arrays, slices and vectors have elements of text or [`Device`]; everything is taken by reference too. Of
/// the integer types only `usize` is a count, so that a plain `3` needs no type: write a `u32` as `n as usize`.
///
/// ```
/// use gangline::device::IntoDevices;
/// use gangline::error::DeviceError;
/// use gangline::{Device, Devices};
///
/// fn places(devices: impl IntoDevices) -> Result<usize, DeviceError> {
///     Ok(devices.into_devices()?.len())
/// }
///
/// assert_eq!(places(3)?, 3);
/// assert!(places(std::thread::available_parallelism().expect("the machine has cores"))? > 0);
/// assert_eq!(places("cuda:0-1,cpu*2")?, 4);
/// assert_eq!(places(["cuda:0", "cpu*2"])?, 3);
/// assert_eq!(places(vec![Device::Cpu, Device::Cuda(0)])?, 2);
/// assert_eq!(places(Devices::from_places([vec![Device::Cpu]])?)?, 1);
/// assert!(places(0).is_err());
/// # Ok::<(), DeviceError>(())
/// ```
///
/// A list of numbers could mean counts or indices, so it is refused:
///
/// ```compile_fail
/// # use gangline::device::IntoDevices;
/// # use gangline::Devices;
/// let devices = [0, 1].into_devices();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not say which devices to use",
    label = "not a list of devices",
    note = "write a number of CPU producers as a `usize` (`n as usize`), a text such as \"cuda:0-1\", a `Device`, \
            `Devices`, or an array, slice or vector of texts or of `Device`"
)]
pub trait IntoDevices {
    /// Makes the list.
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if a text cannot be read, if there is no device, or if there are more
    /// than 65,536 places.
    fn into_devices(self) -> Result<Devices, DeviceError>;
}

impl IntoDevices for usize {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        Devices::cpus(self)
    }
}

/// What [`available_parallelism`](std::thread::available_parallelism) returns.
impl IntoDevices for NonZero<usize> {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.get().into_devices()
    }
}

impl IntoDevices for &str {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.parse()
    }
}

impl IntoDevices for &&str {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.parse()
    }
}

impl IntoDevices for String {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.parse()
    }
}

impl IntoDevices for Device {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        Devices::new(vec![Place::one(self)])
    }
}

impl IntoDevices for Devices {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        Ok(self)
    }
}

impl IntoDevices for &usize {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        (*self).into_devices()
    }
}

impl IntoDevices for &String {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.parse()
    }
}

impl IntoDevices for &Device {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        (*self).into_devices()
    }
}

impl IntoDevices for &Devices {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        Ok(self.clone())
    }
}

impl<T: Element> IntoDevices for &[T] {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        let (mut places, mut fallbacks) = (Vec::new(), Vec::new());
        for element in self {
            let mut devices = element.devices()?;
            places.append(&mut devices.places);
            devices.fallbacks.into_iter().for_each(|fallback| note_once(&mut fallbacks, fallback));
            if places.len() > MAX_PLACES {
                break;
            }
        }
        Ok(Devices { fallbacks, ..Devices::new(places)? })
    }
}

impl<T: Element> IntoDevices for Vec<T> {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.as_slice().into_devices()
    }
}

impl<T: Element> IntoDevices for &Vec<T> {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.as_slice().into_devices()
    }
}

impl<T: Element, const N: usize> IntoDevices for [T; N] {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.as_slice().into_devices()
    }
}

impl<T: Element, const N: usize> IntoDevices for &[T; N] {
    fn into_devices(self) -> Result<Devices, DeviceError> {
        self.as_slice().into_devices()
    }
}

/// An element of an array, a slice or a vector: a text or a device, also by reference. Not public, so that
/// no other crate implements it for a number.
#[diagnostic::on_unimplemented(
    message = "a list of `{Self}` does not say which devices to use",
    label = "neither a text nor a `Device`"
)]
#[expect(unnameable_types, reason = "no other crate implements it")]
pub trait Element {
    /// Returns the places that it adds to the list.
    fn devices(&self) -> Result<Devices, DeviceError>;
}

impl Element for str {
    fn devices(&self) -> Result<Devices, DeviceError> {
        self.parse()
    }
}

impl Element for String {
    fn devices(&self) -> Result<Devices, DeviceError> {
        self.parse()
    }
}

impl Element for Device {
    fn devices(&self) -> Result<Devices, DeviceError> {
        self.into_devices()
    }
}

impl<T: Element + ?Sized> Element for &T {
    fn devices(&self) -> Result<Devices, DeviceError> {
        (**self).devices()
    }
}

//! Devices as candle knows them.

use std::sync::OnceLock;

use super::thread_variables::warn_if_candle_counts;
use super::{Device, DeviceError, Meaning, Place};

/// The candle devices of one producer, opened when they are first asked for.
///
/// candle treats every opened device as another one, and the tensors of two do not mix, even when
/// both stand for the same GPU. So a producer opens its devices once, and everything it does uses
/// these. Two producers never share one: each has its own CUDA streams and cuBLAS handles.
#[derive(Debug)]
pub(crate) struct CandleDevices {
    place: Place,
    meaning: Meaning,
    opened: OnceLock<Vec<candle_core::Device>>,
}

impl CandleDevices {
    /// For the producer of this place. Nothing is opened yet: many hooks never ask.
    pub(crate) fn new(place: &Place, meaning: Meaning) -> Self {
        CandleDevices { place: place.clone(), meaning, opened: OnceLock::new() }
    }

    /// The candle devices in the order of the place, the same ones at each call.
    ///
    /// To be called on the producer's own thread.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Label`] if the devices are only names, [`DeviceError::Open`] if the driver
    /// refuses one. A failure is not kept: the next call tries again.
    pub(crate) fn get(&self) -> Result<&[candle_core::Device], DeviceError> {
        if let Some(opened) = self.opened.get() {
            return Ok(opened);
        }
        let opened = self.open()?;
        Ok(self.opened.get_or_init(|| opened))
    }

    fn open(&self) -> Result<Vec<candle_core::Device>, DeviceError> {
        let open = |device: &Device| match self.meaning {
            Meaning::Real => device.open(),
            Meaning::Labels => Err(DeviceError::Label { device: *device }),
        };
        self.place.devices().iter().map(open).collect()
    }
}

impl Device {
    /// Opens the device for candle, as a new one each time.
    ///
    /// # Errors
    ///
    /// [`DeviceError::Open`] if this build or the driver refuses.
    pub(crate) fn open(self) -> Result<candle_core::Device, DeviceError> {
        match self {
            Device::Cpu => {
                warn_if_candle_counts();
                Ok(candle_core::Device::Cpu)
            }
            // A stream of its own. `new_cuda` takes the stream of the thread that happens to call,
            // which is another one in another thread, without any order between them.
            Device::Cuda(index) => candle_core::Device::new_cuda_with_stream(index),
            Device::Metal(index) => candle_core::Device::new_metal(index),
        }
        .map_err(|error| DeviceError::Open { device: self, source: error.into() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::Devices;

    fn candle_devices(devices: &Devices) -> CandleDevices {
        CandleDevices::new(devices.place(0).unwrap(), devices.meaning())
    }

    #[test]
    fn the_cpu_opens_once() {
        let devices = candle_devices(&"cpu".parse().unwrap());
        let opened = devices.get().unwrap();
        assert!(matches!(opened, [candle_core::Device::Cpu]));
        assert!(std::ptr::eq(opened, devices.get().unwrap()));
    }

    #[test]
    fn labels_do_not_open() {
        let devices = candle_devices(&"cpu".parse::<Devices>().unwrap().names_only());
        let error = devices.get().unwrap_err().to_string();
        assert_eq!(
            error,
            "cpu is only a name here: the devices were taken with `Devices::names_only`"
        );
    }

    #[test]
    #[cfg(not(feature = "cuda"))]
    fn a_failure_names_the_device_and_is_not_kept() {
        let devices = candle_devices(&"cpu+cuda:3".parse().unwrap());
        for _ in 0..2 {
            let error = devices.get().unwrap_err();
            assert_eq!(error.to_string(), "cuda:3 could not be opened");
            let cause = std::error::Error::source(&error).unwrap().to_string();
            assert!(cause.contains("not been built with cuda"), "{cause}");
        }
    }

    #[test]
    fn contexts_can_share_it() {
        fn shared<T: Send + Sync>() {}
        shared::<CandleDevices>();
    }
}

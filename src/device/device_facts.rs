//! What the devices of a pool are called, and how much memory they have.

use std::collections::BTreeMap;
use std::fs;
use std::sync::{Arc, LazyLock, OnceLock};

use super::detect;
use super::machine::Machine;
use super::{Device, Devices, Meaning, Place};
use crate::base::memory;

/// The memory of the places of a pool. It is looked up when the first item does not fit: asking a driver takes time.
#[derive(Debug, Clone, Default)]
pub(crate) struct DeviceMemory {
    devices: Option<Devices>,
    known: Arc<OnceLock<Vec<Option<u64>>>>,
}

impl DeviceMemory {
    pub(crate) fn new(devices: &Devices) -> Self {
        DeviceMemory { devices: Some(devices.clone()), known: Arc::default() }
    }

    /// Memory that a test gives, in bytes.
    #[cfg(test)]
    pub(crate) fn given(of_places: Vec<Option<u64>>) -> Self {
        DeviceMemory { devices: None, known: Arc::new(OnceLock::from(of_places)) }
    }

    /// Returns the memory of each place in bytes; `None` where it is not known.
    pub(crate) fn of_places(&self) -> &[Option<u64>] {
        self.known.get_or_init(|| match &self.devices {
            Some(devices) if devices.meaning == Meaning::Real => {
                let variable = detect::visible_devices();
                let machine = Machine::new(variable.as_deref(), &detect::inventory_once);
                devices.places.iter().map(|place| of_place(place, &machine)).collect()
            }
            _ => vec![],
        })
    }
}

/// Returns the models of devices, as far as they are known: `cuda:0` is an `NVIDIA H100 80GB HBM3`.
///
/// For GPUs of NVIDIA, this needs the feature `nvml` and the driver. The driver is asked once in a process.
pub(crate) fn models(devices: &Devices) -> BTreeMap<String, String> {
    let variable = detect::visible_devices();
    let machine = Machine::new(variable.as_deref(), &detect::inventory_once);
    let places = (0..devices.len()).filter_map(|producer| devices.place(producer));
    let all = places.flat_map(|place| place.devices()).copied();
    let model = |device: Device| match device {
        Device::Cpu => CPU.clone(),
        Device::Cuda(index) => machine.model(index),
        _ => None,
    };
    all.filter_map(|device| Some((device.to_string(), model(device)?))).collect()
}

/// The model of the CPU, where the system has a file with it.
static CPU: LazyLock<Option<String>> = LazyLock::new(|| {
    let text = fs::read_to_string("/proc/cpuinfo").ok()?;
    let line = text.lines().find(|line| line.starts_with("model name"))?;
    Some(line.split_once(':')?.1.trim().to_owned())
});

/// The memory of all devices of a place together, if each is known.
fn of_place(place: &Place, machine: &Machine<'_>) -> Option<u64> {
    let of_device = |device: &Device| match *device {
        Device::Cpu => memory::limit(),
        Device::Cuda(index) => machine.memory(index),
        Device::Metal(_) => None,
    };
    let each = place.devices().iter().map(of_device).collect::<Option<Vec<_>>>()?;
    each.into_iter().try_fold(0_u64, u64::checked_add)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::inventory::tests::unequal;

    #[test]
    fn the_memory_of_a_place_is_that_of_all_its_devices() {
        let variable = Some("1,0");
        let machine = Machine::new(variable, &unequal);
        let of = |text: &str| {
            let devices: Devices = text.parse().expect("it is a list");
            devices.places.iter().map(|place| of_place(place, &machine)).collect::<Vec<_>>()
        };
        assert_eq!(of("cuda:0,cuda:1,cuda:0+cuda:1"), [Some(80), Some(24), Some(104)]);
        assert_eq!(of("cuda:2,cuda:0+cuda:2,metal:0"), [None; 3]);
        assert_eq!(of("cpu"), [memory::limit()]);
    }

    #[test]
    fn names_of_devices_have_no_memory() {
        let devices: Devices = "cpu".parse().expect("it is a list");
        assert_eq!(DeviceMemory::new(&devices).of_places(), [memory::limit()]);
        assert!(DeviceMemory::new(&devices.names_only()).of_places().is_empty());
    }

    #[test]
    fn a_device_without_a_known_model_is_left_out() {
        let devices: Devices = "cpu,cuda:63".parse().unwrap();
        let models = models(&devices);
        assert!(!models.contains_key("cuda:63"), "{models:?}");
        assert!(models.values().all(|model| !model.is_empty()), "{models:?}");
    }
}

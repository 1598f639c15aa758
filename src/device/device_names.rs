//! What the devices are called.

use std::collections::BTreeMap;
use std::fs;
use std::sync::LazyLock;

use super::detect;
use super::inventory::{DriverAnswer, Inventory};
use super::machine::Machine;
use super::{Device, Devices};

/// Returns the models of devices, as far as they are known: `cuda:0` is an `NVIDIA H100 80GB HBM3`.
///
/// GPUs of NVIDIA need the feature `nvml` and their driver. The driver is asked once in a process.
pub(crate) fn models(devices: &Devices) -> BTreeMap<String, String> {
    static INVENTORY: LazyLock<Option<Inventory>> = LazyLock::new(|| match detect::inventory() {
        DriverAnswer::Known(inventory) => Some(inventory),
        DriverAnswer::NotBuilt | DriverAnswer::Failed(_) => None,
    });
    let variable = detect::visible_devices();
    let ask = || match &*INVENTORY {
        Some(inventory) => DriverAnswer::Known(inventory.clone()),
        None => DriverAnswer::NotBuilt,
    };
    let machine = Machine::new(variable.as_deref(), &ask);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_device_without_a_known_model_is_left_out() {
        let devices: Devices = "cpu,cuda:63".parse().unwrap();
        let models = models(&devices);
        assert!(!models.contains_key("cuda:63"), "{models:?}");
        assert!(models.values().all(|model| !model.is_empty()), "{models:?}");
    }
}

//! Asks NVIDIA's driver about its GPUs.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::gpu::Uuid;
use super::inventory::{CardModel, MachineGpu, Mig};
use crate::base::BoxError;

/// The address of a GPU: domain, bus and device.
type PciAddress = (u32, u32, u32);

/// Returns the GPUs of this machine, in the order of their PCI addresses.
///
/// # Errors
///
/// If there is no driver, or if it does not describe every GPU: CUDA's numbering depends on all of them.
pub(super) fn gpus() -> Result<Vec<MachineGpu>, BoxError> {
    let nvml = Nvml::init()?;
    let count = nvml.device_count()?;
    let mut gpus = Vec::new();
    for index in 0..count {
        let told = gpu(&nvml, index, count).map_err(|error| format!("GPU {index}: {error}"))?;
        gpus.push(told);
    }
    // The order of the driver may change between versions.
    gpus.sort_by_key(|(address, _)| *address);
    Ok(gpus.into_iter().map(|(_, gpu)| gpu).collect())
}

/// Describes GPU `index` of `count`.
fn gpu(nvml: &Nvml, index: u32, count: u32) -> Result<(PciAddress, MachineGpu), BoxError> {
    let device = nvml.device_by_index(index)?;
    let address = match count {
        // One GPU needs no order, and a GPU of a system on a chip is on no bus.
        1 => PciAddress::default(),
        _ => address(&device)?,
    };
    let uuid = device.uuid()?;
    let uuid = Uuid::parse(&uuid).ok_or_else(|| format!("{uuid:?} is no UUID of a GPU"))?;
    // GPUs that share the memory of the machine report none of their own.
    let memory = device.memory_info().map_or(0, |memory| memory.total);
    let model = CardModel { name: device.name()?, memory };
    Ok((address, MachineGpu { uuid, model, mig: mig(&device)? }))
}

fn address(device: &Device<'_>) -> Result<PciAddress, NvmlError> {
    let pci = device.pci_info()?;
    Ok((pci.domain, pci.bus, pci.device))
}

fn mig(device: &Device<'_>) -> Result<Mig, NvmlError> {
    match device.mig_mode() {
        Ok(mode) if mode.current != 0 => Ok(Mig::On),
        // A GPU that cannot be split, or a driver older than MIG.
        Ok(_) | Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(Mig::Off),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Passes with and without a driver.
    #[test]
    fn there_are_gpus_or_a_reason() {
        match gpus() {
            Ok(gpus) => assert!(gpus.iter().all(|gpu| gpu.uuid.is_full())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

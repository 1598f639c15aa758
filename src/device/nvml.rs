//! NVIDIA's driver, asked about its GPUs.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::inventory::{MachineGpu, Mig, Model};
use super::uuid::Uuid;
use crate::base::BoxError;

/// Where a GPU is: domain, bus and device.
type PciAddress = (u32, u32, u32);

/// The GPUs of this machine, in the order of their PCI addresses.
///
/// # Errors
///
/// Where there is no driver, or where it does not tell: without one GPU nobody knows how CUDA counts the
/// others.
pub(super) fn gpus() -> Result<Vec<MachineGpu>, BoxError> {
    let nvml = Nvml::init()?;
    let count = nvml.device_count()?;
    let mut gpus = Vec::new();
    for index in 0..count {
        let told = gpu(&nvml, index, count).map_err(|error| format!("GPU {index}: {error}"))?;
        gpus.push(told);
    }
    // The driver's own order is that of today only.
    gpus.sort_by_key(|(address, _)| *address);
    Ok(gpus.into_iter().map(|(_, gpu)| gpu).collect())
}

/// One of so many.
fn gpu(nvml: &Nvml, index: u32, count: u32) -> Result<(PciAddress, MachineGpu), BoxError> {
    let device = nvml.device_by_index(index)?;
    let address = match count {
        // There is nothing to put in order, and a GPU of a system on a chip is on no bus.
        1 => PciAddress::default(),
        _ => address(&device)?,
    };
    let uuid = device.uuid()?;
    let uuid = Uuid::parse(&uuid).ok_or_else(|| format!("{uuid:?} is no UUID of a GPU"))?;
    // GPUs that share the memory of the machine have none of their own to tell.
    let memory = device.memory_info().map_or(0, |memory| memory.total);
    let model = Model { name: device.name()?, memory };
    Ok((address, MachineGpu { uuid, model, mig: mig(&device)? }))
}

fn address(device: &Device<'_>) -> Result<PciAddress, NvmlError> {
    let pci = device.pci_info()?;
    Ok((pci.domain, pci.bus, pci.device))
}

fn mig(device: &Device<'_>) -> Result<Mig, NvmlError> {
    match device.mig_mode() {
        Ok(mode) if mode.current != 0 => Ok(Mig::On),
        // A GPU that cannot be split, or a driver from before there was such a thing.
        Ok(_) | Err(NvmlError::NotSupported | NvmlError::FailedToLoadSymbol(_)) => Ok(Mig::Off),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whether there is a driver is up to the machine.
    #[test]
    fn there_are_gpus_or_a_reason() {
        match gpus() {
            Ok(gpus) => assert!(gpus.iter().all(|gpu| gpu.uuid.is_full())),
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    }
}

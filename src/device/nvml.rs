//! NVIDIA's driver, asked about its GPUs.

use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};

use super::inventory::{MachineGpu, Mig, Model};
use super::uuid::Uuid;
use crate::error::BoxError;

/// Where a GPU is: domain, bus and device.
type PciAddress = (u32, u32, u32);

/// The GPUs of this machine, in the order of their PCI addresses.
///
/// # Errors
///
/// Where there is no driver, or where it does not tell.
pub(super) fn gpus() -> Result<Vec<MachineGpu>, BoxError> {
    let nvml = open()?;
    let gpu = |index| gpu(&nvml.device_by_index(index)?);
    let mut gpus: Vec<_> = (0..nvml.device_count()?).map(gpu).collect::<Result<_, BoxError>>()?;
    // The driver's own order is that of today only.
    gpus.sort_by_key(|(address, _)| *address);
    Ok(gpus.into_iter().map(|(_, gpu)| gpu).collect())
}

/// The name that a driver's library has where no development files are installed, too.
#[cfg(unix)]
fn open() -> Result<Nvml, NvmlError> {
    Nvml::builder().lib_path("libnvidia-ml.so.1".as_ref()).init()
}

#[cfg(not(unix))]
fn open() -> Result<Nvml, NvmlError> {
    Nvml::init()
}

fn gpu(device: &Device<'_>) -> Result<(PciAddress, MachineGpu), BoxError> {
    let pci = device.pci_info()?;
    let uuid = device.uuid()?;
    let uuid = Uuid::parse(&uuid).ok_or_else(|| format!("{uuid:?} is no UUID of a GPU"))?;
    // GPUs that share the memory of the machine have none of their own to tell.
    let memory = device.memory_info().map_or(0, |memory| memory.total);
    let model = Model { name: device.name()?, memory };
    Ok(((pci.domain, pci.bus, pci.device), MachineGpu { uuid, model, mig: mig(device)? }))
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

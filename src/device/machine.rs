//! The UUIDs and indices of the GPUs, as this process counts them.

#[cfg(test)]
mod tests;

use std::cell::OnceCell;
use std::ops::Range;

use super::gpu::{ALL, Gpu, Uuid};
use super::inventory::{DriverAnswer, Inventory};
use super::visible::Visible;
use super::{Device, DeviceError};

/// The visible GPUs of a machine, and what its driver says about them.
///
/// CUDA's driver gives each process its own indices, by `CUDA_VISIBLE_DEVICES`; a UUID is the same in all
/// processes.
pub(super) struct Machine<'a> {
    visible: Visible<'a>,
    ask: &'a dyn Fn() -> DriverAnswer,
    /// Read on first use: opening a driver takes time, and few runs need it.
    inventory: OnceCell<Inventory>,
}

impl<'a> Machine<'a> {
    pub(super) fn new(variable: Option<&'a str>, ask: &'a dyn Fn() -> DriverAnswer) -> Self {
        Machine { visible: Visible::new(variable), ask, inventory: OnceCell::new() }
    }

    pub(super) fn visible(&self) -> &Visible<'a> {
        &self.visible
    }

    /// Returns the index of a UUID, which may be shortened.
    pub(super) fn index(&self, uuid: &Uuid) -> Result<usize, DeviceError> {
        match self.visible.find(uuid) {
            // The driver knows no index of a MIG device: CUDA shows one only if the variable names it.
            Err(DeviceError::UnknownUuid { .. }) if !uuid.is_mig() => self.index_by_driver(uuid),
            known => known,
        }
    }

    /// Returns the ids of all visible GPUs: those that the variable lists, or else those of the driver.
    pub(super) fn all(&self) -> Result<Range<usize>, DeviceError> {
        match (self.inventory(&ALL), self.visible.is_set()) {
            // CUDA counts parts of a GPU only if the variable names them.
            (Ok(inventory), false) => self.visible.all(Some(inventory.unsplit()?)),
            (Ok(inventory), true) => self.visible.all(Some(inventory.len())),
            (Err(_), true) => self.visible.all(None),
            (Err(DeviceError::UuidsUnknown { source, .. }), false) => {
                let reason = format!("NVIDIA's driver cannot be asked: {source}");
                Err(DeviceError::NoneVisible { reason })
            }
            (Err(_), false) => {
                let reason = "NVML is only in builds with the feature `nvml`".to_owned();
                Err(DeviceError::NoneVisible { reason })
            }
        }
    }

    /// Returns the full UUID of a CUDA index.
    pub(super) fn uuid(&self, index: usize) -> Result<Uuid, DeviceError> {
        match self.visible.entry(index)? {
            Gpu::Uuid(uuid) if uuid.is_full() => Ok(uuid.canonical()),
            Gpu::Uuid(uuid) if uuid.is_mig() => {
                Err(DeviceError::ShortMig { uuid: uuid.to_string() })
            }
            Gpu::Uuid(uuid) => self.inventory(&uuid)?.complete(&uuid).map(Uuid::canonical),
            Gpu::Index(on_machine) => self.uuid_by_driver(index, on_machine),
            Gpu::All => Err(DeviceError::NoIndex { uuid: ALL.to_owned() }),
        }
    }

    /// Returns the name of the model of a CUDA index, if it is known.
    pub(super) fn model(&self, index: usize) -> Option<String> {
        let uuid = self.uuid(index).ok()?;
        self.inventory(&uuid).ok()?.model(&uuid).map(str::to_owned)
    }

    /// Returns the memory of a CUDA index in bytes, if it is known.
    pub(super) fn memory(&self, index: usize) -> Option<u64> {
        let uuid = self.uuid(index).ok()?;
        self.inventory(&uuid).ok()?.memory(&uuid)
    }

    fn index_by_driver(&self, uuid: &Uuid) -> Result<usize, DeviceError> {
        let inventory = self.inventory(uuid)?;
        let on_machine = inventory.index(inventory.complete(uuid)?)?;
        on_machine
            .and_then(|index| self.visible.index_of(index))
            .ok_or_else(|| self.visible.unknown(uuid))
    }

    fn uuid_by_driver(&self, index: usize, on_machine: usize) -> Result<Uuid, DeviceError> {
        let device = Device::Cuda(index);
        let inventory = self.inventory(&device)?;
        let missing = || DeviceError::Missing { device, found: inventory.len() };
        inventory.uuid(on_machine)?.map(Uuid::canonical).ok_or_else(missing)
    }

    fn inventory(&self, wanted: &dyn std::fmt::Display) -> Result<&Inventory, DeviceError> {
        if let Some(inventory) = self.inventory.get() {
            return Ok(inventory);
        }
        let inventory = (self.ask)().known(wanted)?;
        Ok(self.inventory.get_or_init(|| inventory))
    }
}

//! The GPUs of a machine as its driver describes them, as a value.

use std::fmt;

use super::DeviceError;
use super::error_text::clip;
use super::gpu::Uuid;
use crate::base::BoxError;

/// The GPUs of a machine, in the order of their PCI addresses, which is that of nvidia-smi.
#[derive(Debug, Clone)]
pub(super) struct Inventory {
    gpus: Vec<MachineGpu>,
    order: CountingOrder,
}

/// One GPU, as its driver describes it.
#[derive(Debug, Clone)]
pub(super) struct MachineGpu {
    pub(super) uuid: Uuid,
    pub(super) model: CardModel,
    pub(super) mig: Mig,
}

/// The properties that CUDA's order of speed depends on, as far as the driver knows them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct CardModel {
    pub(super) name: String,
    /// The memory in bytes.
    pub(super) memory: u64,
}

/// Whether a GPU is split into MIG devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mig {
    On,
    #[cfg_attr(not(any(test, feature = "nvml")), expect(dead_code, reason = "nobody is asked"))]
    Off,
}

/// The order in which CUDA counts the GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CountingOrder {
    /// The order of the inventory.
    Pci,
    /// The fastest is 0, by a rule that CUDA does not publish; the others are in the order of the
    /// inventory. CUDA's default.
    FastestFirst,
}

/// The answer of a driver.
#[derive(Debug)]
pub(super) enum DriverAnswer {
    /// This build was made without the feature, so the driver was not asked.
    NotBuilt,
    /// The GPUs of this machine.
    Known(Inventory),
    /// There is no driver, or it does not work.
    #[cfg_attr(not(any(test, feature = "nvml")), expect(dead_code, reason = "nobody is asked"))]
    Failed(BoxError),
}

impl DriverAnswer {
    /// Returns the inventory, or the error for `wanted`.
    pub(super) fn known(self, wanted: impl fmt::Display) -> Result<Inventory, DeviceError> {
        let wanted = || wanted.to_string();
        match self {
            DriverAnswer::Known(inventory) => Ok(inventory),
            DriverAnswer::NotBuilt => Err(DeviceError::UuidsNotBuilt { wanted: wanted() }),
            DriverAnswer::Failed(source) => {
                Err(DeviceError::UuidsUnknown { wanted: wanted(), source })
            }
        }
    }
}

impl Inventory {
    pub(super) fn new(gpus: Vec<MachineGpu>, order: CountingOrder) -> Self {
        Inventory { gpus, order }
    }

    /// Returns the number of GPUs.
    pub(super) fn len(&self) -> usize {
        self.gpus.len()
    }

    /// Returns the number of GPUs. It is an error if one is split into MIG devices.
    pub(super) fn unsplit(&self) -> Result<usize, DeviceError> {
        match self.gpus.iter().find(|gpu| gpu.mig == Mig::On) {
            Some(split) => Err(DeviceError::SplitGpu { uuid: split.uuid.to_string() }),
            None => Ok(self.gpus.len()),
        }
    }

    /// Returns the UUID of the GPU with this CUDA index if all are visible.
    pub(super) fn uuid(&self, index: usize) -> Result<Option<&Uuid>, DeviceError> {
        self.check_order()?;
        Ok(self.gpus.get(index).map(|gpu| &gpu.uuid))
    }

    /// Returns the CUDA index of a GPU of this inventory if all are visible.
    pub(super) fn index(&self, uuid: &Uuid) -> Result<Option<usize>, DeviceError> {
        self.check_order()?;
        Ok(self.gpus.iter().position(|gpu| gpu.uuid == *uuid))
    }

    /// Returns the full UUID for one that may be shortened.
    pub(super) fn complete(&self, uuid: &Uuid) -> Result<&Uuid, DeviceError> {
        let mut meant = self.gpus.iter().map(|gpu| &gpu.uuid).filter(|gpu| gpu.may_be(uuid));
        match (meant.next(), meant.next()) {
            (Some(gpu), None) => Ok(gpu),
            (Some(first), Some(second)) => Err(DeviceError::ShortUuid {
                uuid: uuid.to_string(),
                first: first.to_string(),
                second: second.to_string(),
            }),
            (None, _) => {
                Err(DeviceError::MissingUuid { uuid: uuid.to_string(), found: self.uuids() })
            }
        }
    }

    /// Returns the name of the model of a GPU.
    pub(super) fn model(&self, uuid: &Uuid) -> Option<&str> {
        Some(&self.gpu(uuid)?.model.name)
    }

    /// Returns the memory of a GPU in bytes. `None` if it has none of its own.
    pub(super) fn memory(&self, uuid: &Uuid) -> Option<u64> {
        Some(self.gpu(uuid)?.model.memory).filter(|memory| *memory > 0)
    }

    fn gpu(&self, uuid: &Uuid) -> Option<&MachineGpu> {
        self.gpus.iter().find(|gpu| gpu.uuid.may_be(uuid))
    }

    fn check_order(&self) -> Result<(), DeviceError> {
        if let Some(gpu) = self.gpus.iter().find(|gpu| gpu.mig == Mig::On) {
            return Err(DeviceError::SplitGpu { uuid: gpu.uuid.to_string() });
        }
        let same = self.gpus.windows(2).all(|pair| pair[0].model == pair[1].model);
        match self.order {
            CountingOrder::FastestFirst if !same => {
                Err(DeviceError::UnknownOrder { models: clip(&self.models().join(", ")) })
            }
            CountingOrder::FastestFirst | CountingOrder::Pci => Ok(()),
        }
    }

    fn models(&self) -> Vec<&str> {
        self.gpus.iter().map(|gpu| gpu.model.name.as_str()).collect()
    }

    fn uuids(&self) -> Vec<String> {
        self.gpus.iter().map(|gpu| gpu.uuid.to_string()).collect()
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// Two GPUs with memories of 24 and 80 bytes.
    pub(in crate::device) fn unequal() -> DriverAnswer {
        let gpu = |digits: &str, memory| MachineGpu {
            uuid: Uuid::parse(&format!("GPU-{digits}-83e2-1b1a-6f2b-3e4d5c6b7a89"))
                .expect("a UUID"),
            model: CardModel { name: format!("{memory} bytes"), memory },
            mig: Mig::Off,
        };
        let gpus = vec![gpu("00000001", 24), gpu("00000002", 80)];
        DriverAnswer::Known(Inventory::new(gpus, CountingOrder::Pci))
    }

    #[test]
    fn a_gpu_that_shares_the_memory_of_the_machine_has_none_of_its_own() {
        let DriverAnswer::Known(mut inventory) = unequal() else { panic!("it is known") };
        let first = inventory.gpus[0].uuid.clone();
        assert_eq!(inventory.memory(&first), Some(24));
        inventory.gpus[0].model.memory = 0;
        assert_eq!(inventory.memory(&first), None);
    }
}

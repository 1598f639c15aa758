//! The devices that this build can use on this machine.

use std::cell::RefCell;
use std::env;
use std::fmt;
use std::num::NonZero;
use std::sync::LazyLock;

use super::accelerator::Accelerator;
use super::device_error::DeviceError;
use super::id::Device;
use super::inventory::{CountingOrder, DriverAnswer, Inventory, MachineGpu};
use super::place::Place;
use crate::base::BoxError;

/// The state of one kind of device on this machine.
#[derive(Debug)]
pub(super) enum Found {
    /// This build was made without the kind's feature, so no driver was asked.
    NotBuilt,
    /// The driver works and has this number of devices: possibly none.
    Count(usize),
    /// The driver exists but does not work: too old, another version than the kernel's, and so on.
    #[cfg_attr(not(any(test, feature = "cuda")), expect(dead_code, reason = "there is no driver"))]
    Failed(BoxError),
}

impl Found {
    /// Returns a copy, with the driver's error as a text.
    fn again(&self) -> Found {
        match self {
            Found::NotBuilt => Found::NotBuilt,
            Found::Count(count) => Found::Count(*count),
            Found::Failed(error) => Found::Failed(error.to_string().into()),
        }
    }

    /// Returns the number of usable devices.
    pub(super) fn count(&self) -> usize {
        match self {
            Found::Count(count) => *count,
            Found::NotBuilt | Found::Failed(_) => 0,
        }
    }

    /// Checks that each wanted device exists. `first` is the one to name if none exists.
    pub(super) fn check(
        self,
        accelerator: Accelerator,
        first: Device,
        mut wanted: impl Iterator<Item = Device>,
    ) -> Result<(), DeviceError> {
        let count = self.usable(accelerator, first)?;
        let exists = |device: &Device| accelerator.index_of(*device).is_some_and(|n| n < count);
        match wanted.find(|device| !exists(device)) {
            Some(device) => Err(DeviceError::Missing { device, found: count }),
            None => Ok(()),
        }
    }

    /// Returns the number of devices of the kind, for a text that asks for all of them.
    pub(super) fn all(self, accelerator: Accelerator) -> Result<NonZero<usize>, DeviceError> {
        let count = self.usable(accelerator, format_args!("{accelerator}:all"))?;
        NonZero::new(count).ok_or(DeviceError::NoneFound { kind: accelerator.name() })
    }

    fn usable(
        self,
        accelerator: Accelerator,
        wanted: impl fmt::Display,
    ) -> Result<usize, DeviceError> {
        let kind = accelerator.name();
        match self {
            Found::Count(count) => Ok(count),
            Found::NotBuilt => {
                Err(DeviceError::NotBuilt { wanted: wanted.to_string(), feature: kind })
            }
            Found::Failed(source) => {
                Err(DeviceError::Driver { wanted: wanted.to_string(), kind, source })
            }
        }
    }
}

/// Remembers each answer: asking a driver that fails takes time on each call.
#[derive(Default)]
pub(super) struct Memo(RefCell<Vec<(Accelerator, Found)>>);

impl Memo {
    /// Returns the state of a kind; calls `ask` once for each.
    pub(super) fn of(&self, kind: Accelerator, ask: &dyn Fn(Accelerator) -> Found) -> Found {
        let mut known = self.0.borrow_mut();
        if let Some((_, found)) = known.iter().find(|(known, _)| *known == kind) {
            return found.again();
        }
        let found = ask(kind);
        known.push((kind, found.again()));
        found
    }
}

/// Checks that the devices of all places exist and can be used.
pub(super) fn check_places(
    places: &[Place],
    found: &dyn Fn(Accelerator) -> Found,
) -> Result<(), DeviceError> {
    Accelerator::ALL.into_iter().try_for_each(|accelerator| {
        let devices = places.iter().flat_map(Place::devices).copied();
        let mut wanted = devices.filter(|it| accelerator.index_of(*it).is_some()).peekable();
        // Only the wanted kinds are asked for: opening a driver takes time.
        match wanted.peek() {
            Some(first) => found(accelerator).check(accelerator, *first, wanted),
            None => Ok(()),
        }
    })
}

/// Asks the driver of one kind of device.
pub(super) fn found(accelerator: Accelerator) -> Found {
    match accelerator {
        Accelerator::Cuda => cuda(),
        Accelerator::Metal => metal(),
    }
}

/// Returns the variable that sets the GPUs that CUDA shows to this process, and their order.
pub(super) fn visible_devices() -> Option<String> {
    // An entry that is not Unicode is not a GPU either: CUDA's list ends there.
    env::var_os("CUDA_VISIBLE_DEVICES").map(|value| value.to_string_lossy().into_owned())
}

/// Asks the driver for the GPUs of this machine.
pub(super) fn inventory() -> DriverAnswer {
    match nvml_gpus() {
        Ok(gpus) => DriverAnswer::Known(Inventory::new(gpus, order())),
        Err(refusal) => refusal,
    }
}

/// Asks the driver once in a process, and keeps what it knows.
pub(super) fn inventory_once() -> DriverAnswer {
    static INVENTORY: LazyLock<Option<Inventory>> = LazyLock::new(|| match inventory() {
        DriverAnswer::Known(inventory) => Some(inventory),
        DriverAnswer::NotBuilt | DriverAnswer::Failed(_) => None,
    });
    match &*INVENTORY {
        Some(inventory) => DriverAnswer::Known(inventory.clone()),
        None => DriverAnswer::NotBuilt,
    }
}

/// Returns the order in which CUDA counts GPUs, which another variable sets.
fn order() -> CountingOrder {
    match env::var_os("CUDA_DEVICE_ORDER") {
        Some(value) if value == "PCI_BUS_ID" => CountingOrder::Pci,
        _ => CountingOrder::FastestFirst,
    }
}

#[cfg(feature = "nvml")]
fn nvml_gpus() -> Result<Vec<MachineGpu>, DriverAnswer> {
    super::nvml::gpus().map_err(DriverAnswer::Failed)
}

#[cfg(not(feature = "nvml"))]
fn nvml_gpus() -> Result<Vec<MachineGpu>, DriverAnswer> {
    Err(DriverAnswer::NotBuilt)
}

#[cfg(feature = "cuda")]
fn cuda() -> Found {
    use candle_core::cuda_backend::cudarc::driver::{CudaContext, sys::CUresult};

    match CudaContext::device_count() {
        // The driver counts in `i32` and never below zero.
        Ok(count) => Found::Count(usize::try_from(count).unwrap_or(0)),
        Err(error) if error.0 == CUresult::CUDA_ERROR_NO_DEVICE => Found::Count(0),
        Err(error) => Found::Failed(error.into()),
    }
}

#[cfg(not(feature = "cuda"))]
fn cuda() -> Found {
    Found::NotBuilt
}

#[cfg(feature = "metal")]
fn metal() -> Found {
    // The list that candle takes its device from, by index and without a check.
    Found::Count(candle_metal_kernels::metal::Device::all().len())
}

#[cfg(not(feature = "metal"))]
fn metal() -> Found {
    Found::NotBuilt
}

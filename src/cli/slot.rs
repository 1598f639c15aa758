//! Slots: which GPUs each worker has, and how its jobs learn of them.

use std::env;
use std::ffi::{OsStr, OsString};

use super::args::{InUse, Placement, Separator};
use super::error::CliError;
use super::exit;
use super::mark::GpuMark;
use super::template::Template;
use crate::device::{Device, Devices, GpuList, GpuLock};

/// The slots of a run. A slot is a producer of the library: it has its GPUs for as long as the run lasts, so
/// there is nothing to give back and nothing to lose.
#[derive(Debug, Clone)]
pub(super) struct Slots {
    pub(super) devices: Devices,
    /// For each slot the ids of its GPUs, as this process counts them.
    gpus: Vec<Vec<usize>>,
    showing: Showing,
    /// The order of GPUs is set too, unless the environment has one.
    sets_order: bool,
}

/// How a job learns which GPUs are its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Showing {
    /// By its marks, if its command has any, and the environment stays as it is; else by the variable.
    Fitting,
    /// CUDA_VISIBLE_DEVICES shows these alone, which then count from 0.
    Variable,
}

/// What the jobs of one slot are given.
#[derive(Debug, Clone)]
pub(super) struct Slot {
    /// Those whose command has a mark for GPUs.
    with_marks: Given,
    /// All others.
    without: Given,
}

/// What a job is given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Given {
    /// What the marks for GPUs stand for.
    pub(super) ids: Vec<String>,
    pub(super) variables: Vec<(&'static str, OsString)>,
}

impl Slot {
    pub(super) fn given(&self, command: &Template) -> &Given {
        match command.has_gpus() {
            true => &self.with_marks,
            false => &self.without,
        }
    }
}

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const ORDER: &str = "CUDA_DEVICE_ORDER";

impl Slots {
    /// What the options say; without any, a worker for each core.
    pub(super) fn new(placement: &Placement) -> Result<Slots, CliError> {
        let refused = |error| CliError::new(exit::DEVICES, error);
        let devices = devices(placement)?;
        let devices =
            repeated(&devices, placement.per_gpu.unwrap_or(1)).map_err(refused)?.names_only();
        let gpus: Vec<Vec<usize>> =
            devices.places().map(|place| place.iter().filter_map(index).collect()).collect();
        let sets_order = env::var_os(ORDER).is_none();
        let showing = match placement.visible {
            true => Showing::Variable,
            false => Showing::Fitting,
        };
        Ok(Slots { devices, gpus, showing, sets_order })
    }

    /// Workers that have no GPU, and are shown none.
    pub(super) fn without_gpu(workers: usize) -> Result<Slots, CliError> {
        let refused = |error| CliError::new(exit::DEVICES, error);
        let devices = Devices::from_places(vec![vec![Device::Cpu]; workers]).map_err(refused)?;
        let gpus = vec![Vec::new(); workers];
        Ok(Slots { devices, gpus, showing: Showing::Variable, sets_order: false })
    }

    pub(super) fn len(&self) -> usize {
        self.gpus.len()
    }

    pub(super) fn have_gpus(&self) -> bool {
        self.gpus.iter().any(|gpus| !gpus.is_empty())
    }

    /// What can stand for the GPUs of a slot: marks must mean something in each.
    pub(super) fn mark(&self, separator: Option<Separator>) -> GpuMark {
        match separator {
            _ if self.gpus.iter().any(Vec::is_empty) => GpuMark::None,
            None => GpuMark::Fitting,
            Some(Separator::Space) => GpuMark::Separated(" "),
            Some(Separator::Comma) => GpuMark::Separated(","),
            Some(Separator::Colon) => GpuMark::Separated(":"),
        }
    }

    /// What the jobs of each slot are given. `hidden` are the slots of a run some of whose jobs have GPUs: then
    /// one without is shown none.
    pub(super) fn given(&self, hidden: Hidden) -> Result<Vec<Slot>, CliError> {
        self.gpus.iter().map(|gpus| self.slot(gpus, hidden)).collect()
    }

    fn slot(&self, gpus: &[usize], hidden: Hidden) -> Result<Slot, CliError> {
        let without = self.job(gpus, hidden, Showing::Variable)?;
        let with_marks = self.job(gpus, hidden, self.showing)?;
        Ok(Slot { with_marks, without })
    }

    fn job(&self, gpus: &[usize], hidden: Hidden, showing: Showing) -> Result<Given, CliError> {
        let ids = |ids: &mut dyn Iterator<Item = usize>| ids.map(|id| id.to_string()).collect();
        if gpus.is_empty() {
            let variables = match hidden {
                Hidden::Others => vec![(VISIBLE, OsString::new())],
                Hidden::Nothing => Vec::new(),
            };
            return Ok(Given { ids: Vec::new(), variables });
        }
        match showing {
            Showing::Fitting => {
                Ok(Given { ids: ids(&mut gpus.iter().copied()), variables: Vec::new() })
            }
            Showing::Variable => {
                let list: Vec<String> = ids(&mut gpus.iter().copied());
                let list: GpuList = list.join(" ").parse().map_err(refused)?;
                let on_machine = list.on_machine().map_err(refused)?;
                let mut variables = vec![(VISIBLE, OsString::from(format!("{on_machine:#}")))];
                if self.sets_order {
                    variables.push((ORDER, OsStr::new("PCI_BUS_ID").to_owned()));
                }
                Ok(Given { ids: ids(&mut (0..gpus.len())), variables })
            }
        }
    }
}

/// What a slot without a GPU is kept from seeing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hidden {
    /// The GPUs of other slots.
    Others,
    Nothing,
}

/// How the library is to lock the GPUs, if it is, where some may be in use.
pub(super) fn lock(placement: &Placement, in_use: InUse) -> Option<GpuLock> {
    placement.lock_gpus?;
    let lock = match in_use {
        InUse::Fail => GpuLock::or_fail(),
        InUse::Wait => GpuLock::or_wait(),
    };
    Some(match &placement.lock_dir {
        Some(directory) => lock.in_dir(directory),
        None => lock,
    })
}

fn devices(placement: &Placement) -> Result<Devices, CliError> {
    if let Some(devices) = placement.devices.as_ref().filter(|_| placement.use_gpu) {
        return Ok(devices.clone());
    }
    let Some(list) = placement.gpu_list.as_ref().filter(|_| placement.use_gpu) else {
        let workers = placement.workers.unwrap_or_else(num_cpus::get);
        return Devices::from_places(vec![vec![Device::Cpu]; workers]).map_err(refused);
    };
    let list = list.visible().map_err(refused)?;
    let workers = placement.workers.unwrap_or(list.len().max(1));
    let devices = match placement.share {
        true => list.share(workers),
        false => list.slots(workers),
    };
    devices.map_err(refused)
}

/// Every place so many times, one after the other.
fn repeated(devices: &Devices, times: usize) -> Result<Devices, crate::Error> {
    let copies = |place: &[Device]| vec![place.to_vec(); if has_gpu(place) { times } else { 1 }];
    Devices::from_places(devices.places().flat_map(copies))
}

fn has_gpu(place: &[Device]) -> bool {
    place.iter().any(|device| index(device).is_some())
}

fn index(device: &Device) -> Option<usize> {
    match device {
        Device::Cpu => None,
        Device::Cuda(index) | Device::Metal(index) => Some(*index),
    }
}

fn refused(error: crate::Error) -> CliError {
    CliError::new(exit::DEVICES, error)
}

//! Slots: the GPUs of each, and how its jobs are given them.

use std::collections::BTreeSet;
use std::env;
use std::ffi::{OsStr, OsString};
use std::sync::Arc;

use serde::{Deserialize, Serialize};

#[cfg(feature = "nats")]
use crate::args::device_names::DeviceNames;
use crate::args::workers::{WorkerCount, Workers};
use crate::args::{DeviceSeparator, Placement};
use crate::devices::check_reported;
use crate::error::{CliError, usage};
use crate::exit;
use crate::plan::mark::GpuMark;
use crate::plan::template::Template;
use gangline::error::DeviceError;
use gangline::gpu::GpuList;
use gangline::{Device, Devices};

/// The slots of a run. A slot is a producer of the library and keeps its GPUs for the whole run, so that no
/// GPU is handed back and forth.
#[derive(Debug, Clone)]
pub(crate) struct JobSlots {
    pub(crate) devices: Devices,
    /// The GPU ids of each slot, as this process counts them.
    gpus: Vec<Vec<usize>>,
    showing: Showing,
    /// Whether the order of GPUs is set too, because the environment does not set it.
    sets_order: bool,
    place: SlotPlace,
}

/// Where the jobs of the slots run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SlotPlace {
    Here,
    /// On workers of a cluster, which have GPUs or not.
    Elsewhere,
}

/// The jobs that are with workers at once, unless the user says more: each has a thread here.
const MOST_ELSEWHERE: usize = 256;

/// How a job is given its GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Showing {
    /// By its marks, with the environment unchanged, if its command has GPU marks; otherwise by the variable.
    Fitting,
    /// CUDA_VISIBLE_DEVICES shows only these, which then count from 0.
    Variable,
}

impl Showing {
    pub(crate) fn of(placement: &Placement) -> Showing {
        if placement.visible { Showing::Variable } else { Showing::Fitting }
    }
}

/// The environment and marks for the jobs of one slot.
#[derive(Debug, Clone)]
pub(crate) struct JobSlot {
    /// Its GPUs, as this process counts them.
    pub(crate) gpus: Arc<[usize]>,
    /// Jobs of a command with a GPU mark.
    with_marks: Given,
    /// Other jobs.
    without: Given,
}

/// The environment and marks for one job.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Given {
    /// The values of the GPU marks.
    pub(crate) ids: Vec<String>,
    pub(crate) variables: Vec<(&'static str, OsString)>,
}

impl JobSlot {
    pub(crate) fn given(&self, command: &Template) -> &Given {
        if command.has_gpus() { &self.with_marks } else { &self.without }
    }

    /// That of a worker's place. `showing` is what the run asks for.
    #[cfg(feature = "nats")]
    pub(crate) fn of_place(place: &[Device], showing: Showing) -> Result<JobSlot, CliError> {
        let devices = Devices::from_places([place.to_vec()]).map_err(refused)?.names_only();
        let gpus = vec![place.iter().filter_map(index).collect()];
        let sets_order = env::var_os(ORDER).is_none();
        let slots = JobSlots { devices, gpus, showing, sets_order, place: SlotPlace::Here };
        // The owner of the worker has named its devices: a slot without a GPU sees none.
        Ok(slots.given(Hidden::Others)?.remove(0))
    }
}

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";
const ORDER: &str = "CUDA_DEVICE_ORDER";

impl JobSlots {
    /// The slots that the options ask for; by default one per core. The number of jobs is given if it is
    /// known.
    pub(crate) fn new(placement: &Placement, jobs: Option<usize>) -> Result<JobSlots, CliError> {
        let refused = |error| CliError::new(exit::DEVICES, error);
        let devices = devices(placement, jobs)?;
        let devices =
            repeated(&devices, placement.per_gpu.unwrap_or(1)).map_err(refused)?.names_only();
        let gpus: Vec<Vec<usize>> =
            devices.places().map(|place| place.iter().filter_map(index).collect()).collect();
        let sets_order = env::var_os(ORDER).is_none();
        let showing = Showing::of(placement);
        Ok(JobSlots { devices, gpus, showing, sets_order, place: SlotPlace::Here })
    }

    /// Slots of a cluster: where each of their jobs runs is not known before.
    pub(crate) fn elsewhere(workers: Option<&Workers>) -> Result<JobSlots, CliError> {
        let workers = match workers {
            None => MOST_ELSEWHERE,
            Some(Workers::Number(amount @ (WorkerCount::Number(_) | WorkerCount::Most))) => {
                amount.count(1, None)
            }
            Some(file @ Workers::File(_)) => file.slots(1, None),
            Some(Workers::Number(_)) => {
                return Err(usage(
                    "with --nats, -j takes a number or a file with one: the cores of this machine do not count",
                ));
            }
        };
        let cpus = JobSlots::without_gpu(workers)?;
        Ok(JobSlots { place: SlotPlace::Elsewhere, ..cpus })
    }

    /// Slots without a GPU, which see none.
    pub(crate) fn without_gpu(workers: usize) -> Result<JobSlots, CliError> {
        let refused = |error| CliError::new(exit::DEVICES, error);
        let devices = Devices::from_places(vec![vec![Device::Cpu]; workers]).map_err(refused)?;
        let gpus = vec![Vec::new(); workers];
        let (showing, place) = (Showing::Variable, SlotPlace::Here);
        Ok(JobSlots { devices, gpus, showing, sets_order: false, place })
    }

    pub(crate) fn len(&self) -> usize {
        self.gpus.len()
    }

    /// The GPUs of all slots, as this process counts them.
    pub(crate) fn gpu_ids(&self) -> Vec<usize> {
        let ids: BTreeSet<usize> = self.gpus.iter().flatten().copied().collect();
        ids.into_iter().collect()
    }

    pub(crate) fn have_gpus(&self) -> bool {
        self.gpus.iter().any(|gpus| !gpus.is_empty())
    }

    /// The form of GPUs that every slot supports, so that marks are valid in each.
    pub(crate) fn mark(&self, separator: Option<DeviceSeparator>) -> GpuMark {
        match separator {
            _ if self.place == SlotPlace::Here && self.gpus.iter().any(Vec::is_empty) => {
                GpuMark::None
            }
            None => GpuMark::Fitting,
            Some(DeviceSeparator::Space) => GpuMark::Separated(" "),
            Some(DeviceSeparator::Comma) => GpuMark::Separated(","),
            Some(DeviceSeparator::Colon) => GpuMark::Separated(":"),
        }
    }

    /// The environment and marks for the jobs of each slot. If `hidden` is set, other jobs of the run have
    /// GPUs, and a slot without one sees none.
    pub(crate) fn given(&self, hidden: Hidden) -> Result<Vec<JobSlot>, CliError> {
        self.gpus.iter().map(|gpus| self.slot(gpus, hidden)).collect()
    }

    fn slot(&self, gpus: &[usize], hidden: Hidden) -> Result<JobSlot, CliError> {
        let without = self.job(gpus, hidden, Showing::Variable)?;
        let with_marks = self.job(gpus, hidden, self.showing)?;
        Ok(JobSlot { gpus: Arc::from(gpus), with_marks, without })
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

/// The variables that are hidden from a slot without a GPU.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hidden {
    /// The GPUs of other slots.
    Others,
    Nothing,
}

/// Checks that the driver reports the GPUs of a device list. A list of GPUs has names that are not checked.
pub(crate) fn check(placement: &Placement) -> Result<(), CliError> {
    let Some(devices) = placement.devices.as_ref().filter(|_| placement.use_gpu) else {
        return Ok(());
    };
    let ids: Vec<usize> = devices.find()?.places().flatten().filter_map(index).collect();
    check_reported(&ids).map_err(|error| CliError::new(exit::DEVICES, error))
}

/// The devices of a worker that runs commands: those that it is given, or else all GPUs, or else the cores.
#[cfg(feature = "nats")]
pub(crate) fn worker_devices(given: Option<&str>) -> Result<String, CliError> {
    let variable = || env::var("GANGLINE_DEVICES").ok().filter(|devices| !devices.is_empty());
    let devices = match given.map(str::to_owned).or_else(variable) {
        Some(text) => text.parse::<DeviceNames>().map_err(|error| usage(&error))?.find()?,
        None => {
            let all = "all".parse::<GpuList>().and_then(|all| all.visible());
            let gpus = all.map_or(0, |all| all.len());
            let place = |gpu| vec![Device::Cuda(gpu)];
            let places: Vec<_> = match gpus {
                0 => vec![vec![Device::Cpu]; num_cpus::get()],
                gpus => (0..gpus).map(place).collect(),
            };
            Devices::from_places(places).map_err(refused)?
        }
    };
    Ok(devices.to_string())
}

fn devices(placement: &Placement, jobs: Option<usize>) -> Result<Devices, CliError> {
    let cores = num_cpus::get();
    let workers = placement.workers.as_ref();
    if let Some(devices) = placement.devices.as_ref().filter(|_| placement.use_gpu) {
        return devices.find();
    }
    let Some(list) = placement.gpu_list.as_ref().filter(|_| placement.use_gpu) else {
        let workers = workers.map_or(cores, |workers| workers.slots(cores, jobs));
        return Devices::from_places(vec![vec![Device::Cpu]; workers]).map_err(refused);
    };
    let list = list.visible().map_err(refused)?;
    // A number in a file limits how many of the slots are used.
    let workers = match workers {
        Some(Workers::Number(amount)) => amount.count(cores, jobs),
        Some(Workers::File(_)) | None => list.len().max(1),
    };
    let devices = if placement.share { list.share(workers) } else { list.slots(workers) };
    devices.map_err(refused)
}

/// Repeats each place `times` times, one copy after the other.
fn repeated(devices: &Devices, times: usize) -> Result<Devices, DeviceError> {
    let copies = |place: &[Device]| vec![place.to_vec(); if has_gpu(place) { times } else { 1 }];
    Devices::from_places(devices.places().flat_map(copies))
}

fn has_gpu(place: &[Device]) -> bool {
    place.iter().any(|device| index(device).is_some())
}

fn index(device: &Device) -> Option<usize> {
    match device {
        Device::Cuda(index) => Some(*index),
        _ => None,
    }
}

fn refused(error: DeviceError) -> CliError {
    CliError::new(exit::DEVICES, error)
}

//! What can be wrong with devices.

use std::fmt;
use std::io;
use std::path::PathBuf;

use super::Device;
use crate::cfg::CfgError;
use crate::error::{BoxError, debug_is_told};

/// What is wrong with devices, and what is allowed instead.
///
/// It is inside [`Error::Devices`](crate::Error::Devices), which shows its text as its own.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// There is not one device.
    #[error("no devices; at least one is needed, as in cpu, cpu*4 or cuda:0")]
    #[non_exhaustive]
    Empty {},
    /// A place has no devices.
    #[error("a place without devices; each needs at least one")]
    #[non_exhaustive]
    EmptyPlace {},
    /// Nothing stands before or after a comma or a sign.
    #[error(
        "a device is missing in {text:?}; one must stand around each comma, + and | and before *"
    )]
    #[non_exhaustive]
    EmptyPart {
        /// The whole text.
        text: String,
    },
    /// More places than a list can have.
    #[error("devices for {least} producers or more; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyPlaces {
        /// The places asked for, as far as they were counted.
        least: usize,
        /// The places allowed.
        most: usize,
    },
    /// More devices in one place than it can have.
    #[error("{least} devices or more in one place; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyInPlace {
        /// The devices asked for, as far as they were counted.
        least: usize,
        /// The devices allowed.
        most: usize,
    },
    /// A name that is no device.
    #[error("unknown device {text:?}; known are cpu, cuda:N and metal:N, in lower case")]
    #[non_exhaustive]
    Unknown {
        /// What was written.
        text: String,
    },
    /// A number where a device belongs.
    #[error("{text:?} does not say which kind of device it is; write {instead}")]
    #[non_exhaustive]
    NoKind {
        /// What was written.
        text: String,
        /// What was probably meant.
        instead: String,
    },
    /// The CPU with an index.
    #[error("{text:?} has an index, and cpu takes none; write cpu, or cpu*N for N producers on it")]
    #[non_exhaustive]
    CpuIndex {
        /// What was written.
        text: String,
    },
    /// An index that is no number, or too large for one.
    #[error("{text:?} has no readable index; write {kind}:0, {kind}:0-3 or {kind}:all")]
    #[non_exhaustive]
    BadIndex {
        /// What was written.
        text: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
    },
    /// A range whose end is before its start.
    #[error("the range {text:?} runs backwards; write {kind}:{last}-{first}")]
    #[non_exhaustive]
    Backwards {
        /// What was written.
        text: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
        /// The index that the range starts with.
        first: usize,
        /// The smaller index that it ends with.
        last: usize,
    },
    /// What follows `*` is no number of producers.
    #[error("{text:?} does not end in a number of producers from 1 to {most}, as cpu*4 does")]
    #[non_exhaustive]
    BadCount {
        /// What was written.
        text: String,
        /// The largest number allowed.
        most: usize,
    },
    /// Several devices where one is needed.
    #[error("{text:?} is not one device; one is cpu, cuda:N or metal:N")]
    #[non_exhaustive]
    NotOne {
        /// What was written.
        text: String,
    },
    /// None of several devices with a `|` between them can be used.
    #[error("nothing in {text:?} can be used: {reasons}")]
    #[non_exhaustive]
    NothingLeft {
        /// What was written.
        text: String,
        /// Why not, of each.
        reasons: String,
    },
    /// More devices to choose from than there can be.
    #[error("{text:?} names more than {most} alternatives")]
    #[non_exhaustive]
    TooManyAlternatives {
        /// What was written.
        text: String,
        /// How many are allowed.
        most: usize,
    },
    /// A device stands twice in one place.
    #[error("{device} stands twice in one place; for two producers on it write {device}*2")]
    #[non_exhaustive]
    Twice {
        /// The device.
        device: Device,
    },
    /// A part of a [`GpuList`](crate::GpuList) that is no GPU.
    #[error(
        "{text:?} is no GPU of a list; write ids as in 0 1, ranges without spaces as in 0-3, \
         or UUIDs as in GPU-8932f937"
    )]
    #[non_exhaustive]
    UnknownGpu {
        /// What was written.
        text: String,
    },
    /// A range of a [`GpuList`](crate::GpuList) whose end is before its start.
    #[error("the range {text:?} runs backwards; write {last}-{first}")]
    #[non_exhaustive]
    BackwardGpus {
        /// What was written.
        text: String,
        /// The id that the range starts with.
        first: usize,
        /// The smaller id that it ends with.
        last: usize,
    },
    /// More entries than a [`GpuList`](crate::GpuList) can have.
    #[error("a list of {least} GPUs or more; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyGpus {
        /// The entries asked for, as far as they were counted.
        least: usize,
        /// The entries allowed.
        most: usize,
    },
    /// A [`GpuList`](crate::GpuList) without a GPU was to be given to workers: it is empty, or has
    /// only void entries.
    #[error(
        "the list of GPUs {list:?} has none; name at least one, as in 0 (99 is a void entry), \
         or use the CPU"
    )]
    #[non_exhaustive]
    NoGpus {
        /// The list.
        list: String,
    },
    /// Devices were to be given to no worker.
    #[error("devices for no worker; at least one is needed")]
    #[non_exhaustive]
    NoWorkers {},
    /// `CUDA_VISIBLE_DEVICES` hides the GPU.
    #[error("GPU {index} is not visible: CUDA_VISIBLE_DEVICES is {variable:?}, {}", ids(*.visible))]
    #[non_exhaustive]
    HiddenGpu {
        /// The id.
        index: usize,
        /// The variable's value.
        variable: String,
        /// How many GPUs it shows, with the ids from 0.
        visible: usize,
    },
    /// `CUDA_VISIBLE_DEVICES` does not name the UUID, so nothing says which id the GPU has.
    #[error("{uuid} has no id: CUDA_VISIBLE_DEVICES {}", unnamed(.variable))]
    #[non_exhaustive]
    UnknownUuid {
        /// The UUID.
        uuid: String,
        /// The variable's value, if it is set.
        variable: Option<String>,
    },
    /// A shortened UUID stands for several GPUs that `CUDA_VISIBLE_DEVICES` names.
    #[error(
        "{uuid} may be GPU {first} or GPU {second} of CUDA_VISIBLE_DEVICES; write more of its digits"
    )]
    #[non_exhaustive]
    AmbiguousUuid {
        /// The UUID.
        uuid: String,
        /// The id of the first that it may be.
        first: usize,
        /// The id of the second.
        second: usize,
    },
    /// A shortened UUID stands for several GPUs of this machine.
    #[error("{uuid} may be {first} or {second}; write more of its digits")]
    #[non_exhaustive]
    ShortUuid {
        /// The UUID.
        uuid: String,
        /// The first that it may be.
        first: String,
        /// The second.
        second: String,
    },
    /// `CUDA_VISIBLE_DEVICES` names a MIG device by a shortened UUID, where all of it is needed.
    #[error(
        "{uuid} is shortened, and nobody can tell the rest; \
         write the whole UUID into CUDA_VISIBLE_DEVICES"
    )]
    #[non_exhaustive]
    ShortMig {
        /// The UUID.
        uuid: String,
    },
    /// The driver knows no GPU with this UUID.
    #[error("{uuid} is no GPU of this machine{}", there(.found))]
    #[non_exhaustive]
    MissingUuid {
        /// The UUID.
        uuid: String,
        /// Those that it knows.
        found: Vec<String>,
    },
    /// Which GPU has which UUID is a question for the driver, which this build cannot ask.
    #[error(
        "CUDA_VISIBLE_DEVICES does not tell which GPU {wanted} is, and asking the driver needs a \
         build with the feature `nvml`; put its UUID there, as nvidia-smi -L shows it"
    )]
    #[non_exhaustive]
    UuidsNotBuilt {
        /// The device or the UUID.
        wanted: String,
    },
    /// Which GPU has which UUID is a question for the driver, which did not answer.
    #[error(
        "CUDA_VISIBLE_DEVICES does not tell which GPU {wanted} is, and the driver cannot be asked; \
         put its UUID there, as nvidia-smi -L shows it"
    )]
    #[non_exhaustive]
    UuidsUnknown {
        /// The device or the UUID.
        wanted: String,
        /// What the driver says, or why it is not there.
        source: BoxError,
    },
    /// There are GPUs of several models, and CUDA counts them in an order that only it knows.
    #[error(
        "GPUs of several models ({models}) are counted from the fastest on, and only CUDA knows which \
         that is; set CUDA_DEVICE_ORDER=PCI_BUS_ID"
    )]
    #[non_exhaustive]
    UnknownOrder {
        /// The models.
        models: String,
    },
    /// A GPU is split into MIG devices, which CUDA does not count like GPUs.
    #[error(
        "{uuid} is split into MIG devices, so indices are uncertain; \
         put UUIDs into CUDA_VISIBLE_DEVICES, as nvidia-smi -L shows them"
    )]
    #[non_exhaustive]
    SplitGpu {
        /// The UUID of the GPU.
        uuid: String,
    },
    /// A device that is no GPU of NVIDIA's has no name that other processes would know it by.
    #[error("{device} cannot be locked: only CUDA devices have a UUID")]
    #[non_exhaustive]
    NoUuid {
        /// The device.
        device: Device,
    },
    /// Somebody else has the [lock](crate::GpuLock) of a GPU.
    #[error("{device} ({uuid}) is in use: {holder} has its lock {}", .path.display())]
    #[non_exhaustive]
    InUse {
        /// The GPU, as this process counts it.
        device: Device,
        /// Its UUID.
        uuid: String,
        /// Who has it, as far as it is known.
        holder: GpuHolder,
        /// The file that is the lock.
        path: PathBuf,
    },
    /// The file that is the [lock](crate::GpuLock) of a GPU cannot be used.
    #[error("the lock {} cannot be used", .path.display())]
    #[non_exhaustive]
    LockFile {
        /// The file.
        path: PathBuf,
        /// What the operating system says.
        source: io::Error,
    },
    /// No directory is there that all users of the machine share.
    #[error(
        "neither /run/lock nor /tmp is a directory for all users (mode 1777) to lock GPUs in; \
         name one with `GpuLock::in_dir`"
    )]
    #[non_exhaustive]
    NoLockDirectory {},
    /// This operating system has no such [locks](crate::GpuLock).
    #[error("GPUs can be locked on Linux only")]
    #[non_exhaustive]
    NoLocks {},
    /// A UUID was to be given to a worker before its id was found.
    #[error("{uuid} has no id yet; find it with `GpuList::visible`")]
    #[non_exhaustive]
    NoIndex {
        /// The UUID.
        uuid: String,
    },
    /// The keys for devices of a configuration cannot be read.
    #[error(transparent)]
    #[non_exhaustive]
    Cfg {
        /// Which key, and what is wrong with its value.
        source: Box<CfgError>,
    },
    /// This build cannot use such devices.
    #[error(
        "{wanted} needs a build with the feature `{feature}`; \
         as a mere name for the hooks, take it with `Devices::names_only`"
    )]
    #[non_exhaustive]
    NotBuilt {
        /// The device asked for, as text.
        wanted: String,
        /// The feature that it needs.
        feature: &'static str,
    },
    /// The driver of such devices is there and fails.
    #[error("{wanted} cannot be used: the driver of {kind} does not start")]
    #[non_exhaustive]
    Driver {
        /// The device asked for, as text.
        wanted: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
        /// What the driver says.
        source: BoxError,
    },
    /// All devices of a kind were asked for, and there are none.
    #[error("{kind}:all stands for no device: this machine has no {kind} device")]
    #[non_exhaustive]
    NoneFound {
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
    },
    /// This machine does not have the device.
    #[error("{device} does not exist; this machine has {}", present(*.device, *.found))]
    #[non_exhaustive]
    Missing {
        /// The device.
        device: Device,
        /// How many of its kind there are, with the indices from 0.
        found: usize,
    },
    /// A candle device was asked for, and the devices are only names.
    #[error("{device} is only a name here: the devices were taken with `Devices::names_only`")]
    #[non_exhaustive]
    Label {
        /// The device.
        device: Device,
    },
    /// The device exists and could not be opened.
    #[error("{device} could not be opened")]
    #[non_exhaustive]
    Open {
        /// The device.
        device: Device,
        /// What the driver says.
        source: BoxError,
    },
}

impl DeviceError {
    /// Whether a device is not there or cannot be used, and nothing is wrong with how it is named.
    pub(super) fn is_absence(&self) -> bool {
        matches!(
            self,
            DeviceError::NotBuilt { .. }
                | DeviceError::Driver { .. }
                | DeviceError::NoneFound { .. }
                | DeviceError::Missing { .. }
        )
    }
}

debug_is_told!(DeviceError);

/// Who has the [lock](crate::GpuLock) of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuHolder {
    /// A process, as it described itself; it is this one if another of its runners has the lock.
    #[non_exhaustive]
    Process {
        /// Its number.
        pid: u32,
        /// Its command line, shortened where it is long.
        command: String,
    },
    /// A process that has not described itself, or not yet.
    Unknown,
}

impl fmt::Display for GpuHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Anybody may have written it, so nothing in it may act on a terminal.
            GpuHolder::Process { pid, command } => {
                write!(f, "process {pid} ({})", command.escape_debug())
            }
            GpuHolder::Unknown => f.write_str("a process without a name"),
        }
    }
}

/// The GPUs that are there.
fn there(uuids: &[String]) -> String {
    match uuids {
        [] => ", which has none".to_owned(),
        uuids => format!(": {}", uuids.join(", ")),
    }
}

/// The devices of the same kind that are there.
fn present(device: Device, found: usize) -> String {
    let kind = match device {
        Device::Cpu => "cpu",
        Device::Cuda(_) => "cuda",
        Device::Metal(_) => "metal",
    };
    match found {
        0 => format!("no {kind} device"),
        1 => format!("{kind}:0"),
        _ => format!("{kind}:0 to {kind}:{}", found - 1),
    }
}

/// Which ids there are, of so many GPUs.
fn ids(visible: usize) -> String {
    match visible {
        0 => "which shows none".to_owned(),
        1 => "so the only id is 0".to_owned(),
        _ => format!("so ids go from 0 to {}", visible - 1),
    }
}

/// What is wrong with a variable that should name a UUID.
fn unnamed(variable: &Option<String>) -> String {
    match variable {
        Some(value) => format!("is {value:?}, which does not name it"),
        None => "is not set, which would have to name it".to_owned(),
    }
}

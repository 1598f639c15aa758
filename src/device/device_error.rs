//! Errors of naming, finding, locking and opening devices.

use std::fmt;
use std::io;
use std::path::PathBuf;

#[cfg(feature = "candle")]
use super::error_text::weights;
use super::error_text::{ids, known, present, there, unnamed};
use super::id::Device;
use crate::base::BoxError;
use crate::base::debug_with_causes;
use crate::cfg::CfgError;

/// An error of devices: what was given, and what is allowed.
///
/// [`Error::Devices`](crate::Error::Devices) contains it and shows its text as its own.
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// The list has no device.
    #[error("no devices; at least one is needed, as in cpu, cpu*4 or cuda:0")]
    #[non_exhaustive]
    Empty {},
    /// A place has no devices.
    #[error("a place without devices; each needs at least one")]
    #[non_exhaustive]
    EmptyPlace {},
    /// A device is missing before or after a comma or a sign.
    #[error(
        "a device is missing in {text:?}; one must stand around each comma, + and | and before *"
    )]
    #[non_exhaustive]
    EmptyPart {
        /// The whole text.
        text: String,
    },
    /// A list has too many places.
    #[error("devices for {least} producers or more; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyPlaces {
        /// The places asked for, as far as they were counted.
        least: usize,
        /// The places allowed.
        most: usize,
    },
    /// A place has too many devices.
    #[error("{least} devices or more in one place; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyInPlace {
        /// The devices asked for, as far as they were counted.
        least: usize,
        /// The devices allowed.
        most: usize,
    },
    /// A name is not a device.
    #[error("unknown device {text:?}; {}", known(.instead.as_deref()))]
    #[non_exhaustive]
    Unknown {
        /// What was written.
        text: String,
        /// What was probably meant.
        instead: Option<String>,
    },
    /// A number stands where a device belongs.
    #[error("{text:?} does not say which kind of device it is; write {instead}")]
    #[non_exhaustive]
    NoKind {
        /// What was written.
        text: String,
        /// The text that was probably meant.
        instead: String,
    },
    /// The CPU has an index.
    #[error("{text:?} has an index, and cpu takes none; write cpu, or cpu*N for N producers on it")]
    #[non_exhaustive]
    CpuIndex {
        /// What was written.
        text: String,
    },
    /// An index is not a number, or too large for one.
    #[error("{text:?} has no readable index; write {kind}:0, {kind}:0-3 or {kind}:all")]
    #[non_exhaustive]
    BadIndex {
        /// What was written.
        text: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
    },
    /// A range ends before it starts.
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
    /// The text after `*` is not a number of producers.
    #[error("{text:?} does not end in a number of producers from 1 to {most}, as cpu*4 does")]
    #[non_exhaustive]
    BadCount {
        /// What was written.
        text: String,
        /// The largest number allowed.
        most: usize,
    },
    /// A text means several devices where one is needed.
    #[error("{text:?} is not one device; one is cpu, cuda:N or metal:N")]
    #[non_exhaustive]
    NotOne {
        /// What was written.
        text: String,
    },
    /// None of the alternatives, with `|` between them, can be used.
    #[error("nothing in {text:?} can be used: {reasons}")]
    #[non_exhaustive]
    NothingLeft {
        /// What was written.
        text: String,
        /// The reason for each of them.
        reasons: String,
    },
    /// A list has too many alternatives.
    #[error("{text:?} names more than {most} alternatives")]
    #[non_exhaustive]
    TooManyAlternatives {
        /// What was written.
        text: String,
        /// The number allowed.
        most: usize,
    },
    /// A place has the same device twice.
    #[error("{device} stands twice in one place; for two producers on it write {device}*2")]
    #[non_exhaustive]
    Twice {
        /// The device.
        device: Device,
    },
    /// A part of a [`GpuList`](crate::gpu::GpuList) is not a GPU.
    #[error(
        "{text:?} is no GPU of a list; write ids as in 0 1, ranges without spaces as in 0-3, \
         UUIDs as in GPU-8932f937, or all"
    )]
    #[non_exhaustive]
    UnknownGpu {
        /// What was written.
        text: String,
    },
    /// A range of a [`GpuList`](crate::gpu::GpuList) ends before it starts.
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
    /// A [`GpuList`](crate::gpu::GpuList) has too many entries.
    #[error("a list of {least} GPUs or more; at most {most} are allowed")]
    #[non_exhaustive]
    TooManyGpus {
        /// The entries asked for, as far as they were counted.
        least: usize,
        /// The entries allowed.
        most: usize,
    },
    /// A [`GpuList`](crate::gpu::GpuList) to be shared among workers has no GPU: it is empty, or has only void
    /// entries.
    #[error(
        "the list of GPUs {list:?} has none; name at least one, as in 0 (99 is a void entry), \
         or use the CPU"
    )]
    #[non_exhaustive]
    NoGpus {
        /// The list.
        list: String,
    },
    /// The number of workers is 0.
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
        /// The number of GPUs that it shows, with the ids from 0.
        visible: usize,
    },
    /// All GPUs were asked for, but none is visible.
    #[error(
        "all stands for no GPU: {reason}; GPUs are those that CUDA_VISIBLE_DEVICES lists, and without it those that \
         NVIDIA's driver reports through NVML"
    )]
    #[non_exhaustive]
    NoneVisible {
        /// What was found in their place.
        reason: String,
    },
    /// `CUDA_VISIBLE_DEVICES` does not name the UUID, so the GPU's id is unknown.
    #[error("{uuid} has no id: CUDA_VISIBLE_DEVICES {}", unnamed(.variable))]
    #[non_exhaustive]
    UnknownUuid {
        /// The UUID.
        uuid: String,
        /// The variable's value, if it is set.
        variable: Option<String>,
    },
    /// A shortened UUID matches several GPUs that `CUDA_VISIBLE_DEVICES` names.
    #[error(
        "{uuid} may be GPU {first} or GPU {second} of CUDA_VISIBLE_DEVICES; write more of its digits"
    )]
    #[non_exhaustive]
    AmbiguousUuid {
        /// The UUID.
        uuid: String,
        /// The id of the first match.
        first: usize,
        /// The id of the second match.
        second: usize,
    },
    /// A shortened UUID matches several GPUs of this machine.
    #[error("{uuid} may be {first} or {second}; write more of its digits")]
    #[non_exhaustive]
    ShortUuid {
        /// The UUID.
        uuid: String,
        /// The first match.
        first: String,
        /// The second match.
        second: String,
    },
    /// `CUDA_VISIBLE_DEVICES` names a MIG device by a shortened UUID, but the full one is needed.
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
        /// The UUIDs that it knows.
        found: Vec<String>,
    },
    /// The UUIDs of the GPUs are needed, but this build cannot ask the driver for them.
    #[error(
        "CUDA_VISIBLE_DEVICES does not tell which GPU {wanted} is, and asking the driver needs a \
         build with the feature `nvml`; put its UUID there, as nvidia-smi -L shows it"
    )]
    #[non_exhaustive]
    UuidsNotBuilt {
        /// The device or the UUID.
        wanted: String,
    },
    /// The UUIDs of the GPUs are needed, but the driver did not give them.
    #[error(
        "CUDA_VISIBLE_DEVICES does not tell which GPU {wanted} is, and the driver cannot be asked; \
         put its UUID there, as nvidia-smi -L shows it"
    )]
    #[non_exhaustive]
    UuidsUnknown {
        /// The device or the UUID.
        wanted: String,
        /// The driver's error, or why there is no driver.
        source: BoxError,
    },
    /// The machine has GPUs of several models, and CUDA does not publish their order.
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
    /// A device that is not an NVIDIA GPU has no name that other processes know.
    #[error("{device} cannot be locked: only CUDA devices have a UUID")]
    #[non_exhaustive]
    NoUuid {
        /// The device.
        device: Device,
    },
    /// Another runner holds the [lock](crate::gpu::GpuLock) of a GPU.
    #[error("{device} ({uuid}) is in use: {holder} has its lock {}", .path.display())]
    #[non_exhaustive]
    InUse {
        /// The GPU, as this process counts it.
        device: Device,
        /// Its UUID.
        uuid: String,
        /// The holder, as far as it is known.
        holder: GpuHolder,
        /// The lock file.
        path: PathBuf,
    },
    /// The [lock](crate::gpu::GpuLock) file of a GPU cannot be used.
    #[error("the lock {} cannot be used", .path.display())]
    #[non_exhaustive]
    LockFile {
        /// The file.
        path: PathBuf,
        /// The operating system's error.
        source: io::Error,
    },
    /// No directory was found that all users of the machine share.
    #[error(
        "neither /run/lock nor /tmp is a directory for all users (mode 1777) to lock GPUs in; \
         name one with `GpuLock::in_dir`"
    )]
    #[non_exhaustive]
    NoLockDirectory {},
    /// This operating system does not support [locks](crate::gpu::GpuLock) on GPUs.
    #[error("GPUs can be locked on Linux only")]
    #[non_exhaustive]
    NoLocks {},
    /// A UUID was used as a GPU before its id was found.
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
        /// The key, and what is wrong with its value.
        source: Box<CfgError>,
    },
    /// A configuration has a key that is nearly one of those for devices.
    #[error("the configuration has the key {found:?}; write {key}")]
    #[non_exhaustive]
    KeySpelling {
        /// The key that it has.
        found: String,
        /// The key that is read: `use_gpu` or `gpu_list`.
        key: &'static str,
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
    /// The driver of such devices exists but fails.
    #[error("{wanted} cannot be used: the driver of {kind} does not start")]
    #[non_exhaustive]
    Driver {
        /// The device asked for, as text.
        wanted: String,
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
        /// The driver's error.
        source: BoxError,
    },
    /// All devices of a kind were asked for, but there are none.
    #[error("{kind}:all stands for no device: this machine has no {kind} device")]
    #[non_exhaustive]
    NoneFound {
        /// The kind of device: `cuda` or `metal`.
        kind: &'static str,
    },
    /// The device does not exist on this machine.
    #[error("{device} does not exist; this machine has {}", present(*.device, *.found))]
    #[non_exhaustive]
    Missing {
        /// The device.
        device: Device,
        /// The number of devices of its kind, with the indices from 0.
        found: usize,
    },
    /// A candle device was asked for, but the devices are names only.
    #[error("{device} is only a name here: the devices were taken with `Devices::names_only`")]
    #[non_exhaustive]
    Label {
        /// The device.
        device: Device,
    },
    /// Weights could not be read, or are not in the safetensors format.
    #[cfg(feature = "candle")]
    #[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
    #[error("{}", weights(.file.as_deref()))]
    #[non_exhaustive]
    Weights {
        /// The file; `None` if its bytes were given.
        file: Option<PathBuf>,
        /// The reason.
        source: BoxError,
    },
    /// The device exists but could not be opened.
    #[error("{device} could not be opened")]
    #[non_exhaustive]
    Open {
        /// The device.
        device: Device,
        /// The driver's error.
        source: BoxError,
    },
}

impl DeviceError {
    /// Returns whether a correctly named device does not exist or cannot be used.
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

debug_with_causes!(DeviceError);

/// The holder of the [lock](crate::gpu::GpuLock) of a GPU.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum GpuHolder {
    /// A process, as it described itself; it is this one if another of its runners holds the lock.
    #[non_exhaustive]
    Process {
        /// Its number.
        pid: u32,
        /// Its command line, shortened to 200 bytes.
        command: String,
    },
    /// A process that has not described itself, or not yet.
    Unknown,
}

impl fmt::Display for GpuHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Any user may have written it, so control characters are escaped before they reach a terminal.
            GpuHolder::Process { pid, command } => {
                write!(f, "process {pid} ({})", command.escape_debug())
            }
            GpuHolder::Unknown => f.write_str("a process without a name"),
        }
    }
}

//! Locks on GPUs, so that two runs do not use one at the same time.

use std::collections::{BTreeMap, HashSet};
use std::io::{self, PipeReader};
use std::path::PathBuf;

use super::gpu::Uuid;
use super::machine::Machine;
use super::{Device, DeviceError, Devices, detect};
use crate::base::absolute;

#[cfg(target_os = "linux")]
use super::lock_file::{self, HeldLock, LockFile};

/// Where there are no locks, none can be held.
#[cfg(not(target_os = "linux"))]
type HeldLock = std::convert::Infallible;

/// How a runner locks its GPUs, for [`Builder::lock_gpus`](crate::Builder::lock_gpus).
///
/// The lock of a GPU is a file with the GPU's UUID in its name, in a directory that all users of the
/// machine share. Two runs that both lock a GPU never use it at the same time, however each of them numbers
/// its GPUs. A process that takes no lock is not kept from using the GPU.
///
/// ```no_run
/// use gangline::gpu::GpuLock;
/// use gangline::{OrderedRunner, map};
///
/// # fn main() -> gangline::Result<()> {
/// let work = map(|_| Ok(()), |_, _, x: u64| Ok(x));
/// let runner = OrderedRunner::builder(work)
///     .devices("cuda:0-1")
///     .lock_gpus(GpuLock::or_wait())
///     .build()?;
/// # Ok(())
/// # }
/// ```
///
/// # When
///
/// All locks are taken before the first `producer_init` of [`build`](crate::Builder::build) and
/// [`activate`](crate::Pool::activate). They are taken one after the other in the order of the UUIDs, so
/// two runs that want the same GPUs cannot deadlock. A GPU in several places is locked once. The locks are
/// released when the producers have ended, at close or drop, or by the operating system when the process
/// ends. Two runners of one process exclude each other too.
///
/// # Which GPUs
///
/// CUDA devices, real or [names only](Devices::names_only). Each must have a UUID: an entry of
/// `CUDA_VISIBLE_DEVICES`, as `nvidia-smi -L` shows it, or what the driver says with the feature `nvml`,
/// under the conditions of [`GpuList::visible`](crate::gpu::GpuList::visible). A MIG device is locked by its own
/// UUID, which only that variable gives. A GPU without a known UUID fails the building, and so does Metal.
/// The CPU needs no lock.
///
/// # Files
///
/// Without [`in_dir`](Self::in_dir) the directory is `/run/lock`, or `/tmp` if not all users may write to
/// the former. (`TMPDIR` is not used: each job may have its own.) For each GPU there is a named pipe,
/// `gangline-<UUID>.lock`, which all users may open, and which is locked as
/// [`File::try_lock`](std::fs::File::try_lock) does it. Beside it `gangline-<UUID>.holder` has the number
/// and the command line of the process that holds the lock, for the errors of others. All users can read
/// it. Both files stay, and mean nothing by themselves. They may be deleted while no run is in progress.
/// Containers exclude each other only if they share the directory.
/// Linux only; elsewhere it is an error of the building.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GpuLock {
    in_use: IfInUse,
    /// `None`: one that all users share.
    directory: Option<PathBuf>,
}

/// What to do about a GPU that is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum IfInUse {
    Fail,
    Wait,
}

impl GpuLock {
    /// Fails the building at once if a GPU is in use, with an error that names the process using it.
    pub fn or_fail() -> GpuLock {
        GpuLock { in_use: IfInUse::Fail, directory: None }
    }

    /// Waits for a GPU that is in use, until it is free or the building is
    /// [cancelled](crate::CancelToken::cancel).
    ///
    /// A cancel from before the building counts too. Of several waiting runs, any may be the next.
    pub fn or_wait() -> GpuLock {
        GpuLock { in_use: IfInUse::Wait, directory: None }
    }

    /// Puts the lock files into this directory, which must exist. A relative one is looked up in the current directory
    /// of [`build`](crate::Builder::build).
    ///
    /// Only runs that name the same directory exclude each other. If several users share it, it should be
    /// sticky (mode 1777), as `/tmp` is, so that no user can replace another's files.
    pub fn in_dir(self, directory: impl Into<PathBuf>) -> GpuLock {
        GpuLock { directory: Some(directory.into()), ..self }
    }

    /// Keeps naming the same directory when the current one changes.
    pub(crate) fn anchored(self) -> GpuLock {
        GpuLock { directory: self.directory.map(absolute), ..self }
    }

    /// Locks the GPUs of these devices; `None` if waiting was given up. `alarm` makes a pipe that is closed
    /// to give up waiting.
    pub(crate) fn take(
        &self,
        devices: &Devices,
        alarm: &dyn Fn() -> io::Result<PipeReader>,
    ) -> Result<Option<HeldGpus>, DeviceError> {
        let variable = detect::visible_devices();
        let gpus = gpus(devices, &Machine::new(variable.as_deref(), &detect::inventory))?;
        let mut held = Vec::with_capacity(gpus.len());
        for (uuid, device) in gpus {
            match self.take_one(device, &uuid, alarm)? {
                Some(lock) => held.push(lock),
                None => return Ok(None),
            }
        }
        Ok(Some(HeldGpus { _locks: held }))
    }

    #[cfg(target_os = "linux")]
    fn take_one(
        &self,
        device: Device,
        uuid: &Uuid,
        alarm: &dyn Fn() -> io::Result<PipeReader>,
    ) -> Result<Option<HeldLock>, DeviceError> {
        let directory = match &self.directory {
            Some(directory) => directory.clone(),
            None => lock_file::shared_directory()?,
        };
        let file = LockFile::new(&directory, uuid);
        let failed = |source| DeviceError::LockFile { path: file.path().to_owned(), source };
        match (file.try_lock().map_err(failed)?, self.in_use) {
            (Some(lock), _) => Ok(Some(lock)),
            (None, IfInUse::Wait) => alarm().and_then(|alarm| file.wait(&alarm)).map_err(failed),
            (None, IfInUse::Fail) => Err(DeviceError::InUse {
                device,
                uuid: uuid.to_string(),
                holder: file.holder(),
                path: file.path().to_owned(),
            }),
        }
    }
}

#[cfg(not(target_os = "linux"))]
impl GpuLock {
    fn take_one(
        &self,
        _: Device,
        _: &Uuid,
        _: &dyn Fn() -> io::Result<PipeReader>,
    ) -> Result<Option<HeldLock>, DeviceError> {
        let GpuLock { in_use: IfInUse::Fail | IfInUse::Wait, directory: _ } = self;
        Err(DeviceError::NoLocks {})
    }
}

/// The locks of a runner's GPUs, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct HeldGpus {
    _locks: Vec<HeldLock>,
}

/// The GPUs among these devices, each once, in an order that is the same for every process.
fn gpus(devices: &Devices, machine: &Machine<'_>) -> Result<BTreeMap<Uuid, Device>, DeviceError> {
    let mut gpus = BTreeMap::new();
    let mut seen = HashSet::new();
    for device in devices.places().flatten().filter(|device| seen.insert(**device)) {
        match device {
            Device::Cpu => {}
            Device::Cuda(index) => {
                gpus.entry(machine.uuid(*index)?).or_insert(*device);
            }
            Device::Metal(_) => return Err(DeviceError::NoUuid { device: *device }),
        }
    }
    Ok(gpus)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::inventory::DriverAnswer;

    #[test]
    fn gpus_come_once_and_in_the_order_of_their_uuids() {
        let uuid = |first: char| format!("GPU-{first}932f937-d72c-4106-c12f-20bd9faed9f6");
        let variable = format!("{},{},{}", uuid('c'), uuid('B'), uuid('a'));
        let nobody = || -> DriverAnswer { panic!("nobody needs to be asked") };
        let machine = Machine::new(Some(&variable), &nobody);
        let devices: Devices = "cuda:0*2,cpu,cuda:1+cuda:0,cuda:2".parse().unwrap();
        let gpus: Vec<_> = gpus(&devices, &machine).unwrap().into_iter().collect();
        let expected = [('a', 2), ('b', 1), ('c', 0)]
            .map(|(first, index)| (Uuid::parse(&uuid(first)).unwrap(), Device::Cuda(index)));
        assert_eq!(gpus, expected);
    }

    #[test]
    fn metal_has_no_lock() {
        let machine = Machine::new(None, &|| DriverAnswer::NotBuilt);
        let error = gpus(&"cpu,metal:1".parse().unwrap(), &machine).unwrap_err().to_string();
        assert_eq!(error, "metal:1 cannot be locked: only CUDA devices have a UUID");
    }

    #[test]
    fn the_cpu_needs_no_lock() {
        let machine = Machine::new(None, &|| DriverAnswer::NotBuilt);
        assert!(gpus(&"cpu*3".parse().unwrap(), &machine).unwrap().is_empty());
    }
}

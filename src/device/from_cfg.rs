//! The devices that a configuration asks for.

#[cfg(test)]
mod tests;

use super::machine::Machine;
use super::{DeviceError, Devices, GpuList, detect};
use crate::cfg::{CfgError, CfgNode};

/// The key that switches GPUs on.
const USE_GPU: &str = "use_gpu";

/// The key that lists the GPUs.
const GPU_LIST: &str = "gpu_list";

/// The id to use without a list, which Scipion's forms have as the default. Taking all GPUs instead would
/// be more than was asked for, on machines that are often shared.
const FIRST_GPU: usize = 0;

impl Devices {
    /// Returns the devices that the keys `use_gpu` and `gpu_list` of a configuration ask for, for this
    /// number of workers.
    ///
    /// They mean what the parameters `USE_GPU` and `GPU_LIST` of Scipion's protocols mean:
    ///
    /// | `use_gpu` | `gpu_list` | devices |
    /// |---|---|---|
    /// | `false` | given or not, it is not read | `workers` producers on the CPU |
    /// | `true` or not given | given | the [visible](GpuList::visible) GPUs of the list, [shared](GpuList::share) among `workers` producers |
    /// | `true` | not given | as with `gpu_list: 0`, which is the first visible GPU |
    /// | not given | not given | `workers` producers on the CPU |
    ///
    /// Null counts as not given. The list is a [text](GpuList#text) such as `0 1`, a number, or a list of
    /// both. The GPUs are CUDA devices; building a runner checks that they exist.
    ///
    /// There are always `workers` producers. To have one for each GPU instead, use
    /// [`GpuList::slots`]:
    ///
    /// ```
    /// use gangline::gpu::GpuList;
    /// use gangline::{CfgNode, Devices};
    ///
    /// let cfg = CfgNode::new().with("use_gpu", false)?.with("gpu_list", "0-3")?;
    /// assert_eq!(Devices::from_cfg(&cfg, 2)?.to_string(), "cpu*2");
    ///
    /// let gpus: GpuList = cfg.get("gpu_list")?;
    /// assert_eq!(gpus.slots(3)?.to_string(), "cuda:0+cuda:1,cuda:2,cuda:3");
    /// # Ok::<(), gangline::BoxError>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if a key differs from these two in case, underscores or hyphens only, as `USE_GPU` and
    /// `gpuList` do; if `use_gpu` is not a boolean or `gpu_list` not a list, with the key and where
    /// its value came from; if the list has no GPU or one that is not visible; or if there is no worker or
    /// there are more than 65,536.
    pub fn from_cfg(cfg: &CfgNode, workers: usize) -> Result<Devices, DeviceError> {
        let variable = detect::visible_devices();
        let machine = Machine::new(variable.as_deref(), &detect::inventory);
        Self::from_cfg_on(cfg, workers, &machine)
    }

    /// Reads the devices of a [configuration](Devices::from_cfg), on any machine.
    fn from_cfg_on(
        cfg: &CfgNode,
        workers: usize,
        machine: &Machine<'_>,
    ) -> Result<Devices, DeviceError> {
        check_spelling(cfg)?;
        match gpus(cfg).map_err(|source| DeviceError::Cfg { source: Box::new(source) })? {
            // Shared, and not in slots: the parameters' description has five threads on two GPUs as two on
            // each. So there are as many producers as were asked for.
            Some(gpus) => gpus.visible_on(machine)?.share(workers),
            None if workers == 0 => Err(DeviceError::NoWorkers {}),
            None => Ok(Self::cpus(workers)?),
        }
    }
}

/// Refuses keys that differ from ours in case, underscores or hyphens only: without them, GPUs that were asked
/// for would silently stay unused.
fn check_spelling(cfg: &CfgNode) -> Result<(), DeviceError> {
    let letters = |key: &str| key.replace(['_', '-'], "").to_lowercase();
    for found in cfg.keys() {
        let meant = [USE_GPU, GPU_LIST].into_iter().find(|key| letters(key) == letters(found));
        if let Some(key) = meant.filter(|&key| key != found) {
            return Err(DeviceError::KeySpelling { found: found.to_owned(), key });
        }
    }
    Ok(())
}

/// Returns the GPUs to use; `None` means the CPU.
fn gpus(cfg: &CfgNode) -> Result<Option<GpuList>, CfgError> {
    // A list that is not used is not read either: it may be one for another machine.
    match cfg.get(USE_GPU)? {
        Some(false) => Ok(None),
        None => cfg.get(GPU_LIST),
        Some(true) => cfg
            .get::<Option<GpuList>>(GPU_LIST)
            .map(|gpus| gpus.or_else(|| Some(GpuList::one(FIRST_GPU)))),
    }
}

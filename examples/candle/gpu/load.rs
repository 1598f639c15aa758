//! How busy a GPU is, as its driver says.

use gangline::Device;

#[cfg(not(feature = "nvml"))]
pub(crate) use self::nobody::{Watch, trouble};
#[cfg(feature = "nvml")]
pub(crate) use self::nvml::{Watch, trouble};

/// What was seen; nothing where there is no GPU, or no feature `nvml`.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Load {
    /// The share of the time in which the GPU computed something, from 0 to 1.
    pub(crate) busy: Option<f64>,
    /// The most memory that was used on the GPU, in bytes, also by others.
    pub(crate) memory: Option<u64>,
}

/// Does `work` and watches the device meanwhile.
pub(crate) fn watched<T>(device: Device, work: impl FnOnce() -> T) -> (T, Load) {
    let watch = Watch::start(device);
    let result = work();
    (result, watch.map(Watch::end).unwrap_or_default())
}

#[cfg(feature = "nvml")]
mod nvml {
    use std::thread::{self, JoinHandle};
    use std::time::Duration;

    use crossbeam_channel::{Receiver, RecvTimeoutError, Sender, bounded};
    use gangline::Device;
    use nvml_wrapper::Nvml;
    use nvml_wrapper::error::NvmlError;

    use super::Load;

    const EVERY: Duration = Duration::from_millis(100);

    /// The driver's figure is a mean of the last second, or of a sixth of it, as the GPU has it. So what is looked at
    /// in the first second is also about the time before.
    const STALE: usize = 10;

    /// A thread that asks the driver now and then, until it is ended.
    pub(crate) struct Watch {
        thread: JoinHandle<Load>,
        /// Dropped to end the thread.
        stop: Sender<()>,
    }

    impl Watch {
        /// Nothing where the device is no GPU of NVIDIA's, or its driver cannot be asked.
        pub(crate) fn start(device: Device) -> Option<Self> {
            let Device::Cuda(index) = device else { return None };
            let nvml = Nvml::init().ok()?;
            // Nothing is ever sent.
            let (stop, stopped) = bounded(0);
            let thread = thread::Builder::new().name("gpu-load".into());
            let thread = thread.spawn(move || watch(&nvml, index, &stopped).unwrap_or_default());
            Some(Watch { thread: thread.ok()?, stop })
        }

        pub(crate) fn end(self) -> Load {
            drop(self.stop);
            self.thread.join().expect("it handles its errors")
        }
    }

    /// Why a GPU's load will not be seen, if so.
    pub(crate) fn trouble(device: Device) -> Option<String> {
        let Device::Cuda(index) = device else { return None };
        let ask = || find(&Nvml::init()?, index)?.utilization_rates().map(drop);
        ask().err().map(|error: NvmlError| error.to_string())
    }

    fn watch(nvml: &Nvml, index: usize, stopped: &Receiver<()>) -> Result<Load, NvmlError> {
        let gpu = find(nvml, index)?;
        let (mut busy, mut memory) = (Vec::new(), 0);
        while stopped.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            busy.push(f64::from(gpu.utilization_rates()?.gpu) / 100.0);
            // Not every driver and GPU tells.
            memory = memory.max(gpu.memory_info().map_or(0, |memory| memory.used));
        }
        let fresh = busy.get(STALE..).unwrap_or_default();
        let mean = (!fresh.is_empty()).then(|| fresh.iter().sum::<f64>() / fresh.len() as f64);
        Ok(Load { busy: mean, memory: (memory > 0).then_some(memory) })
    }

    /// The driver counts all GPUs in the order of their slots; CUDA counts only the visible ones, in
    /// another order. So the GPU is found by its UUID.
    #[cfg(feature = "cuda")]
    fn find(nvml: &Nvml, index: usize) -> Result<nvml_wrapper::Device<'_>, NvmlError> {
        match crate::memory::uuid(index) {
            Some(uuid) => nvml.device_by_uuid(uuid),
            None => nvml.device_by_index(index as u32),
        }
    }

    #[cfg(not(feature = "cuda"))]
    fn find(nvml: &Nvml, index: usize) -> Result<nvml_wrapper::Device<'_>, NvmlError> {
        nvml.device_by_index(index as u32)
    }
}

#[cfg(not(feature = "nvml"))]
mod nobody {
    use gangline::Device;

    use super::Load;

    /// This build has no feature `nvml`, so the driver cannot be asked.
    pub(crate) enum Watch {}

    pub(crate) fn trouble(device: Device) -> Option<String> {
        matches!(device, Device::Cuda(_)).then(|| "this build has no feature `nvml`".into())
    }

    impl Watch {
        pub(crate) fn start(_: Device) -> Option<Self> {
            None
        }

        pub(crate) fn end(self) -> Load {
            match self {}
        }
    }
}

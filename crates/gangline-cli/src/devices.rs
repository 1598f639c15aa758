//! `gangline devices`.

use std::env;
use std::fmt::Write;

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;

use crate::error::CliError;
use crate::exit;
use gangline::error::DeviceError;
use gangline::gpu::GpuList;

/// The devices of this machine.
#[derive(Debug, Serialize)]
struct DeviceInventory {
    cpu: Cpu,
    gpus: Vec<ListedGpu>,
    /// Why GPUs cannot be queried, if they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_gpus: Option<String>,
    /// The variable that hides some of them from programs, if it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    cuda_visible_devices: Option<String>,
}

#[derive(Debug, Serialize)]
struct Cpu {
    /// The number the container allows.
    usable: usize,
    /// The number the machine has.
    logical: usize,
}

#[derive(Debug, Serialize)]
struct ListedGpu {
    /// The index that CUDA uses with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    index: u32,
    #[serde(skip)]
    address: Option<PciAddress>,
    #[serde(flatten)]
    facts: Facts,
    /// Why the GPU could not be queried.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Fields are `None` if the driver does not report them.
#[derive(Debug, Default, Serialize)]
struct Facts {
    name: Option<String>,
    uuid: Option<String>,
    mig: Option<ListedMig>,
    memory_total: Option<u64>,
    memory_used: Option<u64>,
    /// In per cent.
    utilization: Option<u32>,
    /// In degrees Celsius.
    temperature: Option<u32>,
}

/// Whether a GPU is split into MIG devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum ListedMig {
    On,
    Off,
}

impl ListedMig {
    fn of(mode: u32) -> ListedMig {
        match mode {
            0 => ListedMig::Off,
            _ => ListedMig::On,
        }
    }
}

/// NVIDIA's driver.
#[derive(Debug)]
pub(crate) struct GpuDriver(Nvml);

/// The load of a GPU at one time.
#[derive(Debug)]
pub(crate) struct GpuReading {
    /// In per cent.
    pub(crate) utilization: u32,
    pub(crate) memory_used: u64,
    pub(crate) memory_total: u64,
}

/// The PCI address of a GPU: domain, bus and device.
type PciAddress = (u32, u32, u32);

pub(crate) fn show(json: bool) -> Result<Vec<u8>, CliError> {
    let inventory = DeviceInventory::of_machine();
    let text = match json {
        true => serde_json::to_string_pretty(&inventory).map(|text| text + "\n"),
        false => Ok(inventory.text()),
    };
    text.map(String::into_bytes).map_err(|error| CliError::new(exit::INTERNAL, error))
}

/// Returns the memory that is in use on these GPUs, in bytes, or `None` if the driver does not report it. The ids are
/// those of this process.
pub(crate) fn memory_used(ids: &[usize]) -> Option<u64> {
    let gpus = gpus().ok()?;
    ids.iter().map(|id| with_id(&gpus, *id)?.facts.memory_used).sum()
}

/// Returns the GPU with an id of this process.
fn with_id(gpus: &[ListedGpu], id: usize) -> Option<&ListedGpu> {
    let list: GpuList = id.to_string().parse().ok()?;
    // In the syntax of `CUDA_VISIBLE_DEVICES`: an index, a UUID or a prefix of a UUID.
    let entry = format!("{:#}", list.on_machine().ok()?);
    gpus.iter().find(|gpu| match entry.parse::<u32>() {
        Ok(index) => gpu.index == index,
        Err(_) => gpu.facts.uuid.as_ref().is_some_and(|uuid| uuid.starts_with(&entry)),
    })
}

/// Checks that the driver reports each of these GPUs. The ids are those of this process.
pub(crate) fn check_reported(ids: &[usize]) -> Result<(), String> {
    let Some(first) = ids.first() else { return Ok(()) };
    let instead = "--gpu-list takes ids without asking the driver";
    let gpus =
        gpus().map_err(|reason| format!("cuda:{first} cannot be found: {reason}; {instead}"))?;
    let found = match gpus.len() {
        0 => "no GPU".to_owned(),
        1 => "GPU 0".to_owned(),
        gpus => format!("GPU 0 to {}", gpus - 1),
    };
    for id in ids {
        let list: GpuList =
            id.to_string().parse().map_err(|error: DeviceError| error.to_string())?;
        let on_machine = list.on_machine().map_err(|error| error.to_string())?;
        // If the entry is a UUID, only CUDA knows whether there is such a GPU, or a part of one.
        let index = format!("{on_machine:#}").parse::<usize>().ok();
        let renamed = match index {
            Some(index) if index != *id => {
                format!(", which is GPU {index} by CUDA_VISIBLE_DEVICES,")
            }
            _ => String::new(),
        };
        if gpus.is_empty() || index.is_some_and(|index| index >= gpus.len()) {
            return Err(format!(
                "cuda:{id}{renamed} does not exist: the driver reports {found}; {instead}"
            ));
        }
    }
    Ok(())
}

impl GpuDriver {
    pub(crate) fn open() -> Result<GpuDriver, String> {
        let nvml = Nvml::init().map_err(|error| match error {
            NvmlError::LibloadingError(error) => not_loaded(&error.to_string()),
            error => does_not_start(error),
        })?;
        Ok(GpuDriver(nvml))
    }

    /// Returns the load of each of these GPUs, or `None` if the driver does not report it. The ids are those of this
    /// process.
    pub(crate) fn readings(&self, ids: &[usize]) -> Vec<Option<GpuReading>> {
        let gpus = self.gpus().unwrap_or_default();
        let reading = |id: &usize| {
            let Facts { utilization, memory_used, memory_total, .. } = with_id(&gpus, *id)?.facts;
            Some(GpuReading {
                utilization: utilization?,
                memory_used: memory_used?,
                memory_total: memory_total?,
            })
        };
        ids.iter().map(reading).collect()
    }

    fn gpus(&self) -> Result<Vec<ListedGpu>, String> {
        let GpuDriver(nvml) = self;
        let count = nvml.device_count().map_err(does_not_start)?;
        let mut gpus: Vec<ListedGpu> =
            (0..count).map(|index| ListedGpu::ask(nvml, index)).collect();
        // The driver's own order may change. It is used only if a GPU has no PCI address.
        if gpus.iter().all(|gpu| gpu.address.is_some()) {
            gpus.sort_by_key(|gpu| gpu.address);
            (0..).zip(&mut gpus).for_each(|(index, gpu)| gpu.index = index);
        }
        Ok(gpus)
    }
}

impl DeviceInventory {
    fn of_machine() -> DeviceInventory {
        let logical = std::fs::read_to_string("/proc/cpuinfo")
            .map_or(0, |text| text.lines().filter(|line| line.starts_with("processor")).count());
        let usable = num_cpus::get();
        let cpu = Cpu { usable, logical: logical.max(usable) };
        let (gpus, no_gpus) = match gpus() {
            Ok(gpus) => (gpus, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let cuda_visible_devices = env::var("CUDA_VISIBLE_DEVICES").ok();
        DeviceInventory { cpu, gpus, no_gpus, cuda_visible_devices }
    }

    fn text(&self) -> String {
        let mut text = format!("cpu      {} cores", self.cpu.usable);
        if self.cpu.logical > self.cpu.usable {
            let _ = write!(text, " of {}, as this container allows", self.cpu.logical);
        }
        text.push('\n');
        for gpu in &self.gpus {
            let _ = writeln!(text, "{}", gpu.text());
        }
        match &self.no_gpus {
            Some(reason) => {
                let _ = writeln!(text, "no NVIDIA GPU is visible: {reason}");
            }
            None if self.gpus.is_empty() => text.push_str("no GPU of NVIDIA\n"),
            None => {}
        }
        if let Some(visible) = &self.cuda_visible_devices {
            let _ = writeln!(text, "CUDA_VISIBLE_DEVICES is {visible:?}: ids count what it shows");
        }
        text
    }
}

impl ListedGpu {
    fn ask(nvml: &Nvml, index: u32) -> ListedGpu {
        match nvml.device_by_index(index) {
            Ok(device) => ListedGpu {
                index,
                address: address(&device),
                // The values that all GPUs report.
                problem: device.name().err().map(words),
                facts: Facts::of(&device),
            },
            Err(error) => {
                let (address, facts) = (None, Facts::default());
                ListedGpu { index, address, facts, problem: Some(words(error)) }
            }
        }
    }

    fn text(&self) -> String {
        let id = format!("cuda:{}", self.index);
        match &self.problem {
            Some(problem) => format!("{id:<8} cannot be queried: {problem}"),
            None => format!("{id:<8} {}", self.facts.text()),
        }
    }
}

impl Facts {
    fn of(device: &Device<'_>) -> Facts {
        let memory = device.memory_info().ok();
        Facts {
            name: device.name().ok(),
            uuid: device.uuid().ok(),
            mig: device.mig_mode().ok().map(|mode| ListedMig::of(mode.current)),
            memory_total: memory.as_ref().map(|memory| memory.total),
            memory_used: memory.map(|memory| memory.used),
            utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
            temperature: device.temperature(TemperatureSensor::Gpu).ok(),
        }
    }

    fn text(&self) -> String {
        let memory = self.memory_used.zip(self.memory_total);
        let pieces = [
            self.name.clone(),
            (self.mig == Some(ListedMig::On)).then(|| "split into MIG devices".to_owned()),
            memory.map(|(used, total)| format!("{:.1} of {:.1} GiB used", gib(used), gib(total))),
            self.utilization.map(|busy| format!("{busy} % busy")),
            self.temperature.map(|degrees| format!("{degrees} C")),
            self.uuid.clone(),
        ];
        pieces.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Returns all GPUs, including those that do not answer, or why none is visible.
fn gpus() -> Result<Vec<ListedGpu>, String> {
    GpuDriver::open()?.gpus()
}

fn does_not_start(error: NvmlError) -> String {
    format!("the driver does not start: {}", words(error))
}

fn address(device: &Device<'_>) -> Option<PciAddress> {
    let pci = device.pci_info().ok()?;
    Some((pci.domain, pci.bus, pci.device))
}

/// Explains why the driver's library is missing. Container images may have an empty one in its place.
fn not_loaded(reason: &str) -> String {
    match reason {
        // What musl's `dlopen` says in a static program.
        "Dynamic loading not supported" => {
            "a statically linked gangline cannot load NVIDIA's driver".to_owned()
        }
        _ if reason.starts_with("libnvidia-ml.so.1: ") && reason.contains("No such file") => {
            "NVIDIA's driver is not installed".to_owned()
        }
        _ => format!("the driver does not load: {reason}"),
    }
}

/// Describes an error of the driver in plain words.
fn words(error: NvmlError) -> String {
    match error {
        NvmlError::GpuLost => "it is lost: it fell off the bus or cannot be reached".to_owned(),
        NvmlError::LibRmVersionMismatch => {
            "the versions of its library and its kernel module differ, as after an update \
             without a restart"
                .to_owned()
        }
        NvmlError::UnexpectedVariant(code) => format!("error {code} of the library NVML"),
        error => error.to_string(),
    }
}

//! `gangline devices`.

use std::env;
use std::fmt::Write;

use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
use nvml_wrapper::{Device, Nvml};
use serde::Serialize;

use super::error::CliError;
use super::exit;

/// What is here.
#[derive(Debug, Serialize)]
struct Inventory {
    cpu: Cpu,
    gpus: Vec<Gpu>,
    /// Why GPUs cannot be asked about, where they cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    no_gpus: Option<String>,
    /// What hides some of them from programs, if it is set.
    #[serde(skip_serializing_if = "Option::is_none")]
    cuda_visible_devices: Option<String>,
}

#[derive(Debug, Serialize)]
struct Cpu {
    /// As the container allows.
    usable: usize,
    /// As the machine has.
    logical: usize,
}

#[derive(Debug, Serialize)]
struct Gpu {
    /// As CUDA counts with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    index: u32,
    #[serde(skip)]
    address: Option<PciAddress>,
    #[serde(flatten)]
    facts: Facts,
    /// Why nothing is known of it.
    #[serde(skip_serializing_if = "Option::is_none")]
    problem: Option<String>,
}

/// Whatever the driver does not tell of a GPU is left out.
#[derive(Debug, Default, Serialize)]
struct Facts {
    name: Option<String>,
    uuid: Option<String>,
    mig: Option<Mig>,
    memory_total: Option<u64>,
    memory_used: Option<u64>,
    /// Of a hundred.
    utilization: Option<u32>,
    /// In degrees Celsius.
    temperature: Option<u32>,
}

/// Whether a GPU is split into MIG devices.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
enum Mig {
    On,
    Off,
}

impl Mig {
    fn of(mode: u32) -> Mig {
        match mode {
            0 => Mig::Off,
            _ => Mig::On,
        }
    }
}

/// Where a GPU is: domain, bus and device.
type PciAddress = (u32, u32, u32);

pub(super) fn show(json: bool) -> Result<Vec<u8>, CliError> {
    let inventory = Inventory::of_machine();
    let text = match json {
        true => serde_json::to_string_pretty(&inventory).map(|text| text + "\n"),
        false => Ok(inventory.text()),
    };
    text.map(String::into_bytes).map_err(|error| CliError::new(exit::INTERNAL, error))
}

impl Inventory {
    fn of_machine() -> Inventory {
        let logical = std::fs::read_to_string("/proc/cpuinfo")
            .map_or(0, |text| text.lines().filter(|line| line.starts_with("processor")).count());
        let usable = num_cpus::get();
        let cpu = Cpu { usable, logical: logical.max(usable) };
        let (gpus, no_gpus) = match gpus() {
            Ok(gpus) => (gpus, None),
            Err(reason) => (Vec::new(), Some(reason)),
        };
        let cuda_visible_devices = env::var("CUDA_VISIBLE_DEVICES").ok();
        Inventory { cpu, gpus, no_gpus, cuda_visible_devices }
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
                let _ = writeln!(text, "no GPU of NVIDIA can be seen: {reason}");
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

impl Gpu {
    fn ask(nvml: &Nvml, index: u32) -> Gpu {
        match nvml.device_by_index(index) {
            Ok(device) => Gpu {
                index,
                address: address(&device),
                // What all of them tell.
                problem: device.name().err().map(words),
                facts: Facts::of(&device),
            },
            Err(error) => {
                let (address, facts) = (None, Facts::default());
                Gpu { index, address, facts, problem: Some(words(error)) }
            }
        }
    }

    fn text(&self) -> String {
        let id = format!("cuda:{}", self.index);
        match &self.problem {
            Some(problem) => format!("{id:<8} cannot be asked: {problem}"),
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
            mig: device.mig_mode().ok().map(|mode| Mig::of(mode.current)),
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
            (self.mig == Some(Mig::On)).then(|| "split into MIG devices".to_owned()),
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

/// All GPUs, also those that do not answer; or why there are none to be seen.
fn gpus() -> Result<Vec<Gpu>, String> {
    let does_not_start = |error| format!("its driver does not start: {}", words(error));
    let nvml = Nvml::init().map_err(|error| match error {
        NvmlError::LibloadingError(error) => not_loaded(&error.to_string()),
        error => does_not_start(error),
    })?;
    let count = nvml.device_count().map_err(does_not_start)?;
    let mut gpus: Vec<Gpu> = (0..count).map(|index| Gpu::ask(&nvml, index)).collect();
    // The driver's own order is that of today only. Where it does not say where a GPU is, there is no other.
    if gpus.iter().all(|gpu| gpu.address.is_some()) {
        gpus.sort_by_key(|gpu| gpu.address);
        (0..).zip(&mut gpus).for_each(|(index, gpu)| gpu.index = index);
    }
    Ok(gpus)
}

fn address(device: &Device<'_>) -> Option<PciAddress> {
    let pci = device.pci_info().ok()?;
    Some((pci.domain, pci.bus, pci.device))
}

/// Why the driver's library is not there. An empty one is what images of containers have in its place.
fn not_loaded(reason: &str) -> String {
    match reason.starts_with("libnvidia-ml.so.1: ") && reason.contains("No such file") {
        true => "its driver is not here".to_owned(),
        false => format!("its driver does not load: {reason}"),
    }
}

/// An error of the driver for people who do not know its parts.
fn words(error: NvmlError) -> String {
    match error {
        NvmlError::GpuLost => {
            "it is lost: it fell off the bus, or cannot be reached for another reason".to_owned()
        }
        NvmlError::LibRmVersionMismatch => {
            "its library and its kernel module are of different versions, as after an update \
             without a restart"
                .to_owned()
        }
        NvmlError::UnexpectedVariant(code) => format!("error {code} of its library NVML"),
        error => error.to_string(),
    }
}

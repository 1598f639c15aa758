//! `gangline devices`.

use std::env;
use std::fmt::Write;

use nvml_wrapper::Nvml;
use nvml_wrapper::enum_wrappers::device::TemperatureSensor;
use nvml_wrapper::error::NvmlError;
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
    /// As nvidia-smi counts, and CUDA with CUDA_DEVICE_ORDER=PCI_BUS_ID.
    index: u32,
    name: Option<String>,
    uuid: Option<String>,
    memory_total: Option<u64>,
    memory_used: Option<u64>,
    /// Of a hundred.
    utilization: Option<u32>,
    /// In degrees Celsius.
    temperature: Option<u32>,
}

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
            Err(NvmlError::LibloadingError(_)) => {
                (Vec::new(), Some("its driver is not here".into()))
            }
            Err(error) => (Vec::new(), Some(error.to_string())),
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
                let _ = writeln!(text, "no GPU of NVIDIA: {reason}");
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
    fn text(&self) -> String {
        let mut text = format!("cuda:{:<3}", self.index);
        let mut add = |piece: Option<String>| {
            if let Some(piece) = piece {
                text.push(' ');
                text.push_str(&piece);
            }
        };
        add(self.name.clone());
        add(self
            .memory_used
            .zip(self.memory_total)
            .map(|(used, total)| format!("{:.1} of {:.1} GiB used,", gib(used), gib(total))));
        add(self.utilization.map(|busy| format!("{busy} % busy,")));
        add(self.temperature.map(|degrees| format!("{degrees} C,")));
        add(self.uuid.clone());
        text
    }
}

fn gib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 30)
}

/// Whatever the driver does not tell of a GPU is left out.
fn gpus() -> Result<Vec<Gpu>, NvmlError> {
    let nvml = Nvml::init()?;
    (0..nvml.device_count()?)
        .map(|index| {
            let device = nvml.device_by_index(index)?;
            let memory = device.memory_info().ok();
            Ok(Gpu {
                index,
                name: device.name().ok(),
                uuid: device.uuid().ok(),
                memory_total: memory.as_ref().map(|memory| memory.total),
                memory_used: memory.map(|memory| memory.used),
                utilization: device.utilization_rates().ok().map(|rates| rates.gpu),
                temperature: device.temperature(TemperatureSensor::Gpu).ok(),
            })
        })
        .collect()
}

//! Lists of devices for jobs, in which `cuda:all` stands for the GPUs of the machine that they run on.

use std::str::FromStr;

use gangline::error::DeviceError;
use gangline::gpu::GpuList;
use gangline::{Device, Devices};

use crate::error::CliError;
use crate::exit;

const ALL_GPUS: &str = "cuda:all";

/// The text of a list, which is checked when it is read. Its GPUs are looked for later: a list may be given and not used.
#[derive(Debug, Clone)]
pub(crate) struct DeviceNames(String);

impl FromStr for DeviceNames {
    type Err = String;

    fn from_str(text: &str) -> Result<DeviceNames, String> {
        with_gpus(text, 1)?;
        Ok(DeviceNames(text.to_owned()))
    }
}

impl DeviceNames {
    /// Returns the devices. Of `cuda:all`, they are those of `--gpu-list all`: the driver is asked by NVML, so that a
    /// build without CUDA finds them too.
    pub(crate) fn find(&self) -> Result<Devices, CliError> {
        let DeviceNames(text) = self;
        let refused = |error: DeviceError| {
            CliError::new(exit::DEVICES, format!("{}: {error}", text.escape_debug()))
        };
        let gpus = match terms(text).any(is_all) {
            true => GpuList::from_str("all").and_then(|all| all.visible()).map_err(refused)?.len(),
            false => 1,
        };
        with_gpus(text, gpus).map_err(|error| CliError::new(exit::DEVICES, error))
    }
}

/// Reads a list for a machine with this number of GPUs.
fn with_gpus(text: &str, gpus: usize) -> Result<Devices, String> {
    if text.contains('|') {
        return Err("alternatives with | are for programs that use the library; name the devices, as in cuda:0-3: \
                    `gangline devices` lists them".to_owned());
    }
    if terms(text).any(|term| without_spaces(term) == "metal:all") {
        return Err(for_cuda_only("metal:all"));
    }
    let range = format!("cuda:0-{}", gpus.saturating_sub(1));
    let named: String = terms(text).map(|term| named(term, &range)).collect();
    let devices: Devices = named.parse().map_err(|error: DeviceError| error.to_string())?;
    let metal = devices.places().flatten().find(|device| matches!(device, Device::Metal(_)));
    match metal.copied() {
        Some(metal) => Err(for_cuda_only(&metal.to_string())),
        None => Ok(devices),
    }
}

/// The devices of a list, each with the sign behind it.
fn terms(text: &str) -> impl Iterator<Item = &str> {
    text.split_inclusive([',', '+', '*'])
}

fn is_all(term: &str) -> bool {
    without_spaces(term) == ALL_GPUS
}

fn without_spaces(term: &str) -> String {
    without_sign(term).split_whitespace().collect()
}

fn without_sign(term: &str) -> &str {
    term.strip_suffix([',', '+', '*']).unwrap_or(term)
}

fn named(term: &str, range: &str) -> String {
    match is_all(term) {
        true => format!("{range}{}", &term[without_sign(term).len()..]),
        false => term.to_owned(),
    }
}

fn for_cuda_only(metal: &str) -> String {
    format!(
        "{metal} cannot be given to a command, which learns its GPUs by CUDA_VISIBLE_DEVICES: name devices as in \
         cuda:0-3 or cpu*4"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_stands_for_the_gpus_of_the_machine() {
        for (text, devices) in [
            ("cuda:all", "cuda:0,cuda:1,cuda:2"),
            (" cuda : all *2, cpu", "cuda:0*2,cuda:1*2,cuda:2*2,cpu"),
            ("cuda:all+cpu", "cuda:0+cuda:1+cuda:2+cpu"),
            ("cpu,cuda:all,cuda:0", "cpu,cuda:0,cuda:1,cuda:2,cuda:0"),
            ("cuda:1", "cuda:1"),
        ] {
            assert_eq!(with_gpus(text, 3).unwrap().to_string(), devices, "{text}");
        }
        for wrong in
            ["cuda:allx", "cuda:all:0", "all", "metal:all", "cuda:all|cpu", "cuda:all+cuda:0"]
        {
            assert!(with_gpus(wrong, 3).is_err(), "{wrong}");
        }
    }
}

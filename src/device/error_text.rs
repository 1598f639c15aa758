//! Parts of the texts of device errors.

#[cfg(feature = "candle")]
use std::path::Path;

use super::id::Device;
#[cfg(feature = "candle")]
use crate::base::plain::Plain;

/// Says what to write instead of an unknown device.
pub(super) fn known(instead: Option<&str>) -> String {
    match instead {
        Some(instead) => format!("write {instead}"),
        None => "known are cpu, cuda:N and metal:N, in lower case".to_owned(),
    }
}

/// Lists the GPUs of the machine.
pub(super) fn there(uuids: &[String]) -> String {
    match uuids {
        [] => ", which has none".to_owned(),
        uuids => format!(": {}", uuids.join(", ")),
    }
}

/// Lists the devices of the same kind.
pub(super) fn present(device: Device, found: usize) -> String {
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

/// Describes the valid ids of `visible` GPUs.
pub(super) fn ids(visible: usize) -> String {
    match visible {
        0 => "which shows none".to_owned(),
        1 => "so the only id is 0".to_owned(),
        _ => format!("so ids go from 0 to {}", visible - 1),
    }
}

/// Names the weights that could not be read.
#[cfg(feature = "candle")]
pub(super) fn weights(file: Option<&Path>) -> String {
    match file {
        Some(file) => {
            format!("the weights {} could not be read", Plain(&file.display().to_string()))
        }
        None => "the bytes of the weights are no safetensors file".to_owned(),
    }
}

/// Describes a variable that should name a UUID.
pub(super) fn unnamed(variable: &Option<String>) -> String {
    match variable {
        Some(value) => format!("is {value:?}, which does not name it"),
        None => "is not set, which would have to name it".to_owned(),
    }
}

/// The beginning of a text, short enough for an error.
pub(super) fn clip(text: &str) -> String {
    const LONGEST: usize = 60;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &text[..end]),
        None => text.to_owned(),
    }
}

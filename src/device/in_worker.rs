//! The devices of a place, as a worker process sees them.

use super::detect::visible_devices;
use super::device_error::DeviceError;
use super::id::Device;
use super::place::Place;
use super::visible::Visible;

/// What a worker of a place is started with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct InWorker {
    /// The devices, numbered as the worker sees them.
    pub(crate) place: Place,
    /// The value of `CUDA_VISIBLE_DEVICES`. `None` if the place has no CUDA device.
    pub(crate) cuda_visible: Option<String>,
}

/// Returns what a worker of this place is started with: it sees its own CUDA devices only.
pub(crate) fn in_worker(place: &Place) -> Result<InWorker, DeviceError> {
    in_worker_of(place, visible_devices().as_deref())
}

fn in_worker_of(place: &Place, variable: Option<&str>) -> Result<InWorker, DeviceError> {
    let visible = Visible::new(variable);
    let indices = place.devices().iter().filter_map(|device| match device {
        Device::Cuda(index) => Some(*index),
        _ => None,
    });
    let entries = indices
        .map(|index| Ok(visible.entry(index)?.to_string()))
        .collect::<Result<Vec<_>, DeviceError>>()?;
    let cuda_visible = (!entries.is_empty()).then(|| entries.join(","));
    Ok(InWorker { place: place.renumber(), cuda_visible })
}

/// Reads a place as its `Display` writes it.
pub(crate) fn place_from_text(text: &str) -> Result<Place, DeviceError> {
    Place::new(text.split('+').map(str::parse).collect::<Result<_, _>>()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_worker_sees_its_own_gpus_from_0() {
        let place = place_from_text("cpu+cuda:2+cuda:0").unwrap();
        let seen = |variable| in_worker_of(&place, variable).unwrap();
        let InWorker { place: renumbered, cuda_visible } = seen(None);
        assert_eq!(renumbered.to_string(), "cpu+cuda:0+cuda:1");
        assert_eq!(cuda_visible.as_deref(), Some("2,0"));
        let variable = "7,5,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
        let cuda_visible = seen(Some(variable)).cuda_visible;
        assert_eq!(cuda_visible.as_deref(), Some("GPU-8932f937-d72c-4106-c12f-20bd9faed9f6,7"));
        assert!(in_worker_of(&place, Some("3")).is_err(), "it hides cuda:2");
        let cpu = place_from_text("cpu").unwrap();
        assert_eq!(in_worker_of(&cpu, Some("3")).unwrap().cuda_visible, None);
    }
}

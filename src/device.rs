//! Devices, and lists of places for producers.

mod accelerator;
#[cfg(any(test, fuzzing))]
pub(crate) mod any_text;
#[cfg(feature = "candle")]
mod candle;
#[cfg(feature = "rayon")]
mod cpu_threads;
mod detect;
mod device_error;
mod device_facts;
mod devices_text;
mod error_text;
mod from_cfg;
mod gpu;
mod gpu_list;
mod gpu_lock;
mod id;
#[cfg(all(feature = "processes", target_os = "linux"))]
mod in_worker;
mod into;
mod inventory;
#[cfg(target_os = "linux")]
mod lock_file;
mod machine;
#[cfg(feature = "nvml")]
mod nvml;
mod place;
#[cfg(test)]
mod tests;
#[cfg(feature = "rayon")]
mod thread_variables;
mod visible;
#[cfg(feature = "candle")]
mod weights;

use std::collections::HashMap;
use std::fmt;
use std::iter;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use gangline_scheduler::Gpus;

use accelerator::Accelerator;
use detect::Found;
use devices_text::Parsed;

#[cfg(feature = "candle")]
pub(crate) use candle::CandleDevices;
#[cfg(feature = "rayon")]
#[cfg_attr(docsrs, doc(cfg(feature = "rayon")))]
pub use cpu_threads::CpuThreads;
pub use device_error::{DeviceError, GpuHolder};
pub(crate) use device_facts::{DeviceMemory, models};
pub use gpu_list::GpuList;
pub use gpu_lock::GpuLock;
pub(crate) use gpu_lock::HeldGpus;
pub use id::Device;
#[cfg(all(feature = "processes", target_os = "linux"))]
pub(crate) use in_worker::{InWorker, in_worker, place_from_text};
pub use into::IntoDevices;
use place::MAX_PLACES;
pub(crate) use place::Place;
#[cfg(feature = "rayon")]
#[cfg_attr(docsrs, doc(cfg(feature = "rayon")))]
pub use thread_variables::candle_threads;
#[cfg(feature = "rayon")]
pub(crate) use thread_variables::candle_variables;
#[cfg(all(feature = "rayon", feature = "processes", target_os = "linux"))]
pub(crate) use thread_variables::rayon_variable;
#[cfg(feature = "candle")]
#[cfg_attr(docsrs, doc(cfg(feature = "candle")))]
pub use weights::Weights;
#[cfg(feature = "candle")]
pub(crate) use weights::var_builder;

/// The places of a runner's producers, each with the devices that it owns.
///
/// A list is never empty: it has 1 to 65,536 places, each with 1 to 256 different devices. A
/// runner starts one producer per place.
///
/// # Text
///
/// | text | places |
/// |---|---|
/// | `cpu` | one producer on the CPU |
/// | `cpu*4` | four producers on the CPU |
/// | `cuda`, `cuda:0` | one producer on the first CUDA device |
/// | `cuda:0-3` | four producers, on `cuda:0`, `cuda:1`, `cuda:2` and `cuda:3` |
/// | `cuda:all` | one producer on each CUDA device of this machine |
/// | `cuda:0*2` | two producers on one GPU |
/// | `cuda:0-1*2` | four producers, on `cuda:0`, `cuda:0`, `cuda:1`, `cuda:1` |
/// | `cuda:0+cuda:1` | one producer that owns both |
/// | `cuda:0+cuda:1*2` | two producers that own both |
/// | `cuda:0-2+cpu` | one producer that owns `cuda:0`, `cuda:1`, `cuda:2` and the CPU |
/// | `cuda:0,cpu*2` | three producers |
/// | `cuda:0*2\|cpu*4` | two producers on the first CUDA device; where that cannot be used, four on the CPU |
///
/// `metal` is written as `cuda` is. Ranges come first, `+` next, then `*` for the whole place, then `|`,
/// and commas around all of it:
///
/// - A range, or `all`, stands for its devices in ascending order. By itself it makes one place of
///   each; joined by `+` to something else, all of them belong to that one place.
/// - `cuda:all` is resolved when it is read, so the text of the value names the devices. It is an
///   error where there are none, never a silent `cpu`.
/// - Devices with a `|` between them are alternatives: the first that this build can use on this machine is
///   taken, all devices between two signs or none. Alternatives are resolved when they are read, and it is
///   an error if none can be used. The ones that could not be used are listed by
///   [`fallbacks`](Devices::fallbacks).
/// - Names are in lower case. White space between words, numbers and signs means nothing, and
///   leading zeros mean nothing.
/// - These are errors, also in an alternative that is not taken: an empty text, an empty part (`cpu,`,
///   `cpu,,cpu`), `*0`, a range that runs backwards (`cuda:3-1`).
/// - So are an index for the CPU (`cpu:0`), an index without its kind (`cuda:0,1`), and a device twice in
///   one place (`cuda:0+cuda:0`).
///
/// The text that a value is written as is canonical, and reads back as an equal value. It is
/// also its form in serde.
///
/// ```
/// use gangline::{Device, Devices};
///
/// let devices: Devices = "cuda:0-1 * 2, cpu".parse()?;
/// assert_eq!(devices.len(), 5);
/// assert_eq!(devices.to_string(), "cuda:0*2,cuda:1*2,cpu");
/// assert_eq!(devices.places().last(), Some(&[Device::Cpu][..]));
///
/// let error = "cuda:0,1".parse::<Devices>().unwrap_err();
/// assert_eq!(error.to_string(), r#""1" does not say which kind of device it is; write cuda:0,cuda:1"#);
/// # Ok::<(), gangline::Error>(())
/// ```
///
/// # Check
///
/// Building a runner checks every device against this build and this machine. Reading a text and
/// [`from_places`](Devices::from_places) do not, so that a text can be read on one machine for
/// another. [`names_only`](Devices::names_only) turns the check off.
///
/// # Equality
///
/// Two lists are equal if their places are. Whether they are names only, and their fallbacks, are not
/// compared and are not part of the text: they belong to the program that uses the list, not to its users'
/// settings.
#[derive(Clone)]
pub struct Devices {
    // Never empty, at most MAX_PLACES. Equal neighbours that come from one text share their place,
    // so that `cpu*65536` is one allocation and not 65,536.
    places: Vec<Place>,
    meaning: Meaning,
    /// The fallbacks in use, each as a sentence, without repeats.
    fallbacks: Vec<String>,
}

/// What the devices of a list stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Meaning {
    /// Devices of this machine, usable from this build.
    Real,
    /// Names that only the hooks interpret.
    Labels,
}

impl Devices {
    /// Makes a list of places, each with the devices that its producer owns, in their order.
    ///
    /// ```
    /// use gangline::{Device, Devices};
    ///
    /// let devices = Devices::from_places([
    ///     vec![Device::Cuda(0), Device::Cuda(1)],
    ///     vec![Device::Cpu],
    /// ])?;
    /// assert_eq!(devices.to_string(), "cuda:0+cuda:1,cpu");
    /// # Ok::<(), gangline::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is no place or there are more than 65,536, or if a place has no device,
    /// more than 256, or the same one twice. At most 65,537 places are taken from the iterator.
    pub fn from_places(
        places: impl IntoIterator<Item = Vec<Device>>,
    ) -> Result<Devices, DeviceError> {
        let places: Result<Vec<Place>, DeviceError> =
            places.into_iter().take(MAX_PLACES + 1).map(Place::new).collect();
        Self::new(places?)
    }

    /// The GPUs that this build can use on this machine, one producer each; where there are none,
    /// one CPU producer per core that this process may use.
    ///
    /// A build without the features `cuda` and `metal` sees no GPU.
    ///
    /// ```
    /// let devices = gangline::Devices::available();
    /// assert!(devices.len() >= 1);
    /// ```
    pub fn available() -> Devices {
        Self::available_of(&detect::found, num_cpus::get())
    }

    /// Takes the devices as names that only the hooks interpret: for other frameworks, or for external
    /// commands that are given the number of a GPU.
    ///
    /// They are not checked when a runner is built, and the candle devices of the hooks' context
    /// are not available. The text in and out stays as it is.
    ///
    /// ```
    /// use gangline::Devices;
    ///
    /// let devices = "cuda:0-7".parse::<Devices>()?.names_only();
    /// assert!(devices.is_labels());
    /// # Ok::<(), gangline::Error>(())
    /// ```
    pub fn names_only(self) -> Self {
        Devices { meaning: Meaning::Labels, ..self }
    }

    /// Numbers the devices of each place from 0, CUDA and Metal separately: the ids in jobs that an
    /// external scheduler shows only their own GPUs. The CPU stays.
    ///
    /// ```
    /// use gangline::Devices;
    ///
    /// let devices: Devices = "cuda:4+cuda:5,cuda:6+cuda:7".parse()?;
    /// assert_eq!(devices.renumber().to_string(), "cuda:0+cuda:1*2");
    /// # Ok::<(), gangline::Error>(())
    /// ```
    pub fn renumber(&self) -> Devices {
        let places = self.places.iter().map(Place::renumber).collect();
        Devices { places, ..self.clone() }
    }

    /// Returns whether the devices are [names only](Devices::names_only).
    pub fn is_labels(&self) -> bool {
        self.meaning == Meaning::Labels
    }

    /// Returns the fallbacks in use: each a sentence that says which alternative of a text such as
    /// `cuda:0|cpu` was taken, and why.
    ///
    /// Each is listed once, and at most 32 are kept.
    ///
    /// A runner that is built logs them as warnings, and the reports of its runs have them.
    ///
    /// ```
    /// let devices: gangline::Devices = "cuda:999|cpu*2".parse()?;
    /// assert_eq!(devices.to_string(), "cpu*2");
    /// assert_eq!(devices.fallbacks().len(), 1);
    /// # Ok::<(), gangline::Error>(())
    /// ```
    pub fn fallbacks(&self) -> &[String] {
        &self.fallbacks
    }

    /// Returns the number of places, which is the number of producers that a runner starts: at least one.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Always `false`: a list without a place cannot be made.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The places in their order, each as its devices in their order, at least one each.
    ///
    /// ```
    /// use gangline::{Device, Devices};
    ///
    /// let devices: Devices = "cuda:0+cuda:1,cpu".parse()?;
    /// let places: Vec<&[Device]> = devices.places().collect();
    /// assert_eq!(places, [&[Device::Cuda(0), Device::Cuda(1)][..], &[Device::Cpu]]);
    /// # Ok::<(), gangline::Error>(())
    /// ```
    pub fn places(&self) -> impl ExactSizeIterator<Item = &[Device]> + DoubleEndedIterator {
        self.places.iter().map(Place::devices)
    }

    /// The GPUs of each place, if any place has one. Places with a GPU in common have a number in common.
    pub(crate) fn places_with_gpus(&self) -> Option<Arc<[Gpus]>> {
        let mut numbers = HashMap::new();
        let mut number = |gpu: Device| {
            let next = numbers.len();
            *numbers.entry(gpu).or_insert(next)
        };
        let gpus = self.places.iter().map(|place| place.gpus().map(&mut number).collect());
        let gpus: Arc<[Gpus]> = gpus.collect();
        (!numbers.is_empty()).then_some(gpus)
    }

    /// Checks every device against this build and this machine; labels always pass.
    pub(crate) fn check(&self) -> Result<(), DeviceError> {
        match self.meaning {
            Meaning::Real => Ok(self.check_against(&detect::found)?),
            Meaning::Labels => Ok(()),
        }
    }

    /// The devices of one place, to be owned by its producer.
    pub(crate) fn place(&self, worker: usize) -> Option<&Place> {
        self.places.get(worker)
    }

    /// How many producers compute on the CPU, be it beside other devices.
    #[cfg(feature = "rayon")]
    pub(crate) fn count_on_cpu(&self) -> usize {
        self.places.iter().filter(|place| place.has_cpu()).count()
    }

    /// What the devices are.
    #[cfg(feature = "candle")]
    pub(crate) fn meaning(&self) -> Meaning {
        self.meaning
    }

    fn new(places: Vec<Place>) -> Result<Devices, DeviceError> {
        match places.len() {
            0 => Err(DeviceError::Empty {}),
            1..=MAX_PLACES => Ok(Devices { places, meaning: Meaning::Real, fallbacks: vec![] }),
            least => Err(DeviceError::TooManyPlaces { least, most: MAX_PLACES }),
        }
    }

    fn cpus(count: usize) -> Result<Devices, DeviceError> {
        if count > MAX_PLACES {
            return Err(DeviceError::TooManyPlaces { least: count, most: MAX_PLACES });
        }
        Self::new(iter::repeat_n(Place::one(Device::Cpu), count).collect())
    }

    fn available_of(found: &dyn Fn(Accelerator) -> Found, cores: usize) -> Devices {
        let gpus: Vec<Place> = Accelerator::ALL
            .into_iter()
            .flat_map(|accelerator| {
                (0..found(accelerator).count()).map(move |n| Place::one(accelerator.device(n)))
            })
            .take(MAX_PLACES)
            .collect();
        Self::new(gpus)
            .or_else(|_| Self::cpus(cores.clamp(1, MAX_PLACES)))
            .expect("1 to MAX_PLACES places are a list")
    }

    fn check_against(&self, found: &dyn Fn(Accelerator) -> Found) -> Result<(), DeviceError> {
        detect::check_places(&self.places, found)
    }
}

impl PartialEq for Devices {
    fn eq(&self, other: &Self) -> bool {
        self.places == other.places
    }
}

impl Eq for Devices {}

impl fmt::Debug for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = match self.meaning {
            Meaning::Real => "Devices",
            Meaning::Labels => "Labels",
        };
        write!(f, "{name}({self})")
    }
}

impl fmt::Display for Devices {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        devices_text::write_places(f, &self.places)
    }
}

/// Reads the [text](Devices#text) of a list.
///
/// # Errors
///
/// [`DeviceError`]; its text quotes what cannot be read and says what can.
impl FromStr for Devices {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        let Parsed { places, fallbacks } = devices_text::parse_places(text, &detect::found)?;
        Ok(Devices { fallbacks, ..Self::new(places)? })
    }
}

impl Serialize for Devices {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Devices {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(de::Error::custom)
    }
}

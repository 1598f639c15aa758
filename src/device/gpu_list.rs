//! Lists of GPUs, as users of Scipion type them.

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

use super::devices_text::{TermNumber, number};
use super::error_text::clip;
use super::gpu::{ALL, Gpu, Uuid};
use super::machine::Machine;
use super::visible::Visible;
use super::{Device, DeviceError, Devices, MAX_PLACES, Place, detect};

/// The id that stands for no GPU, as in Scipion.
pub(super) const VOID: usize = 99;

/// A list of GPUs, as in the parameter `GPU_LIST` of Scipion's protocols.
///
/// It holds the GPUs to use, in order. [`share`](Self::share) and [`slots`](Self::slots) assign them to
/// producers, in the two ways that Scipion has had, and make [`Devices`] of them.
///
/// # Text
///
/// | text | GPUs |
/// |---|---|
/// | `0 1`, `0,1`, `0, 1` | 0 and 1 |
/// | `1,5-8,10` | 1, 5, 6, 7, 8 and 10 |
/// | `0 0 1 1` | 0 and 1, each for two producers |
/// | `0 99 1` | 0, a void entry, and 1 |
/// | `GPU-8932f937 MIG-4f1c` | two by their UUIDs, which may be shortened |
/// | `all` | every GPU that this process sees |
/// | nothing | none |
///
/// Commas and white space separate the entries, and several count as one. Leading zeros are ignored. A
/// range has no white space inside. Scipion silently reads `3-0` as nothing and `0-1-2` as 0 and 1: here
/// both are errors, as is any other text that is not a list. At most 65,536 entries are allowed.
///
/// A value is written with ranges for ids that ascend by one: `1,5-8,10`. That text reads back as an equal
/// value, and is also its form in serde. There a single id may also be a number, and a list may have
/// numbers and texts, since YAML reads `gpu_list: 0` and `gpu_list: [0, 1]` so.
///
/// # Ids
///
/// An id is a CUDA index: it counts the visible GPUs. Under `CUDA_VISIBLE_DEVICES=4,5,6,7` the id 0 is GPU
/// 4 of the machine. [`visible`](Self::visible) checks the ids against that variable, and finds the ids of
/// UUIDs. CUDA counts the fastest GPU first unless `CUDA_DEVICE_ORDER=PCI_BUS_ID` is set. That gives the
/// order of nvidia-smi, and Scipion sets it.
///
/// The id 99 is a void entry: a place in the list without a GPU.
///
/// `all` becomes ids by [`visible`](Self::visible): those that `CUDA_VISIBLE_DEVICES` lists, or else all of the driver.
/// If there are none, it is an error. It may be repeated, and stand beside other entries, as an id may.
///
/// ```
/// use gangline::gpu::GpuList;
///
/// let gpus: GpuList = "0 1 2 3".parse()?;
/// assert_eq!(gpus.to_string(), "0-3");
/// assert_eq!(gpus.share(2)?.to_string(), "cuda:0+cuda:1,cuda:2+cuda:3");
///
/// let error = "3-0".parse::<GpuList>().unwrap_err();
/// assert_eq!(error.to_string(), r#"the range "3-0" runs backwards; write 0-3"#);
/// # Ok::<(), gangline::Error>(())
/// ```
#[derive(Clone, PartialEq, Eq)]
pub struct GpuList {
    // At most MAX_PLACES, so that a short text with a long range takes little memory.
    gpus: Vec<Gpu>,
}

impl GpuList {
    /// Returns the number of entries, void ones included.
    pub fn len(&self) -> usize {
        self.gpus.len()
    }

    /// Returns whether there are no entries.
    pub fn is_empty(&self) -> bool {
        self.gpus.is_empty()
    }

    /// Checks the list against the GPUs visible to this process, and replaces UUIDs and `all` by ids.
    ///
    /// It is [`visible_in`](Self::visible_in) with the variable `CUDA_VISIBLE_DEVICES` of this process. The
    /// driver is asked for a UUID that the variable does not name, and for `all`.
    ///
    /// That needs the feature `nvml`, and a known order of the ids: the order of PCI, which
    /// `CUDA_DEVICE_ORDER=PCI_BUS_ID` sets, or GPUs of one model. MIG devices have ids only if the variable
    /// names them.
    ///
    /// # Errors
    ///
    /// Those of [`visible_in`](Self::visible_in). [`DeviceError`] also if the driver cannot be asked,
    /// knows no such UUID, or cannot give its id.
    pub fn visible(&self) -> Result<GpuList, DeviceError> {
        let variable = detect::visible_devices();
        self.visible_on(&Machine::new(variable.as_deref(), &detect::inventory))
    }

    /// Checks the list against a value of `CUDA_VISIBLE_DEVICES`, and replaces UUIDs and `all` by ids. `None` is
    /// for a variable that is not set: then `all` is an error.
    ///
    /// The variable is read as CUDA does. An empty one hides all GPUs, an unset one hides none. The first
    /// entry that CUDA cannot read ends the list, and a repeated entry hides all. Void entries stay.
    ///
    /// A UUID has an id only if the variable names it: unlike [`visible`](Self::visible), this does not ask
    /// the driver. Either of the two UUIDs may be shortened.
    ///
    /// ```
    /// use gangline::gpu::GpuList;
    ///
    /// let gpus: GpuList = "0 GPU-8932f937".parse()?;
    /// let variable = "4,5,GPU-8932f937-d72c-4106-c12f-20bd9faed9f6";
    /// assert_eq!(gpus.visible_in(Some(variable))?, "0 2".parse()?);
    ///
    /// let gpus: GpuList = "4".parse()?;
    /// let error = gpus.visible_in(Some("4,5")).unwrap_err();
    /// assert_eq!(
    ///     error.to_string(),
    ///     r#"GPU 4 is not visible: CUDA_VISIBLE_DEVICES is "4,5", so ids go from 0 to 1"#
    /// );
    /// # Ok::<(), gangline::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the variable hides an id or does not name a UUID, or if a shortened UUID
    /// matches two of its GPUs.
    pub fn visible_in(&self, variable: Option<&str>) -> Result<GpuList, DeviceError> {
        let visible = Visible::new(variable);
        self.with_indices(
            |index| visible.check(index),
            |uuid| visible.find(uuid),
            || visible.all(None),
        )
    }

    /// Returns the GPUs as the machine counts them: [`on_machine_in`](Self::on_machine_in) with the
    /// variable `CUDA_VISIBLE_DEVICES` of this process.
    ///
    /// # Errors
    ///
    /// Those of [`on_machine_in`](Self::on_machine_in).
    pub fn on_machine(&self) -> Result<GpuList, DeviceError> {
        self.on_machine_in(detect::visible_devices().as_deref())
    }

    /// Replaces each id by the entry that a value of `CUDA_VISIBLE_DEVICES` has at that index.
    ///
    /// That entry is the GPU's number, or UUID, outside of this process, which programs started with
    /// another value need. `None` is for a variable that is not set: then the ids stay. UUIDs, void entries and
    /// `all` stay too.
    ///
    /// Written with `{:#}` the list has no ranges, and is itself a value of the variable.
    ///
    /// ```
    /// use gangline::gpu::GpuList;
    ///
    /// let gpus: GpuList = "0 1".parse()?;
    /// let gpus = gpus.on_machine_in(Some("4,5,6,7"))?;
    /// assert_eq!(gpus, "4 5".parse()?);
    /// assert_eq!(format!("{gpus:#}"), "4,5");
    /// # Ok::<(), gangline::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if the variable hides an id.
    pub fn on_machine_in(&self, variable: Option<&str>) -> Result<GpuList, DeviceError> {
        let visible = Visible::new(variable);
        let outside = |gpu: &Gpu| match gpu {
            Gpu::Index(index) if *index != VOID => visible.entry(*index),
            stays => Ok(stays.clone()),
        };
        let gpus: Result<Vec<Gpu>, DeviceError> = self.gpus.iter().map(outside).collect();
        Ok(GpuList { gpus: gpus? })
    }

    /// Numbers the GPUs from 0 in the order of first appearance: the ids in a job that an external
    /// scheduler shows only these GPUs.
    ///
    /// Void entries stay. [`Devices::renumber`] numbers the GPUs of each producer by itself.
    ///
    /// ```
    /// use gangline::gpu::GpuList;
    ///
    /// let gpus: GpuList = "2 1 2 4".parse()?;
    /// assert_eq!(gpus.renumber(), "0 1 0 2".parse()?);
    /// # Ok::<(), gangline::Error>(())
    /// ```
    pub fn renumber(&self) -> GpuList {
        let mut numbers = HashMap::new();
        let mut number = |gpu: &Gpu| match gpu {
            Gpu::Index(VOID) | Gpu::All => gpu.clone(),
            gpu => {
                let next = numbers.len();
                // The id of a void entry is no number for a GPU.
                let number = numbers.entry(gpu.clone()).or_insert(next + usize::from(next >= VOID));
                Gpu::Index(*number)
            }
        };
        GpuList { gpus: self.gpus.iter().map(&mut number).collect() }
    }

    /// Gives each of this number of workers its GPUs, so that there are exactly that many producers.
    ///
    /// It is the way of Scipion's description of the parameter, and of its versions up to 3.8.
    ///
    /// - With more GPUs than workers, each gets the same number, in the order of the list. The remainder is
    ///   not used: of three GPUs and two workers, the third.
    /// - With more workers than GPUs, they take turns: with two GPUs, the third worker shares the first GPU
    ///   with the first.
    /// - A void entry is an id like any other, as those versions had it: it is kept, as `cuda:99`. A runner
    ///   refuses that as a device that does not exist, unless the devices are [names
    ///   only](Devices::names_only).
    ///
    /// Scipion's number of threads counts the main thread, which does no work: five threads are four
    /// workers. One thread is one worker, which gets all GPUs.
    ///
    /// A worker gets a repeated id once: it owns that GPU, and `0 0 1 1` for two workers is one GPU for
    /// each.
    ///
    /// ```
    /// use gangline::gpu::GpuList;
    ///
    /// let gpus: GpuList = "0 1".parse()?;
    /// assert_eq!(gpus.share(1)?.to_string(), "cuda:0+cuda:1");
    /// assert_eq!(gpus.share(4)?.to_string(), "cuda:0,cuda:1,cuda:0,cuda:1");
    /// # Ok::<(), gangline::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// [`DeviceError`] if there is no worker or there are more than 65,536; if no entry is a GPU; if an
    /// entry is a UUID (call [`visible`](Self::visible) before); or if a worker would get more than 256.
    pub fn share(&self, workers: usize) -> Result<Devices, DeviceError> {
        let ids = self.ids(workers)?;
        let each = (ids.len() / workers).max(1);
        let places: Result<Vec<Place>, DeviceError> =
            ids.chunks_exact(each).take(workers).map(place).collect();
        Devices::new(places?.into_iter().cycle().take(workers).collect())
    }

    /// Makes slots of the GPUs: one producer for each slot, and at most one slot for each worker.
    ///
    /// It is the way of Scipion's versions from 3.9 on.
    ///
    /// - With more entries than workers, the entries are divided in the order of the list. If that does not
    ///   come out even, the first workers get one more, and no GPU is left unused.
    /// - With fewer, there is one slot for each entry, and so fewer producers than workers. To share a GPU,
    ///   repeat it: `0 0 1 1`.
    /// - Void entries are removed last: they take up room in a slot, but are not GPUs. A slot of void
    ///   entries only is dropped.
    ///
    /// The number of threads and repeated ids in one slot are handled as by [`share`](Self::share).
    ///
    /// ```
    /// use gangline::gpu::GpuList;
    ///
    /// let gpus: GpuList = "0 1 2".parse()?;
    /// assert_eq!(gpus.slots(2)?.to_string(), "cuda:0+cuda:1,cuda:2");
    /// assert_eq!(gpus.slots(5)?.to_string(), "cuda:0,cuda:1,cuda:2");
    ///
    /// let gpus: GpuList = "0 99 1 2".parse()?;
    /// assert_eq!(gpus.slots(2)?.to_string(), "cuda:0,cuda:1+cuda:2");
    /// # Ok::<(), gangline::Error>(())
    /// ```
    ///
    /// # Errors
    ///
    /// Those of [`share`](Self::share).
    pub fn slots(&self, workers: usize) -> Result<Devices, DeviceError> {
        let ids = self.ids(workers)?;
        let places: Result<Vec<Place>, DeviceError> = even_parts(&ids, workers)
            .map(|part| part.iter().copied().filter(|id| *id != VOID).collect::<Vec<_>>())
            .filter(|ids| !ids.is_empty())
            .map(|ids| place(&ids))
            .collect();
        Devices::new(places?)
    }

    /// Checks the list against the GPUs of any machine, as [`visible`](Self::visible) does against those of this one.
    pub(super) fn visible_on(&self, machine: &Machine<'_>) -> Result<GpuList, DeviceError> {
        self.with_indices(
            |index| machine.visible().check(index),
            |uuid| machine.index(uuid),
            || machine.all(),
        )
    }

    fn with_indices(
        &self,
        check: impl Fn(usize) -> Result<usize, DeviceError>,
        find: impl Fn(&Uuid) -> Result<usize, DeviceError>,
        all: impl Fn() -> Result<Range<usize>, DeviceError>,
    ) -> Result<GpuList, DeviceError> {
        let mut gpus = Vec::new();
        for gpu in &self.gpus {
            let ids = match gpu {
                Gpu::Index(VOID) => one(VOID),
                Gpu::Index(index) => one(check(*index)?),
                Gpu::Uuid(uuid) => one(find(uuid)?),
                Gpu::All => all()?,
            };
            check_len(ids.len().saturating_add(gpus.len()))?;
            gpus.extend(ids.map(Gpu::Index));
        }
        Ok(GpuList { gpus })
    }

    /// Makes a list of one id.
    pub(super) fn one(id: usize) -> GpuList {
        GpuList { gpus: vec![Gpu::Index(id)] }
    }

    /// Returns the ids to give to this number of workers.
    fn ids(&self, workers: usize) -> Result<Vec<usize>, DeviceError> {
        match workers {
            0 => return Err(DeviceError::NoWorkers {}),
            1..=MAX_PLACES => {}
            least => return Err(DeviceError::TooManyPlaces { least, most: MAX_PLACES }),
        }
        if self.gpus.iter().all(|gpu| *gpu == Gpu::Index(VOID)) {
            return Err(DeviceError::NoGpus { list: clip(&self.to_string()) });
        }
        let id = |gpu: &Gpu| match gpu {
            Gpu::Index(index) => Ok(*index),
            gpu => Err(DeviceError::NoIndex { uuid: gpu.to_string() }),
        };
        self.gpus.iter().map(id).collect()
    }
}

fn one(id: usize) -> Range<usize> {
    id..id.saturating_add(1)
}

/// Divides the ids into at most `parts` parts, none empty. The first parts are longer by one if the
/// division has a remainder.
fn even_parts(ids: &[usize], parts: usize) -> impl Iterator<Item = &[usize]> {
    let (each, longer) = (ids.len() / parts, ids.len() % parts);
    let (long, short) = ids.split_at((each + 1) * longer);
    long.chunks(each + 1).chain(short.chunks(each.max(1)))
}

/// Makes the place of a producer with these GPUs. Scipion puts a repeated id into the command line twice; a
/// place names what a producer owns, and a text with a repeated device could not be read back.
fn place(ids: &[usize]) -> Result<Place, DeviceError> {
    let mut seen = HashSet::new();
    let devices = ids.iter().filter(|id| seen.insert(**id)).map(|id| Device::Cuda(*id));
    Place::new(devices.collect())
}

/// Writes the [text](GpuList#text); with `{:#}` without ranges, as `CUDA_VISIBLE_DEVICES` has it.
impl fmt::Display for GpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranges = !f.alternate();
        let joins = |a: &Gpu, b: &Gpu| ranges && a.precedes(b);
        for (n, run) in self.gpus.chunk_by(joins).enumerate() {
            let comma = if n == 0 { "" } else { "," };
            match run {
                [first, .., last] => write!(f, "{comma}{first}-{last}")?,
                _ => write!(f, "{comma}{}", run[0])?,
            }
        }
        Ok(())
    }
}

impl fmt::Debug for GpuList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "GpuList({self})")
    }
}

/// Reads the [text](GpuList#text) of a list.
///
/// # Errors
///
/// [`DeviceError`]; its text quotes what cannot be read and says what can.
impl FromStr for GpuList {
    type Err = DeviceError;

    fn from_str(text: &str) -> Result<Self, DeviceError> {
        parse(text)
    }
}

fn parse(text: &str) -> Result<GpuList, DeviceError> {
    let mut gpus = Vec::new();
    let parts = text.split(|c: char| c == ',' || c.is_whitespace());
    for part in parts.filter(|part| !part.is_empty()) {
        add(&mut gpus, part)?;
    }
    Ok(GpuList { gpus })
}

/// Reads one part, after checking its number of entries.
fn add(gpus: &mut Vec<Gpu>, part: &str) -> Result<(), DeviceError> {
    if part == ALL || Uuid::is_meant(part) {
        check_len(gpus.len().saturating_add(1))?;
        let uuid = || Uuid::parse(part).map(Gpu::Uuid).ok_or_else(|| unknown(part));
        gpus.push(if part == ALL { Gpu::All } else { uuid()? });
        return Ok(());
    }
    let (first, last) = range(part)?;
    check_len((last - first).saturating_add(1).saturating_add(gpus.len()))?;
    gpus.extend((first..=last).map(Gpu::Index));
    Ok(())
}

/// Returns the first and the last id of a part, which may be the same.
fn range(part: &str) -> Result<(usize, usize), DeviceError> {
    let (first, last) = part.split_once('-').unwrap_or((part, part));
    match (id(part, first)?, id(part, last)?) {
        (first, last) if first <= last => Ok((first, last)),
        (first, last) => Err(DeviceError::BackwardGpus { text: clip(part), first, last }),
    }
}

/// Reads the digits of a part.
fn id(part: &str, digits: &str) -> Result<usize, DeviceError> {
    match number(digits) {
        TermNumber::Some(id) => Ok(id),
        TermNumber::TooLarge | TermNumber::None => Err(unknown(part)),
    }
}

fn unknown(part: &str) -> DeviceError {
    DeviceError::UnknownGpu { text: clip(part) }
}

fn check_len(least: usize) -> Result<(), DeviceError> {
    match least {
        0..=MAX_PLACES => Ok(()),
        _ => Err(DeviceError::TooManyGpus { least, most: MAX_PLACES }),
    }
}

impl Serialize for GpuList {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// Reads the text, or the value that YAML makes of the same characters.
impl<'de> Deserialize<'de> for GpuList {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        // Formats that do not describe themselves hold the text.
        let written = match deserializer.is_human_readable() {
            true => WrittenGpuList::deserialize(deserializer)?,
            false => WrittenGpuList::Text(String::deserialize(deserializer)?),
        };
        parse(&written.text()).map_err(de::Error::custom)
    }
}

#[derive(Deserialize)]
#[serde(
    untagged,
    expecting = "not a list of GPUs; write a text such as \"0 1\", an id such as 0, or a list of both"
)]
enum WrittenGpuList {
    Id(usize),
    Text(String),
    List(Vec<GpuListEntry>),
}

/// A value of a list. Not another list: `[[0, 1], [2]]` would look like an assignment to workers.
#[derive(Deserialize)]
#[serde(untagged)]
enum GpuListEntry {
    Id(usize),
    Text(String),
}

impl WrittenGpuList {
    fn text(self) -> String {
        match self {
            WrittenGpuList::Id(id) => id.to_string(),
            WrittenGpuList::Text(text) => text,
            WrittenGpuList::List(entries) => {
                entries.into_iter().map(GpuListEntry::text).collect::<Vec<_>>().join(",")
            }
        }
    }
}

impl GpuListEntry {
    fn text(self) -> String {
        match self {
            GpuListEntry::Id(id) => id.to_string(),
            GpuListEntry::Text(text) => text,
        }
    }
}

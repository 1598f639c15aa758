//! What `CUDA_VISIBLE_DEVICES` leaves to be seen.

use std::collections::HashSet;
use std::ops::Range;

use super::DeviceError;
use super::error_text::clip;
use super::gpu::{Gpu, Uuid};

/// The GPUs that CUDA shows, in its order, as far as the variable tells.
pub(super) struct Visible<'a> {
    /// The variable's value; `None` where it is not set, which hides nothing.
    variable: Option<&'a str>,
    /// What the variable lists. CUDA's index of a GPU is its position here.
    gpus: Vec<Gpu>,
}

impl<'a> Visible<'a> {
    /// Reads the variable as CUDA does. The first entry that is neither an index nor a UUID ends the list
    /// (`-1`, `NoDevFiles`). A repeated entry hides all GPUs.
    ///
    /// Only CUDA knows whether an entry exists, which would end the list too. What is read here may
    /// hence be too long, never too short, and a runner that is built checks its devices again.
    pub(super) fn new(variable: Option<&'a str>) -> Self {
        let gpus: Vec<Gpu> = variable.map_or(Vec::new(), |text| {
            text.split(',').map_while(|entry| entry_of(entry.trim())).collect()
        });
        let mut seen = HashSet::new();
        let repeats = gpus.iter().any(|gpu| !seen.insert(gpu));
        Visible { variable, gpus: if repeats { Vec::new() } else { gpus } }
    }

    /// Checks an index. Without the variable only the machine knows how many there are.
    pub(super) fn check(&self, index: usize) -> Result<usize, DeviceError> {
        match self.variable {
            Some(variable) if index >= self.gpus.len() => Err(DeviceError::HiddenGpu {
                index,
                variable: clip(variable),
                visible: self.gpus.len(),
            }),
            _ => Ok(index),
        }
    }

    /// The ids of all GPUs. Without the variable only the machine knows them. CUDA's list ends at an index that the machine
    /// lacks, so `machine` is the number of its GPUs, if that is known.
    pub(super) fn all(&self, machine: Option<usize>) -> Result<Range<usize>, DeviceError> {
        let none = |reason| Err(DeviceError::NoneVisible { reason });
        let exists = |gpu: &&Gpu| match gpu {
            Gpu::Index(index) => machine.is_none_or(|gpus| *index < gpus),
            Gpu::Uuid(_) | Gpu::All => true,
        };
        match (self.variable, self.gpus.iter().take_while(exists).count(), machine) {
            (Some(variable), 0, _) => {
                none(format!("CUDA_VISIBLE_DEVICES is {:?} and shows none", clip(variable)))
            }
            (Some(_), gpus, _) | (None, _, Some(gpus @ 1..)) => Ok(0..gpus),
            (None, _, Some(0)) => none("NVIDIA's driver reports none".to_owned()),
            (None, _, None) => none("CUDA_VISIBLE_DEVICES is not set".to_owned()),
        }
    }

    /// What the variable has for an index.
    pub(super) fn entry(&self, index: usize) -> Result<Gpu, DeviceError> {
        self.check(index)?;
        Ok(self.gpus.get(index).cloned().unwrap_or(Gpu::Index(index)))
    }

    pub(super) fn is_set(&self) -> bool {
        self.variable.is_some()
    }

    /// The index of the GPU that has this one where all are visible.
    pub(super) fn index_of(&self, on_machine: usize) -> Option<usize> {
        match self.variable {
            Some(_) => self.gpus.iter().position(|gpu| *gpu == Gpu::Index(on_machine)),
            None => Some(on_machine),
        }
    }

    /// That the variable does not name a UUID.
    pub(super) fn unknown(&self, uuid: &Uuid) -> DeviceError {
        DeviceError::UnknownUuid { uuid: uuid.to_string(), variable: self.variable.map(clip) }
    }

    /// The index of a UUID.
    pub(super) fn find(&self, uuid: &Uuid) -> Result<usize, DeviceError> {
        if let Some(index) = self.positions(|seen| seen.is(uuid)).next() {
            return Ok(index);
        }
        let mut positions = self.positions(|seen| seen.may_be(uuid));
        match (positions.next(), positions.next()) {
            (Some(index), None) => Ok(index),
            (None, _) => Err(self.unknown(uuid)),
            (Some(first), Some(second)) => {
                Err(DeviceError::AmbiguousUuid { uuid: uuid.to_string(), first, second })
            }
        }
    }

    fn positions(&self, wanted: impl Fn(&Uuid) -> bool) -> impl Iterator<Item = usize> {
        let is_wanted = move |gpu: &Gpu| matches!(gpu, Gpu::Uuid(uuid) if wanted(uuid));
        self.gpus.iter().enumerate().filter_map(move |(n, gpu)| is_wanted(gpu).then_some(n))
    }
}

/// One entry of the variable. An index is read as by `strtol`: after white space and a sign come digits, and what
/// follows them is ignored. A negative number is no index, but `-0` is 0.
fn entry_of(text: &str) -> Option<Gpu> {
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let digits = unsigned.len() - unsigned.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let is_fit = |index: &usize| *index == 0 || !text.starts_with('-');
    let index = || unsigned[..digits].parse().ok().filter(is_fit).map(Gpu::Index);
    Uuid::parse(text).map(Gpu::Uuid).or_else(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(text: &str) -> Vec<String> {
        Visible::new(Some(text)).gpus.into_iter().map(|gpu| gpu.to_string()).collect()
    }

    #[test]
    fn indices_are_read_as_cuda_reads_them() {
        assert_eq!(indices("+1,2"), ["1", "2"]);
        assert_eq!(indices(" +1 ,\t2,+03"), ["1", "2", "3"]);
        assert_eq!(indices("+0,-0"), [""; 0], "a repeated entry hides all");
        assert_eq!(indices("-0,1"), ["0", "1"]);
        assert_eq!(indices("1x,+2 3"), ["1", "2"]);
        for none in ["++1", "+", "-1", "+ 1", "- 1", "+-1", "x1", "+GPU-8932f937", ""] {
            assert_eq!(indices(&format!("{none},2")), [""; 0], "{none:?}");
            assert_eq!(indices(&format!("0,{none},2")), ["0"], "{none:?}");
        }
    }
}

//! One entry of a list of GPUs: an index, a UUID, the name that the driver gives it, or all of them.

use std::fmt;

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Gpu {
    Index(usize),
    Uuid(Uuid),
    /// Every visible GPU, until their ids are found.
    All,
}

impl Gpu {
    pub(super) fn precedes(&self, other: &Gpu) -> bool {
        match (self, other) {
            (Gpu::Index(a), Gpu::Index(b)) => a.checked_add(1) == Some(*b),
            _ => false,
        }
    }
}

impl fmt::Display for Gpu {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Gpu::Index(index) => write!(f, "{index}"),
            Gpu::Uuid(uuid) => write!(f, "{uuid}"),
            Gpu::All => f.write_str(ALL),
        }
    }
}

/// The text that stands for every visible GPU.
pub(super) const ALL: &str = "all";

/// How many characters a UUID has after its prefix.
const LONGEST: usize = 36;

/// A GPU's name as nvidia-smi shows it, possibly shortened: `GPU-8932f937`, `MIG-<uuid>`, or the older
/// `MIG-GPU-<uuid>/<GPU instance>/<compute instance>`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Uuid(String);

impl Uuid {
    /// Whether a text begins as one.
    pub(super) fn is_meant(text: &str) -> bool {
        text.starts_with("GPU-") || text.starts_with("MIG-")
    }

    pub(super) fn parse(text: &str) -> Option<Uuid> {
        let valid = match text.strip_prefix("MIG-") {
            Some(rest) => is_uuid(rest) || is_instance(rest),
            None => text.strip_prefix("GPU-").is_some_and(is_uuid),
        };
        valid.then(|| Uuid(text.to_owned()))
    }

    /// Whether both are the same text, but for the case.
    pub(super) fn is(&self, other: &Uuid) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }

    /// Whether one is the other, shortened, as CUDA allows it. The numbers of an instance cannot be:
    /// `/1/1` is another than `/1/12`.
    pub(super) fn may_be(&self, other: &Uuid) -> bool {
        let end = self.0.len().min(other.0.len());
        self.is_plain() && other.is_plain() && self.0[..end].eq_ignore_ascii_case(&other.0[..end])
    }

    /// Returns whether the UUID is complete, not shortened.
    pub(super) fn is_full(&self) -> bool {
        let gpu = self.0.split('/').next().expect("a split has a first part");
        let digits = gpu.trim_start_matches("MIG-").trim_start_matches("GPU-");
        digits.len() == LONGEST
    }

    /// Whether it is that of a part of a GPU.
    pub(super) fn is_mig(&self) -> bool {
        self.0.starts_with("MIG-")
    }

    /// The one way to write it, for names of files.
    pub(super) fn canonical(&self) -> Uuid {
        let lower = self.0.to_ascii_lowercase();
        // No digit of a UUID is in these words.
        Uuid(lower.replace("gpu-", "GPU-").replace("mig-", "MIG-"))
    }

    fn is_plain(&self) -> bool {
        !self.0.contains('/')
    }
}

impl fmt::Display for Uuid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

fn is_uuid(text: &str) -> bool {
    text.len() <= LONGEST
        && text.starts_with(|c: char| c.is_ascii_hexdigit())
        && text.bytes().all(|byte| byte.is_ascii_hexdigit() || byte == b'-')
}

fn is_instance(text: &str) -> bool {
    let is_number = |part: &str| {
        (1..=LONGEST).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
    };
    match text.split('/').collect::<Vec<_>>().as_slice() {
        [gpu, instance, compute] => {
            gpu.strip_prefix("GPU-").is_some_and(is_uuid)
                && is_number(instance)
                && is_number(compute)
        }
        _ => false,
    }
}

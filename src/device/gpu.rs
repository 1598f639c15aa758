//! One GPU of a list: an index or a UUID.

use std::fmt;

use super::uuid::Uuid;

/// One entry of a list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Gpu {
    Index(usize),
    Uuid(Uuid),
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
        }
    }
}

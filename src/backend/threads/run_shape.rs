//! What a run is made with.

use crate::base::Order;
use crate::batch::{Batching, Ceiling};

/// What a run is like, whatever its items.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) order: Order,
    pub(crate) producers: usize,
    /// At the beginning.
    pub(crate) window: usize,
    pub(crate) batching: Option<Batching>,
}

/// What earlier runs have left behind.
#[derive(Debug)]
pub(crate) struct CarriedOver {
    /// What running out of memory has taught about each producer's device.
    pub(crate) learned: Vec<Ceiling>,
    /// The producers that take no part in this run.
    pub(crate) lost: Vec<usize>,
}

impl CarriedOver {
    /// Of producers without an earlier run.
    #[cfg(test)]
    pub(crate) fn nothing(producers: usize) -> Self {
        CarriedOver { learned: vec![Ceiling::new(); producers], lost: vec![] }
    }
}

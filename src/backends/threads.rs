//! Producers whose hooks run on their own threads.

pub(crate) mod item_observer;
pub(crate) mod producer;
pub(crate) mod work;

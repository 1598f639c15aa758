//! The order in which results reach the consumer.

/// The order in which the consumer sees the results of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "lowercase"))]
pub enum Order {
    /// The order of the input: 0, 1, 2, ...
    #[default]
    Input,
    /// The order in which results are finished. Results of different producers that are handed over
    /// together, since the consumer was busy, may swap.
    Completion,
}

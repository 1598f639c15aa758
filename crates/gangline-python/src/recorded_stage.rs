//! What records say of a stage.

/// A stage, as records have it.
pub(crate) struct RecordedStage {
    /// What the texts of errors call it. `None` in a pool, which has no other.
    pub(crate) name: Option<String>,
    /// The number of its first worker among those of all stages.
    pub(crate) first_worker: usize,
}

//! How far the items of runs that are over were removed.

/// The removal of the items of a run that is over: of all lanes that leave it, the first asks for that. Each field is a
/// publication, up to which that was done.
#[derive(Default)]
pub(super) struct Purge {
    pub(super) asked: u64,
    /// The broker has answered, or has not in time: workers may be told to drain.
    pub(super) over: u64,
}

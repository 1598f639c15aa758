//! Tells the process that made a value from its forked children.

/// The process in which a value was made. A forked child has a copy of the value, but none of its threads, and shares
/// its files with the parent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct HomeProcess(u32);

/// The error of a value that is used in a forked child of the process that made it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct UsedInFork {
    /// The process in which it was made.
    pub(crate) home: u32,
    pub(crate) here: u32,
}

impl HomeProcess {
    pub(crate) fn here() -> Self {
        HomeProcess(std::process::id())
    }

    pub(crate) fn is_here(self) -> bool {
        self == HomeProcess::here()
    }

    /// Fails in any process but the one that made the value.
    pub(crate) fn check(self) -> Result<(), UsedInFork> {
        let HomeProcess(here) = HomeProcess::here();
        if self.0 == here { Ok(()) } else { Err(UsedInFork { home: self.0, here }) }
    }
}

//! A full fence with its cost on one side only.
//!
//! A publisher writes work and then reads whether a thread sleeps; a sleeper announces its sleep and then
//! looks for work. Both need a full fence between the two steps, or each may miss the other's write. Work is
//! published for every item, and sleep is rare. So if the operating system can make all threads of the
//! process pass a fence (`membarrier(2)` on Linux, since 4.14), the sleeper requests it. The publisher then
//! needs only a compiler fence. Elsewhere both sides execute a fence.

use super::atomic::{Ordering, fence};

/// How the two sides are fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// The heavy side makes every thread pass a fence.
    Asymmetric,
    /// Each side executes a fence of its own.
    Symmetric,
    /// The heavy side always fails, as that of `Asymmetric` may.
    #[cfg(all(test, not(shuttle)))]
    Broken,
}

/// The heavy side failed: the caller must not rely on being woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfenced;

impl Barrier {
    /// Selects the cheapest kind that works on this system.
    pub(crate) fn new() -> Self {
        if system::is_registered() { Barrier::Asymmetric } else { Barrier::Symmetric }
    }

    /// Registers the process with the operating system, which is slow the first time.
    pub(crate) fn prepare() {
        system::is_registered();
    }

    /// The publisher's side.
    #[inline]
    pub(crate) fn light(self) {
        match self {
            Barrier::Symmetric => fence(Ordering::SeqCst),
            _ => std::sync::atomic::compiler_fence(Ordering::SeqCst),
        }
    }

    /// The sleeper's side.
    ///
    /// # Errors
    ///
    /// If the operating system refuses a call that it allowed before. A process can drop the right to the
    /// call.
    pub(crate) fn heavy(self) -> Result<(), Unfenced> {
        match self {
            Barrier::Asymmetric => system::fence_all_threads(),
            Barrier::Symmetric => {
                fence(Ordering::SeqCst);
                Ok(())
            }
            #[cfg(all(test, not(shuttle)))]
            Barrier::Broken => Err(Unfenced),
        }
    }
}

#[cfg(all(target_os = "linux", not(shuttle)))]
mod system {
    use std::sync::OnceLock;

    use rustix::thread::{MembarrierCommand, membarrier};

    use crate::concurrency::barrier::Unfenced;

    pub(super) fn is_registered() -> bool {
        static REGISTERED: OnceLock<bool> = OnceLock::new();
        *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
    }

    pub(super) fn fence_all_threads() -> Result<(), Unfenced> {
        membarrier(MembarrierCommand::PrivateExpedited).map_err(|_| Unfenced)
    }
}

#[cfg(any(not(target_os = "linux"), shuttle))]
mod system {
    use crate::concurrency::barrier::Unfenced;

    pub(super) fn is_registered() -> bool {
        false
    }

    pub(super) fn fence_all_threads() -> Result<(), Unfenced> {
        Err(Unfenced)
    }
}

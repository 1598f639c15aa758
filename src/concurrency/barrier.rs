//! A full fence of which one side costs nothing.
//!
//! Who publishes work and then looks whether anybody sleeps needs a full fence between the two, and
//! so does who says that he sleeps and then looks for work; else both may look before the other's
//! word has arrived. Work is published for every item, sleep is rare. So where the operating system
//! can make all threads of the process pass a fence (`membarrier(2)` on Linux, since 4.14), the sleeper
//! has it do that, and the publisher only has to keep the compiler from swapping its two steps.
//! Elsewhere both sides have a fence.

use super::atomic::{Ordering, fence};

/// How the two sides are fenced.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Barrier {
    /// The heavy side makes every thread pass a fence.
    Asymmetric,
    /// Each side has its own.
    Symmetric,
    /// As `Asymmetric`, but every heavy side fails.
    #[cfg(all(test, not(shuttle)))]
    Broken,
}

/// The heavy side could not be had after all: the caller may not rely on being woken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unfenced;

impl Barrier {
    /// The cheapest that works here.
    pub(crate) fn new() -> Self {
        match system::is_registered() {
            true => Barrier::Asymmetric,
            false => Barrier::Symmetric,
        }
    }

    /// Has the operating system make ready for it, which takes it a while the first time.
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
    /// When the operating system refuses what it allowed before, as it may in a process that has
    /// given up the right to the call meanwhile.
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

//! Values that only the thread with `&mut` uses.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// A value that is used through `&mut`. So what holds it is `Sync`, although the value may be only `Send`.
#[derive(Debug, Default)]
pub(crate) struct Exclusive<T>(Mutex<T>);

impl<T> Exclusive<T> {
    pub(crate) fn new(value: T) -> Self {
        Exclusive(Mutex::new(value))
    }

    pub(crate) fn get_mut(&mut self) -> &mut T {
        self.0.get_mut().unwrap_or_else(PoisonError::into_inner)
    }

    /// Locks the value for a look at it, such as that of a debugger.
    pub(crate) fn look(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The laws that a case broke.

use std::fmt::Debug;
use std::sync::{Mutex, PoisonError};

/// Collects what broke in a case, from any thread.
#[derive(Default)]
pub(crate) struct Laws {
    broken: Mutex<Vec<Broken>>,
}

/// A law that did not hold.
pub(crate) struct Broken {
    pub(crate) law: &'static str,
    pub(crate) detail: String,
}

impl Laws {
    /// Notes that `law` is broken unless `holds`.
    pub(crate) fn check(&self, law: &'static str, holds: bool, detail: impl FnOnce() -> String) {
        if !holds {
            self.lock().push(Broken { law, detail: detail() });
        }
    }

    /// Notes that `law` is broken unless the two are equal.
    pub(crate) fn equal<T: PartialEq + Debug>(&self, law: &'static str, seen: &T, expected: &T) {
        self.check(law, seen == expected, || format!("{seen:?}, expected {expected:?}"));
    }

    pub(crate) fn into_broken(self) -> Vec<Broken> {
        self.broken.into_inner().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Broken>> {
        self.broken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! Calls user code and turns its errors and panics into values.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::base::panic::message;
use crate::error::{BoxError, Error, Hook, Result, Site};

/// Calls a hook. The error is boxed because this result is moved for every item.
///
/// `AssertUnwindSafe` holds: a panic may leave the hook's state half changed, but that state is dropped. The
/// runner is shared between threads by the user anyway.
pub(crate) fn call<T>(
    hook: Hook,
    site: impl FnOnce() -> Site,
    f: impl FnOnce() -> Result<T>,
) -> Result<T, Box<Error>> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(source)) => Err(failed(hook, site(), source)),
        Err(payload) => Err(panicked(hook, site(), payload)),
    }
}

#[cold]
fn failed(hook: Hook, site: Site, source: BoxError) -> Box<Error> {
    Box::new(Error::HookFailed { hook, site: Box::new(site), source })
}

#[cold]
fn panicked(hook: Hook, site: Site, payload: Box<dyn Any + Send>) -> Box<Error> {
    Box::new(Error::HookPanicked { hook, site: Box::new(site), source: message(payload) })
}

//! Calls of user code, whose errors and panics become values.

use std::any::Any;
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::error::{BoxError, Error, Hook, PanicMessage, Result, Site};

/// Calls a hook. The error is boxed: this is done for every item, and what comes back is moved.
///
/// `AssertUnwindSafe`: what a panic may leave half changed is the hook's own state, which is
/// dropped and never seen again, and the runner, which the user shares between threads anyway.
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

/// Calls user code that is no hook.
pub(crate) fn catch<T>(f: impl FnOnce() -> T) -> Result<T, PanicMessage> {
    catch_unwind(AssertUnwindSafe(f)).map_err(message)
}

/// As [`catch`], where user code and ours take turns: `theirs` says whose turn it is. A panic of ours
/// goes on.
pub(crate) fn catch_theirs<T>(
    theirs: &Cell<bool>,
    f: impl FnOnce() -> T,
) -> Result<T, PanicMessage> {
    match catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Ok(value),
        Err(payload) if theirs.get() => Err(message(payload)),
        Err(payload) => resume_unwind(payload),
    }
}

/// Drops a value of the user's. What its destructor panics with concerns nobody any more: the run
/// that the value belonged to has given up on it.
pub(crate) fn drop_quietly<T>(value: T) {
    if let Err(message) = catch(|| drop(value)) {
        tracing::warn!(%message, "a value that was no longer wanted panicked when dropped");
    }
}

/// The text of a panic. The payload is dropped here, and what that panics with is leaked: the drop
/// of a second payload could panic again, without end.
fn message(payload: Box<dyn Any + Send>) -> PanicMessage {
    let text = if let Some(text) = payload.downcast_ref::<&'static str>() {
        (*text).to_owned()
    } else if let Some(text) = payload.downcast_ref::<String>() {
        text.clone()
    } else {
        "a panic with a payload that is not text".to_owned()
    };
    if let Err(second) = catch_unwind(AssertUnwindSafe(|| drop(payload))) {
        std::mem::forget(second);
    }
    PanicMessage(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct PanicsWhenDropped;
    impl Drop for PanicsWhenDropped {
        fn drop(&mut self) {
            std::panic::panic_any(PanicsWhenDropped);
        }
    }

    #[test]
    fn texts_are_kept() {
        assert_eq!(catch(|| panic!("plain")), Err::<(), _>(PanicMessage("plain".into())));
        let number = 7;
        assert_eq!(catch(|| panic!("nr {number}")), Err::<(), _>(PanicMessage("nr 7".into())));
    }

    #[test]
    fn a_payload_that_panics_when_dropped_is_contained() {
        let caught = catch(|| std::panic::panic_any(PanicsWhenDropped));
        assert_eq!(
            caught,
            Err::<(), _>(PanicMessage("a panic with a payload that is not text".into()))
        );
        drop_quietly(PanicsWhenDropped);
    }
}

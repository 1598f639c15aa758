//! Panics of user code, caught and kept as text.

use std::any::Any;
use std::cell::Cell;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use super::debug_with_causes;

/// The text of a caught panic. Of a text of more than 8 KiB, the beginning is kept, and how much is missing.
#[derive(Clone, PartialEq, Eq)]
pub struct PanicMessage(String);

impl PanicMessage {
    pub(crate) fn new(text: String) -> Self {
        PanicMessage(gangline_report::bounded(text))
    }
}

impl fmt::Display for PanicMessage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

debug_with_causes!(PanicMessage);

impl std::error::Error for PanicMessage {}

/// Calls user code that is no hook.
pub fn catch<T>(f: impl FnOnce() -> T) -> Result<T, PanicMessage> {
    catch_unwind(AssertUnwindSafe(f)).map_err(message)
}

/// Calls code in which user code and ours take turns, and catches panics of the former: `theirs` is true while user
/// code runs. A panic of ours goes on.
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

/// Drops a value of the user's. A panic of its destructor is logged and goes no further: the run that the
/// value belonged to has given up on it.
pub fn drop_quietly<T>(value: T) {
    if let Err(message) = catch(|| drop(value)) {
        tracing::warn!(%message, "a value that was no longer wanted panicked when dropped");
    }
}

/// The text of a panic. The payload is dropped here, and what that panics with is leaked: the drop
/// of a second payload could panic again, without end.
pub(crate) fn message(payload: Box<dyn Any + Send>) -> PanicMessage {
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
    PanicMessage::new(text)
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
    fn long_texts_are_cut() {
        for text in ["a".repeat(100_000), "é".repeat(100_000), "\u{1F980}".repeat(10_000)] {
            let PanicMessage(kept) = catch(|| -> () { panic!("{text}") }).unwrap_err();
            assert!(kept.len() <= 8 * 1_024 && kept.ends_with(" more bytes)"), "{}", kept.len());
        }
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

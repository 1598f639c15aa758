//! Shows an error with its causes, as a `main` that returns it does.

use std::error::Error;
use std::fmt;

use super::plain::PlainLines;

/// The text of an error, with its causes.
pub struct WithCauses<'a>(pub &'a dyn Error);

impl fmt::Display for WithCauses<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_with_causes(f, self.0)
    }
}

/// Writes an error and its causes.
pub fn write_with_causes(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    write!(f, "{}", PlainLines(&error.to_string()))?;
    write_causes(f, error)
}

/// Writes the causes of an error behind its own text.
pub fn write_causes(f: &mut fmt::Formatter<'_>, error: &dyn Error) -> fmt::Result {
    let mut said = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let text = error.to_string();
        // Many errors repeat their cause in their own text.
        if !said.ends_with(&text) {
            write!(f, ": {}", PlainLines(&text))?;
        }
        said = text;
        cause = error.source();
    }
    Ok(())
}

/// Implements `Debug` of an error as its text and those of its causes, which is what a `main` that returns
/// it prints.
#[doc(hidden)]
#[macro_export]
macro_rules! debug_with_causes {
    ($error:ty) => {
        impl std::fmt::Debug for $error {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                $crate::causes::write_with_causes(f, self)
            }
        }
    };
}

pub use debug_with_causes;

//! Configurations from outside, by behaviour: one module for each part.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]

mod dots;
mod env;
mod files;
mod formats;
mod frozen;
mod hostile;
mod laws;
mod values;

//! Pipelines with a journal: what a later run passes over, and which journals it refuses.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(unreachable_pub, reason = "`pub` says what the modules of this crate share")]

#[cfg(unix)]
mod full_disk;
#[path = "../it/hooks.rs"]
#[expect(dead_code, unused_macros, unused_imports, reason = "other tests need the rest")]
mod hooks;
#[path = "../it/journal_file.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod journal_file;
#[cfg(unix)]
mod kills;
mod laws;
mod outputs;
mod refused;
mod resumed;
mod rows;
#[path = "../it/support.rs"]
#[expect(dead_code, reason = "other tests need the rest")]
mod support;

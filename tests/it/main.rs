//! The library from outside, by behaviour: one module for each part.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails, also in its helpers")]
#![expect(dead_code, reason = "not every test needs all of the support")]
#![expect(unreachable_pub, reason = "nothing is exported from a test")]

mod cfg;
mod cfg_env;
mod cfg_files;
mod cfg_formats;
mod cfg_hostile;
mod cfg_laws;
mod devices;
mod support;

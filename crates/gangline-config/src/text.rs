//! Configurations as text: YAML, TOML and JSON, in files, in the environment and in assignments.

#[cfg(any(test, fuzzing))]
mod any_bytes;
mod entered;
mod env;
mod files;
mod format;
mod json;
mod load;
mod save;
mod schema;
mod toml;
mod yaml;

#[cfg(fuzzing)]
pub use self::any_bytes::read_any_bytes;

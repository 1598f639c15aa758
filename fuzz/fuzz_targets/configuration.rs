//! Any bytes are a configuration in YAML, TOML or JSON, assignments or variables, or none.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline_config::read_any_bytes(bytes));

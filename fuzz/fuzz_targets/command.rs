//! Any words are a command into which any input goes as an argument, or none.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline_cli::fill_any_command(bytes));

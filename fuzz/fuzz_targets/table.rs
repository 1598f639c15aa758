//! Any bytes are a table of inputs, or an error that names the file.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline_cli::read_any_table(bytes));

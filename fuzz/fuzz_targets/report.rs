//! Any bytes are a report that can be shown, or none.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline_report::read_any_bytes(bytes));

//! Any bytes are a report that can be shown, or none.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline::fuzzing::read_any_report(bytes));

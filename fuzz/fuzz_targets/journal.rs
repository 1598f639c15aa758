//! Any bytes are a journal that holds together, or none.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline::fuzzing::read_any_journal(bytes));

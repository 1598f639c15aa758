//! Any bytes are a list of devices or of GPUs, or an error that quotes them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline::fuzzing::read_any_devices(bytes));

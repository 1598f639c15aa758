//! Any bytes are frames and messages of a child process, or an error that says why not.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline::fuzzing::read_any_frames(bytes));

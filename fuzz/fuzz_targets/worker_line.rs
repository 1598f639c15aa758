//! Any bytes are a message of a worker, or a violation of the protocol that quotes them.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline_cli::read_any_worker_line(bytes));

//! Any bytes are the values of a request, or a refusal that says why.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| gangline_cli::read_any_request(bytes));

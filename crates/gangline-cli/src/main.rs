//! Runs any program over many inputs, on CPUs and GPUs: `cargo install --path crates/gangline-cli`.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    gangline_cli::main()
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::print_stderr, reason = "the program has no other output here")]
fn main() -> ExitCode {
    eprintln!("gangline: this program runs on Linux only; the library runs on every platform");
    ExitCode::FAILURE
}

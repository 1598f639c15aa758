//! Runs any program over many inputs, on CPUs and GPUs: `cargo install --path crates/gangline-cli`.

use std::process::ExitCode;

#[cfg(target_os = "linux")]
fn main() -> ExitCode {
    gangline_cli::main()
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::print_stderr, reason = "it is all there is to say")]
fn main() -> ExitCode {
    eprintln!("gangline: the command line is there on Linux only; the library is everywhere");
    ExitCode::FAILURE
}

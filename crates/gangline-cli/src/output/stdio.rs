//! Whether standard input and output are open.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::CliError;
use crate::exit;

/// Both are set before `main`.
static STDIN_IS_CLOSED: AtomicBool = AtomicBool::new(false);
static STDOUT_IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks before the standard library opens `/dev/null` in the place of a closed descriptor, after which
/// nothing tells the two apart.
#[ctor::ctor]
fn look_at_streams() {
    let is_open = rustix::io::fcntl_getfd(rustix::stdio::stdin()).is_ok();
    STDIN_IS_CLOSED.store(!is_open, Ordering::Relaxed);
    let is_open = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_ok();
    STDOUT_IS_CLOSED.store(!is_open, Ordering::Relaxed);
}

/// Fails if standard input was closed when the program was started: it would look like one without inputs.
pub(crate) fn check_stdin() -> Result<(), CliError> {
    match STDIN_IS_CLOSED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(CliError::new(
            exit::INPUT,
            "standard input is closed, and inputs are read from it: for no inputs, write < /dev/null",
        )),
    }
}

/// Fails if standard output was closed when the program was started: all that is printed would be lost.
pub(crate) fn check_stdout() -> Result<(), CliError> {
    match STDOUT_IS_CLOSED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(CliError::new(
            exit::OUTPUT,
            "standard output is closed, and what is printed would be lost: to drop it, write > /dev/null",
        )),
    }
}

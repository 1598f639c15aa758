//! Whether standard output is open.

use std::sync::atomic::{AtomicBool, Ordering};

use crate::error::CliError;
use crate::exit;

/// Set before `main`.
static IS_CLOSED: AtomicBool = AtomicBool::new(false);

/// Looks before the standard library opens `/dev/null` in the place of a closed descriptor, after which
/// nothing tells the two apart.
#[ctor::ctor]
fn look_at_stdout() {
    let is_open = rustix::io::fcntl_getfd(rustix::stdio::stdout()).is_ok();
    IS_CLOSED.store(!is_open, Ordering::Relaxed);
}

/// Fails if standard output was closed when the program was started: all that is printed would be lost.
pub(crate) fn check_stdout() -> Result<(), CliError> {
    match IS_CLOSED.load(Ordering::Relaxed) {
        false => Ok(()),
        true => Err(CliError::new(
            exit::OUTPUT,
            "standard output is closed, and what is printed would be lost: to drop it, write > /dev/null",
        )),
    }
}

//! The name of this machine.

use std::sync::OnceLock;

/// As `uname -n` prints it.
pub(crate) fn host_name() -> &'static str {
    static NAME: OnceLock<String> = OnceLock::new();
    NAME.get_or_init(|| rustix::system::uname().nodename().to_string_lossy().into_owned())
}

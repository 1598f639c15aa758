//! The process of a worker: its environment, its start and its end.

use std::env;
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::process::{self, Command};

use gangline::backend::variables_of;
use gangline::error::DeviceError;
use gangline::process::Processes;
use gangline::{BoxError, Devices};
use gangline_scheduler::causes::WithCauses;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};

use super::address::BrokerAddress;
use super::hosting::HookPlace;
use super::nats::{Access, NAMESPACE, Security};
use crate::ClusterError;

/// The address of the broker: makes any program that calls `worker_main` a worker.
const BROKER: &str = "GANGLINE_NATS";
/// Says in the re-executed process that it is the worker: its process id and the address. Programs that it starts
/// have other ids.
const MARKER: &str = "GANGLINE_NATS_WORKER";
/// The process id of `gangline worker`, with which the worker ends.
const SUPERVISOR: &str = "GANGLINE_SUPERVISOR";
const DEVICES: &str = "GANGLINE_DEVICES";
/// Set for a runner that starts programs and opens no device itself.
const DEVICE_NAMES: &str = "GANGLINE_DEVICE_NAMES";
const CREDENTIALS: &str = "GANGLINE_NATS_CREDENTIALS";
const CERTIFICATES: &str = "GANGLINE_NATS_ROOT_CERTIFICATES";
const SPACE: &str = "GANGLINE_NATS_NAMESPACE";
const INSECURE: &str = "GANGLINE_NATS_INSECURE";
const PROCESSES: &str = "GANGLINE_PROCESSES";

/// The address of the broker, if this process is to become a worker.
pub(super) fn broker() -> Option<BrokerAddress> {
    set(BROKER).map(BrokerAddress::new)
}

/// The address of the broker, if this process is a worker.
pub(super) fn own_marker() -> Option<BrokerAddress> {
    let marker = env::var(MARKER).ok()?;
    let (pid, url) = marker.split_once(' ')?;
    (pid.parse() == Ok(process::id())).then(|| BrokerAddress::new(url))
}

/// Becomes the worker. The variable that has made it one is removed, so that programs that it starts are ordinary.
pub(super) fn execute_again(address: &BrokerAddress) -> ! {
    let mut arguments = env::args_os();
    let mut command = Command::new("/proc/self/exe");
    if let Some(name) = arguments.next() {
        command.arg0(name);
    }
    command.envs(devices().map_or(vec![], |devices| variables_of(&devices)));
    let marker = format!("{} {}", process::id(), address.secret());
    command.args(arguments).env_remove(BROKER).env(MARKER, marker);
    give_up(&format!("this program cannot be executed again: {}", command.exec()));
}

pub(super) fn devices() -> Result<Devices, DeviceError> {
    let devices: Result<Devices, _> =
        set(DEVICES).map_or_else(|| Ok(Devices::available()), |devices| devices.parse());
    match is_on(DEVICE_NAMES) {
        true => devices.map(Devices::names_only),
        false => devices,
    }
}

pub(super) fn access(address: &BrokerAddress) -> Access {
    Access {
        address: address.clone(),
        credentials: set(CREDENTIALS).map(Into::into),
        certificates: set(CERTIFICATES).map(Into::into),
        security: match is_on(INSECURE) {
            true => Security::Waived,
            false => Security::Required,
        },
    }
}

/// Where the hooks of this worker run; if that is in child processes, these are given.
pub(super) fn hook_place(processes: Processes) -> HookPlace {
    match is_on(PROCESSES) {
        true => HookPlace::Processes(Box::new(processes)),
        false => HookPlace::Threads,
    }
}

/// The variables that concern this worker, and not its children.
pub(crate) const OWN_VARIABLES: [&str; 3] = [BROKER, MARKER, PROCESSES];

pub(super) fn namespace() -> String {
    set(SPACE).unwrap_or_else(|| NAMESPACE.to_owned())
}

/// A descriptor that is readable when the supervisor of this worker has ended; `None` if it has none.
///
/// It need not be the parent: a script may be between them.
///
/// # Errors
///
/// If the supervisor has ended already.
pub(super) fn supervisor() -> Result<Option<OwnedFd>, BoxError> {
    let pid = set(SUPERVISOR).and_then(|pid| Pid::from_raw(pid.parse().ok()?));
    match pid.map(|pid| pidfd_open(pid, PidfdFlags::empty())) {
        Some(Err(Errno::SRCH)) => Err("its supervisor is gone".into()),
        // A kernel before Linux 5.3 cannot watch it.
        Some(Err(_)) | None => Ok(None),
        Some(Ok(descriptor)) => Ok(Some(descriptor)),
    }
}

/// The exit status of a worker that cannot serve. With a wrong setup, it need not be started again.
fn status_of(error: &BoxError) -> i32 {
    const OTHER: i32 = 1;
    // EX_CONFIG of sysexits.h.
    const SETUP: i32 = 78;
    let is_denied = |source: &BoxError| {
        use async_nats::ConnectErrorKind::{Authentication, AuthorizationViolation, ServerParse};
        let kind = source.downcast_ref::<async_nats::ConnectError>().map(|error| error.kind());
        // A file of credentials is read before the client connects.
        matches!(kind, Some(Authentication | AuthorizationViolation | ServerParse))
            || source.is::<std::io::Error>()
    };
    match error.downcast_ref::<ClusterError>() {
        Some(
            ClusterError::Name { .. }
            | ClusterError::Insecure { .. }
            | ClusterError::SmallMessages { .. }
            | ClusterError::Denied { .. },
        ) => SETUP,
        Some(ClusterError::Connect { source, .. }) if is_denied(source) => SETUP,
        _ if error.is::<DeviceError>() => SETUP,
        _ => OTHER,
    }
}

/// Ends this process. Nothing but this line could say why, since the program's `main` has not begun.
pub(super) fn give_up(reason: &str) -> ! {
    end_with(1, reason)
}

/// Ends this process, which cannot serve because of an error.
pub(super) fn end_because_of(error: &BoxError) -> ! {
    end_with(status_of(error), &WithCauses(&**error).to_string())
}

/// Ends this process with another exit status.
fn end_with(status: i32, reason: &str) -> ! {
    _ = writeln!(std::io::stderr(), "gangline worker: {reason}");
    process::exit(status)
}

fn is_on(name: &str) -> bool {
    matches!(set(name).as_deref(), Some("1" | "true"))
}

fn set(name: &str) -> Option<String> {
    env::var(name).ok().filter(|value| !value.is_empty())
}

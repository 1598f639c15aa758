//! How a fork server is started for the first worker, and prepares.

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::{MemfdFlags, memfd_create};

use super::child::{EventBell, timespec};
use super::fork_link::{ForkLink, ServerAnswer};
use super::fork_server::{ForkServer, ServerSlot};
use super::processes::Processes;
use super::waiting::Interest;
use crate::base::HumanDuration;

/// How much is shown of what the preparation has printed, in bytes.
const MOST_PRINTED: usize = 64 << 10;

/// What a start of a worker knows, and waits for.
pub(super) struct ServerWait<'a> {
    pub(super) options: &'a Processes,
    pub(super) producer: usize,
    pub(super) bell: &'a EventBell,
    pub(super) limit: Option<Duration>,
    pub(super) interest: &'a dyn Fn() -> Interest,
}

/// Messages of a preparation to the user.
#[derive(Default)]
struct Said {
    printed: Vec<u8>,
    /// Why workers are spawned.
    warning: Option<String>,
}

/// Why there is no fork server.
#[derive(Debug)]
pub(super) enum NoServer {
    /// Workers are started by their own program.
    GivenUp,
    /// Nothing waits for the worker any more.
    Unwanted,
    /// The preparation has failed.
    Failed(String),
}

/// Returns the prepared server, which ends with the last of its users. Starts it if there is none.
pub(super) fn join(server: &ForkServer, wait: &ServerWait<'_>) -> Result<Arc<ForkLink>, NoServer> {
    let mut said = Said::default();
    let joined = join_or_start(server, wait, &mut said);
    // Code of the user takes what is printed, and runs under no lock.
    show(&said.printed, wait.options, wait.producer);
    if let Some(reason) = said.warning {
        warn(wait.options, wait.producer, &reason);
    }
    joined
}

fn join_or_start(
    server: &ForkServer,
    wait: &ServerWait<'_>,
    said: &mut Said,
) -> Result<Arc<ForkLink>, NoServer> {
    // Other keepers wait here for the one that starts the server. If that gives up, they do too.
    let mut slot = server.slot.lock().expect("nothing panics under this lock");
    match &*slot {
        ServerSlot::GivenUp => return Err(NoServer::GivenUp),
        ServerSlot::Failed(reason) => return Err(NoServer::Failed(reason.clone())),
        ServerSlot::Running(link) => {
            if let Some(link) = link.upgrade() {
                return Ok(link);
            }
        }
        ServerSlot::None => {}
    }
    let prepared = prepare(server, wait, said);
    match &prepared {
        Ok(link) => *slot = ServerSlot::Running(Arc::downgrade(link)),
        Err(NoServer::Failed(reason)) => *slot = ServerSlot::Failed(reason.clone()),
        Err(NoServer::GivenUp) => *slot = ServerSlot::GivenUp,
        Err(NoServer::Unwanted) => *slot = ServerSlot::None,
    }
    prepared
}

/// Has all further workers started by their own program. The first call says why.
pub(super) fn give_up(
    server: &ForkServer,
    options: &Processes,
    producer: usize,
    error: &io::Error,
) {
    let mut slot = server.slot.lock().expect("nothing panics under this lock");
    if !matches!(*slot, ServerSlot::GivenUp) {
        *slot = ServerSlot::GivenUp;
        drop(slot);
        let reason = match has_ended(error) {
            true => "the fork server has ended".to_owned(),
            false => format!("the fork server does not fork ({error})"),
        };
        warn(options, producer, &reason);
    }
}

/// Starts the server, and waits until it is prepared.
fn prepare(
    server: &ForkServer,
    wait: &ServerWait<'_>,
    said: &mut Said,
) -> Result<Arc<ForkLink>, NoServer> {
    let prepared = start(server, wait.options).and_then(|(link, printed)| {
        let answer = await_prepared(&link, wait);
        said.printed = beginning_of(&printed);
        match answer {
            Ok(answer) => Ok((link, answer)),
            Err(error) if has_ended(&error) => Err(io::Error::other(link.end())),
            Err(error) => Err(error),
        }
    });
    let reason = match prepared {
        Ok((_, None)) => return Err(NoServer::Unwanted),
        Ok((link, Some(ServerAnswer::Done(_)))) => return Ok(Arc::new(link)),
        Ok((_, Some(ServerAnswer::Failed(reason)))) => return Err(NoServer::Failed(reason)),
        Ok((_, Some(ServerAnswer::Refused(reason)))) => reason,
        Err(error) => format!("the fork server could not prepare: {error}"),
    };
    said.warning = Some(reason);
    Err(NoServer::GivenUp)
}

fn start(server: &ForkServer, options: &Processes) -> io::Result<(ForkLink, File)> {
    let (socket, theirs) = UnixStream::pair()?;
    // Not a pipe: nothing reads it while the server prepares, and a full one would block it.
    let printed = File::from(memfd_create("gangline-printed", MemfdFlags::CLOEXEC)?);
    let mut command = Command::new(&server.program);
    command.args(&server.args);
    for (name, value) in &options.env {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .stdin(Stdio::from(OwnedFd::from(theirs)))
        .stdout(Stdio::from(printed.try_clone()?))
        .stderr(Stdio::from(printed.try_clone()?))
        // Ctrl-C reaches the coordinator only.
        .process_group(0);
    let link = ForkLink::new(socket, command.spawn()?)?;
    // If it has ended, the wait for the answer says how.
    _ = link.send(&server.preparation, &[]);
    Ok((link, printed))
}

/// Waits for the answer to the preparation. `None` if nothing waits for the worker any more.
fn await_prepared(link: &ForkLink, wait: &ServerWait<'_>) -> io::Result<Option<ServerAnswer>> {
    let end = wait.limit.map(|limit| (limit, Instant::now() + limit));
    loop {
        if !matches!((wait.interest)(), Interest::Wanted | Interest::Revoked) {
            return Ok(None);
        }
        let timeout = end.map(|(_, end)| timespec(end.saturating_duration_since(Instant::now())));
        let socket = link.socket();
        let mut fds = [PollFd::new(&*socket, PollFlags::IN), PollFd::new(wait.bell, PollFlags::IN)];
        // Interrupted: as if nothing were ready.
        let count = poll(&mut fds, timeout.as_ref());
        let (has_answer, has_rung) = (!fds[0].revents().is_empty(), !fds[1].revents().is_empty());
        drop(socket);
        if has_answer {
            return link.receive().map(Some);
        }
        if has_rung {
            wait.bell.silence();
        }
        if let (Ok(0), Some((limit, _))) = (count, end) {
            let reason = format!("it has taken longer than {:#}", HumanDuration(limit));
            return Err(io::Error::new(io::ErrorKind::TimedOut, reason));
        }
    }
}

/// Whether an error of the socket says that the server has ended.
fn has_ended(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset
    )
}

/// The first bytes of what the preparation has printed.
fn beginning_of(printed: &File) -> Vec<u8> {
    let mut bytes = vec![0; MOST_PRINTED];
    let length = printed.read_at(&mut bytes, 0).unwrap_or(0);
    bytes.truncate(length);
    bytes
}

/// Hands on what the preparation has printed.
fn show(printed: &[u8], options: &Processes, producer: usize) {
    for line in printed.split_inclusive(|byte| *byte == b'\n') {
        options.printed.take(producer, line);
    }
}

fn warn(options: &Processes, producer: usize, reason: &str) {
    options.printed.warn(producer, &format!("{reason}, so workers are spawned, not forked"));
}

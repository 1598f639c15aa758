//! The process of a child: started by this process, or forked by a server.

use std::collections::BTreeMap;
use std::env;
use std::ffi::OsString;
use std::io::{self, PipeWriter};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{self, Command, ExitStatus, Stdio};
use std::sync::Arc;

use rustix::process::{Pid, Signal};

use super::connection::VARIABLE;
use super::fork_link::ForkLink;
use super::message::{Hello, Nonce};
use super::processes::Processes;

/// The program of a child, and what it is told at its start.
pub(super) struct ChildStart<'a> {
    pub(super) options: &'a Processes,
    /// What forks it. `None` if it is started by its program.
    pub(super) server: Option<&'a Arc<ForkLink>>,
    pub(super) hello: &'a Hello,
    pub(super) cuda_visible: Option<&'a str>,
    /// The number of threads for rayon and candle, unless the user has set it.
    pub(super) threads: Option<(&'static str, String)>,
    pub(super) producer: usize,
}

/// A running process, or one that has ended and was not waited for.
#[derive(Debug)]
pub(super) enum ChildProcess {
    Spawned(process::Child),
    /// A child of the server.
    Forked {
        server: Arc<ForkLink>,
        pid: u32,
    },
}

impl ChildProcess {
    /// Starts a process with these ends of its socket and pipe.
    pub(super) fn start(
        start: &ChildStart<'_>,
        nonce: Nonce,
        socket: UnixStream,
        printed: PipeWriter,
    ) -> io::Result<Self> {
        match start.server {
            None => spawn(start, nonce, socket, printed).map(ChildProcess::Spawned),
            Some(server) => {
                // One that was deleted is left as it is.
                let directory = env::current_dir().map(PathBuf::into_os_string).unwrap_or_default();
                let environment: Vec<_> = environment(start, nonce).into_iter().collect();
                let descriptors = [socket.as_fd(), printed.as_fd()];
                let pid = server.fork(&directory, &environment, descriptors)?;
                Ok(ChildProcess::Forked { server: server.clone(), pid })
            }
        }
    }

    pub(super) fn id(&self) -> u32 {
        match self {
            ChildProcess::Spawned(process) => process.id(),
            ChildProcess::Forked { pid, .. } => *pid,
        }
    }

    pub(super) fn pid(&self) -> Pid {
        let raw = i32::try_from(self.id()).expect("a process id is positive");
        Pid::from_raw(raw).expect("a process id is not 0")
    }

    /// Kills it.
    pub(super) fn kill(&self) {
        // Fails only if it has gone.
        _ = rustix::process::kill_process(self.pid(), Signal::KILL);
    }

    /// Takes the status of a process that has ended. From then on its id may be another's.
    ///
    /// # Errors
    ///
    /// If it was a fork and its server has ended, its status is lost.
    pub(super) fn wait(&mut self) -> io::Result<ExitStatus> {
        match self {
            ChildProcess::Spawned(process) => process.wait(),
            ChildProcess::Forked { server, pid } => server.status(*pid),
        }
    }
}

fn spawn(
    start: &ChildStart<'_>,
    nonce: Nonce,
    socket: UnixStream,
    printed: PipeWriter,
) -> io::Result<process::Child> {
    let options = start.options;
    let mut command = Command::new(program(options));
    command.args(&options.args);
    if let Some(name) = env::args_os().next().filter(|_| options.program.is_none()) {
        command.arg0(name);
    }
    for (name, value) in changes(start, nonce) {
        match value {
            Some(value) => command.env(name, value),
            None => command.env_remove(name),
        };
    }
    command
        .stdin(Stdio::from(OwnedFd::from(socket)))
        .stdout(Stdio::from(printed.try_clone()?))
        .stderr(Stdio::from(printed))
        // A group of its own: Ctrl-C reaches the coordinator only, and a kill all that a hook has started.
        .process_group(0);
    // The command holds the other end of the pipe, which would never reach its end. It is dropped here.
    command.spawn()
}

/// How the environment of a worker differs from that of this process. `None` removes a variable.
fn changes(start: &ChildStart<'_>, nonce: Nonce) -> Vec<(OsString, Option<OsString>)> {
    let mut changes = vec![("GANGLINE_NATS".into(), None)];
    if let Some(cuda_visible) = start.cuda_visible {
        changes.push(("CUDA_VISIBLE_DEVICES".into(), Some(cuda_visible.into())));
    }
    if let Some((name, threads)) = &start.threads {
        changes.push((name.into(), Some(threads.into())));
    }
    changes.extend(start.options.env.iter().cloned());
    changes.push((VARIABLE.into(), Some(format!("{:x}", nonce.0).into())));
    changes
}

/// The whole environment of a worker: that of its server is older.
fn environment(start: &ChildStart<'_>, nonce: Nonce) -> BTreeMap<OsString, OsString> {
    let mut environment: BTreeMap<_, _> = env::vars_os().collect();
    for (name, value) in changes(start, nonce) {
        match value {
            Some(value) => environment.insert(name, value),
            None => environment.remove(&name),
        };
    }
    environment
}

/// The program that a worker runs. The link leads to the file of this process, even if another has taken its
/// place.
pub(super) fn program(options: &Processes) -> &Path {
    options.program.as_deref().unwrap_or(Path::new("/proc/self/exe"))
}

/// The program, as errors name it.
pub(super) fn shown_program(options: &Processes) -> PathBuf {
    let own = || env::current_exe().unwrap_or_else(|_| program(options).to_owned());
    options.program.clone().unwrap_or_else(own)
}

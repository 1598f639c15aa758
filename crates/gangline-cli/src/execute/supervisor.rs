//! The process that the user sees: it starts the process that does the work, and cleans up after it.

use std::env;
use std::ffi::OsString;
use std::io::{self, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGVTALRM,
};
use signal_hook::iterator::Signals;

use crate::error::naming;
use crate::execute::children::{kill_children, send};
use crate::execute::signals::{INTERRUPT, QUIT, STOP, TERMINATE, is_ignored};
use crate::exit;
use crate::output::stdio;

/// The source of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputSource {
    /// A user types them at a terminal.
    Typed,
    Other,
}

/// Runs this program again with the same arguments, and returns its exit status.
///
/// A process that is killed by `kill -9` cannot end its jobs. So there are two: if the working process dies,
/// its jobs become children of this one and are killed; if this one dies, the other notices and exits.
/// Recording each job's process number would not do: the parent may die between starting a process and
/// recording its number.
pub(crate) fn supervise(
    arguments: impl Iterator<Item = OsString>,
    inputs: InputSource,
) -> io::Result<u8> {
    adopt_orphans();
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGCHLD];
    // The end of a child is never meant to be ignored; but the setting may be inherited.
    let is_wanted = |signal: &i32| *signal == SIGCHLD || !is_ignored(*signal);
    let signals = Signals::new(wanted.into_iter().filter(is_wanted));
    let mut signals = signals.map_err(naming("socketpair, rt_sigaction"))?;
    // Under its own name, so that process lists show it. Without `/proc`, as it was called.
    let called = || env::args_os().next().unwrap_or_else(|| "gangline".into());
    let program = env::current_exe().map_or_else(|_| called(), PathBuf::into_os_string);
    let mut command = Command::new(program);
    command.arg("--supervisor").arg(getpid().as_raw_pid().to_string()).args(arguments);
    // In a group of its own, it survives a kill of the whole group and notices that this process is dead. But
    // only the foreground group may read from a terminal.
    if inputs == InputSource::Other {
        command.process_group(0);
    }
    let engine = command.spawn().map_err(naming("clone3, setpgid, execve"))?;
    let engine = Pid::from_child(&engine);
    let mut supervisor = Supervisor { engine, killing: Killing::default(), stop: StopProgress::No };
    loop {
        // If the engine has already ended, its signal is pending.
        let mut arrived: Vec<i32> = signals.wait().collect();
        loop {
            if let Some(status) = supervisor.obey(&arrived)? {
                return Ok(status);
            }
            if supervisor.stop != StopProgress::Due {
                break;
            }
            supervisor.stop = StopProgress::No;
            arrived = signals.pending().collect();
            match arrived.contains(&SIGCONT) {
                // It came while the jobs were being stopped.
                true => send(engine, Signal::CONT),
                false => send(getpid(), Signal::STOP),
            }
        }
    }
}

/// Makes this process the parent of processes that lose theirs, so that it can kill them.
pub(crate) fn adopt_orphans() {
    if let Err(error) = set_child_subreaper(Some(getpid())) {
        // If standard error is gone, no other way to report remains.
        let _ = writeln!(
            stdio::stderr(),
            "gangline: this system refuses prctl(PR_SET_CHILD_SUBREAPER): {error}; a process that loses its parent \
             may outlive the run"
        );
    }
}

/// What this process knows of the one that does the work.
struct Supervisor {
    engine: Pid,
    killing: Killing,
    stop: StopProgress,
}

/// How far a stop has come, as by Ctrl-Z. This process stops last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StopProgress {
    No,
    /// The engine stops its jobs, and then itself.
    Asked,
    /// The engine may stop after it was told to continue.
    Revoked,
    /// The engine has stopped.
    Due,
}

/// What became of the children of this process.
enum Reaped {
    Ended(WaitStatus),
    Stopped,
    Nothing,
}

impl Supervisor {
    /// Acts on signals that arrived together. Returns the exit status once the engine has ended.
    fn obey(&mut self, arrived: &[i32]) -> io::Result<Option<u8>> {
        let engine = self.engine;
        for signal in arrived {
            match *signal {
                SIGINT => {
                    self.killing.interrupt();
                    send(engine, INTERRUPT);
                }
                SIGTERM => send(engine, TERMINATE),
                SIGHUP => send(engine, Signal::HUP),
                SIGQUIT => {
                    self.killing.is_asked_for = true;
                    send(engine, QUIT);
                }
                // Their order is not known, and a run that goes on does no harm.
                SIGTSTP if arrived.contains(&SIGCONT) => {}
                SIGTSTP => {
                    self.stop = StopProgress::Asked;
                    send(engine, STOP);
                }
                SIGCONT => {
                    self.stop = match self.stop {
                        StopProgress::Asked | StopProgress::Revoked => StopProgress::Revoked,
                        StopProgress::No | StopProgress::Due => StopProgress::No,
                    };
                    send(engine, Signal::CONT);
                }
                _ => match reap(engine)? {
                    Reaped::Ended(status) => return Ok(Some(exit_of(status, self.killing))),
                    Reaped::Stopped => self.engine_stopped(),
                    Reaped::Nothing => {}
                },
            }
        }
        Ok(None)
    }

    fn engine_stopped(&mut self) {
        match self.stop {
            StopProgress::Asked => self.stop = StopProgress::Due,
            StopProgress::Revoked => {
                self.stop = StopProgress::No;
                send(self.engine, Signal::CONT);
            }
            // By another process.
            StopProgress::No | StopProgress::Due => {}
        }
    }
}

/// Whether all jobs are to be killed; the other process then waits briefly for jobs that are being started.
#[derive(Debug, Clone, Copy, Default)]
struct Killing {
    is_interrupted: bool,
    is_asked_for: bool,
}

impl Killing {
    fn interrupt(&mut self) {
        self.is_asked_for |= self.is_interrupted;
        self.is_interrupted = true;
    }
}

/// Reaps all children that have ended, and says what became of the engine.
fn reap(engine: Pid) -> io::Result<Reaped> {
    let mut reaped = Reaped::Nothing;
    loop {
        match wait(WaitOptions::NOHANG | WaitOptions::UNTRACED) {
            Ok(Some((pid, status))) if pid == engine && status.stopped() => {
                reaped = Reaped::Stopped;
            }
            Ok(Some((pid, status))) if pid == engine => return Ok(Reaped::Ended(status)),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(reaped),
            Err(Errno::INTR) => {}
            Err(error) => return Err(naming("wait4")(error)),
        }
    }
}

fn exit_of(status: WaitStatus, killing: Killing) -> u8 {
    let is_calm = |code| code != i32::from(exit::INTERNAL) && !killing.is_asked_for;
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) if is_calm(code) => code as u8,
        (code, signal) => {
            // Its jobs are children of this process by now.
            kill_children();
            match (code, signal) {
                (Some(code), _) => code as u8,
                // The signal came before it could listen.
                (None, Some(SIGUSR1)) => exit::INTERRUPTED,
                (None, Some(SIGVTALRM)) => exit::TERMINATED,
                (None, Some(SIGPROF)) => exit::QUIT,
                (None, signal) => 128 + signal.unwrap_or_default() as u8,
            }
        }
    }
}

//! The process that the user sees: it starts the process that does the work, and cleans up after it.

use std::env;
use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::Command;

use rustix::io::Errno;
use rustix::process::{
    Pid, Signal, WaitIdOptions, WaitOptions, WaitStatus, getpid, set_child_subreaper, wait, waitid,
};
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGVTALRM,
};
use signal_hook::iterator::Signals;

use crate::execute::children::{kill_children, send};
use crate::execute::signals::{INTERRUPT, QUIT, STOP, TERMINATE, is_ignored};
use crate::exit;

/// The source of inputs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Inputs {
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
    inputs: Inputs,
) -> io::Result<u8> {
    set_child_subreaper(Some(getpid()))?;
    let wanted = [SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGTSTP, SIGCONT, SIGCHLD];
    // The end of a child is never meant to be ignored; but the setting may be inherited.
    let is_wanted = |signal: &i32| *signal == SIGCHLD || !is_ignored(*signal);
    let mut signals = Signals::new(wanted.into_iter().filter(is_wanted))?;
    // Under its own name, so that process lists show it.
    let program = env::current_exe().unwrap_or_else(|_| "/proc/self/exe".into());
    let mut command = Command::new(program);
    command.arg("--supervisor").arg(getpid().as_raw_pid().to_string()).args(arguments);
    // In a group of its own, it survives a kill of the whole group and notices that this process is dead. But
    // only the foreground group may read from a terminal.
    if inputs == Inputs::Other {
        command.process_group(0);
    }
    let engine = Pid::from_child(&command.spawn()?);
    let mut killing = Killing::default();
    // If it has already ended, its signal is pending.
    for signal in signals.forever() {
        match signal {
            SIGINT => {
                killing.interrupt();
                send(engine, INTERRUPT);
            }
            SIGTERM => send(engine, TERMINATE),
            SIGHUP => send(engine, Signal::HUP),
            SIGQUIT => {
                killing.is_asked_for = true;
                send(engine, QUIT);
            }
            SIGTSTP => stop_with(engine),
            SIGCONT => send(engine, Signal::CONT),
            _ => {
                if let Some(status) = reap(engine)? {
                    return Ok(exit_of(status, killing));
                }
            }
        }
    }
    Err(io::Error::other("signals came to an end"))
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

/// Stops when the other process has stopped, with all of its jobs.
fn stop_with(engine: Pid) {
    send(engine, STOP);
    let stopped = WaitIdOptions::STOPPED | WaitIdOptions::EXITED | WaitIdOptions::NOWAIT;
    if waitid(rustix::process::WaitId::Pid(engine), stopped).is_ok() {
        send(getpid(), Signal::STOP);
    }
}

/// Reaps all children that have ended. Returns the status of the working process, if it is among them.
fn reap(engine: Pid) -> io::Result<Option<WaitStatus>> {
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == engine => return Ok(Some(status)),
            Ok(Some(_)) => {}
            Ok(None) => return Ok(None),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
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

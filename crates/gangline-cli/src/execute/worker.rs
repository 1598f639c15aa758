//! `gangline worker`: workers of a cluster that are started again when they crash, and end in order.

use std::io::{self, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, kill_process_group, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::args::cluster::WorkerArgs;
use crate::broker::broker;
use crate::error::{CliError, Context};
use crate::execute::children::{kill_children_but, send};
use crate::execute::failure::internal;
use crate::execute::signals::is_ignored;
use crate::execute::supervisor::adopt_orphans;
use crate::execute::worker_program::{WorkerProgram, worker_programs};
use crate::exit;
use crate::output::stdio;
use gangline::report::HumanDuration;

/// The longest pause before a restart. A worker that has lived for longer begins with the shortest one again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Starts the programs until they end in order, and returns the exit status.
pub(crate) fn supervise(args: &WorkerArgs) -> Result<u8, CliError> {
    let url = broker(args.nats.as_deref())?;
    let programs = worker_programs(args, &url)?;
    // What a crashed worker leaves behind becomes a child of this process.
    adopt_orphans();
    let (arrived, listener) = listen().map_err(internal)?;
    programs.iter().filter_map(|program| program.allows.as_deref()).for_each(tell);
    let shortest = args.restart_delay.min(LONGEST_PAUSE);
    let workers = programs.into_iter().map(|program| SupervisedWorker::new(program, shortest));
    let status = WorkerSupervisor { workers: workers.collect(), arrived, is_asked: false }.run();
    listener.close();
    status
}

/// Signals, as messages of a thread that ends with the listener.
fn listen() -> io::Result<(Receiver<i32>, Listener)> {
    // The end of a child is never meant to be ignored; but the setting may be inherited.
    let is_wanted = |signal: &i32| *signal == SIGCHLD || !is_ignored(*signal);
    let mut signals =
        Signals::new([SIGINT, SIGTERM, SIGHUP, SIGCHLD].iter().filter(|it| is_wanted(it)))?;
    let handle = signals.handle();
    let (sender, receiver) = channel();
    let thread = thread::Builder::new().name("gangline-signal".into()).spawn(move || {
        for signal in signals.forever() {
            // The receiver is gone only at the end.
            let _ = sender.send(signal);
        }
    })?;
    Ok((receiver, Listener { handle, thread }))
}

struct Listener {
    handle: Handle,
    thread: thread::JoinHandle<()>,
}

impl Listener {
    fn close(self) {
        self.handle.close();
        self.thread.join().expect("the thread does not panic");
    }
}

struct WorkerSupervisor {
    workers: Vec<SupervisedWorker>,
    arrived: Receiver<i32>,
    /// Whether a signal has asked for the end.
    is_asked: bool,
}

/// A program, and what has become of it.
struct SupervisedWorker {
    name: String,
    command: Command,
    shortest: Duration,
    /// The pause before the next restart.
    pause: Duration,
    state: WorkerState,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerState {
    Runs {
        pid: Pid,
        since: Instant,
    },
    /// It starts at that time.
    Waits(Instant),
    /// It is not started again. The exit status is its part in that of this process.
    Ended(u8),
}

impl WorkerSupervisor {
    /// The exit status is that of the first program that has not ended well.
    fn run(&mut self) -> Result<u8, CliError> {
        loop {
            if let Err(error) = self.workers.iter_mut().try_for_each(SupervisedWorker::start_if_due)
            {
                self.running().for_each(kill_group);
                kill_children_but(&[]);
                return Err(error);
            }
            let statuses = self.workers.iter().map(|worker| worker.status());
            if let Some(statuses) = statuses.collect::<Option<Vec<u8>>>() {
                let failed = statuses.into_iter().find(|status| *status != exit::OK);
                return Ok(failed.unwrap_or(exit::OK));
            }
            match self.next_signal() {
                None => {}
                Some(SIGCHLD) => self.reap(),
                Some(_) if self.is_asked => self.running().for_each(kill_group),
                Some(_) => {
                    self.is_asked = true;
                    self.running().for_each(|pid| send(pid, Signal::TERM));
                    self.workers.iter_mut().for_each(SupervisedWorker::start_no_more);
                }
            }
        }
    }

    fn running(&self) -> impl Iterator<Item = Pid> {
        self.workers.iter().filter_map(SupervisedWorker::pid)
    }

    /// Waits for a signal, until a worker is to start.
    fn next_signal(&self) -> Option<i32> {
        let starts = self.workers.iter().filter_map(|worker| match worker.state {
            WorkerState::Waits(until) => Some(until),
            WorkerState::Runs { .. } | WorkerState::Ended(_) => None,
        });
        let next = starts.min().map(|until| until.saturating_duration_since(Instant::now()));
        match next.map(|pause| self.arrived.recv_timeout(pause)) {
            Some(Ok(signal)) => Some(signal),
            Some(Err(RecvTimeoutError::Timeout)) => None,
            None => Some(self.arrived.recv().expect("the thread listens until it is closed")),
            Some(Err(RecvTimeoutError::Disconnected)) => {
                unreachable!("the thread listens until it is closed")
            }
        }
    }

    /// Reaps all children that have ended: those of a crashed hook too.
    fn reap(&mut self) {
        loop {
            let (pid, status) = match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) => (pid, ExitStatus::from_raw(status.as_raw())),
                Err(Errno::INTR) => continue,
                Ok(None) | Err(_) => return,
            };
            let ended = self.workers.iter_mut().find(|worker| worker.pid() == Some(pid));
            if let Some(worker) = ended {
                worker.end(status, self.is_asked);
                let others: Vec<Pid> = self.running().collect();
                kill_children_but(&others);
            }
        }
    }
}

impl SupervisedWorker {
    fn new(program: WorkerProgram, shortest: Duration) -> SupervisedWorker {
        let WorkerProgram { name, command, .. } = program;
        let state = WorkerState::Waits(Instant::now());
        SupervisedWorker { name, command, shortest, pause: shortest, state }
    }

    fn pid(&self) -> Option<Pid> {
        match self.state {
            WorkerState::Runs { pid, .. } => Some(pid),
            WorkerState::Waits(_) | WorkerState::Ended(_) => None,
        }
    }

    fn status(&self) -> Option<u8> {
        match self.state {
            WorkerState::Ended(status) => Some(status),
            WorkerState::Runs { .. } | WorkerState::Waits(_) => None,
        }
    }

    fn start_if_due(&mut self) -> Result<(), CliError> {
        let now = Instant::now();
        if !matches!(self.state, WorkerState::Waits(until) if until <= now) {
            return Ok(());
        }
        match self.command.spawn() {
            Ok(child) => {
                self.state = WorkerState::Runs { pid: Pid::from_child(&child), since: now };
                Ok(())
            }
            Err(error) => {
                let exit = match error.kind() {
                    io::ErrorKind::NotFound => exit::NOT_FOUND,
                    _ => exit::CANNOT_START,
                };
                let name = self.command.get_program().display();
                Err(CliError::new(exit, Context::new(format!("{name} cannot be started"), error)))
            }
        }
    }

    fn start_no_more(&mut self) {
        if matches!(self.state, WorkerState::Waits(_)) {
            self.state = WorkerState::Ended(exit::OK);
        }
    }

    /// The program has ended, and is started again unless it has ended in order.
    fn end(&mut self, status: ExitStatus, is_asked: bool) {
        let WorkerState::Runs { since, .. } = self.state else { return };
        let code = status.code().and_then(|code| u8::try_from(code).ok());
        let signal = status.signal().and_then(|signal| u8::try_from(signal).ok());
        let name = &self.name;
        self.state = match code {
            Some(exit::OK) => WorkerState::Ended(exit::OK),
            Some(exit::SETUP) if !is_asked => {
                tell(&format!("its setup is wrong, so {name} is not started again"));
                WorkerState::Ended(exit::SETUP)
            }
            _ if is_asked => WorkerState::Ended(code.unwrap_or(128 + signal.unwrap_or_default())),
            _ => {
                if since.elapsed() > LONGEST_PAUSE {
                    self.pause = self.shortest;
                }
                let (ended, pause) = (shown(status), self.pause);
                tell(&format!("{name} {ended}; it starts again in {}", HumanDuration(pause)));
                self.pause = (pause * 2).min(LONGEST_PAUSE);
                WorkerState::Waits(Instant::now() + pause)
            }
        };
    }
}

fn kill_group(leader: Pid) {
    // Its leader has not been reaped, so the group is there.
    let _ = kill_process_group(leader, Signal::KILL);
}

fn shown(ended: ExitStatus) -> String {
    match (ended.code(), ended.signal()) {
        (Some(code), _) => format!("has ended with status {code}"),
        (None, signal) => format!("was killed by signal {}", signal.unwrap_or_default()),
    }
}

fn tell(text: &str) {
    // If standard error is gone, no other way to report remains.
    let _ = writeln!(stdio::stderr(), "gangline: {text}");
}

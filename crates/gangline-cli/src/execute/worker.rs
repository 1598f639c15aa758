//! `gangline worker`: a worker of a cluster that is started again when it crashes, and ends in order.

use std::env;
use std::ffi::{OsStr, OsString};
use std::io::{self, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::process::{Command, ExitStatus};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process_group, wait};
use signal_hook::consts::{SIGCHLD, SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::{Handle, Signals};

use crate::args::cluster::WorkerArgs;
use crate::error::{CliError, Context};
use crate::execute::children::{kill_children, send};
use crate::execute::failure::internal;
use crate::execute::process::no_input;
use crate::execute::signals::is_ignored;
use crate::execute::supervisor::adopt_orphans;
use crate::exit;
use crate::output::stdio;
use gangline::report::HumanDuration;

/// The longest pause before a restart. A worker that has lived for longer begins with the shortest one again.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// Starts the program until it ends in order, and returns the exit status.
pub(crate) fn supervise(args: &WorkerArgs) -> Result<u8, CliError> {
    let url = broker(args.nats.as_deref())?;
    // What a crashed worker leaves behind becomes a child of this process.
    adopt_orphans();
    let (arrived, listener) = listen().map_err(internal)?;
    let status = WorkerSupervisor { args, url, arrived, is_asked: false }.run();
    listener.close();
    status
}

/// The address of the broker: that of the option, or of the environment.
///
/// An option with a password or a token is moved to the environment, by executing this program again: all users of the
/// machine see the options of a process, and its own user alone its environment.
pub(crate) fn broker(option: Option<&str>) -> Result<String, CliError> {
    if let Some(url) = option.filter(|url| url.contains('@'))
        && let Some(arguments) = without_address(env::args_os().skip(1).collect(), url)
    {
        let mut command = Command::new("/proc/self/exe");
        env::args_os().take(1).for_each(|name| _ = command.arg0(name));
        return Err(internal(command.args(arguments).env("GANGLINE_NATS", url).exec()));
    }
    let variable = || env::var("GANGLINE_NATS").ok().filter(|url| !url.is_empty());
    option.map(str::to_owned).or_else(variable).ok_or_else(|| {
        let text =
            "no broker is named: give its address by --nats nats://HOST:4222 or by GANGLINE_NATS";
        CliError::new(exit::USAGE, text)
    })
}

/// The arguments of this program without the first option that names this broker.
fn without_address(mut arguments: Vec<OsString>, url: &str) -> Option<Vec<OsString>> {
    let whole = OsString::from(format!("--nats={url}"));
    let words = |n: usize| match &arguments[n] {
        word if *word == whole => 1,
        word if word == "--nats" && arguments.get(n + 1).is_some_and(|it| it == url) => 2,
        _ => 0,
    };
    let (at, count) = (0..arguments.len()).map(|n| (n, words(n))).find(|it| it.1 > 0)?;
    arguments.drain(at..at + count);
    Some(arguments)
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

struct WorkerSupervisor<'a> {
    args: &'a WorkerArgs,
    url: String,
    arrived: Receiver<i32>,
    /// Whether a signal has asked for the end.
    is_asked: bool,
}

impl WorkerSupervisor<'_> {
    fn run(&mut self) -> Result<u8, CliError> {
        let shortest = self.args.restart_delay.min(LONGEST_PAUSE);
        let mut pause = shortest;
        loop {
            let since = Instant::now();
            let worker = self.start()?;
            let ended = self.attend(worker);
            kill_children();
            if let Some(status) = self.last(ended) {
                return Ok(status);
            }
            if since.elapsed() > LONGEST_PAUSE {
                pause = shortest;
            }
            tell(&format!(
                "the worker {}; it starts again in {}",
                shown(ended),
                HumanDuration(pause)
            ));
            if self.sleep(pause) == WorkerWakeUp::BySignal {
                return Ok(exit::OK);
            }
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    fn start(&self) -> Result<Pid, CliError> {
        let WorkerArgs { program, devices, processes, .. } = self.args;
        let mut command = Command::new(&program[0]);
        command.args(&program[1..]).stdin(no_input());
        command.env("GANGLINE_NATS", &self.url);
        // The worker ends with this process.
        command.env("GANGLINE_SUPERVISOR", getpid().as_raw_pid().to_string());
        devices.iter().for_each(|devices| _ = command.env("GANGLINE_DEVICES", devices));
        if *processes {
            command.env("GANGLINE_PROCESSES", "1");
        }
        // In a group of its own: Ctrl-C would kill it before it has drained.
        command.process_group(0);
        match command.spawn() {
            Ok(child) => Ok(Pid::from_child(&child)),
            Err(error) => {
                let exit = match error.kind() {
                    io::ErrorKind::NotFound => exit::NOT_FOUND,
                    _ => exit::CANNOT_START,
                };
                let name = OsStr::display(&program[0]);
                Err(CliError::new(exit, Context::new(format!("{name} cannot be started"), error)))
            }
        }
    }

    /// Waits for the end of the worker. The first signal lets it finish what it has begun, the second kills it.
    fn attend(&mut self, worker: Pid) -> ExitStatus {
        loop {
            match self.arrived.recv().expect("the thread listens until it is closed") {
                SIGCHLD => {
                    if let Some(status) = reaped(worker) {
                        return status;
                    }
                }
                _ if self.is_asked => {
                    // Its leader has not been reaped, so the group is there.
                    let _ = kill_process_group(worker, Signal::KILL);
                }
                _ => {
                    self.is_asked = true;
                    send(worker, Signal::TERM);
                }
            }
        }
    }

    /// The exit status, if the worker is not started again.
    fn last(&self, ended: ExitStatus) -> Option<u8> {
        let code = ended.code().and_then(|code| u8::try_from(code).ok());
        match code {
            Some(exit::OK) => return code,
            Some(exit::SETUP) if !self.is_asked => {
                tell("its setup is wrong, so the worker is not started again");
                return code;
            }
            _ => {}
        }
        let signal = ended.signal().and_then(|signal| u8::try_from(signal).ok());
        self.is_asked.then(|| code.unwrap_or(128 + signal.unwrap_or_default()))
    }

    fn sleep(&self, pause: Duration) -> WorkerWakeUp {
        let until = Instant::now() + pause;
        loop {
            match self.arrived.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok(SIGCHLD) => {}
                Ok(_) => return WorkerWakeUp::BySignal,
                Err(RecvTimeoutError::Timeout) => return WorkerWakeUp::ByTime,
                Err(RecvTimeoutError::Disconnected) => {
                    unreachable!("the thread listens until it is closed")
                }
            }
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum WorkerWakeUp {
    BySignal,
    ByTime,
}

/// Reaps all children that have ended: those of a crashed hook too. Returns how the worker has ended.
fn reaped(worker: Pid) -> Option<ExitStatus> {
    let mut ended = None;
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some((pid, status))) if pid == worker => {
                ended = Some(ExitStatus::from_raw(status.as_raw()));
            }
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) | Err(_) => return ended,
        }
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_is_taken_from_the_options_of_this_program_alone() {
        let url = "nats://u:p@host";
        let left =
            |words: &[&str]| without_address(words.iter().map(OsString::from).collect(), url);
        let expected = ["worker", "--", "./app", "--nats", url].map(OsString::from).to_vec();
        let joined = format!("--nats={url}");
        for given in [
            &["worker", "--nats", url, "--", "./app", "--nats", url][..],
            &["worker", &joined, "--", "./app", "--nats", url],
        ] {
            assert_eq!(left(given).as_ref(), Some(&expected), "{given:?}");
        }
        assert_eq!(left(&["workers", "--nats", "nats://host"]), None, "nothing would change");
    }
}

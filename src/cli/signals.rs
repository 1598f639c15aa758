//! Signals: stop starting, wait, and in the end kill.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open};
use signal_hook::consts::{SIGCONT, SIGHUP, SIGINT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2};
use signal_hook::low_level::{pipe, unregister};

use super::bell::Bell;
use super::exit;
use super::lane::Lanes;
use super::process::timespec;

/// The thread that attends to signals, until this is dropped.
pub(super) struct Attendant {
    quit: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    /// What the program ends with because of a signal; 0 for none.
    exit: Arc<AtomicU8>,
}

/// What signals to this process mean. With a supervisor it gets those of the terminal twice: by itself and
/// through it. So what may not count twice is obeyed only in the form in which the supervisor hands it on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The first time nothing is started any more, the second time all is killed.
    Interrupt,
    Terminate,
    HangUp,
    /// Stop, with all jobs, until it is continued.
    Stop,
    Continue,
    Nothing,
}

/// As which signal the supervisor hands on SIGINT, and SIGTSTP.
pub(super) const INTERRUPT: Signal = Signal::USR1;
pub(super) const STOP: Signal = Signal::USR2;

struct Watch {
    lanes: Lanes,
    quit: Arc<Bell>,
    signals: Vec<(Meaning, UnixStream)>,
    /// Readable when the supervisor has died.
    supervisor: Option<OwnedFd>,
    exit: Arc<AtomicU8>,
    interrupted: bool,
    /// When the jobs that still run are ended.
    patience: Option<Instant>,
    grace: Duration,
}

impl Attendant {
    pub(super) fn start(
        lanes: Lanes,
        supervisor: Option<Pid>,
        grace: Duration,
    ) -> io::Result<Attendant> {
        let (quit, exit) = (Arc::new(Bell::new()?), Arc::new(AtomicU8::new(0)));
        let mut ids = Vec::new();
        let signals = signals(supervisor.is_some(), &mut ids)?;
        let supervisor = match supervisor {
            Some(pid) => Some(watched(pid)?),
            None => None,
        };
        let watch = Watch {
            lanes,
            quit: Arc::clone(&quit),
            signals,
            supervisor,
            exit: Arc::clone(&exit),
            interrupted: false,
            patience: None,
            grace,
        };
        let thread = thread::Builder::new().name("gangline-signal".into()).spawn(move || {
            watch.attend();
            for id in ids {
                unregister(id);
            }
        })?;
        Ok(Attendant { quit, thread: Some(thread), exit })
    }

    /// What a signal has the program end with.
    pub(super) fn exit(&self) -> Option<u8> {
        Some(self.exit.load(Ordering::SeqCst)).filter(|exit| *exit != 0)
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.quit.ring();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread does not panic");
        }
    }
}

/// The supervisor, as something that can be waited for.
fn watched(pid: Pid) -> io::Result<OwnedFd> {
    let watched = pidfd_open(pid, PidfdFlags::empty());
    // One that died before may have had its number taken by another.
    match (watched, getppid()) {
        (Ok(fd), Some(parent)) if parent == pid => Ok(fd),
        _ => Err(io::Error::other("the supervisor has ended")),
    }
}

fn signals(
    supervised: bool,
    ids: &mut Vec<signal_hook::SigId>,
) -> io::Result<Vec<(Meaning, UnixStream)>> {
    let from_terminal = |meaning| if supervised { Meaning::Nothing } else { meaning };
    let meanings = [
        (SIGINT, from_terminal(Meaning::Interrupt)),
        (SIGUSR1, if supervised { Meaning::Interrupt } else { Meaning::Nothing }),
        (SIGTERM, Meaning::Terminate),
        (SIGHUP, Meaning::HangUp),
        (SIGTSTP, from_terminal(Meaning::Stop)),
        (SIGUSR2, if supervised { Meaning::Stop } else { Meaning::Nothing }),
        (SIGCONT, Meaning::Continue),
    ];
    let mut register = |(signal, meaning)| {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        ids.push(pipe::register(signal, writer)?);
        Ok((meaning, reader))
    };
    meanings.into_iter().map(&mut register).collect()
}

impl Watch {
    fn attend(mut self) {
        loop {
            let ready = self.wait();
            if ready.quit {
                return;
            }
            if ready.orphaned {
                self.lanes.close();
                self.lanes.groups().kill_all();
                self.supervisor = None;
            }
            for meaning in ready.meanings {
                self.obey(meaning);
            }
            if self.patience.is_some_and(|until| until <= Instant::now()) {
                self.patience = None;
                self.lanes.groups().end_all();
            }
        }
    }

    fn obey(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Interrupt if self.interrupted => self.lanes.groups().kill_all(),
            Meaning::Interrupt => {
                self.interrupted = true;
                self.end(exit::INTERRUPTED);
                // Said when it is so: who reads it may be a program.
                let advice = "waiting for the jobs that run; press Ctrl-C again to kill them";
                self.lanes.shared.terminal.tell(advice);
            }
            Meaning::Terminate if self.patience.is_some() => self.lanes.groups().end_all(),
            Meaning::Terminate => {
                self.patience = Some(Instant::now() + self.grace);
                self.end(exit::TERMINATED);
            }
            Meaning::HangUp => self.end(exit::HANGUP),
            Meaning::Stop => {
                self.lanes.groups().stop_all();
                // Until somebody has it go on.
                let _ = kill_process(getpid(), Signal::STOP);
            }
            Meaning::Continue => self.lanes.groups().continue_all(),
            Meaning::Nothing => {}
        }
    }

    /// Starts nothing more; the first signal is what the program ends with.
    fn end(&self, exit: u8) {
        let _ = self.exit.compare_exchange(0, exit, Ordering::SeqCst, Ordering::SeqCst);
        self.lanes.close();
    }

    fn wait(&self) -> Ready {
        let quit = (Source::Quit, self.quit.as_fd());
        let supervisor = self.supervisor.as_ref().map(|fd| (Source::Supervisor, fd.as_fd()));
        let signals =
            self.signals.iter().map(|(meaning, stream)| (Source::Signal(*meaning), stream.as_fd()));
        let sources: Vec<(Source, BorrowedFd<'_>)> =
            std::iter::once(quit).chain(supervisor).chain(signals).collect();
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let left = self.patience.map(|until| until.saturating_duration_since(Instant::now()));
        // It fails when a signal comes, which is then seen the next time.
        if poll(&mut fds, left.map(timespec).as_ref()).is_err() {
            return Ready::default();
        }
        let mut ready = Ready::default();
        for ((source, _), _) in sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty())
        {
            match source {
                Source::Quit => ready.quit = true,
                Source::Supervisor => ready.orphaned = true,
                Source::Signal(meaning) => ready.meanings.push(*meaning),
            }
        }
        self.signals
            .iter()
            .filter(|(meaning, _)| ready.meanings.contains(meaning))
            .for_each(|(_, stream)| empty(stream));
        ready
    }
}

#[derive(Debug, Clone, Copy)]
enum Source {
    Quit,
    Supervisor,
    Signal(Meaning),
}

#[derive(Debug, Default)]
struct Ready {
    quit: bool,
    orphaned: bool,
    meanings: Vec<Meaning>,
}

fn empty(mut stream: &UnixStream) {
    while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
}

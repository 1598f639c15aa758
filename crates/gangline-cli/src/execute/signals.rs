//! Signals: start no further job, wait, and finally kill.

use std::fs;
use std::io::{self, IsTerminal, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use nix::sys::signal::SigSet;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, set_child_subreaper,
    set_parent_process_death_signal,
};
use signal_hook::SigId;
use signal_hook::consts::{
    SIGCHLD, SIGCONT, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGTTIN, SIGUSR1,
    SIGUSR2, SIGVTALRM,
};
use signal_hook::low_level::{pipe, unregister};

use crate::bell::PipeBell;
use crate::error::naming;
use crate::execute::children::kill_children;
use crate::execute::lane::Lanes;
use crate::execute::readiness::timespec;
use crate::execute::stops::{self, Stop};
use crate::exit;
use gangline::report::HumanDuration;

/// The thread that handles signals, until this is dropped.
pub(crate) struct Attendant {
    quit: Arc<PipeBell>,
    thread: Option<JoinHandle<()>>,
    /// The exit status caused by a signal; 0 for none.
    exit: Arc<AtomicU8>,
    lanes: Arc<OnceLock<Lanes>>,
    /// Messages about signals have a thread of their own. Their reader may block, and the signal thread may
    /// be the only one that can end the process.
    teller: Option<JoinHandle<()>>,
    words: Sender<Option<String>>,
}

/// The meaning of signals to this process.
///
/// A signal from the terminal, or to the whole group, reaches both this process and its supervisor, which
/// forwards it. To count it once, this process obeys only the forwarded signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum SignalMeaning {
    /// The first time no further job starts; the second time all jobs are killed.
    Interrupt,
    Terminate,
    HangUp,
    /// All jobs are killed.
    Quit,
    /// Stop, with all jobs, until SIGCONT.
    Stop,
    Continue,
    /// A child has ended, stopped or continued.
    Child,
    /// The supervisor may have died.
    Orphaned,
    Nothing,
}

/// The signals that the supervisor sends for SIGINT, SIGTERM, SIGQUIT and SIGTSTP.
pub(crate) const INTERRUPT: Signal = Signal::USR1;
pub(crate) const TERMINATE: Signal = Signal::VTALARM;
pub(crate) const QUIT: Signal = Signal::PROF;
/// Without a handler it stops a process too: before this one listens, it has no jobs.
pub(crate) const STOP: Signal = Signal::TTIN;

/// The signal that the system sends when the supervisor has died.
const ORPHANED: Signal = Signal::USR2;

const MEANINGS: [(i32, SignalMeaning); 12] = [
    (SIGINT, SignalMeaning::Nothing),
    (SIGTERM, SignalMeaning::Nothing),
    (SIGQUIT, SignalMeaning::Nothing),
    (SIGTSTP, SignalMeaning::Nothing),
    (SIGUSR1, SignalMeaning::Interrupt),
    (SIGVTALRM, SignalMeaning::Terminate),
    (SIGPROF, SignalMeaning::Quit),
    (SIGTTIN, SignalMeaning::Stop),
    (SIGHUP, SignalMeaning::HangUp),
    (SIGCONT, SignalMeaning::Continue),
    (SIGCHLD, SignalMeaning::Child),
    (SIGUSR2, SignalMeaning::Orphaned),
];

struct SignalWatch {
    lanes: Arc<OnceLock<Lanes>>,
    quit: Arc<PipeBell>,
    signals: Vec<(SignalMeaning, UnixStream)>,
    supervisor: Option<Pid>,
    /// Readable when the supervisor has died.
    orphaned: Option<OwnedFd>,
    exit: Arc<AtomicU8>,
    words: Sender<Option<String>>,
    interrupted: bool,
    /// When a server was asked to end for the first time.
    drained: Option<Instant>,
    /// When the jobs that still run are ended.
    patience: Option<Instant>,
    /// When the process exits, whether or not the run has ended.
    last_moment: Option<Instant>,
    grace: Duration,
    kill_after: Duration,
}

/// The time in which a second signal counts as a copy of the first: `timeout`, for one, signals a process and its
/// group.
const COPIES: Duration = Duration::from_millis(500);

/// How long to wait for killed jobs to disappear.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// How long the run has to end after its jobs were killed: to reap them, write their output, and commit. A
/// reader of the output that blocks could otherwise delay it for ever.
const LAST_WORDS: Duration = Duration::from_millis(400);

impl Attendant {
    /// Before it knows of lanes, a signal that ends the run ends the process.
    pub(crate) fn start(
        supervisor: Option<i32>,
        grace: Duration,
        kill_after: Duration,
    ) -> io::Result<Attendant> {
        let supervisor = supervisor.and_then(Pid::from_raw);
        let (quit, exit) = (Arc::new(PipeBell::new()?), Arc::new(AtomicU8::new(0)));
        let mut ids = Vec::new();
        let signals = signals(&mut ids)?;
        let lanes: Arc<OnceLock<Lanes>> = Arc::default();
        let (words, said) = channel();
        let teller = thread::Builder::new().name("gangline-words".into()).spawn({
            let lanes = Arc::clone(&lanes);
            move || tell(&said, &lanes)
        })?;
        let watch = SignalWatch {
            lanes: Arc::clone(&lanes),
            quit: Arc::clone(&quit),
            signals,
            orphaned: supervisor.map(watched).transpose()?.flatten(),
            supervisor,
            exit: Arc::clone(&exit),
            words: words.clone(),
            interrupted: false,
            drained: None,
            patience: None,
            last_moment: None,
            grace,
            kill_after,
        };
        let thread = thread::Builder::new().name("gangline-signal".into()).spawn(move || {
            watch.attend();
            for id in ids {
                unregister(id);
            }
        })?;
        Ok(Attendant { quit, thread: Some(thread), exit, lanes, teller: Some(teller), words })
    }

    /// From now on signals apply to the jobs of these lanes.
    pub(crate) fn attend_to(&self, lanes: &Lanes) {
        self.lanes.get_or_init(|| lanes.clone());
    }

    /// The exit status that a signal causes.
    pub(crate) fn exit(&self) -> Option<u8> {
        Some(self.exit.load(Ordering::SeqCst)).filter(|exit| *exit != 0)
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        // First: while it writes, a signal may have to end the process.
        let _ = self.words.send(None);
        if let Some(teller) = self.teller.take() {
            teller.join().expect("the thread does not panic");
        }
        self.quit.ring();
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the thread does not panic");
        }
    }
}

/// Prints messages until the channel closes.
fn tell(said: &Receiver<Option<String>>, lanes: &OnceLock<Lanes>) {
    while let Ok(Some(text)) = said.recv() {
        if let Some(lanes) = lanes.get() {
            lanes.shared.terminal.tell(&text);
        }
    }
}

/// Unblocks all signals of this thread, and of the threads and processes that it starts.
///
/// A parent may leave signals blocked. With SIGCHLD blocked, the end of a job would never be noticed.
pub(crate) fn unblock_signals() -> io::Result<()> {
    SigSet::empty().thread_set_mask().map_err(naming("rt_sigprocmask"))
}

/// Signals that were ignored when this process started, as by `nohup`, stay ignored.
pub(crate) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
}

/// Returns a descriptor that reports the end of the supervisor. If `pidfd_open` is refused, as in old containers, a
/// signal reports it.
fn watched(supervisor: Pid) -> io::Result<Option<OwnedFd>> {
    let watched = pidfd_open(supervisor, PidfdFlags::empty());
    if watched.is_err() {
        let asked = set_parent_process_death_signal(Some(ORPHANED));
        asked.map_err(naming("prctl(PR_SET_PDEATHSIG)"))?;
    }
    // After its death, another process may have its number.
    match getppid() == Some(supervisor) {
        true => Ok(watched.ok()),
        false => Err(io::Error::other("the supervisor has ended")),
    }
}

fn signals(ids: &mut Vec<SigId>) -> io::Result<Vec<(SignalMeaning, UnixStream)>> {
    let register = |(signal, meaning)| {
        let (reader, writer) = UnixStream::pair().map_err(naming("socketpair"))?;
        reader.set_nonblocking(true).map_err(naming("ioctl(FIONBIO)"))?;
        ids.push(pipe::register(signal, writer).map_err(naming("rt_sigaction"))?);
        Ok((meaning, reader))
    };
    MEANINGS
        .into_iter()
        .filter(|(signal, meaning)| meaning.is_private() || !is_ignored(*signal))
        .map(register)
        .collect()
}

impl SignalMeaning {
    /// Whether the signal is handled even if it is ignored at the start. No user means to ignore these: the setting was
    /// inherited.
    fn is_private(self) -> bool {
        match self {
            SignalMeaning::Interrupt
            | SignalMeaning::Terminate
            | SignalMeaning::Quit
            | SignalMeaning::Stop => true,
            SignalMeaning::Child | SignalMeaning::Orphaned => true,
            SignalMeaning::HangUp | SignalMeaning::Continue | SignalMeaning::Nothing => false,
        }
    }
}

impl SignalWatch {
    fn attend(mut self) {
        loop {
            let ready = self.wait();
            if ready.quit {
                return;
            }
            if ready.orphaned {
                self.end_orphaned();
            }
            for meaning in ready.meanings {
                self.obey(meaning);
            }
            if self.patience.is_some_and(|until| until <= Instant::now()) {
                self.patience = None;
                self.lanes().groups().end_all();
                self.last_moment.get_or_insert(Instant::now() + self.kill_after + LAST_WORDS);
            }
            if self.last_moment.is_some_and(|until| until <= Instant::now()) {
                // A job's reader may block, so the run has not ended the job.
                self.lanes().groups().kill_all();
                std::process::exit(i32::from(self.exit.load(Ordering::SeqCst)));
            }
        }
    }

    /// Ends this process and all jobs, since the supervisor has died.
    fn end_orphaned(&mut self) -> ! {
        // Processes that jobs started in other sessions become children of this process when their parent dies.
        let _ = set_child_subreaper(Some(getpid()));
        self.kill(exit::KILLED);
        self.lanes().groups().wait_until_empty(AFTER_KILL);
        kill_children();
        // A blocked reader of the output may hold this process up, and no other process can end it.
        std::process::exit(i32::from(exit::KILLED));
    }

    fn obey(&mut self, meaning: SignalMeaning) {
        if self.lanes.get().is_some_and(Lanes::are_served) {
            match meaning {
                SignalMeaning::Interrupt => return self.drain(exit::INTERRUPTED),
                SignalMeaning::Terminate => return self.drain(exit::TERMINATED),
                // The terminal of the server is gone.
                SignalMeaning::HangUp if io::stdin().is_terminal() => {
                    return self.drain(exit::HANGUP);
                }
                SignalMeaning::HangUp => return self.lanes().reload(),
                _ => {}
            }
        }
        match meaning {
            SignalMeaning::Orphaned if getppid() != self.supervisor => self.end_orphaned(),
            SignalMeaning::Interrupt if self.interrupted => self.kill(exit::INTERRUPTED),
            SignalMeaning::Interrupt => {
                self.interrupted = true;
                self.end(exit::INTERRUPTED);
                // Printed only once it is true, since a program may read it.
                self.tell("waiting for the running jobs; press Ctrl-C again to kill them");
            }
            // `timeout`, for one, signals a process and its group.
            SignalMeaning::Terminate if self.patience.is_some() => {}
            SignalMeaning::Terminate => {
                self.patience = Some(Instant::now() + self.grace);
                self.end(exit::TERMINATED);
                let grace = HumanDuration(self.grace);
                self.tell(&format!("SIGTERM: the running jobs have {grace:#} to end"));
            }
            SignalMeaning::HangUp => self.end(exit::HANGUP),
            SignalMeaning::Quit => self.kill(exit::QUIT),
            SignalMeaning::Stop => {
                if let Some(lanes) = self.lanes.get() {
                    lanes.groups().stop_all();
                }
                // Until SIGCONT.
                let _ = kill_process(getpid(), Signal::STOP);
            }
            SignalMeaning::Continue => {
                if let Some(lanes) = self.lanes.get() {
                    lanes.groups().continue_all();
                }
            }
            SignalMeaning::Child => self.look_for_stops(),
            SignalMeaning::Orphaned | SignalMeaning::Nothing => {}
        }
    }

    /// Lets a server answer what it has accepted. A second signal kills its workers.
    fn drain(&mut self, exit: u8) {
        match self.drained {
            Some(since) if since.elapsed() < COPIES => {}
            Some(_) => self.kill(exit),
            None => {
                self.drained = Some(Instant::now());
                self.patience = Some(Instant::now() + self.grace);
                self.end(exit);
                let grace = HumanDuration(self.grace);
                self.tell(&format!(
                    "ending: accepted requests have {grace:#} to be answered (--grace); a second signal ends them"
                ));
            }
        }
    }

    /// Reports each job that has stopped. It would not end, and neither would the run.
    fn look_for_stops(&self) {
        let Some(lanes) = self.lanes.get() else { return };
        for change in stops::changes() {
            let occupant = lanes.groups().note(change.pid, change.transition());
            if let (Some(occupant), Some(signal)) = (occupant, change.stopped_by) {
                self.tell(&Stop { occupant, pid: change.pid, signal }.to_string());
            }
        }
    }

    /// Starts no further job; the first signal decides the exit status.
    fn end(&self, exit: u8) {
        let Some(lanes) = self.lanes.get() else { std::process::exit(i32::from(exit)) };
        let _ = self.exit.compare_exchange(0, exit, Ordering::SeqCst, Ordering::SeqCst);
        lanes.wind_down();
        lanes.groups().end_stopped();
    }

    /// Kills all jobs; the run then has little time to end.
    fn kill(&mut self, exit: u8) {
        self.end(exit);
        self.lanes().groups().kill_all();
        self.last_moment.get_or_insert(Instant::now() + LAST_WORDS);
    }

    fn tell(&self, text: &str) {
        // The thread lives until it is asked to end.
        let _ = self.words.send(Some(text.to_owned()));
    }

    fn lanes(&self) -> &Lanes {
        self.lanes.get().expect("without lanes the first signal has ended the process")
    }

    fn wait(&self) -> ReadySignals {
        let quit = (SignalSource::Quit, self.quit.as_fd());
        let supervisor = self.orphaned.as_ref().map(|fd| (SignalSource::Supervisor, fd.as_fd()));
        let signals = self
            .signals
            .iter()
            .map(|(meaning, stream)| (SignalSource::Signal(*meaning), stream.as_fd()));
        let sources: Vec<(SignalSource, BorrowedFd<'_>)> =
            std::iter::once(quit).chain(supervisor).chain(signals).collect();
        let mut fds: Vec<PollFd<'_>> =
            sources.iter().map(|(_, fd)| PollFd::from_borrowed_fd(*fd, PollFlags::IN)).collect();
        let until = self.patience.into_iter().chain(self.last_moment).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        // It fails when a signal arrives, which the next iteration handles.
        if poll(&mut fds, left.map(timespec).as_ref()).is_err() {
            return ReadySignals::default();
        }
        let mut ready = ReadySignals::default();
        for ((source, _), _) in sources.iter().zip(&fds).filter(|(_, fd)| !fd.revents().is_empty())
        {
            match source {
                SignalSource::Quit => ready.quit = true,
                SignalSource::Supervisor => ready.orphaned = true,
                SignalSource::Signal(meaning) => ready.meanings.push(*meaning),
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
enum SignalSource {
    Quit,
    Supervisor,
    Signal(SignalMeaning),
}

#[derive(Debug, Default)]
struct ReadySignals {
    quit: bool,
    orphaned: bool,
    meanings: Vec<SignalMeaning>,
}

fn empty(mut stream: &UnixStream) {
    while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
}

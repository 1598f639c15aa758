//! Signals: stop starting, wait, and in the end kill.

use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{
    Pid, PidfdFlags, Signal, getpid, getppid, kill_process, pidfd_open, set_child_subreaper,
};
use signal_hook::SigId;
use signal_hook::consts::{
    SIGCONT, SIGHUP, SIGINT, SIGPROF, SIGQUIT, SIGTERM, SIGTSTP, SIGUSR1, SIGUSR2, SIGVTALRM,
};
use signal_hook::low_level::{pipe, unregister};

use super::args::Failure;
use super::bell::Bell;
use super::exit;
use super::lane::Lanes;
use super::readiness::timespec;
use super::supervisor::kill_children;

/// The thread that attends to signals, until this is dropped.
pub(super) struct Attendant {
    quit: Arc<Bell>,
    thread: Option<JoinHandle<()>>,
    /// What the program ends with because of a signal; 0 for none.
    exit: Arc<AtomicU8>,
    lanes: Arc<OnceLock<Lanes>>,
    /// What is said of signals is said by a thread of its own: it may be said to somebody who does not read, and
    /// the one that attends to signals may be the last that can end the process.
    teller: Option<JoinHandle<()>>,
    words: Sender<Option<String>>,
}

/// What signals to this process mean.
///
/// What a terminal sends, or somebody sends to the whole group, comes to this process and to its supervisor,
/// which hands it on. So that nothing counts twice it is obeyed only as the signal that the supervisor makes of
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Meaning {
    /// The first time nothing is started any more, the second time all is killed.
    Interrupt,
    Terminate,
    HangUp,
    /// All is killed.
    Quit,
    /// Stop, with all jobs, until it is continued.
    Stop,
    Continue,
    Nothing,
}

/// As which signals the supervisor hands on SIGINT, SIGTERM, SIGQUIT and SIGTSTP.
pub(super) const INTERRUPT: Signal = Signal::USR1;
pub(super) const TERMINATE: Signal = Signal::VTALARM;
pub(super) const QUIT: Signal = Signal::PROF;
pub(super) const STOP: Signal = Signal::USR2;

const MEANINGS: [(i32, Meaning); 10] = [
    (SIGINT, Meaning::Nothing),
    (SIGTERM, Meaning::Nothing),
    (SIGQUIT, Meaning::Nothing),
    (SIGTSTP, Meaning::Nothing),
    (SIGUSR1, Meaning::Interrupt),
    (SIGVTALRM, Meaning::Terminate),
    (SIGPROF, Meaning::Quit),
    (SIGUSR2, Meaning::Stop),
    (SIGHUP, Meaning::HangUp),
    (SIGCONT, Meaning::Continue),
];

struct Watch {
    lanes: Arc<OnceLock<Lanes>>,
    quit: Arc<Bell>,
    signals: Vec<(Meaning, UnixStream)>,
    /// Readable when the supervisor has died.
    supervisor: Option<OwnedFd>,
    exit: Arc<AtomicU8>,
    words: Sender<Option<String>>,
    interrupted: bool,
    /// When the jobs that still run are ended.
    patience: Option<Instant>,
    /// When the process ends, run or not.
    last_moment: Option<Instant>,
    grace: Duration,
    kill_after: Duration,
}

/// So long jobs that were killed may take to be gone where nobody would wait for them.
const AFTER_KILL: Duration = Duration::from_secs(1);

/// So long the run has to end when its jobs were killed: to reap them, to write what they printed, to commit.
/// Whoever does not read the output could hold it up for ever.
const LAST_WORDS: Duration = Duration::from_millis(400);

impl Attendant {
    /// Until it knows of lanes, whatever is to end the run ends the process.
    pub(super) fn start(supervisor: Option<i32>, failure: &Failure) -> io::Result<Attendant> {
        let (quit, exit) = (Arc::new(Bell::new()?), Arc::new(AtomicU8::new(0)));
        let mut ids = Vec::new();
        let signals = signals(&mut ids)?;
        let lanes: Arc<OnceLock<Lanes>> = Arc::default();
        let (words, said) = channel();
        let teller = thread::Builder::new().name("gangline-words".into()).spawn({
            let lanes = Arc::clone(&lanes);
            move || tell(&said, &lanes)
        })?;
        let watch = Watch {
            lanes: Arc::clone(&lanes),
            quit: Arc::clone(&quit),
            signals,
            supervisor: supervisor.and_then(Pid::from_raw).map(watched).transpose()?,
            exit: Arc::clone(&exit),
            words: words.clone(),
            interrupted: false,
            patience: None,
            last_moment: None,
            grace: failure.grace,
            kill_after: failure.kill_after,
        };
        let thread = thread::Builder::new().name("gangline-signal".into()).spawn(move || {
            watch.attend();
            for id in ids {
                unregister(id);
            }
        })?;
        Ok(Attendant { quit, thread: Some(thread), exit, lanes, teller: Some(teller), words })
    }

    /// From now on signals are for the jobs of these.
    pub(super) fn attend_to(&self, lanes: &Lanes) {
        self.lanes.get_or_init(|| lanes.clone());
    }

    /// What a signal has the program end with.
    pub(super) fn exit(&self) -> Option<u8> {
        Some(self.exit.load(Ordering::SeqCst)).filter(|exit| *exit != 0)
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        // First: as long as it writes, a signal may have to end the process.
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

/// Says what there is to say, until there is nothing more.
fn tell(said: &Receiver<Option<String>>, lanes: &OnceLock<Lanes>) {
    while let Ok(Some(text)) = said.recv() {
        if let Some(lanes) = lanes.get() {
            lanes.shared.terminal.tell(&text);
        }
    }
}

/// Which signals this process was started to ignore, as by `nohup`: those stay ignored.
pub(super) fn is_ignored(signal: i32) -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    mask.is_some_and(|mask| mask >> (signal - 1) & 1 == 1)
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

fn signals(ids: &mut Vec<SigId>) -> io::Result<Vec<(Meaning, UnixStream)>> {
    let register = |(signal, meaning)| {
        let (reader, writer) = UnixStream::pair()?;
        reader.set_nonblocking(true)?;
        ids.push(pipe::register(signal, writer)?);
        Ok((meaning, reader))
    };
    MEANINGS
        .into_iter()
        .filter(|(signal, meaning)| meaning.is_private() || !is_ignored(*signal))
        .map(register)
        .collect()
}

impl Meaning {
    /// It comes from the supervisor alone, so nobody can want it to be ignored; whoever does inherits it.
    fn is_private(self) -> bool {
        matches!(self, Meaning::Interrupt | Meaning::Terminate | Meaning::Quit | Meaning::Stop)
    }
}

impl Watch {
    fn attend(mut self) {
        loop {
            let ready = self.wait();
            if ready.quit {
                return;
            }
            if ready.orphaned {
                self.supervisor = None;
                // What jobs have started in sessions of their own becomes a child of this process when they die.
                let _ = set_child_subreaper(Some(getpid()));
                self.kill(exit::KILLED);
                self.lanes().groups().wait_until_empty(AFTER_KILL);
                kill_children();
                // Whoever reads the output may hold this process up, which nobody else can end any more.
                std::process::exit(i32::from(exit::KILLED));
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
                // Whoever has a job may be held up, as the run is, and has not ended it.
                self.lanes().groups().kill_all();
                std::process::exit(i32::from(self.exit.load(Ordering::SeqCst)));
            }
        }
    }

    fn obey(&mut self, meaning: Meaning) {
        match meaning {
            Meaning::Interrupt if self.interrupted => self.kill(exit::INTERRUPTED),
            Meaning::Interrupt => {
                self.interrupted = true;
                self.end(exit::INTERRUPTED);
                // Said when it is so: who reads it may be a program.
                self.tell("waiting for the jobs that run; press Ctrl-C again to kill them");
            }
            // `timeout`, for one, sends it to a process and to its group.
            Meaning::Terminate if self.patience.is_some() => {}
            Meaning::Terminate => {
                self.patience = Some(Instant::now() + self.grace);
                self.end(exit::TERMINATED);
                let grace = humantime::format_duration(self.grace);
                self.tell(&format!("SIGTERM: the jobs that run have {grace} to end"));
            }
            Meaning::HangUp => self.end(exit::HANGUP),
            Meaning::Quit => self.kill(exit::QUIT),
            Meaning::Stop => {
                if let Some(lanes) = self.lanes.get() {
                    lanes.groups().stop_all();
                }
                // Until somebody has it go on.
                let _ = kill_process(getpid(), Signal::STOP);
            }
            Meaning::Continue => {
                if let Some(lanes) = self.lanes.get() {
                    lanes.groups().continue_all();
                }
            }
            Meaning::Nothing => {}
        }
    }

    /// Starts nothing more; the first signal is what the program ends with.
    fn end(&self, exit: u8) {
        let Some(lanes) = self.lanes.get() else { std::process::exit(i32::from(exit)) };
        let _ = self.exit.compare_exchange(0, exit, Ordering::SeqCst, Ordering::SeqCst);
        lanes.close();
    }

    /// Kills all jobs, after which the run has little time to end.
    fn kill(&mut self, exit: u8) {
        self.end(exit);
        self.lanes().groups().kill_all();
        self.last_moment.get_or_insert(Instant::now() + LAST_WORDS);
    }

    fn tell(&self, text: &str) {
        // It is there until this thread is asked to end.
        let _ = self.words.send(Some(text.to_owned()));
    }

    fn lanes(&self) -> &Lanes {
        self.lanes.get().expect("without lanes the first signal has ended the process")
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
        let until = self.patience.into_iter().chain(self.last_moment).min();
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
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

//! A broker and its workers, which live for many cases, and what happens to them.

use std::fs::File;
use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::thread;
use std::time::{Duration, Instant};

use gangline_nats::Nats;
use rustix::process::{Pid, Signal, kill_process};

use crate::laws::Laws;

/// What happens in the middle of a case.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Fault {
    Kill,
    Terminate,
    /// Stops a worker for this number of milliseconds.
    Stop(u64),
    /// Kills the broker, and starts it again after this number of milliseconds.
    Broker(u64),
}

/// The workers that are there whenever a case begins. If one ends, another is started in its place.
pub(crate) const WORKERS: usize = 3;

/// The number of faults that were injected, in all cases.
pub(crate) static INJECTED: AtomicU64 = AtomicU64::new(0);

/// A worker that has got SIGTERM ends in this time: those of hooks and leases, and some for a busy machine.
const LEAVES: Duration = Duration::from_secs(30);

pub(crate) struct LiveCluster {
    server: Child,
    port: u16,
    folder: tempfile::TempDir,
    workers: Vec<Child>,
    /// Those that got SIGTERM, since when, and whether they may end by themselves in the case in which they got it. They may
    /// end in a later one.
    leaving: Vec<(Child, Instant, bool)>,
    /// How many workers were started.
    started: usize,
    /// The bytes of the workers' log that were looked at.
    read: usize,
}

/// The broker's program, if it is installed.
pub(crate) fn nats_server() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    folders.map(|folder| folder.join("nats-server")).find(|program| program.is_file())
}

impl LiveCluster {
    pub(crate) fn start() -> Self {
        let folder = tempfile::tempdir().expect("there is room for files");
        // Below those that the system gives to clients: one of them could take that of a broker that is restarted.
        let mut ports = std::iter::repeat_with(|| fastrand::u16(10_000..30_000));
        let port = ports.find(|port| TcpListener::bind(("127.0.0.1", *port)).is_ok());
        let port = port.expect("a port is free");
        let server = serve(port, folder.path());
        let (workers, leaving) = (vec![], vec![]);
        LiveCluster { server, port, folder, workers, leaving, started: 0, read: 0 }
    }

    pub(crate) fn nats(&self) -> Nats {
        Nats::connect(self.url())
    }

    /// Starts a worker in the place of each that has ended. A worker may end by itself only if `may_end`.
    pub(crate) fn care(&mut self, laws: &Laws, may_end: bool) {
        self.workers.retain_mut(|worker| {
            let status = worker.try_wait().expect("it is a child");
            laws.check("a worker ends only if it has to", status.is_none() || may_end, || {
                format!("{status:?}")
            });
            status.is_none()
        });
        self.leaving.retain_mut(|(worker, since, might_end)| {
            let status = worker.try_wait().expect("it is a child");
            let right = match status {
                Some(status) => status.success() || may_end || *might_end,
                None => since.elapsed() < LEAVES,
            };
            laws.check("a worker ends after SIGTERM", right, || {
                format!("{status:?}, process {}", worker.id())
            });
            if !right && status.is_none() {
                end(worker);
            }
            right && status.is_none()
        });
        while self.workers.len() < WORKERS {
            self.start_worker();
        }
    }

    /// Injects the faults, each after its number of milliseconds, until the case has ended.
    pub(crate) fn disturb(
        &mut self,
        laws: &Laws,
        faults: &[(u64, Fault)],
        may_end: bool,
        ended: &Receiver<()>,
    ) {
        let mut faults = faults.iter();
        let mut next = faults.next();
        let mut since = Instant::now();
        let goes_on = |time| ended.recv_timeout(time) == Err(RecvTimeoutError::Timeout);
        while goes_on(Duration::from_millis(10)) {
            self.care(laws, may_end);
            if let Some(&(pause, fault)) = next
                && since.elapsed() >= Duration::from_millis(pause)
            {
                self.inject(fault, may_end, &|millis| _ = goes_on(Duration::from_millis(millis)));
                (next, since) = (faults.next(), Instant::now());
            }
        }
    }

    /// Checks that no worker has printed a panic: those of faults print nothing.
    pub(crate) fn check_log(&mut self, laws: &Laws) {
        let log = std::fs::read_to_string(self.log()).unwrap_or_default();
        let new = &log[self.read..];
        laws.check("no panic in a worker", !new.contains("panicked"), || new.to_owned());
        self.read = log.len();
    }

    fn inject(&mut self, fault: Fault, may_end: bool, pause: &dyn Fn(u64)) {
        INJECTED.fetch_add(1, Ordering::AcqRel);
        match fault {
            Fault::Kill => end(&mut self.workers.remove(0)),
            Fault::Terminate => {
                let worker = self.workers.remove(0);
                signal(&worker, Signal::TERM);
                self.leaving.push((worker, Instant::now(), may_end));
            }
            Fault::Stop(millis) => {
                // It moves to the end of those that are hit next.
                self.workers.rotate_left(1);
                let worker = self.workers.last().expect("there are always workers");
                signal(worker, Signal::STOP);
                pause(millis);
                signal(worker, Signal::CONT);
            }
            Fault::Broker(millis) => {
                end(&mut self.server);
                pause(millis);
                self.server = serve(self.port, self.folder.path());
            }
        }
    }

    /// Every fourth has its producers in child processes.
    fn start_worker(&mut self) {
        let log = File::options().create(true).append(true).open(self.log());
        let program = std::env::current_exe().expect("a program has a path");
        let mut command = Command::new(program);
        command.env("GANGLINE_NATS", self.url());
        command.env("GANGLINE_DEVICES", format!("cpu*{}", self.started % 3 + 1));
        if self.started % 4 == 3 {
            command.env("GANGLINE_PROCESSES", "1");
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command.stderr(log.expect("there is room for files"));
        self.workers.push(command.spawn().expect("a worker can be started"));
        self.started += 1;
    }

    fn url(&self) -> String {
        format!("nats://127.0.0.1:{}", self.port)
    }

    fn log(&self) -> PathBuf {
        self.folder.path().join("workers.log")
    }
}

impl Drop for LiveCluster {
    fn drop(&mut self) {
        let leaving = self.leaving.iter_mut().map(|(worker, ..)| worker);
        self.workers.iter_mut().chain(leaving).for_each(end);
        end(&mut self.server);
    }
}

/// A worker that has just ended is not there to be signalled.
fn signal(child: &Child, signal: Signal) {
    _ = kill_process(Pid::from_child(child), signal);
}

fn end(child: &mut Child) {
    // It may have ended.
    _ = child.kill();
    _ = child.wait();
}

/// Starts the broker, and waits until it serves.
fn serve(port: u16, folder: &Path) -> Child {
    let mut command = Command::new(nats_server().expect("cases of clusters are off without it"));
    command.args(["-js", "-a", "127.0.0.1", "-p", &port.to_string(), "-sd"]).arg(folder);
    command.arg("-l").arg(folder.join("broker.log")).stdout(Stdio::null()).stderr(Stdio::null());
    let server = command.spawn().expect("nats-server can be started");
    let greets = || {
        let mut greeting = [0; 4];
        let socket = TcpStream::connect(("127.0.0.1", port));
        socket.is_ok_and(|mut socket| socket.read_exact(&mut greeting).is_ok())
    };
    while !greets() {
        thread::sleep(Duration::from_millis(5));
    }
    server
}

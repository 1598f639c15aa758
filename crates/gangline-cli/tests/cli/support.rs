//! Starts the program, and inspects the result.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::AsFd;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, kill_process, kill_process_group};
use tempfile::TempDir;

/// Much longer than any test that ends, on a busy machine.
pub(crate) const DEADLINE: Duration = Duration::from_secs(120);

/// A directory in which the program is started. Its processes are recognised by their TMPDIR, and dropping
/// this kills them.
pub(crate) struct Place(TempDir);

impl Place {
    pub(crate) fn new() -> Place {
        let place = Place(tempfile::tempdir().unwrap());
        std::fs::create_dir(place.path("tmp")).unwrap();
        place
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    pub(crate) fn directory(&self) -> &Path {
        self.0.path()
    }

    pub(crate) fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub(crate) fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    /// The sorted names in a directory.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The program with these arguments, without the GPU variables of this process.
    pub(crate) fn gangline<S: AsRef<OsStr>>(
        &self,
        arguments: impl IntoIterator<Item = S>,
    ) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_gangline"));
        command.args(arguments).current_dir(self.directory()).stdin(Stdio::null());
        command.env_remove("CUDA_VISIBLE_DEVICES").env_remove("CUDA_DEVICE_ORDER");
        command.env("TMPDIR", self.path("tmp"));
        command
    }

    /// The same, split as by a shell: with quotes, without expansion.
    pub(crate) fn typed(&self, line: &str) -> Command {
        self.gangline(shlex::split(line).unwrap())
    }

    /// Runs `gangline run` with these arguments.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        let mut command = self.gangline(["run"]);
        command.args(arguments);
        self.ran(&mut command)
    }

    /// Runs `gangline run` with arguments as typed.
    #[track_caller]
    pub(crate) fn run_typed(&self, line: &str) -> Ran {
        self.run(shlex::split(line).unwrap())
    }

    /// The same with standard input.
    #[track_caller]
    pub(crate) fn run_typed_on(&self, line: &str, stdin: impl AsRef<[u8]>) -> Ran {
        let stdin = File::open(self.write("stdin", stdin)).unwrap();
        self.ran(self.typed(&format!("run {line}")).stdin(stdin))
    }

    /// Runs the program, and checks that no process is left.
    #[track_caller]
    pub(crate) fn ran(&self, command: &mut Command) -> Ran {
        let ran = self.start(command).ran();
        self.check_no_process_is_left();
        ran
    }

    /// Starts the program in a group of its own, as a shell does.
    pub(crate) fn start(&self, command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Running(Some(command.spawn().unwrap()))
    }

    #[track_caller]
    pub(crate) fn start_typed(&self, line: &str) -> Running {
        self.start(&mut self.typed(&format!("run {line}")))
    }

    /// Waits until a job has created a file with that name.
    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str) {
        wait_until(&format!("there is {name}"), || self.path(name).exists());
    }

    #[track_caller]
    pub(crate) fn check_no_process_is_left(&self) {
        wait_until("no process is left", || self.living().is_empty());
    }

    /// Live processes that were started here: a zombie has no environment.
    pub(crate) fn living(&self) -> Vec<Pid> {
        let mark = format!("TMPDIR={}\0", self.path("tmp").display()).into_bytes();
        let is_marked = |pid: &Pid| {
            std::fs::read(format!("/proc/{}/environ", pid.as_raw_pid()))
                .is_ok_and(|environment| environment.windows(mark.len()).any(|part| part == mark))
                && state(*pid).is_some_and(|state| state != 'Z')
        };
        processes().filter(is_marked).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.living().into_iter().for_each(|pid| {
            let _ = kill_process(pid, Signal::KILL);
        });
    }
}

/// The running program; dropping this kills it.
pub(crate) struct Running(pub(crate) Option<Child>);

impl Running {
    /// The supervisor.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().unwrap())
    }

    /// The process that runs the jobs.
    #[track_caller]
    pub(crate) fn engine(&self) -> Pid {
        let mut engine = None;
        wait_until("there is one that does the work", || {
            engine = processes().find(|pid| parent(*pid) == Some(self.pid()));
            engine.is_some()
        });
        engine.unwrap()
    }

    pub(crate) fn send(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Signals all processes of the group, as a terminal does; jobs are not in it.
    pub(crate) fn send_to_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap();
    }

    /// Waits until standard error contains `part`.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&mut self, part: &str) {
        self.read_stderr_until(part);
    }

    /// Reads standard error until it contains `part`, and returns what it has read.
    #[track_caller]
    pub(crate) fn read_stderr_until(&mut self, part: &str) -> String {
        let stderr = self.0.as_mut().unwrap().stderr.as_mut().unwrap();
        let mut said = Vec::new();
        let mut buffer = [0; 4_096];
        while !String::from_utf8_lossy(&said).contains(part) {
            let what = || format!("said {part:?} and not {:?}", String::from_utf8_lossy(&said));
            wait_to_read(stderr, &what());
            let read = stderr.read(&mut buffer).unwrap();
            assert_ne!(read, 0, "it ended and has not {}", what());
            said.extend_from_slice(&buffer[..read]);
        }
        String::from_utf8_lossy(&said).into_owned()
    }

    /// Closes the reading end of its output.
    pub(crate) fn close_stdout(&mut self) {
        self.0.as_mut().unwrap().stdout = None;
    }

    /// Reads from its output.
    #[track_caller]
    pub(crate) fn read_stdout(&mut self, buffer: &mut [u8]) {
        let stdout = self.0.as_mut().unwrap().stdout.as_mut().unwrap();
        for byte in buffer.chunks_mut(1) {
            wait_to_read(stdout, "printed so much");
            stdout.read_exact(byte).unwrap();
        }
    }

    /// Waits for its end, at most until the deadline.
    #[track_caller]
    pub(crate) fn ran(mut self) -> Ran {
        let child = self.0.take().unwrap();
        let pid = Pid::from_child(&child);
        let (sender, receiver) = mpsc::channel();
        let waiting = thread::spawn(move || drop(sender.send(child.wait_with_output())));
        let output = receiver.recv_timeout(DEADLINE);
        if output.is_err() {
            // The other process may be the one that hangs, and it holds the streams.
            let all = processes().filter(|other| *other == pid || parent(*other) == Some(pid));
            all.collect::<Vec<_>>().into_iter().for_each(|pid| {
                let _ = kill_process(pid, Signal::KILL);
            });
        }
        waiting.join().unwrap();
        Ran::of(output.expect("it ends before the deadline").unwrap())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// The exit status and output of the program.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) signal: Option<i32>,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

impl Ran {
    fn of(output: Output) -> Ran {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        let (stdout, stderr) = (text(output.stdout), text(output.stderr));
        Ran { code: output.status.code(), signal: output.status.signal(), stdout, stderr }
    }

    #[track_caller]
    pub(crate) fn check(&self, code: i32, stdout: &str) {
        assert_eq!((self.code, &*self.stdout), (Some(code), stdout), "{self:?}");
    }

    /// Checks the exit status, and that standard error contains all of `parts`.
    #[track_caller]
    pub(crate) fn check_said(&self, code: i32, parts: &[&str]) {
        assert_eq!(self.code, Some(code), "{self:?}");
        for part in parts {
            assert!(self.stderr.contains(part), "{part:?} is not in {self:?}");
        }
    }

    /// The lines of standard output, sorted.
    pub(crate) fn sorted(&self) -> Vec<&str> {
        let mut lines: Vec<&str> = self.stdout.lines().collect();
        lines.sort_unstable();
        lines
    }
}

/// Waits until data or the end of the stream is available.
#[track_caller]
fn wait_to_read(file: &impl AsFd, what: &str) {
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    let deadline = Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut fds, Some(&deadline)).unwrap();
    assert_eq!(ready, 1, "it has not {what} before the deadline");
}

/// Polls a condition without a notification; at the deadline the test fails.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "it never came to be that {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The state letter of a process; `None` if it does not exist.
pub(crate) fn state(pid: Pid) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

fn parent(pid: Pid) -> Option<Pid> {
    Pid::from_raw(stat(pid)?.get(1)?.parse().ok()?)
}

/// The text after the name of a process in `/proc`.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    Some(stat.rsplit_once(") ")?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

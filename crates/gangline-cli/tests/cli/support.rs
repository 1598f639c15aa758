//! Starting the program, and what it left.

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

/// Far more than anything takes that ends at all, on a machine that has much else to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(30);

/// A directory of its own, in which the program is started. Its processes are known by their TMPDIR, and none
/// of them outlives this.
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

    /// The names in a directory, in order.
    pub(crate) fn names(&self, directory: &str) -> Vec<String> {
        let entries = std::fs::read_dir(self.path(directory)).unwrap();
        let name = |entry: std::io::Result<std::fs::DirEntry>| entry.unwrap().file_name();
        let mut names: Vec<String> =
            entries.map(|entry| name(entry).into_string().unwrap()).collect();
        names.sort();
        names
    }

    /// The program with these arguments, without the variables of GPUs that this process may have.
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

    /// The same, as it would be typed into a shell: quotes and all, with nothing expanded.
    pub(crate) fn typed(&self, line: &str) -> Command {
        self.gangline(shlex::split(line).unwrap())
    }

    /// What `gangline run` with these arguments did.
    #[track_caller]
    pub(crate) fn run<S: AsRef<OsStr>>(&self, arguments: impl IntoIterator<Item = S>) -> Ran {
        let mut command = self.gangline(["run"]);
        command.args(arguments);
        self.ran(&mut command)
    }

    /// What `gangline run` did with these arguments, as they would be typed.
    #[track_caller]
    pub(crate) fn run_typed(&self, line: &str) -> Ran {
        self.run(shlex::split(line).unwrap())
    }

    /// The same with something on standard input.
    #[track_caller]
    pub(crate) fn run_typed_on(&self, line: &str, stdin: impl AsRef<[u8]>) -> Ran {
        let stdin = File::open(self.write("stdin", stdin)).unwrap();
        self.ran(self.typed(&format!("run {line}")).stdin(stdin))
    }

    /// What the program did, of which no process is left.
    #[track_caller]
    pub(crate) fn ran(&self, command: &mut Command) -> Ran {
        let ran = self.start(command).ran();
        self.check_no_process_is_left();
        ran
    }

    /// Starts the program, in a group of its own, as a shell would.
    pub(crate) fn start(&self, command: &mut Command) -> Running {
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
        Running(Some(command.spawn().unwrap()))
    }

    #[track_caller]
    pub(crate) fn start_typed(&self, line: &str) -> Running {
        self.start(&mut self.typed(&format!("run {line}")))
    }

    /// Waits until a job has made a file of that name.
    #[track_caller]
    pub(crate) fn wait_for(&self, name: &str) {
        wait_until(&format!("there is {name}"), || self.path(name).exists());
    }

    #[track_caller]
    pub(crate) fn check_no_process_is_left(&self) {
        wait_until("no process is left", || self.living().is_empty());
    }

    /// The processes that were started here and live: a zombie has no environment any more.
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

/// The program while it runs: killed when this is dropped.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// The process that a user sees.
    pub(crate) fn pid(&self) -> Pid {
        Pid::from_child(self.0.as_ref().unwrap())
    }

    /// The process that has the jobs.
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

    /// As a terminal does it: to all processes of the group, of which jobs are none.
    pub(crate) fn send_to_group(&self, signal: Signal) {
        kill_process_group(self.pid(), signal).unwrap();
    }

    /// Waits until it has said something on standard error that has `part` in it.
    #[track_caller]
    pub(crate) fn wait_for_stderr(&mut self, part: &str) {
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
    }

    /// Nobody reads its output any more.
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
            // The other may be what does not end, and holds the streams.
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

/// How the program ended, and what it printed.
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

    /// That it ended so, and said all of this on standard error.
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

/// Waits until there is something to read, or the end.
#[track_caller]
fn wait_to_read(file: &impl AsFd, what: &str) {
    let mut fds = [PollFd::new(file, PollFlags::IN)];
    let deadline = Timespec { tv_sec: DEADLINE.as_secs() as i64, tv_nsec: 0 };
    let ready = poll(&mut fds, Some(&deadline)).unwrap();
    assert_eq!(ready, 1, "it has not {what} before the deadline");
}

/// Waits for what nobody tells of. What never comes fails the test.
#[track_caller]
pub(crate) fn wait_until(what: &str, mut is_so: impl FnMut() -> bool) {
    let until = Instant::now() + DEADLINE;
    while !is_so() {
        assert!(Instant::now() < until, "it never came to be that {what}");
        thread::sleep(Duration::from_millis(10));
    }
}

/// The letter of what a process does; `None` if there is none of that number.
pub(crate) fn state(pid: Pid) -> Option<char> {
    stat(pid)?.first()?.chars().next()
}

fn parent(pid: Pid) -> Option<Pid> {
    Pid::from_raw(stat(pid)?.get(1)?.parse().ok()?)
}

/// What `/proc` has behind the name of a process.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_pid())).ok()?;
    Some(stat.rsplit_once(") ")?.1.split_ascii_whitespace().map(str::to_owned).collect())
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

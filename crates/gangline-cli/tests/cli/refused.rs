//! System calls that a container refuses, and a system without `/proc`.

use std::collections::BTreeMap;
use std::process::Command;
use std::thread;

use rustix::process::{Signal, kill_process};
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, TargetArch, apply_filter};

use crate::support::{Place, Ran, Running};

/// The numbers of system calls on this machine.
#[cfg(target_arch = "x86_64")]
mod call {
    pub(super) const PIDFD_OPEN: i64 = 434;
    pub(super) const EVENTFD: i64 = 290;
    pub(super) const PRCTL: i64 = 157;
    pub(super) const WAITID: i64 = 247;
    pub(super) const SOCKETPAIR: i64 = 53;
    pub(super) const IOCTL: i64 = 16;
    pub(super) const PRLIMIT64: i64 = 302;
    pub(super) const FACCESSAT: i64 = 269;
}

#[cfg(target_arch = "aarch64")]
mod call {
    pub(super) const PIDFD_OPEN: i64 = 434;
    pub(super) const EVENTFD: i64 = 19;
    pub(super) const PRCTL: i64 = 167;
    pub(super) const WAITID: i64 = 95;
    pub(super) const SOCKETPAIR: i64 = 199;
    pub(super) const IOCTL: i64 = 29;
    pub(super) const PRLIMIT64: i64 = 261;
    pub(super) const FACCESSAT: i64 = 48;
}

const ENOSYS: u32 = 38;
const EPERM: u32 = 1;

/// Calls `run` on a thread of its own. In this thread and its child processes, these calls fail with this error.
fn refusing<T: Send>(calls: &[i64], errno: u32, run: impl FnOnce() -> T + Send) -> T {
    let rules: BTreeMap<_, _> = calls.iter().map(|call| (*call, Vec::new())).collect();
    let arch: TargetArch = std::env::consts::ARCH.try_into().unwrap();
    let (allow, refuse) = (SeccompAction::Allow, SeccompAction::Errno(errno));
    let filter = SeccompFilter::new(rules, allow, refuse, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    thread::scope(|scope| {
        let thread = scope.spawn(|| {
            apply_filter(&program).unwrap();
            run()
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}

/// Runs the line twice; a container refuses calls with one of two errors.
fn refused(calls: &[i64], line: &str) -> [Ran; 2] {
    [ENOSYS, EPERM].map(|errno| {
        let place = Place::new();
        let start = || place.start_typed(line);
        let ran = refusing(calls, errno, start).ran();
        place.check_no_process_is_left();
        ran
    })
}

/// A job for each way to end.
const WAYS: &str = "-j2 --timeout 1 --shell -- 'case $1 in sleep) sleep 1000 ;; kill) kill -9 $$ ;; \
                    left) sleep 1000 & ;; esac; echo $1' ::: a sleep kill left";

#[test]
fn jobs_run_where_calls_are_refused() {
    use call::{EVENTFD, PIDFD_OPEN, WAITID};
    for calls in [&[PIDFD_OPEN][..], &[EVENTFD], &[PIDFD_OPEN, EVENTFD], &[WAITID]] {
        for ran in refused(calls, WAYS) {
            ran.check(2, "a\nleft\n");
            ran.check_said(2, &["job 2 was ended: it took longer", "job 3 was killed by SIGKILL"]);
        }
    }
}

#[test]
fn limits_that_cannot_be_read_are_not_raised() {
    for line in ["-j2 -- echo ::: a", "-j0 -- echo ::: a", "-- echo ::: a"] {
        for ran in refused(&[call::PRLIMIT64], line) {
            ran.check(0, "a\n");
        }
    }
}

#[test]
fn results_are_written_where_permissions_cannot_be_asked_for() {
    for results in ["out", "out/{}.txt", "out/{}/"] {
        for ran in refused(&[call::FACCESSAT], &format!("--results '{results}' -- echo ::: a")) {
            ran.check(0, "a\n");
        }
    }
}

const WORKER: &str = r#"
read -r hello
echo '{"gangline":1}'
while read -r line; do
    item=${line#*\"item\":}; item=${item%%,*}
    [ $item = 2 ] && kill -9 $$
    echo "{\"item\":$item,\"output\":$item}"
done
"#;

#[test]
fn workers_run_where_calls_are_refused() {
    for calls in [&[call::PIDFD_OPEN][..], &[call::EVENTFD], &[call::PIDFD_OPEN, call::EVENTFD]] {
        let place = Place::new();
        place.write("worker", WORKER);
        let start = || place.start_typed("-j1 --warm -- sh worker ::: a b c");
        let ran = refusing(calls, ENOSYS, start).ran();
        ran.check(1, "1\n3\n");
        place.check_no_process_is_left();
    }
}

#[test]
fn a_call_without_which_no_job_can_run_is_named() {
    for ran in refused(&[call::SOCKETPAIR], "-- echo ::: a") {
        ran.check(102, "");
        ran.check_said(102, &["this system refuses a call that gangline needs", "socketpair"]);
    }
    for ran in refused(&[call::IOCTL], "-- echo ::: a") {
        ran.check_said(102, &["ioctl(FIONBIO)"]);
    }
    for ran in refused(&[call::PIDFD_OPEN, call::WAITID], "-- echo ::: a") {
        ran.check_said(1, &["job 1 could not be started: waitid: "]);
    }
}

#[test]
fn a_run_that_cannot_adopt_orphans_says_so() {
    for ran in refused(&[call::PRCTL], "-- echo ::: a b") {
        ran.check(0, "a\nb\n");
        ran.check_said(0, &["refuses prctl(PR_SET_CHILD_SUBREAPER)"]);
    }
    for ran in refused(&[call::PRCTL, call::PIDFD_OPEN], "-- echo ::: a b") {
        ran.check_said(102, &["prctl(PR_SET_PDEATHSIG)"]);
    }
}

#[test]
fn no_job_outlives_a_run_where_calls_are_refused() {
    for victim in [Running::pid, Running::engine] {
        for script in ["sleep 1000", "trap \"\" HUP INT TERM USR2; while :; do sleep 1000; done"] {
            let place = Place::new();
            let line = format!("-j2 --shell -- 'touch $1; {script}' ::: 1 2 3");
            let running = refusing(&[call::PIDFD_OPEN], ENOSYS, || place.start_typed(&line));
            place.wait_for("1");
            place.wait_for("2");
            kill_process(victim(&running), Signal::KILL).unwrap();
            running.ran();
            place.check_no_process_is_left();
        }
    }
}

/// Runs jobs in a namespace with an empty `/proc` or `/dev`, as in an empty container.
/// The options of `unshare` with which a program may hide a directory from itself.
const HIDE: [&str; 3] = ["--user", "--map-root-user", "--mount"];

/// Whether the machine lets a test hide a directory.
fn may_hide() -> bool {
    let status = Command::new("unshare").args(HIDE).arg("true").status();
    status.is_ok_and(|status| status.success())
}

/// Starts the program with an empty directory in the place of another.
fn start_without(hidden: &str, place: &Place, line: &str) -> Running {
    let program = env!("CARGO_BIN_EXE_gangline");
    let script = format!("mount -t tmpfs none {hidden} && exec {program} {line}");
    let mut command = Command::new("unshare");
    command.args(HIDE).args(["sh", "-c", &script]).current_dir(place.directory());
    place.start(command.env("TMPDIR", place.path("tmp")))
}

#[test]
fn jobs_run_without_proc_and_without_dev() {
    if !may_hide() {
        return;
    }
    for (line, hidden) in [
        ("run -- echo ::: a b", "/proc"),
        ("run -j1 -- sh -c 'echo $1' sh ::: a b", "/proc"),
        ("run --tag -j1 -- false ::: b", "/proc"),
        ("run -- echo ::: a b", "/dev"),
        ("run -j1 -- sh -c 'cat; echo $1' sh ::: a b", "/dev"),
    ] {
        let place = Place::new();
        let ran = start_without(hidden, &place, line).ran();
        let direct = place.start(&mut place.typed(line)).ran();
        assert_eq!((ran.code, &ran.stdout), (direct.code, &direct.stdout), "{ran:?}");
    }
}

/// The supervisor finds them there.
#[test]
fn jobs_of_a_killed_child_live_on_without_proc() {
    if !may_hide() {
        return;
    }
    let place = Place::new();
    let line = "run -j1 --shell -- 'touch started; exec sleep 1000' ::: a";
    let running = start_without("/proc", &place, line);
    place.wait_for("started");
    kill_process(running.engine(), Signal::KILL).unwrap();
    running.ran().check(137, "");
    assert_eq!(place.living().len(), 1, "the job");
}

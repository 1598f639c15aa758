//! Workers after their coordinator was killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gangline::CfgNode;
use rustix::process::{
    Pid, PidfdFlags, PidfdGetfdFlags, Signal, getpid, kill_process, pidfd_getfd, pidfd_open,
};

use crate::chores::{Chore, await_end, builder, pid_in};
use crate::suite::tests;

tests![
    a_hook_ends_with_its_coordinator,
    an_init_ends_with_its_coordinator,
    an_idle_worker_ends_with_its_coordinator,
    a_worker_that_ends_its_state_ends_with_its_coordinator,
    a_worker_that_writes_an_answer_ends_with_its_coordinator,
    a_worker_ends_though_another_process_holds_its_socket,
];

const PHASE: &str = "GANGLINE_TEST_PHASE";
const FOLDER: &str = "GANGLINE_TEST_FOLDER";

/// Is the coordinator of a test, in this phase until it is killed.
pub fn coordinate_if_asked() {
    let (Ok(phase), Some(folder)) = (std::env::var(PHASE), std::env::var_os(FOLDER)) else {
        return;
    };
    let path = Path::new(&folder).join("pid");
    match phase.as_str() {
        "hook" => drop(builder(1).build().unwrap().run([Chore::HangOn(path)])),
        "forked" => {
            let mut pool = builder(1).build().unwrap();
            hold_sockets(&path.with_file_name("holder"));
            drop(pool.run([Chore::HangOn(path)]));
        }
        "init" => {
            let cfg = CfgNode::new().with("init", "hang").unwrap().with("note", path).unwrap();
            drop(builder(1).cfg(cfg).build());
        }
        "idle" => {
            let mut pool = builder(1).build().unwrap();
            write_pid(&path, &pool.run([Chore::Pid]).unwrap()[0]);
            loop {
                std::thread::park();
            }
        }
        "end" => {
            let cfg = CfgNode::new().with("end", "hang").unwrap().with("note", path).unwrap();
            drop(builder(1).cfg(cfg).build().unwrap().close());
        }
        // Its worker waits for room in the socket, which is not read any more.
        "stopped" => {
            let mut pool = builder(1).build().unwrap();
            for pid in pool.outputs([Chore::Pid, Chore::Large(64 << 20)]) {
                write_pid(&path, &pid.unwrap());
                kill_process(getpid(), Signal::STOP).unwrap();
            }
        }
        _ => unreachable!("{phase}"),
    }
    std::process::exit(0);
}

fn write_pid(path: &Path, pid: &str) {
    let part = path.with_extension("part");
    std::fs::write(&part, pid).unwrap();
    std::fs::rename(part, path).unwrap();
}

/// Starts processes that hold the sockets of this one open, as a fork would.
fn hold_sockets(path: &Path) {
    let own = pidfd_open(getpid(), PidfdFlags::empty()).unwrap();
    let mut holders = vec![];
    for entry in std::fs::read_dir("/proc/self/fd").unwrap() {
        let entry = entry.unwrap();
        let target = std::fs::read_link(entry.path()).unwrap_or_default();
        if target.to_string_lossy().starts_with("socket:") {
            let number = entry.file_name().to_str().unwrap().parse().unwrap();
            let socket = pidfd_getfd(&own, number, PidfdGetfdFlags::empty()).unwrap();
            #[expect(clippy::zombie_processes, reason = "this process is killed before it")]
            let holder = Command::new("sleep").arg("1000").stdin(socket).spawn().unwrap();
            holders.push(holder.id().to_string());
        }
    }
    std::fs::write(path, holders.join(" ")).unwrap();
}

/// Kills a coordinator in this phase, and waits for its worker to end.
fn kill_in(phase: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let mut coordinator = Command::new(std::env::current_exe().unwrap())
        .env(PHASE, phase)
        .env(FOLDER, directory.path())
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let path: PathBuf = directory.path().join("pid");
    let worker: Pid = pid_in(&path);
    kill_process(Pid::from_child(&coordinator), Signal::KILL).unwrap();
    coordinator.wait().unwrap();
    await_end(worker);
    directory
}

fn a_hook_ends_with_its_coordinator() {
    drop(kill_in("hook"));
}

fn an_init_ends_with_its_coordinator() {
    drop(kill_in("init"));
}

fn an_idle_worker_ends_with_its_coordinator() {
    drop(kill_in("idle"));
}

fn a_worker_that_ends_its_state_ends_with_its_coordinator() {
    drop(kill_in("end"));
}

fn a_worker_that_writes_an_answer_ends_with_its_coordinator() {
    drop(kill_in("stopped"));
}

fn a_worker_ends_though_another_process_holds_its_socket() {
    let directory = kill_in("forked");
    let holders = std::fs::read_to_string(directory.path().join("holder")).unwrap();
    let holders: Vec<i32> = holders.split(' ').map(|pid| pid.parse().unwrap()).collect();
    assert!(!holders.is_empty());
    for holder in holders {
        let holder = Pid::from_raw(holder).unwrap();
        kill_process(holder, Signal::KILL).expect("it lives on, with the socket");
    }
}

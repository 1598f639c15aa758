//! Workers after their coordinator was killed.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use gangline::CfgNode;
use rustix::process::{Pid, Signal, kill_process};

use crate::chores::{Chore, await_end, builder, pid_in, tests};

tests![
    a_hook_ends_with_its_coordinator,
    an_init_ends_with_its_coordinator,
    an_idle_worker_ends_with_its_coordinator,
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
            // Its descriptors are closed on exec, unlike those of a fork. So this holds what a fork would.
            let mut pool = builder(1).build().unwrap();
            drop(pool.run([Chore::HangOn(path)]));
        }
        "init" => {
            let cfg = CfgNode::new().with("init", "hang").unwrap();
            let build = std::thread::spawn(move || drop(builder(1).cfg(cfg).build()));
            std::fs::write(path, own_child().to_string()).unwrap();
            build.join().unwrap();
        }
        "idle" => {
            let mut pool = builder(1).build().unwrap();
            let pid = pool.run([Chore::Pid]).unwrap().remove(0);
            let part = path.with_extension("part");
            std::fs::write(&part, pid).unwrap();
            std::fs::rename(part, path).unwrap();
            loop {
                std::thread::park();
            }
        }
        _ => unreachable!("{phase}"),
    }
    std::process::exit(0);
}

/// The first child of this process.
fn own_child() -> u32 {
    loop {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap();
        let children = tasks
            .filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("children")).ok());
        if let Some(pid) = children.filter_map(|text| text.split(' ').next()?.parse().ok()).next() {
            return pid;
        }
        std::thread::yield_now();
    }
}

/// Kills a coordinator in this phase, and waits for its worker to end.
fn kill_in(phase: &str) {
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
}

fn a_hook_ends_with_its_coordinator() {
    kill_in("hook");
}

fn an_init_ends_with_its_coordinator() {
    kill_in("init");
}

fn an_idle_worker_ends_with_its_coordinator() {
    kill_in("idle");
}

fn a_worker_ends_though_another_process_holds_its_socket() {
    kill_in("forked");
}

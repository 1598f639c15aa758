//! Runs with a journal, of which processes or the coordinator are killed.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use gangline::process::Processes;
use rustix::process::{Pid, Signal, kill_process};

use crate::chores::await_end;
use crate::draw::{Draw, times};
use crate::lines::{self, LINES, Pace, WriterBuilder};
use crate::suite::tests;

tests![
    a_run_that_a_crash_has_ended_is_resumed_with_what_was_sent_ahead,
    coordinators_are_killed_at_any_moment,
];

fn a_run_that_a_crash_has_ended_is_resumed_with_what_was_sent_ahead() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    std::fs::write(lines::crash(folder), "").unwrap();
    let mut pool = in_processes(folder).build().unwrap();
    let error = pool.run(0..2000).unwrap_err();
    assert!(matches!(error, gangline::Error::HookCrashed { .. }), "{error:?}");
    assert_eq!(error.item(), Some(lines::CRASHES));
    std::fs::remove_file(lines::crash(folder)).unwrap();
    pool.run(0..2000).unwrap();
    let account = pool.account();
    // In input order, all before it are done, and none behind it.
    assert_eq!((account.already_done, account.ok), (lines::CRASHES, 2000 - lines::CRASHES));
    assert!(std::fs::read(lines::file(folder)).unwrap() == lines::on_threads(2000));
}

/// The run of [`lines`] in processes.
pub fn in_processes(folder: &Path) -> WriterBuilder {
    lines::resuming(folder, Pace::Quick).devices(3).processes(&LINES, Processes::new())
}

/// More items than are in flight.
const BEHIND: u64 = 1000;

fn coordinators_are_killed_at_any_moment() {
    let directory = tempfile::tempdir().unwrap();
    let folder = directory.path();
    let mut draw = Draw::of(3);
    for _ in 0..times(4, 60) {
        let mut coordinator = start(folder);
        // From before its first worker to the midst of its run.
        std::thread::sleep(draw.pause(0, 120));
        if draw.below(2) == 0 {
            let workers = started_by(&coordinator);
            let victim = workers.get(draw.below(workers.len().max(1)));
            // It may be gone.
            _ = victim.map(|victim| kill_process(*victim, Signal::KILL));
        }
        coordinator.kill().unwrap();
        coordinator.wait().unwrap();
        // Workers that it had not yet greeted end too.
        of_folder(folder).into_iter().for_each(await_end);
    }
    let count = lines::count(folder) + BEHIND;
    lines::end_after(folder, count);
    let status = start(folder).wait().unwrap();
    assert!(status.success(), "{status}: {}", lines::log(folder));
    let written = std::fs::read(lines::file(folder)).unwrap();
    assert!(written == lines::on_threads(count), "{count} lines");
    assert!(of_folder(folder).is_empty(), "no worker is left");
}

fn start(folder: &Path) -> Child {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.env(lines::FOLDER, folder).stdin(Stdio::null()).spawn().unwrap()
}

fn processes() -> impl Iterator<Item = Pid> {
    let entries = std::fs::read_dir("/proc").unwrap().flatten();
    entries.filter_map(|entry| Pid::from_raw(entry.file_name().to_str()?.parse().ok()?))
}

/// The children of a coordinator.
fn started_by(coordinator: &Child) -> Vec<Pid> {
    let parent = coordinator.id().to_string();
    let is_child = |pid: &Pid| {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", pid.as_raw_nonzero()));
        // The name before it may have spaces, and ends in a bracket.
        let stat = stat.unwrap_or_default();
        let rest = stat.rsplit_once(')').map_or("", |(_, rest)| rest);
        rest.split_whitespace().nth(1) == Some(parent.as_str())
    };
    processes().filter(is_child).collect()
}

/// The processes with the environment of a coordinator: itself, and its workers.
fn of_folder(folder: &Path) -> Vec<Pid> {
    let wanted = format!("{}={}", lines::FOLDER, folder.display());
    let has_it = |pid: &Pid| {
        let text = std::fs::read(format!("/proc/{}/environ", pid.as_raw_nonzero()));
        text.unwrap_or_default().split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
    };
    processes().filter(has_it).collect()
}

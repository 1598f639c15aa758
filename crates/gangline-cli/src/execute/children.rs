//! The children of this process, to which a child subreaper adds the orphans below it.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait, waitpid};

/// Kills all children, and their children, which then become children of this process.
pub(crate) fn kill_children() {
    kill_children_but(&[]);
}

/// The same, but for these children and their own.
pub(crate) fn kill_children_but(spared: &[Pid]) {
    // Without `/proc` the children cannot be found, and waiting for them could last for ever.
    while Path::new("/proc/self").exists() {
        let killed: Vec<Pid> = children().filter(|pid| !spared.contains(pid)).collect();
        killed.iter().for_each(|pid| send(*pid, Signal::KILL));
        if !spared.is_empty() {
            if killed.is_empty() {
                return;
            }
            // The end of a spared one is for the caller.
            killed.iter().for_each(|pid| _ = waitpid(Some(*pid), WaitOptions::empty()));
            continue;
        }
        match wait(WaitOptions::empty()) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => return,
        }
    }
}

fn children() -> impl Iterator<Item = Pid> {
    let me = getpid().as_raw_pid();
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers.filter(move |pid| parent(*pid) == Some(me)).filter_map(Pid::from_raw)
}

fn parent(pid: i32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may contain any character; the fields follow the last parenthesis.
    stat.rsplit_once(')')?.1.split_ascii_whitespace().nth(1)?.parse().ok()
}

/// Sends a signal to a process that may have ended.
pub(crate) fn send(pid: Pid, signal: Signal) {
    // A process that has ended gets none.
    let _ = kill_process(pid, signal);
}

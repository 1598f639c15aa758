//! The children of this process, to which a child subreaper adds the orphans below it.

use std::fs;
use std::path::Path;

use rustix::io::Errno;
use rustix::process::{Pid, Signal, WaitOptions, getpid, kill_process, wait};

/// Kills all children, and their children, which then become children of this process.
pub(crate) fn kill_children() {
    // Without `/proc` the children cannot be found, and waiting for them could last for ever.
    while Path::new("/proc/self").exists() {
        children().for_each(|pid| send(pid, Signal::KILL));
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

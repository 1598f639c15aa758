//! Measures the memory of a worker.

use std::fs;

use rustix::process::Pid;

use crate::devices;

/// What a figure of memory covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MemoryOf {
    /// All memory in use on the GPUs of the slot, also by other programs.
    Gpus,
    /// The peak of the worker's processes in RAM.
    Worker,
}

/// Returns the memory after a list, in bytes: of the GPUs of a slot, or of the processes of a worker on the CPU.
///
/// One reading after the list is enough. A framework keeps the GPU memory that it has taken, and Linux records the peak
/// of a process.
pub(super) fn in_use(gpus: &[usize], worker: Option<Pid>) -> Option<u64> {
    match gpus {
        [] => peak_of_group(worker?),
        gpus => devices::memory_used(gpus),
    }
}

/// Returns the sum of the peaks of the live processes of a group.
fn peak_of_group(group: Pid) -> Option<u64> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let peaks = processes.filter_map(|process| {
        let pid: u32 = process.file_name().to_str()?.parse().ok()?;
        (group_of(pid)? == group.as_raw_pid()).then(|| peak(pid)).flatten()
    });
    Some(peaks.sum()).filter(|bytes| *bytes > 0)
}

/// Returns the group of a process. `getpgid` of rustix panics for a thread of the kernel, which has no group.
fn group_of(pid: u32) -> Option<i32> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name of a program, in parentheses, may have spaces. Then come the state, the parent and the group.
    stat.rsplit_once(") ")?.1.split(' ').nth(2)?.parse().ok()
}

fn peak(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib << 10)
}

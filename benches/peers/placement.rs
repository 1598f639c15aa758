//! Where the peers' threads start: apart.
//!
//! A system that puts two of them on one CPU leaves them there for a while, and that is then measured
//! instead: `par_bridge` looks four times as fast without work, since its threads never meet at its
//! lock, and half as fast with work.

/// Moves this thread to one of the CPUs that it may run on, without binding it. Where that cannot be
/// done it stays where it is.
pub fn start_on(nth: usize) {
    #[cfg(target_os = "linux")]
    let _ = linux::move_to(nth);
    #[cfg(not(target_os = "linux"))]
    let _ = nth;
}

#[cfg(target_os = "linux")]
mod linux {
    use std::io;

    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

    pub fn move_to(nth: usize) -> io::Result<()> {
        let allowed = sched_getaffinity(None)?;
        let cpus: Vec<_> = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).collect();
        let mut only = CpuSet::new();
        only.set(cpus[nth % cpus.len()]);
        sched_setaffinity(None, &only)?;
        Ok(sched_setaffinity(None, &allowed)?)
    }
}

//! Starts the peers' threads on different CPUs, as gangline's producers are.
//! A system that starts two of them on one CPU leaves them there for a while, which would distort the result.
//! Without work, `par_bridge` looks four times as fast, since its threads never contend for its lock; with
//! work it looks half as fast.
//! lock, and half as fast with work.

/// Moves this thread to one of its allowed CPUs without binding it there. If that fails, the thread stays.
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

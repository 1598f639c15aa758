//! On which CPU a producer's thread starts.
//!
//! Where there are no more CPUs than producers, the feeder and the consumer wake up on them too, now
//! and then, and Linux may put two producers on one CPU meanwhile. It moves a thread when that wakes up
//! or when a CPU runs out of work for long; busy producers do not sleep, and the feeder and the
//! consumer keep their CPU from looking idle. On a virtual machine with two CPUs two producers then
//! shared one for 100 ms and more, in about every third run that followed on the building. So there
//! each begins on a CPU of its own. It is not bound to it, only moved there once: threads that begin
//! apart stay apart.

pub(crate) use self::system::spread;

#[cfg(target_os = "linux")]
mod system {
    use std::io;
    use std::sync::OnceLock;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use rustix::thread::{CpuSet, sched_getaffinity, sched_getcpu, sched_setaffinity};

    /// Which of the CPUs is next. Counted for the process, so that pools of one producer each do not
    /// meet on the first.
    static NEXT: OnceLock<AtomicUsize> = OnceLock::new();

    /// Moves this thread, one of so many `producers`, to the CPU whose turn it is, of those that it
    /// may run on, where these are no more than the producers. What the system refuses is left as it
    /// is: it costs time, not results.
    pub(crate) fn spread(producers: usize) {
        if let Err(error) = try_to_spread(producers) {
            tracing::debug!(%error, "a producer's thread starts where the system put it");
        }
    }

    fn try_to_spread(producers: usize) -> io::Result<()> {
        let allowed = sched_getaffinity(None)?;
        if producers < 2 || producers < allowed.count() as usize {
            return Ok(());
        }
        // The first goes beside the thread that happened to be here, which most likely feeds.
        let next = NEXT.get_or_init(|| AtomicUsize::new(sched_getcpu() + 1));
        move_to_nth(&allowed, next.fetch_add(1, Ordering::Relaxed))
    }

    fn move_to_nth(allowed: &CpuSet, place: usize) -> io::Result<()> {
        let Some(cpu) = nth(allowed, place) else { return Ok(()) };
        let mut only = CpuSet::new();
        only.set(cpu);
        sched_setaffinity(None, &only)?;
        // What was allowed may have changed meanwhile, and the system takes what is allowed out of all.
        Ok(sched_setaffinity(None, allowed).or_else(|_| sched_setaffinity(None, &all()))?)
    }

    fn all() -> CpuSet {
        let mut all = CpuSet::new();
        (0..CpuSet::MAX_CPU).for_each(|cpu| all.set(cpu));
        all
    }

    /// Goes round the CPUs of a set.
    fn nth(set: &CpuSet, place: usize) -> Option<usize> {
        let cpus = || (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu));
        cpus().nth(place.checked_rem(cpus().count())?)
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn places_go_round_the_cpus_that_are_allowed() {
            let mut set = CpuSet::new();
            assert_eq!(nth(&set, 5), None);
            [3, 4, 70].into_iter().for_each(|cpu| set.set(cpu));
            let places: Vec<_> = (0..5).map(|place| nth(&set, place)).collect();
            assert_eq!(places, [Some(3), Some(4), Some(70), Some(3), Some(4)]);
        }

        #[test]
        fn a_thread_that_was_moved_is_not_bound() {
            std::thread::spawn(|| {
                let before = sched_getaffinity(None).unwrap();
                for place in 0..3 {
                    move_to_nth(&before, place).unwrap();
                    assert_eq!(sched_getaffinity(None).unwrap(), before);
                }
            })
            .join()
            .unwrap();
        }
    }
}

#[cfg(not(target_os = "linux"))]
mod system {
    /// Other systems place threads by themselves.
    pub(crate) fn spread(_producers: usize) {}
}

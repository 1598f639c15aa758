//! The number of threads that a CPU producer computes with.

use std::env;

use super::Devices;

/// The number of threads that each CPU producer computes with: see
/// [`Builder::cpu_threads`](crate::Builder::cpu_threads).
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CpuThreads {
    /// A rayon pool for each CPU producer, with its share of the cores: their number divided by that of
    /// those producers, rounded down, and at least one.
    ///
    /// The cores are those that this process may use (by its affinity and its container's limit), or as
    /// many as the variable `RAYON_NUM_THREADS` says. A single CPU producer has all of them, so it uses the
    /// global pool, which starts no thread before it is needed.
    #[default]
    Share,
    /// A rayon pool for each CPU producer, with this number of threads, the producer's own among them.
    /// [`build`](crate::Builder::build) refuses 0.
    Exactly(usize),
    /// No pools: rayon in a hook uses its global pool, which all producers and the rest of the program
    /// share.
    Global,
}

impl CpuThreads {
    /// Returns the number of threads of each pool; `None` without pools.
    pub(crate) fn each(self, devices: &Devices) -> Option<usize> {
        match self {
            CpuThreads::Share => share(cores(), devices.count_on_cpu()),
            CpuThreads::Exactly(threads) => Some(threads),
            CpuThreads::Global => None,
        }
    }
}

impl From<usize> for CpuThreads {
    fn from(threads: usize) -> Self {
        CpuThreads::Exactly(threads)
    }
}

fn share(cores: usize, producers: usize) -> Option<usize> {
    (producers > 1).then(|| (cores / producers).max(1))
}

/// Returns the size of rayon's global pool, which the pools replace.
pub(super) fn cores() -> usize {
    let asked = env::var("RAYON_NUM_THREADS").ok().and_then(|text| text.parse().ok());
    asked.filter(|threads| *threads > 0).unwrap_or_else(num_cpus::get)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_are_shared_out_and_nobody_goes_without() {
        let shares = [2, 3, 8, 9, 65_536].map(|producers| share(8, producers));
        assert_eq!(shares, [4, 2, 1, 1, 1].map(Some));
        assert_eq!(
            [0, 1].map(|producers| share(8, producers)),
            [None, None],
            "no other producer to share with"
        );
    }

    #[test]
    fn only_places_with_the_cpu_count() {
        let devices: Devices = "cuda:0*4,cuda:1+cpu,cpu*2".parse().unwrap();
        assert_eq!(devices.count_on_cpu(), 3);
        assert_eq!(CpuThreads::Exactly(5).each(&devices), Some(5));
        assert_eq!(CpuThreads::Global.each(&devices), None);
    }
}

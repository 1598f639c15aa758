//! What holds jobs back although a slot is free: a delay, the load, the memory, and a number in a file.

use std::fmt;
use std::fs;
use std::path::Path;
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use crate::args::workers::in_file;
use crate::locking::lock;
use crate::plan::rules::StartLimits;

/// Counts the running jobs of all lanes, and says when the next may start.
#[derive(Debug)]
pub(crate) struct Brake {
    limits: StartLimits,
    /// The jobs that the workers of a cluster can run at once now, if jobs run there.
    elsewhere: OnceLock<Capacity>,
    state: Mutex<BrakeState>,
}

struct Capacity(Box<dyn Fn() -> usize + Send + Sync>);

impl fmt::Debug for Capacity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (self.0)().fmt(f)
    }
}

#[derive(Debug, Default)]
struct BrakeState {
    running: usize,
    last_start: Option<Instant>,
    /// The number that the file had when it last had one.
    most: Option<usize>,
    told: Option<Instant>,
}

/// Why a job may not start yet.
#[derive(Debug)]
pub(crate) struct StartDelay {
    /// When to look again, unless a job ends before.
    pub(crate) look_again: Duration,
    /// The option that holds it back.
    pub(crate) by: &'static str,
    /// A message for the user.
    pub(crate) message: Option<String>,
}

/// How often the load, the memory and the file are looked at while a job waits for them. Nothing reports
/// their changes.
const INTERVAL: Duration = Duration::from_secs(1);

/// The least time between two starts with a limit on the load: a process that was just started does not
/// count yet.
const LOAD_GAP: Duration = Duration::from_millis(100);

const LOAD: &str = "--load";

/// The least time between two reports of a wait.
const REPORT_EVERY: Duration = Duration::from_secs(60);

impl Brake {
    pub(crate) fn new(limits: StartLimits) -> Brake {
        Brake { limits, elsewhere: OnceLock::new(), state: Mutex::default() }
    }

    /// Lets no more jobs run at once than `capacity` says.
    #[cfg(feature = "nats")]
    pub(crate) fn follow(&self, capacity: Box<dyn Fn() -> usize + Send + Sync>) {
        self.elsewhere.get_or_init(|| Capacity(capacity));
    }

    /// Whether jobs start as soon as a slot is free.
    pub(crate) fn is_off(&self) -> bool {
        let StartLimits { delay, load, memfree, jobs, .. } = &self.limits;
        let has_room = self.elsewhere.get().is_none();
        delay.is_zero() && load.is_none() && memfree.is_none() && jobs.is_none() && has_room
    }

    /// Whether the end of a job may let another start.
    pub(crate) fn counts_jobs(&self) -> bool {
        self.limits.jobs.is_some() || self.elsewhere.get().is_some()
    }

    /// The number of jobs at once that a file has, if a file says it.
    pub(crate) fn jobs_in_file(&self) -> Option<usize> {
        in_file(self.limits.jobs.as_deref()?).map(|amount| amount.count(num_cpus::get(), None))
    }

    /// Whether jobs are ended while memory is scarce.
    pub(crate) fn watches_memory(&self) -> bool {
        self.limits.memfree.is_some()
    }

    /// Counts a job as started, if it may start now.
    pub(crate) fn try_start(&self) -> Result<(), StartDelay> {
        let mut state = lock(&self.state);
        if let Some(held) = self.held(&mut state) {
            return Err(held);
        }
        state.running += 1;
        state.last_start = Some(Instant::now());
        Ok(())
    }

    pub(crate) fn end(&self) {
        let mut state = lock(&self.state);
        state.running = state.running.saturating_sub(1);
    }

    /// Whether less than half of the memory is available that a job needs to start.
    pub(crate) fn lacks_memory(&self) -> bool {
        let available = self.limits.memfree.and_then(|_| self.available_memory());
        available
            .is_some_and(|available| Some(available) < self.limits.memfree.map(|least| least / 2))
    }

    fn held(&self, state: &mut BrakeState) -> Option<StartDelay> {
        let quietly = |look_again, by| Some(StartDelay { look_again, by, message: None });
        if let Some(Capacity(capacity)) = self.elsewhere.get()
            && state.running >= capacity()
        {
            return quietly(INTERVAL, "--nats");
        }
        if self.limits.jobs.is_some() {
            state.most = self.jobs_in_file().or(state.most);
            if state.most.is_some_and(|most| state.running >= most) {
                return quietly(INTERVAL, "-j");
            }
        }
        let gap = match self.limits.load {
            Some(_) => self.limits.delay.max(LOAD_GAP),
            None => self.limits.delay,
        };
        let since = state.last_start.map(|start| start.elapsed());
        if let Some(left) =
            since.and_then(|since| gap.checked_sub(since)).filter(|left| !left.is_zero())
        {
            let by = if gap > self.limits.delay { LOAD } else { "--delay" };
            return quietly(left, by);
        }
        let by_load = self.load_message().map(|message| (LOAD, message));
        let (by, message) = by_load.or_else(|| Some(("--memfree", self.memory_message()?)))?;
        let is_due = state.told.is_none_or(|told| told.elapsed() >= REPORT_EVERY);
        if is_due {
            state.told = Some(Instant::now());
        }
        Some(StartDelay { look_again: INTERVAL, by, message: Some(message).filter(|_| is_due) })
    }

    fn load_message(&self) -> Option<String> {
        let limit = self.limits.load?;
        let running = running_processes()?;
        let is_over = running as f64 >= limit && running > 0;
        is_over.then(|| {
            format!("waiting to start jobs: {running} processes run, and --load allows fewer than {limit}")
        })
    }

    fn memory_message(&self) -> Option<String> {
        let least = self.limits.memfree?;
        let available = self.available_memory()?;
        (available < least).then(|| {
            let mebibytes = |bytes: u64| bytes >> 20;
            format!(
                "waiting to start jobs: {} MiB of memory are available, and --memfree asks for {} MiB",
                mebibytes(available),
                mebibytes(least)
            )
        })
    }

    /// The memory that new processes can have without swapping, in bytes.
    fn available_memory(&self) -> Option<u64> {
        let path = self.limits.meminfo.as_deref().unwrap_or(Path::new("/proc/meminfo"));
        let info = fs::read_to_string(path).ok()?;
        let line = info.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok().map(|kib| kib << 10)
    }
}

/// The processes and threads of the machine that run or wait for a disk, without this thread.
fn running_processes() -> Option<u64> {
    let stat = fs::read_to_string("/proc/stat").ok()?;
    let value = |name: &str| {
        let line = stat.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|value| value.trim().parse::<u64>().ok())
    };
    Some(value("procs_running")?.saturating_sub(1) + value("procs_blocked").unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_delay_lies_between_two_starts() {
        let brake =
            Brake::new(StartLimits { delay: Duration::from_secs(60), ..StartLimits::default() });
        assert!(brake.try_start().is_ok());
        let held = brake.try_start().unwrap_err();
        assert!(held.look_again > Duration::from_secs(50) && held.message.is_none(), "{held:?}");
    }

    #[test]
    fn a_wait_for_memory_is_reported_once() {
        let brake = Brake::new(StartLimits { memfree: Some(u64::MAX), ..StartLimits::default() });
        let held = brake.try_start().unwrap_err();
        assert!(held.message.unwrap().contains("--memfree asks for"));
        assert!(brake.try_start().unwrap_err().message.is_none());
    }

    #[test]
    fn half_of_the_memory_may_be_used_up() {
        let directory = tempfile::tempdir().unwrap();
        let meminfo = directory.path().join("meminfo");
        let limits = StartLimits {
            memfree: Some(8 << 20),
            meminfo: Some(meminfo.clone()),
            ..StartLimits::default()
        };
        let brake = Brake::new(limits);
        for (available, may_start, lacks) in
            [("8192 kB", true, false), ("8191 kB", false, false), ("4095 kB", false, true)]
        {
            fs::write(&meminfo, format!("MemTotal: 9000 kB\nMemAvailable:   {available}\n"))
                .unwrap();
            assert_eq!((brake.try_start().is_ok(), brake.lacks_memory()), (may_start, lacks));
        }
        assert!(!Brake::new(StartLimits::default()).lacks_memory());
    }

    #[test]
    fn the_machine_can_be_asked() {
        let brake = Brake::new(StartLimits::default());
        assert!(running_processes().is_some() && brake.available_memory().is_some());
    }

    #[test]
    fn a_file_says_how_many_run() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("jobs");
        fs::write(&path, "1").unwrap();
        let brake = Brake::new(StartLimits { jobs: Some(path.clone()), ..StartLimits::default() });
        assert!(brake.try_start().is_ok());
        assert!(brake.try_start().is_err());
        fs::write(&path, "2").unwrap();
        assert!(brake.try_start().is_ok());
        fs::write(&path, "").unwrap();
        assert!(brake.try_start().is_err(), "the number that it had still counts");
        brake.end();
        assert!(brake.try_start().is_ok());
    }
}

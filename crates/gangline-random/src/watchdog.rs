//! Ends the program if a case does not end, and records panics that no fault asked for.

use std::fmt::Debug;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::laws::Broken;
use crate::live;

/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);

/// That of a cluster, whose items may wait for several leases, and for minutes after nats-server 2.9 was killed.
const LONG_LIMIT: Duration = Duration::from_secs(240);

pub(crate) struct Watchdog {
    begin: Instant,
    /// When the case has to have ended, in milliseconds from `begin`; 0 between cases.
    end: Arc<AtomicU64>,
}

impl Watchdog {
    pub(crate) fn start() -> Self {
        let watchdog = Watchdog { begin: Instant::now(), end: Arc::default() };
        let (begin, end) = (watchdog.begin, watchdog.end.clone());
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(500));
                let end = end.load(Ordering::Acquire);
                if end > 0 && begin.elapsed().as_millis() as u64 > end {
                    let seed = SEED.load(Ordering::Acquire);
                    println!("no hang: --seed {seed} has not ended in time: {}", live::stages());
                    println!("  {}", PLAN.lock().unwrap_or_else(PoisonError::into_inner));
                    #[cfg(target_os = "linux")]
                    live::kill_children();
                    std::process::exit(1);
                }
            }
        });
        watchdog
    }

    pub(crate) fn begin(&self, seed: u64, is_long: bool) {
        SEED.store(seed, Ordering::Release);
        note_plan(&"");
        let end = self.begin.elapsed() + if is_long { LONG_LIMIT } else { LIMIT };
        self.end.store(end.as_millis() as u64, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.end.store(0, Ordering::Release);
    }
}

/// The seed of the case in progress.
static SEED: AtomicU64 = AtomicU64::new(0);

/// What the case in progress composes, if it has said so.
static PLAN: Mutex<String> = Mutex::new(String::new());

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes what the case composes, to be told if it hangs.
pub(crate) fn note_plan(plan: &impl Debug) {
    *PLAN.lock().unwrap_or_else(PoisonError::into_inner) = format!("{plan:?}");
}

/// Keeps silent about panics that are faults of items, and records others.
pub(crate) fn watch_panics() {
    std::panic::set_hook(Box::new(|info| {
        let payload = info.payload();
        let text = payload.downcast_ref::<String>().map(String::as_str);
        let text = text.or(payload.downcast_ref::<&str>().copied()).unwrap_or("no text");
        if !text.starts_with("fault") {
            let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
            let place = info.location().map_or_else(String::new, ToString::to_string);
            let seed = SEED.load(Ordering::Acquire);
            // At once, since a panic in a drop ends the program.
            println!("panic in --seed {seed}: {text}, at {place}");
            panics.push(format!("{text}, at {place}"));
        }
    }));
}

pub(crate) fn unexpected_panics() -> Vec<Broken> {
    let panics = std::mem::take(&mut *PANICS.lock().unwrap_or_else(PoisonError::into_inner));
    let broken = |detail| Broken { law: "no panic of the framework", detail };
    panics.into_iter().map(broken).collect()
}

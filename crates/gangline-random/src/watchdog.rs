//! Ends the program if a case does not end, and records panics that no fault asked for.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use crate::laws::Broken;
use crate::live;

/// A case that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(30);

pub(crate) struct Watchdog {
    begin: Instant,
    /// When the case began, in milliseconds from `begin`, plus one; 0 between cases.
    since: Arc<AtomicU64>,
}

impl Watchdog {
    pub(crate) fn start() -> Self {
        let watchdog = Watchdog { begin: Instant::now(), since: Arc::default() };
        let (begin, since) = (watchdog.begin, watchdog.since.clone());
        thread::spawn(move || {
            loop {
                thread::sleep(Duration::from_millis(500));
                let began = since.load(Ordering::Acquire);
                let limit = began.saturating_add(LIMIT.as_millis() as u64);
                if began > 0 && begin.elapsed().as_millis() as u64 > limit {
                    let seed = SEED.load(Ordering::Acquire);
                    println!(
                        "no hang: --seed {seed} has not ended in {LIMIT:?}: {}",
                        live::stages()
                    );
                    std::process::exit(1);
                }
            }
        });
        watchdog
    }

    pub(crate) fn begin(&self, seed: u64) {
        SEED.store(seed, Ordering::Release);
        self.since.store(self.begin.elapsed().as_millis() as u64 + 1, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.since.store(0, Ordering::Release);
    }
}

/// The seed of the case in progress.
static SEED: AtomicU64 = AtomicU64::new(0);

static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

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

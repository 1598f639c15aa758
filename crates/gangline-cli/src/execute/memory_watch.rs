//! `--memfree`: ends the youngest job while memory is scarce.

use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::execute::lane::Lanes;

/// A thread that looks at the available memory while jobs run. Dropping this ends it.
#[derive(Debug)]
pub(super) struct MemoryWatch {
    ending: Option<Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

/// Nothing reports that memory gets scarce.
const INTERVAL: Duration = Duration::from_secs(1);

impl MemoryWatch {
    pub(super) fn start(lanes: &Lanes) -> io::Result<MemoryWatch> {
        let (ending, ended) = mpsc::channel();
        let lanes = lanes.clone();
        let watch = move || {
            while ended.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
                if lanes.shared.brake.lacks_memory() {
                    lanes.groups().recall_youngest();
                }
            }
        };
        let thread = thread::Builder::new().name("gangline-memory".to_owned()).spawn(watch)?;
        Ok(MemoryWatch { ending: Some(ending), thread: Some(thread) })
    }
}

impl Drop for MemoryWatch {
    fn drop(&mut self) {
        self.ending = None;
        if let Some(thread) = self.thread.take() {
            // A panic of the thread was printed; the run is complete.
            let _ = thread.join();
        }
    }
}

//! What the hooks and the input of the suite note in this process.

use std::path::{Path, PathBuf};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;

/// What the consumer does with one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Act {
    Fail,
    Panic,
    Stop,
}

/// The notes of one pool.
#[derive(Debug, Default)]
pub(super) struct PoolRecord {
    progress: Mutex<RecordedProgress>,
    changed: Condvar,
    act: Option<(u64, Act)>,
    alive: Option<Sender<()>>,
    /// The folder for notes about states.
    notes: Option<PathBuf>,
}

/// How far a run is.
#[derive(Debug, Default)]
pub(super) struct RecordedProgress {
    pub(super) pulled: u64,
    /// The largest number of items that were pulled and not consumed.
    pub(super) most_in_flight: u64,
    pub(super) consumed: Vec<u64>,
    pub(super) skipped: Vec<u64>,
    /// Calls of `consumer_end`.
    pub(super) ends: u64,
    /// The run has returned.
    pub(super) is_over: bool,
}

impl PoolRecord {
    pub(super) fn new() -> Self {
        Self::default()
    }

    /// Has the consumer do this with the answer of that number.
    pub(super) fn with_act(number: u64, act: Act) -> Self {
        PoolRecord { act: Some((number, act)), ..Self::default() }
    }

    /// Keeps the sender as long as anything of the pool lives.
    pub(super) fn with_alive(alive: Sender<()>) -> Self {
        PoolRecord { alive: Some(alive), ..Self::default() }
    }

    /// Has states leave notes in this folder.
    pub(super) fn with_notes(folder: &Path) -> Self {
        PoolRecord { notes: Some(folder.to_owned()), ..Self::default() }
    }

    pub(super) fn notes(&self) -> Option<&Path> {
        self.notes.as_deref()
    }

    pub(super) fn alive(&self) -> Option<Sender<()>> {
        self.alive.clone()
    }

    pub(super) fn act_at(&self, number: u64) -> Option<Act> {
        self.act.filter(|(at, _)| *at == number).map(|(_, act)| act)
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut RecordedProgress)) {
        change(&mut self.progress());
        self.changed.notify_all();
    }

    /// An item is pulled.
    pub(super) fn pull(&self) {
        self.change(|progress| {
            progress.pulled += 1;
            let done = progress.consumed.len() + progress.skipped.len();
            let in_flight = progress.pulled.saturating_sub(done as u64);
            progress.most_in_flight = progress.most_in_flight.max(in_flight);
        });
    }

    /// Waits until the run is that far, or over. Returns whether it is that far.
    pub(super) fn wait_until(&self, is_far: impl Fn(&RecordedProgress) -> bool) -> bool {
        let mut progress = self.progress();
        while !is_far(&progress) && !progress.is_over {
            progress = self.changed.wait(progress).unwrap_or_else(PoisonError::into_inner);
        }
        is_far(&progress)
    }

    pub(super) fn progress(&self) -> MutexGuard<'_, RecordedProgress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

//! The warm workers of a lane, by slot.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};

use crate::execute::conversation::Conversation;
use crate::execute::protocol::Takes;
use crate::output::capture::Spill;

/// The workers, each with its slot. A slot that is given up takes no more jobs; its producer shares another
/// slot's worker.
pub(super) struct WorkerSlots {
    slots: Mutex<Vec<WorkerSlot>>,
    changed: Condvar,
}

enum WorkerSlot {
    Free(Worker),
    Taken,
    GivenUp,
}

/// The state of one slot.
#[derive(Default)]
pub(super) struct Worker {
    pub(super) conversation: Option<Box<Conversation>>,
    /// What it has said that it takes.
    pub(super) takes: Takes,
    pub(super) spill: Arc<Spill>,
    /// Consecutive starts that failed.
    pub(super) unready: u32,
    /// Items at which it ended, without a result in between.
    pub(super) deaths: u32,
}

impl Worker {
    /// The conversation with a worker that was started.
    pub(super) fn conversation(&mut self) -> &mut Conversation {
        self.conversation.as_mut().expect("the worker was started")
    }
}

/// The state of a worker that was borrowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    GoesOn,
    GivenUp,
}

impl WorkerSlots {
    pub(super) fn new(slots: usize) -> WorkerSlots {
        let slots = (0..slots).map(|_| WorkerSlot::Free(Worker::default())).collect();
        WorkerSlots { slots: Mutex::new(slots), changed: Condvar::new() }
    }

    /// Waits for the worker of a slot, or for any other if that one is given up or to be avoided. Returns
    /// `None` if there is none.
    pub(super) fn take(&self, slot: usize, avoided: Option<usize>) -> Option<(usize, Worker)> {
        let mut slots = self.slots();
        loop {
            let is_here = |index: usize| !matches!(slots[index], WorkerSlot::GivenUp);
            let has_other = (0..slots.len()).any(|index| Some(index) != avoided && is_here(index));
            let avoided = avoided.filter(|_| has_other);
            let only_own = is_here(slot) && avoided.is_none();
            let wanted = |index: &usize| {
                matches!(slots[*index], WorkerSlot::Free(_))
                    && Some(*index) != avoided
                    && (!only_own || *index == slot)
            };
            let free = (0..slots.len()).find(wanted);
            if let Some(index) = free
                && let WorkerSlot::Free(worker) =
                    std::mem::replace(&mut slots[index], WorkerSlot::Taken)
            {
                return Some((index, worker));
            }
            if slots.iter().all(|index| matches!(index, WorkerSlot::GivenUp)) {
                return None;
            }
            slots = self.changed.wait(slots).expect("nothing panics with the lock held");
        }
    }

    /// Looks at a worker that is not taken.
    pub(super) fn look<T>(&self, slot: usize, at: impl FnOnce(&Worker) -> T) -> Option<T> {
        match &self.slots()[slot] {
            WorkerSlot::Free(worker) => Some(at(worker)),
            WorkerSlot::Taken | WorkerSlot::GivenUp => None,
        }
    }

    pub(super) fn give_back(&self, index: usize, worker: Worker) -> Fate {
        self.slots()[index] = WorkerSlot::Free(worker);
        self.changed.notify_all();
        Fate::GoesOn
    }

    /// The number of slots that are left.
    pub(super) fn give_up(&self, index: usize) -> usize {
        let mut slots = self.slots();
        slots[index] = WorkerSlot::GivenUp;
        self.changed.notify_all();
        slots.iter().filter(|index| !matches!(index, WorkerSlot::GivenUp)).count()
    }

    /// The worker of a slot, which is no longer used.
    pub(super) fn leave(&self, slot: usize) -> Option<Worker> {
        match std::mem::replace(&mut self.slots()[slot], WorkerSlot::GivenUp) {
            WorkerSlot::Free(worker) => Some(worker),
            WorkerSlot::Taken | WorkerSlot::GivenUp => None,
        }
    }

    fn slots(&self) -> MutexGuard<'_, Vec<WorkerSlot>> {
        self.slots.lock().expect("nothing panics with the lock held")
    }
}

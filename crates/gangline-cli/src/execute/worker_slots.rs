//! The warm workers of a lane, by slot.

use std::sync::{Arc, Condvar, Mutex};

use crate::execute::conversation::Conversation;
use crate::execute::protocol::MessageForm;
use crate::execute::start_history::{FailedStart, StartVerdict};
use crate::locking::lock;
use crate::output::capture::Spill;

/// The workers, each with its slot. A slot that is given up takes no more jobs; its producer shares another
/// slot's worker.
pub(super) struct WorkerSlots {
    state: Mutex<SlotStates>,
    changed: Condvar,
}

struct SlotStates {
    slots: Vec<WorkerSlot>,
    /// The slot whose worker is being replaced. Its producer shares another slot's worker meanwhile.
    away: Option<usize>,
}

enum WorkerSlot {
    Free(SlotWorker),
    Taken,
    GivenUp,
}

/// The state of one slot.
#[derive(Default)]
pub(super) struct SlotWorker {
    pub(super) conversation: Option<Box<Conversation>>,
    /// What it has said that it takes.
    pub(super) takes: MessageForm,
    pub(super) spill: Arc<Spill>,
    /// Its last start, if that failed, and what follows from it.
    pub(super) failed_start: Option<FailedStart>,
    pub(super) verdict: StartVerdict,
    /// Consecutive starts that failed.
    pub(super) unready: u32,
    /// Items at which it ended, without a result in between.
    pub(super) deaths: u32,
}

impl SlotWorker {
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
        let slots = (0..slots).map(|_| WorkerSlot::Free(SlotWorker::default())).collect();
        let state = Mutex::new(SlotStates { slots, away: None });
        WorkerSlots { state, changed: Condvar::new() }
    }

    /// Waits for the worker of a slot, or for any other worker if the slot is given up, away or to be avoided. Returns
    /// `None` if all slots are given up.
    pub(super) fn take(&self, slot: usize, avoided: Option<usize>) -> Option<(usize, SlotWorker)> {
        let mut state = lock(&self.state);
        loop {
            let slots = &state.slots;
            let is_here = |index: usize| {
                state.away != Some(index) && !matches!(slots[index], WorkerSlot::GivenUp)
            };
            let has_other = (0..slots.len()).any(|index| Some(index) != avoided && is_here(index));
            let avoided = avoided.filter(|_| has_other);
            let only_own = is_here(slot) && avoided.is_none();
            let wanted = |index: &usize| {
                matches!(slots[*index], WorkerSlot::Free(_))
                    && is_here(*index)
                    && Some(*index) != avoided
                    && (!only_own || *index == slot)
            };
            let free = (0..slots.len()).find(wanted);
            if let Some(index) = free
                && let Some(worker) = state.take_free(index)
            {
                return Some((index, worker));
            }
            if state.slots.iter().all(|slot| matches!(slot, WorkerSlot::GivenUp)) {
                return None;
            }
            state = self.changed.wait(state).expect("nothing panics with the lock held");
        }
    }

    /// Calls `at` with the worker of a slot. Returns `None` if the worker is taken, or the slot given up.
    pub(super) fn look<T>(&self, slot: usize, at: impl FnOnce(&SlotWorker) -> T) -> Option<T> {
        match &lock(&self.state).slots[slot] {
            WorkerSlot::Free(worker) => Some(at(worker)),
            WorkerSlot::Taken | WorkerSlot::GivenUp => None,
        }
    }

    pub(super) fn give_back(&self, index: usize, worker: SlotWorker) -> Fate {
        lock(&self.state).slots[index] = WorkerSlot::Free(worker);
        self.changed.notify_all();
        Fate::GoesOn
    }

    /// Waits until the worker of a slot is free, and takes it away to be replaced. Returns `None` if the slot is given
    /// up.
    pub(super) fn send_away(&self, slot: usize) -> Option<SlotWorker> {
        let mut state = lock(&self.state);
        // No further list takes this worker, so the wait ends with the list that it has.
        state.away = Some(slot);
        self.changed.notify_all();
        let is_taken = |state: &mut SlotStates| matches!(state.slots[slot], WorkerSlot::Taken);
        let waited = self.changed.wait_while(state, is_taken);
        let mut state = waited.expect("nothing panics with the lock held");
        let worker = state.take_free(slot);
        if worker.is_none() {
            state.away = None;
        }
        worker
    }

    /// Puts the new worker into a slot that was away.
    pub(super) fn come_back(&self, slot: usize, worker: SlotWorker) {
        let mut state = lock(&self.state);
        state.slots[slot] = WorkerSlot::Free(worker);
        state.away = None;
        drop(state);
        self.changed.notify_all();
    }

    /// Gives up a slot. Returns the number of slots that are left.
    pub(super) fn give_up(&self, index: usize) -> usize {
        lock(&self.state).slots[index] = WorkerSlot::GivenUp;
        self.changed.notify_all();
        self.left()
    }

    /// The number of slots that are not given up.
    pub(super) fn left(&self) -> usize {
        let is_left = |slot: &&WorkerSlot| !matches!(slot, WorkerSlot::GivenUp);
        lock(&self.state).slots.iter().filter(is_left).count()
    }

    /// The worker of a slot, which is no longer used.
    pub(super) fn leave(&self, slot: usize) -> Option<SlotWorker> {
        match std::mem::replace(&mut lock(&self.state).slots[slot], WorkerSlot::GivenUp) {
            WorkerSlot::Free(worker) => Some(worker),
            WorkerSlot::Taken | WorkerSlot::GivenUp => None,
        }
    }
}

impl SlotStates {
    /// Takes the worker of a slot, if it is free.
    fn take_free(&mut self, slot: usize) -> Option<SlotWorker> {
        match std::mem::replace(&mut self.slots[slot], WorkerSlot::Taken) {
            WorkerSlot::Free(worker) => Some(worker),
            other => {
                self.slots[slot] = other;
                None
            }
        }
    }
}

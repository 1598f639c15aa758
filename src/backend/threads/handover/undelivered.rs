//! What is left of a run that nobody wants.

use std::sync::PoisonError;

use crate::backend::threads::handover::Handover;
use crate::backend::threads::outbox::Outcome;

/// What is left of a run that nobody wants.
pub(crate) struct Undelivered<I, T> {
    pub(crate) items: Vec<I>,
    pub(crate) results: Vec<Outcome<T>>,
}

impl<I, T> Undelivered<I, T> {
    /// Takes everything that is left out of a hand-over.
    pub(crate) fn drain(handover: &Handover<I, T>) -> Self {
        let (mut items, mut results) = (vec![], vec![]);
        // A bug of ours that poisoned a lock is told by the thread that died of it, and what is left
        // is the user's all the same.
        let mut intake = handover.intake.lock().unwrap_or_else(PoisonError::into_inner);
        while let n @ 1.. = intake.items.len() {
            items.extend(intake.items.take(n));
        }
        drop(intake);
        items.extend(handover.dispatch.drain());
        for lane in &handover.lanes {
            items.extend(std::iter::from_fn(|| lane.inbox.steal()).map(|(_, item)| item));
        }
        let mut lanes = handover.collecting.lock().unwrap_or_else(PoisonError::into_inner);
        for lane in &mut *lanes {
            while lane.look() {
                results.push(lane.pop().1);
            }
        }
        Undelivered { items, results }
    }
}

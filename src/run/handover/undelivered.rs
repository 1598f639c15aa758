//! Items and results that remain in the hand-over at the end of a run.

use std::sync::PoisonError;

use crate::run::handover::Handover;
use crate::run::outbox::Outcome;

/// Items and results that remain in the hand-over at the end of a run.
pub(crate) struct Undelivered<I, T> {
    pub(crate) items: Vec<I>,
    pub(crate) results: Vec<Outcome<T>>,
}

impl<I, T> Undelivered<I, T> {
    /// Takes all items and results out of `handover`.
    pub(crate) fn drain(handover: &Handover<I, T>) -> Self {
        let (mut items, mut results) = (vec![], vec![]);
        // Ignores poisoning: the thread that died of our bug reports it. The values are still the user's to
        // drop.
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

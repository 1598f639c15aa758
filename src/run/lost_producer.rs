//! A producer that no longer takes part in runs.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::error::Error;

/// A producer that no longer takes part in runs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LostProducer {
    pub(crate) producer: usize,
    /// The reason, as text.
    pub(crate) reason: Arc<str>,
    pub(crate) abandoned: Abandoned,
}

/// Lost producers in the order of their places, at most one for each.
#[derive(Debug, Default)]
pub(crate) struct LostProducers(Vec<LostProducer>);

impl LostProducers {
    pub(crate) fn all(&self) -> &[LostProducer] {
        &self.0
    }

    /// That of a place.
    pub(crate) fn get(&self, producer: usize) -> Option<&LostProducer> {
        self.0.iter().find(|loss| loss.producer == producer)
    }

    pub(crate) fn has(&self, producer: usize) -> bool {
        self.get(producer).is_some()
    }

    pub(crate) fn places(&self) -> Vec<usize> {
        self.0.iter().map(|loss| loss.producer).collect()
    }

    /// Adds these, in place of earlier ones of the same places.
    pub(crate) fn extend(&mut self, losses: &[LostProducer]) {
        for loss in losses {
            self.0.retain(|earlier| earlier.producer != loss.producer);
            self.0.push(loss.clone());
        }
        self.0.sort_by_key(|loss| loss.producer);
    }

    /// Removes those of these places.
    pub(crate) fn remove_all(&mut self, places: &[usize]) {
        self.0.retain(|loss| !places.contains(&loss.producer));
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Whether the producer's thread is still in a hook that the pool no longer waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Abandoned {
    Yes,
    No,
}

/// The timeouts of items that are tried again. One of them ends the run if too few producers are left.
#[derive(Debug, Default)]
pub(crate) struct ItemTimeouts(BTreeMap<u64, Error>);

impl ItemTimeouts {
    pub(crate) fn insert(&mut self, item: u64, error: Error) {
        self.0.insert(item, error);
    }

    /// Drops those of settled items, which hold no values of the user.
    pub(crate) fn forget_settled(&mut self, is_unsettled: &dyn Fn(u64) -> bool) {
        self.0.retain(|&item, _| is_unsettled(item));
    }

    /// Takes that of the first item in order.
    pub(crate) fn take_first(&mut self) -> Option<Error> {
        self.0.pop_first().map(|(_, error)| error)
    }
}

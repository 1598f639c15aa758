//! The timeouts of items that are tried again.

use std::collections::BTreeMap;

use crate::error::Error;

/// The timeouts of items that are tried again. One of them ends the run if too few producers are left.
#[derive(Debug, Default)]
pub(crate) struct Timeouts(BTreeMap<u64, Error>);

impl Timeouts {
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

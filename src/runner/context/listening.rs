//! How a hook that waits elsewhere than in the library hears that its call was given up.

use std::sync::Arc;

use super::ProducerContext;
use crate::concurrency::bell::{Bell, Bells};
use crate::runner::wanted::OpenItems;

impl<'a> ProducerContext<'a> {
    /// Returns the same context, for a lease that may be revoked while the hook has it.
    pub(crate) fn with_revocations(self, bells: &'a Bells) -> Self {
        ProducerContext { revoked: Some(bells), ..self }
    }

    /// Has a bell rung whenever [`is_cancelled`](Self::is_cancelled) may have turned true, until the run ends: for a hook
    /// that waits in the kernel on a thread of this process. A producer gives the same bell each time.
    #[doc(hidden)]
    pub fn listen(&self, bell: &Arc<dyn Bell>) {
        self.wanted.listen(bell);
        self.revoked.iter().for_each(|bells| bells.add(bell));
    }

    /// Whether there are items, and no caller waits for any of them.
    pub(super) fn has_items_and_none_is_open(&self, open: &dyn OpenItems) -> bool {
        !self.items.is_empty() && !self.items.iter().any(|&item| open.is_open(item))
    }
}

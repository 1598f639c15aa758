//! What holds for every item of a runner.

use crate::engine::call::catch;
use crate::measures::Measures;
use crate::policy::Policy;

/// How items are measured, and what becomes of those that fail.
pub(crate) struct Terms<I> {
    /// `None` where nothing is measured.
    pub(crate) measures: Option<Measures<I>>,
    pub(crate) policy: Policy,
    /// How an item is copied, so that it can be tried again. `None` where none is.
    pub(crate) copy: Option<CopyFn<I>>,
}

/// How a value is copied. `Clone` is asked of inputs only where this is made.
pub(crate) type CopyFn<I> = fn(&I) -> I;

impl<I> Default for Terms<I> {
    fn default() -> Self {
        Terms { measures: None, policy: Policy::default(), copy: None }
    }
}

impl<I> Terms<I> {
    /// A copy to keep while a hook has the item. One that cannot be made is not: the item then has no
    /// further attempt.
    pub(crate) fn copy_of(&self, item: &I) -> Option<I> {
        let copy = self.copy?;
        catch(|| copy(item))
            .inspect_err(|message| {
                tracing::warn!(%message, "an item panicked when it was cloned; it is not tried again");
            })
            .ok()
    }
}

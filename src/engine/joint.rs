//! What links the stages of a pipeline: each kind of link is a [`Joint`].

use std::sync::Arc;

use crate::backend::threads::run::Run;
use crate::engine::link::{Earlier, LinkKind, Relayed, StageLink};
use crate::runner::{RunControl, Runner};

/// A kind of link, from the results of `S` to the items of `T`.
pub(crate) trait Joint<S: Runner, T: Runner>: Send + Sync {
    fn kind(&self) -> LinkKind;

    /// Prepares the link behind this run.
    fn prepare(&self, from: Earlier<S>, producers: usize) -> Prepared<T>;
}

/// A link that lacks the later run.
pub(crate) struct Prepared<T: Runner> {
    /// Stops what is before the later run.
    pub(crate) upstream: Arc<dyn RunControl>,
    pub(crate) join: Box<dyn FnOnce(Arc<Run<T>>) -> Work>,
}

/// The work of a link's thread.
pub(crate) type Work = Box<dyn FnOnce() -> Relayed + Send>;

/// Passes each result on as one item.
#[derive(Debug)]
pub(crate) struct Direct;

impl<S, T> Joint<S, T> for Direct
where
    S: Runner + 'static,
    T: Runner<Input = S::Output> + 'static,
{
    fn kind(&self) -> LinkKind {
        LinkKind::Direct
    }

    fn prepare(&self, from: Earlier<S>, _: usize) -> Prepared<T> {
        let upstream = from.run.clone();
        let join = move |to: Arc<Run<T>>| -> Work {
            if let Some(parts) = from.run.parts.get() {
                be_parts(&to, parts.next(from.order));
            }
            let link = StageLink::new(from, to);
            Box::new(move || link.run())
        };
        Prepared { upstream, join: Box::new(join) }
    }
}

/// Makes the items of a run parts of this stage.
pub(super) fn be_parts<T: Runner>(run: &Run<T>, stage: crate::backend::threads::parts::PartStage) {
    assert!(run.parts.set(Arc::new(stage)).is_ok(), "a run is linked to one before it");
}

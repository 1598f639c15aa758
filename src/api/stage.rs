//! Pools as stages of a pipeline.

use std::fmt;

use super::pool::Pool;
use crate::engine::line::Single;
use crate::runner::Runner;

/// What becomes a stage of a [`Pipeline`](crate::Pipeline): a pool, which the pipeline then owns, or `&mut` of one.
pub trait IntoStage<'h>: sealed::Sealed {
    /// The runner of the pool.
    type Runner: Runner + 'static;

    #[doc(hidden)]
    fn into_stage(self) -> Stage<'h, Self::Runner>;
}

/// A pool as a stage of a pipeline.
pub struct Stage<'h, R: Runner>(pub(super) Single<'h, R>);

mod sealed {
    pub trait Sealed {}
    impl<R: super::Runner + 'static, O> Sealed for super::Pool<R, O> {}
    impl<R: super::Runner + 'static, O> Sealed for &mut super::Pool<R, O> {}
}

impl<'h, R: Runner + 'static, O> IntoStage<'h> for Pool<R, O> {
    type Runner = R;

    fn into_stage(self) -> Stage<'h, R> {
        Stage(self.into_stage())
    }
}

impl<'h, R: Runner + 'static, O> IntoStage<'h> for &'h mut Pool<R, O> {
    type Runner = R;

    fn into_stage(self) -> Stage<'h, R> {
        Stage(self.lend())
    }
}

impl<R: Runner> fmt::Debug for Stage<'_, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stage").finish_non_exhaustive()
    }
}

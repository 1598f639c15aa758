//! Pools as stages of a pipeline, and the items that those have skipped.

use std::fmt;

use super::pool::Pool;
use crate::engine::line::{Line, Single};
use crate::engine::totals::SkippedInStage;
use crate::error::Error;
use crate::runner::Runner;

/// What becomes a stage of a [`Pipeline`](crate::Pipeline): a pool, which the pipeline then owns, or `&mut` of one.
pub trait IntoStage<'h>: sealed::Sealed {
    /// The runner of the pool.
    type Runner: Runner + 'static;

    #[doc(hidden)]
    fn into_stage(self) -> Stage<'h, Self::Runner>;
}

/// A pool as a stage of a pipeline.
pub struct Stage<'h, R: Runner>(pub(super) Single<'h, R::Input, R::Output>);

/// What the stage of a runner takes and makes.
pub(super) type TypesOf<R> = fn(<R as Runner>::Input) -> <R as Runner>::Output;

/// A line of stages, from that of `R` to that of `S`.
pub(super) type LineOf<'h, R, S> = dyn Line<TypesOf<R>, TypesOf<S>> + 'h;

mod sealed {
    #[expect(unnameable_types, reason = "no other crate implements it")]
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

/// An item that a stage of a pipeline has [skipped](crate::Builder::on_error): see
/// [`Pipeline::failures`](crate::Pipeline::failures).
///
/// Its text names the item, the stage and the error: `item 3 (c.tif) in stage 2: ..`
///
/// ```
/// use gangline::{OnError, OrderedRunner, each};
///
/// let parse = each(|text: &str| Ok(text.parse::<u64>()?));
/// let parse = OrderedRunner::builder(parse).on_error(OnError::Skip).describe("parse").build()?;
/// let mut pipeline = parse.then(OrderedRunner::new(each(|x: u64| Ok(x + 1)), 1)?);
/// assert_eq!(pipeline.run(["1", "x"])?, [2]);
/// let failures = pipeline.failures();
/// assert_eq!((failures[0].stage_name(), failures[0].item()), ("parse".to_owned(), Some(1)));
/// assert!(failures[0].error().to_string().contains("item 1"), "{}", failures[0]);
/// # Ok::<(), gangline::BoxError>(())
/// ```
#[derive(Debug, Clone, Copy)]
pub struct StageFailure<'a> {
    failure: SkippedInStage<'a>,
    name: Option<&'a str>,
}

impl<'a> StageFailure<'a> {
    pub(super) fn new(failure: SkippedInStage<'a>, name: Option<&'a str>) -> Self {
        StageFailure { failure, name }
    }

    /// Returns the number of the stage, from 1.
    pub fn stage(&self) -> usize {
        self.failure.stage + 1
    }

    /// Returns the name of the stage: its [description](crate::Builder::describe), or else `stage 2`.
    pub fn stage_name(&self) -> String {
        self.name.map_or_else(|| format!("stage {}", self.stage()), str::to_owned)
    }

    /// Returns the item's index in the input of the pipeline.
    ///
    /// `None` if it is not known: after a stage in completion order, indices are those of the input only if the
    /// first stage has a [key](crate::Builder::key), a [hash](crate::Builder::hashed_by) or a
    /// [journal](crate::Builder::journal).
    pub fn item(&self) -> Option<u64> {
        self.failure.item
    }

    /// Returns the item's key: that of the stage where it failed, or else of the stage before it that has
    /// keys.
    pub fn key(&self) -> Option<&'a str> {
        self.failure.error.key()
    }

    /// Returns the error. Its index is that of the item in the stage where it failed.
    pub fn error(&self) -> &'a Error {
        self.failure.error
    }
}

impl fmt::Display for StageFailure<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.item(), self.key()) {
            (Some(item), Some(key)) => write!(f, "item {item} ({key}) in ")?,
            (Some(item), None) => write!(f, "item {item} in ")?,
            (None, Some(key)) => write!(f, "item {key} in ")?,
            (None, None) => f.write_str("in ")?,
        }
        write!(f, "{}: ", self.stage_name())?;
        fmt::Display::fmt(self.error(), f)
    }
}

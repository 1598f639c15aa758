//! Checks that values survive the codec of a recipe.

use std::fmt;

use super::recipe::Recipe;
use crate::base::{BoxError, debug_with_causes};
use crate::runner::Runner;

/// Checks that these inputs and outputs are the same after they were encoded and decoded.
///
/// Values may lack a comparison, so a decoded value is encoded again, and the bytes are compared. Give
/// samples of each shape: with `None` and `Some`, empty and full. serde's `flatten`, `untagged` and
/// `skip_serializing_if` fail with [`Postcard`](crate::process::Postcard).
///
/// ```
/// use gangline::closures::FnMap;
/// use gangline::process::Recipe;
/// use gangline::testing::check_recipe;
/// use gangline::{ProducerContext, Result, map};
///
/// fn init(_: &ProducerContext<'_>) -> Result<()> {
///     Ok(())
/// }
/// fn work(_: &ProducerContext<'_>, _: &mut (), x: Option<u64>) -> Result<String> {
///     Ok(format!("{x:?}"))
/// }
/// static SHOWN: Recipe<FnMap<(), Option<u64>, String>> =
///     Recipe::new("shown", |_| Ok(map(init, work)));
///
/// check_recipe(&SHOWN, [None, Some(1)], ["None".to_owned()])?;
/// # Ok::<(), gangline::BoxError>(())
/// ```
///
/// # Errors
///
/// The first value that does not survive.
pub fn check_recipe<R: Runner>(
    recipe: &Recipe<R>,
    inputs: impl IntoIterator<Item = R::Input>,
    outputs: impl IntoIterator<Item = R::Output>,
) -> Result<(), CheckError> {
    let failed = |value, (sample, result): (usize, Result<(), BoxError>)| {
        result.map_err(|source| CheckError { value, sample, source })
    };
    let mut inputs = inputs.into_iter().map(|input| recipe.items.check_input(&input)).enumerate();
    inputs.try_for_each(|it| failed("input", it))?;
    let mut outputs =
        outputs.into_iter().map(|output| recipe.items.check_output(&output)).enumerate();
    outputs.try_for_each(|it| failed("output", it))
}

/// A value that does not survive the codec of its recipe.
#[non_exhaustive]
pub struct CheckError {
    /// `input` or `output`.
    pub value: &'static str,
    /// The number of the sample, from 0.
    pub sample: usize,
    /// What the codec says, or that the value has changed.
    pub source: BoxError,
}

impl fmt::Display for CheckError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the {} of sample {} does not survive its codec", self.value, self.sample)
    }
}

debug_with_causes!(CheckError);

impl std::error::Error for CheckError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(self.source.as_ref())
    }
}

//! Small values that errors, settings and events share. They import nothing of this crate.

mod hook;
mod limits;
pub(crate) mod memory;
pub(crate) mod panic;
#[cfg(feature = "futures")]
pub(crate) mod quiet_waker;

pub use self::hook::Hook;
pub use self::limits::{MaxFailures, Measure, TimeLimit};
pub use self::panic::PanicMessage;
use std::path::{self, PathBuf};

pub(crate) use gangline_scheduler::HumanDuration;
#[doc(inline)]
pub use gangline_scheduler::Order;
pub(crate) use gangline_scheduler::causes::{self, debug_with_causes};
pub(crate) use gangline_scheduler::plain;

/// Any error, as hooks return it: `?` turns the errors of candle, `std::io`, anyhow, eyre and
/// [`CfgNode`](crate::CfgNode) into it.
///
/// It implements no `Error` itself, as any `Box<dyn Error>`. So where a function returns a `Result` of anyhow or eyre, `?`
/// takes an [`Error`](crate::Error) of gangline, and a `BoxError` needs a conversion that keeps its causes:
///
/// ```
/// use gangline::{OrderedRunner, map};
///
/// fn factor(text: &str) -> gangline::Result<u64> {
///     Ok(text.parse()?)
/// }
///
/// fn with_anyhow() -> anyhow::Result<()> {
///     let factor = factor("3").map_err(anyhow::Error::from_boxed)?;
///     let work = move |x: u64| {
///         anyhow::ensure!(x < 9, "{x} is too large");
///         Ok(x * factor)
///     };
///     let scaled = map(|_| Ok(()), move |_, (), x| Ok(work(x)?)); // a hook returns any error
///     assert_eq!(OrderedRunner::new(scaled, 2)?.run(0..3)?, [0, 3, 6]);
///     Ok(())
/// }
///
/// fn with_eyre() -> eyre::Result<()> {
///     let factor = factor("3").map_err(|error| eyre::eyre!(error))?;
///     let work = move |x: u64| {
///         eyre::ensure!(x < 9, "{x} is too large");
///         Ok(x * factor)
///     };
///     let scaled = map(|_| Ok(()), move |_, (), x| Ok(work(x)?));
///     assert_eq!(OrderedRunner::new(scaled, 2)?.run(0..3)?, [0, 3, 6]);
///     Ok(())
/// }
/// # with_anyhow().unwrap();
/// # with_eyre().unwrap();
/// ```
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a hook.
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

/// Returns the path from the root, so that a later change of the current directory does not change what it names. If
/// the current directory is gone, the path stays relative.
pub(crate) fn absolute(path: PathBuf) -> PathBuf {
    path::absolute(&path).unwrap_or(path)
}

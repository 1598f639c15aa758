//! Small types that errors, settings and events share. They import nothing of this crate.

mod absolute;
mod bounded;
mod hook;
mod max_failures;
mod measure;
pub(crate) mod memory;
pub(crate) mod panic;
#[cfg(feature = "futures")]
pub(crate) mod quiet_waker;
mod time_limit;

pub(crate) use self::absolute::absolute;
pub(crate) use self::bounded::bounded;
pub use self::hook::Hook;
pub use self::max_failures::MaxFailures;
pub use self::measure::Measure;
pub use self::panic::PanicMessage;
pub use self::time_limit::TimeLimit;
pub(crate) use gangline_config::causes::{self, debug_with_causes};
pub(crate) use gangline_config::plain;
#[doc(inline)]
pub use gangline_scheduler::{HumanDuration, Order};

/// Any error, as hooks return it: `?` turns the errors of candle, `std::io`, anyhow and
/// [`CfgNode`](crate::CfgNode) into it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The result of a hook.
pub type Result<T, E = BoxError> = std::result::Result<T, E>;

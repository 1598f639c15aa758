//! The timeouts that a builder takes.

use std::fmt;

/// A timeout that a [`Builder`](crate::Builder) takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum TimeLimit {
    /// [`Builder::item_timeout`](crate::Builder::item_timeout).
    Item,
    /// [`Builder::init_timeout`](crate::Builder::init_timeout).
    Init,
    /// [`Builder::run_timeout`](crate::Builder::run_timeout).
    Run,
    /// [`Builder::end_timeout`](crate::Builder::end_timeout).
    End,
}

impl fmt::Display for TimeLimit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TimeLimit::Item => "item_timeout",
            TimeLimit::Init => "init_timeout",
            TimeLimit::Run => "run_timeout",
            TimeLimit::End => "end_timeout",
        })
    }
}

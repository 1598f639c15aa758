//! What is wrong with a path or a key.

use std::fmt;

/// What is wrong with a path or a key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum PathProblem {
    /// The path or the key is empty.
    Empty,
    /// A segment before, after or between dots is empty.
    EmptySegment,
    /// An index in brackets: in a path it is a segment of its own, `layers.0`.
    Brackets,
    /// The list is too short for the index.
    Index {
        /// The length of the list.
        len: usize,
    },
}

impl fmt::Display for PathProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PathProblem::Empty => f.write_str("it is empty"),
            PathProblem::EmptySegment => f.write_str("a segment is empty"),
            PathProblem::Brackets => {
                f.write_str("an index is a segment of its own, as in `layers.0`")
            }
            PathProblem::Index { len: 1 } => f.write_str("the list has 1 element"),
            PathProblem::Index { len } => write!(f, "the list has {len} elements"),
        }
    }
}

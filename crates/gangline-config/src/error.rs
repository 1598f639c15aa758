//! Errors of reading, changing, loading and saving a configuration.

use std::error::Error;
use std::ffi::OsString;
use std::fmt::{self, Write};
use std::path::{Path, PathBuf};

use gangline_scheduler::causes::debug_with_causes;

/// How deeply nodes and lists may be nested, the top included.
///
/// All formats can be read this deeply (the TOML parser stops at 80 levels, the one for JSON at
/// 127), and every walk over a tree may recurse without a thought for the stack.
pub(super) const MAX_DEPTH: usize = 64;

/// Why a [`CfgNode`](crate::CfgNode) could not be read, changed, loaded or saved.
///
/// The text of an error stands by itself: it has the full path of the value, such as `MODEL.lr`, and where
/// the value came from, such as a file. [`source`] has the message of the parser or the operating system.
/// `Debug`, which is what a `main` that returns the error prints, shows the text too.
///
/// [`source`]: Error::source
#[derive(thiserror::Error)]
#[non_exhaustive]
pub enum CfgError {
    /// No value is at the path.
    #[non_exhaustive]
    #[error("{path:?} is missing from the configuration{}", Near(.near))]
    Missing {
        /// The path that was asked for.
        path: String,
        /// An existing path that differs in a few letters.
        near: Option<String>,
    },
    /// The value has another type than the one asked for.
    #[non_exhaustive]
    #[error("{}{}: {source}", ErrorPath(.path), ValueOrigin(.origin))]
    Type {
        /// The full path of the value, list indices included; empty for the whole tree.
        path: String,
        /// The file or the environment variable that the value came from, if it came from one.
        origin: Option<String>,
        /// What was found and what was expected.
        source: Box<dyn Error + Send + Sync>,
    },
    /// The path is malformed.
    #[non_exhaustive]
    #[error("{path:?} is not a path: {problem}")]
    Path {
        /// The path as it was given.
        path: String,
        /// What is wrong with it.
        problem: PathProblem,
    },
    /// The path leads through a value that has no keys.
    #[non_exhaustive]
    #[error("{path:?} leads through {at:?}{}, which is {found}", ValueOrigin(.origin))]
    Through {
        /// The path as it was given.
        path: String,
        /// The part of the path at which it ends too early.
        at: String,
        /// The file or the environment variable that the value there came from.
        origin: Option<String>,
        /// The value there, such as `the number 3` or `a list of 2`.
        found: String,
    },
    /// The configuration is frozen.
    #[non_exhaustive]
    #[error("the configuration is frozen: {change} is refused")]
    Frozen {
        /// The change that was refused.
        change: String,
    },
    /// A key that no path could name.
    #[non_exhaustive]
    #[error("the key {key:?} of {}{} is refused: {problem}", ErrorPath(.path), ValueOrigin(.origin))]
    Key {
        /// The path of the node that holds the key; empty for the top.
        path: String,
        /// The key.
        key: String,
        /// The file that the key is in, if it is in one.
        origin: Option<String>,
        /// What is wrong with it.
        problem: PathProblem,
    },
    /// Nodes and lists are nested too deeply.
    #[non_exhaustive]
    #[error("{}{} is nested more than {MAX_DEPTH} levels deep", ErrorPath(.path), ValueOrigin(.origin))]
    TooDeep {
        /// The path, as far as it is allowed.
        path: String,
        /// The file that it is in, if it is in one.
        origin: Option<String>,
    },
    /// A configuration cannot hold the value.
    #[non_exhaustive]
    #[error("{}{} cannot be held in a configuration: {source}", ErrorPath(.path), ValueOrigin(.origin))]
    Value {
        /// The full path of the value.
        path: String,
        /// The file that it is in, if it is in one.
        origin: Option<String>,
        /// What is wrong with it.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A text does not follow its format.
    #[non_exhaustive]
    #[error("{} is not valid {format}: {source}", Whence(.origin))]
    Parse {
        /// The file or the environment variable; `None` for a text that was passed in.
        origin: Option<String>,
        /// The format.
        format: &'static str,
        /// The parser's message, with line and column.
        source: Box<dyn Error + Send + Sync>,
    },
    /// A text or a file exceeds the size limit of a configuration.
    #[non_exhaustive]
    #[error("{} is larger than {limit} bytes, the most that a configuration may have", Whence(.origin))]
    TooLarge {
        /// The file; `None` for a text that was passed in.
        origin: Option<String>,
        /// The limit in bytes.
        limit: u64,
    },
    /// A file could not be read.
    #[non_exhaustive]
    #[error("{} could not be read: {source}", .file.display())]
    Read {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A file could not be written. Its old contents are unchanged.
    #[non_exhaustive]
    #[error("{} could not be written: {source}", .file.display())]
    Write {
        /// The file.
        file: PathBuf,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The path is that of a directory, a device or a pipe.
    #[non_exhaustive]
    #[error("{} is not a regular file", .file.display())]
    NotAFile {
        /// The path.
        file: PathBuf,
    },
    /// The file's name has no known extension.
    #[non_exhaustive]
    #[error("{}: the name must end in .yaml, .yml, .toml or .json", .file.display())]
    Extension {
        /// The file.
        file: PathBuf,
    },
    /// The files form a loop through `__BASE__`.
    #[non_exhaustive]
    #[error("__BASE__ goes round in a loop: {}", ErrorChain(.chain))]
    BaseLoop {
        /// The files in the order in which they name each other; the last repeats an earlier one.
        chain: Vec<PathBuf>,
    },
    /// A configuration was to be made of a value that is no node.
    #[non_exhaustive]
    #[error(
        "a configuration is made of a struct or a map, not of {found}; put it at a path with `with`"
    )]
    NotANode {
        /// What the value is.
        found: String,
    },
    /// A file has a longer chain of `__BASE__` than is read.
    #[non_exhaustive]
    #[error(
        "{}: more than {most} files follow each other through __BASE__; merge some of them",
        .file.display()
    )]
    BaseChain {
        /// The file at the top.
        file: PathBuf,
        /// The number of files allowed, with the one at the top.
        most: usize,
    },
    /// The file that `__BASE__` names does not exist.
    #[non_exhaustive]
    #[error("{}: the __BASE__ {} does not exist", .file.display(), .base.display())]
    BaseMissing {
        /// The file that has the `__BASE__`.
        file: PathBuf,
        /// The value of its `__BASE__`.
        base: PathBuf,
    },
    /// `__BASE__` is not the path of one file.
    #[non_exhaustive]
    #[error("{}: __BASE__ must be the path of one file, not {found}", .file.display())]
    BaseNotText {
        /// The file that has the `__BASE__`.
        file: PathBuf,
        /// The value found instead.
        found: String,
    },
    /// `__BASE__` was used outside a file, where it cannot name a base.
    #[non_exhaustive]
    #[error("{} has the top-level key __BASE__, which only means something in a file", Whence(.origin))]
    BaseOutsideFile {
        /// The file that would have been written; `None` for a text that was read.
        origin: Option<String>,
    },
    /// A top-level key differs from `__BASE__` only in case or underscores, so the file that it names would not be
    /// loaded.
    #[non_exhaustive]
    #[error(
        "{} has the top-level key {key:?}; write \"__BASE__\" if it names the file under this one, else rename it",
        .file.display()
    )]
    BaseMisspelt {
        /// The file that has the key, or would have it.
        file: PathBuf,
        /// The key.
        key: String,
    },
    /// The format cannot hold the value.
    #[non_exhaustive]
    #[error("{}: {format} cannot hold {found}", ErrorPath(.path))]
    Unsupported {
        /// The full path of the value.
        path: String,
        /// The format.
        format: &'static str,
        /// The value, such as `null`.
        found: String,
    },
    /// Keys of the base are missing from the configuration to be saved: they would come back at the next
    /// load.
    #[non_exhaustive]
    #[error(
        "{} cannot be the base: it has {}, absent here, which would come back at the next load",
        .base.display(), Listed(.paths)
    )]
    BaseHasMore {
        /// The base.
        base: PathBuf,
        /// The full paths of the values that only the base has.
        paths: Vec<String>,
    },
    /// No key matches the name of an environment variable.
    #[non_exhaustive]
    #[error("the environment variable {name} matches no key of the configuration")]
    EnvUnknown {
        /// The variable.
        name: String,
    },
    /// Two keys match the name of an environment variable, or two names match a key.
    #[non_exhaustive]
    #[error("the environment variable {} is ambiguous: it could set {}", Listed(.names), Listed(.paths))]
    EnvAmbiguous {
        /// The variable or the variables.
        names: Vec<String>,
        /// The paths of the key or the keys.
        paths: Vec<String>,
    },
    /// An environment variable is not Unicode.
    #[non_exhaustive]
    #[error("the environment variable {name:?} is not valid Unicode")]
    EnvNotUnicode {
        /// The variable.
        name: OsString,
    },
    /// An assignment has no `=`.
    #[non_exhaustive]
    #[error("{text:?} is not an assignment: write `path=value`")]
    Assignment {
        /// The assignment as it was given.
        text: String,
    },
}

debug_with_causes!(CfgError);

/// A path in an error, or the top of the tree.
struct ErrorPath<'a>(&'a str);

impl fmt::Display for ErrorPath<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            "" => f.write_str("the configuration"),
            // Keys come from files: control characters must not reach a terminal.
            path => path.chars().try_for_each(|c| match c {
                '"' | '\\' => f.write_char(c),
                c => write!(f, "{}", c.escape_debug()),
            }),
        }
    }
}

/// The key that was probably meant.
struct Near<'a>(&'a Option<String>);

impl fmt::Display for Near<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |near| write!(f, ", which has {near:?}"))
    }
}

/// Where a value came from, after its path.
struct ValueOrigin<'a>(&'a Option<String>);

impl fmt::Display for ValueOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.as_ref().map_or(Ok(()), |origin| write!(f, " in {origin}"))
    }
}

/// Where a text came from, at the start of a sentence.
struct Whence<'a>(&'a Option<String>);

impl fmt::Display for Whence<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0.as_deref().unwrap_or("the text"))
    }
}

struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join(", "))
    }
}

struct ErrorChain<'a>(&'a [PathBuf]);

impl fmt::Display for ErrorChain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, file) in self.0.iter().enumerate() {
            let arrow = if i == 0 { "" } else { " -> " };
            write!(f, "{arrow}{}", Path::display(file))?;
        }
        Ok(())
    }
}

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

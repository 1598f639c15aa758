//! Marks: placeholders in a command for values of the job or of its slot.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A mark that can be substituted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Mark {
    /// `{}`: the input.
    Input,
    /// `{.}`: the input without its extension.
    WithoutExtension,
    /// `{/}`: the last component of the input as a path.
    Base,
    /// `{//}`: the path before that component.
    Directory,
    /// `{/.}`: the last component without its extension.
    Stem,
    /// `{name}`: the column at that index.
    Column(usize),
    /// `{#}`: the number of the job, from 1.
    Number,
    /// `{gpu}` or `%(GPU)s`: the ids of the slot's GPUs.
    Gpus,
    /// `{worker}`: the number of the slot, from 0.
    Worker,
    /// `{attempt}`: from 1.
    Attempt,
    /// All fields, each a word: the arguments of a script. Users cannot write it.
    Fields,
}

/// A piece of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Part {
    Text(Vec<u8>),
    Mark(Mark),
}

/// The values that marks can stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks<'a> {
    pub(crate) input: InputMarks<'a>,
    pub(crate) gpus: GpuMark,
}

/// The form of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMarks<'a> {
    /// One text.
    Line,
    /// A record with these columns.
    Columns(&'a [OsString]),
    /// A line that is the command itself.
    Nothing,
    /// The positional parameters of a script, with the column names of a record.
    Parameters(&'a [OsString]),
    /// An input sent to a warm worker.
    Sent,
}

/// The GPUs that a mark can stand for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum GpuMark {
    /// The slots are CPUs.
    None,
    /// Ids, with the separator that fits their position.
    Fitting,
    /// Ids, with this separator.
    Separated(&'static str),
}

/// A mark that cannot be substituted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Unknown {
    mark: String,
    why: Why,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Why {
    NoSuchMark,
    NoGpus,
    NoColumn(Vec<String>),
    NoLine(Vec<String>),
    CommandIsTheInput,
    SentToWorker,
    ScriptHasParameters,
}

impl Part {
    pub(crate) fn mark(&self) -> Option<&Mark> {
        match self {
            Part::Text(_) => None,
            Part::Mark(mark) => Some(mark),
        }
    }
}

impl Marks<'_> {
    /// Whether there is an input to append.
    pub(crate) fn has_input(&self) -> bool {
        matches!(self.input, InputMarks::Line)
    }

    /// The meaning of `{inner}`; `None` for plain text.
    fn braced(&self, inner: &[u8]) -> Option<Result<Mark, Why>> {
        if let InputMarks::Columns(columns) = self.input
            && let Some(column) = columns.iter().position(|name| name.as_bytes() == inner)
        {
            return Some(Ok(Mark::Column(column)));
        }
        let of_input = |mark| self.of_input(mark);
        Some(match inner {
            b"" => of_input(Mark::Input),
            b"." => of_input(Mark::WithoutExtension),
            b"/" => of_input(Mark::Base),
            b"//" => of_input(Mark::Directory),
            b"/." => of_input(Mark::Stem),
            b"#" | b"attempt" if self.input == InputMarks::Sent => Err(Why::SentToWorker),
            b"#" => Ok(Mark::Number),
            b"gpu" => self.of_slot(),
            b"worker" => Ok(Mark::Worker),
            b"attempt" => Ok(Mark::Attempt),
            name if is_name(name) => match self.input {
                // Syntax of the shell, such as `${name}`.
                InputMarks::Parameters(columns) => {
                    if !columns.iter().any(|column| column.as_bytes() == name) {
                        return None;
                    }
                    Err(Why::ScriptHasParameters)
                }
                InputMarks::Columns(columns) => Err(Why::NoColumn(shown(columns))),
                _ => Err(Why::NoSuchMark),
            },
            name if is_title(name) => match self.input {
                InputMarks::Columns(columns) => Err(Why::NoColumn(shown(columns))),
                _ => return None,
            },
            // Marks of GNU parallel.
            b"%" | b"##" | b".." | b"..." | b"/.." | b"/..." | b"+/" | b"+." | b"+.." | b"+..."
                if !self.has_parameters() =>
            {
                Err(Why::NoSuchMark)
            }
            _ => return None,
        })
    }

    /// GNU parallel's mark for one of several inputs, if it is a word of its own. Inside a word, braces
    /// around a number are a regular expression.
    fn numbered(&self, word: &[u8]) -> Option<Result<Part, Why>> {
        let inner = unbraced(word)?;
        let (number, mark) = match unbraced(inner) {
            Some(number) => (number, Ok(Part::Text(inner.to_vec()))),
            None => (inner, Err(Why::NoSuchMark)),
        };
        let digits = number.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let part = &number[digits..];
        let is_number = digits > 0 && [&b""[..], b".", b"/", b"//", b"/."].contains(&part);
        let is_mark = is_number && !self.has_parameters() && self.braced(number).is_none();
        is_mark.then_some(mark)
    }

    fn has_parameters(&self) -> bool {
        matches!(self.input, InputMarks::Parameters(_))
    }

    fn of_input(&self, mark: Mark) -> Result<Mark, Why> {
        match self.input {
            InputMarks::Line => Ok(mark),
            InputMarks::Columns(columns) => Err(Why::NoLine(shown(columns))),
            InputMarks::Nothing => Err(Why::CommandIsTheInput),
            InputMarks::Parameters(_) => Err(Why::ScriptHasParameters),
            InputMarks::Sent => Err(Why::SentToWorker),
        }
    }

    fn of_slot(&self) -> Result<Mark, Why> {
        match self.gpus {
            GpuMark::None => Err(Why::NoGpus),
            GpuMark::Fitting | GpuMark::Separated(_) => Ok(Mark::Gpus),
        }
    }
}

/// Splits a word into pieces, in one pass from left to right. A mark in double braces, and `%%(GPU)s`, stand
/// for their own text.
pub(crate) fn parts(word: &[u8], marks: &Marks<'_>) -> Result<Vec<Part>, Unknown> {
    let unknown = |taken: &[u8], why| Unknown { mark: lossy(taken), why };
    if let Some(numbered) = marks.numbered(word) {
        return numbered.map(|part| vec![part]).map_err(|why| unknown(word, why));
    }
    let mut parts = Pieces::default();
    let mut rest = word;
    while !rest.is_empty() {
        let (taken, piece) = match piece(rest, marks) {
            Some((taken, Ok(piece))) => (taken, piece),
            Some((taken, Err(why))) => return Err(unknown(&rest[..taken], why)),
            None => (1, Part::Text(rest[..1].to_vec())),
        };
        parts.push(piece);
        rest = &rest[taken..];
    }
    Ok(parts.0)
}

/// Reads a mark, or an escaped mark, at the start of `rest`; returns its length too.
fn piece(rest: &[u8], marks: &Marks<'_>) -> Option<(usize, Result<Part, Why>)> {
    if rest.starts_with(b"%%(") {
        let inner = until(&rest[3..], b')').filter(|inner| is_name(inner))?;
        let end = 3 + inner.len() + 2;
        let is_mark = rest.get(end - 1) == Some(&b's');
        return is_mark.then(|| (end, Ok(Part::Text(rest[1..end].to_vec()))));
    }
    if rest.starts_with(b"%(") {
        let inner = until(&rest[2..], b')').filter(|inner| is_name(inner))?;
        let end = 2 + inner.len() + 2;
        let mark = match inner {
            _ if rest.get(end - 1) != Some(&b's') => return None,
            b"GPU" => marks.of_slot(),
            _ if marks.has_parameters() => return None,
            _ => Err(Why::NoSuchMark),
        };
        return Some((end, mark.map(Part::Mark)));
    }
    if rest.starts_with(b"${") && marks.has_parameters() {
        // Syntax of the shell.
        return Some((2, Ok(Part::Text(rest[..2].to_vec()))));
    }
    if rest.starts_with(b"{{") {
        let inner = until(&rest[2..], b'}')?;
        let end = 2 + inner.len() + 2;
        let is_mark = rest.get(end - 1) == Some(&b'}') && marks.braced(inner).is_some();
        return is_mark.then(|| (end, Ok(Part::Text(rest[1..end - 1].to_vec()))));
    }
    if rest.starts_with(b"{") {
        let inner = until(&rest[1..], b'}')?;
        return marks.braced(inner).map(|mark| (inner.len() + 2, mark.map(Part::Mark)));
    }
    None
}

/// Joins adjacent texts.
#[derive(Default)]
struct Pieces(Vec<Part>);

impl Pieces {
    fn push(&mut self, part: Part) {
        match (self.0.last_mut(), part) {
            (Some(Part::Text(before)), Part::Text(text)) => before.extend(text),
            (_, part) => self.0.push(part),
        }
    }
}

fn until(text: &[u8], end: u8) -> Option<&[u8]> {
    text.iter().position(|byte| *byte == end).map(|length| &text[..length])
}

/// The content of braces that make up a whole word.
fn unbraced(word: &[u8]) -> Option<&[u8]> {
    word.strip_prefix(b"{")?.strip_suffix(b"}")
}

fn is_name(text: &[u8]) -> bool {
    let rest = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    text.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
        && text.iter().all(rest)
}

/// A name of several words, as columns may have.
fn is_title(text: &[u8]) -> bool {
    let is_word = |word: &[u8]| {
        !word.is_empty()
            && word.iter().all(|byte| byte.is_ascii_alphanumeric() || b"_-.".contains(byte))
    };
    text.first().is_some_and(u8::is_ascii_alphabetic)
        && text.split(|byte| *byte == b' ').all(is_word)
}

fn lossy(text: &[u8]) -> String {
    OsStr::from_bytes(text).to_string_lossy().into_owned()
}

fn shown(columns: &[OsString]) -> Vec<String> {
    columns.iter().map(|name| format!("{{{}}}", name.to_string_lossy())).collect()
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unknown { mark, why } = self;
        match why {
            Why::NoSuchMark => write!(
                f,
                "there is no mark {mark}; the marks are {{}} {{.}} {{/}} {{//}} {{/.}} {{#}} {{gpu}} %(GPU)s {{worker}} \
                 {{attempt}}; to pass the text itself, write {}",
                doubled(mark)
            ),
            Why::NoGpus => write!(
                f,
                "{mark} stands for the GPUs of a slot, and some slots have none: give --gpu-list or --devices, \
                 and not --use-gpu=false"
            ),
            Why::NoColumn(columns) => write!(
                f,
                "there is no column for {mark}; the columns are {}; to pass the text itself, write {}",
                columns.join(" "),
                doubled(mark)
            ),
            Why::NoLine(columns) => write!(
                f,
                "{mark} stands for an input of one piece, and --csv has columns: {}",
                columns.join(" ")
            ),
            Why::CommandIsTheInput => write!(
                f,
                "{mark} stands for an input, and in a job file each line is a whole command; to pass the text \
                 itself, write {}",
                doubled(mark)
            ),
            Why::SentToWorker => write!(
                f,
                "{mark} differs from job to job, and with --warm a command is started once for all jobs: it reads \
                 the inputs from its standard input"
            ),
            Why::ScriptHasParameters => write!(
                f,
                "{mark} is not replaced in a script, which could run the input as code; the script has the input as \
                 \"$1\", and the columns of a record as \"$1\", \"$2\" and so on"
            ),
        }
    }
}

/// Escapes a mark, so that it stands for its own text.
fn doubled(mark: &str) -> String {
    match mark.strip_prefix('%') {
        Some(rest) => format!("%%{rest}"),
        None => format!("{{{mark}}}"),
    }
}

impl std::error::Error for Unknown {}

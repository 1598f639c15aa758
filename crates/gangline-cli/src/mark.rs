//! Marks: what stands in a command for something of the job or of its slot.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::OsStrExt;

/// A mark that can be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mark {
    /// `{}`: the input.
    Input,
    /// `{.}`: the input without its extension.
    WithoutExtension,
    /// `{/}`: the last part of the input as a path.
    Base,
    /// `{//}`: what is before that.
    Directory,
    /// `{/.}`: the last part without its extension.
    Stem,
    /// `{name}`: the column with that index.
    Column(usize),
    /// `{#}`: the number of the job, from 1.
    Number,
    /// `{gpu}` or `%(GPU)s`: the ids of the slot's GPUs.
    Gpus,
    /// `{worker}`: the number of the slot, from 0.
    Worker,
    /// `{attempt}`: from 1.
    Attempt,
    /// All fields, each a word: what a script gets. Nobody can write it.
    Fields,
}

/// A piece of a word.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Part {
    Text(Vec<u8>),
    Mark(Mark),
}

/// Which marks can be filled.
#[derive(Debug, Clone, Copy)]
pub(super) struct Marks<'a> {
    pub(super) input: InputMarks<'a>,
    pub(super) gpus: GpuMark,
}

/// What there is of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InputMarks<'a> {
    /// One text.
    Line,
    /// A record with these columns.
    Columns(&'a [OsString]),
    /// A line that is the command itself.
    Nothing,
    /// The positional parameters of a script, with the names of columns if they are those of a record.
    Parameters(&'a [OsString]),
    /// What is sent to a worker that is started once.
    Sent,
}

/// What there is of GPUs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum GpuMark {
    /// The slots are CPUs.
    None,
    /// Ids, with what fits the place between them.
    Fitting,
    /// Ids, with this between them.
    Separated(&'static str),
}

/// A mark that cannot be filled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Unknown {
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
    pub(super) fn mark(&self) -> Option<&Mark> {
        match self {
            Part::Text(_) => None,
            Part::Mark(mark) => Some(mark),
        }
    }
}

impl Marks<'_> {
    /// Whether there is an input that could be appended.
    pub(super) fn has_input(&self) -> bool {
        matches!(self.input, InputMarks::Line)
    }

    /// What `{inner}` stands for; `None` if it is plain text.
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
                // The script's own, such as `${name}`.
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

    /// GNU parallel's mark for one of several inputs, where it is a word of its own: in others braces around a
    /// number are a part of a pattern.
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

/// The pieces of a word, in one pass from left to right. A mark in two pairs of braces, and `%%(GPU)s`, are
/// the mark's own text.
pub(super) fn parts(word: &[u8], marks: &Marks<'_>) -> Result<Vec<Part>, Unknown> {
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

/// A mark, or what stands for a mark's text, at the beginning of `rest`, and how long it is.
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
        // A script's own.
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

/// Pieces, with neighbouring texts as one.
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

/// What is in a pair of braces that is all of a word.
fn unbraced(word: &[u8]) -> Option<&[u8]> {
    word.strip_prefix(b"{")?.strip_suffix(b"}")
}

fn is_name(text: &[u8]) -> bool {
    let rest = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-.".contains(byte);
    text.first().is_some_and(|first| first.is_ascii_alphabetic() || *first == b'_')
        && text.iter().all(rest)
}

/// A name of several words, as columns have them.
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
                "there is no mark {mark}; there are {{}} {{.}} {{/}} {{//}} {{/.}} {{#}} {{gpu}} %(GPU)s {{worker}} \
                 {{attempt}}; for the text itself write {}",
                doubled(mark)
            ),
            Why::NoGpus => write!(
                f,
                "{mark} stands for the GPUs of a slot, and not all slots have any: say --gpu-list or --devices, \
                 and not --use-gpu=false"
            ),
            Why::NoColumn(columns) => write!(
                f,
                "there is no column for {mark}; there are {}; for the text itself write {}",
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
                "{mark} stands for an input, and in a job file each line is a whole command; for the text \
                 itself write {}",
                doubled(mark)
            ),
            Why::SentToWorker => write!(
                f,
                "{mark} differs from job to job, and with --warm a command is started once for all: it reads \
                 the inputs from its standard input"
            ),
            Why::ScriptHasParameters => write!(
                f,
                "{mark} is not put into a script, which could run what is in it; the script has the input as \
                 \"$1\", and the columns of a record as \"$1\", \"$2\" and so on"
            ),
        }
    }
}

/// A mark as it is written for its own text.
fn doubled(mark: &str) -> String {
    match mark.strip_prefix('%') {
        Some(rest) => format!("%%{rest}"),
        None => format!("{{{mark}}}"),
    }
}

impl std::error::Error for Unknown {}

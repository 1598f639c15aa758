//! Marks: placeholders in a command for values of the job or of its slot.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use serde::{Deserialize, Serialize};

use crate::plan::edit::Edit;
use crate::plan::path::PathForm;
use crate::plan::unknown::{Unknown, Why};

/// A mark that can be substituted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mark {
    /// `{}`, `{2/.}`, `{name}`: the inputs of the job, or one of them, or a part of it as a path.
    Input(Which, PathForm),
    /// `{#}`: the number of the job, from 1.
    Number,
    /// `{##}`: the number of jobs of the run.
    Total,
    /// `{gpu}` or `%(GPU)s`: the ids of the slot's GPUs.
    Gpus,
    /// `{%}`: the number of the slot, from 1.
    Slot,
    /// `{worker}`: the number of the slot, from 0.
    Worker,
    /// `{attempt}`: from 1.
    Attempt,
    /// `{host}`: the name of the machine that the job runs on.
    Host,
}

/// The inputs of a job that a mark stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Which {
    All,
    /// Counted from 0.
    Nth(usize),
    /// The last one is 1.
    FromEnd(usize),
}

/// A piece of a word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Part {
    Text(Vec<u8>),
    Mark(Mark),
}

/// The values that marks can stand for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Marks<'a> {
    pub(crate) input: InputMarks,
    /// The names of a job's inputs in their order; an empty name is none.
    pub(crate) names: &'a [OsString],
    /// The largest number of inputs of a job, if all jobs have the same.
    pub(crate) most: Option<usize>,
    /// Texts that take the place of marks, and the insides of these marks.
    pub(crate) renamed: &'a [(&'a OsStr, &'static str)],
    pub(crate) edits: Edits,
    pub(crate) gpus: GpuMark,
}

/// Whether marks such as `{%.gz}` compute something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Edits {
    Computed,
    Refused,
}

/// Where the inputs of a job go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InputMarks {
    /// Into the words of the command.
    Words,
    /// Nowhere: the input is a line that is the command itself.
    IsCommand,
    /// Nowhere: the inputs only count the jobs.
    Unused,
    /// Into the positional parameters of a script.
    Parameters,
    /// To a warm worker.
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

impl Which {
    /// The inputs of a job that are meant.
    pub(crate) fn of(self, fields: &[OsString]) -> &[OsString] {
        let at = match self {
            Which::All => return fields,
            Which::Nth(at) => Some(at),
            Which::FromEnd(at) => fields.len().checked_sub(at),
        };
        at.and_then(|at| fields.get(at)).map_or(&[], std::slice::from_ref)
    }
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
        self.input == InputMarks::Words
    }

    /// The meaning of `{inner}`; `None` for plain text.
    fn braced(&self, inner: &[u8]) -> Option<Result<Mark, Why>> {
        let is_renamed = self.renamed.iter().any(|(_, mark)| mark.as_bytes() == inner);
        if is_renamed { None } else { self.meaning(inner) }
    }

    /// The same, if no text has taken its place.
    fn meaning(&self, inner: &[u8]) -> Option<Result<Mark, Why>> {
        if let Some((which, form)) = self.named(inner) {
            return Some(self.of_input(which, form));
        }
        if let Some(form) = self.form(inner) {
            return Some(self.of_input(Which::All, form));
        }
        match inner {
            b"#" | b"##" | b"attempt" if self.input == InputMarks::Sent => {
                Some(Err(Why::SentToWorker))
            }
            b"#" => Some(Ok(Mark::Number)),
            b"##" => Some(Ok(Mark::Total)),
            b"gpu" => Some(self.of_slot()),
            b"%" => Some(Ok(Mark::Slot)),
            b"worker" => Some(Ok(Mark::Worker)),
            b"attempt" => Some(Ok(Mark::Attempt)),
            b"host" => Some(Ok(Mark::Host)),
            b"0#" | b"0%" => Some(Err(Why::Padded)),
            _ => self.numbered(inner).or_else(|| self.not_there(inner)),
        }
    }

    /// `{name}` and `{name/}`; a longer name counts before an operator.
    fn named(&self, inner: &[u8]) -> Option<(Which, PathForm)> {
        let names = self.names.iter().enumerate().filter(|(_, name)| !name.is_empty());
        let meant = names.filter_map(|(at, name)| {
            let operator = inner.strip_prefix(name.as_bytes())?;
            Some((operator.len(), Which::Nth(at), self.form(operator)?))
        });
        meant.min_by_key(|(length, ..)| *length).map(|(_, which, form)| (which, form))
    }

    /// `{2}`, `{-1}` and `{2/.}`.
    fn numbered(&self, inner: &[u8]) -> Option<Result<Mark, Why>> {
        let (is_from_end, digits) = match inner.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, inner),
        };
        let length = digits.iter().take_while(|byte| byte.is_ascii_digit()).count();
        let (digits, operator) = digits.split_at(length);
        if digits.is_empty() {
            return None;
        }
        // `{1,3}` is a regular expression.
        let Some(form) = self.form(operator).filter(|_| !operator.starts_with(b",")) else {
            let is_edit = Edit::is_one(operator) && !operator.starts_with(b",");
            let is_edit = is_edit || operator == b"choose_k" || operator == b"uniq";
            return is_edit.then_some(Err(Why::Expression));
        };
        // Too large for a number is larger than any number of inputs.
        let number = lossy(digits).parse().unwrap_or(usize::MAX);
        if self.input != InputMarks::Words {
            return Some(self.of_input(Which::All, form));
        }
        Some(match (number, self.most) {
            (0, _) => Err(Why::NoInput(self.most)),
            (_, Some(most)) if number > most => Err(Why::NoInput(self.most)),
            _ if is_from_end => self.of_input(Which::FromEnd(number), form),
            _ => self.of_input(Which::Nth(number - 1), form),
        })
    }

    /// Marks that cannot be filled.
    fn not_there(&self, inner: &[u8]) -> Option<Result<Mark, Why>> {
        if Edit::is_one(inner) || inner.starts_with(b"=") {
            return Some(Err(Why::Expression));
        }
        let name_ends =
            inner.iter().rposition(|byte| !b"/.+".contains(byte)).map_or(0, |at| at + 1);
        let (name, operator) = inner.split_at(name_ends);
        let is_mark = match self.input {
            // Syntax of the shell, such as `${name}`.
            InputMarks::Parameters => false,
            _ => {
                is_name(inner)
                    || (is_name(name) && PathForm::parse(operator).is_some())
                    || (self.has_names() && is_title(inner))
            }
        };
        is_mark.then(|| match self.has_names() {
            true => Err(Why::NoColumn(shown(self.names))),
            false => Err(Why::NoSuchMark),
        })
    }

    fn has_names(&self) -> bool {
        self.names.iter().any(|name| !name.is_empty())
    }

    fn form(&self, operator: &[u8]) -> Option<PathForm> {
        let edited = || match self.edits {
            Edits::Computed => Edit::parse(operator).map(PathForm::Edited),
            Edits::Refused => None,
        };
        PathForm::parse(operator).or_else(edited)
    }

    fn of_input(&self, which: Which, form: PathForm) -> Result<Mark, Why> {
        match self.input {
            InputMarks::Words => Ok(Mark::Input(which, form)),
            InputMarks::IsCommand => Err(Why::CommandIsTheInput),
            InputMarks::Unused => Err(Why::InputIsUnused),
            InputMarks::Parameters => Err(Why::ScriptHasParameters),
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
    let mut parts = Pieces::default();
    let mut rest = word;
    while !rest.is_empty() {
        let (taken, piece) = match piece(rest, marks) {
            Some((taken, Ok(piece))) => (taken, piece),
            Some((taken, Err(why))) => return Err(Unknown { mark: lossy(&rest[..taken]), why }),
            None => (1, Part::Text(rest[..1].to_vec())),
        };
        parts.push(piece);
        rest = &rest[taken..];
    }
    Ok(parts.0)
}

/// Reads a mark, or an escaped mark, at the start of `rest`; returns its length too.
fn piece(rest: &[u8], marks: &Marks<'_>) -> Option<(usize, Result<Part, Why>)> {
    let mut renamed = marks.renamed.iter();
    if let Some((text, inner)) = renamed.find(|(text, _)| rest.starts_with(text.as_bytes())) {
        let mark = marks.meaning(inner.as_bytes());
        return mark.map(|mark| (text.len(), mark.map(Part::Mark)));
    }
    if let Some(escaped) = rest.strip_prefix(b"%%(") {
        let inner = until(escaped, b')').filter(|inner| is_name(inner))?;
        let end = 3 + inner.len() + 2;
        let is_mark = rest.get(end - 1) == Some(&b's');
        return is_mark.then(|| (end, Ok(Part::Text(rest[1..end].to_vec()))));
    }
    if let Some(percent) = rest.strip_prefix(b"%(") {
        let inner = until(percent, b')').filter(|inner| is_name(inner))?;
        let end = 2 + inner.len() + 2;
        let mark = match inner {
            _ if rest.get(end - 1) != Some(&b's') => return None,
            b"GPU" => marks.of_slot(),
            _ if marks.input == InputMarks::Parameters => return None,
            _ => Err(Why::NoSuchMark),
        };
        return Some((end, mark.map(Part::Mark)));
    }
    if let Some(parameter) = rest.strip_prefix(b"${") {
        // Syntax of the shell.
        if marks.input == InputMarks::Parameters {
            return Some((2, Ok(Part::Text(rest[..2].to_vec()))));
        }
        let inner = until(parameter, b'}').filter(|inner| marks.numbered(inner).is_some());
        return inner.map(|inner| (inner.len() + 3, Err(Why::ShellParameter)));
    }
    if let Some(doubled) = rest.strip_prefix(b"{{") {
        let inner = until(doubled, b'}')?;
        let end = 2 + inner.len() + 2;
        let is_mark = rest.get(end - 1) == Some(&b'}') && marks.braced(inner).is_some();
        return is_mark.then(|| (end, Ok(Part::Text(rest[1..end - 1].to_vec()))));
    }
    let inside = rest.strip_prefix(b"{")?;
    match until(inside, b'}') {
        Some(inner) => marks.braced(inner).map(|mark| (inner.len() + 2, mark.map(Part::Mark))),
        // An expression of several words.
        None => inside.starts_with(b"=").then_some((rest.len(), Err(Why::Expression))),
    }
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

fn shown(names: &[OsString]) -> Vec<String> {
    let names = names.iter().filter(|name| !name.is_empty());
    names.map(|name| format!("{{{}}}", name.to_string_lossy())).collect()
}

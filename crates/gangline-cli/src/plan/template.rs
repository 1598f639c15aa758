//! The words of a command, with marks for the values of each job.

#[cfg(any(test, fuzzing))]
pub(crate) mod laws;

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::plan::mark::{GpuMark, Mark, Marks, Part, Unknown, parts};
use crate::plan::path;

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Template {
    /// `NAME=VALUE` words before the program, as in a shell.
    variables: Vec<(OsString, Word)>,
    /// The program first; it has no mark.
    words: Vec<Word>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Word {
    parts: Vec<Part>,
    ids: Ids,
}

/// How several GPU ids replace one mark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ids {
    /// Each as a word of its own if the mark is a whole word; separated by spaces otherwise.
    Words,
    /// Joined by this separator.
    Joined(&'static str),
}

/// The values of the marks in one attempt at one job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values<'a> {
    /// The value of `{}`, or the columns of a record.
    pub(crate) fields: &'a [OsString],
    pub(crate) number: u64,
    pub(crate) gpus: &'a [String],
    pub(crate) worker: usize,
    pub(crate) attempt: u32,
}

/// The words of one attempt, ready to be started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Words {
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// Why words are not a command.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum TemplateError {
    /// They have no program.
    Empty,
    /// The program's name has a mark.
    MarkedProgram(OsString),
    Unknown(Unknown),
    Nul(OsString),
}

impl Template {
    /// Parses the words of a command with `marks`. If none has a mark, the input is appended as a word, if
    /// there is one.
    pub(crate) fn new(words: &[OsString], marks: &Marks<'_>) -> Result<Template, TemplateError> {
        let mut template = Template::without_input(words, marks)?;
        if !template.has_marks() && marks.has_input() {
            template.words.push(Word::of(Mark::Input));
        }
        Ok(template)
    }

    /// The same, but the input is never appended.
    pub(crate) fn without_input(
        words: &[OsString],
        marks: &Marks<'_>,
    ) -> Result<Template, TemplateError> {
        if let Some(word) = words.iter().find(|word| word.as_bytes().contains(&0)) {
            return Err(TemplateError::Nul(word.clone()));
        }
        let assigned = words.iter().take_while(|word| variable(word).is_some()).count();
        let (variables, words) = words.split_at(assigned);
        let variables = variables.iter().filter_map(|word| variable(word));
        let variables = variables
            .map(|(name, value)| Ok((name.to_owned(), Word::new(value, marks, name)?)))
            .collect::<Result<_, TemplateError>>()?;
        let parsed: Result<Vec<Word>, TemplateError> =
            words.iter().map(|word| Word::new(word, marks, word)).collect();
        let parsed = parsed?;
        match parsed.first() {
            None => return Err(TemplateError::Empty),
            Some(program) if program.parts.is_empty() => return Err(TemplateError::Empty),
            Some(program) if program.has_marks() => {
                return Err(TemplateError::MarkedProgram(words[0].clone()));
            }
            Some(_) => {}
        }
        Ok(Template { variables, words: parsed })
    }

    /// A script for `sh -c`, with the fields as its positional parameters.
    pub(crate) fn script(script: &OsStr, marks: &Marks<'_>) -> Result<Template, TemplateError> {
        let text = |text: &str| Word { parts: vec![Part::Text(text.into())], ids: Ids::Words };
        let script = Word::new(script, marks, OsStr::new("script"))?;
        let words = vec![text("sh"), text("-c"), script, text("sh"), Word::of(Mark::Fields)];
        Ok(Template { variables: Vec::new(), words })
    }

    /// Whether a mark stands for the GPUs of a slot.
    pub(crate) fn has_gpus(&self) -> bool {
        self.marks().any(|mark| matches!(mark, Mark::Gpus))
    }

    /// Whether the words differ from job to job, and not only from slot to slot.
    pub(crate) fn differs_by_job(&self) -> bool {
        self.marks().any(|mark| !matches!(mark, Mark::Gpus | Mark::Worker | Mark::Attempt))
    }

    /// The words with all marks substituted.
    pub(crate) fn fill(&self, values: &Values<'_>) -> Words {
        let variables = self.variables.iter();
        let variables = variables.map(|(name, word)| (name.clone(), word.joined(values))).collect();
        let mut words = self.words.iter().flat_map(|word| word.fill(values));
        let program = words.next().unwrap_or_default();
        Words { variables, program, arguments: words.collect() }
    }

    fn has_marks(&self) -> bool {
        self.marks().next().is_some()
    }

    fn marks(&self) -> impl Iterator<Item = &Mark> {
        let words = self.variables.iter().map(|(_, word)| word).chain(&self.words);
        words.flat_map(|word| &word.parts).filter_map(Part::mark)
    }
}

impl Word {
    /// `near` states the use of the GPU ids: a variable of CUDA needs commas between them.
    fn new(text: &OsStr, marks: &Marks<'_>, near: &OsStr) -> Result<Word, TemplateError> {
        let parts = parts(text.as_bytes(), marks).map_err(TemplateError::Unknown)?;
        let for_cuda = near == VISIBLE;
        let ids = match marks.gpus {
            GpuMark::Separated(separator) => Ids::Joined(separator),
            _ if for_cuda => Ids::Joined(","),
            _ => Ids::Words,
        };
        Ok(Word { parts, ids })
    }

    fn of(mark: Mark) -> Word {
        Word { parts: vec![Part::Mark(mark)], ids: Ids::Words }
    }

    fn has_marks(&self) -> bool {
        self.parts.iter().any(|part| part.mark().is_some())
    }

    /// Substitutes one word. A mark that is a whole word and stands for a list becomes a word per element.
    fn fill(&self, values: &Values<'_>) -> Vec<OsString> {
        match &*self.parts {
            [Part::Mark(Mark::Gpus)] if self.ids == Ids::Words => {
                values.gpus.iter().map(OsString::from).collect()
            }
            [Part::Mark(Mark::Fields)] => values.fields.to_vec(),
            _ => vec![self.joined(values)],
        }
    }

    fn joined(&self, values: &Values<'_>) -> OsString {
        let between = match self.ids {
            Ids::Words => " ",
            Ids::Joined(separator) => separator,
        };
        let mut word = Vec::new();
        for part in &self.parts {
            match part {
                Part::Text(text) => word.extend_from_slice(text),
                // A script, or a word for `env`, may set the variable, which needs commas.
                Part::Mark(Mark::Gpus) if self.ids == Ids::Words && sets_visible(&word) => {
                    values.put(&Mark::Gpus, ",", &mut word);
                }
                Part::Mark(mark) => values.put(mark, between, &mut word),
            }
        }
        OsString::from_vec(word)
    }
}

impl Values<'_> {
    fn put(&self, mark: &Mark, between: &str, word: &mut Vec<u8>) {
        let input = self.fields.first().map_or(&b""[..], |field| field.as_bytes());
        match mark {
            Mark::Input | Mark::Fields => word.extend_from_slice(input),
            Mark::WithoutExtension => word.extend_from_slice(path::without_extension(input)),
            Mark::Base => word.extend_from_slice(path::base(input)),
            Mark::Directory => word.extend_from_slice(path::directory(input)),
            Mark::Stem => word.extend_from_slice(path::without_extension(path::base(input))),
            Mark::Column(column) => word.extend_from_slice(self.fields[*column].as_bytes()),
            Mark::Number => word.extend_from_slice(self.number.to_string().as_bytes()),
            Mark::Gpus => word.extend_from_slice(self.gpus.join(between).as_bytes()),
            Mark::Worker => word.extend_from_slice(self.worker.to_string().as_bytes()),
            Mark::Attempt => word.extend_from_slice(self.attempt.to_string().as_bytes()),
        }
    }
}

impl Words {
    /// Sets variables before the command's own.
    pub(crate) fn set_first(&mut self, variables: &[(&'static str, OsString)]) {
        let variables = variables.iter().map(|(name, value)| (OsString::from(name), value.clone()));
        self.variables.splice(..0, variables);
    }

    /// All words, quoted for a shell.
    pub(crate) fn quoted(&self) -> String {
        let variables = self
            .variables
            .iter()
            .map(|(name, value)| format!("{}={}", name.to_string_lossy(), quoted(value)));
        let words = std::iter::once(&self.program).chain(&self.arguments).map(|word| quoted(word));
        variables.chain(words).collect::<Vec<_>>().join(" ")
    }
}

/// A word quoted for a shell, on one line and without control characters.
pub(crate) fn quoted(word: &OsStr) -> String {
    let plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(byte);
    match word.to_str() {
        Some(text) if !text.is_empty() && text.bytes().all(|byte| plain(&byte)) => text.to_owned(),
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => format!("$'{}'", word.as_bytes().escape_ascii().to_string().replace("\\\"", "\"")),
    }
}

const VISIBLE: &str = "CUDA_VISIBLE_DEVICES";

/// Whether the text after these bytes is the value of the variable that shows GPUs.
fn sets_visible(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_suffix(b"\"").or(bytes.strip_suffix(b"'")).unwrap_or(bytes);
    bytes.strip_suffix(b"=").is_some_and(|name| name.ends_with(VISIBLE.as_bytes()))
}

/// The name and the value of a word that sets a variable.
fn variable(word: &OsStr) -> Option<(&OsStr, &OsStr)> {
    let bytes = word.as_bytes();
    let (name, value) = bytes.split_at(bytes.iter().position(|byte| *byte == b'=')?);
    let is_name = name.iter().all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_')
        && name.first().is_some_and(|first| !first.is_ascii_digit());
    is_name.then(|| (OsStr::from_bytes(name), OsStr::from_bytes(&value[1..])))
}

impl fmt::Display for TemplateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TemplateError::Empty => f.write_str("there is no command to run"),
            TemplateError::MarkedProgram(program) => write!(
                f,
                "the program's name {} has a mark in it, or an unknown one: the program must be the same for \
                 all jobs; put marks into its arguments, and do not quote a whole command, which makes it one word",
                quoted(program)
            ),
            TemplateError::Unknown(unknown) => unknown.fmt(f),
            TemplateError::Nul(word) => {
                write!(
                    f,
                    "the word {} contains a NUL, which cannot be passed to a program",
                    quoted(word)
                )
            }
        }
    }
}

impl std::error::Error for TemplateError {}

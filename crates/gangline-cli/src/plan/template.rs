//! The words of a command, with marks for the values of each job.

#[cfg(any(test, fuzzing))]
pub(crate) mod laws;

use std::borrow::Cow;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use serde::{Deserialize, Serialize};
use thiserror::Error;

use crate::host_name::host_name;
use crate::plan::mark::{GpuMark, Mark, Marks, Part, Which, parts};
use crate::plan::path::PathForm;
use crate::plan::unknown::Unknown;

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) struct Template {
    /// `NAME=VALUE` words before the program, as in a shell.
    variables: Vec<(OsString, Word)>,
    /// The program first; it has no mark.
    words: Vec<Word>,
    several: Several,
}

/// How several inputs replace one mark inside a word.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(crate) enum Several {
    /// The word is split between them: `x{}y` is `xa` and `by`.
    #[default]
    Split,
    /// The word is repeated for each: `x{}y` is `xay` and `xby`.
    Repeat,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Word {
    parts: Vec<Part>,
    ids: Ids,
}

/// How several GPU ids replace one mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Ids {
    /// Each as a word of its own if the mark is a whole word; separated by spaces otherwise.
    Words,
    /// Joined by this separator.
    Joined(Cow<'static, str>),
}

/// The values of the marks in one attempt at one job.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Values<'a> {
    /// The inputs of the job.
    pub(crate) fields: &'a [OsString],
    pub(crate) number: u64,
    pub(crate) gpus: &'a [String],
    pub(crate) worker: usize,
    pub(crate) attempt: u32,
}

/// The words of one attempt, ready to be started.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct CommandWords {
    pub(crate) variables: Vec<(OsString, OsString)>,
    pub(crate) program: OsString,
    pub(crate) arguments: Vec<OsString>,
}

/// Why words are not a command.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub(crate) enum TemplateError {
    /// They have no program.
    #[error(
        "there is no command to run; to run each input as a command of the shell, write -- sh -c"
    )]
    Empty,
    #[error(
        "the program's name {} has a mark in it, or an unknown one: the program must be the same for \
         all jobs; put marks into its arguments, and for a command of the shell in quotes use --shell",
        quoted(.0)
    )]
    MarkedProgram(OsString),
    #[error("{0}")]
    Unknown(Unknown),
    #[error("the word {} contains a NUL, which cannot be passed to a program", quoted(.0))]
    Nul(OsString),
}

impl Template {
    /// Parses the words of a command with `marks`. If none has a mark, the input is appended as a word, if
    /// there is one.
    pub(crate) fn new(words: &[OsString], marks: &Marks<'_>) -> Result<Template, TemplateError> {
        let mut template = Template::without_input(words, marks)?;
        if !template.has_marks() && marks.has_input() {
            template.words.push(Word::of(INPUTS));
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
        Ok(Template { variables, words: parsed, several: Several::Split })
    }

    /// The words of one job, in which nothing is a mark. `None` if they have no program.
    pub(crate) fn without_marks(words: &[OsString]) -> Option<Template> {
        let assigned = words.iter().take_while(|word| variable(word).is_some()).count();
        let (variables, words) = words.split_at(assigned);
        let variables = variables.iter().filter_map(|word| variable(word));
        let variables = variables.map(|(name, value)| (name.to_owned(), Word::of_text(value)));
        let words: Vec<Word> = words.iter().map(|word| Word::of_text(word)).collect();
        let has_program = words.first().is_some_and(|program| !program.parts.is_empty());
        has_program.then(|| Template {
            variables: variables.collect(),
            words,
            several: Several::Split,
        })
    }

    /// A script for `sh -c`, with the fields as its positional parameters.
    pub(crate) fn script(script: &OsStr, marks: &Marks<'_>) -> Result<Template, TemplateError> {
        let text = |text: &str| Word::of_text(OsStr::new(text));
        let script = Word::new(script, marks, OsStr::new("script"))?;
        let words = vec![text("sh"), text("-c"), script, text("sh"), Word::of(INPUTS)];
        Ok(Template { variables: Vec::new(), words, several: Several::Split })
    }

    /// A script without parameters.
    pub(crate) fn script_alone(
        script: &OsStr,
        marks: &Marks<'_>,
    ) -> Result<Template, TemplateError> {
        let mut template = Template::script(script, marks)?;
        template.words.pop();
        Ok(template)
    }

    pub(crate) fn with_several(self, several: Several) -> Template {
        Template { several, ..self }
    }

    /// The template of a run with that number of jobs.
    pub(crate) fn with_total(mut self, total: u64) -> Template {
        let words = self.variables.iter_mut().map(|(_, word)| word).chain(&mut self.words);
        for part in words.flat_map(|word| &mut word.parts) {
            if *part == Part::Mark(Mark::Total) {
                *part = Part::Text(total.to_string().into());
            }
        }
        self
    }

    /// The text of the program.
    pub(crate) fn program(&self) -> OsString {
        let parts = self.words.first().map_or(&[][..], |program| &program.parts);
        let texts = parts.iter().filter_map(|part| match part {
            Part::Text(text) => Some(&**text),
            Part::Mark(_) => None,
        });
        OsString::from_vec(texts.collect::<Vec<_>>().concat())
    }

    /// The text of the first argument before its first mark.
    pub(crate) fn beginning(&self) -> OsString {
        match self.words.get(1).and_then(|word| word.parts.first()) {
            Some(Part::Text(text)) => OsString::from_vec(text.clone()),
            _ => OsString::new(),
        }
    }

    /// Whether the number of jobs has to be known.
    pub(crate) fn has_total(&self) -> bool {
        self.marks().any(|mark| *mark == Mark::Total)
    }

    /// Whether a mark stands for the GPUs of a slot.
    pub(crate) fn has_gpus(&self) -> bool {
        self.marks().any(|mark| matches!(mark, Mark::Gpus))
    }

    /// Whether a mark stands for the slot, or for its machine.
    pub(crate) fn differs_by_slot(&self) -> bool {
        let is_of_slot =
            |mark: &Mark| matches!(mark, Mark::Gpus | Mark::Slot | Mark::Worker | Mark::Host);
        self.marks().any(is_of_slot)
    }

    /// Whether a variable has a mark in its value.
    pub(crate) fn varies(&self, variable: &OsStr) -> bool {
        self.variables.iter().any(|(name, value)| name == variable && value.has_marks())
    }

    /// Whether the words differ from job to job, and not only from slot to slot.
    pub(crate) fn differs_by_job(&self) -> bool {
        let is_of_job = |mark: &Mark| matches!(mark, Mark::Input(..) | Mark::Number);
        self.marks().any(is_of_job)
    }

    /// The words with all marks substituted.
    pub(crate) fn fill(&self, values: &Values<'_>) -> CommandWords {
        let variables = self.variables.iter();
        let variables =
            variables.map(|(name, word)| (name.clone(), word.joined(values, values.fields)));
        let variables = variables.collect();
        let mut words = self.words.iter().flat_map(|word| word.fill(values, self.several));
        let program = words.next().unwrap_or_default();
        CommandWords { variables, program, arguments: words.collect() }
    }

    pub(crate) fn has_marks(&self) -> bool {
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
            GpuMark::Separated(separator) => Ids::Joined(separator.into()),
            _ if for_cuda => Ids::Joined(",".into()),
            _ => Ids::Words,
        };
        Ok(Word { parts, ids })
    }

    fn of(mark: Mark) -> Word {
        Word { parts: vec![Part::Mark(mark)], ids: Ids::Words }
    }

    fn of_text(text: &OsStr) -> Word {
        let parts = match text.as_bytes() {
            b"" => Vec::new(),
            text => vec![Part::Text(text.into())],
        };
        Word { parts, ids: Ids::Words }
    }

    fn has_marks(&self) -> bool {
        self.parts.iter().any(|part| part.mark().is_some())
    }

    /// Substitutes one word. A mark for several values makes several words.
    fn fill(&self, values: &Values<'_>, several: Several) -> Vec<OsString> {
        match &*self.parts {
            [Part::Mark(Mark::Gpus)] if self.ids == Ids::Words => {
                values.gpus.iter().map(OsString::from).collect()
            }
            // An empty word that was typed.
            [] => vec![OsString::new()],
            _ if several == Several::Repeat && self.has_all_inputs() => {
                let fields = values.fields.iter();
                fields.map(|field| self.joined(values, std::slice::from_ref(field))).collect()
            }
            parts => {
                let mut split = Split::default();
                parts.iter().for_each(|part| self.put(part, values, values.fields, &mut split));
                split.finish()
            }
        }
    }

    fn has_all_inputs(&self) -> bool {
        let is_all = |part: &Part| matches!(part.mark(), Some(Mark::Input(Which::All, _)));
        self.parts.iter().any(is_all)
    }

    /// One word, with `all` as the inputs that `{}` stands for.
    fn joined(&self, values: &Values<'_>, all: &[OsString]) -> OsString {
        let mut split = Split::default();
        self.parts.iter().for_each(|part| self.put(part, values, all, &mut split));
        split.finish().join(OsStr::new(" "))
    }

    fn put(&self, part: &Part, values: &Values<'_>, all: &[OsString], split: &mut Split) {
        let mark = match part {
            Part::Text(text) => return split.push(text),
            Part::Mark(mark) => mark,
        };
        match mark {
            Mark::Input(which, form) => {
                let fields = if *which == Which::All { all } else { which.of(values.fields) };
                split.push_all(fields.iter().map(|field| form.of(field.as_bytes())));
            }
            Mark::Gpus => {
                let between = match &self.ids {
                    // A script, or a word for `env`, may set the variable, which needs commas.
                    Ids::Words if sets_visible(&split.word) => ",",
                    Ids::Words => " ",
                    Ids::Joined(separator) => separator,
                };
                split.push(values.gpus.join(between).as_bytes());
            }
            Mark::Number => split.push(values.number.to_string().as_bytes()),
            Mark::Slot => split.push((values.worker + 1).to_string().as_bytes()),
            Mark::Worker => split.push(values.worker.to_string().as_bytes()),
            Mark::Attempt => split.push(values.attempt.to_string().as_bytes()),
            Mark::Host => split.push(host_name().as_bytes()),
            // It was replaced by a text when the jobs were counted.
            Mark::Total => {}
        }
    }
}

/// The words that one word becomes. It becomes none if it consists of marks without a value.
#[derive(Default)]
struct Split {
    done: Vec<OsString>,
    word: Vec<u8>,
    has_begun: bool,
}

impl Split {
    fn push(&mut self, text: &[u8]) {
        self.word.extend_from_slice(text);
        self.has_begun = true;
    }

    fn push_all<'a>(&mut self, values: impl Iterator<Item = Cow<'a, [u8]>>) {
        for (at, value) in values.enumerate() {
            if at > 0 {
                self.done.push(OsString::from_vec(std::mem::take(&mut self.word)));
            }
            self.push(&value);
        }
    }

    fn finish(mut self) -> Vec<OsString> {
        if self.has_begun {
            self.done.push(OsString::from_vec(self.word));
        }
        self.done
    }
}

/// All inputs of the job, each a word.
const INPUTS: Mark = Mark::Input(Which::All, PathForm::Whole);

impl CommandWords {
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
    match word.to_str() {
        Some(text) if !text.is_empty() && text.bytes().all(is_plain) => text.to_owned(),
        Some(text) if !text.chars().any(char::is_control) => {
            format!("'{}'", text.replace('\'', r"'\''"))
        }
        _ => format!("$'{}'", word.as_bytes().escape_ascii().to_string().replace("\\\"", "\"")),
    }
}

/// Whether a byte means itself to a shell, wherever it is.
pub(crate) fn is_plain(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"_-./:=@%+,".contains(&byte)
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

//! Job files: each line is a command.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use thiserror::Error;

use crate::plain::Plain;
use crate::plan::gate::Gate;
use crate::plan::input_error::InputError;
use crate::plan::job::{Job, Needs};
use crate::plan::jobs::Jobs;
use crate::plan::lines::{LineReader, Separator};
use crate::plan::mark::{GpuMark, Marks};
use crate::plan::program::{self, NoProgram};
use crate::plan::rows::Counted;
use crate::plan::template::{Template, TemplateError};

/// A file with a command on each line. Each is split into words by the shell's rules for quotes, without
/// expansion. Empty lines and lines that begin with `#` are ignored. A line that begins with `--no-gpu` needs
/// no slot.
/// It is read twice, so that an invalid line is found before any job starts.
#[derive(Debug, Clone)]
pub(crate) struct JobFile {
    path: PathBuf,
    marks: Marks<'static>,
    gate: Arc<Gate>,
    kinds: Kinds,
    /// The number of jobs of each kind.
    pub(crate) on_slots: u64,
    pub(crate) without_gpu: u64,
}

/// Whether jobs without a GPU run apart from those with one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kinds {
    Apart,
    AsOne,
}

/// Why a file is not a job file.
#[derive(Debug, Error)]
pub(crate) enum JobFileError {
    #[error(transparent)]
    Input(InputError),
    #[error("line {line} of {} is not a command", path.display())]
    Line { path: PathBuf, line: u64, source: LineProblem },
}

#[derive(Debug, Error)]
pub(crate) enum LineProblem {
    /// Or a backslash at the end.
    #[error("a quote is not closed")]
    Quotes,
    /// A pipe, a redirection or the like.
    #[error(
        "no shell runs it, so {} would be an argument: quote it, or run lines of the shell with \
         --input FILE -- sh -c",
        Plain(&String::from_utf8_lossy(.0))
    )]
    Operator(Vec<u8>),
    #[error("{0}")]
    Template(TemplateError),
    #[error("{0}")]
    Program(NoProgram),
}

const NO_GPU: &[u8] = b"--no-gpu";

impl JobFile {
    pub(crate) fn check(
        path: &Path,
        marks: Marks<'static>,
        gate: &Arc<Gate>,
    ) -> Result<JobFile, JobFileError> {
        let (path, gate) = (path.to_owned(), Arc::clone(gate));
        let mut file =
            JobFile { path, marks, gate, kinds: Kinds::Apart, on_slots: 0, without_gpu: 0 };
        for job in file.read()? {
            let job = job?;
            match job.needs {
                Needs::Slot => file.on_slots += 1,
                Needs::NoGpu => file.without_gpu += 1,
            }
        }
        Ok(file)
    }

    /// The number of jobs.
    pub(crate) fn count(&self) -> u64 {
        self.on_slots + self.without_gpu
    }

    /// The jobs of one kind, each with its number in the whole file.
    pub(crate) fn jobs(&self, needs: Needs) -> Result<Jobs, JobFileError> {
        let jobs = self.read()?.filter(move |job| !matches!(job, Ok(job) if job.needs != needs));
        let count = match (self.kinds, needs) {
            (Kinds::AsOne, _) => self.count(),
            (Kinds::Apart, Needs::Slot) => self.on_slots,
            (Kinds::Apart, Needs::NoGpu) => self.without_gpu,
        };
        let count = usize::try_from(count).unwrap_or(usize::MAX);
        let jobs = jobs.map(|job| job.map_err(JobFileError::into_input));
        Ok(Box::new(Counted::new(jobs, (count, Some(count)))))
    }

    /// Treats all jobs as needing a slot.
    pub(crate) fn with_all(self) -> JobFile {
        JobFile { kinds: Kinds::AsOne, ..self }
    }

    /// For the lane that owns the gate.
    pub(crate) fn behind(&self, gate: &Arc<Gate>) -> JobFile {
        JobFile { gate: Arc::clone(gate), ..self.clone() }
    }

    fn read(
        &self,
    ) -> Result<impl Iterator<Item = Result<Job, JobFileError>> + use<>, JobFileError> {
        let lines = LineReader::open(&self.path, Separator::LineEnd, &self.gate)
            .map_err(JobFileError::Input)?;
        let (path, marks, kinds, total) = (self.path.clone(), self.marks, self.kinds, self.count());
        let mut number = 0;
        let jobs = (1..).zip(lines).filter_map(move |(line, text)| {
            let text = match text {
                Ok(text) => text,
                Err(error) => return Some(Err(JobFileError::Input(error))),
            };
            let command = parse(&text, &marks).map_err(|source| JobFileError::Line {
                path: path.clone(),
                line,
                source,
            });
            command.transpose().map(|command| {
                number += 1;
                let (mut needs, command) = command?;
                if kinds == Kinds::AsOne {
                    needs = Needs::Slot;
                }
                let (fields, command) = (Arc::from([text]), Arc::new(command.with_total(total)));
                Ok(Job { number, fields, name: None, command, needs, turn: None })
            })
        });
        Ok(jobs)
    }
}

/// The command of a line, if the line has one.
fn parse(line: &OsStr, marks: &Marks<'_>) -> Result<Option<(Needs, Template)>, LineProblem> {
    let line = line.as_bytes().trim_ascii();
    if line.is_empty() || line.starts_with(b"#") {
        return Ok(None);
    }
    if let Some(operator) = program::unquoted_operator(line) {
        return Err(LineProblem::Operator(operator));
    }
    let mut words = shlex::bytes::split(line).ok_or(LineProblem::Quotes)?;
    let needs = match words.first().is_some_and(|word| word == NO_GPU) {
        true => Needs::NoGpu,
        false => Needs::Slot,
    };
    if needs == Needs::NoGpu {
        words.remove(0);
    }
    let words: Vec<OsString> = words.into_iter().map(OsString::from_vec).collect();
    let marks = match needs {
        Needs::Slot => *marks,
        Needs::NoGpu => Marks { gpus: GpuMark::None, ..*marks },
    };
    let template = Template::without_input(&words, &marks).map_err(LineProblem::Template)?;
    program::check(&template.program()).map_err(LineProblem::Program)?;
    Ok(Some((needs, template)))
}

impl JobFileError {
    /// Turns the error into a read error: the file was changed after the check.
    fn into_input(self) -> InputError {
        match self {
            JobFileError::Input(error) => error,
            JobFileError::Line { path, .. } => InputError::changed(&path),
        }
    }
}

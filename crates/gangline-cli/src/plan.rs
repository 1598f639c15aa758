//! Turns the arguments into lanes: the source of jobs, their commands and their devices.

pub(crate) mod gate;
pub(crate) mod gated;
pub(crate) mod inputs;
pub(crate) mod job;
pub(crate) mod job_file;
pub(crate) mod mark;
pub(crate) mod path;
pub(crate) mod quotes;
pub(crate) mod slot;
pub(crate) mod template;
pub(crate) mod until_closed;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::path::Path;
use std::sync::Arc;

use crate::args::Run;
use crate::error::{CliError, Context};
use crate::exit;
use crate::plan::gate::Gate;
use crate::plan::inputs::{Jobs, Lines, Separator, Table};
use crate::plan::job::Needs;
use crate::plan::job_file::{JobFile, JobFileError};
use crate::plan::mark::{GpuMark, InputMarks, Marks};
use crate::plan::slot::Slots;
use crate::plan::template::{Template, TemplateError};

/// One lane.
pub(crate) struct Plan {
    pub(crate) source: Source,
    pub(crate) slots: Slots,
    pub(crate) gate: Arc<Gate>,
    pub(crate) needs: Needs,
    /// Whether inputs are sent to warm workers, instead of substituted into commands.
    sends_inputs: bool,
}

/// The source of its jobs.
pub(crate) enum Source {
    Given(Vec<OsString>, Arc<Template>),
    Lines(Lines, Arc<Template>),
    Table(Table, Arc<Template>),
    JobFile(JobFile),
}

/// The mark that separates a command from its inputs.
const INPUTS_FOLLOW: &str = ":::";

impl Plan {
    /// The lanes of a run: one, or two for a job file with jobs that need no GPU.
    pub(crate) fn all(args: &Run) -> Result<Vec<Plan>, CliError> {
        let slots = Slots::new(&args.placement)?;
        let gate = new_gate()?;
        match &args.inputs.job_file {
            Some(path) => {
                if !args.command.is_empty() {
                    return Err(usage(
                        "with --job-file each line is a command; remove the command after the options",
                    ));
                }
                let marks = Marks {
                    input: InputMarks::Nothing,
                    gpus: slots.mark(args.placement.gpu_separator),
                };
                if path == Path::new("-") || fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
                    return Err(usage(
                        "the job file must be a regular file, since it is read twice",
                    ));
                }
                let file = JobFile::check(path, marks, &gate).map_err(of_job_file)?;
                lanes_of(args, file, slots, gate)
            }
            None => Ok(vec![Plan::of_command(args, slots, gate)?]),
        }
    }

    fn of_command(args: &Run, slots: Slots, gate: Arc<Gate>) -> Result<Plan, CliError> {
        let gpus = slots.mark(args.placement.gpu_separator);
        let (command, given) = split(&args.command);
        if let Some(word) = args.command.iter().find(|word| *word == "::::" || *word == ":::+") {
            return Err(usage(&format!(
                "{} is not supported: write inputs after :::, or use --input FILE or --csv FILE",
                word.to_string_lossy()
            )));
        }
        if is_value(command) {
            let text = format!(
                "{} was taken for the command: join a value to its option, as in --use-gpu=false, and \
                 write a list as one word, as in --gpu-list '0 1'",
                command[0].to_string_lossy()
            );
            return Err(usage(&text));
        }
        if given.is_some_and(|given| given.iter().any(|word| word == INPUTS_FOLLOW)) {
            return Err(usage("only one ::: is supported; combinations of several are not"));
        }
        let inputs = &args.inputs;
        if given.is_some() && (inputs.input.is_some() || inputs.csv.is_some()) {
            return Err(usage("give inputs after ::: or from a file, not both"));
        }
        let separator = match inputs.null {
            true => Separator::Nul,
            false => Separator::Newline,
        };
        let source = match (given, &inputs.csv) {
            (Some(given), _) => {
                let command = template(args, command, InputMarks::Line, gpus)?;
                Source::Given(given.to_vec(), command)
            }
            (None, Some(path)) => {
                let table =
                    Table::open(path, &gate).map_err(|error| CliError::new(exit::INPUT, error))?;
                let command = template(args, command, InputMarks::Columns(table.columns()), gpus)?;
                Source::Table(table, command)
            }
            (None, None) => {
                let command = template(args, command, InputMarks::Line, gpus)?;
                // Before signals are handled: opening a named pipe waits for its writer, and a signal must
                // end that.
                let lines = Lines::open(inputs.input.as_deref(), separator, &gate)
                    .map_err(|error| CliError::new(exit::INPUT, error))?;
                Source::Lines(lines, command)
            }
        };
        Ok(Plan { source, slots, gate, needs: Needs::Slot, sends_inputs: args.warm.warm })
    }

    /// The jobs, which are read during the run.
    pub(crate) fn jobs(&mut self) -> Result<Jobs, CliError> {
        let nothing = Source::Given(Vec::new(), Arc::new(Template::default()));
        match std::mem::replace(&mut self.source, nothing) {
            Source::Given(given, command) => Ok(inputs::arguments(given, command)),
            Source::Lines(lines, command) => Ok(inputs::lines(lines, command)),
            Source::Table(table, command) => Ok(table.jobs(command)),
            Source::JobFile(file) => file.jobs(self.needs).map_err(of_job_file),
        }
    }

    /// The columns of a table; empty for other sources.
    pub(crate) fn columns(&self) -> Vec<OsString> {
        match &self.source {
            Source::Table(table, _) => table.columns().to_vec(),
            _ => Vec::new(),
        }
    }

    /// Whether jobs differ at all: otherwise the command lacks a mark for the input.
    pub(crate) fn differs_by_job(&self) -> bool {
        match &self.source {
            Source::Given(_, command) | Source::Lines(_, command) | Source::Table(_, command) => {
                command.differs_by_job() || self.sends_inputs
            }
            Source::JobFile(_) => true,
        }
    }

    /// Whether it reads what a user types.
    pub(crate) fn reads_terminal(&self) -> bool {
        matches!(&self.source, Source::Lines(lines, _) if lines.are_typed())
    }

    /// The numbers of its jobs, if several lanes share a file.
    pub(crate) fn numbers(&self) -> Result<Box<dyn Iterator<Item = u64> + Send>, CliError> {
        match &self.source {
            Source::JobFile(file) => {
                // Read without the gate, since jobs that never start have a place in the order too.
                let file = file.behind(&new_gate()?);
                let jobs = file.jobs(self.needs).map_err(of_job_file)?;
                Ok(Box::new(jobs.map_while(|job| job.ok().map(|job| job.number))))
            }
            _ => Ok(Box::new(1..)),
        }
    }
}

/// One lane for each kind of job in the file.
fn lanes_of(
    args: &Run,
    file: JobFile,
    slots: Slots,
    gate: Arc<Gate>,
) -> Result<Vec<Plan>, CliError> {
    let workers = args.placement.workers.unwrap_or(slots.len());
    let beside = workers.saturating_sub(slots.len()).max(1);
    let beside = args.placement.cpu_workers.unwrap_or(beside);
    let mut lanes = Vec::new();
    // If slots have no GPUs, all jobs are of one kind.
    let apart = file.without_gpu > 0 && slots.have_gpus();
    if !apart {
        let source = Source::JobFile(file.with_all());
        return Ok(vec![Plan { source, slots, gate, needs: Needs::Slot, sends_inputs: false }]);
    }
    if file.on_slots > 0 {
        let source = Source::JobFile(file.clone());
        lanes.push(Plan { source, slots, gate, needs: Needs::Slot, sends_inputs: args.warm.warm });
    }
    let gate = new_gate()?;
    let source = Source::JobFile(file.behind(&gate));
    lanes.push(Plan {
        source,
        slots: Slots::without_gpu(beside)?,
        gate,
        needs: Needs::NoGpu,
        sends_inputs: false,
    });
    Ok(lanes)
}

/// The words before the mark for inputs, and those after it.
fn split(words: &[OsString]) -> (&[OsString], Option<&[OsString]>) {
    match words.iter().position(|word| word == INPUTS_FOLLOW) {
        Some(at) => (&words[..at], Some(&words[at + 1..])),
        None => (words, None),
    }
}

fn template(
    args: &Run,
    words: &[OsString],
    input: InputMarks<'_>,
    gpus: GpuMark,
) -> Result<Arc<Template>, CliError> {
    let refused = |error: TemplateError| CliError::new(exit::USAGE, error);
    let template = if args.warm.warm {
        Template::without_input(words, &Marks { input: InputMarks::Sent, gpus })
    } else if args.inputs.shell {
        let script: &OsStr = match words {
            [script] => script,
            _ => return Err(usage("--shell takes one word, the script: put it in quotes")),
        };
        let columns = match input {
            InputMarks::Columns(columns) => columns,
            _ => &[],
        };
        Template::script(script, &Marks { input: InputMarks::Parameters(columns), gpus })
    } else {
        Template::new(words, &Marks { input, gpus })
    };
    template.map(Arc::new).map_err(refused)
}

/// Whether the command begins with a value meant for an option: a `--` follows it.
fn is_value(command: &[OsString]) -> bool {
    let Some((first, rest)) = command.split_first() else { return false };
    let is_number = !first.is_empty() && first.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let is_word = ["true", "false", "wait", "fail"].iter().any(|word| first == word);
    (is_number || is_word) && rest.iter().any(|word| word == "--")
}

fn new_gate() -> Result<Arc<Gate>, CliError> {
    let failed = |error| {
        CliError::new(exit::INTERNAL, Context::new("no event descriptor can be created", error))
    };
    Gate::new().map(Arc::new).map_err(failed)
}

fn of_job_file(error: JobFileError) -> CliError {
    let exit = match error {
        JobFileError::Input(_) => exit::INPUT,
        JobFileError::Line { .. } => exit::USAGE,
    };
    CliError::new(exit, error)
}

pub(crate) fn usage(text: &str) -> CliError {
    CliError::new(exit::USAGE, text)
}

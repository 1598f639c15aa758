//! Turns the arguments into lanes: the source of jobs, their commands and their devices.

pub(crate) mod edit;
pub(crate) mod gate;
pub(crate) mod gated;
pub(crate) mod grouping;
pub(crate) mod input_error;
pub(crate) mod job;
pub(crate) mod job_file;
pub(crate) mod jobs;
pub(crate) mod lines;
pub(crate) mod mark;
pub(crate) mod path;
pub(crate) mod program;
pub(crate) mod quotes;
pub(crate) mod rows;
pub(crate) mod slot;
pub(crate) mod sources;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod unknown;
pub(crate) mod until_closed;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::iter;
use std::path::Path;
use std::sync::Arc;

use crate::args::Run;
use crate::args::inputs::Grouping;
use crate::args::typed::Typed;
use crate::args::workers::Workers;
use crate::error::{CliError, Context};
use crate::exit;
use crate::plan::gate::Gate;
use crate::plan::grouping::grouped;
use crate::plan::job::Needs;
use crate::plan::job_file::{JobFile, JobFileError};
use crate::plan::jobs::{Jobs, jobs};
use crate::plan::mark::{Edits, InputMarks, Marks};
use crate::plan::rows::Rows;
use crate::plan::slot::Slots;
use crate::plan::sources::{Count, Sources};
use crate::plan::template::{Several, Template, TemplateError};

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
    Inputs { rows: Rows, names: Vec<OsString>, grouping: Grouping, command: Arc<Template> },
    JobFile(JobFile),
}

impl Plan {
    /// The lanes of a run: one, or two for a job file with jobs that need no GPU.
    pub(crate) fn all(args: &Run) -> Result<Vec<Plan>, CliError> {
        match &args.inputs.job_file {
            Some(path) => Plan::of_file(args, path),
            None => Ok(vec![Plan::of_command(args)?]),
        }
    }

    fn of_file(args: &Run, path: &Path) -> Result<Vec<Plan>, CliError> {
        if !args.command.is_empty() {
            return Err(usage(
                "with --job-file each line is a command; remove the command after the options",
            ));
        }
        if path == Path::new("-") || fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            return Err(usage("the job file must be a regular file, since it is read twice"));
        }
        let gate = new_gate()?;
        let gpus = Slots::new(&args.placement, Some(1))?.mark(args.placement.gpu_separator);
        let input = InputMarks::IsCommand;
        let edits = Edits::Refused;
        let marks = Marks { input, names: &[], most: None, renamed: &[], edits, gpus };
        let file = JobFile::check(path, marks, &gate).map_err(of_job_file)?;
        let slots = Slots::new(&args.placement, usize::try_from(file.count()).ok())?;
        lanes_of(args, file, slots, gate)
    }

    fn of_command(args: &Run) -> Result<Plan, CliError> {
        let gate = new_gate()?;
        let typed = args.typed();
        check_typed(args, &typed)?;
        let is_counted =
            args.record.bar || args.record.eta || args.placement.workers == Some(Workers::Most);
        let count = if is_counted { Count::Ahead } else { Count::No };
        // Before signals are handled: opening a named pipe waits for its writer, and a signal must end that.
        let sources = Sources::open(&args.inputs, &typed, count, &gate)
            .map_err(|error| CliError::new(exit::INPUT, error))?;
        let jobs = sources.rows.size_hint().1;
        let slots = Slots::new(&args.placement, jobs)?;
        let command = template(args, typed.command, &sources, &slots)?;
        let Sources { rows, names, .. } = sources;
        let grouping = args.inputs.grouping();
        let source = Source::Inputs { rows, names, grouping, command };
        Ok(Plan { source, slots, gate, needs: Needs::Slot, sends_inputs: args.warm.warm })
    }

    /// The jobs, which are read during the run. Their `size_hint` is exact if all inputs could be counted.
    pub(crate) fn jobs(&mut self) -> Result<Jobs, CliError> {
        let nothing = Source::Inputs {
            rows: Box::new(iter::empty()),
            names: Vec::new(),
            grouping: Grouping::One,
            command: Arc::default(),
        };
        match std::mem::replace(&mut self.source, nothing) {
            Source::Inputs { rows, grouping, command, .. } => {
                Ok(jobs(grouped(rows, grouping, self.slots.len(), &command), command))
            }
            Source::JobFile(file) => file.jobs(self.needs).map_err(of_job_file),
        }
    }

    /// The names of a job's inputs, if any has one.
    pub(crate) fn names(&self) -> Vec<OsString> {
        match &self.source {
            Source::Inputs { names, .. } if names.iter().any(|name| !name.is_empty()) => {
                names.clone()
            }
            _ => Vec::new(),
        }
    }

    /// Whether jobs differ at all: otherwise the command lacks a mark for the input.
    pub(crate) fn differs_by_job(&self) -> bool {
        match &self.source {
            Source::Inputs { grouping: Grouping::CountOnly, .. } | Source::JobFile(_) => true,
            Source::Inputs { command, .. } => command.differs_by_job() || self.sends_inputs,
        }
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
            Source::Inputs { .. } => Ok(Box::new(1..)),
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
    let workers = args.placement.workers.map(|workers| workers.count(num_cpus::get(), None));
    let workers = workers.unwrap_or(slots.len());
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

/// Checks what was typed after the options, before anything is opened.
fn check_typed(args: &Run, typed: &Typed<'_>) -> Result<(), CliError> {
    if is_value(typed.command) {
        return Err(usage(&format!(
            "{} was taken for the command: join a value to its option, as in --use-gpu=false, and \
             write a list as one word, as in --gpu-list '0 1'",
            typed.command[0].to_string_lossy()
        )));
    }
    let Run { inputs, .. } = args;
    let of_shell = program::word_of_shell(typed.command).filter(|_| inputs.passes_words());
    if let Some(word) = of_shell {
        return Err(usage(&format!(
            "{} is for a shell, and no shell runs the command: write a script with --shell, or pass the word on \
             with -q",
            template::quoted(word)
        )));
    }
    if args.warm.warm && inputs.grouping() == Grouping::CountOnly {
        return Err(usage("a warm worker gets each input, and -n 0 would send none"));
    }
    if args.source_files().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(usage("only one source can be standard input"));
    }
    Ok(())
}

fn template(
    args: &Run,
    words: &[OsString],
    sources: &Sources,
    slots: &Slots,
) -> Result<Arc<Template>, CliError> {
    let refused = |error: TemplateError| CliError::new(exit::USAGE, error);
    let Run { inputs, placement, warm, .. } = args;
    let most = match inputs.grouping() {
        Grouping::One | Grouping::CountOnly => sources.width,
        Grouping::Several(number) => sources.width.and_then(|width| width.checked_mul(number)),
        Grouping::Fitting { .. } => None,
    };
    let input = match inputs.grouping() {
        _ if warm.warm => InputMarks::Sent,
        _ if inputs.shell => InputMarks::Parameters,
        Grouping::CountOnly => InputMarks::Unused,
        _ => InputMarks::Words,
    };
    let renamed = inputs.renamed();
    let gpus = slots.mark(placement.gpu_separator);
    let edits = if inputs.plus { Edits::Computed } else { Edits::Refused };
    let marks = Marks { input, names: &sources.names, most, renamed: &renamed, edits, gpus };
    let template = if inputs.shell && !warm.warm {
        let script: &OsStr = match words {
            [script] => script,
            _ => return Err(usage("--shell takes one word, the script: put it in quotes")),
        };
        match inputs.grouping() {
            Grouping::CountOnly => Template::script_alone(script, &marks),
            _ => Template::script(script, &marks),
        }
    } else {
        Template::new(words, &marks)
    };
    let several = match inputs.repeats_words() {
        true => Several::Repeat,
        false => Several::Split,
    };
    let template = template.map_err(refused)?.with_several(several);
    program::check(&template.program()).map_err(|error| CliError::new(exit::USAGE, error))?;
    Ok(Arc::new(template))
}

/// A word of the command that a shell would replace, while here it is an argument.
pub(crate) fn unexpanded(args: &Run) -> Option<String> {
    let word = program::unexpanded(args.command_words()).filter(|_| args.inputs.passes_words())?;
    let word = template::quoted(word);
    Some(format!("{word} is passed on unchanged, since no shell runs the command: see --shell"))
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

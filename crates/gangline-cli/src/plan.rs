//! Turns the arguments into lanes: the source of jobs, their commands and their devices.

pub(crate) mod edit;
pub(crate) mod failed;
pub(crate) mod files;
pub(crate) mod gate;
pub(crate) mod gated;
pub(crate) mod grouping;
pub(crate) mod heads;
pub(crate) mod input_error;
pub(crate) mod job;
pub(crate) mod job_file;
pub(crate) mod job_key;
pub(crate) mod job_run;
pub(crate) mod jobs;
pub(crate) mod lines;
pub(crate) mod mark;
pub(crate) mod path;
pub(crate) mod program;
pub(crate) mod quotes;
pub(crate) mod read_ahead;
pub(crate) mod rows;
pub(crate) mod rules;
pub(crate) mod slot;
pub(crate) mod sources;
pub(crate) mod table;
pub(crate) mod template;
pub(crate) mod texts;
pub(crate) mod unknown;
pub(crate) mod until_closed;
pub(crate) mod value;

use std::ffi::{OsStr, OsString};
use std::fs;
use std::iter;
use std::path::Path;
use std::sync::Arc;

use crate::args::RunArgs;
use crate::args::inputs::InputGrouping;
use crate::args::list_size::ListSize;
use crate::args::typed::{Kind, Typed, TypedSource};
use crate::args::workers::{WorkerCount, Workers};
use crate::error::{CliError, Context, usage};
use crate::exit;
use crate::plan::failed::failed_jobs;
use crate::plan::files::check_purposes;
use crate::plan::gate::Gate;
use crate::plan::grouping::grouped;
use crate::plan::job::{Job, Needs};
use crate::plan::job_file::{JobFile, JobFileError};
use crate::plan::job_key::JobKey;
use crate::plan::jobs::{Jobs, jobs};
use crate::plan::mark::{Edits, InputMarks, Marks};
use crate::plan::rows::Rows;
use crate::plan::slot::JobSlots;
use crate::plan::sources::{FileCounting, Sources};
use crate::plan::template::{Several, Template, TemplateError};
use crate::plan::texts::Texts;
use crate::plan::value::{InputForm, Shape};

/// One lane.
pub(crate) struct Plan {
    pub(crate) source: JobSource,
    pub(crate) slots: JobSlots,
    pub(crate) gate: Arc<Gate>,
    pub(crate) needs: Needs,
    pub(crate) texts: Texts,
    /// Whether inputs are sent to warm workers, instead of substituted into commands.
    sends_inputs: bool,
    input_form: InputForm,
}

/// The lanes of a run.
pub(crate) struct Planned {
    pub(crate) lanes: Vec<Plan>,
    /// What the user hears before the first job.
    pub(crate) notes: Vec<String>,
}

/// What warm workers are started for.
#[derive(Debug, Clone, Default)]
pub(crate) struct WarmInputs {
    pub(crate) command: Arc<Template>,
    pub(crate) shape: Shape,
    /// The largest number of jobs, if it is known before they are read.
    pub(crate) most: Option<usize>,
}

/// The source of its jobs.
pub(crate) enum JobSource {
    Inputs {
        rows: Rows,
        names: Vec<OsString>,
        grouping: InputGrouping,
        command: Arc<Template>,
        key: JobKey,
    },
    JobFile(JobFile),
    /// The failed jobs of a log.
    Failed(Vec<Job>),
}

impl Planned {
    pub(crate) fn new(args: &RunArgs) -> Result<Planned, CliError> {
        let lanes = Plan::all(args)?;
        let is_typed = args.reads_terminal();
        let notes = [
            is_typed.then(|| {
                "reading inputs from the terminal, one per line; end with Ctrl-D".to_owned()
            }),
            all_the_same(&lanes),
            unexpanded(args),
            empty_source(args),
        ];
        Ok(Planned { lanes, notes: notes.into_iter().flatten().collect() })
    }
}

impl Plan {
    /// The lanes of a run: one, or two for a job file with jobs that need no GPU.
    pub(crate) fn all(args: &RunArgs) -> Result<Vec<Plan>, CliError> {
        check_purposes(args)?;
        // A dry run starts nothing, so it may be made on another machine.
        if !args.output.dry_run {
            slot::check(&args.placement)?;
        }
        match (&args.inputs.job_file, &args.record.joblog) {
            (Some(path), _) => Plan::of_file(args, path),
            (None, Some(log)) if args.record.retry_failed => Ok(vec![Plan::of_log(args, log)?]),
            (None, _) => Ok(vec![Plan::of_command(args)?]),
        }
    }

    fn of_log(args: &RunArgs, log: &Path) -> Result<Plan, CliError> {
        if !args.command.is_empty() {
            return Err(usage(
                "with --retry-failed the log has the commands; remove the command and the inputs after the options",
            ));
        }
        let jobs = failed_jobs(log)?;
        let slots = job_slots(args, Some(jobs.len()))?;
        Plan::of_commands(args, JobSource::Failed(jobs), (slots, Needs::Slot), new_gate(1)?)
    }

    /// A lane of jobs that each have a command of their own.
    fn of_commands(
        args: &RunArgs,
        source: JobSource,
        (slots, needs): (JobSlots, Needs),
        gate: Arc<Gate>,
    ) -> Result<Plan, CliError> {
        let texts = Texts::new(args, &marks_of_file(args, &slots))?;
        let (sends_inputs, input_form) = (false, InputForm::Text);
        Ok(Plan { source, slots, gate, needs, texts, sends_inputs, input_form })
    }

    fn of_file(args: &RunArgs, path: &Path) -> Result<Vec<Plan>, CliError> {
        if !args.command.is_empty() {
            return Err(usage(
                "with --job-file each line is a command; remove the command after the options",
            ));
        }
        if path == Path::new("-") || fs::metadata(path).is_ok_and(|meta| !meta.is_file()) {
            return Err(usage("the job file must be a regular file, since it is read twice"));
        }
        let gate = new_gate(1)?;
        let slots = job_slots(args, Some(1))?;
        let marks = marks_of_file(args, &slots);
        let file = JobFile::check(path, marks, &gate).map_err(of_job_file)?;
        let slots = job_slots(args, usize::try_from(file.count()).ok())?;
        lanes_of(args, file, slots, gate)
    }

    fn of_command(args: &RunArgs) -> Result<Plan, CliError> {
        let gate = new_gate(args.warm.workers.batch.map_or(1, ListSize::most))?;
        let typed = args.typed();
        check_typed(args, &typed)?;
        let RunArgs { record, placement, failure, .. } = args;
        let is_counted = record.bar
            || record.eta
            || failure.halt.needs_total()
            || placement.workers == Some(Workers::Number(WorkerCount::Most));
        let count = if is_counted { FileCounting::Ahead } else { FileCounting::No };
        // Before signals are handled: opening a named pipe waits for its writer, and a signal must end that.
        let sources = Sources::open(&args.inputs, &typed, count, &gate)
            .map_err(|error| CliError::new(exit::INPUT, error))?;
        let jobs = sources.rows.size_hint().1;
        let slots = job_slots(args, jobs)?;
        let renamed = args.inputs.renamed();
        let marks = marks_of_command(args, &sources, &slots, &renamed);
        let command = template(args, typed.command, &marks)?;
        let texts = Texts::new(args, &marks)?;
        let Sources { rows, names, .. } = sources;
        let grouping = args.inputs.grouping();
        let (sends_inputs, input_form) = (args.warm.warm, InputForm::of(&args.inputs));
        let key = args.inputs.key.as_deref().map(|key| JobKey::new(key, &names, input_form));
        let key = key.transpose().map_err(|why| usage(&why))?.unwrap_or_default();
        let source = JobSource::Inputs { rows, names, grouping, command, key };
        Ok(Plan { source, slots, gate, needs: Needs::Slot, texts, sends_inputs, input_form })
    }

    /// The jobs, which are read during the run. Their `size_hint` is exact if all inputs could be counted.
    pub(crate) fn jobs(&mut self) -> Result<Jobs, CliError> {
        let slots = self.slots.len();
        match &mut self.source {
            // Both are read again for the numbers of their jobs.
            JobSource::JobFile(file) => file.jobs(self.needs).map_err(of_job_file),
            JobSource::Failed(jobs) => Ok(Box::new(jobs.clone().into_iter().map(Ok))),
            JobSource::Inputs { rows, grouping, command, key, .. } => {
                let rows = std::mem::replace(rows, Box::new(iter::empty()));
                let rows = grouped(rows, *grouping, slots, command);
                Ok(jobs(rows, Arc::clone(command), key.clone()))
            }
        }
    }

    /// What warm workers need to know before the jobs are read.
    pub(crate) fn warm_inputs(&self) -> WarmInputs {
        // A job file has no warm workers.
        let JobSource::Inputs { rows, names, grouping, command, .. } = &self.source else {
            return WarmInputs::default();
        };
        let has_names = names.iter().any(|name| !name.is_empty());
        let names = if has_names { names.clone() } else { Vec::new() };
        let most = rows.size_hint().1;
        let most = match grouping {
            InputGrouping::Several(number) => most.map(|most| most.div_ceil(*number)),
            _ => most,
        };
        let shape = Shape { names, form: self.input_form };
        WarmInputs { command: Arc::clone(command), shape, most }
    }

    /// The program of all jobs, if they have one in common.
    pub(crate) fn program(&self) -> Option<OsString> {
        match &self.source {
            JobSource::Inputs { command, .. } => Some(command.program()),
            JobSource::JobFile(_) | JobSource::Failed(_) => None,
        }
    }

    /// Whether jobs differ at all: otherwise the command lacks a mark for the input.
    fn differs_by_job(&self) -> bool {
        match &self.source {
            JobSource::Inputs { grouping: InputGrouping::CountOnly, .. }
            | JobSource::JobFile(_)
            | JobSource::Failed(_) => true,
            JobSource::Inputs { command, .. } => command.differs_by_job() || self.sends_inputs,
        }
    }

    /// The numbers of its jobs, if several lanes share a file.
    pub(crate) fn numbers(&self) -> Result<Box<dyn Iterator<Item = u64> + Send>, CliError> {
        match &self.source {
            JobSource::JobFile(file) => {
                // Read without the gate, since jobs that never start have a place in the order too.
                let file = file.behind(&new_gate(1)?);
                let jobs = file.jobs(self.needs).map_err(of_job_file)?;
                Ok(Box::new(jobs.map_while(|job| job.ok().map(|job| job.number))))
            }
            JobSource::Failed(jobs) => {
                let numbers: Vec<u64> = jobs.iter().map(|job| job.number).collect();
                Ok(Box::new(numbers.into_iter()))
            }
            JobSource::Inputs { .. } => Ok(Box::new(1..)),
        }
    }

    /// Whether the numbers of its jobs have gaps.
    pub(crate) fn has_gaps(&self) -> bool {
        matches!(self.source, JobSource::Failed(_))
    }
}

/// The slots of a run: here, or on the workers of a cluster.
fn job_slots(args: &RunArgs, jobs: Option<usize>) -> Result<JobSlots, CliError> {
    let (inputs, workers) = (&args.inputs, &args.placement.workers);
    match args.cluster.nats {
        Some(_) if (inputs.many || inputs.many_split) && workers.is_none() => Err(usage(
            "with --nats, -m and -X need -j: they share the inputs out to as many slots, and those of the workers \
             are not known before",
        )),
        Some(_) => JobSlots::elsewhere(args.placement.workers.as_ref()),
        None => JobSlots::new(&args.placement, jobs),
    }
}

/// One lane for each kind of job in the file.
fn lanes_of(
    args: &RunArgs,
    file: JobFile,
    slots: JobSlots,
    gate: Arc<Gate>,
) -> Result<Vec<Plan>, CliError> {
    let workers = match args.placement.workers {
        Some(Workers::Number(amount)) => amount.count(num_cpus::get(), None),
        Some(Workers::File(_)) | None => slots.len(),
    };
    let beside = workers.saturating_sub(slots.len()).max(1);
    let beside = args.placement.cpu_workers.unwrap_or(beside);
    // If slots have no GPUs, all jobs are of one kind.
    if file.without_gpu == 0 || !slots.have_gpus() {
        let source = JobSource::JobFile(file.with_all());
        return Ok(vec![Plan::of_commands(args, source, (slots, Needs::Slot), gate)?]);
    }
    let mut lanes = Vec::new();
    if file.on_slots > 0 {
        let source = JobSource::JobFile(file.clone());
        lanes.push(Plan::of_commands(args, source, (slots, Needs::Slot), gate)?);
    }
    let gate = new_gate(1)?;
    let source = JobSource::JobFile(file.behind(&gate));
    let slots = JobSlots::without_gpu(beside)?;
    lanes.push(Plan::of_commands(args, source, (slots, Needs::NoGpu), gate)?);
    Ok(lanes)
}

/// Checks what was typed after the options, before anything is opened.
fn check_typed(args: &RunArgs, typed: &Typed<'_>) -> Result<(), CliError> {
    if is_value(typed.command) {
        return Err(usage(&format!(
            "{} was taken for the command: join a value to its option, as in --use-gpu=false, and \
             write a list as one word, as in --gpu-list '0 1'",
            typed.command[0].to_string_lossy()
        )));
    }
    let RunArgs { inputs, .. } = args;
    let file =
        typed.command.first().filter(|word| inputs.jsonl && program::is_file_of_inputs(word));
    if let Some(file) = file {
        return Err(usage(&format!(
            "{0} was taken for the command, and is no program: --jsonl takes no file, so write --jsonl --input {0}",
            template::quoted(file)
        )));
    }
    let of_shell = program::word_of_shell(typed.command).filter(|_| inputs.passes_words());
    if let Some(word) = of_shell {
        return Err(usage(&format!(
            "{} is for a shell, and no shell runs the command: write a script with --shell, or pass the word on \
             with -q",
            template::quoted(word)
        )));
    }
    if args.warm.warm && inputs.grouping() == InputGrouping::CountOnly {
        return Err(usage("a warm worker gets each input, and -n 0 would send none"));
    }
    if args.source_files().filter(|path| *path == Path::new("-")).count() > 1 {
        return Err(usage("only one source can be standard input"));
    }
    if inputs.delimiter.is_some() && args.source_files().next().is_none() {
        return Err(usage(
            "-d separates the inputs of files and of standard input, and here each word is an input: write more \
             words, or -C for columns",
        ));
    }
    Ok(())
}

/// The marks of a command.
fn marks_of_command<'a>(
    args: &RunArgs,
    sources: &'a Sources,
    slots: &JobSlots,
    renamed: &'a [(&'a OsStr, &'static str)],
) -> Marks<'a> {
    let RunArgs { inputs, placement, warm, .. } = args;
    let most = match inputs.grouping() {
        InputGrouping::One | InputGrouping::CountOnly => sources.width,
        InputGrouping::Several(number) => sources.width.and_then(|width| width.checked_mul(number)),
        InputGrouping::Fitting { .. } => None,
    };
    let input = match inputs.grouping() {
        _ if warm.warm => InputMarks::Sent,
        _ if inputs.shell => InputMarks::Parameters,
        InputGrouping::CountOnly => InputMarks::Unused,
        _ => InputMarks::Words,
    };
    let gpus = slots.mark(placement.gpu_separator);
    let edits = if inputs.plus { Edits::Computed } else { Edits::Refused };
    Marks { input, names: &sources.names, most, renamed, edits, gpus }
}

/// The marks of the commands in a job file.
fn marks_of_file(args: &RunArgs, slots: &JobSlots) -> Marks<'static> {
    let gpus = slots.mark(args.placement.gpu_separator);
    let (input, edits) = (InputMarks::IsCommand, Edits::Refused);
    Marks { input, names: &[], most: None, renamed: &[], edits, gpus }
}

fn template(
    args: &RunArgs,
    words: &[OsString],
    marks: &Marks<'_>,
) -> Result<Arc<Template>, CliError> {
    let refused = |error: TemplateError| CliError::new(exit::USAGE, error);
    let RunArgs { inputs, warm, .. } = args;
    let template = if inputs.shell && !warm.warm {
        let script: &OsStr = match words {
            [script] => script,
            _ => return Err(usage("--shell takes one word, the script: put it in quotes")),
        };
        match inputs.grouping() {
            InputGrouping::CountOnly => Template::script_alone(script, marks),
            _ => Template::script(script, marks),
        }
    } else {
        Template::new(words, marks)
    };
    let several = if inputs.repeats_words() { Several::Repeat } else { Several::Split };
    let template = template.map_err(refused)?.with_several(several);
    program::check(&template.program()).map_err(|error| CliError::new(exit::USAGE, error))?;
    Ok(Arc::new(template))
}

/// A command that is the same for all jobs.
fn all_the_same(plans: &[Plan]) -> Option<String> {
    let text = "every job runs the same command: it has no mark, such as {}, for the input";
    (!plans.iter().all(Plan::differs_by_job)).then(|| text.to_owned())
}

/// A word of the command that a shell would replace, while here it is an argument.
fn unexpanded(args: &RunArgs) -> Option<String> {
    let word = program::unexpanded(args.command_words()).filter(|_| args.inputs.passes_words())?;
    let word = template::quoted(word);
    Some(format!("{word} is passed on unchanged, since no shell runs the command: see --shell"))
}

/// A source without any word, beside others: there is no combination of them.
fn empty_source(args: &RunArgs) -> Option<String> {
    let typed = args.typed().sources;
    let is_empty =
        |source: &&TypedSource<'_>| source.kind == Kind::Inputs && source.words.is_empty();
    let has_others = typed.len() > 1 || args.source_files().next().is_some();
    typed.iter().find(is_empty).filter(|_| has_others)?;
    Some("no job runs, since one of the sources of inputs is empty".to_owned())
}

/// Whether the command begins with a value meant for an option: a `--` follows it.
fn is_value(command: &[OsString]) -> bool {
    let Some((first, rest)) = command.split_first() else { return false };
    let is_number = !first.is_empty() && first.as_encoded_bytes().iter().all(u8::is_ascii_digit);
    let is_word = ["true", "false", "wait", "fail"].iter().any(|word| first == word);
    (is_number || is_word) && rest.iter().any(|word| word == "--")
}

fn new_gate(most_waiting: usize) -> Result<Arc<Gate>, CliError> {
    let failed = |error| {
        CliError::new(exit::INTERNAL, Context::new("no event descriptor can be created", error))
    };
    Gate::new(most_waiting).map(Arc::new).map_err(failed)
}

fn of_job_file(error: JobFileError) -> CliError {
    let exit = match error {
        JobFileError::Input(_) => exit::INPUT,
        JobFileError::Line { .. } => exit::USAGE,
    };
    CliError::new(exit, error)
}

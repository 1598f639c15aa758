//! The workers behind the server: those of `gangline run --warm`, as a service of the library.

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use serde_json::value::RawValue;

use crate::args::limit::JobTimeout;
use crate::args::list_size::ListSize;
use crate::args::running::TermSequence;
use crate::args::serve::ServeArgs;
use crate::error::CliError;
use crate::execute::brake::Brake;
use crate::execute::failure::{internal, of_run};
use crate::execute::groups::Groups;
use crate::execute::job_runner::JobRunner;
use crate::execute::lane::{Lane, Lanes};
use crate::execute::retries::{DEATHS_OF_ITEM, JobRetries};
use crate::execute::run::{LONGEST_DELAY, verdict};
use crate::execute::shared::SharedRun;
use crate::execute::warm::Warm;
use crate::exit;
use crate::output::terminal::{FailureMessages, OnTerminal, ProgressLines, Terminal};
use crate::plan::WarmInputs;
use crate::plan::gate::Gate;
use crate::plan::job::{Job, Needs};
use crate::plan::mark::{Edits, InputMarks, Marks};
use crate::plan::program;
use crate::plan::rules::{Rules, StartLimits};
use crate::plan::slot::{self, Hidden, JobSlots};
use crate::plan::template::Template;
use crate::plan::texts::Texts;
use crate::plan::value::{InputForm, Shape};
use crate::serve::answering::{AnswerService, Answering, ServedValue};
use crate::serve::memory::RequestMemory;
use crate::serve::phase::Phases;
use gangline::metrics::Metrics;
use gangline::{AnyOrderRunner, CancelToken, Order, Work};

/// The slots, and the one lane that all requests take.
pub(crate) struct ServingWorkers {
    slots: JobSlots,
    command: Arc<Template>,
    pub(crate) lanes: Lanes,
    numbers: AtomicU64,
    /// Set when the workers are first started.
    warm: OnceLock<Arc<Warm>>,
}

impl ServingWorkers {
    /// Prepares the workers, and starts none.
    pub(crate) fn new(args: &ServeArgs, phases: &Arc<Phases>) -> Result<ServingWorkers, CliError> {
        let placement = args.placement();
        slot::check(&placement)?;
        let slots = JobSlots::new(&placement, None)?;
        check_numbers(args, &slots)?;
        let marks = Marks {
            input: InputMarks::Sent,
            names: &[],
            most: None,
            renamed: &[],
            edits: Edits::Refused,
            gpus: slots.mark(None),
        };
        let usage = |error| CliError::new(exit::USAGE, error);
        let command = Template::new(&args.command, &marks).map_err(usage)?;
        program::check(&command.program()).map_err(|error| CliError::new(exit::USAGE, error))?;
        let gate = Arc::new(Gate::new(1).map_err(internal)?);
        let lists = Arc::default();
        let lane = Lane {
            gate,
            token: CancelToken::new(),
            joining: CancelToken::new(),
            first_worker: 0,
            turns: None,
            texts: Arc::new(Texts::default()),
            retries: Arc::new(JobRetries::new(args.working.retries)),
            held: None,
            records: None,
            lists,
        };
        let lanes = Lanes::new(shared(args, slots.len())?, vec![lane]).served_by(phases.clone());
        lanes.begin_one();
        let numbers = AtomicU64::new(0);
        let (command, warm) = (Arc::new(command), OnceLock::new());
        Ok(ServingWorkers { slots, command, lanes, numbers, warm })
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(crate) fn lane(&self) -> &Lane {
        &self.lanes.lanes[0]
    }

    /// The number of slots that are not given up.
    pub(crate) fn left(&self) -> usize {
        self.warm.get().map_or(self.len(), |warm| warm.left())
    }

    /// Replaces each worker by a new one. Does nothing before the first start.
    pub(crate) fn reload(&self) {
        if let Some(warm) = self.warm.get() {
            warm.reload();
        }
    }

    /// Makes a job of a value, whose answer takes memory of the budget.
    pub(crate) fn value(&self, value: &RawValue, budget: Option<&RequestMemory>) -> ServedValue {
        let job = Job {
            number: self.numbers.fetch_add(1, Ordering::Relaxed) + 1,
            fields: Arc::from([value.get().into()]),
            command: Arc::clone(&self.command),
            needs: Needs::Slot,
            name: None,
            turn: None,
        };
        ServedValue::new(job, &self.lane().retries, budget)
    }

    /// Starts all workers, and waits until they are ready.
    pub(crate) fn start(&self, args: &ServeArgs, name: &str) -> Result<AnswerService, CliError> {
        let hidden = if self.slots.have_gpus() { Hidden::Others } else { Hidden::Nothing };
        let slots = self.slots.given(hidden)?;
        let shape = Shape { names: Vec::new(), form: InputForm::Json };
        let inputs = WarmInputs { command: Arc::clone(&self.command), shape, most: None };
        let warm = args.warm();
        let (lanes, lane) = (self.lanes.clone(), self.lane().clone());
        let work = Warm::new(lanes.clone(), lane.clone(), slots, inputs, &warm)
            .for_requests(args.working.min_workers);
        let work = Arc::clone(self.warm.get_or_init(|| Arc::new(work)));
        let token = lane.token.clone();
        let runner = Answering::new(JobRunner { lanes, lane, work });
        let delay = args.working.retry_delay;
        let mut builder = AnyOrderRunner::builder(runner.collect())
            .devices(self.slots.devices.clone())
            .order(Order::Completion)
            .cancel_token(token)
            .retries(args.working.retries.saturating_add(DEATHS_OF_ITEM - 1))
            .backoff(delay, LONGEST_DELAY.max(delay))
            .classify(verdict)
            .observer(Metrics::new(name));
        if let Some(queue) = args.http.queue {
            builder = builder.window(queue);
        }
        if let Some(size) = warm.batch {
            builder = builder.batch(size.of_what_is_there(warm.batch_wait));
        }
        let locks = &args.places.locks;
        if let Some(lock) = locks.lock_gpus.and_then(|in_use| locks.lock(in_use)) {
            builder = builder.lock_gpus(lock);
        }
        Ok(builder.build().map_err(of_run)?.into_service())
    }
}

/// Programs whose script is their first argument that is a file.
const INTERPRETERS: [&str; 11] =
    ["python", "pypy", "sh", "bash", "dash", "zsh", "node", "ruby", "perl", "Rscript", "julia"];
const SCRIPTS: [&str; 9] = ["py", "pyz", "sh", "bash", "js", "rb", "pl", "R", "jl"];

/// The name of the script of a command, or else of its program. The other words stay out of figures, which more people read
/// than may know what is among them, such as keys.
pub(crate) fn script_name(command: &[OsString]) -> String {
    let (program, words) = command.split_first().expect("the arguments have a command");
    let of = |word: &OsString| {
        Path::new(word).file_name().unwrap_or(word).to_string_lossy().into_owned()
    };
    let program = of(program);
    let is_interpreter = INTERPRETERS.iter().any(|name| {
        program.strip_prefix(name).is_some_and(|version| {
            version.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.')
        })
    });
    let is_script = |word: &OsString| {
        let path = Path::new(word);
        let ending = path.extension().and_then(OsStr::to_str);
        let bytes = word.as_encoded_bytes();
        let is_path = !bytes.starts_with(b"-") && !bytes.contains(&b'=');
        is_path
            && (ending.is_some_and(|it| SCRIPTS.contains(&it)) || is_interpreter && path.is_file())
    };
    let module = words.iter().position(|word| is_interpreter && word == "-m").map(|at| at + 1);
    let first = words.iter().position(is_script).into_iter().chain(module).min();
    first.and_then(|at| words.get(at)).map_or(program.clone(), of)
}

/// Refuses numbers that exclude each other.
fn check_numbers(args: &ServeArgs, slots: &JobSlots) -> Result<(), CliError> {
    let (least, workers) = (args.working.min_workers, slots.len());
    let text = match (args.http.queue, args.working.batch) {
        _ if least > workers => {
            format!("--min-workers {least} is more than there are workers: {workers}")
        }
        (Some(queue), Some(ListSize::AtMost(batch))) if queue < batch => {
            format!("--queue {queue} has no room for a list of --batch {batch}")
        }
        _ => return Ok(()),
    };
    Err(CliError::new(exit::USAGE, text))
}

/// Makes the settings that all slots share: no files, and no limit but on time.
fn shared(args: &ServeArgs, workers: usize) -> Result<SharedRun, CliError> {
    let rules = Rules {
        retry_delay: args.working.retry_delay,
        timeout: Some(JobTimeout::After(args.working.list_timeout.unwrap_or(args.working.timeout))),
        ending: TermSequence::with_pause(args.working.kill_after),
        ..Rules::default()
    };
    let groups = Groups::new(workers).map_err(internal)?;
    let terminal = Terminal::new(OnTerminal::Escape, ProgressLines::None, FailureMessages::Shown);
    let terminal = terminal.with_queue().map_err(internal)?;
    let brake = Brake::new(StartLimits::default());
    Ok(SharedRun::new(groups, terminal, None, None, rules, brake))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(command: &str, expected: &str) {
        let command: Vec<_> = command.split(' ').map(OsString::from).collect();
        assert_eq!(script_name(&command), expected);
    }

    #[test]
    fn a_name_has_no_key() {
        check("python3 predict.py --key hunter2", "predict.py");
        check("/usr/bin/python3.11 -u /srv/app/predict.py --key=hunter2.py", "predict.py");
        check("env KEY=hunter2 python3 predict.py", "predict.py");
        check("uv run --with torch predict.py hunter2", "predict.py");
        check("python3 -m model.serve --key hunter2.py", "model.serve");
        check("python3 predict.py -m hunter2", "predict.py");
        check("env KEY=hunter2.py worker", "env");
        check("./bin/worker --key hunter2", "worker");
        check("sh -c hunter2", "sh");
        check("bash Cargo.toml hunter2", "Cargo.toml");
        check("shell Cargo.toml", "shell");
        check("worker", "worker");
    }
}

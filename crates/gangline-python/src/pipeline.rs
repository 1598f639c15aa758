//! A pipeline, and a pool with a journal: stages of the library, of which each call of `imap` is a run.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use gangline::crossbeam_channel::{Receiver, TryRecvError, bounded};
use gangline::event::Event;
use gangline::{
    AnyOrderRunner, CancelToken, CfgNode, Journal, OnError, Order, RunReport, Terminator,
};
use pyo3::prelude::*;

use crate::default_window::DefaultWindow;
use crate::errors::{PoolErrorClass, Refused, pool_failure, raised};
use crate::expansion::Expansion;
use crate::item::StageItem;
use crate::line::{Joining, Line};
use crate::lock;
use crate::messages::FailedLoad;
use crate::objects::NativeObjects;
use crate::options::{KnownGpus, Options, PoolBuilder, Surroundings};
use crate::outcome::Outcome;
use crate::prints::prints;
use crate::recorded_stage::RecordedStage;
use crate::report::NativeReport;
use crate::run::{NativeRun, RunEnds, RunSlot};
use crate::run_input::RunItems;
use crate::stage::{self, Recorder, StageRunner};
use crate::wait::{EventWait, in_background};

/// A stage, as the package's Python has checked it.
#[derive(FromPyObject)]
#[pyo3(from_item_all)]
struct StageOptions {
    /// `None` in a pool.
    name: Option<String>,
    /// Which of the functions are those of this stage, from 0. `None` in a pool.
    index: Option<usize>,
    /// `None` for a stage that passes everything on.
    options: Option<Options>,
    /// The largest number of items that the stage holds.
    window: Option<usize>,
    /// Makes its items of what the stage before makes.
    expansion: Option<Expansion>,
    /// Whether its items are gathered parents.
    gathers: bool,
}

/// The order of the records, and which items are done.
#[derive(Debug, Clone, FromPyObject)]
#[pyo3(from_item_all)]
struct Keeping {
    in_order: bool,
    /// The number of records that may wait for the caller.
    window: Option<usize>,
    journal: Option<PathBuf>,
    resume: bool,
    /// Whether the journal knows items by keys, and not by their inputs.
    has_keys: bool,
}

/// The workers of all stages.
#[pyclass(frozen, module = "gangline._native")]
pub(crate) struct NativePipeline {
    state: Mutex<LineState>,
    /// Rung by a run that has ended.
    idle: EventWait,
    slot: RunSlot,
    token: CancelToken,
    terminators: Arc<[Terminator]>,
    failed: FailedLoad,
    /// Whether a run has ended with an error.
    has_failed: Arc<AtomicBool>,
    report: Arc<Mutex<Option<RunReport>>>,
    places: Vec<KnownGpus>,
    window: Option<usize>,
    /// The window of the first stage.
    first_window: Option<usize>,
}

/// Where the stages are.
enum LineState {
    Idle(Box<Line>),
    /// A run is about to have them.
    Opening,
    Running(RunThread),
    Closed,
}

/// A run in progress. Its thread returns the stages.
struct RunThread {
    ends: Arc<RunEnds>,
    line: Receiver<Box<Line>>,
    thread: JoinHandle<()>,
}

#[pymethods]
impl NativePipeline {
    /// Starts the workers, without waiting until they have loaded. `forward` is called with a `NativePrints`. Of the user's
    /// objects, threads use those in `objects`.
    #[new]
    fn new(
        py: Python<'_>,
        stages: Vec<StageOptions>,
        keeping: Keeping,
        forward: Bound<'_, PyAny>,
        objects: &NativeObjects,
    ) -> PyResult<Self> {
        let objects = objects.held();
        let (printed, prints) = prints();
        let (token, slot) = (CancelToken::new(), RunSlot::default());
        let places = places_of(&stages)?;
        let recorder = Recorder { run: slot.clone(), stages: recorded(&stages, &places) };
        let failed = FailedLoad::of_stages(recorder.stages.clone());
        let bytes = bytes_of(&stages)?;
        let first_window = stages.first().and_then(|stage| stage.window).or(keeping.window);
        let mut builders = vec![];
        for (number, mut stage) in stages.into_iter().enumerate() {
            let joining = match (stage.expansion.take(), stage.gathers) {
                (Some(expansion), _) => Joining::Expands(expansion.held(objects)),
                (None, true) => Joining::Gathers,
                (None, false) => Joining::Direct,
            };
            let around = Surroundings {
                prints: &printed,
                failed: &failed,
                objects,
                token: &token,
                stage: stage.name.as_deref(),
            };
            let builder = stage.bounded(stage.builder(&around, &recorder, &keeping)?, bytes)?;
            let builder = if number == 0 { keeping.first(builder, &slot) } else { builder };
            builders.push((joining, builder));
        }
        drop(printed);
        forward.call1((prints,))?;
        // First: where it fails, there are no workers yet.
        let idle = EventWait::new()?;
        let built = in_background(py, move || Line::build(builders));
        let built = built.inspect_err(|_| token.cancel())?;
        let (line, terminators) = built.map_err(|error| pool_failure(&error))?;
        Ok(NativePipeline {
            state: Mutex::new(LineState::Idle(Box::new(line))),
            idle,
            slot,
            token,
            terminators: terminators.into(),
            failed,
            has_failed: Arc::default(),
            report: Arc::default(),
            places: places.concat(),
            window: keeping.window,
            first_window,
        })
    }

    /// Begins a run, once the one before has ended.
    fn open_run(&self, py: Python<'_>) -> PyResult<NativeRun> {
        // First: if it fails, the stages stay where they are.
        let (ends, items) = RunEnds::new(self.window, self.first_window, self.token.clone())?;
        let line = self.take_line(py, LineState::Opening)?;
        let line =
            line.ok_or_else(|| raised(PoolErrorClass::Closed, "the pool was closed".to_owned()))?;
        self.slot.fill(&ends, self.terminators.clone());
        let run = NativeRun { ends: ends.clone(), failed: self.failed.clone() };
        // If it fails, it drops the stages, which waits for threads that may wait to be attached.
        let started = py.detach(|| self.start(line, ends, items));
        let (run, state) = match started {
            Ok(thread) => (Ok(run), LineState::Running(thread)),
            Err(error) => {
                self.has_failed.store(true, Ordering::Release);
                (Err(error.into()), LineState::Closed)
            }
        };
        *lock(&self.state) = state;
        // Another thread may wait to close the pipeline.
        self.idle.waker().wake_by_ref();
        run
    }

    /// Waits until the run before has ended, and returns whether another may follow. One that has failed was the last.
    fn is_usable(&self, py: Python<'_>) -> PyResult<bool> {
        // If another thread has closed it, the next use says so.
        if let Some(line) = self.take_line(py, LineState::Opening)? {
            *lock(&self.state) = LineState::Idle(line);
            self.idle.waker().wake_by_ref();
        }
        Ok(!self.has_failed.load(Ordering::Acquire))
    }

    /// Ends the workers in order, once the hooks that run have returned: what has not come is given up.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let Some(mut line) = self.take_line(py, LineState::Closed)? else { return Ok(()) };
        let closed = in_background(py, move || line.close())?;
        closed.map_err(|error| pool_failure(&error))
    }

    /// Ends the workers now, in the middle of their work.
    fn terminate(&self, py: Python<'_>) -> PyResult<()> {
        py.detach(|| {
            // First: a run that is given up has no error of a killed worker to tell.
            self.give_up_run();
            self.terminators.iter().for_each(Terminator::terminate);
        });
        let line = self.take_line(py, LineState::Closed)?;
        // An error of an `end` is of no interest any more.
        in_background(py, move || drop(line))
    }

    /// The ids of the GPUs of each worker, of one stage after the other; `None` of one on another machine.
    fn places(&self) -> Vec<KnownGpus> {
        self.places.clone()
    }

    /// What has happened in the last run that has ended. `None` before.
    fn report(&self) -> Option<NativeReport> {
        lock(&self.report).clone().map(NativeReport::new)
    }
}

impl NativePipeline {
    /// Takes the stages out, once no run has them, and leaves the state `then`. `None` if they were taken out before.
    /// If nothing is to follow, a run in progress is given up.
    fn take_line(&self, py: Python<'_>, then: LineState) -> PyResult<Option<Box<Line>>> {
        let is_last = matches!(then, LineState::Closed);
        let mut then = Some(then);
        let (line, thread) = self.idle.until(py, |_| {
            if is_last {
                self.give_up_run();
            }
            let mut state = lock(&self.state);
            let (next, found) = match std::mem::replace(&mut *state, LineState::Closed) {
                LineState::Idle(line) => (then.take(), Poll::Ready((Some(line), None))),
                LineState::Closed => (None, Poll::Ready((None, None))),
                LineState::Opening => (Some(LineState::Opening), Poll::Pending),
                LineState::Running(run) => match run.line.try_recv() {
                    Ok(line) => (then.take(), Poll::Ready((Some(line), Some(run.thread)))),
                    // It has panicked.
                    Err(TryRecvError::Disconnected) => {
                        (None, Poll::Ready((None, Some(run.thread))))
                    }
                    Err(TryRecvError::Empty) => (Some(LineState::Running(run)), Poll::Pending),
                },
            };
            *state = next.unwrap_or(LineState::Closed);
            found
        })?;
        if let Some(thread) = thread {
            py.detach(|| thread.join()).unwrap_or_else(|payload| resume_unwind(payload));
        }
        Ok(line)
    }

    /// Starts the thread of a run.
    fn start(
        &self,
        mut line: Box<Line>,
        ends: Arc<RunEnds>,
        items: RunItems,
    ) -> io::Result<RunThread> {
        let (put, back) = bounded(1);
        let (slot, report, idle) =
            (self.slot.clone(), self.report.clone(), self.idle.waker().clone());
        let (run_ends, has_failed) = (ends.clone(), self.has_failed.clone());
        let thread = thread::Builder::new().name("gangline-run".to_owned()).spawn(move || {
            let ran = catch_unwind(AssertUnwindSafe(|| {
                let result = line.run(items);
                *lock(&report) = Some(line.report());
                match (&result, run_ends.note_end()) {
                    // The request came when this run had ended already, so the next one would be cancelled.
                    (Ok(()), true) => _ = line.run([]),
                    (Ok(()), false) => {}
                    (Err(error), true) if error.is_cancelled() => {}
                    (Err(_), _) => has_failed.store(true, Ordering::Release),
                }
                _ = put.send(line);
                result
            }));
            // A panic is a bug of ours, for which nothing must wait.
            let (result, payload) = match ran {
                Ok(result) => (Some(result), None),
                Err(payload) => (None, Some(payload)),
            };
            drop(put);
            run_ends.end(&slot, result);
            idle.wake();
            if let Some(payload) = payload {
                resume_unwind(payload);
            }
        })?;
        Ok(RunThread { ends, line: back, thread })
    }

    /// Gives up what the run in progress has not handed over, if there is one.
    fn give_up_run(&self) {
        let ends = match &*lock(&self.state) {
            LineState::Running(run) => Some(run.ends.clone()),
            LineState::Idle(_) | LineState::Opening | LineState::Closed => None,
        };
        ends.iter().for_each(|ends| ends.give_up());
    }
}

impl StageOptions {
    /// Makes the builder of the stage's pool.
    fn builder(
        &self,
        around: &Surroundings<'_>,
        recorder: &Recorder,
        keeping: &Keeping,
    ) -> Result<PoolBuilder<StageRunner>, Refused> {
        let order = if keeping.in_order { Order::Input } else { Order::Completion };
        let builder = match &self.options {
            Some(options) => {
                let runner = options.runner(self.index, around.objects)?;
                let keys = if keeping.has_keys { "given" } else { "inputs" };
                let cfg = runner.cfg(Some(keys)).map_err(|source| Refused::Cfg { source })?;
                let runner = StageRunner::new(runner, recorder.clone());
                options.builder(runner, cfg, Python::attach(stage::recipe), around)?
            }
            None => AnyOrderRunner::builder(StageRunner::pass(recorder.clone()))
                .devices(1)
                .cfg(CfgNode::new())
                .cancel_token(around.token.clone()),
        };
        let builder = builder.order(order).on_error(OnError::Skip);
        Ok(match &self.name {
            Some(name) => builder.describe(name),
            None => builder,
        })
    }

    /// Bounds the items of the stage: by the user's window, or by the default one and the bytes for the items of all stages
    /// that have none of their own.
    fn bounded(
        &self,
        builder: PoolBuilder<StageRunner>,
        bytes: u64,
    ) -> Result<PoolBuilder<StageRunner>, Refused> {
        Ok(match (self.window, self.default_window()?) {
            (Some(window), _) => builder.window(window),
            (None, DefaultWindow { items, least, .. }) => {
                // Where sizes are known, the library's window may grow: lists stay full, and a slow item holds up less.
                let builder = match self.are_sizes_known() {
                    true => builder,
                    false => builder.window(items),
                };
                let builder = builder.least_open(least);
                builder.window_memory(bytes, StageItem::size, StageItem::size)
            }
        })
    }

    fn are_sizes_known(&self) -> bool {
        self.options.as_ref().is_some_and(Options::are_sizes_known)
    }

    fn default_window(&self) -> Result<DefaultWindow, Refused> {
        self.options.as_ref().map_or_else(|| Ok(DefaultWindow::of_pass()), DefaultWindow::of)
    }
}

impl Keeping {
    /// Gives the first stage the names of the items, and the journal.
    fn first(&self, builder: PoolBuilder<StageRunner>, slot: &RunSlot) -> PoolBuilder<StageRunner> {
        let builder = builder.key(|item: &StageItem| item.key().to_owned());
        let Some(path) = &self.journal else { return builder };
        let journal = Journal::at(path).runner("python", "1");
        let ignored = ["functions", "functions_text", "gpus", "threads", "shape", "stage"];
        let journal = ignored.into_iter().fold(journal, Journal::ignore_cfg);
        let journal = if self.resume { journal.resume() } else { journal };
        let slot = slot.clone();
        builder.journal(journal).observer(move |_: Duration, event: &Event| {
            if let Event::ItemAlreadyDone { item, .. } = event {
                slot.send(Outcome::already_done(*item));
            }
        })
    }
}

/// The bytes for the items of all stages without a window of the user's.
fn bytes_of(stages: &[StageOptions]) -> Result<u64, Refused> {
    let unbounded = stages.iter().filter(|stage| stage.window.is_none());
    unbounded.map(|stage| Ok(stage.default_window()?.bytes)).sum()
}

/// The ids of the GPUs of each worker of each stage.
fn places_of(stages: &[StageOptions]) -> Result<Vec<Vec<KnownGpus>>, Refused> {
    let places = |stage: &StageOptions| match &stage.options {
        Some(options) => options.places(),
        None => Ok(vec![Some(vec![])]),
    };
    stages.iter().map(places).collect()
}

/// The stages as records have them.
fn recorded(stages: &[StageOptions], places: &[Vec<KnownGpus>]) -> Arc<[RecordedStage]> {
    let mut first_worker = 0;
    let recorded = |(stage, places): (&StageOptions, &Vec<_>)| {
        let recorded = RecordedStage { name: stage.name.clone(), first_worker };
        first_worker += places.len();
        recorded
    };
    stages.iter().zip(places).map(recorded).collect()
}

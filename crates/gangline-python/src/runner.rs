//! A Python function as a runner.

use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use gangline::process::Recipe;
use gangline::{CfgNode, ConsumerContext, ProducerContext, Result, Runner};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyTuple};
use serde::{Deserialize, Serialize};

use crate::answer::{Answer, Made, OfAnswer};
use crate::failure::TaskFailed;
use crate::item::Given;
use crate::lock;
use crate::objects::{HeldObject, HeldObjects};
use crate::setup::{self, Setup};
use crate::value::Value;

/// How a worker makes the functions of a pool.
pub(crate) fn recipe(py: Python<'_>) -> &'static Recipe<PyRunner> {
    static RECIPE: OnceLock<Recipe<PyRunner>> = OnceLock::new();
    RECIPE.get_or_init(|| {
        Recipe::new("python", PyRunner::from_cfg)
            .version(version(py))
            .error::<TaskFailed>()
            .prepare_batch(|runner, inputs| runner.prepare(inputs, |value| value))
            .finish_batch(|runner, outputs| runner.finish(outputs))
    })
}

/// What both sides must have: this package and Python, whose code objects differ from one minor version to the next.
pub(crate) fn version(py: Python<'_>) -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| {
        let python = py.version_info();
        format!("{} for Python {}.{}", env!("CARGO_PKG_VERSION"), python.major, python.minor)
    })
}

/// The functions of a pool, for workers that are processes or threads.
pub(crate) struct PyRunner {
    functions: Functions,
    /// The ids of the GPUs of each producer, as the user counts them.
    gpus: Vec<Vec<String>>,
    threads: u64,
    shape: WorkShape,
    /// Which of the functions are those of this stage of a pipeline, from 0. `None` in a pool.
    stage: Option<usize>,
    /// In a worker process, its Python, which unpickles inputs ahead and finishes lists.
    worker: Mutex<Option<Py<PyAny>>>,
    /// Where the workers are that the hooks use.
    objects: Arc<HeldObjects>,
}

/// The functions of a pool.
pub(crate) enum Functions {
    /// On their way to worker processes of this machine.
    Sent(Setup),
    /// On their way to other machines, in the configuration: a text of the package's Python.
    SentAway(String),
    /// In a worker process, which rebuilds them.
    Received(ReceivedFunctions),
    /// What makes a worker in this process: it is called with the place.
    Here(HeldObject),
}

/// The functions of a pool, as a worker process has them.
pub(crate) enum ReceivedFunctions {
    /// Of a driver on this machine.
    Pickled(Vec<u8>),
    /// Of a driver that may be on another.
    Text(String),
}

/// What `work` is called with.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum WorkShape {
    /// One input.
    Single,
    /// A list of inputs.
    List,
}

impl PyRunner {
    pub(crate) fn new(
        functions: Functions,
        gpus: Vec<Vec<String>>,
        threads: u64,
        shape: WorkShape,
        objects: Arc<HeldObjects>,
    ) -> Self {
        let worker = Mutex::new(None);
        PyRunner { functions, gpus, threads, shape, stage: None, worker, objects }
    }

    /// Takes the functions of this stage of a pipeline, if it is one.
    pub(crate) fn of_stage(self, stage: Option<usize>) -> Self {
        PyRunner { stage, ..self }
    }

    /// What a worker makes the same runner from, and what a journal compares: the kind of its `keys`.
    pub(crate) fn cfg(&self, keys: Option<&str>) -> Result<CfgNode> {
        let (functions, text) = match &self.functions {
            Functions::Sent(setup) => (Some(setup.path()), None),
            Functions::SentAway(text) => (None, Some(text)),
            Functions::Received(_) | Functions::Here(_) => (None, None),
        };
        Ok(CfgNode::new()
            .with("keys", keys)?
            .with("functions", functions)?
            .with("functions_text", text)?
            .with("gpus", self.gpus.clone())?
            .with("threads", self.threads)?
            .with("shape", self.shape)?
            .with("stage", self.stage)?)
    }

    pub(crate) fn from_cfg(cfg: &CfgNode) -> Result<Self> {
        let text: Option<String> = cfg.get("functions_text")?;
        let functions = Functions::Received(match text {
            Some(text) => ReceivedFunctions::Text(text),
            None => ReceivedFunctions::Pickled(setup::read(&cfg.get::<String>("functions")?)?),
        });
        Ok(PyRunner {
            functions,
            gpus: cfg.get("gpus")?,
            threads: cfg.get("threads")?,
            shape: cfg.get("shape")?,
            stage: cfg.get("stage")?,
            worker: Mutex::new(None),
            objects: Arc::default(),
        })
    }

    /// Unpickles inputs, which are objects then.
    pub(crate) fn prepare<I: Given>(
        &self,
        inputs: &mut [I],
        of_object: impl Fn(Value) -> I,
    ) -> Result<()> {
        Python::attach(|py| {
            let worker = lock(&self.worker).as_ref().map(|worker| worker.clone_ref(py));
            // Without one, the hook unpickles them.
            let Some(worker) = worker else { return Ok(()) };
            let given = inputs.iter().map(|input| input.given(py));
            let given = PyList::new(py, given.collect::<PyResult<Vec<_>>>()?)?;
            let prepared = worker.call_method1(py, "prepare", (given,))?;
            for (input, object) in inputs.iter_mut().zip(prepared.bind(py).try_iter()?) {
                *input = of_object(Value::of(&object?)?);
            }
            Ok(())
        })
    }

    /// Makes the outputs of what `work` has returned for a list, if the worker's Python has left that for later.
    pub(crate) fn finish<O: OfAnswer>(&self, outputs: &mut Vec<Result<O>>) -> Result<()> {
        let Some(Ok(first)) = outputs.first() else { return Ok(()) };
        let Some(Value::Object { object: unfinished, .. }) = first.value() else { return Ok(()) };
        let (unfinished, made) = (unfinished.clone(), first.made());
        Python::attach(|py| {
            let worker = lock(&self.worker).as_ref().map(|worker| worker.clone_ref(py));
            let worker = worker.expect("a worker of this process has left the list for later");
            let since = Instant::now();
            let answers = worker.call_method1(py, "finish", unfinished.bind(py))?;
            // Here, while Python can free it.
            outputs.clear();
            drop(unfinished);
            let made = Made { took: made.took + since.elapsed(), ..made };
            match answers.bind(py).cast::<PyList>() {
                Ok(answers) => {
                    let each = answers.iter().map(|answer| answer_of(&answer, made));
                    outputs.extend(each.map(|answer| answer.map(O::of_answer)));
                    Ok(())
                }
                Err(_) => Err(TaskFailed::of(answers.bind(py), made.took)?),
            }
        })
    }

    /// Drops inputs that a worker process has worked on. Objects that are dropped outside of Python would live until its
    /// next call, with the memory that they map.
    pub(crate) fn drop_prepared<I>(&self, inputs: &mut Vec<I>) {
        if matches!(self.functions, Functions::Received(_)) {
            Python::attach(|_| inputs.clear());
        }
    }

    /// Has a worker work on one input.
    pub(crate) fn work_on(
        &self,
        cx: &ProducerContext<'_>,
        worker: &HeldObject,
        input: &impl Given,
    ) -> Result<Answer> {
        match self.shape {
            WorkShape::List => {
                let answers = self.work_on_list(cx, worker, std::slice::from_ref(input))?;
                answers.into_iter().next().expect("a list of one input has one answer")
            }
            WorkShape::Single => {
                let since = Instant::now();
                Python::attach(|py| {
                    let worker = worker.get(py)?;
                    let answer = worker.call_method1("work", (input.given(py)?,))?;
                    answer_of(&answer, self.made(cx, since.elapsed()))
                })
            }
        }
    }

    /// Has a worker work on a list of inputs.
    pub(crate) fn work_on_list(
        &self,
        cx: &ProducerContext<'_>,
        worker: &HeldObject,
        inputs: &[impl Given],
    ) -> Result<Vec<Result<Answer>>> {
        let since = Instant::now();
        Python::attach(|py| {
            let given = inputs.iter().map(|input| input.given(py));
            let given = PyList::new(py, given.collect::<PyResult<Vec<_>>>()?)?;
            let answers = worker.get(py)?.call_method1("work_on_list", (given,))?;
            let made = self.made(cx, since.elapsed());
            if let Ok(answers) = answers.cast::<PyList>() {
                let each = answers.iter().map(|answer| answer_of(&answer, made));
                return Ok(each.collect());
            }
            match answers.cast::<PyTuple>() {
                // What is to be finished stands for each output.
                Ok(unfinished) if unfinished.len() == 1 => {
                    Ok(inputs.iter().map(|_| answer_of(unfinished, made)).collect())
                }
                _ => Err(TaskFailed::of(&answers, made.took)?),
            }
        })
    }

    /// What is known of an output. The number of a producer is one of its own machine.
    fn made(&self, cx: &ProducerContext<'_>, took: Duration) -> Made {
        let made = Made::by(cx, took);
        match self.functions {
            Functions::Received(ReceivedFunctions::Text(_)) => Made { producer: None, ..made },
            _ => made,
        }
    }

    /// The arguments for a worker's Python: the number of the producer, its GPUs and its device.
    fn place(&self, cx: &ProducerContext<'_>) -> (usize, Vec<String>, String, u64) {
        let gpus = self.gpus.get(cx.producer()).cloned().unwrap_or_default();
        (cx.producer(), gpus, cx.device().to_string(), self.threads)
    }
}

impl Runner for PyRunner {
    type Input = Value;
    type Output = Answer;
    /// `gangline._worker.Worker`.
    type ProducerState = HeldObject;
    type ConsumerState = ();
    type Summary = ();

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<HeldObject> {
        let since = Instant::now();
        Python::attach(|py| {
            let place = self.place(cx);
            let started = match &self.functions {
                Functions::Received(received) => {
                    let setup = match received {
                        ReceivedFunctions::Pickled(bytes) => PyBytes::new(py, bytes).into_any(),
                        ReceivedFunctions::Text(text) => text.into_pyobject(py)?.into_any(),
                    };
                    match self.stage {
                        None => {
                            py.import("gangline._worker")?.call_method1("start", (setup, place))?
                        }
                        Some(stage) => py
                            .import("gangline._stages")?
                            .call_method1("start", (setup, place, stage))?,
                    }
                }
                Functions::Here(start) => start.get(py)?.call1((place,))?,
                Functions::Sent(_) | Functions::SentAway(_) => {
                    unreachable!("the driver's processes call the hooks")
                }
            };
            match started.cast_into::<PyTuple>() {
                Ok(failed) => Err(TaskFailed::of(&failed, since.elapsed())?),
                Err(worker) => {
                    let worker = worker.into_inner().unbind();
                    if matches!(self.functions, Functions::Received(_)) {
                        let before = lock(&self.worker).replace(worker.clone_ref(py));
                        drop(before);
                    }
                    Ok(self.objects.hold(worker))
                }
            }
        })
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        worker: &mut HeldObject,
        input: Value,
    ) -> Result<Answer> {
        self.work_on(cx, worker, &input)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        worker: &mut HeldObject,
        inputs: &mut Vec<Value>,
    ) -> Result<Vec<Result<Answer>>> {
        let answers = self.work_on_list(cx, worker, inputs)?;
        self.drop_prepared(inputs);
        Ok(answers)
    }

    fn producer_end(&self, _: &ProducerContext<'_>, worker: HeldObject) -> Result<()> {
        let since = Instant::now();
        Python::attach(|py| {
            let ahead = lock(&self.worker).take();
            drop(ahead);
            let failed = worker.get(py)?.call_method0("end")?;
            match failed.is_none() {
                true => Ok(()),
                false => Err(TaskFailed::of(&failed, since.elapsed())?),
            }
        })
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<()> {
        Ok(())
    }

    /// A service has no consumer.
    fn consumer_work(&self, _: &ConsumerContext<'_>, (): &mut (), _: Answer) -> Result<()> {
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, (): ()) -> Result<()> {
        Ok(())
    }
}

/// Reads what a worker's Python returns for one item: the pickled output, or what describes the failure.
fn answer_of(answer: &Bound<'_, PyAny>, made: Made) -> Result<Answer> {
    match Value::of(answer) {
        Ok(value) => Ok(Answer { value, made }),
        Err(_) => Err(TaskFailed::of(answer, made.took)?),
    }
}

//! A Python function as a stage of a pipeline.

use std::mem::take;
use std::sync::{Arc, OnceLock};

use gangline::process::Recipe;
use gangline::{CfgNode, ConsumerContext, Error, ProducerContext, Result, Runner};
use pyo3::Python;

use crate::answer::OfAnswer;
use crate::failure::TaskFailed;
use crate::item::StageItem;
use crate::objects::HeldObject;
use crate::outcome::Outcome;
use crate::recorded_stage::RecordedStage;
use crate::run::{RunGuard, RunSlot};
use crate::runner::{PyRunner, version};

/// How a worker makes the functions of a stage.
pub(crate) fn recipe(py: Python<'_>) -> &'static Recipe<StageRunner> {
    static RECIPE: OnceLock<Recipe<StageRunner>> = OnceLock::new();
    RECIPE.get_or_init(|| {
        Recipe::new("python-stage", StageRunner::from_cfg)
            .version(version(py))
            .error::<TaskFailed>()
            .prepare_batch(|stage, inputs| stage.prepare(inputs))
            .finish_batch(|stage, outputs| stage.finish(outputs))
    })
}

/// The functions of one stage. All stages of a pipeline have this type.
pub(crate) struct StageRunner {
    work: StageWork,
    /// What the consumer of the last stage needs. A worker has none.
    recorder: Option<Recorder>,
}

/// What a stage does.
enum StageWork {
    Python(PyRunner),
    /// Passes everything on, at an end of a pipeline that has no function of the user's.
    Pass,
}

/// How the consumer of a run makes records of what became of the items.
#[derive(Clone)]
pub(crate) struct Recorder {
    pub(crate) run: RunSlot,
    pub(crate) stages: Arc<[RecordedStage]>,
}

impl StageRunner {
    pub(crate) fn new(runner: PyRunner, recorder: Recorder) -> Self {
        StageRunner { work: StageWork::Python(runner), recorder: Some(recorder) }
    }

    /// A stage that passes everything on.
    pub(crate) fn pass(recorder: Recorder) -> Self {
        StageRunner { work: StageWork::Pass, recorder: Some(recorder) }
    }

    fn prepare(&self, inputs: &mut [StageItem]) -> Result<()> {
        match &self.work {
            StageWork::Python(runner) => runner.prepare(inputs, StageItem::new),
            StageWork::Pass => Ok(()),
        }
    }

    fn finish(&self, outputs: &mut Vec<Result<StageItem>>) -> Result<()> {
        match &self.work {
            StageWork::Python(runner) => runner.finish(outputs),
            StageWork::Pass => Ok(()),
        }
    }

    fn from_cfg(cfg: &CfgNode) -> Result<Self> {
        Ok(StageRunner { work: StageWork::Python(PyRunner::from_cfg(cfg)?), recorder: None })
    }
}

impl Recorder {
    /// Hands a record to the caller. If that has gone away, the run takes no further input.
    fn record(
        &self,
        cx: &ConsumerContext<'_>,
        stage: usize,
        outcome: impl FnOnce(u64, &RecordedStage) -> Outcome,
    ) {
        // The first stage has keys, so the index is known whatever the order.
        let index = cx.input_item().expect("a record belongs to an item");
        if !self.run.send(outcome(index, &self.stages[stage])) {
            cx.stop();
        }
    }
}

const RECORDED: &str = "the driver calls the hooks of the consumer";

impl Runner for StageRunner {
    type Input = StageItem;
    type Output = StageItem;
    /// `gangline._worker.Worker`. `None` if the stage passes everything on.
    type ProducerState = Option<HeldObject>;
    type ConsumerState = RunGuard;
    type Summary = ();

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Option<HeldObject>> {
        match &self.work {
            StageWork::Python(runner) => runner.producer_init(cx).map(Some),
            StageWork::Pass => Ok(None),
        }
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        worker: &mut Option<HeldObject>,
        input: StageItem,
    ) -> Result<StageItem> {
        match (&self.work, worker) {
            (StageWork::Python(runner), Some(worker)) => {
                Ok(StageItem::of_answer(runner.work_on(cx, worker, &input)?))
            }
            _ => Ok(input.passed(cx)),
        }
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        worker: &mut Option<HeldObject>,
        inputs: &mut Vec<StageItem>,
    ) -> Result<Vec<Result<StageItem>>> {
        match (&self.work, worker) {
            (StageWork::Python(runner), Some(worker)) => {
                let answers = runner.work_on_list(cx, worker, inputs)?;
                runner.drop_prepared(inputs);
                Ok(answers.into_iter().map(|answer| answer.map(StageItem::of_answer)).collect())
            }
            _ => Ok(take(inputs).into_iter().map(|input| Ok(input.passed(cx))).collect()),
        }
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, worker: Option<HeldObject>) -> Result<()> {
        match (&self.work, worker) {
            (StageWork::Python(runner), Some(worker)) => runner.producer_end(cx, worker),
            _ => Ok(()),
        }
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<RunGuard> {
        Ok(self.recorder.as_ref().expect(RECORDED).run.guard())
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        _: &mut RunGuard,
        output: StageItem,
    ) -> Result<()> {
        let recorder = self.recorder.as_ref().expect(RECORDED);
        let last = recorder.stages.len() - 1;
        recorder.record(cx, last, |index, stage| Outcome::of_item(index, output, stage));
        Ok(())
    }

    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        _: &mut RunGuard,
        error: &Error,
    ) -> Result<()> {
        let stage = cx.failed_stage().expect("an item was skipped");
        let recorder = self.recorder.as_ref().expect(RECORDED);
        recorder.record(cx, stage - 1, |index, stage| Outcome::of_failure(index, error, stage));
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, guard: RunGuard) -> Result<()> {
        guard.complete();
        Ok(())
    }
}

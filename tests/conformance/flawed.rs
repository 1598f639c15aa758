//! A wrapper with one flaw.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex};

use gangline::testing::conformance::{Answer, Answers, Probe, State, Task};
use gangline::{ConsumerContext, Error, ProducerContext, Result, Runner};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flaw {
    None,
    HangsAfterErrors,
    SwallowsErrors,
    KeepsSkipped,
    HidesCauses,
    ConsumesInPairs,
    SwapsResults,
    EndsNoState,
    RepeatsUntilItPasses,
    LosesTheLast,
    LeaksStates,
    CatchesPanics,
    ForwardsNoBatches,
}

/// Forwards hooks to the suite's runner, but for its flaw.
pub struct Flawed {
    probe: Arc<Probe>,
    flaw: Flaw,
    /// An answer to give instead of an error.
    earlier: Mutex<Option<Answer>>,
}

impl Flawed {
    pub fn new(probe: Probe, flaw: Flaw) -> Self {
        Flawed { probe: Arc::new(probe), flaw, earlier: Mutex::default() }
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    fn work(&self, cx: &ProducerContext<'_>, state: &mut State, task: Task) -> Result<Answer> {
        let work = |state: &mut State| self.probe.producer_work(cx, state, task.clone());
        if self.has(Flaw::CatchesPanics) {
            let caught = catch_unwind(AssertUnwindSafe(|| work(state)));
            return caught.unwrap_or_else(|_| Err("something panicked".into()));
        }
        let mut outcome = work(state);
        while outcome.is_err() && self.has(Flaw::RepeatsUntilItPasses) {
            outcome = work(state);
        }
        let mut earlier = self.earlier.lock().unwrap();
        match (outcome, &*earlier) {
            (Ok(answer), _) => {
                *earlier = Some(answer.clone());
                Ok(answer)
            }
            (Err(_), Some(answer)) if self.has(Flaw::SwallowsErrors) => Ok(answer.clone()),
            (Err(_), _) if self.has(Flaw::HidesCauses) => Err("it did not work".into()),
            (Err(_), _) if self.has(Flaw::HangsAfterErrors) => loop {
                std::thread::park();
            },
            (outcome, _) => outcome,
        }
    }
}

/// Answers, and those that wait.
pub struct Consuming {
    answers: Answers,
    waiting: Vec<Answer>,
}

impl Runner for Flawed {
    type Input = Task;
    type Output = Answer;
    type ProducerState = State;
    type ConsumerState = Consuming;
    type Summary = Answers;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<State> {
        if self.has(Flaw::LeaksStates) {
            std::mem::forget(self.probe.clone());
        }
        self.probe.producer_init(cx)
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut State,
        task: Task,
    ) -> Result<Answer> {
        self.work(cx, state, task)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut State,
        tasks: &mut Vec<Task>,
    ) -> Result<Vec<Result<Answer>>> {
        if self.has(Flaw::ForwardsNoBatches) {
            let each = tasks.drain(..).enumerate();
            return Ok(each.map(|(i, task)| self.work(&cx.at(i), state, task)).collect());
        }
        self.probe.producer_work_batch(cx, state, tasks)
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: State) -> Result<()> {
        if self.has(Flaw::EndsNoState) { Ok(()) } else { self.probe.producer_end(cx, state) }
    }

    fn consumer_init(&self, cx: &ConsumerContext<'_>) -> Result<Consuming> {
        Ok(Consuming { answers: self.probe.consumer_init(cx)?, waiting: vec![] })
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        Consuming { answers, waiting }: &mut Consuming,
        answer: Answer,
    ) -> Result<()> {
        waiting.push(answer);
        let pairs = [Flaw::ConsumesInPairs, Flaw::SwapsResults, Flaw::LosesTheLast];
        if pairs.contains(&self.flaw) && waiting.len() < 2 {
            return Ok(());
        }
        if self.has(Flaw::SwapsResults) {
            waiting.reverse();
        }
        waiting.drain(..).try_for_each(|answer| self.probe.consumer_work(cx, answers, answer))
    }

    fn consumer_skipped(
        &self,
        cx: &ConsumerContext<'_>,
        state: &mut Consuming,
        error: &Error,
    ) -> Result<()> {
        match self.has(Flaw::KeepsSkipped) {
            true => Ok(()),
            false => self.probe.consumer_skipped(cx, &mut state.answers, error),
        }
    }

    fn consumer_end(&self, cx: &ConsumerContext<'_>, state: Consuming) -> Result<Answers> {
        let Consuming { mut answers, waiting } = state;
        if !self.has(Flaw::LosesTheLast) {
            for answer in waiting {
                self.probe.consumer_work(cx, &mut answers, answer)?;
            }
        }
        self.probe.consumer_end(cx, answers)
    }
}

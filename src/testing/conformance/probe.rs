//! The suite's own runner: it does as its items say, and notes what its hooks see.

use std::cell::RefCell;
use std::fs::{self, File};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crossbeam_channel::Sender;
use serde::{Deserialize, Serialize};

use super::gate::{announce, visit};
use super::record::{Act, PoolRecord};
use crate::base::Result;
use crate::cfg::CfgNode;
use crate::error::Error;
use crate::runner::{ConsumerContext, ProducerContext, Runner};

/// Where the configuration has the folder for notes about states.
pub(super) const NOTES: &str = "conformance.notes";

/// The runner that the suite holds against the laws, alone or inside a wrapper.
///
/// The suite gives one to the function that makes the builder. In a worker, a recipe makes one by
/// [`from_cfg`](Probe::from_cfg).
#[derive(Debug)]
pub struct Probe {
    record: Arc<PoolRecord>,
}

/// An item of the suite.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Task {
    number: u64,
    work: TaskWork,
}

/// What a hook does with a task.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) enum TaskWork {
    Pass,
    Fail,
    FailAtFirst,
    Panic,
    /// Waits at the gate with this port.
    Wait(u16),
    /// Waits at the gate with this port, then fails.
    WaitAndFail(u16),
    /// Announces itself at the gate with this port, and returns when it is cancelled.
    UntilCancelled(u16),
}

/// The output for one [`Task`].
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Answer {
    pub(super) number: u64,
    /// The index that the hook was given.
    pub(super) item: Option<u64>,
    pub(super) attempt: u32,
    /// The number of items of the call.
    pub(super) batch: u64,
    /// Whether the state had seen a panic.
    pub(super) is_tainted: bool,
}

/// The summary of a run of the suite: its answers in the order of consumption.
#[derive(Debug, Default)]
pub struct Answers {
    pub(super) all: Vec<Answer>,
}

/// The state of one producer of the suite.
#[derive(Debug)]
pub struct State {
    /// Exists until the state is ended.
    note: Option<PathBuf>,
    is_tainted: bool,
}

thread_local! {
    /// Dropped when a thread ends on which hooks have run.
    static PRESENCE: RefCell<Vec<Sender<()>>> = const { RefCell::new(vec![]) };
}

impl Task {
    pub(super) fn new(number: u64, work: TaskWork) -> Self {
        Task { number, work }
    }

    pub(super) fn number(&self) -> u64 {
        self.number
    }
}

impl Answers {
    pub(super) fn numbers(&self) -> Vec<u64> {
        self.all.iter().map(|answer| answer.number).collect()
    }
}

impl Probe {
    pub(super) fn new(record: Arc<PoolRecord>) -> Self {
        Probe { record }
    }

    /// Makes the runner of a worker: the second argument of a `Recipe`.
    ///
    /// # Errors
    ///
    /// None.
    ///
    /// ```
    /// use gangline::CfgNode;
    /// use gangline::testing::conformance::Probe;
    ///
    /// assert!(Probe::from_cfg(&CfgNode::new()).is_ok());
    /// ```
    pub fn from_cfg(_: &CfgNode) -> Result<Self> {
        Ok(Probe { record: Arc::new(PoolRecord::new()) })
    }

    fn note_presence(&self) {
        if let Some(alive) = self.record.alive() {
            PRESENCE.with_borrow_mut(|all| all.push(alive));
        }
    }

    fn work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut State,
        task: &Task,
        batch: usize,
    ) -> Result<Answer> {
        let Task { number, work } = *task;
        let failure = || Err(failure_text(number).into());
        match work {
            TaskWork::Pass => {}
            TaskWork::Fail => return failure(),
            TaskWork::FailAtFirst if cx.attempt() == 1 => return failure(),
            TaskWork::FailAtFirst => {}
            TaskWork::Panic => {
                state.is_tainted = true;
                panic!("{}", panic_text(number));
            }
            TaskWork::Wait(port) => visit(port),
            TaskWork::WaitAndFail(port) => {
                visit(port);
                return failure();
            }
            TaskWork::UntilCancelled(port) => {
                let _announced = announce(port);
                while !cx.is_cancelled() {
                    // A hook has no other way to learn of it.
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
        }
        let (item, attempt, batch) = (cx.item(), cx.attempt(), batch as u64);
        Ok(Answer { number, item, attempt, batch, is_tainted: state.is_tainted })
    }
}

/// The text of the error of a task that fails.
pub(super) fn failure_text(number: u64) -> String {
    format!("task {number} fails on purpose")
}

/// The text of the panic of a task that panics.
pub(super) fn panic_text(number: u64) -> String {
    format!("task {number} panics on purpose")
}

/// A file with a name of its own, for the life of a state.
fn new_note(folder: &str) -> Result<PathBuf> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = PathBuf::from(folder).join(format!("{}-{number}.begun", std::process::id()));
    File::create_new(&path)?;
    Ok(path)
}

impl Runner for Probe {
    type Input = Task;
    type Output = Answer;
    type ProducerState = State;
    type ConsumerState = Answers;
    type Summary = Answers;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<State> {
        self.note_presence();
        let note = match cx.cfg().get_or(NOTES, String::new())?.as_str() {
            "" => None,
            folder => Some(new_note(folder)?),
        };
        Ok(State { note, is_tainted: false })
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut State,
        task: Task,
    ) -> Result<Answer> {
        self.work(cx, state, &task, 1)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut State,
        tasks: &mut Vec<Task>,
    ) -> Result<Vec<Result<Answer>>> {
        let batch = tasks.len();
        let each = tasks.drain(..).enumerate();
        Ok(each.map(|(i, task)| self.work(&cx.at(i), state, &task, batch)).collect())
    }

    fn producer_end(&self, _: &ProducerContext<'_>, state: State) -> Result<()> {
        match state.note {
            Some(note) => Ok(fs::rename(&note, note.with_extension("ended"))?),
            None => Ok(()),
        }
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Answers> {
        self.note_presence();
        Ok(Answers::default())
    }

    fn consumer_work(
        &self,
        cx: &ConsumerContext<'_>,
        answers: &mut Answers,
        answer: Answer,
    ) -> Result<()> {
        let number = answer.number;
        let act = self.record.act_at(number);
        if act != Some(Act::Fail) && act != Some(Act::Panic) {
            answers.all.push(answer);
        }
        self.record.change(|progress| progress.consumed.push(number));
        match act {
            Some(Act::Fail) => return Err(failure_text(number).into()),
            Some(Act::Panic) => panic!("{}", panic_text(number)),
            Some(Act::Stop) => cx.stop(),
            None => {}
        }
        Ok(())
    }

    fn consumer_skipped(
        &self,
        _: &ConsumerContext<'_>,
        _: &mut Answers,
        error: &Error,
    ) -> Result<()> {
        let item = error.item();
        self.record.change(|progress| progress.skipped.extend(item));
        Ok(())
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, answers: Answers) -> Result<Answers> {
        self.record.change(|progress| progress.ends += 1);
        Ok(answers)
    }
}

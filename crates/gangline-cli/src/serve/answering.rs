//! The runner of the server: sends values to workers as jobs, and makes their answers.

use std::sync::{Arc, OnceLock};

use crate::execute::job_runner::JobRunner;
use crate::execute::retries::JobRetries;
use crate::execute::warm::{Loading, Warm};
use crate::output::capture::Captured;
use crate::output::outcome::{JobFailed, JobOutcome, JobResult, Printed};
use crate::output::record::output;
use crate::plan::job::Job;
use crate::serve::memory::{NoRoom, RequestMemory, ServedAnswer};
use gangline::closures::Collect;
use gangline::{ProducerContext, Result, Runner, Service, Work};

pub(crate) type AnswerService = Service<Collect<Answering>>;
pub(crate) type AnswerTicket = gangline::service::Ticket<Collect<Answering>>;

/// Works on the values of requests.
pub(crate) struct Answering(JobRunner<Arc<Warm>>, OnceLock<()>);

/// One value of a request, as a job.
#[derive(Debug, Clone)]
pub(crate) struct ServedValue {
    job: Job,
    /// Where the answer takes memory. That of a value of the background is printed in its turn.
    budget: Option<RequestMemory>,
    /// Dropped with the last copy of the value: no hook has the job then.
    _memory: Arc<JobMemory>,
}

/// Forgets a job when it is dropped. A job whose caller goes away has no last attempt, at which it would be forgotten.
#[derive(Debug)]
struct JobMemory {
    number: u64,
    retries: Arc<JobRetries>,
}

impl ServedValue {
    pub(crate) fn new(
        job: Job,
        retries: &Arc<JobRetries>,
        budget: Option<&RequestMemory>,
    ) -> ServedValue {
        let memory = JobMemory { number: job.number, retries: Arc::clone(retries) };
        ServedValue { job, budget: budget.cloned(), _memory: Arc::new(memory) }
    }
}

impl Drop for JobMemory {
    fn drop(&mut self) {
        self.retries.forget(self.number);
    }
}

impl Answering {
    pub(crate) fn new(jobs: JobRunner<Arc<Warm>>) -> Answering {
        Answering(jobs, OnceLock::new())
    }

    /// Makes the answer to a job that has ended, or passes its failure on. Runs on the thread of the slot and not on
    /// one for HTTP, since the output may have to be read from a file. An answer takes its memory here: the other answers
    /// to its request may come much later.
    fn answer(
        &self,
        budget: Option<&RequestMemory>,
        ended: Result<Arc<JobOutcome>>,
    ) -> Result<ServedAnswer> {
        match ended {
            Ok(outcome) => {
                let printed = outcome.take_printed();
                self.show(&printed);
                let text = output(&printed)?;
                let taken = budget.map(|budget| budget.take(text.get().len())).transpose();
                Ok(match taken {
                    Ok(memory) => ServedAnswer::Kept { text, memory: memory.unwrap_or_default() },
                    Err(room) => self.dropped(room),
                })
            }
            Err(error) => {
                if let Some(JobFailed { outcome, .. }) =
                    error.downcast_ref().filter(|it: &&JobFailed| it.is_last())
                {
                    self.show(&outcome.take_printed());
                    let (number, result) = (outcome.number, &outcome.result);
                    // A bad request is no event of the server, and its caller is told.
                    if !matches!(result, JobResult::BadInput(_)) {
                        self.0.lanes.shared.terminal.tell(&format!("job {number} {result}"));
                    }
                }
                Err(error)
            }
        }
    }

    /// Drops an answer, and says so once.
    fn dropped(&self, room: NoRoom) -> ServedAnswer {
        self.1.get_or_init(|| {
            self.0.lanes.shared.terminal.tell(
                "answers that callers do not read fill the memory: further ones are dropped, and get 503",
            );
        });
        ServedAnswer::Dropped(room)
    }

    /// Prints what the worker has written to standard error for this job.
    fn show(&self, printed: &Printed) {
        // If standard error is gone, no other way to report remains.
        let terminal = &self.0.lanes.shared.terminal;
        let _ = terminal.write_captured(None, &Captured::default(), &printed.stderr);
    }
}

impl Work for Answering {
    type Input = ServedValue;
    type Output = ServedAnswer;
    type ProducerState = Loading;

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<Loading> {
        self.0.producer_init(cx)
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Loading,
        request: ServedValue,
    ) -> Result<ServedAnswer> {
        let ServedValue { job, budget, _memory } = request;
        self.answer(budget.as_ref(), self.0.producer_work(cx, state, job))
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut Loading,
        requests: &mut Vec<ServedValue>,
    ) -> Result<Vec<Result<ServedAnswer>>> {
        let budgets: Vec<_> = requests.iter().map(|request| request.budget.clone()).collect();
        let mut list = requests.iter().map(|request| request.job.clone()).collect();
        let ended = self.0.producer_work_batch(cx, state, &mut list)?;
        let ended = budgets.iter().zip(ended);
        Ok(ended.map(|(budget, ended)| self.answer(budget.as_ref(), ended)).collect())
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: Loading) -> Result<()> {
        self.0.producer_end(cx, state)
    }
}

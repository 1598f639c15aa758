//! The program's runner: a producer executes a job, the consumer writes its output.

use std::io;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;
use std::thread;

use crate::execute::lane::{Lane, Lanes};
use crate::execute::list_failure::ListFailure;
use crate::execute::process::OutputStream;
use crate::execute::records::Unwritten;
use crate::execute::shared::SharedRun;
use crate::output::capture::Captured;
use crate::output::outcome::{
    JobFailed, JobOutcome, JobResult, NextAttempt, Printed, ShownOnTerminal,
};
use crate::plan::gate::{Admission, Gate};
use crate::plan::job::Job;
use crate::plan::rules::Output;
use crate::plan::texts::OnSlot;
use gangline::{BoxError, ConsumerContext, Error, ProducerContext, Result, Runner};

/// The jobs of one lane, and how to execute them.
pub(crate) struct JobRunner<W> {
    pub(crate) lanes: Lanes,
    pub(crate) lane: Lane,
    pub(crate) work: W,
}

/// Executes jobs on a slot, given by its number in the lane.
pub(crate) trait JobWork: Send + Sync {
    /// The state that a slot keeps between jobs.
    type State;

    /// Makes a slot ready for jobs.
    fn begin(&self, slot: usize) -> Self::State;

    /// Makes one attempt at each job of a list, and returns what became of each, in their order.
    fn work(&self, slot: usize, state: &mut Self::State, list: &[Tried<'_>]) -> Vec<Worked>;

    /// Ends the slot: no job is left for it.
    fn end(&self, slot: usize, state: Self::State);
}

impl<W: JobWork> JobWork for Arc<W> {
    type State = W::State;

    fn begin(&self, slot: usize) -> W::State {
        W::begin(self, slot)
    }

    fn work(&self, slot: usize, state: &mut W::State, list: &[Tried<'_>]) -> Vec<Worked> {
        W::work(self, slot, state, list)
    }

    fn end(&self, slot: usize, state: W::State) {
        W::end(self, slot, state);
    }
}

/// A job, and the number of the attempt at it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tried<'a> {
    pub(crate) job: &'a Job,
    pub(crate) attempt: u32,
}

/// What became of a job in an attempt.
#[derive(Debug)]
pub(crate) enum Worked {
    Ended(JobOutcome),
    /// Its list failed as a whole, and is to be split. The outcome counts if nothing is tried again.
    Left(JobOutcome, ListFailure),
}

/// What the library gets for a job.
type Ended = Result<Arc<JobOutcome>>;

impl<W: JobWork> Runner for JobRunner<W> {
    type Input = Job;
    type Output = Arc<JobOutcome>;
    type ProducerState = W::State;
    type ConsumerState = Writing;
    type Summary = ();

    fn producer_init(&self, cx: &ProducerContext<'_>) -> Result<W::State> {
        Ok(self.work.begin(cx.producer()))
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut W::State,
        job: Job,
    ) -> Result<Arc<JobOutcome>> {
        self.ended(self.work_on(cx.producer(), state, &[job])).remove(0)
    }

    fn producer_work_batch(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut W::State,
        list: &mut Vec<Job>,
    ) -> Result<Vec<Ended>> {
        Ok(self.ended(self.work_on(cx.producer(), state, list)))
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: W::State) -> Result<()> {
        self.work.end(cx.producer(), state);
        Ok(())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Writing> {
        let (gate, shared) = (Arc::clone(&self.lane.gate), Arc::clone(&self.lanes.shared));
        let writing = Writing { gate, shared, records: Unwritten::default() };
        self.lanes.open_held(&self.lane)?;
        self.lanes.begin_one();
        Ok(writing)
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        writing: &mut Writing,
        outcome: Arc<JobOutcome>,
    ) -> Result<()> {
        self.write(&mut writing.records, &outcome)
    }

    fn consumer_skipped(
        &self,
        _: &ConsumerContext<'_>,
        writing: &mut Writing,
        error: &Error,
    ) -> Result<()> {
        let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
        let Some(JobFailed { outcome, .. }) = source else { return Ok(()) };
        self.write(&mut writing.records, outcome)?;
        let JobOutcome { number, result, .. } = &**outcome;
        // One message has been printed for all jobs without a program or a worker.
        if matches!(result, JobResult::NoProgram(_) | JobResult::NoWorkerLeft) {
            return Ok(());
        }
        let command = outcome.short_command();
        self.lanes.shared.terminal.tell_failure(&format!("job {number} {result}: {command}"));
        Ok(())
    }

    fn consumer_flush(&self, _: &ConsumerContext<'_>, writing: &mut Writing) -> Result<()> {
        // Before the journal says so.
        let written = writing.records.write(&self.lanes.shared.terminal);
        self.go_on_if(written.map_err(|error| (UNWRITTEN, error)))?;
        if let Some(held) = &self.lane.held {
            held.commits();
        }
        match &self.lanes.shared.results {
            None => Ok(()),
            Some(results) => results.sync().map_err(|error| {
                let text = error.to_string();
                self.lanes
                    .shared
                    .fail_output("the results of jobs cannot be put on the disk", error);
                text.into()
            }),
        }
    }

    fn consumer_end(&self, _: &ConsumerContext<'_>, _: Writing) -> Result<()> {
        Ok(())
    }
}

impl<W: JobWork> JobRunner<W> {
    /// Makes an attempt at each job of a list, and returns what became of each.
    fn work_on(&self, slot: usize, state: &mut W::State, list: &[Job]) -> Vec<Ended> {
        let _hold = Hold(&self.lanes);
        let retries = &self.lane.retries;
        let is_again = list.iter().all(|job| retries.knows(job.number));
        if !is_again {
            list.iter().for_each(|job| self.lanes.spare_results(job));
            // A job that this slot is to try again would wait for it.
            let needs_slot = || retries.are_waiting_for(slot);
            if self.lanes.start(&self.lane, list, &needs_slot) == Admission::Refused {
                list.iter().for_each(|job| retries.never_started(job.number));
                return list.iter().map(|_| Err(NOT_STARTED.into())).collect();
            }
        } else if !self.lanes.start_again(&self.lane) {
            // The run gives them no further attempt.
            return list.iter().map(|job| self.end_job(retries.cut_off(job.number))).collect();
        }
        if let Some(heads) = self.lane.gate.heads() {
            let worker = self.lane.first_worker + slot;
            list.iter().for_each(|job| heads.starts(job.number, worker));
        }
        let held = list.iter().map(|job| if is_again { None } else { self.held(job) });
        let held: Vec<_> = held.collect();
        let open = list.iter().zip(&held).filter(|(_, held)| held.is_none());
        let open: Vec<_> =
            open.map(|(job, _)| Tried { job, attempt: retries.next_attempt(job.number) }).collect();
        let worked = if open.is_empty() { Vec::new() } else { self.work.work(slot, state, &open) };
        let is_split = self.is_split(&worked);
        let (mut worked, mut done) = (worked.into_iter(), Vec::new());
        let ended = list.iter().zip(held).map(|(job, held)| match held {
            Some(outcome) => Ok(outcome),
            None => match worked.next().expect("each job has an outcome") {
                Worked::Left(outcome, whole) if is_split => Err(self.leave(outcome, whole)),
                Worked::Ended(outcome) | Worked::Left(outcome, _) => {
                    let ended = self.conclude(slot, job, Arc::new(outcome));
                    let is_done = |outcome: &&Arc<JobOutcome>| !outcome.has_lost_results();
                    done.extend(ended.iter().filter(is_done).map(|it| (job, Arc::clone(it))));
                    ended
                }
            },
        });
        let ended = ended.collect();
        self.lanes.hold(&self.lane, slot, &done);
        self.lanes.finish();
        ended
    }

    /// Whether a list that failed as a whole is split, which is reported. No list is split once the run is ending.
    fn is_split(&self, worked: &[Worked]) -> bool {
        let left = worked.iter().filter_map(|worked| match worked {
            Worked::Left(outcome, _) => Some(outcome),
            Worked::Ended(_) => None,
        });
        let Some(first) = left.clone().next().filter(|_| self.lane.gate.is_wanted()) else {
            return false;
        };
        let (number, result, more) = (first.number, &first.result, left.count() - 1);
        let text = format!("the list of job {number} and {more} more {result}, and is split");
        self.lanes.shared.terminal.tell_failure(&text);
        true
    }

    /// The error of a job whose list is split: the library gives it again in a smaller one.
    fn leave(&self, outcome: JobOutcome, whole: ListFailure) -> BoxError {
        let error = whole.error(&outcome.result);
        self.lane.retries.leave(outcome, whole);
        error
    }

    /// Ends an attempt, and the job unless it is tried again.
    fn conclude(&self, slot: usize, job: &Job, outcome: Arc<JobOutcome>) -> Ended {
        let next = self.next(slot, &outcome);
        if next != NextAttempt::Nothing {
            self.report_retry(&outcome);
            if !self.lane.gate.is_wanted() {
                // The gate was closed meanwhile. The slot that is to try the job again may wait at the gate for the job
                // to end.
                self.lane.gate.nudge();
            }
            return Err(JobFailed { outcome, next }.into());
        }
        self.lane.retries.forget(job.number);
        self.end_job(outcome)
    }

    /// Decides what follows an attempt. No job is tried again once the run is ending.
    fn next(&self, slot: usize, outcome: &Arc<JobOutcome>) -> NextAttempt {
        match outcome.result.is_ok() || !self.lane.gate.is_wanted() {
            true => NextAttempt::Nothing,
            false => self.lane.retries.after(slot, outcome),
        }
    }

    /// Reports that a job is retried. The output of the failed attempt is not printed.
    fn report_retry(&self, outcome: &JobOutcome) {
        let JobOutcome { number, attempts, result, .. } = outcome;
        let command = outcome.short_command();
        let text =
            format!("job {number} {result} at attempt {attempts}, and is retried: {command}");
        self.lanes.shared.terminal.tell_failure(&text);
    }

    /// Records the outcome of the last attempt at a job, and returns it for the library.
    fn end_job(&self, outcome: Arc<JobOutcome>) -> Ended {
        let order = self.lanes.shared.record(&outcome);
        self.lanes.obey(order);
        match outcome.result.is_ok() {
            true => Ok(outcome),
            false => Err(JobFailed { outcome, next: NextAttempt::Nothing }.into()),
        }
    }

    /// Counts the jobs whose records the consumer prints next.
    fn ended(&self, list: Vec<Ended>) -> Vec<Ended> {
        if let Some(records) = &self.lane.records {
            let is_last = |ended: &&Ended| match ended {
                Ok(_) => true,
                Err(error) => error.downcast_ref().is_some_and(JobFailed::is_last),
            };
            records.ended(list.iter().filter(is_last).count());
        }
        list
    }

    /// Writes the output of a job when its turn comes.
    fn write(&self, records: &mut Unwritten, outcome: &JobOutcome) -> Result<()> {
        let shared = &self.lanes.shared;
        let printed = outcome.take_printed();
        if let Some(turns) = &self.lane.turns {
            turns.wait_for(outcome.number);
        }
        let shown = self.show(records, outcome, &printed);
        let shown = shown.map_err(|error| (UNWRITTEN, error));
        let written = shown.and_then(|()| match &shared.results {
            Some(_) if printed.are_results_lost => {
                Err((UNWRITTEN_RESULTS, io::Error::other("they are not on the disk")))
            }
            Some(results) => {
                results.append(outcome, &printed).map_err(|error| (UNWRITTEN_RESULTS, error))
            }
            None => Ok(()),
        });
        if let Some(worker) = self.lane.gate.heads().and_then(|heads| heads.remove(outcome.number))
        {
            shared.groups.bell(worker).ring();
        }
        if let Some(turns) = &self.lane.turns {
            turns.done(outcome.number);
        }
        if let Some(held) = self.lane.held.as_ref().filter(|_| written.is_ok()) {
            held.printed(outcome);
        }
        self.lane.end_one();
        self.go_on_if(written)
    }

    /// Ends the run if an output could not be written.
    fn go_on_if(&self, written: Result<(), (&str, io::Error)>) -> Result<()> {
        written.map_err(|(what, error)| {
            let text = error.to_string();
            self.lanes.shared.fail_output(what, error);
            self.lanes.give_up();
            text.into()
        })
    }

    /// Counts and returns the outcome of a job that succeeded in an earlier run.
    fn held(&self, job: &Job) -> Option<Arc<JobOutcome>> {
        let held = self.lane.held.as_ref()?;
        match held.take(job, self.lanes.shared.rules.showing) {
            Ok(outcome) => {
                let slot = OnSlot { gpus: &[], worker: 0, attempt: 1 };
                let outcome = JobOutcome { tag: self.lane.texts.tag(job, slot), ..outcome? };
                self.lanes.obey(self.lanes.shared.count_outcome(&outcome));
                Some(Arc::new(outcome))
            }
            // It is done again.
            Err(error) => {
                let (terminal, number) = (&self.lanes.shared.terminal, job.number);
                terminal
                    .tell(&format!("job {number} runs again: its outcome cannot be read: {error}"));
                None
            }
        }
    }

    /// Prints what has not been printed while the job ran.
    fn show(
        &self,
        unwritten: &mut Unwritten,
        outcome: &JobOutcome,
        printed: &Printed,
    ) -> io::Result<()> {
        let shared = &self.lanes.shared;
        let tag = outcome.tag.as_deref();
        let nothing = Captured::default();
        let stderr = match printed.stderr_on_terminal {
            ShownOnTerminal::NotYet => &printed.stderr,
            ShownOnTerminal::Already => &nothing,
        };
        if let Some(records) = &self.lane.records {
            records.print(unwritten, outcome, printed, &shared.terminal)?;
            if records.show_done() {
                // The reader of jobs may wait for room.
                self.lane.gate.nudge();
            }
            return shared.terminal.write_captured(None, &nothing, stderr);
        }
        match (&printed.file, shared.rules.showing) {
            (Some(path), _) => {
                let mut line = path.as_os_str().as_bytes().to_vec();
                line.push(b'\n');
                shared.terminal.write(tag, OutputStream::Stdout, &line)?;
                shared.terminal.write_captured(tag, &nothing, stderr)
            }
            (None, Output::Whole) => shared.terminal.write_captured(tag, &printed.stdout, stderr),
            (None, _) => {
                let [stdout, stderr] = &printed.unshown;
                shared.terminal.write_captured(tag, stdout, stderr)?;
                // The output of another job must not continue a line.
                for (channel, unshown) in
                    [(OutputStream::Stdout, stdout), (OutputStream::Stderr, stderr)]
                {
                    if !unshown.is_empty() && unshown.tail(1) != b"\n" {
                        shared.terminal.write(None, channel, b"\n")?;
                    }
                }
                Ok(())
            }
        }
    }
}

/// Held by the consumer, which writes outputs. After it is gone, as when the journal cannot be written, no
/// job waits for its turn and no thread for input.
pub(crate) struct Writing {
    gate: Arc<Gate>,
    shared: Arc<SharedRun>,
    records: Unwritten,
}

impl Drop for Writing {
    fn drop(&mut self) {
        if let Err(error) = self.records.write(&self.shared.terminal) {
            self.shared.fail_output(UNWRITTEN, error);
        }
        self.gate.abandon();
    }
}

const UNWRITTEN_RESULTS: &str = "the results of a job cannot be written";
const UNWRITTEN: &str = "the outputs of jobs cannot be written";

/// The error of a job that was taken when the run was ending.
const NOT_STARTED: &str = "it was not started because the run was ending";

/// Closes the gate on a panic: the reader of jobs would otherwise wait for the lost job.
struct Hold<'a>(&'a Lanes);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.give_up();
        }
    }
}

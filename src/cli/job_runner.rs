//! The runner of the program: a producer has a job done, the consumer writes what it printed.

use std::sync::Arc;
use std::thread;

use super::gate::{Admission, Gate};
use super::job::Job;
use super::lane::{Lane, Lanes};
use super::outcome::{JobFailed, Outcome};
use super::shared::Output;
use crate::error::{Error, Result};
use crate::runner::{ConsumerContext, ProducerContext, Runner};

/// The jobs of one lane, and how they are done.
pub(super) struct JobRunner<W> {
    pub(super) lanes: Lanes,
    pub(super) lane: Lane,
    pub(super) work: W,
}

/// How a job is done, on a slot by its number in the lane.
pub(super) trait Work: Send + Sync {
    /// What a slot keeps from job to job.
    type State;

    fn begin(&self) -> Self::State;

    /// Does a job, as often as it takes.
    fn work(&self, slot: usize, state: &mut Self::State, job: &Job) -> Outcome;

    /// There are no more jobs for the slot.
    fn end(&self, slot: usize, state: Self::State);
}

impl<W: Work> Runner for JobRunner<W> {
    type Input = Job;
    type Output = Arc<Outcome>;
    type ProducerState = W::State;
    type ConsumerState = Writing;
    type Summary = ();

    fn producer_init(&self, _: &ProducerContext<'_>) -> Result<W::State> {
        Ok(self.work.begin())
    }

    fn producer_work(
        &self,
        cx: &ProducerContext<'_>,
        state: &mut W::State,
        job: Job,
    ) -> Result<Arc<Outcome>> {
        let _hold = Hold(&self.lanes);
        self.lanes.spare_results(&job);
        if job.start() == Admission::Refused {
            return Err(NOT_STARTED.into());
        }
        let outcome = Arc::new(self.work.work(cx.producer(), state, &job));
        self.lanes.obey(self.lanes.shared.record(&outcome));
        match outcome.result.is_ok() {
            true => Ok(outcome),
            false => Err(Box::new(JobFailed(outcome))),
        }
    }

    fn producer_end(&self, cx: &ProducerContext<'_>, state: W::State) -> Result<()> {
        self.work.end(cx.producer(), state);
        Ok(())
    }

    fn consumer_init(&self, _: &ConsumerContext<'_>) -> Result<Writing> {
        self.lanes.begin_one();
        Ok(Writing(Arc::clone(&self.lane.gate)))
    }

    fn consumer_work(
        &self,
        _: &ConsumerContext<'_>,
        _: &mut Writing,
        outcome: Arc<Outcome>,
    ) -> Result<()> {
        self.write(&outcome)
    }

    fn consumer_skipped(
        &self,
        _: &ConsumerContext<'_>,
        _: &mut Writing,
        error: &Error,
    ) -> Result<()> {
        let source = std::error::Error::source(error).and_then(|source| source.downcast_ref());
        let Some(JobFailed(outcome)) = source else { return Ok(()) };
        self.write(outcome)?;
        let Outcome { number, command, result, .. } = &**outcome;
        self.lanes.shared.terminal.tell(&format!("job {number} {result}: {command}"));
        Ok(())
    }

    fn consumer_flush(&self, _: &ConsumerContext<'_>, _: &mut Writing) -> Result<()> {
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

impl<W> JobRunner<W> {
    /// Writes what a job printed, when it is its turn.
    fn write(&self, outcome: &Outcome) -> Result<()> {
        let shared = &self.lanes.shared;
        let printed = outcome.take_printed();
        if let Some(turns) = &self.lane.turns {
            turns.wait_for(outcome.number);
        }
        let written = match shared.rules.showing {
            Output::Whole => shared.terminal.write_captured(&printed.stdout, &printed.stderr),
            Output::Lines => Ok(()),
        };
        if let Some(turns) = &self.lane.turns {
            turns.done(outcome.number);
        }
        self.lane.end_one();
        written.map_err(|error| {
            let text = error.to_string();
            shared.fail_output("the outputs of jobs cannot be written", error);
            self.lanes.give_up();
            text.into()
        })
    }
}

/// Somebody writes what jobs print. When nobody does any more, as after a journal that could not be written, no
/// job waits for its turn, and nobody for input.
pub(super) struct Writing(Arc<Gate>);

impl Drop for Writing {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

/// What a job is told that was given out when the run was ended.
const NOT_STARTED: &str = "it was not started, since the run was being ended";

/// Gives the run up when there is a panic: the reader of jobs would wait for the one that is lost.
struct Hold<'a>(&'a Lanes);

impl Drop for Hold<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            self.0.give_up();
        }
    }
}

//! A lane: one run of the library, with its own slots.

use std::ffi::OsString;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::args::halt;
use crate::error::CliError;
use crate::execute::groups::Groups;
use crate::execute::held::{EndedJob, HeldOutputs};
use crate::execute::process::ProcessEnd;
use crate::execute::records::Records;
use crate::execute::retries::JobRetries;
use crate::execute::sequence::Turns;
use crate::execute::shared::SharedRun;
use crate::exit;
use crate::output::early_end::EarlyEnd;
use crate::output::lists::Lists;
use crate::output::misplaced::Misplaced;
use crate::output::outcome::JobResult;
use crate::output::place::ResultPlace;
use crate::plain::Plain;
use crate::plan::gate::{Admission, Gate, Rest};
use crate::plan::job::Job;
use crate::plan::texts::{self, OnSlot, Texts};
use gangline::CancelToken;
use gangline::event::{TimeKind, count_as};

/// State that the hooks and the signal thread of one lane share.
#[derive(Clone)]
pub(crate) struct Lane {
    pub(crate) gate: Arc<Gate>,
    pub(crate) token: CancelToken,
    /// Ends the wait for the workers of a cluster. A drain of the run must not reach them: it would refuse jobs that have
    /// started.
    pub(crate) joining: CancelToken,
    /// The number of its first slot among those of all lanes.
    pub(crate) first_worker: usize,
    /// Set if outputs are in input order and there are several lanes.
    pub(crate) turns: Option<Turns>,
    pub(crate) texts: Arc<Texts>,
    pub(crate) retries: Arc<JobRetries>,
    /// Set if there is a journal.
    pub(crate) held: Option<Arc<HeldOutputs>>,
    /// Set if a record is printed for each job.
    pub(crate) records: Option<Arc<Records>>,
    pub(crate) lists: Arc<Lists>,
}

impl Lane {
    /// Lets no further job start in this lane.
    pub(crate) fn close(&self) {
        let rest = self.gate.close();
        if rest == Rest::Some {
            // Jobs that wait for another attempt end with the outcome of the last one.
            self.token.drain();
        }
        self.follow(rest);
    }

    /// A job of the lane has ended, and its output was written.
    pub(crate) fn end_one(&self) {
        self.follow(self.gate.end());
    }

    fn follow(&self, rest: Rest) {
        match rest {
            Rest::Some => {}
            // In this order: a refused job then belongs to a cancelled run, and does not count as failed.
            Rest::None => {
                self.token.cancel();
                self.joining.cancel();
                self.gate.abandon();
            }
        }
    }
}

/// All lanes of a run; one that ends early ends the others.
#[derive(Clone)]
pub(crate) struct Lanes {
    pub(crate) shared: Arc<SharedRun>,
    pub(crate) lanes: Arc<[Lane]>,
    /// The number of lanes that have begun.
    begun: Arc<AtomicUsize>,
    /// Set if the jobs are requests.
    server: Option<Arc<dyn Server>>,
}

/// A server. Its requests are the jobs.
pub(crate) trait Server: Send + Sync {
    /// Accepts no further request, and ends once those that were accepted are answered.
    fn drain(&self);

    /// Replaces the workers by new ones.
    fn reload(&self);
}

impl Lanes {
    pub(crate) fn new(shared: SharedRun, lanes: Vec<Lane>) -> Lanes {
        Lanes { shared: Arc::new(shared), lanes: lanes.into(), begun: Arc::default(), server: None }
    }

    pub(crate) fn served_by(self, server: Arc<dyn Server>) -> Lanes {
        Lanes { server: Some(server), ..self }
    }

    /// Whether the jobs are requests.
    pub(crate) fn are_served(&self) -> bool {
        self.server.is_some()
    }

    /// Replaces the workers of a server by new ones.
    pub(crate) fn reload(&self) {
        if let Some(server) = &self.server {
            server.reload();
        }
    }

    /// Ends the run in order: no further job starts. Requests that were accepted are jobs that have started.
    pub(crate) fn wind_down(&self) {
        match &self.server {
            Some(server) => server.drain(),
            None => self.close(),
        }
    }

    /// A lane has its journal and the locks of its GPUs. No job starts before all lanes have begun, so that a
    /// refused run has no effect.
    pub(crate) fn begin_one(&self) {
        if self.begun.fetch_add(1, Ordering::SeqCst) + 1 == self.lanes.len() {
            self.lanes.iter().for_each(|lane| lane.gate.open());
        }
    }

    /// Reads what an earlier run holds. The journal is locked, and no job has started.
    pub(crate) fn open_held(&self, lane: &Lane) -> Result<(), String> {
        let Some(held) = &lane.held else { return Ok(()) };
        held.open().map_err(|error| {
            let text = error.to_string();
            self.shared.fail(held.error(error));
            text
        })
    }

    /// Holds successes until the journal has them. Before that, the slot takes no other job.
    pub(crate) fn hold(&self, lane: &Lane, slot: usize, ended: &[EndedJob<'_>]) {
        let Some(held) = &lane.held else { return };
        let before = || self.shared.sync_unprinted();
        let keep = || held.keep(slot, ended, self.shared.rules.showing, &before);
        if let Err(error) = count_as(TimeKind::Journal, "--journal", keep) {
            self.shared.fail(held.error(error));
            self.close();
        }
    }

    /// Waits until the jobs of a list may start, which counts as one start. Jobs that are held back keep their slot.
    pub(crate) fn start(
        &self,
        lane: &Lane,
        list: &[Job],
        needs_slot: &dyn Fn() -> bool,
    ) -> Admission {
        let brake = &self.shared.brake;
        if brake.is_off() || !lane.gate.opened() {
            return Job::start(list, needs_slot);
        }
        if !self.wait_for_brake(lane) {
            return Job::start(list, needs_slot);
        }
        let admission = Job::start(list, needs_slot);
        if admission == Admission::Refused {
            brake.end();
        }
        admission
    }

    /// Ends the run since the program of all jobs is not there. The result is that of a job that could not start.
    pub(crate) fn end_without(&self, program: OsString, error: io::Error) -> JobResult {
        self.close();
        match self.shared.missing_program.set(program) {
            Ok(()) => JobResult::NotStarted(error),
            // The first has a message.
            Err(_) => JobResult::NoProgram(error),
        }
    }

    /// Waits until retried jobs may start. Returns false if the run is ending.
    pub(crate) fn start_again(&self, lane: &Lane) -> bool {
        let brake = &self.shared.brake;
        lane.gate.is_wanted() && (brake.is_off() || self.wait_for_brake(lane))
    }

    fn wait_for_brake(&self, lane: &Lane) -> bool {
        loop {
            let seen = lane.gate.nudges();
            let Err(held) = self.shared.brake.try_start() else { return true };
            if let Some(message) = held.message {
                self.shared.terminal.tell(&message);
            }
            let rest = || lane.gate.rest_until_nudged(seen, held.look_again);
            if !count_as(TimeKind::HeldBack, held.by, rest) {
                return false;
            }
        }
    }

    /// The jobs of a list no longer run on their slot; their outputs may still have to be written.
    pub(crate) fn finish(&self) {
        let brake = &self.shared.brake;
        if brake.counts_jobs() {
            brake.end();
            self.lanes.iter().for_each(|lane| lane.gate.nudge());
        }
    }

    pub(crate) fn groups(&self) -> &Groups {
        &self.shared.groups
    }

    /// One lane has this number of jobs.
    pub(crate) fn count(&self, jobs: u64) {
        self.shared.count(jobs, self.lanes.len());
    }

    /// Lets no further job start.
    pub(crate) fn close(&self) {
        self.lanes.iter().for_each(Lane::close);
        if let Some(server) = &self.server {
            server.drain();
        }
    }

    /// Stops the run if the results of another job are in this job's place.
    pub(crate) fn spare_results(&self, job: &Job) {
        let Some(results) = &self.shared.results else { return };
        if let Some((place, other)) = results.other_in_place_of(job) {
            let other = Plain(&other);
            let text = format!(
                "{} has the results of another input, {other}: other inputs have changed the numbers of \
                 jobs, so give this run a --results directory of its own",
                place.display()
            );
            self.shared.fail(CliError::new(exit::OUTPUT, text));
            self.close();
        }
    }

    /// Returns the place of the results of an attempt. If it is refused, the attempt does not start, and the error
    /// is its result.
    pub(crate) fn place_results(
        &self,
        lane: &Lane,
        job: &Job,
        slot: OnSlot<'_>,
    ) -> Result<Option<ResultPlace>, JobResult> {
        let Some(results) = &self.shared.results else { return Ok(None) };
        let name = lane.texts.results.as_ref().map(|text| texts::fill(text, job, slot));
        match results.place(job.number, &name.unwrap_or_default()) {
            // The text lacks a mark that tells jobs apart, so later jobs would fail as well.
            Err(taken @ Misplaced::Taken { .. }) => {
                self.shared.fail_output(RESULTS, io::Error::other(taken));
                self.close();
                Err(JobResult::Ended(ProcessEnd::Halted))
            }
            place => place.map_err(JobResult::Misplaced),
        }
    }

    /// Whether there are jobs that have not started.
    pub(crate) fn have_left_jobs(&self) -> bool {
        self.lanes.iter().any(|lane| !lane.gate.has_started_all())
    }

    /// The jobs that were ended with the run, and what ended it, if that ended jobs or kept some from their start.
    pub(crate) fn early_end(&self) -> EarlyEnd {
        let EarlyEnd { halt, ended } = self.shared.early_end();
        let halt = halt.filter(|_| !ended.is_empty() || self.have_left_jobs());
        EarlyEnd { halt, ended }
    }

    /// Applies the action that a failed job asks for.
    pub(crate) fn obey(&self, order: halt::HaltAction) {
        match order {
            halt::HaltAction::GoOn if self.shared.has_failed() => self.close(),
            halt::HaltAction::GoOn => {}
            halt::HaltAction::StartNoMore => self.close(),
            halt::HaltAction::EndAll => {
                self.close();
                self.groups().end_all();
            }
        }
    }

    /// Outputs are no longer wanted, or cannot be written.
    pub(crate) fn give_up(&self) {
        self.lanes.iter().for_each(|lane| lane.gate.abandon());
        self.groups().end_all();
    }
}

const RESULTS: &str = "the results of jobs cannot be written";

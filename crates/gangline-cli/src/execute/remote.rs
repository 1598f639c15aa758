//! Jobs that run on the workers of a cluster: each slot sends one at a time, and waits for its outcome.

use std::env;
use std::error::Error as _;
use std::ffi::OsString;
use std::future::Future;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant, SystemTime};

use rustix::event::PollFlags;

use crate::args::served::Served;
use crate::broker;
use crate::error::CliError;
use crate::execute::command_runner::{COMMANDS, CommandRunner, SlotBell};
use crate::execute::failure::of_run;
use crate::execute::groups::Wish;
use crate::execute::job_runner::{JobWork, Tried, Worked};
use crate::execute::lane::{Lane, Lanes};
use crate::execute::process::ProcessEnd;
use crate::execute::readiness::ready;
use crate::execute::remote_file::{RemoteFile, file_below};
use crate::execute::remote_job::{RemoteEnd, RemoteJob, RemoteOutcome, RemotePath, RemoteRun};
use crate::execute::remote_report::{JobPlaces, put_workers};
use crate::exit;
use crate::locking::lock;
use crate::output::capture::{Captured, Spill};
use crate::output::outcome::{JobOutcome, JobResult, Printed};
use crate::plan::job::Job;
use crate::plan::job_run::ClusterRun;
use crate::plan::template::Template;
use crate::plan::texts::{self, OnSlot, Tag};
use gangline::backend::Bell;
use gangline::error::WorkerError;
use gangline::event::Event;
use gangline::report::HumanDuration;
use gangline::{AnyOrderRunner, Error, RunReport, Service};
use gangline_nats::{ClusterBuilder, ClusterError, workers};

/// The workers of a cluster that run commands.
pub(crate) struct RemoteWorkers {
    service: Service<CommandRunner>,
    /// The workers of the jobs, for the report.
    places: Mutex<JobPlaces>,
}

/// The slots of one lane, whose jobs run on these workers.
pub(crate) struct Remote {
    lanes: Lanes,
    lane: Lane,
    workers: Arc<RemoteWorkers>,
    common: RemoteRun,
    is_reported: bool,
}

impl RemoteWorkers {
    /// Waits for a first worker. Returns `None` if the run ends meanwhile.
    pub(crate) fn join(
        run: &ClusterRun,
        lanes: &Lanes,
        lane: &Lane,
    ) -> Result<Option<RemoteWorkers>, CliError> {
        let namespace = broker::namespace(&Served::Commands);
        let nats = broker::nats(run.url.clone(), Some(&namespace));
        let nats = nats.lease_time(run.lease).wait_for(run.wait_for).max_workers(MOST_WORKERS);
        if workers(&nats).is_ok_and(|here| here.is_empty()) {
            let at = nats.address();
            lanes.shared.terminal.tell(&format!("waiting for a worker of {namespace} at {at}"));
        }
        let gate = Arc::clone(&lane.gate);
        let builder = AnyOrderRunner::builder(CommandRunner).cluster(&COMMANDS, nats);
        let token = lane.joining.clone();
        let builder = builder.cancel_token(token).observer(move |_: Duration, event: &Event| {
            // A job that waits for a worker looks again.
            if matches!(event, Event::WorkerJoined { .. } | Event::WorkerLeft { .. }) {
                gate.nudge();
            }
        });
        // The token ends only a wait that has begun.
        if !lane.gate.is_wanted() {
            return Ok(None);
        }
        match builder.build() {
            Ok(pool) => {
                let (service, places) = (pool.into_service(), Mutex::default());
                Ok(Some(RemoteWorkers { service, places }))
            }
            Err(error) if error.is_cancelled() => Ok(None),
            Err(error) => Err(ended(error)),
        }
    }

    /// The number of jobs that they can run at once now.
    pub(crate) fn capacity(&self) -> usize {
        self.service.capacity().unwrap_or_default()
    }

    /// Waits until no worker has a job of this run.
    pub(crate) fn close(&self) -> Result<(), Error> {
        self.service.close()
    }

    /// Puts the workers into the report of a run, in the place of the slots here.
    pub(crate) fn describe(&self, report: &mut RunReport) {
        put_workers(report, self.service.report(), &lock(&self.places));
    }
}

/// Each has a thread here, which mostly sleeps.
const MOST_WORKERS: usize = 256;

impl Remote {
    pub(crate) fn new(
        run: (&ClusterRun, bool),
        lanes: Lanes,
        lane: Lane,
        workers: Arc<RemoteWorkers>,
    ) -> Remote {
        let (run, is_reported) = run;
        let rules = &lanes.shared.rules;
        let set = |name: &OsString| Some((name.clone(), env::var_os(name)?));
        let common = RemoteRun {
            folder: run.folder.clone().into(),
            variables: run.variables.iter().filter_map(set).collect(),
            showing: run.showing,
            ending: rules.ending.sent(),
            max_output: rules.max_output,
        };
        Remote { lanes, lane, workers, common, is_reported }
    }

    fn attempt(&self, slot: usize, spills: &[Arc<Spill>; 2], tried: Tried<'_>) -> JobOutcome {
        let Tried { job, attempt } = tried;
        let number = self.lane.first_worker + slot;
        let on_slot = OnSlot { gpus: &[], worker: number, attempt };
        let (outcome, clock) = (self.not_begun(job, on_slot), Instant::now());
        let results = match self.lanes.place_results(&self.lane, job, on_slot) {
            Ok(results) => results,
            Err(result) => return JobOutcome { result, ..outcome },
        };
        let outcome = JobOutcome { results, ..outcome };
        let remote = match self.remote(job, on_slot) {
            Ok(remote) => remote,
            Err(error) => return JobOutcome { result: JobResult::NotStarted(error), ..outcome },
        };
        let fetched = remote.fetched.clone();
        let answer = match self.answer(number, remote) {
            Some(Ok(answer)) => answer,
            // How long it has run there is not known.
            Some(Err(error)) => {
                let host = host_of(&error);
                let (result, took) = (self.failed(error), clock.elapsed());
                return JobOutcome { host, result, took, ..outcome };
            }
            None => return JobOutcome { took: clock.elapsed(), ..outcome },
        };
        let RemoteOutcome {
            command, tag, host, slot, gpus, end, started, took, pid, files, ..
        } = answer;
        let printed = printed(spills, [&answer.stdout, &answer.stderr]);
        let (result, printed) = match (end, printed) {
            // The worker ends a job only if it was given up.
            (RemoteEnd::Halted, _) => {
                (JobResult::WorkerFailed("has given it up".to_owned()), Printed::default())
            }
            (end, Ok(printed)) => (self.fetch(end.into_result(), &fetched, files), printed),
            (_, Err(error)) => (JobResult::NotKept(error), Printed::default()),
        };
        if self.is_reported {
            lock(&self.workers.places).note(job.number, pid, result.is_ok());
        }
        let (host, printed) = (Some(host.into()), Mutex::new(printed));
        let gpus = gpus.into();
        JobOutcome { command, tag, host, slot, gpus, result, started, took, printed, ..outcome }
    }

    /// The outcome of a job that no worker has begun.
    fn not_begun(&self, job: &Job, on_slot: OnSlot<'_>) -> JobOutcome {
        JobOutcome {
            number: job.number,
            key: job.key(),
            fields: Arc::clone(&job.fields),
            command: job.words(on_slot.gpus, on_slot.worker, on_slot.attempt).quoted(),
            attempts: on_slot.attempt,
            host: None,
            slot: on_slot.worker,
            gpus: Arc::default(),
            tag: None,
            results: None,
            result: JobResult::Ended(ProcessEnd::Halted),
            started: SystemTime::now(),
            took: Duration::ZERO,
            printed: Mutex::default(),
            commit: Arc::default(),
        }
    }

    fn remote(&self, job: &Job, on_slot: OnSlot<'_>) -> io::Result<RemoteJob> {
        let own = |text: &Arc<Template>| Template::clone(text);
        let texts = &self.lane.texts;
        let mut remote = RemoteJob::new(job, on_slot.attempt, &self.common);
        remote.tag = match &texts.tag {
            Tag::Text(text) => Some(own(text)),
            Tag::None | Tag::Input => None,
        };
        remote.workdir = texts.workdir.as_ref().map(own);
        remote.limit = self.lanes.shared.limit();
        let name = |text| file_below(texts::fill(text, job, on_slot).into());
        let read = |name: PathBuf| {
            Ok((name.clone().into(), RemoteFile::read(&self.common.folder, &name)?))
        };
        let sent = texts.files.send.iter().map(|text| name(text).and_then(read));
        remote.sent = sent.collect::<io::Result<_>>()?;
        let fetched = texts.files.fetch.iter().map(|text| name(text).map(RemotePath::from));
        remote.fetched = fetched.collect::<io::Result<_>>()?;
        Ok(remote)
    }

    /// Writes the files that a job has left. One that has succeeded must have left all.
    fn fetch(
        &self,
        result: JobResult,
        names: &[RemotePath],
        files: Vec<Result<RemoteFile, String>>,
    ) -> JobResult {
        for (name, file) in names.iter().zip(files) {
            match file.map(|file| file.write(&self.common.folder, name)) {
                Ok(Ok(())) => {}
                Ok(Err(error)) if result.is_ok() => return JobResult::Refused(error.to_string()),
                Ok(Err(_)) => {}
                Err(why) if result.is_ok() => return JobResult::Refused(why),
                Err(_) => {}
            }
        }
        result
    }

    /// Waits until a worker has answered. `None` if the job is to end with the run: dropping the call ends it there.
    fn answer(&self, slot: usize, job: RemoteJob) -> Option<Result<RemoteOutcome, Error>> {
        let groups = &self.lanes.shared.groups;
        let bell = SlotBell { groups: Arc::clone(groups), slot };
        let waker = Waker::from(Arc::new(SlotWaker(bell)));
        let mut call = pin!(self.workers.service.call_async(job));
        loop {
            groups.bell(slot).silence();
            let answer = call.as_mut().poll(&mut Context::from_waker(&waker));
            if let Poll::Ready(answer) = answer {
                return Some(answer);
            }
            if groups.wish() != Wish::GoOn {
                return None;
            }
            // It fails only if this process lacks memory. Then it asks again.
            let _ = ready([Some((groups.bell(slot).as_fd(), PollFlags::IN))], None);
        }
    }

    /// What an attempt without an answer means.
    fn failed(&self, error: Error) -> JobResult {
        if let Some(ClusterError::WorkerLost { host, .. }) = cause(&error) {
            return JobResult::WorkerFailed(format!("was lost on {host}"));
        }
        match &error {
            Error::ServiceEnded { .. } | Error::Closed { .. } => {
                self.lanes.shared.fail(ended(error));
                self.lanes.close();
                self.lanes.groups().end_all();
                JobResult::Ended(ProcessEnd::Halted)
            }
            Error::Cancelled { .. } => JobResult::Ended(ProcessEnd::Halted),
            _ => JobResult::NotStarted(io::Error::other(format!("{error:#}"))),
        }
    }
}

impl JobWork for Remote {
    /// One file per stream.
    type State = [Arc<Spill>; 2];

    fn begin(&self, _: usize) -> [Arc<Spill>; 2] {
        <[Arc<Spill>; 2]>::default()
    }

    fn work(&self, slot: usize, spills: &mut Self::State, list: &[Tried<'_>]) -> Vec<Worked> {
        list.iter().map(|tried| Worked::Ended(self.attempt(slot, spills, *tried))).collect()
    }

    fn end(&self, _: usize, _: Self::State) {}
}

/// Wakes a slot that waits for an answer.
struct SlotWaker(SlotBell);

impl Wake for SlotWaker {
    fn wake(self: Arc<Self>) {
        self.0.ring();
    }
}

/// The machine of a worker that was lost with its job.
fn host_of(error: &Error) -> Option<Arc<str>> {
    match cause(error) {
        Some(ClusterError::WorkerLost { host, .. }) => Some(Arc::clone(host)),
        _ => None,
    }
}

/// The end of the whole run, since no worker or no broker is there.
fn ended(error: Error) -> CliError {
    let missing = match cause(&error) {
        Some(ClusterError::NoWorkers { waited, refusals, .. }) if refusals.is_empty() => {
            Some(*waited)
        }
        _ => None,
    };
    let is_of_cluster =
        matches!(error, Error::Worker { .. } | Error::ServiceEnded { .. } | Error::Closed { .. });
    match missing {
        Some(waited) => {
            let text = format!(
                "no worker was there for {}: `gangline worker --serve commands` starts one, for the same broker and \
                 namespace",
                HumanDuration(waited)
            );
            CliError::new(exit::INPUT, text)
        }
        None if is_of_cluster => CliError::new(exit::INPUT, error),
        None => of_run(error),
    }
}

/// What the cluster says of it.
fn cause(error: &Error) -> Option<&ClusterError> {
    match error {
        Error::ServiceEnded { source, .. } => cause(source),
        Error::Worker { source, .. } => match &**source {
            WorkerError::Backend { source, .. } => source.downcast_ref(),
            _ => None,
        },
        error => error.source()?.downcast_ref(),
    }
}

fn printed(spills: &[Arc<Spill>; 2], streams: [&[u8]; 2]) -> io::Result<Printed> {
    let kept = |stream: usize| {
        let mut kept = Captured::default();
        kept.push(&spills[stream], streams[stream]).map(|()| kept)
    };
    let (stdout, stderr) = (kept(0)?, kept(1)?);
    Ok(Printed { received: streams[0].len() as u64, stdout, stderr, ..Printed::default() })
}

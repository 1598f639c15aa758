//! The start of a warm worker, until it is ready.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;

use crate::execute::commands;
use crate::execute::conversation::{Aside, Conversation, Silence};
use crate::execute::failure::has_code;
use crate::execute::process::ProcessEnd;
use crate::execute::protocol::{self, FirstLine, MessageForm, VERSION};
use crate::execute::running_time::RunningTime;
use crate::execute::start_history::{FailedStart, StartFault, StartVerdict, StartedOn};
use crate::execute::warm::conversing::result_of;
use crate::execute::warm::{COMPARED, Warm};
use crate::execute::worker_slots::SlotWorker;
use crate::output::capture::Captured;
use crate::output::outcome::JobResult;
use crate::plan::template::{Template, Values};
use gangline::event::{TimeKind, count_as};
use gangline::report::HumanDuration;

/// The errors of a program that is there and cannot be executed: it would not be at the next start either.
const NO_EXECUTABLE: [Errno; 6] =
    [Errno::ACCESS, Errno::NOEXEC, Errno::NOTDIR, Errno::ISDIR, Errno::LOOP, Errno::NAMETOOLONG];

/// When a slow start is reported.
const LONG_WAIT: Duration = Duration::from_secs(15);

impl Warm {
    /// Makes sure that a worker is ready. After a failure, the worker's verdict says how its slot goes on.
    pub(super) fn start(
        &self,
        slot: usize,
        worker: &mut SlotWorker,
        command: &Arc<Template>,
        said: &mut Captured,
    ) -> Result<(), JobResult> {
        match worker.conversation.take_if(|conversation| !conversation.is_fit()) {
            // It has ended since its answer, or has written more: not the fault of this item.
            Some(conversation) => {
                let kill_after = self.lanes.shared.rules.ending.lasts();
                let last_words = conversation.end(kill_after);
                said.append(&worker.spill, &last_words).map_err(JobResult::NotKept)?;
                let number = self.number(slot);
                self.lanes.shared.terminal.tell(&format!(
                    "the worker of slot {number} ended, closed its input, or wrote an unexpected line \
                     between two items: it is restarted"
                ));
            }
            None if worker.conversation.is_some() => return Ok(()),
            None => {}
        }
        if self.history.is_hopeless(&self.typed[slot]) {
            worker.verdict = StartVerdict::HOPELESS;
            return Err(JobResult::WorkerFailed("could not be started, as on another slot".into()));
        }
        worker.unready += 1;
        let start = || self.try_start(slot, worker, command, said);
        let Err((result, fault)) = count_as(TimeKind::Loading, "the start of a worker", start)
        else {
            self.history.got_ready(&self.typed[slot]);
            (worker.failed_start, worker.verdict, worker.unready) = Default::default();
            return Ok(());
        };
        let failed = FailedStart { why: result.to_string(), said: said.tail(COMPARED) };
        let on = StartedOn {
            command: &self.typed[slot],
            is_alike: self.given(command, slot).ids.is_empty(),
            before: worker.failed_start.as_ref(),
        };
        worker.verdict = self.history.judge(on, fault, &failed);
        worker.failed_start = Some(failed);
        Err(result)
    }

    fn try_start(
        &self,
        slot: usize,
        worker: &mut SlotWorker,
        command: &Arc<Template>,
        said: &mut Captured,
    ) -> Result<(), (JobResult, StartFault)> {
        let given = self.given(command, slot);
        let values = Values {
            fields: &[],
            number: 0,
            gpus: &given.ids,
            worker: self.number(slot),
            attempt: 1,
        };
        let mut command = commands::command(command.fill(&values), given);
        let threads = self.threads.limit(&mut command);
        let started = Conversation::start(&self.lanes.shared.groups, self.number(slot), command);
        let started = started.map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => {
                // The slot is not at fault: no other finds the program.
                worker.unready = 0;
                (JobResult::NotStarted(error), StartFault::Unknown)
            }
            _ => {
                let fault = match has_code(&error, &NO_EXECUTABLE) {
                    true => StartFault::NoWorker,
                    false => StartFault::Unknown,
                };
                (JobResult::WorkerFailed(format!("could not be started: {error}")), fault)
            }
        })?;
        worker.conversation = Some(Box::new(started));
        let worker_number = self.number(slot);
        let (gangline, batch) = (VERSION, self.batch);
        let hello = FirstLine { gangline, worker: worker_number, gpus: &given.ids, threads, batch };
        let ready = self.greet(worker, protocol::line(&hello), said);
        let ready =
            ready.map_err(|(result, fault)| (unready(result, self.start_timeout), fault))?;
        worker.takes = protocol::read_ready(&ready).map_err(|violation| {
            (self.fail(worker, violation.to_string(), said), StartFault::NoWorker)
        })?;
        if worker.takes == MessageForm::Items && self.batch > 1 {
            self.tell_once(&self.reported.no_lists, NO_LISTS);
        }
        Ok(())
    }

    /// Sends the first line and waits for the answer. A slow start is announced on the terminal: a program
    /// that is not a worker never answers.
    fn greet(
        &self,
        worker: &mut SlotWorker,
        line: Vec<u8>,
        said: &mut Captured,
    ) -> Result<Vec<u8>, (JobResult, StartFault)> {
        let fault_of = |silence: &Silence| match silence {
            Silence::Ended(_) => StartFault::Ended,
            _ => StartFault::Unknown,
        };
        let soon = LONG_WAIT.min(self.start_timeout / 4);
        let mut sent = worker.conversation().sent_now();
        let aside = Aside { stderr: said, spill: &Arc::clone(&worker.spill) };
        let greeted = match worker.conversation().send(line) {
            Ok(()) => self.await_ready(worker.conversation(), (&mut sent, soon), aside),
            Err(silence) => Err(silence),
        };
        match greeted {
            Err(Silence::TimedOut(_)) => {}
            Ok(line) => return Ok(line),
            Err(silence) => {
                let fault = fault_of(&silence);
                return Err((self.end_worker(worker, result_of(silence), said), fault));
            }
        }
        let all = (HumanDuration(soon), HumanDuration(self.start_timeout));
        let text = format!(
            "still no worker after {:#}: with --warm a command must answer its first line with \
             {{\"gangline\":1}} or {{\"gangline\":2}}, for which it has {:#} (--start-timeout)",
            all.0, all.1
        );
        self.tell_once(&self.reported.slow_start, &text);
        let aside = Aside { stderr: said, spill: &Arc::clone(&worker.spill) };
        self.await_ready(worker.conversation(), (&mut sent, self.start_timeout), aside).map_err(
            |silence| {
                let fault = fault_of(&silence);
                (self.end_worker(worker, result_of(silence), said), fault)
            },
        )
    }

    /// Waits for a line that is no message for the log.
    fn await_ready(
        &self,
        conversation: &mut Conversation,
        (sent, limit): (&mut RunningTime, Duration),
        aside: Aside<'_>,
    ) -> Result<Vec<u8>, Silence> {
        let Aside { stderr, spill } = aside;
        loop {
            let aside = Aside { stderr, spill };
            let reply = conversation.hear_line(sent, &|| Some(limit), aside)?;
            let Some(text) = protocol::read_log(&reply) else { return Ok(reply) };
            stderr.push(spill, &text).map_err(Silence::Failed)?;
        }
    }
}

const NO_LISTS: &str = "the worker takes one input at a time, so --batch has no effect: a worker that takes lists \
                        answers its first line with {\"gangline\":2,\"batch\":true}";

/// Replaces an exceeded time limit of a job by that of the start.
fn unready(result: JobResult, limit: Duration) -> JobResult {
    match result {
        JobResult::Ended(ProcessEnd::TimedOut(_)) => {
            let limit = HumanDuration(limit);
            JobResult::WorkerFailed(format!("was not ready within {limit:#}"))
        }
        other => other,
    }
}

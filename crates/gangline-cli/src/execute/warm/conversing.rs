//! A message to a warm worker with one job or several, and its answers.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use serde_json::value::RawValue;

use crate::execute::conversation::{Aside, LONGEST, Silence};
use crate::execute::list_failure::ListFailure;
use crate::execute::process::ProcessEnd;
use crate::execute::protocol::{
    self, Item, ItemList, MessageForm, Violation, WorkerAnswer, WorkerReply,
};
use crate::execute::warm::Warm;
use crate::execute::warm::asked::{Asked, Broken};
use crate::execute::worker_slots::SlotWorker;
use crate::output::capture::{Captured, Spill};
use crate::output::outcome::{JobResult, Printed};

/// The jobs of a message.
pub(super) struct Message {
    /// Their indices among those that are asked for, each with its input.
    pub(super) inputs: Vec<(usize, Box<RawValue>)>,
    /// When it was sent.
    pub(super) started: SystemTime,
    pub(super) clock: Instant,
}

impl Warm {
    /// Sends a message, and ends each job that the worker answers. The error is that of the others.
    pub(super) fn converse(
        &self,
        slot: usize,
        worker: &mut SlotWorker,
        asked: &mut [Asked<'_>],
        message: Message,
        said: &mut Captured,
    ) -> Result<(), Broken> {
        let line = line_of(&message, asked, worker.takes);
        let Message { inputs, started, clock } = message;
        let places: HashMap<u64, usize> =
            inputs.into_iter().map(|(at, _)| (asked[at].job.number, at)).collect();
        let mut sent = worker.conversation().sent_now();
        if let Err(silence) = worker.conversation().send(line) {
            return Err(self.broken(worker, result_of(silence), said));
        }
        let mut open = places.len();
        while open > 0 {
            let spill = Arc::clone(&worker.spill);
            let aside = Aside { stderr: said, spill: &spill };
            let limit = || self.lanes.shared.limit();
            let reply = match worker.conversation().hear_line(&mut sent, &limit, aside) {
                Ok(reply) => reply,
                Err(silence) => return Err(self.broken(worker, result_of(silence), said)),
            };
            let place = |number| place_of(number, &places, asked);
            let (at, answer) = match protocol::read_reply(&reply, &place) {
                Ok(WorkerReply::Answer(at, answer)) => (at, answer),
                Ok(WorkerReply::Log(text)) => {
                    if let Err(error) = said.push(&spill, &text) {
                        return Err(self.broken(worker, JobResult::NotKept(error), said));
                    }
                    continue;
                }
                Ok(WorkerReply::Whole(whole, why)) => {
                    worker.deaths = 0;
                    return Err(Broken { result: JobResult::Refused(why), whole });
                }
                Err(violation) => {
                    let result = JobResult::WorkerFailed(violation.to_string());
                    return Err(self.broken(worker, result, said));
                }
            };
            worker.deaths = 0;
            open -= 1;
            let asked = &mut asked[at];
            let mut printed = Printed { stderr: std::mem::take(said), ..Printed::default() };
            let result = result_of_answer(answer, &mut printed, &spill);
            asked.printed = printed;
            (asked.started, asked.took) = (started, clock.elapsed());
            self.end_one(slot, asked, result);
        }
        Ok(())
    }

    /// Ends a worker that cannot continue.
    fn broken(&self, worker: &mut SlotWorker, result: JobResult, said: &mut Captured) -> Broken {
        worker.deaths += u32::from(result.blames_worker());
        let result = self.end_worker(worker, result, said);
        Broken { result, whole: ListFailure::Died }
    }

    /// The worker cannot continue.
    pub(super) fn fail(
        &self,
        worker: &mut SlotWorker,
        why: String,
        said: &mut Captured,
    ) -> JobResult {
        self.end_worker(worker, JobResult::WorkerFailed(why), said)
    }

    pub(super) fn end_worker(
        &self,
        worker: &mut SlotWorker,
        result: JobResult,
        said: &mut Captured,
    ) -> JobResult {
        let Some(conversation) = worker.conversation.take() else { return result };
        let last_words = conversation.end(self.lanes.shared.rules.ending.lasts());
        match said.append(&worker.spill, &last_words) {
            Ok(()) => result,
            Err(error) => JobResult::NotKept(error),
        }
    }
}

fn line_of(message: &Message, asked: &[Asked<'_>], takes: MessageForm) -> Vec<u8> {
    let mut items = message.inputs.iter().map(|(at, input)| {
        let Asked { job, attempt, .. } = &asked[*at];
        Item { item: job.number, attempt: *attempt, input }
    });
    match takes {
        MessageForm::Lists => protocol::line(&ItemList { items: items.collect() }),
        MessageForm::Items => protocol::line(&items.next()),
    }
}

/// The index of the job with that number, if the worker has it in hand.
fn place_of(
    number: u64,
    places: &HashMap<u64, usize>,
    asked: &[Asked<'_>],
) -> Result<usize, Violation> {
    match places.get(&number) {
        Some(at) if asked[*at].worked.is_none() => Ok(*at),
        Some(_) => Err(Violation::Twice(number)),
        None => {
            let open = places.iter().filter(|(_, at)| asked[**at].worked.is_none());
            let mut expected: Vec<u64> = open.map(|(number, _)| *number).collect();
            expected.sort_unstable();
            Err(Violation::OtherItem { found: number, expected })
        }
    }
}

fn result_of_answer(answer: WorkerAnswer, printed: &mut Printed, spill: &Arc<Spill>) -> JobResult {
    match answer {
        WorkerAnswer::Output(output) => printed
            .receive(spill, &output)
            .map_or_else(JobResult::NotKept, |()| JobResult::Ended(ProcessEnd::Exited(0))),
        WorkerAnswer::Error(error) => JobResult::Refused(error),
        WorkerAnswer::BadInput(error) => JobResult::BadInput(error),
        WorkerAnswer::Unreadable(why) => {
            JobResult::Refused(format!("its answer cannot be read: {why}"))
        }
    }
}

/// The result of a job if its worker gave no answer.
pub(super) fn result_of(silence: Silence) -> JobResult {
    JobResult::WorkerFailed(match silence {
        Silence::Halted => return JobResult::Ended(ProcessEnd::Halted),
        Silence::TimedOut(limit) => return JobResult::Ended(ProcessEnd::TimedOut(limit)),
        Silence::Ended(end) => format!("{end} before it answered"),
        Silence::Closed => "closed its standard output".into(),
        Silence::Deaf => "closed its standard input".into(),
        Silence::TooLong => {
            format!("printed more than {} MiB without a line feed", LONGEST >> 20)
        }
        Silence::Failed(error) => format!("could not be reached: {error}"),
    })
}

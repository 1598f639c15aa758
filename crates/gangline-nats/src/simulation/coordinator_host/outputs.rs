//! Reads the large outputs of results for a simulated coordinator.

use std::time::Duration;

use super::{CoordinatorHost, CoordinatorTimer, CoordinatorWait};
use crate::event::{CoordinatorEvent, Fetched};
use crate::publication::Reply;
use crate::simulation::client::{AGAIN, ANSWER, Moment};
use crate::simulation::jetstream::{Acknowledgement, Answer, Operation};
use crate::simulation::objects::{ObjectReading, ReadStep};
use crate::wire::{Object, WorkerOutcome};

/// How often the broker hears that a result is being read, as the real client has it.
const PROGRESS: Duration = Duration::from_secs(1);

/// A large output that is being read.
#[derive(Debug)]
pub(in crate::simulation) struct OutputReading {
    publication: u64,
    object: Object,
    reply: Box<Reply>,
    ack: String,
    reading: ObjectReading,
}

impl CoordinatorHost<'_> {
    pub(super) fn fetch(
        &mut self,
        publication: u64,
        object: Object,
        reply: Box<Reply>,
        ack: String,
        at: &mut Moment<'_>,
    ) {
        let subject = self.names.output_object(&self.key.run, &object.name);
        let reading = ObjectReading::new(object.clone(), subject);
        self.fetching.insert(ack.clone());
        self.client.later(at.now + PROGRESS, CoordinatorTimer::Progress(ack.clone()));
        self.read_chunk(OutputReading { publication, object, reply, ack, reading }, at);
    }

    /// Asks for the chunk that is due, unless the output is not wanted any more.
    pub(super) fn read_chunk(&mut self, output: OutputReading, at: &mut Moment<'_>) {
        let has_output = matches!(output.reply.outcome, WorkerOutcome::Output);
        if has_output && self.is_wanted(output.publication) {
            let request = output.reading.request(self.names.objects.clone());
            self.client.ask(at, request, CoordinatorWait::OutputChunk(output), ANSWER);
        } else {
            let fetched = self.fetched(output, Ok(None));
            self.handle(Some(fetched), at);
        }
    }

    pub(super) fn take_read(
        &mut self,
        mut output: OutputReading,
        answer: Option<Answer>,
        at: &mut Moment<'_>,
    ) -> Option<CoordinatorEvent> {
        match output.reading.take(answer, self.client.health.is_connected) {
            ReadStep::Next => self.read_chunk(output, at),
            ReadStep::Again => {
                self.client.later(at.now + AGAIN, CoordinatorTimer::ReadChunk(output));
            }
            ReadStep::Over(value) => return Some(self.fetched(output, value)),
        }
        None
    }

    fn fetched(
        &mut self,
        output: OutputReading,
        value: Result<Option<Vec<u8>>, String>,
    ) -> CoordinatorEvent {
        let OutputReading { publication, object, reply, ack, .. } = output;
        self.fetching.remove(&ack);
        let output = value.map_err(Into::into);
        CoordinatorEvent::Fetched(Box::new(Fetched { publication, object, reply, ack, output }))
    }

    /// Else the broker would deliver the result again.
    pub(super) fn tell_progress(&mut self, ack: String, at: &mut Moment<'_>) {
        if !self.fetching.contains(&ack) {
            return;
        }
        if let Some(place) = self.places.get(&ack).cloned() {
            let kind = Acknowledgement::Progress;
            self.client.call(at, Operation::Acknowledge { place, kind });
        }
        self.client.later(at.now + PROGRESS, CoordinatorTimer::Progress(ack));
    }
}

//! Publishes the items of a simulated coordinator, and looks for lost ones.

use super::{CoordinatorHost, CoordinatorTimer, CoordinatorWait};
use crate::ClusterError;
use crate::event::{CoordinatorEvent, ToPublish};
use crate::health::StoreLimits;
use crate::names::input_name;
use crate::simulation::client::{AGAIN, ANSWER, Moment};
use crate::simulation::jetstream::{Answer, Message, Request};
use crate::simulation::objects::ObjectWriting;
use crate::simulation::publishing::{PublishStep, Publishing};
use crate::wire;
use crate::wire::{ItemHeader, Object, RunKey};

/// The large input of an item on its way to the object store.
#[derive(Debug)]
pub(in crate::simulation) struct InputWriting {
    item: ToPublish,
    to: Option<String>,
    writing: ObjectWriting,
    /// The chunk that is published.
    pub(super) publishing: Publishing,
}

impl CoordinatorHost<'_> {
    /// Publishes an item. A large input is stored before.
    pub(super) fn publish_item(
        &mut self,
        mut item: ToPublish,
        to: Option<String>,
        at: &mut Moment<'_>,
    ) {
        if item.input.len() <= self.most_inline {
            return self.publish_header(item, None, to.as_deref(), at);
        }
        let name = input_name(self.key.epoch, item.publication);
        let subject = self.names.input_object(&self.key.run, &name);
        let input = std::mem::take(&mut item.input);
        let limits = StoreLimits { refused: self.key.lease(), unanswered: self.key.wait() };
        let mut writing = ObjectWriting::new(name, subject, input, self.most_inline, limits);
        let publishing = writing.next(at.instant).expect("it is larger than nothing");
        self.write_chunk(InputWriting { item, to, writing, publishing }, at);
    }

    fn publish_header(
        &mut self,
        item: ToPublish,
        object: Option<Object>,
        to: Option<&str>,
        at: &mut Moment<'_>,
    ) {
        let RunKey { run, epoch, .. } = &self.key;
        let ToPublish { publication, item, attempt, size, input, .. } = item;
        let subject = match to {
            Some(worker) => self.names.to(run, *epoch, worker),
            None => self.names.any(run, *epoch),
        };
        let (epoch, size) = (*epoch, (size.cost, size.padded));
        let header = ItemHeader { epoch, publication, item, attempt, size, object };
        let id = format!("{run}/{epoch:x}/{item}/{publication}");
        let message = Message::new(&subject, wire::with_body(&header, &input)).with_id(&id);
        let limits = StoreLimits { refused: self.key.wait(), unanswered: self.key.wait() };
        self.publish(publication, Publishing::new(message, limits, at.instant), at);
    }

    /// Writes the chunk of a large input that is due. One that is not wanted any more is removed.
    pub(super) fn write_chunk(&mut self, input: InputWriting, at: &mut Moment<'_>) {
        if self.is_wanted(input.item.publication) {
            let request = Request::Send(input.publishing.message.clone());
            let within = input.publishing.within;
            self.client.ask(at, request, CoordinatorWait::InputChunk(Box::new(input)), within);
        } else {
            self.purge_objects(input.writing.subjects(), at);
        }
    }

    pub(super) fn take_written(
        &mut self,
        mut input: InputWriting,
        answer: Option<Answer>,
        at: &mut Moment<'_>,
    ) -> Option<CoordinatorEvent> {
        match self.client.take_published(&mut input.publishing, answer, at) {
            PublishStep::Again => {
                self.client.later(at.now + AGAIN, CoordinatorTimer::WriteChunk(Box::new(input)));
                None
            }
            PublishStep::Failed(said) => {
                self.purge_objects(input.writing.subjects(), at);
                let Some(said) = said else {
                    return Some(CoordinatorEvent::NotStored { said: None });
                };
                let (bytes, most) = (input.writing.object.bytes as usize, self.most_inline);
                let source = said.into();
                let error = Box::new(ClusterError::TooLarge { bytes, most, source });
                Some(CoordinatorEvent::InputRefused(input.item.publication, error))
            }
            PublishStep::Stored(_) => {
                if let Some(publishing) = input.writing.next(at.instant) {
                    self.write_chunk(InputWriting { publishing, ..input }, at);
                } else if self.is_wanted(input.item.publication) {
                    let InputWriting { item, to, writing, .. } = input;
                    self.publish_header(item, Some(writing.object), to.as_deref(), at);
                } else {
                    self.purge_objects(input.writing.subjects(), at);
                }
                None
            }
        }
    }

    pub(super) fn is_wanted(&self, publication: u64) -> bool {
        self.pool.as_ref().is_some_and(|pool| pool.board.has(publication))
    }

    pub(super) fn publish(
        &mut self,
        publication: u64,
        publishing: Publishing,
        at: &mut Moment<'_>,
    ) {
        if self.is_wanted(publication) {
            let (request, within) = (Request::Send(publishing.message.clone()), publishing.within);
            self.client.ask(at, request, CoordinatorWait::Item { publication, publishing }, within);
        }
    }

    /// Whether the broker has stored an item. If not, the item is published again, until that has taken too long.
    pub(super) fn judge(
        &mut self,
        publication: u64,
        mut publishing: Publishing,
        answer: Option<Answer>,
        at: &mut Moment<'_>,
    ) -> Option<CoordinatorEvent> {
        match self.client.take_published(&mut publishing, answer, at) {
            PublishStep::Stored(sequence) => {
                Some(CoordinatorEvent::Confirmed { publication, sequence })
            }
            PublishStep::Failed(said) => Some(CoordinatorEvent::NotStored { said }),
            PublishStep::Again => {
                let again = CoordinatorTimer::Publish { publication, publishing };
                self.client.later(at.now + AGAIN, again);
                None
            }
        }
    }

    pub(super) fn look_for(
        &mut self,
        mut left: Vec<(u64, u64)>,
        missing: Vec<u64>,
        at: &mut Moment<'_>,
    ) {
        if let Some((looked, sequence)) = left.pop() {
            let request = Request::GetMessage { stream: self.names.items.clone(), sequence };
            let wait = CoordinatorWait::LookFor { left, looked, missing };
            return self.client.ask(at, request, wait, ANSWER);
        }
        if missing.is_empty() {
            return self.handle(Some(CoordinatorEvent::Looked(Some(missing))), at);
        }
        let consumer = self.names.consumer_of_results(&self.key.run);
        let request = Request::ConsumerInfo { stream: self.names.results.clone(), consumer };
        self.client.ask(at, request, CoordinatorWait::AllRead(missing), ANSWER);
    }
}

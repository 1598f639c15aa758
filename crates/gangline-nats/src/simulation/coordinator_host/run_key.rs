//! The key and the consumers of a simulated coordinator, from its start to its end.

use std::sync::Arc;
use std::time::Duration;

use super::{CoordinatorHost, CoordinatorWait};
use crate::event::KeyState;
use crate::simulation::client::{ANSWER, Moment};
use crate::simulation::jetstream::{Answer, ConsumerConfig, Marker, Message, Request};
use crate::wire;
use crate::wire::RunKey;

impl CoordinatorHost<'_> {
    pub(super) fn read_key(&mut self, at: &mut Moment<'_>) {
        let request = self.get_key();
        self.client.ask(at, request, CoordinatorWait::KeyRead, ANSWER);
    }

    pub(super) fn take_key(&mut self, revision: u64, at: &mut Moment<'_>) {
        let request = Request::Send(self.key_message().after(revision));
        self.client.ask(at, request, CoordinatorWait::KeyTaken, ANSWER);
    }

    pub(super) fn key_message(&self) -> Message {
        Message::new(&self.names.key(&self.key.run).1, wire::encode(&self.key))
    }

    pub(super) fn get_key(&self) -> Request {
        let (stream, subject) = self.names.key(&self.key.run);
        Request::GetLast { stream, subject }
    }

    /// Whose key the broker has. If it has none, the place after which one can be put.
    pub(super) fn owner(&self, answer: Option<Answer>) -> Result<KeyState, u64> {
        match answer {
            Some(Answer::Message { message, sequence, .. }) if message.headers.marker.is_none() => {
                match wire::decode::<RunKey>(&message.payload) {
                    Ok(other) if other.epoch == self.key.epoch => {
                        Ok(KeyState::Own { revision: sequence })
                    }
                    Ok(other) if Some(other.epoch) != self.before => Ok(KeyState::OfAnother),
                    Ok(_) | Err(_) => Err(sequence),
                }
            }
            // As the real client, which looks what has ended the last key.
            Some(Answer::Message { sequence, .. }) => Err(sequence),
            Some(Answer::NotFound) => Err(0),
            Some(_) | None => Ok(KeyState::Unanswered),
        }
    }

    pub(super) fn make_buckets(&mut self, at: &mut Moment<'_>) {
        for config in self.names.buckets() {
            self.client.tell(at, Request::CreateStream(config));
        }
    }

    pub(super) fn consumer_for_any(&self) -> ConsumerConfig {
        let RunKey { run, epoch, .. } = &self.key;
        let name = self.names.consumer_of_any(run, *epoch);
        self.item_consumer(&name, &self.names.any(run, *epoch))
    }

    pub(super) fn consumer_for(&self, worker: &str) -> ConsumerConfig {
        let RunKey { run, epoch, .. } = &self.key;
        let name = self.names.consumer_of(run, *epoch, worker);
        self.item_consumer(&name, &self.names.to(run, *epoch, worker))
    }

    pub(super) fn item_consumer(&self, name: &str, subject: &str) -> ConsumerConfig {
        ConsumerConfig {
            max_waiting: 100_000,
            inactive_threshold: Some(Duration::from_secs(600).max(self.key.lease() * 4)),
            ..ConsumerConfig::new(name, subject, self.key.lease())
        }
    }

    pub(super) fn create(&self, config: ConsumerConfig) -> Request {
        Request::CreateConsumer { stream: self.names.items.clone(), config }
    }

    pub(super) fn make_consumer(&mut self, at: &mut Moment<'_>, config: ConsumerConfig) {
        let request = self.create(config);
        self.client.tell(at, request);
    }

    pub(super) fn purge_of_epoch(&self) -> Request {
        let RunKey { run, epoch, .. } = &self.key;
        let (stream, subject) = (self.names.items.clone(), self.names.of_epoch(run, *epoch));
        Request::Purge { stream, subject }
    }

    /// Removes large values.
    pub(super) fn purge_objects(&mut self, subject: Arc<str>, at: &mut Moment<'_>) {
        let stream = self.names.objects.clone();
        self.client.tell(at, Request::Purge { stream, subject });
    }

    /// Looks whose the key is, and then leaves nothing behind.
    pub(super) fn begin_to_end(&mut self, at: &mut Moment<'_>) {
        if std::mem::replace(&mut self.is_ending, true) {
            return;
        }
        self.is_replaced = self.reading.is_stopped;
        self.reading.is_stopped = true;
        let revision = self.pool.as_ref().map_or(0, |pool| pool.coordinator.revision());
        let request = Request::Send(self.key_message().after(revision));
        self.client.ask(at, request, CoordinatorWait::LastUpdate, ANSWER);
    }

    pub(super) fn end(&mut self, owner: &KeyState, at: &mut Moment<'_>) {
        self.is_done = true;
        let RunKey { run, epoch, .. } = self.key.clone();
        if let KeyState::Own { revision } = *owner {
            let subject = self.names.key(&run).1;
            let purged = Message::new(&subject, vec![]).marked(Marker::Purge).after(revision);
            self.client.tell(at, Request::Send(purged));
        }
        let request = self.purge_of_epoch();
        self.client.tell(at, request);
        let (items, results) = (self.names.items.clone(), self.names.results.clone());
        if *owner != KeyState::OfAnother && !self.is_replaced {
            let subject = self.names.results_of(&run);
            self.client.tell(at, Request::Purge { stream: results.clone(), subject });
            self.purge_objects(self.names.objects_of(&run), at);
            let consumer = self.names.consumer_of_results(&run);
            self.client.tell(at, Request::DeleteConsumer { stream: results, consumer });
        }
        let of_workers = self.consumers.iter().map(|it| self.names.consumer_of(&run, epoch, it));
        let any = self.names.consumer_of_any(&run, epoch);
        let all: Vec<Arc<str>> = std::iter::once(any).chain(of_workers).collect();
        for consumer in all {
            self.client.tell(at, Request::DeleteConsumer { stream: items.clone(), consumer });
        }
    }
}

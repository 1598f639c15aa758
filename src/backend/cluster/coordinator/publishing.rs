//! Sends one item to the broker, and before that its input if it is large.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};
use tokio::sync::mpsc::UnboundedSender;

use crate::backend::cluster::board::{Fatal, LaneBoard};
use crate::backend::cluster::connection::BrokerConnection;
use crate::backend::cluster::event::{CoordinatorEvent, ToPublish};
use crate::backend::cluster::objects;
use crate::backend::cluster::publication::News;
use crate::backend::cluster::publisher::{StreamMessage, publish};
use crate::backend::cluster::wire::{self, ItemHeader, Object};
use crate::error::ClusterError;

/// What the task that publishes an item has of its coordinator.
pub(super) struct Publishing {
    pub(super) connection: BrokerConnection,
    pub(super) board: Arc<LaneBoard>,
    pub(super) events: UnboundedSender<CoordinatorEvent>,
    pub(super) run: String,
    pub(super) epoch: u64,
    pub(super) lease_time: Duration,
    pub(super) wait_for: Duration,
}

impl Publishing {
    /// Publishes an item until the broker has confirmed it or it is not wanted any more.
    pub(super) async fn publish(self, subject: String, item: ToPublish) {
        let ToPublish { publication, item, attempt, size, mut input, .. } = item;
        let (run, epoch) = (&self.run, self.epoch);
        let mut object = None;
        if input.len() > self.connection.most_inline() {
            object = self.store(publication, std::mem::take(&mut input)).await;
            if object.is_none() {
                return;
            }
        }
        let size = (size.cost, size.padded);
        let header = ItemHeader { epoch, publication, item, attempt, size, object };
        let message = StreamMessage {
            subject,
            id: &format!("{run}/{epoch:x}/{item}/{publication}"),
            payload: wire::with_body(&header, &input).into(),
            patience: self.wait_for,
            answered_within: Some(self.wait_for),
        };
        match publish(&self.connection, message, || self.board.has(publication)).await {
            Ok(None) => {}
            Ok(Some(sequence)) => {
                _ = self.events.send(CoordinatorEvent::Confirmed { publication, sequence });
            }
            Err(error) => self.board.fail(self.cause_of(&error)),
        }
    }

    /// Why the broker has not stored an item.
    fn cause_of(&self, error: &PublishError) -> Fatal {
        if let Err(lost) = self.connection.check_access(Duration::ZERO) {
            return Fatal::NoAccess(lost);
        }
        let said = match error.kind() {
            PublishErrorKind::TimedOut => self.connection.refusal_within(self.wait_for * 2),
            _ => Some(error.to_string()),
        };
        said.map_or(Fatal::NoAnswer, |said| Fatal::Refused("an item or a result", said.into()))
    }

    /// Puts a large input into the object store. `None` if its item then needs none: it failed, or is not wanted any more.
    async fn store(&self, publication: u64, input: Vec<u8>) -> Option<Object> {
        let (connection, board) = (&self.connection, &self.board);
        let (bytes, most) = (input.len(), connection.most_inline());
        let object = objects::object(connection, input_name(self.epoch, publication), &input);
        let subject = connection.names.input_object(&self.run, &object.name);
        let is_wanted = || board.has(publication);
        // The store may refuse it for a lease: until then, other values may leave room.
        let place = (&*subject, &object);
        let stored = objects::put(connection, place, input, self.lease_time, is_wanted).await;
        let is_stored = stored.unwrap_or_else(|source| {
            let error = Box::new(ClusterError::TooLarge { bytes, most, source });
            board.tell(publication, News::Refused(publication, error));
            false
        });
        if is_stored && is_wanted() {
            return Some(object);
        }
        objects::remove(connection, format!("{subject}.*")).await;
        None
    }
}

/// The name of the input of a publication in the object store.
pub(super) fn input_name(epoch: u64, publication: u64) -> String {
    format!("{epoch:x}-{publication}")
}

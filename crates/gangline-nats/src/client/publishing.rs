//! Sends one item to the broker, and before that its input if it is large.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::context::{PublishError, PublishErrorKind};

use crate::ClusterError;
use crate::board::LaneBoard;
use crate::connection::BrokerConnection;
use crate::event::{CoordinatorEvent, ToPublish};
use crate::health::StoreLimits;
use crate::names::input_name;
use crate::objects;
use crate::publisher::{StreamMessage, publish};
use crate::wire;
use crate::wire::{ItemHeader, Object};

/// What the task that publishes an item has of its client.
pub(super) struct Publishing {
    pub(super) connection: BrokerConnection,
    pub(super) board: Arc<LaneBoard>,
    pub(super) run: String,
    pub(super) epoch: u64,
    pub(super) lease_time: Duration,
    pub(super) wait_for: Duration,
}

impl Publishing {
    /// Publishes an item until the broker has confirmed it. `None` if it is not wanted any more.
    pub(super) async fn publish(
        self,
        subject: String,
        item: ToPublish,
    ) -> Option<CoordinatorEvent> {
        let ToPublish { publication, item, attempt, size, mut input, .. } = item;
        let (run, epoch) = (&self.run, self.epoch);
        let (mut object, size_of_input) = (None, input.len());
        if input.len() > self.connection.most_inline() {
            match self.store(publication, std::mem::take(&mut input)).await {
                Ok(stored) => object = Some(stored?),
                Err(error) if is_silence(&error) => {
                    return Some(CoordinatorEvent::NotStored { said: None });
                }
                Err(source) => {
                    let (bytes, most) = (size_of_input, self.connection.most_inline());
                    let error = ClusterError::TooLarge { bytes, most, source: source.into() };
                    return Some(CoordinatorEvent::InputRefused(publication, Box::new(error)));
                }
            }
        }
        let size = (size.cost, size.padded);
        let header = ItemHeader { epoch, publication, item, attempt, size, object };
        let message = StreamMessage {
            subject,
            id: &format!("{run}/{epoch:x}/{item}/{publication}"),
            payload: wire::with_body(&header, &input).into(),
            limits: StoreLimits { refused: self.wait_for, unanswered: self.wait_for },
        };
        match publish(&self.connection, message, || self.board.has(publication)).await {
            Ok(sequence) => {
                sequence.map(|sequence| CoordinatorEvent::Confirmed { publication, sequence })
            }
            Err(error) => {
                let said = (!is_silence(&error)).then(|| error.to_string());
                Some(CoordinatorEvent::NotStored { said })
            }
        }
    }

    /// Puts a large input into the object store. `None` if it is not wanted any more.
    async fn store(
        &self,
        publication: u64,
        input: Vec<u8>,
    ) -> Result<Option<Object>, PublishError> {
        let (connection, board) = (&self.connection, &self.board);
        let object = objects::object(connection, input_name(self.epoch, publication), &input);
        let subject = connection.names.input_object(&self.run, &object.name);
        let is_wanted = || board.has(publication);
        // The store may refuse it for a lease: until then, other values may leave room.
        let place = (&*subject, &object);
        let limits = StoreLimits { refused: self.lease_time, unanswered: self.wait_for };
        let stored = objects::put(connection, place, input, limits, is_wanted).await;
        if matches!(stored, Ok(true)) && is_wanted() {
            return Ok(Some(object));
        }
        objects::remove(connection, format!("{subject}.*")).await;
        stored.map(|_| None)
    }
}

/// Whether the broker has given no answer.
fn is_silence(error: &PublishError) -> bool {
    matches!(error.kind(), PublishErrorKind::TimedOut | PublishErrorKind::BrokenPipe)
}

//! Reads an output that was too large for its message from the object store.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::AckKind;
use futures_util::future::{Either, select};

use crate::board::LaneBoard;
use crate::connection::BrokerConnection;
use crate::event::Fetched;
use crate::objects;
use crate::publication::Reply;
use crate::wire::{Object, WorkerOutcome};

/// How often the broker hears that a result is being read: well within its `ack_wait`.
const PROGRESS: Duration = Duration::from_secs(1);

/// What the task that reads a large output has of its client, and the message of the result.
pub(super) struct Fetching {
    pub(super) connection: BrokerConnection,
    pub(super) board: Arc<LaneBoard>,
    pub(super) run: String,
    pub(super) publication: u64,
    /// The subject for acknowledgements of the result.
    pub(super) ack: String,
}

impl Fetching {
    /// Reads the output of a result. That of one without an output is not wanted.
    pub(super) async fn fetch(self, object: Object, reply: Box<Reply>) -> Fetched {
        let Fetching { connection, board, run, publication, ack } = self;
        let subject = connection.names.output_object(&run, &object.name);
        let has_output = matches!(reply.outcome, WorkerOutcome::Output);
        let is_wanted = || has_output && board.has(publication);
        let output = {
            let reading = objects::get(&connection, &subject, &object, is_wanted);
            let mut reading = std::pin::pin!(reading);
            loop {
                let pause = std::pin::pin!(tokio::time::sleep(PROGRESS));
                match select(reading.as_mut(), pause).await {
                    Either::Left((output, _)) => break output,
                    // Else the broker would deliver the result again.
                    Either::Right(_) => {
                        let payload = AckKind::Progress.into();
                        _ = connection.client.publish(ack.clone(), payload).await;
                    }
                }
            }
        };
        Fetched { publication, object, reply, ack, output }
    }
}

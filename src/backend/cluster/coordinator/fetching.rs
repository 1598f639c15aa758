//! Reads an output that was too large for its message from the object store.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, AckKind};
use futures_util::future::{Either, select};

use crate::backend::cluster::board::LaneBoard;
use crate::backend::cluster::connection::BrokerConnection;
use crate::backend::cluster::objects;
use crate::backend::cluster::publication::{News, Reply};
use crate::backend::cluster::wire::{Object, WorkerOutcome};

/// How often the broker hears that a result is being read: well within its `ack_wait`.
const PROGRESS: Duration = Duration::from_secs(1);

/// What the task that reads a large output has of its coordinator, and the message of the result.
pub(super) struct Fetching {
    pub(super) connection: BrokerConnection,
    pub(super) board: Arc<LaneBoard>,
    pub(super) run: String,
    pub(super) publication: u64,
    pub(super) message: jetstream::Message,
}

impl Fetching {
    /// Reads the output of a result, hands the reply on to its lane, and removes the output. A result without an output is
    /// handed on as it is; what was written of its output is removed.
    pub(super) async fn fetch(self, object: Object, mut reply: Box<Reply>) {
        let Fetching { connection, board, run, publication, message } = self;
        let subject = connection.names.output_object(&run, &object.name);
        let has_output = matches!(reply.outcome, WorkerOutcome::Output);
        let is_wanted = || has_output && board.has(publication);
        let reading = objects::get(&connection, &subject, &object, is_wanted);
        let news = match while_in_progress(&message, reading).await {
            _ if !has_output => News::Answer(publication, reply),
            Ok(Some(output)) => {
                reply.output = output;
                News::Answer(publication, reply)
            }
            // The output is not there, or not wanted any more. If the item is wanted, it is worked on again.
            Ok(None) => News::Vanished(publication),
            Err(error) => {
                let text = format!("the output cannot be read from the object store: {error}");
                reply.outcome = WorkerOutcome::error(text);
                News::Answer(publication, reply)
            }
        };
        if !board.tell(publication, news) {
            tracing::debug!("a result of publication {publication} is not wanted any more");
        }
        if let Err(error) = message.ack().await {
            tracing::debug!("a result was not acknowledged: {error}");
        }
        objects::remove(&connection, format!("{subject}.*")).await;
    }
}

/// Tells the broker during `work` that a message is in progress, so that it is not delivered again.
async fn while_in_progress<T>(message: &jetstream::Message, work: impl Future<Output = T>) -> T {
    let mut work = std::pin::pin!(work);
    loop {
        let pause = std::pin::pin!(tokio::time::sleep(PROGRESS));
        match select(work.as_mut(), pause).await {
            Either::Left((done, _)) => return done,
            Either::Right(_) => _ = message.ack_with(AckKind::Progress).await,
        }
    }
}

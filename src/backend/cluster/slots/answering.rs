//! Sends the verdict of an item to the coordinator.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, AckKind};

use super::Slots;
use super::verdict::SlotVerdict;
use crate::backend::cluster::connection::REQUEST_TIMEOUT;
use crate::backend::cluster::environment::give_up;
use crate::backend::cluster::objects;
use crate::backend::cluster::publisher::{StreamMessage, publish};
use crate::backend::cluster::services::reason_of;
use crate::backend::cluster::wire::{
    self, ItemHeader, Object, ResultHeader, WorkerNews, WorkerOutcome,
};
use crate::concurrency::lock;

impl Slots {
    /// Says what became of an item. Ends this process if it has no producers any more.
    pub(super) async fn answer(
        self: Arc<Self>,
        header: ItemHeader,
        message: jetstream::Message,
        verdict: SlotVerdict,
    ) {
        let publication = header.publication;
        let ends = match verdict {
            SlotVerdict::Outcome { outcome, output, busy } => {
                self.send(header, &message, (outcome, output, busy)).await;
                None
            }
            SlotVerdict::LastTimeout { outcome, reason } => {
                self.send(header, &message, (outcome, vec![], Duration::ZERO)).await;
                Some(reason)
            }
            // The item goes to another worker.
            SlotVerdict::NoProducers { reason } => {
                self.acknowledge(&message, AckKind::Nak(None)).await;
                Some(reason)
            }
        };
        self.forget(publication);
        if let Some(reason) = ends {
            self.leave(&reason).await;
        }
    }

    /// Publishes the result of an item, then acknowledges the item.
    async fn send(
        &self,
        header: ItemHeader,
        message: &jetstream::Message,
        (mut outcome, output, busy): (WorkerOutcome, Vec<u8>, Duration),
    ) {
        let ItemHeader { epoch, publication, item, attempt, .. } = header;
        let worker = self.worker.clone();
        let delivered = message.info().map_or(0, |info| info.delivered);
        let is_wanted = || publication > lock(&self.state).floor;
        let name = format!("{epoch:x}-{publication}-{worker}-{delivered}");
        let (object, output) = match output.len() > self.connection.most_inline() {
            false => (None, output),
            true => {
                let object = objects::object(&self.connection, name, &output);
                if let Err(error) = self.store(&object, output, is_wanted).await {
                    outcome = WorkerOutcome::error(error);
                }
                (Some(object), vec![])
            }
        };
        let outcome = fitting(outcome, self.connection.most_inline());
        let id = format!(
            "{}/{epoch:x}/{item}/{attempt}/{worker}/{publication}-{delivered}",
            self.key.run
        );
        let busy_nanos = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        let deliveries = u64::try_from(delivered).unwrap_or(0);
        let result = ResultHeader {
            epoch,
            publication,
            worker,
            outcome,
            busy_nanos,
            deliveries,
            times: self.times(),
            object,
        };
        let result = StreamMessage {
            subject: self.connection.names.results_of(&self.key.run),
            id: &id,
            payload: wire::with_body(&result, &output).into(),
            patience: Duration::from_millis(self.key.wait_millis),
            answered_within: Some(Duration::from_millis(self.key.wait_millis)),
        };
        match publish(&self.connection, result, is_wanted).await {
            Ok(stored) => {
                let mut state = lock(&self.state);
                state.last_result = state.last_result.max(stored.unwrap_or(0));
            }
            Err(error) => self.notify(WorkerNews::GivenUp(publication, error.to_string())).await,
        }
        // If the acknowledgement is lost, the item comes again, and the claim of it is refused. If this worker gives up all its
        // items, as at the end of its part, they may still be wanted, so they are handed back.
        let has_dropped = lock(&self.state).floor == u64::MAX;
        let kind = if has_dropped { AckKind::Nak(None) } else { AckKind::Ack };
        self.acknowledge(message, kind).await;
    }

    /// Ends this process, which has no producers any more, once its items are answered for. If it is started again, it has
    /// producers again.
    async fn leave(&self, reason: &str) {
        self.finish().await;
        let lost = format!("its producers are gone: {reason}");
        self.notify(self.leaving(Some(lost.clone()))).await;
        _ = tokio::time::timeout(REQUEST_TIMEOUT, self.connection.client.flush()).await;
        give_up(&lost)
    }

    /// Puts a large output into the object store. Fails with the text for the item if the store refuses the output.
    async fn store(
        &self,
        object: &Object,
        output: Vec<u8>,
        is_wanted: impl Fn() -> bool,
    ) -> Result<(), String> {
        let subject = self.connection.names.output_object(&self.key.run, &object.name);
        // The work is done, so it waits for longer than an input does.
        let patience = self.lease() * 3;
        let place = (&*subject, object);
        let stored = objects::put(&self.connection, place, output, patience, is_wanted).await;
        stored.map(|_| ()).map_err(|error| {
            let bytes = object.bytes;
            format!(
                "the output has {bytes} bytes, and the broker's object store refuses it: {error}"
            )
        })
    }
}

/// The outcome, with a shorter text if it is too large for a message.
fn fitting(outcome: WorkerOutcome, most: usize) -> WorkerOutcome {
    let bytes = wire::encode(&outcome).len();
    if bytes <= most {
        return outcome;
    }
    let said = match &outcome {
        WorkerOutcome::Failed { failure, .. } => reason_of(failure),
        WorkerOutcome::Crashed { stderr, .. } => stderr.clone(),
        _ => String::new(),
    };
    let shown: String = said.chars().take(most / 8).collect();
    let text = format!(
        "{shown} ... (the error has {bytes} bytes, and a message of the broker at most {most} for it)"
    );
    WorkerOutcome::error(text)
}

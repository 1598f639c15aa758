//! What the coordinator hears of an item that a worker has taken.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, AckKind};

use super::Slots;
use crate::backend::cluster::connection::REQUEST_TIMEOUT;
use crate::backend::cluster::environment::give_up;
use crate::backend::cluster::hosting::Answer;
use crate::backend::cluster::publisher::{Publication, publish};
use crate::backend::cluster::wire::{self, ItemHeader, Object, Outcome, ResultHeader, WorkerNews};
use crate::base::Hook;
use crate::concurrency::lock;
use crate::error::Crash;

/// What is said of an item.
pub(super) enum Verdict {
    Outcome {
        outcome: Outcome,
        /// The encoded output.
        output: Vec<u8>,
        /// The time from the beginning of its hook.
        busy: Duration,
    },
    /// This worker has no producers any more, for this reason.
    Nothing(String),
}

impl Verdict {
    /// That of an item with no hook and no output.
    pub(super) fn without_hook(outcome: Outcome) -> Self {
        Verdict::Outcome { outcome, output: vec![], busy: Duration::ZERO }
    }

    pub(super) fn of(answer: Answer, busy: Duration) -> Self {
        let nanos = |limit: Duration| u64::try_from(limit.as_nanos()).unwrap_or(u64::MAX);
        let (outcome, output) = match answer {
            Answer::Output(bytes) => (Outcome::Output, bytes),
            Answer::Failed { failure, device } => (Outcome::Failed { failure, device }, vec![]),
            Answer::TimedOut { hook, limit, device } => {
                let (is_init, nanos) = (hook == Hook::ProducerInit, nanos(limit));
                (Outcome::TimedOut { is_init, nanos, device }, vec![])
            }
            Answer::Crashed { crash, device } => {
                let Crash { signal, status, stderr } = crash;
                (Outcome::Crashed { signal, status, stderr, device }, vec![])
            }
            Answer::Ended(reason) => return Verdict::Nothing(reason),
        };
        Verdict::Outcome { outcome, output, busy }
    }
}

impl Slots {
    /// Publishes the answer of an item, then acknowledges the item.
    pub(super) async fn answer(
        self: Arc<Self>,
        header: ItemHeader,
        message: jetstream::Message,
        verdict: Verdict,
    ) {
        let ItemHeader { epoch, publication, item, attempt, .. } = header;
        let (mut outcome, output, busy) = match verdict {
            Verdict::Outcome { outcome, output, busy } => (outcome, output, busy),
            // Another worker tries. One that starts anew has producers again.
            Verdict::Nothing(reason) => {
                self.acknowledge(&message, AckKind::Nak(None)).await;
                self.notify(WorkerNews::Leaving).await;
                _ = tokio::time::timeout(REQUEST_TIMEOUT, self.connection.client.flush()).await;
                give_up(&format!("its producers are gone: {reason}"))
            }
        };
        let worker = self.worker.clone();
        let delivered = message.info().map_or(0, |info| info.delivered);
        let is_wanted = || publication > lock(&self.state).floor;
        let name = format!("{epoch:x}-{publication}-{worker}-{delivered}");
        let (object, output) = match output.len() > self.connection.most_inline() {
            false => (None, output),
            true => {
                let object = self.connection.object(name, &output);
                if let Err(error) = self.store(&object, output, is_wanted).await {
                    outcome = Outcome::error(error);
                }
                (Some(object), vec![])
            }
        };
        let id = format!(
            "{}/{epoch:x}/{item}/{attempt}/{worker}/{publication}-{delivered}",
            self.key.run
        );
        let busy_nanos = u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX);
        let deliveries = u64::try_from(delivered).unwrap_or(0);
        let result =
            ResultHeader { epoch, publication, worker, outcome, busy_nanos, deliveries, object };
        let result = Publication {
            subject: self.connection.names.results_of(&self.key.run),
            id: &id,
            payload: wire::with_body(&result, &output).into(),
            patience: Duration::from_millis(self.key.wait_millis),
        };
        if let Err(error) = publish(&self.connection, result, is_wanted).await {
            self.notify(WorkerNews::Refused(error.to_string())).await;
        }
        // Without the confirmation the item may come again, and is then not wanted. What this worker has dropped by
        // itself may be wanted.
        let has_dropped = lock(&self.state).floor == u64::MAX;
        _ = match has_dropped {
            true => message.ack_with(AckKind::Nak(None)).await,
            false => message.double_ack().await,
        };
        self.forget(publication);
    }

    /// Puts a large output into the object store; the reason if that refuses it.
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
        let stored = self.connection.put_object(place, output, patience, is_wanted).await;
        stored.map(|_| ()).map_err(|error| {
            let bytes = object.bytes;
            format!(
                "the output has {bytes} bytes, and the broker's object store refuses it: {error}"
            )
        })
    }
}

//! Sends the verdicts of items to the coordinator.

use std::sync::Arc;
use std::time::Duration;

use async_nats::jetstream::{self, AckKind};

use super::Slots;
use super::verdict::{FinishedItem, SlotVerdict};
use crate::backend::cluster::connection::REQUEST_TIMEOUT;
use crate::backend::cluster::environment::give_up;
use crate::backend::cluster::objects;
use crate::backend::cluster::publisher::{StreamMessage, publish};
use crate::backend::cluster::services::reason_of;
use crate::backend::cluster::wire::{
    self, ItemHeader, ItemResult, Object, ResultsHeader, WorkerNews, WorkerOutcome,
};
use crate::concurrency::lock;

/// The longest time for which a result waits for others of its group.
const LINGER: Duration = Duration::from_millis(2);

impl Slots {
    /// Says what became of an item. Ends this process if it has no producers any more.
    pub(super) async fn answer(
        self: Arc<Self>,
        header: ItemHeader,
        message: jetstream::Message,
        verdict: SlotVerdict,
    ) {
        let ends = match verdict {
            SlotVerdict::Outcome { outcome, output, busy } => {
                self.send(header, message, (outcome, output, busy)).await;
                None
            }
            SlotVerdict::LastTimeout { outcome, reason } => {
                self.send(header, message, (outcome, vec![], Duration::ZERO)).await;
                Some(reason)
            }
            // The item goes to another worker.
            SlotVerdict::NoProducers { reason } => {
                self.acknowledge(&message, AckKind::Nak(None)).await;
                self.forget(header.publication);
                Some(reason)
            }
        };
        if let Some(reason) = ends {
            self.leave(&reason).await;
        }
    }

    /// Adds the result of an item to the next group. Its large output is stored before.
    async fn send(
        &self,
        header: ItemHeader,
        message: jetstream::Message,
        (mut outcome, mut output, busy): (WorkerOutcome, Vec<u8>, Duration),
    ) {
        let ItemHeader { epoch, publication, .. } = header;
        let delivered = message.info().map_or(0, |info| info.delivered);
        let most = self.connection.most_inline();
        let mut object = None;
        if output.len() > most {
            let name = format!("{epoch:x}-{publication}-{}-{delivered}", self.worker);
            let stored = objects::object(&self.connection, name, &output);
            let is_wanted = || publication > lock(&self.state).floor;
            if let Err(error) = self.store(&stored, std::mem::take(&mut output), is_wanted).await {
                outcome = WorkerOutcome::error(error);
            }
            object = Some(stored);
        }
        let result = ItemResult {
            publication,
            outcome: fitting(outcome, most),
            busy_nanos: u64::try_from(busy.as_nanos()).unwrap_or(u64::MAX),
            deliveries: u64::try_from(delivered).unwrap_or(0),
            bytes: output.len() as u64,
            object,
        };
        // The coordinator reads an object before it acknowledges the message, so no other result waits for that.
        let bytes = match result.object {
            Some(_) => most,
            None => wire::encode(&result).len() + output.len(),
        };
        if lock(&self.results).add(FinishedItem { result, output, message }, bytes) {
            self.send_groups((busy / 8).min(LINGER)).await;
        }
    }

    /// Sends results until none is left: those that come while a group is under way go together, and those that come within
    /// `linger` if other hooks run.
    async fn send_groups(&self, linger: Duration) {
        loop {
            let is_alone = lock(&self.state).begun == 0;
            // A shorter sleep would take as long.
            if linger >= Duration::from_millis(1) && !is_alone {
                tokio::time::sleep(linger).await;
            }
            let Some(group) = lock(&self.results).take() else { return };
            self.send_group(group).await;
        }
    }

    /// Publishes results in one message, then acknowledges their items.
    async fn send_group(&self, group: Vec<FinishedItem>) {
        let (epoch, worker) = (self.key.epoch, self.worker.clone());
        let number = {
            let mut state = lock(&self.state);
            state.groups += 1;
            state.groups
        };
        // A group is published with the same id until the broker has confirmed it.
        let id = format!("{}/{epoch:x}/{worker}/{}-{number}", self.key.run, self.part);
        let last = group.iter().map(|it| it.result.publication).max().unwrap_or_default();
        let is_wanted = || last > lock(&self.state).floor;
        let (mut results, mut outputs, mut items) = (vec![], vec![], vec![]);
        for FinishedItem { result, output, message } in group {
            items.push((result.publication, message));
            outputs.extend(output);
            results.push(result);
        }
        let header = ResultsHeader { epoch, worker, times: self.times(), results };
        let message = StreamMessage {
            subject: self.connection.names.results_of(&self.key.run),
            id: &id,
            payload: wire::with_body(&header, &outputs).into(),
            patience: Duration::from_millis(self.key.wait_millis),
            answered_within: Some(Duration::from_millis(self.key.wait_millis)),
        };
        match publish(&self.connection, message, is_wanted).await {
            Ok(stored) => {
                let mut state = lock(&self.state);
                state.last_result = state.last_result.max(stored.unwrap_or(0));
            }
            Err(error) => {
                for (publication, _) in &items {
                    self.notify(WorkerNews::GivenUp(*publication, error.to_string())).await;
                }
            }
        }
        // If an acknowledgement is lost, the item comes again, and the claim of it is refused. If this worker gives up all its
        // items, as at the end of its part, they may still be wanted, so they are handed back.
        let has_dropped = lock(&self.state).floor == u64::MAX;
        for (publication, message) in items {
            let kind = if has_dropped { AckKind::Nak(None) } else { AckKind::Ack };
            self.acknowledge(&message, kind).await;
            self.forget(publication);
        }
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

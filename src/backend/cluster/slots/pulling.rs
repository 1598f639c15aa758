//! Takes items from the broker as the producers of a worker have room for them.

use std::sync::Arc;
use std::time::Duration;

use async_nats::StatusCode;
use async_nats::jetstream::{self, AckKind};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::sync::oneshot;

use super::{Accepted, Slots, TakenItem};
use crate::backend::cluster::connection::{AGAIN, REQUEST_TIMEOUT};
use crate::backend::cluster::publication::Address;
use crate::backend::cluster::wire::{self, ItemHeader};
use crate::concurrency::lock;

/// How long the broker keeps a request for an item.
pub(in crate::backend::cluster) const PULL: Duration = Duration::from_secs(5);

impl Slots {
    /// Takes items from the consumer of those with an address, until no more are begun. No request is given up: its answer may be on its way, and the
    /// item in it would stay away from other workers for a lease.
    pub(in crate::backend::cluster) async fn pull(
        self: Arc<Self>,
        consumer: String,
        from: Address,
    ) {
        loop {
            self.pull_while_connected(&consumer, from).await;
            if lock(&self.state).is_closed {
                return;
            }
            tokio::time::sleep(AGAIN).await;
        }
    }

    /// Asks for items, until an answer is missing.
    async fn pull_while_connected(self: &Arc<Self>, consumer: &str, from: Address) {
        let client = &self.connection.client;
        let items = self.connection.names.items();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{items}.{consumer}");
        let pull = format!("{{\"batch\":1,\"expires\":{}}}", PULL.as_nanos());
        let mut restored = self.connection.restored.clone();
        restored.mark_unchanged();
        let inbox = client.new_inbox();
        let Ok(mut answers) = client.subscribe(inbox.clone()).await else { return };
        while !lock(&self.state).is_closed {
            let (subject, pull) = (subject.clone(), pull.clone().into());
            if client.publish_with_reply(subject, inbox.clone(), pull).await.is_err() {
                return;
            }
            let asked =
                std::pin::pin!(tokio::time::timeout(PULL + REQUEST_TIMEOUT, answers.next()));
            let changed = std::pin::pin!(restored.changed());
            // The last connection has lost the request.
            let Either::Left((Ok(Some(message)), _)) = select(asked, changed).await else { return };
            match message.status {
                None => {
                    let context = self.connection.context.clone();
                    let accepted = self.accept(jetstream::Message { message, context }).await;
                    let Some(accepted) = accepted else { continue };
                    let working = self.clone().work_on(accepted);
                    match from {
                        // One of several tasks.
                        Address::Any => working.await,
                        // The hook of an item may never return, and no other task takes the next one for this worker.
                        Address::Own => _ = tokio::spawn(working),
                    }
                }
                // There was none.
                Some(StatusCode::TIMEOUT | StatusCode::REQUEST_TERMINATED) => {}
                Some(status) => return tracing::debug!("{consumer}: {status}"),
            }
        }
    }

    /// Admits an item, or has the broker drop it or keep it for later.
    async fn accept(&self, message: jetstream::Message) -> Option<Accepted> {
        let header = match wire::split::<ItemHeader>(&message.payload) {
            Ok((header, _)) if header.epoch == self.key.epoch => header,
            // The item is of a coordinator that is gone, or damaged. No other worker can do more with it.
            _ => {
                self.acknowledge(&message, AckKind::Ack).await;
                return None;
            }
        };
        let (cancel, cancelled) = oneshot::channel();
        let refusal = match self.admit(header.publication, &message, cancel).await {
            TakenItem::Begin => return Some(Accepted { header, message, cancelled }),
            TakenItem::Unwanted => AckKind::Ack,
            TakenItem::Closed => AckKind::Nak(None),
            // Without the delay, this worker would get it again at once.
            TakenItem::NotYet => AckKind::Nak(Some(self.lease() / 4)),
            TakenItem::NotHere => AckKind::Nak(Some(self.lease())),
        };
        self.acknowledge(&message, refusal).await;
        self.forget(header.publication);
        None
    }
}

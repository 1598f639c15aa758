//! Takes items from the broker as the producers of a worker have room for them.

use std::sync::Arc;
use std::time::Duration;

use async_nats::StatusCode;
use async_nats::jetstream::{self, AckKind};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, oneshot};
use tokio::task::JoinSet;

use super::{Accepted, Slots, SlotsRoom, TakenItem};
use crate::backend::cluster::connection::{AGAIN, REQUEST_TIMEOUT};
use crate::backend::cluster::publication::Address;
use crate::backend::cluster::wire::{self, ItemHeader};
use crate::concurrency::lock;

/// How long the broker keeps a request for items.
pub(in crate::backend::cluster) const PULL: Duration = Duration::from_secs(5);

/// A task that takes items from one consumer, until its worker begins no more.
///
/// Several of them serve the items for any, as many as producers: each has one request at the broker, for as many items as
/// there was room. No request is given up: its answers may be on their way, and the items in them would stay away from
/// other workers for a lease.
pub(in crate::backend::cluster) struct ItemRequests {
    pub(in crate::backend::cluster) slots: Arc<Slots>,
    pub(in crate::backend::cluster) consumer: String,
    pub(in crate::backend::cluster) from: Address,
}

impl ItemRequests {
    pub(in crate::backend::cluster) async fn make(self) {
        let own_room = SlotsRoom::new(1);
        let room = match self.from {
            Address::Any => &self.slots.room,
            Address::Own => &own_room,
        };
        let mut working = JoinSet::new();
        loop {
            self.make_while_connected(room, &mut working).await;
            if lock(&self.slots.state).is_closed {
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
        while working.join_next().await.is_some() {}
    }

    /// Asks for items, until an answer is missing.
    async fn make_while_connected(&self, room: &SlotsRoom, working: &mut JoinSet<()>) {
        let ItemRequests { slots, consumer, .. } = self;
        let connection = &slots.connection;
        let client = &connection.client;
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{}.{consumer}", connection.names.items());
        let mut restored = connection.restored.clone();
        let inbox = client.new_inbox();
        let Ok(mut answers) = client.subscribe(inbox.clone()).await else { return };
        while !lock(&slots.state).is_closed {
            let Some(mut wanted) = room.take().await else { return };
            let count = wanted.num_permits();
            // The wait may have taken longer than the last connection.
            restored.mark_unchanged();
            let pull = format!("{{\"batch\":{count},\"expires\":{}}}", PULL.as_nanos());
            let asked = client.publish_with_reply(subject.clone(), inbox.clone(), pull.into());
            if asked.await.is_err() {
                return;
            }
            while let Some(one) = wanted.split(1) {
                let answer =
                    std::pin::pin!(tokio::time::timeout(PULL + REQUEST_TIMEOUT, answers.next()));
                let changed = std::pin::pin!(restored.changed());
                // The last connection has lost the request.
                let Either::Left((Ok(Some(message)), _)) = select(answer, changed).await else {
                    return;
                };
                match message.status {
                    None => {
                        let context = connection.context.clone();
                        let message = jetstream::Message { message, context };
                        self.take(message, one, working).await;
                    }
                    // There are no more.
                    Some(StatusCode::TIMEOUT | StatusCode::REQUEST_TERMINATED) => break,
                    Some(status) => return tracing::debug!("{consumer}: {status}"),
                }
            }
            while working.try_join_next().is_some() {}
        }
    }

    /// Takes an item, and returns its room: once its hook has ended, and for an item that is addressed to this worker once its
    /// hook begins. That hook may never return, and no other task takes the next such item.
    async fn take(
        &self,
        message: jetstream::Message,
        room: OwnedSemaphorePermit,
        working: &mut JoinSet<()>,
    ) {
        let slots = self.slots.clone();
        match self.from {
            Address::Any => {
                _ = working.spawn(async move {
                    if let Some(accepted) = accept(&slots, message).await {
                        slots.work_on(accepted).await;
                    }
                    drop(room);
                });
            }
            Address::Own => {
                if let Some(accepted) = accept(&slots, message).await {
                    tokio::spawn(slots.work_on(accepted));
                }
            }
        }
    }
}

/// Admits an item, or has the broker drop it or keep it for later.
async fn accept(slots: &Slots, message: jetstream::Message) -> Option<Accepted> {
    let header = match wire::split::<ItemHeader>(&message.payload) {
        Ok((header, _)) if header.epoch == slots.key.epoch => header,
        // The item is of a coordinator that is gone, or damaged. No other worker can do more with it.
        _ => {
            slots.acknowledge(&message, AckKind::Ack).await;
            return None;
        }
    };
    let (cancel, cancelled) = oneshot::channel();
    let refusal = match slots.admit(header.publication, &message, cancel).await {
        TakenItem::Begin => return Some(Accepted { header, message, cancelled }),
        TakenItem::Unwanted => AckKind::Ack,
        TakenItem::Closed => AckKind::Nak(None),
        // Without the delay, this worker would get it again at once.
        TakenItem::NotYet => AckKind::Nak(Some(slots.lease() / 4)),
        TakenItem::NotHere => AckKind::Nak(Some(slots.lease())),
    };
    slots.acknowledge(&message, refusal).await;
    slots.forget(header.publication);
    None
}

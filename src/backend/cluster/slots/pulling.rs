//! Takes items from the broker as the producers of a worker have room for them.

use std::sync::Arc;
use std::time::Duration;

use async_nats::StatusCode;
use async_nats::jetstream::{self, AckKind};
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};
use tokio::task::JoinSet;

use super::{Accepted, Slots, TakenItem};
use crate::backend::cluster::connection::{AGAIN, REQUEST_TIMEOUT};
use crate::backend::cluster::publication::Address;
use crate::backend::cluster::wire::{self, ItemHeader};
use crate::concurrency::lock;

/// How long the broker keeps a request for an item.
pub(in crate::backend::cluster) const PULL: Duration = Duration::from_secs(5);

/// The room of a worker for items: one permit for each of those that it can have beside those it has, and has not asked for.
pub(super) struct SlotsRoom {
    free: Arc<Semaphore>,
    /// Of the tasks that ask for items, the one that waits for room. So it finds all the room that there is.
    turn: tokio::sync::Mutex<()>,
}

impl SlotsRoom {
    pub(super) fn new(items: usize) -> Self {
        SlotsRoom { free: Arc::new(Semaphore::new(items)), turn: tokio::sync::Mutex::default() }
    }

    /// Takes all the room that there is, once there is any. `None` after `close`.
    async fn take(&self) -> Option<OwnedSemaphorePermit> {
        let _turn = self.turn.lock().await;
        let mut taken = self.free.clone().acquire_owned().await.ok()?;
        // Hooks that end together make room for one request.
        tokio::task::yield_now().await;
        let rest = u32::try_from(self.free.available_permits()).unwrap_or(u32::MAX);
        if let Ok(rest) = self.free.clone().try_acquire_many_owned(rest) {
            taken.merge(rest);
        }
        Some(taken)
    }

    pub(super) fn close(&self) {
        self.free.close();
    }
}

impl Slots {
    /// Takes items from the consumer of those with an address, until no more are begun. No request is given up: its answers may
    /// be on their way, and the items in them would stay away from other workers for a lease.
    ///
    /// Several such tasks serve the items for any, as many as producers: each has one request at the broker, for as many
    /// items as there was room.
    pub(in crate::backend::cluster) async fn pull(
        self: Arc<Self>,
        consumer: String,
        from: Address,
    ) {
        let own_room = SlotsRoom::new(1);
        let room = match from {
            Address::Any => &self.room,
            Address::Own => &own_room,
        };
        let mut working = JoinSet::new();
        loop {
            self.pull_while_connected(&consumer, (from, room), &mut working).await;
            if lock(&self.state).is_closed {
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
        while working.join_next().await.is_some() {}
    }

    /// Asks for items, until an answer is missing.
    async fn pull_while_connected(
        self: &Arc<Self>,
        consumer: &str,
        (from, room): (Address, &SlotsRoom),
        working: &mut JoinSet<()>,
    ) {
        let client = &self.connection.client;
        let items = self.connection.names.items();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{items}.{consumer}");
        let mut restored = self.connection.restored.clone();
        let inbox = client.new_inbox();
        let Ok(mut answers) = client.subscribe(inbox.clone()).await else { return };
        while !lock(&self.state).is_closed {
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
                        let context = self.connection.context.clone();
                        let message = jetstream::Message { message, context };
                        self.clone().take(message, (from, one), working).await;
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
        self: Arc<Self>,
        message: jetstream::Message,
        (from, room): (Address, OwnedSemaphorePermit),
        working: &mut JoinSet<()>,
    ) {
        match from {
            Address::Any => {
                _ = working.spawn(async move {
                    if let Some(accepted) = self.accept(message).await {
                        self.work_on(accepted).await;
                    }
                    drop(room);
                });
            }
            Address::Own => {
                if let Some(accepted) = self.accept(message).await {
                    tokio::spawn(self.work_on(accepted));
                }
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

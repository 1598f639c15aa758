//! A worker's part in one run, from its join to its end.
//!
//! [`PartServing`] waits for the service, joins the run, and starts the tasks of the part: they take items into [`Slots`], keep
//! them from other workers, and obey the orders of the coordinator. The main task in `worker` says when the part ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::Subscriber;
use futures_util::StreamExt;
use futures_util::future::{Either, join_all, select};
use tokio::sync::watch;

use super::connection::{BrokerConnection, REQUEST_TIMEOUT};
use super::hosting::{Host, LoadedRunner};
use super::names::{consumer_of, consumer_of_any};
use super::publication::Address;
use super::services::Services;
use super::slots::Slots;
use super::slots::pulling::{ItemRequests, PULL};
use super::wire::{self, Command, JoinReply, Joining, Notice, RunKey, WorkerNews, WorkerOrder};

/// One part in a run.
pub(super) struct PartServing {
    pub(super) connection: BrokerConnection,
    pub(super) key: RunKey,
    /// The number of this part.
    pub(super) part: u64,
    pub(super) worker: String,
    pub(super) host_name: String,
    pub(super) services: Arc<Services>,
    pub(super) ends: watch::Receiver<PartEnding>,
    /// When the coordinator last gave an order.
    pub(super) ordered: watch::Sender<Instant>,
}

impl PartServing {
    /// Takes part in the run until `ends` or the coordinator says that the part ends.
    pub(super) async fn serve(mut self, host: Arc<dyn Host + Send>) {
        let mut ends = self.ends.clone();
        let acquired = unless_over(&mut ends, self.services.acquire(&self.key, &host)).await;
        let Some(acquired) = acquired else { return };
        match acquired {
            Ok(service) => {
                self.take_part(&service.loaded).await;
                drop(service);
            }
            Err(reason) => {
                let host = self.host_name.clone();
                self.notify(WorkerNews::Unable { host, reason }).await;
                // Another try would fail too, until the coordinator has another configuration, and so another key.
                _ = self.ends.wait_for(|ending| *ending != PartEnding::NotYet).await;
            }
        }
    }

    /// Joins the run and takes its items until the part ends. Then no hook has an item of it.
    async fn take_part(&mut self, service: &Arc<dyn LoadedRunner>) {
        let subject = self.connection.names.orders(&self.key.run);
        let Ok(orders) = self.connection.client.subscribe(subject).await else { return };
        let mut ends = self.ends.clone();
        let joined = unless_over(&mut ends, self.join(&**service)).await;
        if joined != Some(JoinReply::Seated) {
            return;
        }
        let (leave, mut left) = watch::channel(false);
        let slots = Slots::new(
            self.connection.clone(),
            self.key.clone(),
            (self.worker.clone(), self.part),
            service.clone(),
        );
        let slots = Arc::new(slots);
        let join = self.request_for_seat(&**service);
        let ordered = self.ordered.clone();
        let obeying = tokio::spawn(obey(slots.clone(), orders, join, (leave, ordered)));
        let (run, epoch) = (&self.key.run, self.key.epoch);
        let own = consumer_of(run, epoch, &self.worker);
        let any = consumer_of_any(run, epoch);
        let mut tasks = vec![tokio::spawn(slots.clone().extend(self.lease() / 4)), obeying];
        let pull = |consumer: &String, from| {
            let requests = ItemRequests { slots: slots.clone(), consumer: consumer.clone(), from };
            tokio::spawn(requests.make())
        };
        tasks.push(pull(&own, Address::Own));
        let mut pulls: Vec<_> = (0..service.capacity()).map(|_| pull(&any, Address::Any)).collect();
        let is_ended = unless_over(&mut ends, left.wait_for(|left| *left)).await.is_none();
        if is_ended && *self.ends.borrow() == PartEnding::Drain {
            slots.finish().await;
        } else {
            slots.give_up_all().await;
        }
        // The coordinator may live although this worker heard nothing of it: then it gives the items to others.
        self.notify(slots.leaving(None)).await;
        if *self.ends.borrow() != PartEnding::Over {
            // The coordinator does not know which worker gets an item for any. So those on their way are waited for and
            // handed back. Without a broker none come.
            _ = tokio::time::timeout(PULL, join_all(&mut pulls)).await;
        }
        tasks.into_iter().chain(pulls).for_each(|task| task.abort());
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.key.lease_millis)
    }

    /// Asks for a seat until there is one.
    async fn join(&self, service: &dyn LoadedRunner) -> JoinReply {
        let notice = self.notice(self.request_for_seat(service));
        loop {
            let subject = self.connection.names.notices(&self.key.run);
            let request = async_nats::Request::new().payload(notice.clone().into());
            let request = request.timeout(Some(REQUEST_TIMEOUT.min(self.lease())));
            let answer = self.connection.client.send_request(subject, request).await;
            let answer = answer.ok().and_then(|message| wire::decode(&message.payload).ok());
            match answer {
                Some(reply @ (JoinReply::Seated | JoinReply::Banned)) => return reply,
                Some(JoinReply::Full) | None => {}
            }
            tokio::time::sleep((self.lease() / 4).min(Duration::from_secs(1))).await;
        }
    }

    fn request_for_seat(&self, service: &dyn LoadedRunner) -> WorkerNews {
        let number = |number| u32::try_from(number).unwrap_or(u32::MAX);
        WorkerNews::Join(Box::new(Joining {
            part: self.part,
            host: self.host_name.clone(),
            pid: std::process::id(),
            capacity: number(service.capacity()),
            producers: number(service.producers()),
            init: service.init(),
        }))
    }

    fn notice(&self, news: WorkerNews) -> Vec<u8> {
        wire::encode(&Notice { epoch: self.key.epoch, worker: self.worker.clone(), news })
    }

    async fn notify(&self, news: WorkerNews) {
        let subject = self.connection.names.notices(&self.key.run);
        if let Err(error) = self.connection.client.publish(subject, self.notice(news).into()).await
        {
            tracing::debug!("not sent: {error}");
        }
    }
}

/// Does what the coordinator says.
async fn obey(
    slots: Arc<Slots>,
    mut orders: Subscriber,
    join: WorkerNews,
    (leave, ordered): (watch::Sender<bool>, watch::Sender<Instant>),
) {
    while let Some(message) = orders.next().await {
        let Ok(order) = wire::decode::<WorkerOrder>(&message.payload) else { continue };
        if order.epoch != slots.key.epoch {
            continue;
        }
        ordered.send_replace(Instant::now());
        match order.command {
            Command::Stay => {}
            Command::Cancel(publication) => slots.cancel(publication),
            Command::Drain { worker, upto } if worker == slots.worker => {
                // Not waited for here: another order may be needed for its hooks to return.
                tokio::spawn(slots.clone().drain(upto));
            }
            Command::Leave { worker } if worker == slots.worker => _ = leave.send(true),
            Command::Rejoin { worker } if worker == slots.worker => {
                let (slots, join) = (slots.clone(), join.clone());
                tokio::spawn(async move { slots.rejoin(join).await });
            }
            Command::Drain { .. } | Command::Leave { .. } | Command::Rejoin { .. } => {}
        }
    }
}

/// Whether a part in a run ends, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PartEnding {
    NotYet,
    /// Begun items are finished, and no others are begun.
    Drain,
    /// Nothing waits for its items.
    Over,
}

/// Waits for the first of a future and the end of a part.
pub(super) async fn unless_over<T>(
    ends: &mut watch::Receiver<PartEnding>,
    future: impl Future<Output = T>,
) -> Option<T> {
    let future = std::pin::pin!(future);
    let ended = std::pin::pin!(ends.wait_for(|ending| *ending != PartEnding::NotYet));
    match select(future, ended).await {
        Either::Left((value, _)) => Some(value),
        Either::Right(_) => None,
    }
}

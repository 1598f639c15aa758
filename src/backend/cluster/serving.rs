//! A worker's part in one run, from its join to its end.

use std::sync::Arc;
use std::time::Duration;

use async_nats::Subscriber;
use futures_util::StreamExt;
use futures_util::future::join_all;
use tokio::sync::{Notify, oneshot, watch};

use super::connection::{Connection, REQUEST_TIMEOUT};
use super::ending::{Ending, unless_over};
use super::hosting::{BatchLimits, HookPlace, Host, LoadSettings, Loaded};
use super::names::{consumer_of, consumer_of_any};
use super::slots::{PULL, Slots};
use super::wire::{self, BatchRule, Command, JoinReply, Notice, Order, RunKey, WorkerNews};
use crate::backend::process::message::CallFailure;
use crate::concurrency::spawn::spawn;
use crate::concurrency::{Mutex, lock};
use crate::device::Devices;
use crate::scheduler::batch::Batch;

/// What a part in a run needs.
pub(super) struct Serving {
    pub(super) connection: Connection,
    pub(super) key: RunKey,
    /// Counts the parts of this worker.
    pub(super) part: u64,
    pub(super) worker: String,
    pub(super) host_name: String,
    pub(super) services: Arc<Services>,
    pub(super) ends: watch::Receiver<Ending>,
}

impl Serving {
    pub(super) async fn serve(mut self, host: Arc<dyn Host + Send>) {
        let mut ends = self.ends.clone();
        let acquired = unless_over(&mut ends, self.services.acquire(&self.key, &host)).await;
        let Some(acquired) = acquired else { return };
        match acquired {
            Ok(service) => {
                self.take_part(&service.0).await;
                drop(service);
            }
            Err(reason) => {
                let host = self.host_name.clone();
                self.notify(WorkerNews::Unable { host, reason }).await;
                // The key changes before another try can go better.
                _ = self.ends.wait_for(|ending| *ending != Ending::NotYet).await;
            }
        }
    }

    async fn take_part(&mut self, service: &Arc<dyn Loaded>) {
        let subject = self.connection.names.orders(&self.key.run);
        let Ok(orders) = self.connection.client.subscribe(subject).await else { return };
        let mut ends = self.ends.clone();
        let joined = unless_over(&mut ends, self.join(service.capacity())).await;
        if joined != Some(JoinReply::Seated) {
            return;
        }
        let (leave, left) = watch::channel(false);
        let slots = Slots::new(
            self.connection.clone(),
            self.key.clone(),
            self.worker.clone(),
            service.clone(),
        );
        let slots = Arc::new(slots);
        let join = self.request_for_seat(service.capacity());
        let obeying = tokio::spawn(obey(slots.clone(), orders, join, leave));
        let (run, epoch) = (&self.key.run, self.key.epoch);
        let own = consumer_of(run, epoch, &self.worker);
        let any = consumer_of_any(run, epoch);
        let mut tasks = vec![tokio::spawn(slots.clone().extend(self.lease() / 4)), obeying];
        tasks.push(tokio::spawn(slots.clone().pull(own)));
        let pull = |_| tokio::spawn(slots.clone().pull(any.clone()));
        let mut pulls: Vec<_> = (0..service.capacity()).map(pull).collect();
        let mut left = left;
        let is_ended = unless_over(&mut ends, left.wait_for(|left| *left)).await.is_none();
        if is_ended && *self.ends.borrow() == Ending::Drain {
            slots.finish().await;
        } else {
            slots.give_up_all().await;
        }
        // The coordinator of a run that is over may live after all: it then gives the items to others.
        self.notify(WorkerNews::Leaving).await;
        if *self.ends.borrow() != Ending::Over {
            // Items on their way are handed back, of which the coordinator does not know. Without a broker none come.
            _ = tokio::time::timeout(PULL, join_all(&mut pulls)).await;
        }
        tasks.into_iter().chain(pulls).for_each(|task| task.abort());
    }

    fn lease(&self) -> Duration {
        Duration::from_millis(self.key.lease_millis)
    }

    /// Asks for a seat until there is one.
    async fn join(&self, capacity: usize) -> JoinReply {
        let notice = self.notice(self.request_for_seat(capacity));
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

    fn request_for_seat(&self, capacity: usize) -> WorkerNews {
        let capacity = u32::try_from(capacity).unwrap_or(u32::MAX);
        let (host, pid) = (self.host_name.clone(), std::process::id());
        WorkerNews::Join { part: self.part, host, pid, capacity }
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
    leave: watch::Sender<bool>,
) {
    while let Some(message) = orders.next().await {
        let Ok(order) = wire::decode::<Order>(&message.payload) else { continue };
        if order.epoch != slots.key.epoch {
            continue;
        }
        match order.command {
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

/// The service of a worker. Runs with an equal recipe and configuration share it; another waits until no run uses
/// it.
pub(super) struct Services {
    devices: Devices,
    place: HookPlace,
    current: Mutex<Option<Current>>,
    freed: Notify,
}

struct Current {
    key: RunKey,
    service: Arc<dyn Loaded>,
    users: usize,
}

/// The use of a service by a run.
pub(super) struct InUse(pub(super) Arc<dyn Loaded>, Arc<Services>);

impl Services {
    pub(super) fn new(devices: Devices, place: HookPlace) -> Self {
        Services { devices, place, current: Mutex::new(None), freed: Notify::new() }
    }

    /// Returns the service for a run; the reason if it cannot be made.
    async fn acquire(
        self: &Arc<Self>,
        key: &RunKey,
        host: &Arc<dyn Host + Send>,
    ) -> Result<InUse, String> {
        loop {
            let freed = self.freed.notified();
            let old = {
                let mut current = lock(&self.current);
                match &mut *current {
                    Some(it) if it.serves(key) => {
                        it.users += 1;
                        return Ok(InUse(it.service.clone(), self.clone()));
                    }
                    Some(it) if it.users > 0 => Err(()),
                    _ => Ok(current.take()),
                }
            };
            match old {
                Err(()) => freed.await,
                Ok(old) => {
                    let service = self.load(key.clone(), host.clone(), old).await?;
                    let mut current = lock(&self.current);
                    if current.is_none() {
                        let (key, service) = (key.clone(), service.clone());
                        *current = Some(Current { key, service, users: 0 });
                    }
                }
            }
        }
    }

    /// Ends the old service, and makes another, on a thread that may block.
    async fn load(
        &self,
        key: RunKey,
        host: Arc<dyn Host + Send>,
        old: Option<Current>,
    ) -> Result<Arc<dyn Loaded>, String> {
        let size = |bytes| usize::try_from(bytes).ok();
        let settings = LoadSettings {
            devices: self.devices.clone(),
            item_timeout: key.load.item_nanos.map(Duration::from_nanos),
            init_timeout: key.load.init_nanos.map(Duration::from_nanos),
            stack_size: key.load.stack_size.and_then(size),
            batch: key.load.batch.map(batch_of),
            place: self.place,
        };
        off_the_runtime(move || {
            old.iter().for_each(|old| old.service.close());
            drop(old);
            host.load(&key.load.cfg, &settings).map_err(|failure| reason_of(&failure))
        })
        .await
    }

    /// Ends the service.
    pub(super) async fn close(&self) {
        let current = lock(&self.current).take();
        if let Some(current) = current {
            _ = off_the_runtime(move || {
                current.service.close();
                Ok(())
            })
            .await;
        }
    }
}

impl Current {
    fn serves(&self, key: &RunKey) -> bool {
        self.key.recipe == key.recipe && self.key.load == key.load
    }
}

impl Drop for InUse {
    fn drop(&mut self) {
        if let Some(current) = &mut *lock(&self.1.current) {
            current.users -= 1;
        }
        self.1.freed.notify_waiters();
    }
}

async fn off_the_runtime<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, String> + Send + 'static,
) -> Result<T, String> {
    let (sender, receiver) = oneshot::channel();
    // It is not joined: its last act is to answer.
    let thread = spawn("gangline-h".to_owned(), None, move || _ = sender.send(work()));
    thread.map_err(|error| error.source.to_string())?;
    receiver
        .await
        .unwrap_or_else(|_| Err("the thread that loads the runner has panicked".to_owned()))
}

fn batch_of(BatchRule { most, wait_nanos, most_cost, most_padded }: BatchRule) -> BatchLimits {
    let most = usize::try_from(most).unwrap_or(usize::MAX);
    let rule = Batch::up_to(most).within(Duration::from_nanos(wait_nanos));
    BatchLimits { rule, most_cost, most_padded }
}

fn reason_of(failure: &CallFailure) -> String {
    match failure {
        CallFailure::Make(error) | CallFailure::Cfg(error) | CallFailure::Error(error) => {
            error.texts.join(": ")
        }
        CallFailure::Panic(text) => format!("a panic: {text}"),
        CallFailure::Outputs { .. } => "a wrong number of outputs".to_owned(),
    }
}

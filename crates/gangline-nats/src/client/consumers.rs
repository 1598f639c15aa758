//! The consumers of items that a coordinator makes: one for any worker, and one for each worker that asked for a seat.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::stream::ConsumerError;
use futures_util::StreamExt;
use tokio::sync::{Mutex, OwnedMutexGuard};

use crate::ClusterError;
use crate::connection::{AGAIN, BrokerConnection, item_consumer, refused};
use crate::names::{consumer_of, consumer_of_any};
use crate::objects;
use crate::wire::RunKey;

/// The consumers of the items of one run.
#[derive(Clone)]
pub(super) struct RunConsumers {
    connection: BrokerConnection,
    key: RunKey,
    lease: Duration,
    /// The workers that have a consumer of their own at the broker, with a seat or without.
    ///
    /// Whatever makes or removes a consumer holds this lock until the broker has answered, so that this happens in the order
    /// of the actions. The lock is fair.
    workers: Arc<Mutex<HashSet<String>>>,
    /// Whether a task makes what the broker has lost.
    is_furnishing: Arc<AtomicBool>,
}

impl RunConsumers {
    pub(super) fn new(connection: BrokerConnection, key: RunKey, lease: Duration) -> Self {
        let (workers, is_furnishing) = (Arc::default(), Arc::default());
        RunConsumers { connection, key, lease, workers, is_furnishing }
    }

    pub(super) async fn make_for_any(&self) -> Result<(), ClusterError> {
        let made = self.make(self.config_for_any()).await;
        made.map(drop).map_err(|source| refused("the consumer of items", source))
    }

    /// Makes the consumer of a worker. That for any may be gone: the broker removes one that no worker has used for long.
    pub(super) async fn make_for(&self, worker: &str) -> Result<(), ConsumerError> {
        let mut workers = self.workers.lock().await;
        // Inserted before the request, because the consumer may exist even if the broker's answer is lost.
        workers.insert(worker.to_owned());
        let made = async {
            self.make(self.config_for_any()).await?;
            self.make(self.config_for(worker)).await
        };
        // Such as without the stream.
        made.await.map(drop).inspect_err(|_| self.connection.note_gap())
    }

    /// Removes the consumer of a worker, and the items that are addressed to it.
    pub(super) async fn remove(&self, worker: &str) {
        let mut workers = self.workers.lock().await;
        workers.remove(worker);
        let (context, names) = (&self.connection.context, &self.connection.names);
        if let Ok(stream) = context.get_stream_no_info(names.items()).await {
            let RunKey { run, epoch, .. } = &self.key;
            _ = stream.purge().filter(names.to(run, *epoch, worker)).await;
            _ = stream.delete_consumer(&consumer_of(run, *epoch, worker)).await;
        }
    }

    /// Removes all of them. None is made as long as the returned guard is held.
    pub(super) async fn remove_all(&self) -> OwnedMutexGuard<HashSet<String>> {
        let workers = self.workers.clone().lock_owned().await;
        let RunKey { run, epoch, .. } = &self.key;
        let of_workers = workers.iter().map(|worker| consumer_of(run, *epoch, worker));
        let (context, items) = (&self.connection.context, self.connection.names.items());
        if let Ok(items) = context.get_stream_no_info(items).await {
            for consumer in std::iter::once(consumer_of_any(run, *epoch)).chain(of_workers) {
                _ = items.delete_consumer(&consumer).await;
            }
        }
        workers
    }

    /// Removes the consumers of earlier coordinators of this run. Those would go by themselves, but later.
    pub(super) async fn remove_earlier(&self) {
        let (context, names) = (&self.connection.context, &self.connection.names);
        let of_run = names.items_of(&self.key.run);
        let own = names.items_of_epoch(&self.key.run, self.key.epoch);
        let is_within = |subject: &str, all: &str| {
            all.strip_suffix('>').is_some_and(|it| subject.starts_with(it))
        };
        let Ok(items) = context.get_stream_no_info(names.items()).await else { return };
        let mut consumers = items.consumers();
        while let Some(Ok(consumer)) = consumers.next().await {
            let subject = &consumer.config.filter_subject;
            if is_within(subject, &of_run) && !is_within(subject, &own) {
                _ = items.delete_consumer(&consumer.name).await;
            }
        }
    }

    /// Makes the streams, buckets and consumers that a broker has lost. A broker that has just started may not be ready for
    /// that, so it is tried until it succeeds or the connection is gone.
    pub(super) async fn furnish_again(&self) {
        if self.is_furnishing.swap(true, Ordering::Relaxed) {
            // The task that does so may have made already what is missing now.
            return self.connection.note_gap();
        }
        loop {
            self.connection.forget_gap();
            match self.furnish().await {
                Ok(()) => break,
                Err(error) => tracing::debug!("{error:#}"),
            }
            self.connection.note_gap();
            if !self.connection.is_connected() {
                break;
            }
            tokio::time::sleep(AGAIN).await;
        }
        self.is_furnishing.store(false, Ordering::Relaxed);
    }

    async fn furnish(&self) -> Result<(), ClusterError> {
        let workers = self.workers.lock().await;
        self.connection.furnish().await?;
        objects::furnish(&self.connection).await;
        let items = self.connection.context.get_stream(self.connection.names.items()).await;
        let items = items.map_err(|source| refused("the stream of items", source))?;
        let last = items.cached_info().state.last_sequence;
        let of_workers = workers.iter().map(|worker| self.config_for(worker));
        for config in std::iter::once(self.config_for_any()).chain(of_workers) {
            let name = config.durable_name.clone().unwrap_or_default();
            let mut made = self.make(config.clone()).await;
            // A broker that was killed may have forgotten where its stream ends.
            let is_ahead = |it: &Consumer<_>| it.cached_info().delivered.stream_sequence > last;
            if made.as_ref().is_ok_and(is_ahead) {
                _ = items.delete_consumer(&name).await;
                made = self.make(config).await;
            }
            made.map_err(|source| refused("a consumer of items", source))?;
        }
        Ok(())
    }

    async fn make(&self, config: pull::Config) -> Result<Consumer<pull::Config>, ConsumerError> {
        let items = self.connection.names.items();
        self.connection.context.create_consumer_on_stream(config, items).await
    }

    fn config_for(&self, worker: &str) -> pull::Config {
        let RunKey { run, epoch, .. } = &self.key;
        let subject = self.connection.names.to(run, *epoch, worker);
        item_consumer(consumer_of(run, *epoch, worker), subject, self.lease)
    }

    fn config_for_any(&self) -> pull::Config {
        let RunKey { run, epoch, .. } = &self.key;
        let subject = self.connection.names.any(run, *epoch);
        item_consumer(consumer_of_any(run, *epoch), subject, self.lease)
    }
}

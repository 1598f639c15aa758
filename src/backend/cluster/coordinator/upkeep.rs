//! What a coordinator does beside its runs: it admits workers, watches them and the broker, keeps its key, and ends.

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::consumer::{Consumer, pull};
use async_nats::jetstream::kv;
use futures_util::StreamExt;
use tokio::task::AbortHandle;

use super::Coordinator;
use crate::backend::cluster::board::{Fatal, SeatedWorker};
use crate::backend::cluster::connection::{
    AGAIN, BrokerConnection, REQUEST_TIMEOUT, item_consumer, refused,
};
use crate::backend::cluster::coordinator::Purge;
use crate::backend::cluster::coordinator::departures::LeavingWorker;
use crate::backend::cluster::event::{CoordinatorEvent, KeyState};
use crate::backend::cluster::names::{consumer_of, consumer_of_any, consumer_of_results};
use crate::backend::cluster::wire::{self, Card, Command, JoinReply, RunKey};
use crate::backend::cluster::{objects, reconciler};
use crate::base::HumanDuration;
use crate::base::causes::WithCauses;
use crate::error::ClusterError;

impl Coordinator {
    /// Makes the consumer of a worker. Then `seat` gives the worker a seat.
    pub(super) async fn join(&self, worker: SeatedWorker, reply: async_nats::Subject) {
        if self.departures.banned.contains(&worker.id) {
            return self.answer(Some(reply), wire::encode(&JoinReply::Banned)).await;
        }
        let config = self.consumer_for(&worker.id);
        let (context, items) = (self.connection.context.clone(), self.connection.names.items());
        let (events, consumers) = (self.events.clone(), self.consumers.clone());
        let board = self.board.clone();
        tokio::spawn(async move {
            let mut made = consumers.lock().await;
            // The id is inserted before the request, because the consumer may exist even if the broker's answer is lost.
            made.insert(worker.id.clone());
            match context.create_consumer_on_stream(config, items).await {
                Ok(_) => _ = events.send(CoordinatorEvent::Seat(worker, reply)),
                // The worker asks again.
                Err(error) => {
                    let host = &worker.host;
                    let reason = format!("{host}: the broker refuses its consumer: {error}");
                    tracing::debug!("{reason}");
                    board.refuse(&worker.id, reason);
                }
            }
        });
    }

    pub(super) fn consumer_for(
        &self,
        worker: &str,
    ) -> async_nats::jetstream::consumer::pull::Config {
        let RunKey { run, epoch, .. } = &self.key;
        let subject = self.connection.names.to(run, *epoch, worker);
        item_consumer(consumer_of(run, *epoch, worker), subject, self.nats.lease_time)
    }

    pub(super) fn consumer_for_any(&self) -> async_nats::jetstream::consumer::pull::Config {
        let RunKey { run, epoch, .. } = &self.key;
        let subject = self.connection.names.any(run, *epoch);
        item_consumer(consumer_of_any(run, *epoch), subject, self.nats.lease_time)
    }

    pub(super) async fn seat(&mut self, worker: SeatedWorker, reply: async_nats::Subject) {
        let (id, host) = (worker.id.clone(), worker.host.clone());
        if let Some(earlier) = self.board.part_of(&id)
            && earlier != worker.part
        {
            // The part in the seat has ended, and the notice of that was lost. The consumer stays: it is the worker's, and
            // `join` has made it for this part.
            self.unseat(&id, None);
        }
        let seated = self.board.seat(worker);
        if seated == JoinReply::Seated {
            tracing::info!(worker = %id, %host, "a worker takes part");
        }
        self.answer(Some(reply), wire::encode(&seated)).await;
    }

    /// Notes that a worker lives, and compares the part in its card with the part in its seat.
    pub(super) async fn take_card(&mut self, worker: String, card: Result<Card, String>) {
        self.seen.insert(worker.clone(), Instant::now());
        match card.and_then(|card| check(&card, &self.key).map(|()| card)) {
            Ok(card) => {
                let part = card.runs.iter().find(|it| it.0 == self.key.run).map(|it| it.1);
                match (part, self.board.part_of(&worker)) {
                    // The worker takes part and has lost its seat, as after a pause of its process.
                    (Some(_), None) if !self.departures.banned.contains(&worker) => {
                        self.order(Command::Rejoin { worker }).await;
                    }
                    // The part in the seat has ended, and the notice of that was lost.
                    (Some(part), Some(seated)) if part > seated => self.lose(&worker, None),
                    (None, Some(seated))
                        if card.parts >= seated && !self.departures.has(&worker) =>
                    {
                        self.lose(&worker, None);
                    }
                    _ => {}
                }
            }
            Err(reason) => {
                tracing::debug!("worker {worker} does not serve: {reason}");
                self.board.refuse(&worker, reason);
            }
        }
    }

    /// Gives up what was silent for too long: workers after a lease, then the run.
    pub(super) async fn tick(&mut self) {
        let now = Instant::now();
        let lease = self.nats.lease_time;
        // A process that was stopped has heard nothing, and its workers may be well.
        let was_stopped = now.duration_since(self.clock.ticked) > lease / 2;
        self.clock.ticked = now;
        // A broker that does not keep the key keeps no card either.
        let is_well = now.duration_since(self.clock.answered) <= lease / 2
            && self.key_refused.is_none()
            && self.connection.is_connected();
        if is_well && !was_stopped {
            self.clock.connected = now;
        } else {
            self.seen.values_mut().for_each(|seen| *seen = now);
            let gone = now.duration_since(self.clock.connected);
            if gone > lease {
                self.end_drains();
            }
            if !was_stopped && gone > self.nats.wait_for {
                self.board.fail(self.cause().unwrap_or(Fatal::BrokerGone));
            }
            // Requests of a client that is not connected would pile up.
            if self.connection.is_connected() {
                self.refresh_key();
                // Orders need no room at the broker.
                self.order(Command::Stay).await;
            }
            return;
        }
        self.lose_departed();
        let seated = self.board.seated();
        for worker in &seated {
            let seen = *self.seen.entry(worker.clone()).or_insert(now);
            if now.duration_since(seen) > lease {
                tracing::warn!("worker {worker} gave no sign of life for {lease:?}");
                let lease = HumanDuration(lease);
                self.lose(worker, Some(format!("it gave no sign of life for {lease:#}").into()));
            }
        }
        self.seen.retain(|_, seen| now.duration_since(*seen) < lease * 10);
        self.board.retain_refusals(|worker| self.seen.contains_key(worker));
        let run = self.board.run();
        let is_new = std::mem::replace(&mut self.clock.run, run) != run;
        if !seated.is_empty() || run.is_none() || is_new {
            self.clock.staffed = now;
        } else if now.duration_since(self.clock.staffed) > self.nats.wait_for {
            self.board.fail(self.cause().unwrap_or(Fatal::NoWorkers));
        }
        if run.is_some() && now.duration_since(self.clock.result) > self.nats.wait_for {
            // Without the right to read results, none come.
            let denied = self.connection.check_access(self.nats.wait_for).err();
            denied.into_iter().for_each(|it| self.board.fail(Fatal::NoAccess(it)));
        }
        self.refresh_key();
        self.order_drains().await;
        reconciler::look_for_lost(&self.connection, &self.key.run, &self.board, lease * 2);
    }

    /// Ends the waits for workers of a run that is over. Without a broker, their workers have given up all items too.
    fn end_drains(&mut self) {
        for lane in self.draining.keys().copied().collect::<Vec<_>>() {
            match self.board.worker_of(lane) {
                Some(worker) => _ = self.unseat(&worker.id, None),
                None => _ = self.draining.remove(&lane),
            }
        }
    }

    /// Returns what is wrong with the broker, if anything is.
    pub(super) fn cause(&self) -> Option<Fatal> {
        if let Err(lost) = self.connection.check_access(Duration::ZERO) {
            return Some(Fatal::NoAccess(lost));
        }
        if !self.connection.is_connected() {
            return Some(Fatal::BrokerGone);
        }
        let is_mute = self.clock.answered.elapsed() > self.nats.lease_time / 2;
        // A broker with a full disk may report that once, and then answer no more.
        let said = self.connection.refusal_within(self.nats.wait_for * 2);
        match (said, &self.key_refused) {
            (Some(said), _) => Some(Fatal::Refused("an item or a result", said.into())),
            (None, Some(said)) => Some(Fatal::Refused("the run's key", said.clone())),
            (None, None) => is_mute.then_some(Fatal::NoAnswer),
        }
    }

    /// Refreshes the key, so that it is known whether the broker answers. Then decides why too few workers have come.
    pub(super) fn look_for_cause(&self) {
        let (refreshing, events) = (self.refreshed_key(), self.events.clone());
        tokio::spawn(async move {
            _ = events.send(CoordinatorEvent::KeyPut(refreshing.await));
            _ = events.send(CoordinatorEvent::DecideCause);
        });
    }

    /// Notes whether this coordinator still has its key, and whether the broker answers.
    pub(super) fn take_key_state(&mut self, state: KeyState) {
        if state != KeyState::Unanswered {
            self.clock.answered = Instant::now();
            self.key_refused = None;
        }
        match state {
            KeyState::Own { revision } => self.revision = revision,
            KeyState::OfAnother => self.yield_run(),
            KeyState::Refused(said) => self.key_refused = Some(said),
            KeyState::Unanswered => {}
        }
    }

    /// Shows workers that this coordinator lives, unless another has taken the run.
    fn refresh_key(&self) {
        let (refreshing, events) = (self.refreshed_key(), self.events.clone());
        tokio::spawn(async move {
            _ = events.send(CoordinatorEvent::KeyPut(refreshing.await));
        });
    }

    fn refreshed_key(&self) -> impl Future<Output = KeyState> + Send + use<> {
        let (connection, keys) = (self.connection.clone(), self.keys.clone());
        let (key, revision) = (self.key.clone(), self.revision);
        async move { refresh(&connection, &keys, &key, revision).await }
    }

    /// Takes the seats from the workers that have left, and whose results are read.
    pub(super) fn lose_departed(&mut self) {
        let due = self.departures.take_due(Instant::now(), self.nats.lease_time);
        for LeavingWorker { worker, part, lost, .. } in due {
            if self.board.part_of(&worker) == Some(part) {
                self.lose(&worker, lost);
            }
        }
    }

    /// Takes the seat from a worker: the items that it had begun have failed, and the rest goes to others. `lost` says why,
    /// unless the worker leaves in order. Returns whether it had a seat.
    pub(super) fn unseat(&mut self, worker: &str, lost: Option<Arc<str>>) -> bool {
        let Some((lane, sequences)) = self.board.unseat(worker, lost) else { return false };
        tracing::info!("worker {worker} takes part no more");
        self.clock.staffed = Instant::now();
        self.draining.remove(&lane);
        sequences.into_iter().for_each(|sequence| self.delete(Some(sequence)));
        true
    }

    /// Takes the seat from a worker, and removes its consumer and the items that are addressed to it.
    pub(super) fn lose(&mut self, worker: &str, lost: Option<Arc<str>>) {
        if !self.unseat(worker, lost) {
            return;
        }
        let (names, RunKey { run, epoch, .. }) = (&self.connection.names, &self.key);
        let (subject, consumer) = (names.to(run, *epoch, worker), consumer_of(run, *epoch, worker));
        let (context, items) = (self.connection.context.clone(), names.items());
        let (consumers, worker) = (self.consumers.clone(), worker.to_owned());
        tokio::spawn(async move {
            let mut made = consumers.lock().await;
            made.remove(&worker);
            if let Ok(stream) = context.get_stream_no_info(items).await {
                _ = stream.purge().filter(subject).await;
                _ = stream.delete_consumer(&consumer).await;
            }
        });
    }

    /// The broker is back, perhaps without what it had.
    pub(super) fn restore(&mut self) {
        let now = Instant::now();
        self.seen.values_mut().for_each(|seen| *seen = now);
        // The request may be lost. Lanes ask once more.
        self.purge = Purge::default();
        self.board.revive();
        let connection = self.connection.clone();
        let mut configs = vec![self.consumer_for_any()];
        configs.extend(self.board.seated().iter().map(|worker| self.consumer_for(worker)));
        let consumers = self.consumers.clone();
        tokio::spawn(async move {
            let _alone = consumers.lock().await;
            furnish_again(connection, configs).await;
        });
    }

    /// Removes the items of this epoch.
    pub(super) fn purge_items(&self) -> impl Future<Output = ()> + use<> {
        self.purge_items_of(self.connection.names.items_of_epoch(&self.key.run, self.key.epoch))
    }

    fn purge_items_of(&self, subject: String) -> impl Future<Output = ()> + use<> {
        let (context, items) = (self.connection.context.clone(), self.connection.names.items());
        async move {
            if let Ok(stream) = context.get_stream_no_info(items).await {
                _ = stream.purge().filter(subject).await;
            }
        }
    }

    /// Removes what an earlier coordinator of this run has left.
    pub(super) async fn purge(&self) {
        self.purge_items_of(self.connection.names.items_of(&self.key.run)).await;
        self.purge_results().await;
    }

    /// Removes the consumers of earlier coordinators of this run. Those would go by themselves, but later.
    pub(super) async fn remove_earlier_consumers(&self) {
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

    /// Another coordinator has the run: this one takes none of its results.
    pub(super) fn yield_run(&self) {
        self.reading.iter().for_each(AbortHandle::abort);
        self.board.fail(Fatal::Superseded);
    }

    async fn purge_results(&self) {
        let (context, names) = (&self.connection.context, &self.connection.names);
        if let Ok(stream) = context.get_stream_no_info(names.results()).await {
            _ = stream.purge().filter(names.results_of(&self.key.run)).await;
        }
        objects::remove(&self.connection, names.objects_of(&self.key.run)).await;
    }

    /// Leaves nothing behind.
    pub(super) async fn end(mut self) {
        // The task would make the consumer of results anew.
        self.reading.iter().for_each(AbortHandle::abort);
        // The last answer to a refresh may not have come yet.
        let owner = self.refreshed_key().await;
        if let KeyState::Own { revision } = owner {
            _ = self.keys.purge_expect_revision(&self.key.run, Some(revision)).await;
        }
        let (context, names) = (self.connection.context.clone(), self.connection.names.clone());
        if let (Some(sequence), Ok(runs)) =
            (self.announced.take(), context.get_stream_no_info(names.runs()).await)
        {
            _ = runs.delete_message(sequence).await;
        }
        let RunKey { run, epoch, .. } = &self.key;
        self.purge_items().await;
        // Results are those of another coordinator if that has the run.
        let is_replaced = matches!(self.board.fatal(), Some(Fatal::Superseded));
        if owner != KeyState::OfAnother && !is_replaced {
            self.purge_results().await;
            _ = context
                .delete_consumer_from_stream(consumer_of_results(run), names.results())
                .await;
        }
        // Held to the end: a worker that asks for a seat now would leave another.
        let made = self.consumers.lock().await;
        let workers = made.iter().map(|worker| consumer_of(run, *epoch, worker));
        if let Ok(items) = context.get_stream_no_info(names.items()).await {
            for consumer in std::iter::once(consumer_of_any(run, *epoch)).chain(workers) {
                _ = items.delete_consumer(&consumer).await;
            }
        }
        _ = tokio::time::timeout(Duration::from_secs(1), self.connection.client.flush()).await;
    }
}

/// Makes the streams, buckets and consumers that a broker has lost. A broker that has just started may not be ready
/// for that, so it is tried until it succeeds or the next connection is there.
async fn furnish_again(mut connection: BrokerConnection, consumers: Vec<pull::Config>) {
    connection.restored.mark_unchanged();
    while !connection.restored.has_changed().unwrap_or(true) {
        match furnished(&connection, &consumers).await {
            Ok(()) => return,
            Err(error) => tracing::debug!("{error:#}"),
        }
        tokio::time::sleep(AGAIN).await;
    }
}

async fn furnished(
    connection: &BrokerConnection,
    consumers: &[pull::Config],
) -> Result<(), ClusterError> {
    connection.furnish().await?;
    objects::furnish(connection).await;
    let context = &connection.context;
    let items = context.get_stream(connection.names.items()).await;
    let items = items.map_err(|source| refused("the stream of items", source))?;
    let last = items.cached_info().state.last_sequence;
    for config in consumers {
        let make = || context.create_consumer_on_stream(config.clone(), connection.names.items());
        let mut made = make().await;
        // A broker that was killed may have forgotten where its stream ends.
        let is_ahead = |it: &Consumer<_>| it.cached_info().delivered.stream_sequence > last;
        if made.as_ref().is_ok_and(is_ahead) {
            _ = items.delete_consumer(config.durable_name.as_deref().unwrap_or_default()).await;
            made = make().await;
        }
        made.map_err(|source| refused("a consumer of items", source))?;
    }
    Ok(())
}

/// Puts the key once more, if this coordinator still has it.
async fn refresh(
    connection: &BrokerConnection,
    keys: &kv::Store,
    key: &RunKey,
    revision: u64,
) -> KeyState {
    let refreshed =
        tokio::time::timeout(REQUEST_TIMEOUT, put_again(connection, keys, key, revision));
    match refreshed.await {
        Ok(Ok(state)) => state,
        Ok(Err(ClusterError::Refused { source, .. })) => {
            KeyState::Refused(WithCauses(&*source).to_string().into())
        }
        Ok(Err(_)) | Err(_) => KeyState::Unanswered,
    }
}

async fn put_again(
    connection: &BrokerConnection,
    keys: &kv::Store,
    key: &RunKey,
    revision: u64,
) -> Result<KeyState, ClusterError> {
    let value = wire::encode(key);
    if let Ok(revision) = keys.update(&key.run, value.clone().into(), revision).await {
        return Ok(KeyState::Own { revision });
    }
    // The answer to the last update may be lost, or the broker has lost the key or its bucket.
    let entry = match keys.entry(&key.run).await {
        Ok(entry) => entry,
        Err(_) => connection.keys().await.map(|_| None)?,
    };
    let Some(entry) = entry.filter(|entry| entry.operation == kv::Operation::Put) else {
        let created = keys.create(&key.run, value.into()).await;
        let revision = created.map_err(|source| refused("the run's key", source))?;
        return Ok(KeyState::Own { revision });
    };
    Ok(match wire::decode::<RunKey>(&entry.value) {
        Ok(other) if other.epoch == key.epoch => KeyState::Own { revision: entry.revision },
        _ => KeyState::OfAnother,
    })
}

/// Whether a worker can serve a run.
fn check(card: &Card, key: &RunKey) -> Result<(), String> {
    let Card { host, recipes, .. } = card;
    let wanted = &key.recipe;
    let Some((_, terms)) = recipes.iter().find(|(name, _)| name == wanted) else {
        let names: Vec<_> = recipes.iter().map(|(name, _)| name).collect();
        return Err(format!("{host} has the recipes {names:?}, and not {wanted:?}"));
    };
    let difference = terms.difference(&key.terms);
    difference.map_or(Ok(()), |it| Err(format!("{host}, recipe {wanted:?}: {it}")))
}

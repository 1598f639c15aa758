//! The coordinator's client of the broker: hands its events to the [`Coordinator`], and performs its actions.
//!
//! One task on the thread `gangline-n` calls the coordinator. Lanes send events, and so do the tasks of `readers`. What waits
//! for an answer of the broker runs in a task of its own, so that no event waits for it.

mod consumers;
mod fetching;
mod publishing;
mod run_key;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::Subscriber;
use async_nats::jetstream::kv;
use async_nats::jetstream::stream::ConsumerErrorKind;
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::future::{Either, select};
use gangline::backend::{CallerSubscriber, lock};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

use self::consumers::RunConsumers;
use self::fetching::Fetching;
use self::publishing::Publishing;
use self::run_key::TakenKey;
use super::board::LaneBoard;
use super::connection::{BrokerConnection, REQUEST_TIMEOUT, refused};
use super::coordinator::{Coordinator, period};
use super::event::{CoordinatorAction, CoordinatorEvent, Emptied, KeyState, ToPublish};
use super::health::Fatal;
use super::names::{consumer_of_results, input_name};
use super::nats::Nats;
use super::wire::{self, Command, RunKey, WorkerOrder};
use super::{objects, readers, reconciler};
use crate::ClusterError;

/// The client of one coordinator.
pub(super) struct CoordinatorClient {
    connection: BrokerConnection,
    keys: kv::Store,
    board: Arc<LaneBoard>,
    nats: Nats,
    key: RunKey,
    /// The epoch of the coordinator that had the key before.
    before: Option<u64>,
    events: UnboundedSender<CoordinatorEvent>,
    consumers: RunConsumers,
    /// What workers tell this coordinator.
    notices: Subscriber,
    /// The place of the message that says that the run is live.
    announced: Option<u64>,
    /// Ends the reading of results.
    reading: Option<AbortHandle>,
}

impl CoordinatorClient {
    /// Takes the run's key, and asks workers to join.
    pub(super) async fn begin(
        connection: BrokerConnection,
        board: Arc<LaneBoard>,
        nats: Nats,
        key: RunKey,
        events: UnboundedSender<CoordinatorEvent>,
    ) -> Result<(Self, Coordinator), ClusterError> {
        connection.furnish().await?;
        objects::furnish(&connection).await;
        let keys = connection.keys().await?;
        let consumers = RunConsumers::new(connection.clone(), key.clone(), nats.lease_time);
        let notices = connection.client.subscribe(connection.names.notices(&key.run)).await;
        let notices = notices.map_err(|source| refused("the notices of workers", source))?;
        let (before, announced, reading) = (None, None, None);
        let mut client = CoordinatorClient {
            connection,
            keys,
            board,
            nats,
            key,
            before,
            events,
            consumers,
            notices,
            announced,
            reading,
        };
        client.purge_items_of(client.connection.names.items_of(&client.key.run)).await;
        client.purge_results().await;
        client.consumers.make_for_any().await?;
        client.listen().await?;
        let TakenKey { revision, before } = run_key::take(&client.keys, &client.key).await?;
        client.before = before;
        client.consumers.remove_earlier().await;
        client.announce().await;
        let (board, nats, key) = (client.board.clone(), client.nats.clone(), client.key.clone());
        let coordinator = Coordinator::new(board, nats, key, revision, Instant::now());
        Ok((client, coordinator))
    }

    /// Handles events until the coordinator's pool is closed and no lane is in a run.
    pub(super) async fn serve(
        mut self,
        mut coordinator: Coordinator,
        mut receiver: UnboundedReceiver<CoordinatorEvent>,
    ) {
        while !coordinator.is_over() {
            // Notices first: that an item has begun was sent before its result, which a task of `readers` may have found
            // earlier. Without the notice, the result would count for another worker.
            let (notice, other) = (self.notices.next(), receiver.recv());
            let event = match select(std::pin::pin!(notice), std::pin::pin!(other)).await {
                Either::Left((Some(notice), _)) => CoordinatorEvent::Notice {
                    reply: notice.reply.map(|it| it.to_string()),
                    payload: notice.payload,
                },
                // While this task has the client, nothing else ends it.
                Either::Left((None, _)) => {
                    panic!("the client of the broker died of a bug; its panic tells more")
                }
                Either::Right((Some(event), _)) => event,
                Either::Right((None, _)) => break,
            };
            let actions = {
                // This thread has that of the build.
                let of_run = lock(&self.board.subscriber).clone();
                let _default = of_run.as_ref().map(CallerSubscriber::enter);
                coordinator.handle(event, Instant::now(), self.connection.health())
            };
            for action in actions {
                self.perform(action).await;
            }
        }
        self.board.close();
        // Without a broker there is nothing to remove it from.
        _ = tokio::time::timeout(REQUEST_TIMEOUT, self.end(coordinator.revision())).await;
    }

    async fn perform(&self, action: CoordinatorAction) {
        match action {
            CoordinatorAction::Order { to, command } => self.order(to, command).await,
            CoordinatorAction::Answer { reply, payload } => self.send(reply, payload).await,
            CoordinatorAction::Acknowledge { reply, kind } => {
                self.send(reply, kind.payload()).await;
            }
            CoordinatorAction::Publish { item, to } => self.publish(item, to),
            CoordinatorAction::DeleteItem(sequence) => self.delete(sequence),
            CoordinatorAction::RemoveInput(publication) => {
                let name = input_name(self.key.epoch, publication);
                self.remove_object(self.connection.names.input_object(&self.key.run, &name));
            }
            CoordinatorAction::RemoveOutput(name) => {
                self.remove_object(self.connection.names.output_object(&self.key.run, &name));
            }
            CoordinatorAction::Empty(emptied) => self.empty(emptied).await,
            CoordinatorAction::StopReading => self.reading.iter().for_each(AbortHandle::abort),
            CoordinatorAction::RemoveConsumer(worker) => {
                let consumers = self.consumers.clone();
                tokio::spawn(async move { consumers.remove(&worker).await });
            }
            CoordinatorAction::Furnish => {
                let consumers = self.consumers.clone();
                tokio::spawn(async move { consumers.furnish_again().await });
            }
            asking => self.ask(asking),
        }
    }

    /// Performs an action whose answer is an event.
    fn ask(&self, action: CoordinatorAction) {
        match action {
            CoordinatorAction::PurgeItems { upto } => {
                let purging = self.purge_items();
                self.answer_later(async move {
                    purging.await;
                    CoordinatorEvent::Purged { upto }
                });
            }
            CoordinatorAction::Fetch { publication, object, reply, ack } => {
                let (connection, board) = (self.connection.clone(), self.board.clone());
                let run = self.key.run.clone();
                let fetching = Fetching { connection, board, run, publication, ack };
                self.answer_later(async move {
                    CoordinatorEvent::Fetched(Box::new(fetching.fetch(object, reply).await))
                });
            }
            CoordinatorAction::MakeConsumer(worker, reply) => {
                let consumers = self.consumers.clone();
                self.answer_later(async move {
                    match consumers.make_for(&worker.id).await {
                        Ok(()) => CoordinatorEvent::Seat(worker, reply),
                        Err(error) => {
                            let has_answer = error.kind() != ConsumerErrorKind::TimedOut;
                            let said = has_answer.then(|| error.to_string());
                            CoordinatorEvent::NoConsumer(worker, said)
                        }
                    }
                });
            }
            CoordinatorAction::PutKey { revision, purpose } => {
                let refreshing = self.refreshed_key(revision);
                self.answer_later(
                    async move { CoordinatorEvent::KeyPut(refreshing.await, purpose) },
                );
            }
            CoordinatorAction::LookFor(publications) => {
                let (connection, key) = (self.connection.clone(), self.key.clone());
                self.answer_later(async move {
                    let of_run = (&*key.run, key.epoch);
                    let missing = reconciler::missing_of(publications, &connection, of_run);
                    CoordinatorEvent::Looked(missing.await)
                });
            }
            done => unreachable!("`perform` does {done:?}"),
        }
    }

    /// Starts a task that hands an event to the coordinator.
    fn answer_later(&self, answer: impl Future<Output = CoordinatorEvent> + Send + 'static) {
        let events = self.events.clone();
        tokio::spawn(async move { _ = events.send(answer.await) });
    }

    async fn order(&self, to: Option<String>, command: Command) {
        let order = wire::encode(&WorkerOrder { epoch: self.key.epoch, command });
        let to = to.as_ref().unwrap_or(&self.key.run);
        self.send(self.connection.names.orders(to), order).await;
    }

    /// Sends a message that may be lost.
    async fn send(&self, subject: String, payload: impl Into<Bytes>) {
        // The client holds it back if it has too many messages for a broker that is away.
        let sent = self.connection.client.publish(subject, payload.into());
        match tokio::time::timeout(REQUEST_TIMEOUT, sent).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::debug!("not sent: {error}"),
            Err(_) => tracing::debug!("not sent: the client holds too many messages"),
        }
    }

    /// Starts the task that publishes an item.
    fn publish(&self, item: ToPublish, to: Option<String>) {
        let (names, run, epoch) = (&self.connection.names, &self.key.run, self.key.epoch);
        let subject = match to {
            Some(worker) => names.to(run, epoch, &worker),
            None => names.any(run, epoch),
        };
        let publishing = Publishing {
            connection: self.connection.clone(),
            board: self.board.clone(),
            run: run.clone(),
            epoch,
            lease_time: self.nats.lease_time,
            wait_for: self.nats.wait_for,
        };
        let events = self.events.clone();
        tokio::spawn(async move {
            let published = publishing.publish(subject, item).await;
            published.into_iter().for_each(|event| _ = events.send(event));
        });
    }

    /// Deletes the message at a place in the stream of items.
    fn delete(&self, sequence: u64) {
        let (context, items) = (self.connection.context.clone(), self.connection.names.items());
        tokio::spawn(async move {
            // It may be gone already.
            if let Ok(stream) = context.get_stream_no_info(items).await {
                _ = stream.delete_message(sequence).await;
            }
        });
    }

    /// Removes a large value. One that is still being written is removed by the task that writes it.
    fn remove_object(&self, subject: String) {
        let connection = self.connection.clone();
        tokio::spawn(async move { objects::remove(&connection, format!("{subject}.*")).await });
    }

    fn refreshed_key(&self, revision: u64) -> impl Future<Output = KeyState> + Send + use<> {
        let (connection, keys) = (self.connection.clone(), self.keys.clone());
        let (key, taken) = (self.key.clone(), TakenKey { revision, before: self.before });
        async move { run_key::refresh(&connection, &keys, &key, taken).await }
    }

    /// Removes the items of this epoch.
    fn purge_items(&self) -> impl Future<Output = ()> + Send + use<> {
        self.purge_items_of(self.connection.names.items_of_epoch(&self.key.run, self.key.epoch))
    }

    fn purge_items_of(&self, subject: String) -> impl Future<Output = ()> + Send + use<> {
        let (context, items) = (self.connection.context.clone(), self.connection.names.items());
        async move {
            if let Ok(stream) = context.get_stream_no_info(items).await {
                _ = stream.purge().filter(subject).await;
            }
        }
    }

    /// Removes all messages, before another is stored.
    async fn empty(&self, emptied: Emptied) {
        for name in self.connection.names.emptied(emptied) {
            if let Ok(stream) = self.connection.context.get_stream_no_info(name).await {
                _ = tokio::time::timeout(REQUEST_TIMEOUT, stream.purge().into_future()).await;
            }
        }
    }

    async fn purge_results(&self) {
        let (context, names) = (&self.connection.context, &self.connection.names);
        if let Ok(stream) = context.get_stream_no_info(names.results()).await {
            _ = stream.purge().filter(names.results_of(&self.key.run)).await;
        }
        objects::remove(&self.connection, names.objects_of(&self.key.run)).await;
    }
}

/// The first and the last that a client does.
impl CoordinatorClient {
    /// Starts to read what workers send beside their notices.
    async fn listen(&mut self) -> Result<(), ClusterError> {
        let (connection, events) = (&self.connection, &self.events);
        let made = readers::make_results_consumer(connection, &self.key.run).await;
        made.map_err(|source| refused("the consumer of results", source))?;
        let workers = connection.workers().await?;
        let results =
            readers::read_results(connection.clone(), self.key.run.clone(), events.clone());
        self.reading = Some(tokio::spawn(results).abort_handle());
        tokio::spawn(readers::read_cards(connection.clone(), workers, events.clone()));
        tokio::spawn(readers::tick(
            connection.clone(),
            period(self.nats.lease_time),
            events.clone(),
        ));
        Ok(())
    }

    /// Says in the stream of runs that this one wants workers.
    async fn announce(&mut self) {
        let subject = self.connection.names.run(&self.key.run);
        let sent = self.connection.context.publish(subject, self.key.recipe.clone().into()).await;
        if let Ok(confirmed) = sent {
            self.announced = confirmed.await.ok().map(|ack| ack.sequence);
        }
    }

    /// Leaves nothing behind.
    async fn end(mut self, revision: u64) {
        // The task would make the consumer of results anew.
        self.reading.iter().for_each(AbortHandle::abort);
        // The last answer to a refresh may not have come yet.
        let owner = self.refreshed_key(revision).await;
        if let KeyState::Own { revision } = owner {
            _ = self.keys.purge_expect_revision(&self.key.run, Some(revision)).await;
        }
        let (context, names) = (self.connection.context.clone(), self.connection.names.clone());
        if let (Some(sequence), Ok(runs)) =
            (self.announced.take(), context.get_stream_no_info(names.runs()).await)
        {
            _ = runs.delete_message(sequence).await;
        }
        self.purge_items().await;
        // Results are those of another coordinator if that has the run.
        let is_replaced = matches!(self.board.fatal(), Some(Fatal::Superseded));
        if owner != KeyState::OfAnother && !is_replaced {
            self.purge_results().await;
            let consumer = consumer_of_results(&self.key.run);
            _ = context.delete_consumer_from_stream(consumer, names.results()).await;
        }
        // Kept to the end: a worker that asks for a seat now would leave another consumer.
        let _kept = self.consumers.remove_all().await;
        _ = tokio::time::timeout(Duration::from_secs(1), self.connection.client.flush()).await;
    }
}

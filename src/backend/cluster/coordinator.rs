//! The coordinator's side of the broker: publishes items, seats workers, and hands their answers to the lanes.
//!
//! One task on the thread `gangline-n` handles [`CoordinatorEvent`]s, one after the other. Lanes send the events, and so do
//! the tasks of `readers`. A request that waits for an answer of the broker runs in a task of its own, so that no event
//! waits for it. Lanes learn the result through the [`LaneBoard`].

mod departures;
mod fetching;
mod publishing;
mod upkeep;

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use async_nats::jetstream::{self, AckKind, kv};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::task::AbortHandle;

use self::departures::{Departures, LeavingWorker};
use self::fetching::Fetching;
use self::publishing::{Publishing, input_name};
use super::board::{Fatal, LaneBoard, SeatedWorker};
use super::connection::{BrokerConnection, REQUEST_TIMEOUT, refused};
use super::event::{CoordinatorEvent, ToPublish};
use super::nats::Nats;
use super::publication::{Address, News, Reply};
use super::wire::{
    self, ClaimReply, Command, ItemResult, Notice, Object, ResultsHeader, RunKey, WorkerNews,
    WorkerOrder, WorkerOutcome,
};
use super::{names, objects, readers};
use crate::error::ClusterError;

/// How often the broker delivers a result with another epoch before this coordinator discards it as one of an earlier
/// coordinator. Until then it may be for a later one: a coordinator that was replaced learns that within a quarter of
/// a lease, and then reads no more.
const MOST_RETURNS: i64 = 4;
/// How often a coordinator tries to take the key of a run that another one refreshes.
const MOST_TRIES: usize = 10;

/// The coordinator of one pool. Only its own task changes it.
pub(super) struct Coordinator {
    connection: BrokerConnection,
    keys: kv::Store,
    board: Arc<LaneBoard>,
    nats: Nats,
    key: RunKey,
    /// The revision of the run's key, as this coordinator has put it last. Another coordinator changes it.
    revision: u64,
    events: UnboundedSender<CoordinatorEvent>,
    /// When each worker was last heard of.
    seen: HashMap<String, Instant>,
    /// The lanes that have left a run and wait until their workers have no publication of it, with the last of those.
    draining: HashMap<usize, u64>,
    departures: Departures,
    purge: Purge,
    /// The workers that have a consumer of their own at the broker, with a seat or without.
    ///
    /// `join` makes the consumer of a worker, `restore` makes it once more, `lose` and `end` remove it. Each holds this lock
    /// until the broker has answered, so that consumers are made and removed in the order of the events. The lock is
    /// fair.
    consumers: Arc<tokio::sync::Mutex<HashSet<String>>>,
    /// Why the broker did not keep the key when it was last refreshed.
    key_refused: Option<Arc<str>>,
    clock: Clock,
    /// The place of the message that says that the run is live.
    announced: Option<u64>,
    /// Ends the reading of results.
    reading: Option<AbortHandle>,
}

/// Times by this process's own clock.
struct Clock {
    ticked: Instant,
    /// When a worker last had a seat, no run was in progress, or a run began.
    staffed: Instant,
    /// The run at the last tick, by the count of the board.
    run: Option<u64>,
    /// The last tick at which the broker was connected and had answered.
    connected: Instant,
    /// When the broker last answered to the refreshed key.
    answered: Instant,
    /// When a result last came.
    result: Instant,
}

/// The removal of the items of a run that is over: of all lanes that leave it, the first asks for that. Each field is a
/// publication, up to which that was done.
#[derive(Default)]
pub(super) struct Purge {
    pub(super) asked: u64,
    /// The broker has answered, or has not in time: workers may be told to drain.
    pub(super) over: u64,
}

impl Coordinator {
    /// Takes the run's key, and asks workers to join.
    pub(super) async fn begin(
        connection: BrokerConnection,
        board: Arc<LaneBoard>,
        nats: Nats,
        key: RunKey,
        events: UnboundedSender<CoordinatorEvent>,
    ) -> Result<Self, ClusterError> {
        connection.furnish().await?;
        objects::furnish(&connection).await;
        let now = Instant::now();
        let keys = connection.keys().await?;
        let clock = Clock {
            ticked: now,
            staffed: now,
            run: None,
            connected: now,
            answered: now,
            result: now,
        };
        let (seen, draining) = (HashMap::new(), HashMap::new());
        let (consumers, revision, announced, reading) = (Arc::default(), 0, None, None);
        let key_refused = None;
        let mut coordinator = Coordinator {
            connection,
            keys,
            board,
            nats,
            key,
            revision,
            events,
            seen,
            draining,
            departures: Departures::default(),
            purge: Purge::default(),
            consumers,
            key_refused,
            clock,
            announced,
            reading,
        };
        coordinator.purge().await;
        coordinator.make_consumer().await?;
        coordinator.listen().await?;
        coordinator.take_key().await?;
        coordinator.remove_earlier_consumers().await;
        coordinator.announce().await;
        Ok(coordinator)
    }

    /// Handles events until the pool is closed and no lane is in a run. A run may end while a lane of it still waits for
    /// the slower copy of an item.
    pub(super) async fn serve(mut self, mut receiver: UnboundedReceiver<CoordinatorEvent>) {
        let mut is_closing = false;
        while !is_closing || self.board.run().is_some() {
            let Some(event) = receiver.recv().await else { break };
            match event {
                CoordinatorEvent::Publish(item) => self.publish(item),
                CoordinatorEvent::Cancel(publication) => {
                    self.order(Command::Cancel(publication)).await;
                }
                CoordinatorEvent::Delete(sequence) => self.delete(sequence),
                CoordinatorEvent::Discard(publication) => self.remove_input(publication),
                CoordinatorEvent::Drain { lane, upto } => self.drain(lane, upto).await,
                CoordinatorEvent::Purged { upto } => {
                    self.purge.over = self.purge.over.max(upto);
                    self.order_drains().await;
                }
                CoordinatorEvent::Ban { lane } => self.ban(lane).await,
                CoordinatorEvent::Left => {}
                CoordinatorEvent::Close => is_closing = true,
                CoordinatorEvent::Confirmed { publication, sequence } => {
                    if !self.board.confirm(publication, sequence) {
                        self.delete(Some(sequence));
                    }
                }
                CoordinatorEvent::Results(message) => {
                    self.clock.result = Instant::now();
                    let place = message.info().map_or(0, |info| info.stream_sequence);
                    self.take_results(*message).await;
                    self.departures.note_read(place);
                    self.lose_departed();
                }
                CoordinatorEvent::Notice(message) => self.take_notice(message).await,
                CoordinatorEvent::Card(worker, card) => self.take_card(worker, card).await,
                CoordinatorEvent::Seat(worker, reply) => self.seat(worker, reply).await,
                CoordinatorEvent::KeyPut(state) => self.take_key_state(state),
                CoordinatorEvent::TooFew => self.look_for_cause(),
                CoordinatorEvent::DecideCause => {
                    self.board.fail(self.cause().unwrap_or(Fatal::NoWorkers));
                }
                CoordinatorEvent::Restored => self.restore(),
                // While this coordinator has the client, nothing else ends it.
                CoordinatorEvent::ClientDied => {
                    panic!("the client of the broker died of a bug; its panic tells more")
                }
                CoordinatorEvent::Tick => self.tick().await,
            }
        }
        self.board.close();
        // Without a broker there is nothing to remove it from.
        _ = tokio::time::timeout(REQUEST_TIMEOUT, self.end()).await;
    }

    /// Takes the run's key by compare-and-set: of two coordinators, one has the last revision.
    async fn take_key(&mut self) -> Result<(), ClusterError> {
        let (run, value) = (&self.key.run, wire::encode(&self.key));
        for _ in 0..MOST_TRIES {
            let entry = self.keys.entry(run).await.map_err(|it| refused("the run's key", it))?;
            let put = match entry.filter(|entry| entry.operation == kv::Operation::Put) {
                Some(entry) => {
                    self.keys.update(run, value.clone().into(), entry.revision).await.ok()
                }
                None => self.keys.create(run, value.clone().into()).await.ok(),
            };
            // The coordinator before may have refreshed its key meanwhile.
            if let Some(revision) = put {
                self.revision = revision;
                return Ok(());
            }
        }
        Err(ClusterError::Superseded { run: run.clone() })
    }

    /// Says in the stream of runs that this one wants workers.
    async fn announce(&mut self) {
        let subject = self.connection.names.run(&self.key.run);
        let sent = self.connection.context.publish(subject, self.key.recipe.clone().into()).await;
        if let Ok(confirmed) = sent {
            self.announced = confirmed.await.ok().map(|ack| ack.sequence);
        }
    }

    async fn make_consumer(&self) -> Result<(), ClusterError> {
        let config = self.consumer_for_any();
        let made = self
            .connection
            .context
            .create_consumer_on_stream(config, self.connection.names.items());
        made.await.map_err(|source| refused("the consumer of items", source))?;
        Ok(())
    }

    /// Starts to read what workers send.
    async fn listen(&mut self) -> Result<(), ClusterError> {
        let subject = self.connection.names.notices(&self.key.run);
        let notices = self.connection.client.subscribe(subject).await;
        let notices = notices.map_err(|source| refused("the notices of workers", source))?;
        let (connection, events) = (&self.connection, &self.events);
        let made = readers::make_results_consumer(connection, &self.key.run).await;
        made.map_err(|source| refused("the consumer of results", source))?;
        let workers = connection.workers().await?;
        tokio::spawn(readers::read_notices(notices, events.clone()));
        let results =
            readers::read_results(connection.clone(), self.key.run.clone(), events.clone());
        self.reading = Some(tokio::spawn(results).abort_handle());
        tokio::spawn(readers::read_cards(connection.clone(), workers, events.clone()));
        tokio::spawn(readers::tick(connection.clone(), self.nats.lease_time / 4, events.clone()));
        Ok(())
    }

    /// Starts the task that publishes an item. An item for a worker that has no seat any more goes back to its lane.
    fn publish(&self, item: ToPublish) {
        let (names, run, epoch) = (&self.connection.names, &self.key.run, self.key.epoch);
        let subject = match (item.address, self.board.worker_of(item.lane)) {
            (Address::Own, Some(worker)) => names.to(run, epoch, &worker.id),
            (Address::Own, None) => {
                self.board.tell(item.publication, News::Vanished(item.publication));
                return;
            }
            (Address::Any, _) => names.any(run, epoch),
        };
        let publishing = Publishing {
            connection: self.connection.clone(),
            board: self.board.clone(),
            events: self.events.clone(),
            run: run.clone(),
            epoch,
            lease_time: self.nats.lease_time,
            wait_for: self.nats.wait_for,
        };
        tokio::spawn(publishing.publish(subject, item));
    }

    /// Removes a large input. An input that is still being written is removed by the task that writes it.
    fn remove_input(&self, publication: u64) {
        let name = input_name(self.key.epoch, publication);
        let subject = self.connection.names.input_object(&self.key.run, &name);
        let connection = self.connection.clone();
        tokio::spawn(async move { objects::remove(&connection, format!("{subject}.*")).await });
    }

    /// Deletes the message at a place in the stream of items.
    fn delete(&self, sequence: Option<u64>) {
        let Some(sequence) = sequence else { return };
        let (context, items) = (self.connection.context.clone(), self.connection.names.items());
        tokio::spawn(async move {
            // It may be gone already.
            if let Ok(stream) = context.get_stream_no_info(items).await {
                _ = stream.delete_message(sequence).await;
            }
        });
    }

    /// Tells all workers of the run. An order may be lost.
    async fn order(&self, command: Command) {
        let order = wire::encode(&WorkerOrder { epoch: self.key.epoch, command });
        let subject = self.connection.names.orders(&self.key.run);
        if let Err(error) = self.connection.client.publish(subject, order.into()).await {
            tracing::debug!("not sent: {error}");
        }
    }

    /// Has the items up to `upto` removed. Then asks the worker of a lane to give them up, and to say when no hook has one.
    async fn drain(&mut self, lane: usize, upto: u64) {
        self.draining.insert(lane, upto);
        // The items of a later run must stay.
        if upto < self.board.last() {
            self.purge.over = self.purge.over.max(upto);
        }
        if upto <= self.purge.over {
            return self.order_drain(lane, upto).await;
        }
        // The order waits for it: no worker takes an item after it has said that it has none, and a purge that the broker
        // does later would take items of the next run.
        if upto > self.purge.asked {
            self.purge.asked = upto;
            let (purging, events) = (self.purge_items(), self.events.clone());
            tokio::spawn(async move {
                purging.await;
                _ = events.send(CoordinatorEvent::Purged { upto });
            });
        }
    }

    /// Asks the workers of all lanes to drain whose items are purged. An order is lost if the connection of its worker was
    /// cut.
    async fn order_drains(&self) {
        for (&lane, &upto) in self.draining.iter().filter(|it| *it.1 <= self.purge.over) {
            self.order_drain(lane, upto).await;
        }
    }

    async fn order_drain(&self, lane: usize, upto: u64) {
        let Some(worker) = self.board.worker_of(lane) else { return };
        self.order(Command::Drain { worker: worker.id.clone(), upto }).await;
    }

    async fn ban(&mut self, lane: usize) {
        let Some(worker) = self.board.ban(lane) else { return };
        self.departures.banned.insert(worker.id.clone());
        self.order(Command::Leave { worker: worker.id.clone() }).await;
        self.lose(&worker.id, None);
    }

    async fn take_results(&self, message: jetstream::Message) {
        match wire::split::<ResultsHeader>(&message.payload) {
            Ok((header, mut outputs)) if header.epoch == self.key.epoch => {
                let ResultsHeader { worker, times, results, .. } = header;
                self.board.note_times(&worker, times);
                let host = self.board.host_of(&worker);
                for result in results {
                    let bytes = outputs.len().min(result.bytes as usize);
                    let (output, others) = outputs.split_at(bytes);
                    outputs = others;
                    let most = self.nats.largest_output;
                    let (publication, reply, object) = reply_of(result, output, host.clone(), most);
                    if let Some(object) = object {
                        self.board.update(publication, |it| it.is_answered = true);
                        // The task that reads the object acknowledges the message, which has no other result.
                        let (connection, board) = (self.connection.clone(), self.board.clone());
                        let run = self.key.run.clone();
                        let fetching = Fetching { connection, board, run, publication, message };
                        tokio::spawn(fetching.fetch(object, reply));
                        return;
                    }
                    if !self.board.tell(publication, News::Answer(publication, reply)) {
                        tracing::debug!("a result of {publication} is not wanted any more");
                    }
                }
            }
            // For an earlier coordinator; or for a later one, of which this one does not know yet.
            Ok(_) if message.info().is_ok_and(|info| info.delivered < MOST_RETURNS) => {
                _ = message.ack_with(AckKind::Nak(Some(self.nats.lease_time / 4))).await;
                return;
            }
            Ok(_) => tracing::debug!("results of an earlier coordinator"),
            Err(error) => tracing::warn!("results do not decode: {error}"),
        }
        if let Err(error) = message.ack().await {
            tracing::debug!("results were not acknowledged: {error}");
        }
    }

    async fn take_notice(&mut self, message: async_nats::Message) {
        let notice = match wire::decode::<Notice>(&message.payload) {
            Ok(notice) if notice.epoch == self.key.epoch => notice,
            Ok(_) => return,
            Err(error) => return tracing::warn!("a notice does not decode: {error}"),
        };
        let Notice { worker, news, .. } = notice;
        self.seen.insert(worker.clone(), Instant::now());
        match news {
            WorkerNews::Join(joining) => {
                if let Some(reply) = message.reply {
                    self.join(SeatedWorker::new(worker, *joining), reply).await;
                }
            }
            WorkerNews::Begun(publications) => {
                for publication in publications {
                    if !self.board.begin(publication, &worker) {
                        self.order(Command::Cancel(publication)).await;
                    }
                }
            }
            WorkerNews::Claim(publication) => {
                let is_seated = self.board.part_of(&worker).is_some();
                let answer = match self.board.is_begun(publication) {
                    Some(_) if !is_seated => ClaimReply::Unknown,
                    Some(false) => ClaimReply::Begin,
                    Some(true) => ClaimReply::Later,
                    None => ClaimReply::Never,
                };
                self.answer(message.reply, wire::encode(&answer)).await;
            }
            WorkerNews::Drained(upto, times) => {
                self.board.note_times(&worker, times);
                if let Some(lane) = self.board.drained(&worker, upto) {
                    self.draining.retain(|&it, wanted| it != lane || *wanted > upto);
                }
            }
            WorkerNews::Leaving { times, lost, last_result } => {
                self.board.note_times(&worker, times);
                let Some(part) = self.board.part_of(&worker) else { return };
                let (lost, since) = (lost.map(Into::into), Instant::now());
                self.departures.add(LeavingWorker { worker, part, lost, last_result, since });
                self.lose_departed();
            }
            // It may be of a run that has failed already.
            WorkerNews::GivenUp(publication, said) => {
                if self.board.has(publication) {
                    self.board.fail(Fatal::Refused("an item or a result", said.into()));
                }
            }
            WorkerNews::Alive(said) => {
                said.into_iter().for_each(|said| self.connection.note_refusal(said));
            }
            WorkerNews::Unable { host, reason } => {
                tracing::warn!(%host, "a worker cannot serve: {reason}");
                self.board.refuse(&worker, format!("{host}: {reason}"));
            }
        }
    }

    async fn answer(&self, reply: Option<async_nats::Subject>, answer: Vec<u8>) {
        let Some(reply) = reply else { return };
        if let Err(error) = self.connection.client.publish(reply, answer.into()).await {
            tracing::debug!("not answered: {error}");
        }
    }
}

/// Reads a result: its publication, the reply for the lane, and the object with its output, if one has that.
fn reply_of(
    result: ItemResult,
    output: &[u8],
    host: Option<Arc<str>>,
    most: u64,
) -> (u64, Box<Reply>, Option<Object>) {
    let ItemResult { publication, outcome, busy_nanos, deliveries, bytes, object } = result;
    let bytes = object.as_ref().map_or(bytes, |object| object.bytes);
    let outcome = match outcome {
        WorkerOutcome::Output if bytes > most => too_large(bytes, most),
        outcome => outcome,
    };
    let reply = Box::new(Reply {
        outcome,
        output: output.to_vec(),
        host,
        busy: Duration::from_nanos(busy_nanos),
        redeliveries: deliveries.saturating_sub(1),
    });
    (publication, reply, object.filter(|it| names::check(&it.name).is_ok()))
}

fn too_large(bytes: u64, most: u64) -> WorkerOutcome {
    let text = format!("the output has {bytes} bytes, and `Nats::largest_output` allows {most}");
    WorkerOutcome::error(text)
}

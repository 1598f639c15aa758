//! The coordinator of a pool: seats workers, hands their answers to the lanes, and judges a silent broker.
//!
//! It is a value without threads, clocks and a client of the broker. The `client` calls [`handle`](Coordinator::handle) for
//! each event, with the time and what is known of the broker, and performs the [`CoordinatorAction`]s. What an action
//! leads to is a later event. Lanes send events too, and learn results through the [`LaneBoard`].

mod departures;
mod search;
mod upkeep;

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::{Duration, Instant};

use self::departures::{Departures, LeavingWorker};
use self::search::{LossStep, LostItemSearch};
pub(super) use self::upkeep::period;
use super::board::{LaneBoard, SeatedWorker};
use super::delivery::{Acknowledgement, Delivered};
use super::event::{CoordinatorAction, CoordinatorEvent, Fetched, ToPublish};
use super::health::{BrokerHealth, Fatal};
use super::names;
use super::nats::Nats;
use super::publication::{Address, News, Reply};
use super::wire::{
    self, Command, ItemResult, JoinReply, Notice, Object, ResultsHeader, RunKey, WorkerNews,
    WorkerOutcome,
};

/// How often the broker delivers a result with another epoch before this coordinator discards it as one of an earlier
/// coordinator. Until then it may be for a later one: a coordinator that was replaced learns that within a quarter of
/// a lease, and then reads no more.
const MOST_RETURNS: u64 = 4;

/// The coordinator of one pool.
#[derive(Debug)]
pub(super) struct Coordinator {
    board: Arc<LaneBoard>,
    nats: Nats,
    key: RunKey,
    /// The revision of the run's key, as this coordinator has put it last. Another coordinator changes it.
    revision: u64,
    /// When each worker was last heard of.
    seen: HashMap<String, Instant>,
    /// The lanes that have left a run and wait until their workers have no publication of it, with the last of those.
    draining: HashMap<usize, u64>,
    departures: Departures,
    /// The workers whose consumers are being made, each with the number of its requests.
    joining: BTreeMap<String, usize>,
    purge: Purge,
    refusals: Refusals,
    search: LostItemSearch,
    clock: Clock,
    /// The broker at the time of the event in hand.
    broker: BrokerHealth,
    /// What that event leads to.
    actions: Vec<CoordinatorAction>,
    is_closing: bool,
}

/// The time of the event in hand, and the times at which each condition last held.
#[derive(Debug)]
struct Clock {
    /// The time of the event in hand.
    now: Instant,
    ticked: Instant,
    /// When a worker last had a seat, no run was in progress, or a run began.
    staffed: Instant,
    /// The run at the last tick, by the count of the board.
    run: Option<u64>,
    /// The last tick at which the broker was connected and had answered.
    connected: Instant,
    /// When the key is to be refreshed, and to be shown to workers if the broker does not keep it.
    refresh: Instant,
    /// When the broker last answered to the refreshed key.
    answered: Instant,
    /// When a result last came.
    result: Instant,
    /// When a result last came, or the broker last said that it has none.
    heard: Instant,
}

/// The removal of the items of a run that is over: of all lanes that leave it, the first asks for that. Each field is a
/// publication, up to which that was done.
#[derive(Debug, Default)]
struct Purge {
    asked: u64,
    /// The broker has answered, or has not in time: workers may be told to drain.
    over: u64,
}

/// What the broker did not store, as far as this process did not publish it itself.
#[derive(Debug, Default)]
struct Refusals {
    /// Why the broker did not keep the key when it was last refreshed.
    key: Option<Arc<str>>,
    /// What a worker last said of the broker's refusals, and when.
    told: Option<(Instant, String)>,
    /// The broker has not answered when it was last asked for the consumer of a worker.
    is_mute: bool,
}

impl Clock {
    /// Returns the clock of a coordinator that starts at `now`: every condition holds.
    fn new(now: Instant) -> Self {
        Clock {
            now,
            ticked: now,
            staffed: now,
            run: None,
            connected: now,
            refresh: now,
            answered: now,
            result: now,
            heard: now,
        }
    }

    /// Leaves out a pause of this process that ends now: it is no silence of a worker or the broker.
    fn skip(&mut self, pause: Duration) {
        let Clock { now, staffed, connected, answered, result, heard, .. } = self;
        for time in [staffed, connected, answered, result, heard] {
            *time = (*time + pause).min(*now);
        }
    }
}

impl Coordinator {
    /// A coordinator that has just put its key, with this revision.
    pub(super) fn new(
        board: Arc<LaneBoard>,
        nats: Nats,
        key: RunKey,
        revision: u64,
        now: Instant,
    ) -> Self {
        Coordinator {
            board,
            nats,
            key,
            revision,
            seen: HashMap::new(),
            draining: HashMap::new(),
            departures: Departures::default(),
            joining: BTreeMap::new(),
            purge: Purge::default(),
            refusals: Refusals::default(),
            search: LostItemSearch::default(),
            clock: Clock::new(now),
            broker: BrokerHealth::default(),
            actions: vec![],
            is_closing: false,
        }
    }

    /// Whether the pool is closed and no lane is in a run. A run may end while a lane of it still waits for the slower copy of
    /// an item.
    pub(super) fn is_over(&self) -> bool {
        self.is_closing && self.board.run().is_none()
    }

    pub(super) fn revision(&self) -> u64 {
        self.revision
    }

    /// Handles an event. Returns what is to be done, in this order.
    pub(super) fn handle(
        &mut self,
        event: CoordinatorEvent,
        now: Instant,
        broker: BrokerHealth,
    ) -> Vec<CoordinatorAction> {
        (self.clock.now, self.broker) = (now, broker);
        match event {
            CoordinatorEvent::Publish(item) => self.publish(item),
            CoordinatorEvent::Cancel(publication) => {
                let to = self.board.worker_with(publication).map(|it| it.id.clone());
                self.order(to, Command::Cancel(publication));
            }
            CoordinatorEvent::Delete(sequence) => self.delete(sequence),
            CoordinatorEvent::Discard(publication) => {
                self.act(CoordinatorAction::RemoveInput(publication));
            }
            CoordinatorEvent::Drain { lane, upto } => self.drain(lane, upto),
            CoordinatorEvent::Purged { upto } => {
                self.purge.over = self.purge.over.max(upto);
                self.order_drains();
            }
            CoordinatorEvent::Ban { lane } => self.ban(lane),
            CoordinatorEvent::Left => {}
            CoordinatorEvent::Close => self.is_closing = true,
            CoordinatorEvent::Confirmed { publication, sequence } => {
                if !self.board.confirm(publication, sequence, now) {
                    self.delete(Some(sequence));
                }
            }
            CoordinatorEvent::NotStored { said } => self.board.fail(self.cause_of_loss(said)),
            CoordinatorEvent::InputRefused(publication, source) => {
                self.board.tell(publication, News::Refused(publication, source));
            }
            CoordinatorEvent::Results(message) => {
                (self.clock.result, self.clock.heard) = (now, now);
                let place = message.place;
                self.take_results(message);
                self.departures.note_read(place);
                self.lose_departed();
            }
            CoordinatorEvent::NoResult => self.clock.heard = now,
            CoordinatorEvent::Fetched(fetched) => self.take_fetched(*fetched),
            CoordinatorEvent::Looked(missing) => self.take_missing(missing),
            CoordinatorEvent::Notice { payload, reply } => self.take_notice(&payload, reply),
            CoordinatorEvent::Card(worker, card) => self.take_card(worker, card),
            CoordinatorEvent::Seat(worker, reply) => self.seat(worker, reply),
            CoordinatorEvent::NoConsumer(worker, said) => self.refuse_seat(&worker, said),
            CoordinatorEvent::KeyPut(state, purpose) => self.take_key_state(state, purpose),
            CoordinatorEvent::TooFew => self.look_for_cause(),
            CoordinatorEvent::Restored => self.restore(),
            CoordinatorEvent::Tick => self.tick(),
        }
        std::mem::take(&mut self.actions)
    }

    fn act(&mut self, action: CoordinatorAction) {
        self.actions.push(action);
    }

    /// Tells a worker, or all of the run. An order may be lost.
    fn order(&mut self, to: Option<String>, command: Command) {
        self.act(CoordinatorAction::Order { to, command });
    }

    /// Publishes an item. One for a worker that has no seat any more goes back to its lane.
    fn publish(&mut self, item: ToPublish) {
        let to = match (item.address, self.board.worker_of(item.lane)) {
            (Address::Own, Some(worker)) => Some(worker.id.clone()),
            (Address::Own, None) => {
                self.board.tell(item.publication, News::Vanished(item.publication));
                return;
            }
            (Address::Any, _) => None,
        };
        self.act(CoordinatorAction::Publish { item, to });
    }

    /// Deletes the message at a place in the stream of items.
    fn delete(&mut self, sequence: Option<u64>) {
        self.actions.extend(sequence.map(CoordinatorAction::DeleteItem));
    }

    /// Has the items up to `upto` removed. Then asks the worker of a lane to give them up, and to say when no hook has one.
    fn drain(&mut self, lane: usize, upto: u64) {
        self.draining.insert(lane, upto);
        // The items of a later run must stay.
        if upto < self.board.last() {
            self.purge.over = self.purge.over.max(upto);
        }
        if upto <= self.purge.over {
            return self.order_drain(lane, upto);
        }
        // The order waits for it: no worker takes an item after it has said that it has none, and a purge that the broker
        // does later would take items of the next run.
        if upto > self.purge.asked {
            self.purge.asked = upto;
            self.act(CoordinatorAction::PurgeItems { upto });
        }
    }

    /// Asks the workers of all lanes to drain whose items are purged. An order is lost if the connection of its worker was
    /// cut.
    fn order_drains(&mut self) {
        let mut due: Vec<_> = self.draining.iter().map(|(&lane, &upto)| (lane, upto)).collect();
        due.retain(|it| it.1 <= self.purge.over);
        // The order of a hash map would make equal runs differ.
        due.sort_unstable();
        due.into_iter().for_each(|(lane, upto)| self.order_drain(lane, upto));
    }

    fn order_drain(&mut self, lane: usize, upto: u64) {
        let Some(worker) = self.board.worker_of(lane) else { return };
        self.order(Some(worker.id.clone()), Command::Drain(upto));
    }

    fn ban(&mut self, lane: usize) {
        let Some(worker) = self.board.ban(lane) else { return };
        self.departures.banned.insert(worker.id.clone());
        self.order(Some(worker.id.clone()), Command::Leave);
        self.lose(&worker.id, None);
    }
}

/// What workers send.
impl Coordinator {
    fn take_results(&mut self, message: Delivered) {
        let Delivered { reply: ack, payload, deliveries, .. } = message;
        match wire::split::<ResultsHeader>(&payload) {
            Ok((header, outputs)) if header.epoch == self.key.epoch => {
                self.search.results.end();
                if self.take_group(header, outputs, &ack) == GroupEnd::Fetching {
                    return;
                }
            }
            // For an earlier coordinator; or for a later one, of which this one does not know yet.
            Ok(_) if deliveries < MOST_RETURNS => {
                let kind = Acknowledgement::Return(self.nats.lease_time / 4);
                return self.act(CoordinatorAction::Acknowledge { reply: ack, kind });
            }
            Ok(_) => tracing::debug!("results of an earlier coordinator"),
            Err(error) => tracing::warn!("results do not decode: {error}"),
        }
        let kind = Acknowledgement::Done;
        self.act(CoordinatorAction::Acknowledge { reply: ack, kind });
    }

    /// Tells the lanes the results of one message.
    fn take_group(&mut self, header: ResultsHeader, mut outputs: &[u8], ack: &str) -> GroupEnd {
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
                // The message has no other result. It is acknowledged when the object was read.
                let ack = ack.to_owned();
                self.act(CoordinatorAction::Fetch { publication, object, reply, ack });
                return GroupEnd::Fetching;
            }
            self.answer_lane(publication, News::Answer(publication, reply));
        }
        GroupEnd::Told
    }

    /// Hands on a result whose large output was read, and removes the output. A result without an output is handed on as it
    /// is; what was written of its output is removed.
    fn take_fetched(&mut self, fetched: Fetched) {
        let Fetched { publication, object, mut reply, ack, output } = fetched;
        let news = match output {
            _ if !matches!(reply.outcome, WorkerOutcome::Output) => {
                News::Answer(publication, reply)
            }
            Ok(Some(output)) => {
                reply.output = output;
                News::Answer(publication, reply)
            }
            // The output is not there, or not wanted any more. If the item is wanted, it is worked on again.
            Ok(None) => News::Vanished(publication),
            Err(error) => {
                let text = format!("the output cannot be read from the object store: {error}");
                reply.outcome = WorkerOutcome::error(text);
                News::Answer(publication, reply)
            }
        };
        self.answer_lane(publication, news);
        let kind = Acknowledgement::Done;
        self.act(CoordinatorAction::Acknowledge { reply: ack, kind });
        self.act(CoordinatorAction::RemoveOutput(object.name));
    }

    fn answer_lane(&self, publication: u64, news: News) {
        if !self.board.tell(publication, news) {
            tracing::debug!("a result of {publication} is not wanted any more");
        }
    }

    fn take_notice(&mut self, payload: &[u8], reply: Option<String>) {
        let notice = match wire::decode::<Notice>(payload) {
            Ok(notice) if notice.epoch == self.key.epoch => notice,
            Ok(_) => return,
            Err(error) => return tracing::warn!("a notice does not decode: {error}"),
        };
        let Notice { worker, news, .. } = notice;
        self.seen.insert(worker.clone(), self.clock.now);
        match news {
            WorkerNews::Join(joining) => {
                if let Some(reply) = reply {
                    self.join(SeatedWorker::new(worker, *joining), reply);
                }
            }
            WorkerNews::Begun(publications) => {
                self.search.items.end();
                for publication in publications {
                    if !self.board.begin(publication, &worker) {
                        self.order(Some(worker.clone()), Command::Cancel(publication));
                    }
                }
            }
            WorkerNews::Claim(publication) => self.judge(publication, &worker, reply),
            WorkerNews::Drained(upto, times) => {
                self.board.note_times(&worker, times);
                if let Some(lane) = self.board.drained(&worker, upto) {
                    self.draining.retain(|&it, wanted| it != lane || *wanted > upto);
                }
            }
            WorkerNews::Leaving { times, lost, last_result } => {
                self.board.note_times(&worker, times);
                let Some(part) = self.board.part_of(&worker) else { return };
                let (lost, since) = (lost.map(Into::into), self.clock.now);
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
                let told = said.map(|said| (self.clock.now, said));
                self.refusals.told = told.or(self.refusals.told.take());
            }
            WorkerNews::Unable { host, reason } => {
                tracing::warn!(%host, "a worker cannot serve: {reason}");
                self.board.refuse(&worker, format!("{host}: {reason}"));
            }
        }
    }

    fn answer_join(&mut self, reply: String, answer: &JoinReply) {
        self.act(CoordinatorAction::Answer { reply, payload: wire::encode(answer) });
    }

    /// Has the items of publications published again that the broker has lost; `None` if it has not answered. If it has lost
    /// some, others are looked for at once.
    fn take_missing(&mut self, missing: Option<Vec<u64>>) {
        let Some(missing) = missing else { return self.search.lose() };
        self.search.end(self.clock.now);
        let has_lost = !missing.is_empty();
        let is_begun = |it: &u64| self.board.is_begun(*it) == Some(true);
        let (last, times) = (self.board.last(), (self.clock.now, self.nats.wait_for));
        for (stream, step) in self.search.note_losses(&missing, is_begun, last, times) {
            match step {
                LossStep::Publish => {}
                LossStep::Empty => self.act(CoordinatorAction::Empty(stream)),
                LossStep::End => self.board.fail(Fatal::Refused(
                    "to keep what was sent to it",
                    format!("it has confirmed {stream}, and does not have them").into(),
                )),
            }
        }
        for publication in missing {
            if self.board.tell(publication, News::Vanished(publication)) {
                tracing::warn!(
                    "publication {publication} has vanished; its item is published again"
                );
            }
        }
        if has_lost {
            self.look_for_lost();
        }
    }
}

/// What became of a message with results.
#[derive(Debug, PartialEq, Eq)]
enum GroupEnd {
    /// The lanes have the results.
    Told,
    /// Its one output is being read.
    Fetching,
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

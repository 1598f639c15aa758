//! The process of a coordinator in virtual time: it performs the actions of a pool's coordinator at the modelled broker, as
//! `client` does at a real one.

mod items;
mod outputs;
mod reading;
mod run_key;

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use self::items::InputWriting;
use self::outputs::OutputReading;
use self::reading::Silences;
use super::client::{AGAIN, ANSWER, ClientTimer, Moment, SimulatedClient};
use super::jetstream::{
    Acknowledgement as Ack, Answer, ConsumerConfig, Content, Message, Operation, Place, ReplyTo,
    Request,
};
use super::pool::SimulatedPool;
use super::publishing::Publishing;
use super::setting::Names;
use crate::board::SeatedWorker;
use crate::coordinator::period;
use crate::delivery::{Acknowledgement, Delivered};
use crate::event::{CoordinatorAction, CoordinatorEvent, KeyPurpose, KeyState};
use crate::names::input_name;
use crate::reconciler::{consumer_of_subject, is_of, is_stuck};
use crate::wire;
use crate::wire::{RunKey, WorkerOrder};

/// The subscription of notices, of results, and of cards.
const NOTICES: u64 = 1;
const RESULTS: u64 = 2;
const CARDS: u64 = 3;
/// How often the broker says that it has no result, as the real client asks for it.
const HEARTBEAT: Duration = Duration::from_secs(2);

/// What the broker says of a message and of a consumer that is not there.
const NO_MESSAGE: u32 = 10037;
const NO_CONSUMER: u32 = 10014;

/// Makes the pool of a coordinator that has put its key, with the revision of that.
pub(super) type MakePool<'a> = Box<dyn FnOnce(u64, Instant) -> SimulatedPool<'a> + 'a>;

/// The process of a coordinator.
pub(super) struct CoordinatorHost<'a> {
    pub(super) client: SimulatedClient<CoordinatorWait, CoordinatorTimer>,
    pub(super) names: Names,
    pub(super) key: RunKey,
    /// The epoch of the coordinator that had the key before.
    before: Option<u64>,
    /// The largest number of bytes of a value in a message.
    most_inline: usize,
    /// Makes the pool once the key is there.
    make: Option<MakePool<'a>>,
    pub(super) pool: Option<SimulatedPool<'a>>,
    /// Where the messages are that were delivered, by their subjects for acknowledgements.
    places: BTreeMap<String, Place>,
    /// The workers that wait for replies, by their subjects.
    replies: BTreeMap<String, ReplyTo>,
    consumers: BTreeSet<String>,
    /// The subjects for acknowledgements of the results whose outputs are being read.
    fetching: BTreeSet<String>,
    reading: Reading,
    furnishes_again: bool,
    /// Another coordinator has the run.
    is_replaced: bool,
    is_ending: bool,
    pub(super) is_done: bool,
    pub(super) silences: Silences,
}

/// How the results are read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    is_stopped: bool,
    /// When the broker was last heard of.
    heard: Duration,
    /// The results that the last request may still bring.
    left: u32,
}

/// What waits for an answer.
#[derive(Debug)]
pub(super) enum CoordinatorWait {
    Cards,
    KeyRead,
    KeyTaken,
    Item {
        publication: u64,
        publishing: Publishing,
    },
    /// A chunk of a large input, before the item.
    InputChunk(Box<InputWriting>),
    /// A chunk of a large output.
    OutputChunk(OutputReading),
    Purge {
        upto: u64,
    },
    Consumer(SeatedWorker, String),
    KeyUpdate(KeyPurpose),
    KeyLook(KeyPurpose),
    /// The key is put into a bucket that has none, or a damaged one.
    KeyPutAgain(KeyPurpose),
    LastUpdate,
    LastLook,
    LookFor {
        left: Vec<(u64, u64)>,
        looked: u64,
        missing: Vec<u64>,
    },
    LookAtConsumer {
        left: Vec<(u64, u64)>,
        looked: (u64, u64),
        missing: Vec<u64>,
    },
    AllRead(Vec<u64>),
    /// A stream is made.
    Stream,
    Streams,
    Furnished {
        config: ConsumerConfig,
        last: u64,
    },
}

#[derive(Debug)]
pub(super) enum CoordinatorTimer {
    Furnish,
    WatchCards,
    Tick,
    /// A lane wants to look again.
    Lane,
    Publish {
        publication: u64,
        publishing: Publishing,
    },
    WriteChunk(Box<InputWriting>),
    ReadChunk(OutputReading),
    /// The broker is told that a result is being read.
    Progress(String),
    TakeKey,
    ReadResults,
    /// Whether the broker is still heard of.
    Heartbeat,
}

impl<'a> CoordinatorHost<'a> {
    pub(super) fn new(
        connection: usize,
        key: RunKey,
        most_inline: usize,
        make: MakePool<'a>,
    ) -> Self {
        CoordinatorHost {
            client: SimulatedClient::new(connection),
            names: Names::new(),
            key,
            before: None,
            most_inline,
            make: Some(make),
            pool: None,
            places: BTreeMap::new(),
            replies: BTreeMap::new(),
            consumers: BTreeSet::new(),
            fetching: BTreeSet::new(),
            furnishes_again: false,
            reading: Reading { is_stopped: false, heard: Duration::ZERO, left: 0 },
            is_replaced: false,
            is_ending: false,
            is_done: false,
            silences: Silences::default(),
        }
    }

    /// Makes what there has to be, and takes the run's key.
    pub(super) fn start(&mut self, at: &mut Moment<'_>) {
        for config in self.names.streams() {
            self.client.tell(at, Request::CreateStream(config));
        }
        let (items, results) = (self.names.items.clone(), self.names.results.clone());
        let (of_run, of_results) =
            (self.names.of_run(&self.key.run), self.names.results_of(&self.key.run));
        self.client.tell(at, Request::Purge { stream: items, subject: of_run });
        self.client.tell(at, Request::Purge { stream: results, subject: of_results });
        self.purge_objects(self.names.objects_of(&self.key.run), at);
        let any = self.consumer_for_any();
        self.make_consumer(at, any);
        let subject = self.names.notices(&self.key.run);
        self.client.call(at, Operation::Subscribe { subscription: NOTICES, subject });
        self.client.call(at, Operation::OpenInbox { subscription: RESULTS });
        self.client.call(at, Operation::OpenInbox { subscription: CARDS });
        self.open_results(at);
        self.watch_cards(at);
        self.read_key(at);
        self.client.later(at.now + period(self.key.lease()), CoordinatorTimer::Tick);
        self.client.later(at.now + HEARTBEAT, CoordinatorTimer::Heartbeat);
    }

    /// Handles what arrives from the broker.
    pub(super) fn arrive(&mut self, content: Content, at: &mut Moment<'_>) {
        match content {
            Content::Disconnected => self.client.disconnect(),
            Content::Denied(said) => self.client.note_denied(said),
            Content::Answer { token, answer } => {
                if let Some(wait) = self.client.take(token) {
                    self.answered(wait, Some(answer), at);
                }
            }
            Content::Status { subscription: RESULTS, status } => self.take_status(status, at),
            Content::Status { subscription: CARDS, .. } => {
                self.client.later(at.now + AGAIN, CoordinatorTimer::WatchCards);
            }
            Content::Status { .. } => {}
            Content::Message { subscription, message } => {
                let payload = message.message.payload;
                let event = match (subscription, message.place) {
                    (NOTICES, _) => {
                        let reply = message.reply.map(|to| {
                            let name = format!("{}.{}", to.connection, to.token);
                            self.replies.insert(name.clone(), to);
                            name
                        });
                        CoordinatorEvent::Notice { payload, reply }
                    }
                    (RESULTS, Some(place)) => {
                        self.reading.heard = at.now;
                        self.reading.left = self.reading.left.saturating_sub(1);
                        if self.reading.left == 0 {
                            self.pull_results(at);
                        }
                        let reply = format!("{}.{}", place.consumer, place.consumer_sequence);
                        let (sequence, deliveries) = (place.sequence, place.deliveries);
                        self.places.insert(reply.clone(), place);
                        let delivered = Delivered { reply, payload, place: sequence, deliveries };
                        CoordinatorEvent::Results(delivered)
                    }
                    (CARDS, _) if message.message.headers.marker.is_none() => {
                        let worker = self.names.key_in(&message.message.subject);
                        let card = wire::decode(&payload).map_err(|error| error.to_string());
                        CoordinatorEvent::Card(worker, card)
                    }
                    _ => return,
                };
                self.handle(Some(event), at);
            }
        }
    }

    /// Does what is due.
    pub(super) fn fire(&mut self, at: &mut Moment<'_>) {
        while let Some(timer) = self.client.due(at.now) {
            match timer {
                ClientTimer::Unanswered(token) => {
                    if let Some(wait) = self.client.take(token) {
                        self.answered(wait, None, at);
                    }
                }
                ClientTimer::Other(CoordinatorTimer::Tick) => {
                    self.client.later(at.now + period(self.key.lease()), CoordinatorTimer::Tick);
                    self.handle(Some(CoordinatorEvent::Tick), at);
                }
                ClientTimer::Other(CoordinatorTimer::Furnish) => {
                    self.furnishes_again = false;
                    self.perform(CoordinatorAction::Furnish, at);
                }
                ClientTimer::Other(CoordinatorTimer::WatchCards) => self.watch_cards(at),
                ClientTimer::Other(CoordinatorTimer::Lane) => self.handle(None, at),
                ClientTimer::Other(CoordinatorTimer::Publish { publication, publishing }) => {
                    self.publish(publication, publishing, at);
                }
                ClientTimer::Other(CoordinatorTimer::WriteChunk(input)) => {
                    self.write_chunk(*input, at);
                }
                ClientTimer::Other(CoordinatorTimer::ReadChunk(output)) => {
                    self.read_chunk(output, at);
                }
                ClientTimer::Other(CoordinatorTimer::Progress(ack)) => self.tell_progress(ack, at),
                ClientTimer::Other(CoordinatorTimer::TakeKey) => self.read_key(at),
                ClientTimer::Other(CoordinatorTimer::ReadResults) => self.open_results(at),
                ClientTimer::Other(CoordinatorTimer::Heartbeat) => {
                    self.client.later(at.now + HEARTBEAT, CoordinatorTimer::Heartbeat);
                    if self.client.health.is_connected
                        && at.now > self.reading.heard + HEARTBEAT * 2
                    {
                        // As the real client, whose reading ends with an error then.
                        self.reading.heard = at.now;
                        self.client.later(at.now + AGAIN, CoordinatorTimer::ReadResults);
                    }
                }
            }
        }
    }

    /// Cancels the run in progress.
    pub(super) fn cancel(&mut self, at: &mut Moment<'_>) {
        self.pool.iter().for_each(SimulatedPool::cancel);
        self.handle(None, at);
    }

    /// Too few workers have come for the pool to be built.
    pub(super) fn miss_workers(&mut self, at: &mut Moment<'_>) {
        self.handle(Some(CoordinatorEvent::TooFew), at);
    }

    /// The connection was restored.
    pub(super) fn restored(&mut self, at: &mut Moment<'_>) {
        self.client.connect();
        let consumer = self.names.consumer_of_results(&self.key.run);
        let stream = self.names.results.clone();
        self.client.tell(at, Request::DeleteConsumer { stream, consumer });
        self.open_results(at);
        self.watch_cards(at);
        let is_published =
            |it: &_| matches!(it, CoordinatorWait::Item { .. } | CoordinatorWait::InputChunk(_));
        // What the last connection was sent may be lost.
        for wait in self.client.take_all(is_published) {
            self.answered(wait, None, at);
        }
        self.handle(Some(CoordinatorEvent::Restored), at);
    }

    fn handle(&mut self, event: Option<CoordinatorEvent>, at: &mut Moment<'_>) {
        let Some(pool) = &mut self.pool else { return };
        if self.is_ending {
            return;
        }
        event.iter().for_each(|event| self.silences.note(event, at.now));
        let (actions, until) = pool.handle(event, at.instant, &self.client.health);
        if let Some(until) = until {
            let until = SimulatedPool::time_of(until).max(at.now);
            self.client.later(until, CoordinatorTimer::Lane);
        }
        actions.into_iter().for_each(|action| self.perform(action, at));
        if self.pool.as_ref().is_some_and(SimulatedPool::is_over) {
            self.begin_to_end(at);
        }
    }

    fn perform(&mut self, action: CoordinatorAction, at: &mut Moment<'_>) {
        let run = self.key.run.clone();
        match action {
            CoordinatorAction::Order { to, command } => {
                let order = wire::encode(&WorkerOrder { epoch: self.key.epoch, command });
                let message = Message::new(&self.names.orders(to.as_ref().unwrap_or(&run)), order);
                self.client.call(at, Operation::Publish(message));
            }
            CoordinatorAction::Answer { reply, payload } => {
                if let Some(to) = self.replies.remove(&reply) {
                    self.client.call(at, Operation::Reply { to, payload: payload.into() });
                }
            }
            CoordinatorAction::Acknowledge { reply, kind } => {
                let Some(place) = self.places.remove(&reply) else { return };
                let kind = match kind {
                    Acknowledgement::Return(delay) => Ack::Again(Some(delay)),
                    _ => Ack::Done,
                };
                self.client.call(at, Operation::Acknowledge { place, kind });
            }
            CoordinatorAction::Publish { item, to } => self.publish_item(item, to, at),
            CoordinatorAction::DeleteItem(sequence) => {
                let stream = self.names.items.clone();
                self.client.tell(at, Request::DeleteMessage { stream, sequence });
            }
            CoordinatorAction::Empty(emptied) => {
                for (stream, subject) in self.names.emptied(emptied) {
                    self.client.tell(at, Request::Purge { stream, subject });
                }
            }
            CoordinatorAction::PurgeItems { upto } => {
                let request = self.purge_of_epoch();
                self.client.ask(at, request, CoordinatorWait::Purge { upto }, ANSWER);
            }
            CoordinatorAction::MakeConsumer(worker, reply) => {
                let any = self.consumer_for_any();
                self.make_consumer(at, any);
                self.consumers.insert(worker.id.clone());
                let request = self.create(self.consumer_for(&worker.id));
                let wait = CoordinatorWait::Consumer(worker, reply);
                self.client.ask(at, request, wait, ANSWER);
            }
            CoordinatorAction::RemoveConsumer(worker) => {
                self.consumers.remove(&worker);
                let stream = self.names.items.clone();
                let subject = self.names.to(&run, self.key.epoch, &worker);
                self.client.tell(at, Request::Purge { stream: stream.clone(), subject });
                let consumer = self.names.consumer_of(&run, self.key.epoch, &worker);
                self.client.tell(at, Request::DeleteConsumer { stream, consumer });
            }
            CoordinatorAction::PutKey { revision, purpose } => {
                let request = Request::Send(self.key_message().after(revision));
                self.client.ask(at, request, CoordinatorWait::KeyUpdate(purpose), ANSWER);
            }
            CoordinatorAction::LookFor(left) => self.look_for(left, vec![], at),
            CoordinatorAction::Furnish => {
                self.client.health.is_incomplete = false;
                for config in self.names.streams() {
                    let request = Request::CreateStream(config);
                    self.client.ask(at, request, CoordinatorWait::Stream, ANSWER);
                }
                let request = Request::StreamInfo { stream: self.names.items.clone() };
                self.client.ask(at, request, CoordinatorWait::Streams, ANSWER);
            }
            CoordinatorAction::StopReading => self.reading.is_stopped = true,
            CoordinatorAction::RemoveInput(publication) => {
                let name = input_name(self.key.epoch, publication);
                let subject = format!("{}.*", self.names.input_object(&run, &name));
                self.purge_objects(subject.into(), at);
            }
            CoordinatorAction::RemoveOutput(name) => {
                let subject = format!("{}.*", self.names.output_object(&run, &name));
                self.purge_objects(subject.into(), at);
            }
            CoordinatorAction::Fetch { publication, object, reply, ack } => {
                self.fetch(publication, object, reply, ack, at);
            }
        }
    }

    /// Goes on with what has waited. `None` if there is no answer.
    fn answered(&mut self, wait: CoordinatorWait, answer: Option<Answer>, at: &mut Moment<'_>) {
        let event = match (wait, answer) {
            (CoordinatorWait::KeyRead, Some(Answer::Message { message, sequence, .. })) => {
                let earlier = wire::decode::<RunKey>(&message.payload).ok();
                self.before = earlier.map(|it| it.epoch);
                return self.take_key(sequence, at);
            }
            (CoordinatorWait::KeyRead, Some(Answer::NotFound)) => return self.take_key(0, at),
            (CoordinatorWait::KeyTaken, Some(Answer::Stored { sequence, .. })) => {
                let make = self.make.take().expect("the key is taken once");
                self.pool = Some(make(sequence, at.instant));
                return self.handle(None, at);
            }
            (CoordinatorWait::KeyRead | CoordinatorWait::KeyTaken, _) => {
                // The broker may have refused to make the bucket.
                self.make_buckets(at);
                return self.client.later(at.now + AGAIN, CoordinatorTimer::TakeKey);
            }
            (CoordinatorWait::Item { publication, publishing }, answer) => {
                match self.judge(publication, publishing, answer, at) {
                    Some(event) => event,
                    None => return,
                }
            }
            (CoordinatorWait::InputChunk(input), answer) => {
                match self.take_written(*input, answer, at) {
                    Some(event) => event,
                    None => return,
                }
            }
            (CoordinatorWait::OutputChunk(output), answer) => {
                match self.take_read(output, answer, at) {
                    Some(event) => event,
                    None => return,
                }
            }
            (CoordinatorWait::Cards, Some(Answer::Consumer(_))) => return,
            (CoordinatorWait::Cards, _) => {
                return self.client.later(at.now + AGAIN, CoordinatorTimer::WatchCards);
            }
            (CoordinatorWait::Purge { upto }, _) => CoordinatorEvent::Purged { upto },
            (CoordinatorWait::Consumer(worker, reply), Some(Answer::Consumer(_))) => {
                CoordinatorEvent::Seat(worker, reply)
            }
            (CoordinatorWait::Consumer(worker, _), answer) => {
                self.client.health.is_incomplete = true;
                CoordinatorEvent::NoConsumer(worker, answer.map(|it| format!("{it:?}")))
            }
            (CoordinatorWait::KeyUpdate(purpose), answer) => match answer {
                Some(Answer::Stored { sequence: revision, .. }) => {
                    CoordinatorEvent::KeyPut(KeyState::Own { revision }, purpose)
                }
                Some(_) => {
                    let request = self.get_key();
                    return self.client.ask(at, request, CoordinatorWait::KeyLook(purpose), ANSWER);
                }
                None => CoordinatorEvent::KeyPut(KeyState::Unanswered, purpose),
            },
            (CoordinatorWait::KeyPutAgain(purpose), answer) => {
                let state = match answer {
                    Some(Answer::Stored { sequence: revision, .. }) => KeyState::Own { revision },
                    Some(other) => KeyState::Refused(format!("{other:?}").into()),
                    None => KeyState::Unanswered,
                };
                CoordinatorEvent::KeyPut(state, purpose)
            }
            (CoordinatorWait::LastUpdate, Some(Answer::Stored { sequence: revision, .. })) => {
                return self.end(&KeyState::Own { revision }, at);
            }
            (CoordinatorWait::LastUpdate, Some(_)) => {
                let request = self.get_key();
                return self.client.ask(at, request, CoordinatorWait::LastLook, ANSWER);
            }
            (CoordinatorWait::LastUpdate, None) => return self.end(&KeyState::Unanswered, at),
            (CoordinatorWait::LastLook, answer) => {
                let owner = self.owner(answer).unwrap_or(KeyState::Unanswered);
                return self.end(&owner, at);
            }
            // The broker has lost the bucket. The next refresh puts the key into it.
            (CoordinatorWait::KeyLook(purpose), Some(Answer::NoResponders)) => {
                self.make_buckets(at);
                CoordinatorEvent::KeyPut(KeyState::Unanswered, purpose)
            }
            (CoordinatorWait::KeyLook(purpose), answer) => match self.owner(answer) {
                Ok(state) => CoordinatorEvent::KeyPut(state, purpose),
                Err(last) => {
                    let request = Request::Send(self.key_message().after(last));
                    let wait = CoordinatorWait::KeyPutAgain(purpose);
                    return self.client.ask(at, request, wait, ANSWER);
                }
            },
            (CoordinatorWait::LookFor { left, looked, mut missing }, answer) => match answer {
                Some(Answer::Message { message, sequence, .. })
                    if is_of(looked, &message.payload) =>
                {
                    let of_run = (&*self.key.run, self.key.epoch);
                    let consumer = consumer_of_subject(&message.subject, of_run).into();
                    let request =
                        Request::ConsumerInfo { stream: self.names.items.clone(), consumer };
                    let looked = (looked, sequence);
                    let wait = CoordinatorWait::LookAtConsumer { left, looked, missing };
                    return self.client.ask(at, request, wait, ANSWER);
                }
                Some(Answer::Refused(refusal)) if refusal.code != NO_MESSAGE => {
                    self.client.health.is_incomplete = true;
                    return self.look_for(left, missing, at);
                }
                Some(_) => {
                    missing.push(looked);
                    return self.look_for(left, missing, at);
                }
                None => CoordinatorEvent::Looked(None),
            },
            (CoordinatorWait::LookAtConsumer { left, looked, mut missing }, Some(answer)) => {
                let is_gone = match answer {
                    Answer::Consumer(state) => is_stuck(state.num_pending, state.num_ack_pending),
                    Answer::Refused(refusal) => {
                        self.client.health.is_incomplete = true;
                        refusal.code == NO_CONSUMER
                    }
                    _ => false,
                };
                if is_gone {
                    self.client.health.is_incomplete = true;
                    let (stream, sequence) = (self.names.items.clone(), looked.1);
                    self.client.tell(at, Request::DeleteMessage { stream, sequence });
                    missing.push(looked.0);
                }
                return self.look_for(left, missing, at);
            }
            (CoordinatorWait::AllRead(missing), Some(Answer::Consumer(state))) => {
                let are_read = state.num_pending == 0 && state.num_ack_pending == 0;
                CoordinatorEvent::Looked(Some(if are_read { missing } else { vec![] }))
            }
            (CoordinatorWait::AllRead(_), Some(_)) => {
                self.client.health.is_incomplete = true;
                CoordinatorEvent::Looked(Some(vec![]))
            }
            (CoordinatorWait::LookAtConsumer { .. } | CoordinatorWait::AllRead(_), None) => {
                CoordinatorEvent::Looked(None)
            }
            (CoordinatorWait::Stream, Some(Answer::Stream(_))) => return,
            (CoordinatorWait::Streams, Some(Answer::Stream(state))) => {
                let last = state.last_sequence;
                let configs = self.consumers.iter().map(|worker| self.consumer_for(worker));
                for config in
                    std::iter::once(self.consumer_for_any()).chain(configs).collect::<Vec<_>>()
                {
                    let request = self.create(config.clone());
                    self.client.ask(
                        at,
                        request,
                        CoordinatorWait::Furnished { config, last },
                        ANSWER,
                    );
                }
                return;
            }
            (CoordinatorWait::Furnished { config, last }, Some(Answer::Consumer(state))) => {
                if state.delivered > last {
                    let (stream, consumer) = (self.names.items.clone(), config.name.clone());
                    self.client.tell(at, Request::DeleteConsumer { stream, consumer });
                    self.make_consumer(at, config);
                }
                return;
            }
            // A broker that has just started may not be ready, so it is tried again.
            (
                CoordinatorWait::Stream
                | CoordinatorWait::Streams
                | CoordinatorWait::Furnished { .. },
                _,
            ) => {
                self.client.health.is_incomplete = true;
                if !std::mem::replace(&mut self.furnishes_again, true) {
                    self.client.later(at.now + AGAIN, CoordinatorTimer::Furnish);
                }
                return;
            }
        };
        self.handle(Some(event), at);
    }
}

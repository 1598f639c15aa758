//! The process of a worker in virtual time: the worker and its parts are the real values, the hooks are simulated.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use super::branches::{name_of_worker_event, note_part_actions, note_part_event, note_worker};
use super::client::{AGAIN, ANSWER, ClientTimer, Moment, SimulatedClient};
use super::hooks::{HookEnd, Hooks};
use super::jetstream::{
    Acknowledgement as Ack, Answer, Content, Marker, Message, Operation, Place, Pull, PullStatus,
    Request,
};
use super::objects::{ObjectReading, ObjectWriting, ReadStep};
use super::pool::RECIPE;
use super::publishing::{PublishStep, Publishing};
use super::setting::Names;
use crate::delivery::{Acknowledgement, Delivered};
use crate::health::StoreLimits;
use crate::hook_times::HookTimes;
use crate::part::{
    LoadedService, PULL, PartAction, PartEvent, PartSettings, RequestEnd, WorkerPart,
};
use crate::publication::Address;
use crate::wire;
use crate::wire::{Card, Notice, RunKey, WorkerNews, WorkerOrder};
use crate::worker::{Worker, WorkerAction, WorkerEvent};

/// The subscription of keys.
const KEYS: u64 = 0;
/// The subscriptions of a part begin at this multiple of its number: orders to all workers, then its requests for items.
const PART: u64 = 1 << 32;
/// The last subscription of a part: orders to its worker.
const OWN_ORDERS: u64 = PART - 1;

/// Why a worker without producers cannot serve.
const NO_DEVICE: &str = "it has no device";

/// The process of a worker.
pub(super) struct WorkerHost {
    pub(super) client: SimulatedClient<WorkerWait, WorkerTimer>,
    pub(super) id: String,
    names: Names,
    worker: Worker,
    parts: BTreeMap<u64, PartHost>,
    capacity: usize,
    /// The largest number of bytes of a value in a message.
    most_inline: usize,
    pub(super) hooks: Hooks,
    places: BTreeMap<String, Place>,
    /// When the worker was last told to be called.
    tick: Duration,
    /// The process has ended by itself.
    pub(super) is_over: bool,
}

struct PartHost {
    part: WorkerPart,
    key: RunKey,
    /// Events have come since the last flush.
    is_dirty: bool,
    wakes: Duration,
}

/// What waits for an answer. A number is that of a part.
#[derive(Debug)]
pub(super) enum WorkerWait {
    Keys,
    Card,
    Seat(u64),
    Claim(u64, u64),
    Results(u64, ResultsMessage),
    Chunk(u64, OutputWriting),
    Input {
        part: u64,
        publication: u64,
        reading: ObjectReading,
    },
    /// The process ends.
    LastFlush,
}

/// A group of results on its way.
#[derive(Debug)]
pub(super) struct ResultsMessage {
    group: u64,
    publishing: Publishing,
    /// The group is wanted while its last publication is above the floor.
    last: u64,
}

/// A large output on its way to the object store.
#[derive(Debug)]
pub(super) struct OutputWriting {
    publication: u64,
    writing: ObjectWriting,
    /// The chunk that is published.
    publishing: Publishing,
}

#[derive(Debug)]
pub(super) enum WorkerTimer {
    WatchKeys,
    Tick,
    Flush(u64),
    Hook(HookEnd),
    Publish(u64, ResultsMessage),
    WriteChunk(u64, OutputWriting),
    ReadChunk { part: u64, publication: u64, reading: ObjectReading },
}

impl WorkerHost {
    pub(super) fn new(
        connection: usize,
        id: &str,
        (capacity, most_inline): (usize, usize),
        hooks: Hooks,
        now: std::time::Instant,
    ) -> Self {
        let card = Card {
            worker: id.to_owned(),
            host: id.to_owned(),
            pid: 1,
            devices: "cpu".to_owned(),
            recipes: vec![(RECIPE.items().name().to_owned(), RECIPE.items().terms())],
            started: 0,
            runs: vec![],
            parts: 0,
        };
        WorkerHost {
            client: SimulatedClient::new(connection),
            id: id.to_owned(),
            names: Names::new(),
            worker: Worker::new(card, now),
            parts: BTreeMap::new(),
            capacity,
            most_inline,
            hooks,
            places: BTreeMap::new(),
            tick: Duration::MAX,
            is_over: false,
        }
    }

    pub(super) fn start(&mut self, at: &mut Moment<'_>) {
        for config in self.names.buckets() {
            self.client.tell(at, Request::CreateStream(config));
        }
        self.client.call(at, Operation::OpenInbox { subscription: KEYS });
        self.watch_keys(at);
        self.handle(WorkerEvent::Tick, at);
    }

    pub(super) fn terminate(&mut self, at: &mut Moment<'_>) {
        self.handle(WorkerEvent::Terminate, at);
    }

    pub(super) fn arrive(&mut self, content: Content, at: &mut Moment<'_>) {
        match content {
            Content::Disconnected => self.client.disconnect(),
            Content::Denied(said) => self.client.note_denied(said),
            Content::Answer { token, answer } => {
                if let Some(wait) = self.client.take(token) {
                    self.answered(wait, Some(answer), at);
                }
            }
            Content::Status { subscription: KEYS, .. } => {
                self.client.later(at.now + AGAIN, WorkerTimer::WatchKeys);
            }
            Content::Status { subscription, status } => {
                let end = match status {
                    PullStatus::Expired | PullStatus::RequestsPending => RequestEnd::Ended,
                    _ => RequestEnd::Refused,
                };
                let (part, request) = (subscription / PART, subscription % PART);
                self.note(part, PartEvent::RequestOver { request, end }, at);
            }
            Content::Message { subscription: KEYS, message } => {
                let run = self.names.key_in(&message.message.subject);
                let event = match message.message.headers.marker {
                    Some(_) => WorkerEvent::Gone(run),
                    None => {
                        let Ok(key) = wire::decode(&message.message.payload) else { return };
                        WorkerEvent::Key(Box::new(key))
                    }
                };
                self.handle(event, at);
            }
            Content::Message { subscription, message } => {
                let (number, request) = (subscription / PART, subscription % PART);
                let payload = message.message.payload;
                if let Some(place) = message.place {
                    let reply = format!("{}.{}", place.consumer, place.consumer_sequence);
                    let (sequence, deliveries) = (place.sequence, place.deliveries);
                    self.places.insert(reply.clone(), place);
                    let item = Delivered { reply, payload, place: sequence, deliveries };
                    return self.note(number, PartEvent::Delivered { request, item }, at);
                }
                let order = wire::decode::<WorkerOrder>(&payload).expect("it is an order");
                let epoch = self.parts.get(&number).map(|part| part.key.epoch);
                if epoch == Some(order.epoch) {
                    self.note(number, PartEvent::Order(order.command), at);
                    self.handle(WorkerEvent::Ordered(number), at);
                }
            }
        }
    }

    pub(super) fn fire(&mut self, at: &mut Moment<'_>) {
        while let Some(timer) = self.client.due(at.now) {
            match timer {
                ClientTimer::Unanswered(token) => {
                    if let Some(wait) = self.client.take(token) {
                        self.answered(wait, None, at);
                    }
                }
                ClientTimer::Other(WorkerTimer::WatchKeys) => self.watch_keys(at),
                ClientTimer::Other(WorkerTimer::Tick) => self.handle(WorkerEvent::Tick, at),
                ClientTimer::Other(WorkerTimer::Flush(part)) => self.flush(part, at),
                ClientTimer::Other(WorkerTimer::Hook(end)) => {
                    for (part, event) in self.hooks.end(&end, at.now) {
                        self.note(part, event, at);
                    }
                }
                ClientTimer::Other(WorkerTimer::Publish(part, message)) => {
                    self.publish(part, message, at);
                }
                ClientTimer::Other(WorkerTimer::WriteChunk(part, output)) => {
                    self.write_chunk(part, output, at);
                }
                ClientTimer::Other(WorkerTimer::ReadChunk { part, publication, reading }) => {
                    self.read_chunk(part, publication, reading, at);
                }
            }
        }
    }

    pub(super) fn restored(&mut self, at: &mut Moment<'_>) {
        self.client.connect();
        self.watch_keys(at);
        let is_published = |it: &_| matches!(it, WorkerWait::Results(..) | WorkerWait::Chunk(..));
        // What the last connection was sent may be lost.
        for wait in self.client.take_all(is_published) {
            self.answered(wait, None, at);
        }
        for part in self.parts.keys().copied().collect::<Vec<_>>() {
            self.note(part, PartEvent::Restored, at);
        }
        self.handle(WorkerEvent::Restored, at);
    }

    fn watch_keys(&mut self, at: &mut Moment<'_>) {
        let (stream, subject) = self.names.all_keys();
        let request = Request::Watch { stream, subject, subscription: KEYS };
        self.client.ask(at, request, WorkerWait::Keys, ANSWER);
    }

    fn handle(&mut self, event: WorkerEvent, at: &mut Moment<'_>) {
        if self.is_over {
            return;
        }
        let name = name_of_worker_event(&event);
        let actions = self.worker.handle(event, at.instant, &self.client.health);
        note_worker(&name, &actions);
        actions.into_iter().for_each(|action| self.perform(action, at));
        let next = at.now + self.worker.next_time().saturating_duration_since(at.instant);
        if next != self.tick && !self.is_over {
            self.tick = next;
            self.client.later(next, WorkerTimer::Tick);
        }
    }

    fn end_after_flush(&mut self, at: &mut Moment<'_>) {
        self.client.ask(at, Request::Flush, WorkerWait::LastFlush, ANSWER);
    }

    fn perform(&mut self, action: WorkerAction, at: &mut Moment<'_>) {
        match action {
            WorkerAction::PutCard(card) => {
                let message = Message::new(&self.names.card(&self.id).1, wire::encode(&card));
                self.client.ask(at, Request::Send(message), WorkerWait::Card, ANSWER);
            }
            WorkerAction::DeleteCard => {
                let message = Message::new(&self.names.card(&self.id).1, vec![]);
                self.client.tell(at, Request::Send(message.marked(Marker::Delete)));
            }
            WorkerAction::StartPart(key, number) => self.start_part(*key, number, at),
            WorkerAction::EndPart(number, ending) => self.note(number, PartEvent::End(ending), at),
            WorkerAction::Notify(run, notice) => {
                let message = Message::new(&self.names.notices(&run), wire::encode(&notice));
                self.client.call(at, Operation::Publish(message));
            }
            // What was sent before gets to the broker.
            WorkerAction::End(_) => self.end_after_flush(at),
            WorkerAction::EndWithoutAccess(_) => self.is_over = true,
        }
    }

    fn answered(&mut self, wait: WorkerWait, answer: Option<Answer>, at: &mut Moment<'_>) {
        let reply = |answer: Option<Answer>| match answer {
            Some(Answer::Reply(payload)) => Some(payload),
            _ => None,
        };
        match wait {
            WorkerWait::LastFlush => self.is_over = true,
            WorkerWait::Keys => {
                if !matches!(answer, Some(Answer::Consumer(_))) {
                    self.client.later(at.now + AGAIN, WorkerTimer::WatchKeys);
                }
            }
            WorkerWait::Card => match answer {
                Some(Answer::Stored { .. }) => self.handle(WorkerEvent::CardStored, at),
                Some(other) => {
                    self.client.health.refusal = Some((at.instant, format!("{other:?}")));
                    // The broker may have lost the bucket. The next card is put into it.
                    for config in self.names.buckets() {
                        self.client.tell(at, Request::CreateStream(config));
                    }
                }
                None => {}
            },
            WorkerWait::Seat(part) => {
                let reply = reply(answer).and_then(|it| wire::decode(&it).ok());
                self.note(part, PartEvent::SeatAnswered(reply), at);
            }
            WorkerWait::Claim(part, publication) => {
                let reply = reply(answer).and_then(|it| wire::decode(&it).ok());
                self.note(part, PartEvent::ClaimAnswered(publication, reply), at);
            }
            WorkerWait::Chunk(part, output) => self.take_written(part, output, answer, at),
            WorkerWait::Input { part, publication, mut reading } => {
                match reading.take(answer, self.client.health.is_connected) {
                    ReadStep::Next => self.read_chunk(part, publication, reading, at),
                    ReadStep::Again => {
                        let timer = WorkerTimer::ReadChunk { part, publication, reading };
                        self.client.later(at.now + AGAIN, timer);
                    }
                    ReadStep::Over(input) => {
                        self.note(part, PartEvent::InputRead(publication, input), at);
                    }
                }
            }
            WorkerWait::Results(part, mut message) => {
                match self.client.take_published(&mut message.publishing, answer, at) {
                    PublishStep::Stored(place) => {
                        let event = PartEvent::ResultsStored(message.group, Ok(Some(place)));
                        self.note(part, event, at);
                    }
                    PublishStep::Again => {
                        self.client.later(at.now + AGAIN, WorkerTimer::Publish(part, message));
                    }
                    PublishStep::Failed(said) => {
                        let said = said.unwrap_or_else(|| "timed out".to_owned());
                        self.note(part, PartEvent::ResultsStored(message.group, Err(said)), at);
                    }
                }
            }
        }
    }
}

/// The parts.
impl WorkerHost {
    fn start_part(&mut self, key: RunKey, number: u64, at: &mut Moment<'_>) {
        for (to, subscription) in [(&key.run, 0), (&self.id, OWN_ORDERS)] {
            let (subject, subscription) = (self.names.orders(to), number * PART + subscription);
            self.client.call(at, Operation::Subscribe { subscription, subject });
        }
        let settings = PartSettings {
            key: key.clone(),
            part: number,
            worker: self.id.clone(),
            host: self.id.clone(),
            pid: 1,
            most_inline: self.most_inline,
        };
        let (part, wakes) = (WorkerPart::new(settings), Duration::MAX);
        self.parts.insert(number, PartHost { part, key, is_dirty: false, wakes });
        let (capacity, init) = (self.capacity, Duration::ZERO);
        let service = LoadedService { capacity, producers: capacity, init };
        let loaded = (capacity > 0).then_some(service).ok_or_else(|| NO_DEVICE.to_owned());
        self.note(number, PartEvent::Loaded(loaded), at);
    }

    /// Hands an event to a part. What it leads to is done once all that happens at this time was handed over.
    fn note(&mut self, number: u64, event: PartEvent, at: &mut Moment<'_>) {
        let Some(host) = self.parts.get_mut(&number) else { return };
        note_part_event(&event, &host.part);
        host.part.handle(event, at.instant);
        if !std::mem::replace(&mut host.is_dirty, true) {
            self.client.later(at.now, WorkerTimer::Flush(number));
        }
    }

    fn flush(&mut self, number: u64, at: &mut Moment<'_>) {
        let Some(host) = self.parts.get_mut(&number) else { return };
        host.is_dirty = false;
        let actions = host.part.flush(at.instant, HookTimes::default());
        note_part_actions(&actions);
        let next = host.part.next_time();
        if let Some(next) = next {
            let next = at.now + next.saturating_duration_since(at.instant);
            // A time that has come is due again at once, and so is one that another event has moved.
            if next != host.wakes || next <= at.now {
                host.wakes = next;
                self.client.later(next, WorkerTimer::Flush(number));
            }
        }
        let is_over = host.part.is_over();
        actions.into_iter().for_each(|action| self.act(number, action, at));
        if is_over {
            self.parts.remove(&number);
            for subscription in [number * PART, number * PART + OWN_ORDERS] {
                self.client.call(at, Operation::Unsubscribe { subscription });
            }
            self.handle(WorkerEvent::Left(number), at);
        }
    }

    fn act(&mut self, number: u64, action: PartAction, at: &mut Moment<'_>) {
        let Some(host) = self.parts.get(&number) else { return };
        let (run, epoch) = (host.key.run.clone(), host.key.epoch);
        let notice = |news: WorkerNews| {
            let notice = Notice { epoch, worker: self.id.clone(), news };
            Message::new(&self.names.notices(&run), wire::encode(&notice))
        };
        match action {
            PartAction::AskForSeat { join, within } => {
                let request = Request::Send(notice(join));
                self.client.ask(at, request, WorkerWait::Seat(number), within);
            }
            PartAction::Claim { publication, within } => {
                let request = Request::Send(notice(WorkerNews::Claim(publication)));
                self.client.ask(at, request, WorkerWait::Claim(number, publication), within);
            }
            PartAction::Pull { request, from, count } => {
                let consumer: Arc<str> = match from {
                    Address::Any => self.names.consumer_of_any(&run, epoch),
                    Address::Own => self.names.consumer_of(&run, epoch, &self.id),
                };
                let subscription = number * PART + request;
                self.client.call(at, Operation::OpenInbox { subscription });
                let pull = Pull {
                    stream: self.names.items.clone(),
                    consumer,
                    subscription,
                    batch: u32::try_from(count).unwrap_or(u32::MAX),
                    expires: Some(PULL),
                    heartbeat: None,
                    no_wait: false,
                };
                self.client.call(at, Operation::Pull(pull));
            }
            PartAction::Acknowledge { reply, kind } => {
                let Some(place) = self.places.get(&reply).cloned() else { return };
                let kind = match kind {
                    Acknowledgement::Extend => Ack::Progress,
                    Acknowledgement::Done => Ack::Done,
                    Acknowledgement::Return(delay) => {
                        Ack::Again((!delay.is_zero()).then_some(delay))
                    }
                };
                if kind != Ack::Progress {
                    self.places.remove(&reply);
                }
                self.client.call(at, Operation::Acknowledge { place, kind });
            }
            PartAction::Notify(news) => {
                let message = notice(news);
                self.client.call(at, Operation::Publish(message));
            }
            PartAction::AnnounceBegun(publications) => {
                let message = notice(WorkerNews::Begun(publications));
                self.client.call(at, Operation::Publish(message));
                self.note(number, PartEvent::BegunSent, at);
            }
            PartAction::Submit { header, input } => {
                let publication = header.publication;
                let end = self.hooks.begin(number, &header, &input, at.now);
                self.client.later(end.at, WorkerTimer::Hook(end));
                self.note(number, PartEvent::HookBegins(publication), at);
            }
            PartAction::GiveUp(publication) => {
                if let Some(end) = self.hooks.give_up(number, publication, at.now) {
                    self.client.later(end.at, WorkerTimer::Hook(end));
                }
            }
            PartAction::PublishResults { group, id, payload, last } => {
                let message = Message::new(&self.names.results_of(&run), payload).with_id(&id);
                let (refused, unanswered) = (host.key.wait(), host.key.longest_silence());
                let limits = StoreLimits { refused, unanswered };
                let publishing = Publishing::new(message, limits, at.instant);
                let results = ResultsMessage { group, publishing, last };
                self.publish(number, results, at);
            }
            PartAction::EndProcess(_) => self.end_after_flush(at),
            PartAction::ReadInput { publication, object } => {
                let subject = self.names.input_object(&run, &object.name);
                let reading = ObjectReading::new(object, subject);
                self.read_chunk(number, publication, reading, at);
            }
            PartAction::StoreOutput { publication, name, output } => {
                let subject = self.names.output_object(&run, &name);
                let (refused, unanswered) = (host.key.lease() * 3, host.key.longest_silence());
                let (chunk, limits) = (self.most_inline, StoreLimits { refused, unanswered });
                let mut writing = ObjectWriting::new(name, subject, output, chunk, limits);
                let publishing = writing.next(at.instant).expect("it is larger than nothing");
                self.write_chunk(number, OutputWriting { publication, writing, publishing }, at);
            }
        }
    }

    fn publish(&mut self, number: u64, results: ResultsMessage, at: &mut Moment<'_>) {
        let Some(host) = self.parts.get(&number) else { return };
        if results.last <= host.part.floor() {
            return self.note(number, PartEvent::ResultsStored(results.group, Ok(None)), at);
        }
        let request = Request::Send(results.publishing.message.clone());
        let within = results.publishing.within;
        self.client.ask(at, request, WorkerWait::Results(number, results), within);
    }

    /// Writes the chunk of a large output that is due, unless the output is not wanted any more.
    fn write_chunk(&mut self, number: u64, output: OutputWriting, at: &mut Moment<'_>) {
        let Some(host) = self.parts.get(&number) else { return };
        if output.publication <= host.part.floor() {
            let OutputWriting { publication, writing, .. } = output;
            let event = PartEvent::OutputStored(publication, writing.object, Ok(()));
            return self.note(number, event, at);
        }
        let request = Request::Send(output.publishing.message.clone());
        let within = output.publishing.within;
        self.client.ask(at, request, WorkerWait::Chunk(number, output), within);
    }

    fn take_written(
        &mut self,
        number: u64,
        mut output: OutputWriting,
        answer: Option<Answer>,
        at: &mut Moment<'_>,
    ) {
        let stored = match self.client.take_published(&mut output.publishing, answer, at) {
            PublishStep::Again => {
                let timer = WorkerTimer::WriteChunk(number, output);
                return self.client.later(at.now + AGAIN, timer);
            }
            PublishStep::Failed(said) => Err(said.unwrap_or_else(|| "timed out".to_owned())),
            PublishStep::Stored(_) => match output.writing.next(at.instant) {
                Some(publishing) => {
                    return self.write_chunk(number, OutputWriting { publishing, ..output }, at);
                }
                None => Ok(()),
            },
        };
        let OutputWriting { publication, writing, .. } = output;
        self.note(number, PartEvent::OutputStored(publication, writing.object, stored), at);
    }

    fn read_chunk(
        &mut self,
        part: u64,
        publication: u64,
        reading: ObjectReading,
        at: &mut Moment<'_>,
    ) {
        let request = reading.request(self.names.objects.clone());
        self.client.ask(at, request, WorkerWait::Input { part, publication, reading }, ANSWER);
    }
}

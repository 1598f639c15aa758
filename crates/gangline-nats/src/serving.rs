//! The client and the service of a worker's part: hands events to the [`WorkerPart`], and performs its actions.
//!
//! One task calls the part. What waits for an answer, of the broker or of a hook, runs in a task of its own, and its answer
//! comes back as an event.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use async_nats::jetstream;
use async_nats::{Client, Request, StatusCode, SubscribeError, Subscriber};
use bytes::Bytes;
use futures_util::{Stream, StreamExt, stream};
use gangline::backend::{Mutex, lock};
use gangline_scheduler::batch::Size;
use serde::de::DeserializeOwned;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{timeout, timeout_at};

use super::connection::{BrokerConnection, REQUEST_TIMEOUT};
use super::delivery::Delivered;
use super::environment::give_up;
use super::health::StoreLimits;
use super::hook_times::HookTimes;
use super::hosting::{Host, ItemTask};
use super::names::{consumer_of, consumer_of_any};
use super::objects;
use super::part::{
    LoadedService, PULL, PartAction, PartEvent, PartSettings, RequestEnd, WorkerPart,
};
use super::publication::Address;
use super::publisher::{StreamMessage, publish};
use super::services::{ServiceInUse, Services};
use super::wire::{self, ItemHeader, Notice, WorkerNews, WorkerOrder};
use super::worker::WorkerEvent;

/// Sends events to a part, with their times.
#[derive(Debug, Clone)]
pub(super) struct PartEvents(UnboundedSender<(PartEvent, Instant)>);

impl PartEvents {
    /// Makes a sender of events, and their receiver.
    pub(super) fn channel() -> (Self, UnboundedReceiver<(PartEvent, Instant)>) {
        let (sender, receiver) = unbounded_channel();
        (PartEvents(sender), receiver)
    }

    /// Returns whether the part still takes events.
    pub(super) fn send(&self, event: PartEvent) -> bool {
        self.0.send((event, Instant::now())).is_ok()
    }
}

/// The client and the service of one part.
pub(super) struct PartServing {
    connection: BrokerConnection,
    settings: PartSettings,
    events: PartEvents,
    service: Arc<OnceLock<ServiceInUse>>,
    /// What is published, in this order.
    outgoing: UnboundedSender<OutgoingMessage>,
    /// The subjects of answers to requests for items, by the numbers of requests.
    inboxes: HashMap<u64, String>,
    /// That of the part, for the tasks that look whether what they do is still wanted.
    floor: Arc<AtomicU64>,
    /// The hooks that wait until the coordinator can know of them, by publication.
    beginning: Arc<Mutex<BTreeMap<u64, crossbeam_channel::Sender<()>>>>,
    /// The tasks that read an input or wait for the service, by publication.
    items: HashMap<u64, AbortHandle>,
    /// They end with the part.
    tasks: JoinSet<()>,
}

struct OutgoingMessage {
    subject: String,
    reply: Option<String>,
    payload: Bytes,
}

/// Takes part in a run until the worker or the coordinator says that the part ends.
pub(super) async fn serve_part(
    connection: BrokerConnection,
    settings: PartSettings,
    (services, host): (Arc<Services>, Arc<dyn Host + Send>),
    (events, mut receiver): (PartEvents, UnboundedReceiver<(PartEvent, Instant)>),
    worker: UnboundedSender<WorkerEvent>,
) {
    let client = connection.client.clone();
    let (outgoing, messages) = unbounded_channel();
    let sending = tokio::spawn(send_all(client.clone(), messages));
    let mut serving = PartServing {
        inboxes: HashMap::new(),
        connection,
        settings,
        events,
        service: Arc::default(),
        outgoing,
        floor: Arc::default(),
        beginning: Arc::default(),
        items: HashMap::new(),
        tasks: JoinSet::new(),
    };
    // A client that has ended ends the worker.
    if serving.read(worker).await.is_err() {
        return;
    }
    serving.load(services, host);
    let end = serving.run(&mut receiver).await;
    // A hook that begins from now on waits for no notice.
    receiver.close();
    lock(&serving.beginning).clear();
    drop(serving);
    _ = timeout(REQUEST_TIMEOUT, sending).await;
    if let Some(reason) = end {
        _ = timeout(REQUEST_TIMEOUT, client.flush()).await;
        give_up(&reason);
    }
}

impl PartServing {
    /// Starts the tasks that read what the broker sends.
    async fn read(&mut self, worker: UnboundedSender<WorkerEvent>) -> Result<(), SubscribeError> {
        let BrokerConnection { client, names, .. } = &self.connection;
        let of_run = client.subscribe(names.orders(&self.settings.key.run)).await?;
        let own = client.subscribe(names.orders(&self.settings.worker)).await?;
        let orders = stream::select(of_run, own);
        let (epoch, part) = (self.settings.key.epoch, self.settings.part);
        let ordered = move || _ = worker.send(WorkerEvent::Ordered(part));
        self.tasks.spawn(read_orders(orders, epoch, self.events.clone(), ordered));
        Ok(())
    }

    /// Has the service made.
    fn load(&mut self, services: Arc<Services>, host: Arc<dyn Host + Send>) {
        let (key, service) = (self.settings.key.clone(), self.service.clone());
        self.spawn(async move {
            let acquired = services.acquire(&key, &host).await;
            PartEvent::Loaded(acquired.map(|acquired| {
                let it = &acquired.loaded;
                let (capacity, producers, init) = (it.capacity(), it.producers(), it.init());
                _ = service.set(acquired);
                LoadedService { capacity, producers, init }
            }))
        });
    }

    /// Calls the part until it is over. Returns why the process ends, if it does.
    async fn run(
        &mut self,
        receiver: &mut UnboundedReceiver<(PartEvent, Instant)>,
    ) -> Option<String> {
        let mut part = WorkerPart::new(self.settings.clone());
        let mut end = None;
        while !part.is_over() {
            let event = match part.next_time() {
                Some(time) => timeout_at(time.into(), receiver.recv()).await.ok().flatten(),
                None => receiver.recv().await,
            };
            if let Some((event, at)) = event {
                self.note(&event);
                part.handle(event, at);
                // What happens together is one batch.
                tokio::task::yield_now().await;
            }
            while let Ok((event, at)) = receiver.try_recv() {
                self.note(&event);
                part.handle(event, at);
            }
            while self.tasks.try_join_next().is_some() {}
            self.floor.store(part.floor(), Ordering::Relaxed);
            for action in part.flush(Instant::now(), self.hook_times()) {
                match action {
                    PartAction::EndProcess(reason) => end = Some(reason),
                    action => self.perform(action),
                }
            }
        }
        end
    }

    /// Forgets the task of an item that has ended.
    fn note(&mut self, event: &PartEvent) {
        if let PartEvent::HookAnswered(publication, _) = event {
            self.items.remove(publication);
        }
    }

    fn hook_times(&self) -> HookTimes {
        self.service.get().map(|service| service.loaded.hook_times()).unwrap_or_default()
    }

    fn perform(&mut self, action: PartAction) {
        match action {
            PartAction::AskForSeat { join, within } => {
                self.request(join, within, PartEvent::SeatAnswered);
            }
            PartAction::Claim { publication, within } => {
                let event = move |reply| PartEvent::ClaimAnswered(publication, reply);
                self.request(WorkerNews::Claim(publication), within, event);
            }
            PartAction::Pull { request, from, count } => self.pull(request, from, count),
            PartAction::Acknowledge { reply, kind } => self.send(reply, None, kind.payload()),
            PartAction::Notify(news) => {
                self.send(self.notices(), None, self.notice(news));
            }
            PartAction::AnnounceBegun(publications) => self.announce(publications),
            PartAction::ReadInput { publication, object } => {
                let connection = self.connection.clone();
                let subject = connection.names.input_object(&self.settings.key.run, &object.name);
                let reading = self.spawn(async move {
                    let input = objects::get(&connection, &subject, &object, || true).await;
                    PartEvent::InputRead(publication, input.map_err(|error| error.to_string()))
                });
                self.items.insert(publication, reading);
            }
            PartAction::Submit { header, input } => self.submit(&header, input),
            PartAction::GiveUp(publication) => {
                self.items.remove(&publication).iter().for_each(AbortHandle::abort);
            }
            PartAction::StoreOutput { publication, name, output } => {
                self.store_output(publication, name, output);
            }
            PartAction::PublishResults { group, id, payload, last } => {
                self.publish_results(group, id, (payload, last));
            }
            PartAction::EndProcess(_) => unreachable!("`run` takes it"),
        }
    }

    /// Runs an operation in a task of its own, whose outcome is an event.
    fn spawn(
        &mut self,
        operation: impl Future<Output = PartEvent> + Send + 'static,
    ) -> AbortHandle {
        let events = self.events.clone();
        self.tasks.spawn(async move { _ = events.send(operation.await) })
    }

    /// Asks the coordinator.
    fn request<T: DeserializeOwned>(
        &mut self,
        news: WorkerNews,
        within: Duration,
        event: impl FnOnce(Option<T>) -> PartEvent + Send + 'static,
    ) {
        let (client, subject) = (self.connection.client.clone(), self.notices());
        let request = Request::new().payload(self.notice(news)).timeout(Some(within));
        self.spawn(async move {
            let answer = client.send_request(subject, request).await;
            event(answer.ok().and_then(|message| wire::decode(&message.payload).ok()))
        });
    }

    fn pull(&mut self, request: u64, from: Address, count: usize) {
        let (run, epoch) = (&self.settings.key.run, self.settings.key.epoch);
        let consumer = match from {
            Address::Any => consumer_of_any(run, epoch),
            Address::Own => consumer_of(run, epoch, &self.settings.worker),
        };
        let items = self.connection.names.items();
        let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{items}.{consumer}");
        let pull = format!("{{\"batch\":{count},\"expires\":{}}}", PULL.as_nanos());
        if let Some(inbox) = self.inboxes.get(&request) {
            return self.send(subject, Some(inbox.clone()), pull.into());
        }
        let inbox = self.connection.client.new_inbox();
        self.inboxes.insert(request, inbox.clone());
        let (context, events) = (self.connection.context.clone(), self.events.clone());
        let (client, outgoing) = (self.connection.client.clone(), self.outgoing.clone());
        self.tasks.spawn(async move {
            let Ok(answers) = client.subscribe(inbox.clone()).await else { return };
            let (reply, payload) = (Some(inbox), pull.into());
            _ = outgoing.send(OutgoingMessage { subject, reply, payload });
            read_items(answers, context, request, events).await;
        });
    }

    /// Tells the coordinator which items have begun. Their hooks go on once the kernel has the notice, because they may end
    /// this process.
    fn announce(&mut self, publications: Vec<u64>) {
        let client = self.connection.client.clone();
        let waiting: Vec<_> = {
            let mut beginning = lock(&self.beginning);
            publications.iter().filter_map(|publication| beginning.remove(publication)).collect()
        };
        let (subject, notice) = (self.notices(), self.notice(WorkerNews::Begun(publications)));
        self.spawn(async move {
            log_unsent(client.publish(subject, notice).await);
            _ = timeout(REQUEST_TIMEOUT, client.flush()).await;
            drop(waiting);
            PartEvent::BegunSent
        });
    }

    /// Has the service work on an item.
    fn submit(&mut self, header: &ItemHeader, input: Vec<u8>) {
        let service = self.service.get().expect("items come once the service is there");
        let ItemHeader { publication, item, attempt, size: (cost, padded), .. } = *header;
        let begin = self.beginning(publication);
        let over = Box::new(HookEnd(self.events.clone(), publication));
        let size = Size { cost, padded };
        let answer = service.loaded.submit(ItemTask { item, attempt, size, input, begin, over });
        let working = self.spawn(async move { PartEvent::HookAnswered(publication, answer.await) });
        self.items.insert(publication, working);
    }

    /// Makes the function that is called before a hook begins an item. The channel that the function returns ends once the
    /// kernel has the notice. Further calls, for the parts of a batch that was divided, tell nothing.
    fn beginning(
        &self,
        publication: u64,
    ) -> Box<dyn Fn() -> crossbeam_channel::Receiver<()> + Send + Sync> {
        let (events, beginning) = (self.events.clone(), self.beginning.clone());
        let has_begun = AtomicBool::new(false);
        Box::new(move || {
            let (sent, confirmed) = crossbeam_channel::bounded(0);
            if !has_begun.swap(true, Ordering::Relaxed) {
                lock(&beginning).insert(publication, sent);
                if !events.send(PartEvent::HookBegins(publication)) {
                    lock(&beginning).remove(&publication);
                }
            }
            confirmed
        })
    }

    fn store_output(&mut self, publication: u64, name: String, output: Vec<u8>) {
        let connection = self.connection.clone();
        let object = objects::object(&connection, name, &output);
        let subject = connection.names.output_object(&self.settings.key.run, &object.name);
        // The work is done, so it waits for longer than an input does.
        let key = &self.settings.key;
        let limits = StoreLimits { refused: key.lease() * 3, unanswered: key.longest_silence() };
        let is_wanted = self.is_wanted(publication);
        self.spawn(async move {
            let place = (&*subject, &object);
            let stored = objects::put(&connection, place, output, limits, is_wanted).await;
            let stored = stored.map(|_| ()).map_err(|error| error.to_string());
            PartEvent::OutputStored(publication, object, stored)
        });
    }

    fn publish_results(&mut self, group: u64, id: String, (payload, last): (Vec<u8>, u64)) {
        let connection = self.connection.clone();
        let subject = connection.names.results_of(&self.settings.key.run);
        let (key, is_wanted) = (&self.settings.key, self.is_wanted(last));
        let limits = StoreLimits { refused: key.wait(), unanswered: key.longest_silence() };
        self.spawn(async move {
            let message = StreamMessage { subject, id: &id, payload: payload.into(), limits };
            let stored = publish(&connection, message, is_wanted).await;
            PartEvent::ResultsStored(group, stored.map_err(|error| error.to_string()))
        });
    }

    /// Makes the function that says whether a publication is not given up.
    fn is_wanted(&self, publication: u64) -> impl Fn() -> bool + Send + Sync + use<> {
        let floor = self.floor.clone();
        move || publication > floor.load(Ordering::Relaxed)
    }

    fn notices(&self) -> String {
        self.connection.names.notices(&self.settings.key.run)
    }

    fn notice(&self, news: WorkerNews) -> Bytes {
        let (epoch, worker) = (self.settings.key.epoch, self.settings.worker.clone());
        wire::encode(&Notice { epoch, worker, news }).into()
    }

    fn send(&self, subject: String, reply: Option<String>, payload: Bytes) {
        _ = self.outgoing.send(OutgoingMessage { subject, reply, payload });
    }
}

/// Says that no hook has an item any more, when it is dropped.
struct HookEnd(PartEvents, u64);

impl Drop for HookEnd {
    fn drop(&mut self) {
        self.0.send(PartEvent::HookOver(self.1));
    }
}

/// Publishes messages in their order. A client without a connection may keep one waiting.
async fn send_all(client: Client, mut messages: UnboundedReceiver<OutgoingMessage>) {
    while let Some(OutgoingMessage { subject, reply, payload }) = messages.recv().await {
        log_unsent(match reply {
            None => client.publish(subject, payload).await,
            Some(reply) => client.publish_with_reply(subject, reply, payload).await,
        });
    }
}

fn log_unsent(sent: Result<(), async_nats::PublishError>) {
    if let Err(error) = sent {
        tracing::debug!("not sent: {error}");
    }
}

async fn read_orders(
    mut orders: impl Stream<Item = async_nats::Message> + Unpin,
    epoch: u64,
    events: PartEvents,
    ordered: impl Fn() + Send,
) {
    while let Some(message) = orders.next().await {
        match wire::decode::<WorkerOrder>(&message.payload) {
            Ok(order) if order.epoch == epoch => {
                ordered();
                events.send(PartEvent::Order(order.command));
            }
            _ => {}
        }
    }
}

/// Reads the answers to the requests for items with a number.
async fn read_items(
    mut answers: Subscriber,
    context: jetstream::Context,
    request: u64,
    events: PartEvents,
) {
    while let Some(message) = answers.next().await {
        events.send(match message.status {
            None => {
                let message = jetstream::Message { message, context: context.clone() };
                PartEvent::Delivered { request, item: Delivered::of(message) }
            }
            Some(StatusCode::TIMEOUT | StatusCode::REQUEST_TERMINATED) => {
                PartEvent::RequestOver { request, end: RequestEnd::Ended }
            }
            Some(status) => {
                tracing::debug!("a request for items: {status}");
                PartEvent::RequestOver { request, end: RequestEnd::Refused }
            }
        });
    }
}

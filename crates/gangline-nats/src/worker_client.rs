//! The process and the client of a worker: hands events to the [`Worker`], and performs its actions.
//!
//! The main task reads the keys of runs and calls the worker. [`serve_part`] runs each part in a task of its own.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_nats::jetstream::kv;
use futures_util::future::{Either, select};
use gangline::BoxError;
use gangline::backend::spawn;
use gangline::process::Processes;
use gangline_scheduler::causes::WithCauses;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::{timeout, timeout_at};

use super::address::BrokerAddress;
use super::connection::{AGAIN, BrokerConnection, REQUEST_TIMEOUT};
use super::environment::{self, end_because_of, execute_again, give_up};
use super::hosting::Host;
use super::names::{Role, SubjectNames, cleaned};
use super::part::{PartEvent, PartSettings};
use super::services::Services;
use super::serving::{PartEvents, serve_part};
use super::session::random;
use super::wire::{self, Card, RunKey};
use super::worker::{Worker, WorkerAction, WorkerEvent};

/// Serves as a worker of a cluster, if this process was asked to, and then never returns.
pub(crate) fn serve_if_asked(hosts: &[&dyn Host], processes: Processes) {
    if let Some(address) = environment::own_marker() {
        serve(&address, hosts, processes);
    }
    if let Some(address) = environment::broker() {
        execute_again(&address);
    }
}

fn serve(address: &BrokerAddress, hosts: &[&dyn Host], processes: Processes) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = match runtime {
        Ok(runtime) => {
            let served = runtime.block_on(connect_and_serve(address, hosts, processes));
            runtime.shutdown_timeout(Duration::ZERO);
            served
        }
        Err(error) => Err(error.into()),
    };
    match served {
        Ok(()) => process::exit(0),
        Err(error) => end_because_of(&error),
    }
}

/// Connects and serves, until a signal or the end of the supervisor. The signal may come before the broker has answered.
async fn connect_and_serve(
    address: &BrokerAddress,
    hosts: &[&dyn Host],
    processes: Processes,
) -> Result<(), BoxError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let connected = {
        let connecting = std::pin::pin!(WorkerClient::new(address, hosts, processes));
        let terminated = std::pin::pin!(terminate.recv());
        match select(connecting, terminated).await {
            Either::Left((connected, _)) => connected?,
            Either::Right(_) => return Ok(()),
        }
    };
    let (client, card, receiver) = connected;
    let terminated = client.events.clone();
    tokio::spawn(async move {
        _ = terminate.recv().await;
        _ = terminated.send(WorkerEvent::Terminate);
    });
    client.serve(Worker::new(card, Instant::now()), receiver).await
}

/// The client of the broker and the service of this process's worker.
struct WorkerClient {
    connection: BrokerConnection,
    /// The address of the broker without the password.
    url: String,
    cards: kv::Store,
    hosts: Vec<Arc<dyn Host + Send>>,
    services: Arc<Services>,
    events: UnboundedSender<WorkerEvent>,
    /// The events of the parts, by their numbers.
    parts: HashMap<u64, PartEvents>,
    /// The id of the worker, the host and the process.
    settings: (String, String, u32),
}

impl WorkerClient {
    async fn new(
        address: &BrokerAddress,
        hosts: &[&dyn Host],
        processes: Processes,
    ) -> Result<(Self, Card, UnboundedReceiver<WorkerEvent>), BoxError> {
        let devices = environment::devices()?;
        let access = environment::access(address);
        let names = SubjectNames::new(&environment::namespace())?;
        let connection = BrokerConnection::open(&access, names, Role::Worker).await?;
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let (host, pid) = (host.trim().to_owned(), process::id());
        let started = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
        let card = Card {
            worker: format!("{}-{pid}-{:08x}", cleaned(&host), random("worker") as u32),
            host,
            pid,
            devices: devices.to_string(),
            recipes: hosts.iter().map(|it| (it.recipe().to_owned(), it.terms())).collect(),
            started: started.map_or(0, |since| since.as_secs()),
            runs: vec![],
            parts: 0,
        };
        connection.check_payload("the card of this worker", wire::encode(&card).len())?;
        let cards = connection.unless_denied(connection.workers()).await?;
        let (events, receiver) = unbounded_channel();
        let client = WorkerClient {
            connection,
            url: access.address.shown(),
            cards,
            hosts: hosts.iter().map(|host| host.share()).collect(),
            services: Arc::new(Services::new(devices, environment::hook_place(processes))),
            events,
            parts: HashMap::new(),
            settings: (card.worker.clone(), card.host.clone(), card.pid),
        };
        Ok((client, card, receiver))
    }

    /// Calls the worker until it ends.
    async fn serve(
        mut self,
        mut worker: Worker,
        mut receiver: UnboundedReceiver<WorkerEvent>,
    ) -> Result<(), BoxError> {
        let keys = self.connection.unless_denied(self.connection.keys()).await?;
        tokio::spawn(read_keys(self.connection.clone(), keys, self.events.clone()));
        tokio::spawn(watch_connection(self.connection.clone(), self.events.clone()));
        if let Some(supervisor) = environment::supervisor()? {
            end_with_supervisor(supervisor, self.events.clone())?;
        }
        loop {
            let event = timeout_at(worker.next_time().into(), receiver.recv()).await;
            let event = event.ok().flatten().unwrap_or(WorkerEvent::Tick);
            match event {
                WorkerEvent::Left(part) => _ = self.parts.remove(&part),
                WorkerEvent::Restored => {
                    self.parts.values().for_each(|part| _ = part.send(PartEvent::Restored));
                }
                _ => {}
            }
            for action in worker.handle(event, Instant::now(), &self.connection.health()) {
                match action {
                    WorkerAction::End(patience) => {
                        _ = timeout(REQUEST_TIMEOUT, self.connection.client.flush()).await;
                        _ = timeout(patience, self.services.close()).await;
                        return Ok(());
                    }
                    WorkerAction::EndWithoutAccess(denied) => {
                        return Err(denied.error(self.url).into());
                    }
                    action => self.perform(action).await,
                }
            }
        }
    }

    async fn perform(&mut self, action: WorkerAction) {
        match action {
            WorkerAction::PutCard(card) => {
                // Not waited for: without a broker it would take seconds.
                let (connection, cards) = (self.connection.clone(), self.cards.clone());
                tokio::spawn(put_card(connection, cards, card, self.events.clone()));
            }
            WorkerAction::DeleteCard => _ = self.cards.delete(&self.settings.0).await,
            WorkerAction::StartPart(key, part) => self.start_part(*key, part),
            WorkerAction::EndPart(part, ending) => {
                let part = self.parts.get(&part);
                part.into_iter().for_each(|part| _ = part.send(PartEvent::End(ending)));
            }
            WorkerAction::Notify(run, notice) => {
                let subject = self.connection.names.notices(&run);
                let sent = self.connection.client.publish(subject, wire::encode(&notice).into());
                if let Err(error) = sent.await {
                    tracing::debug!("not sent: {error}");
                }
            }
            WorkerAction::End(_) | WorkerAction::EndWithoutAccess(_) => {
                unreachable!("`serve` takes it")
            }
        }
    }

    fn start_part(&mut self, key: RunKey, part: u64) {
        let host = self.hosts.iter().find(|host| host.recipe() == key.recipe).cloned();
        let host = host.expect("a part begins only for a recipe of the card");
        let (worker, host_name, pid) = self.settings.clone();
        let most_inline = self.connection.most_inline();
        let settings = PartSettings { key, part, worker, host: host_name, pid, most_inline };
        let (sender, receiver) = PartEvents::channel();
        self.parts.insert(part, sender.clone());
        let (connection, events) = (self.connection.clone(), self.events.clone());
        let services = self.services.clone();
        tokio::spawn(async move {
            let service = (services, host);
            serve_part(connection, settings, service, (sender, receiver), events.clone()).await;
            _ = events.send(WorkerEvent::Left(part));
        });
    }
}

async fn put_card(
    connection: BrokerConnection,
    cards: kv::Store,
    card: Card,
    events: UnboundedSender<WorkerEvent>,
) {
    match cards.put(&card.worker, wire::encode(&card).into()).await {
        Ok(_) => _ = events.send(WorkerEvent::CardStored),
        Err(error) => {
            connection.note_refusal(WithCauses(&error).to_string());
            // The broker may have lost the bucket. The next card is put into it.
            _ = connection.workers().await;
        }
    }
}

/// Has the worker finish what it has begun once its supervisor has ended.
fn end_with_supervisor(
    supervisor: OwnedFd,
    events: UnboundedSender<WorkerEvent>,
) -> Result<(), BoxError> {
    let watch = move || {
        let mut fds = [PollFd::new(&supervisor, PollFlags::IN)];
        while let Err(Errno::INTR) = poll(&mut fds, None) {}
        _ = events.send(WorkerEvent::Terminate);
    };
    // It is not joined: it ends with this process.
    spawn("gangline-p".to_owned(), None, watch).map_err(|error| error.source)?;
    Ok(())
}

async fn watch_connection(mut connection: BrokerConnection, events: UnboundedSender<WorkerEvent>) {
    connection.restored.mark_unchanged();
    while connection.restored.changed().await.is_ok() {
        _ = events.send(WorkerEvent::Restored);
    }
    // While this worker has the client, only a panic ends it.
    give_up("the client of the broker died of a bug; its panic tells more")
}

/// Reads the keys of runs, now and whenever one changes.
async fn read_keys(
    connection: BrokerConnection,
    keys: kv::Store,
    events: UnboundedSender<WorkerEvent>,
) {
    let take = |entry: kv::Entry| {
        let event = match entry.operation {
            kv::Operation::Put => match wire::decode::<RunKey>(&entry.value) {
                Ok(key) => WorkerEvent::Key(Box::new(key)),
                Err(error) => return tracing::warn!("run {}: {error}", entry.key),
            },
            kv::Operation::Delete | kv::Operation::Purge => WorkerEvent::Gone(entry.key),
        };
        _ = events.send(event);
    };
    while !events.is_closed() {
        connection.watch(&keys, &take).await;
        tokio::time::sleep(AGAIN).await;
    }
}

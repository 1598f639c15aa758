//! A worker process: says that it is there, and takes part in the runs that want it.
//!
//! The main task reads the keys of runs and puts the card of this worker. It starts a [`PartServing`] for each run, and ends
//! it when the key goes, when the coordinator is silent for a lease, or by SIGTERM.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::process;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use async_nats::jetstream::kv;
use futures_util::future::{Either, select};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::watch;
use tokio::time::MissedTickBehavior;

use super::connection::{AGAIN, BrokerConnection, REQUEST_TIMEOUT};
use super::environment::{self, end_because_of, execute_again, give_up};
use super::hosting::Host;
use super::names::{Role, SubjectNames, cleaned};
use super::services::Services;
use super::serving::PartEnding;
use super::serving::PartServing;
use super::session::random;
use super::wire::{self, Card, Notice, RunKey, WorkerNews};
use crate::base::BoxError;
use crate::base::causes::WithCauses;
use crate::concurrency::spawn::spawn;

/// How often a worker shows that it lives, if no run asks for more.
const SLOWEST_BEAT: Duration = Duration::from_secs(3);

/// How long the broker may refuse the credentials of a worker before the worker ends. While a broker reads another
/// configuration, it may do so for a moment.
const LOCKED_OUT: Duration = Duration::from_secs(5);

/// Serves as a worker of a cluster, if this process was asked to, and then never returns.
pub(crate) fn serve_if_asked(hosts: &[&dyn Host]) {
    if let Some(url) = environment::own_marker() {
        serve(&url, hosts);
    }
    if let Some(url) = environment::broker() {
        execute_again(&url);
    }
}

fn serve(url: &str, hosts: &[&dyn Host]) -> ! {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let served = match runtime {
        Ok(runtime) => {
            let served = runtime.block_on(connect_and_serve(url, hosts));
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
async fn connect_and_serve(url: &str, hosts: &[&dyn Host]) -> Result<(), BoxError> {
    let mut terminate = signal(SignalKind::terminate())?;
    let connected = {
        let connecting = std::pin::pin!(Worker::new(url, hosts));
        let terminated = std::pin::pin!(terminate.recv());
        match select(connecting, terminated).await {
            Either::Left((worker, _)) => worker?,
            Either::Right(_) => return Ok(()),
        }
    };
    connected.serve(terminate).await
}

/// What the main task of a worker reacts to.
enum WorkerEvent {
    Key(Box<RunKey>),
    /// The run of this name is over.
    Gone(String),
    /// The part in the run of this name and epoch has ended.
    Left(String, u64),
    Tick,
    /// The broker has stored the card.
    Answered,
    Terminate,
}

struct Worker {
    connection: BrokerConnection,
    /// The address of the broker without the password.
    url: String,
    card: Card,
    cards: kv::Store,
    hosts: Vec<Arc<dyn Host + Send>>,
    services: Arc<Services>,
    /// The parts of this worker, by the names of their runs.
    runs: HashMap<String, RunPart>,
    /// When this worker last showed that it lives.
    beaten: Instant,
    /// When the broker last stored the card.
    answered: Instant,
}

/// The part in one run.
struct RunPart {
    number: u64,
    key: RunKey,
    /// When the coordinator was last heard of.
    seen: Instant,
    /// When the coordinator last gave an order.
    ordered: watch::Receiver<Instant>,
    /// Ends the part.
    ending: watch::Sender<PartEnding>,
}

impl Worker {
    async fn new(url: &str, hosts: &[&dyn Host]) -> Result<Self, BoxError> {
        let devices = environment::devices()?;
        let access = environment::access(url);
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
        let hosts = hosts.iter().map(|host| host.share()).collect();
        let services = Arc::new(Services::new(devices, environment::hook_place()));
        Ok(Worker {
            connection,
            url: access.shown(),
            card,
            cards,
            hosts,
            services,
            runs: HashMap::new(),
            beaten: Instant::now(),
            answered: Instant::now(),
        })
    }

    async fn serve(mut self, mut terminate: Signal) -> Result<(), BoxError> {
        let (events, mut receiver) = unbounded_channel();
        let keys = self.connection.unless_denied(self.connection.keys()).await?;
        tokio::spawn(read_keys(self.connection.clone(), keys, events.clone()));
        if let Some(supervisor) = environment::supervisor()? {
            end_with_supervisor(supervisor, events.clone())?;
        }
        let terminated = events.clone();
        let terminating = tokio::spawn(async move {
            _ = terminate.recv().await;
            _ = terminated.send(WorkerEvent::Terminate);
        });
        self.put_card(&events).await;
        let mut ticking = tokio::spawn(tick(SLOWEST_BEAT, events.clone()));
        let mut period = SLOWEST_BEAT;
        while let Some(event) = receiver.recv().await {
            match event {
                WorkerEvent::Key(key) => self.take_key(*key, &events).await,
                WorkerEvent::Gone(run) => self.end(&run, PartEnding::Over),
                WorkerEvent::Left(run, epoch) => self.leave(&run, epoch),
                WorkerEvent::Tick => {
                    let access = self.connection.check_access(LOCKED_OUT);
                    access.map_err(|lost| lost.error(self.url.clone()))?;
                    self.beat(&events).await;
                }
                WorkerEvent::Answered => self.answered = Instant::now(),
                WorkerEvent::Terminate => break,
            }
            // The worker shows that it lives three times within the shortest lease.
            let shortest = self.runs.values().map(|part| part.lease() / 3).min();
            let wanted = shortest.unwrap_or(SLOWEST_BEAT).min(SLOWEST_BEAT);
            if wanted != period {
                ticking.abort();
                (period, ticking) = (wanted, tokio::spawn(tick(wanted, events.clone())));
                self.put_card(&events).await;
            }
        }
        terminating.abort();
        self.drain(receiver, &events).await;
        if self.connection.is_connected() {
            _ = self.cards.delete(&self.card.worker).await;
            _ = tokio::time::timeout(REQUEST_TIMEOUT, self.connection.client.flush()).await;
        }
        // Nothing waits for a hook in a part that was given up.
        let patience = self.runs.values().map(RunPart::lease).max().unwrap_or(Duration::MAX);
        _ = tokio::time::timeout(patience, self.services.close()).await;
        Ok(())
    }

    /// Finishes begun items, and ends all parts. Without a broker for longer than a lease it gives up: by then other workers
    /// have the items, or the run is over.
    async fn drain(
        &mut self,
        mut receiver: UnboundedReceiver<WorkerEvent>,
        events: &UnboundedSender<WorkerEvent>,
    ) {
        for part in self.runs.values() {
            part.ending.send_replace(PartEnding::Drain);
        }
        let longest = self.runs.values().map(RunPart::lease).max().unwrap_or_default();
        let mut connected = Instant::now();
        while !self.runs.is_empty() {
            match receiver.recv().await {
                Some(WorkerEvent::Left(run, epoch)) => self.leave(&run, epoch),
                Some(WorkerEvent::Tick) if self.connection.is_connected() => {
                    connected = Instant::now();
                    self.beat(events).await;
                }
                Some(WorkerEvent::Tick) if connected.elapsed() > longest => break,
                Some(_) => {}
                None => break,
            }
        }
    }

    /// Removes a part that has ended, unless another coordinator of the run has replaced it.
    fn leave(&mut self, run: &str, epoch: u64) {
        self.runs.retain(|name, part| name != run || part.key.epoch != epoch);
    }

    /// Begins a part in a run that is new, or notes that its coordinator lives.
    async fn take_key(&mut self, key: RunKey, events: &UnboundedSender<WorkerEvent>) {
        let now = Instant::now();
        if let Some(part) = self.runs.get_mut(&key.run) {
            if part.key.epoch == key.epoch {
                part.seen = now;
                return;
            }
            // Another coordinator has taken over the run.
            part.ending.send_replace(PartEnding::Over);
        }
        let host = self.hosts.iter().find(|host| host.recipe() == key.recipe);
        let Some(host) = host.filter(|host| host.terms() == key.terms).cloned() else { return };
        let (ending, ends) = watch::channel(PartEnding::NotYet);
        let (order, ordered) = watch::channel(now);
        self.card.parts += 1;
        let number = self.card.parts;
        let serving = PartServing {
            part: number,
            connection: self.connection.clone(),
            key: key.clone(),
            worker: self.card.worker.clone(),
            host_name: self.card.host.clone(),
            services: self.services.clone(),
            ends,
            ordered: order,
        };
        let (run, epoch, events) = (key.run.clone(), key.epoch, events.clone());
        self.runs.insert(run.clone(), RunPart { number, key, seen: now, ordered, ending });
        tokio::spawn(async move {
            serving.serve(host).await;
            _ = events.send(WorkerEvent::Left(run, epoch));
        });
    }

    /// Has a part end. `leave` removes it.
    fn end(&self, run: &str, ending: PartEnding) {
        if let Some(part) = self.runs.get(run) {
            part.ending.send_replace(ending);
        }
    }

    /// Shows that this worker lives, and ends the parts with silent coordinators.
    async fn beat(&mut self, events: &UnboundedSender<WorkerEvent>) {
        let now = Instant::now();
        let is_connected = self.connection.is_connected();
        let pause = now.duration_since(std::mem::replace(&mut self.beaten, now));
        // While this worker has the client, only a panic ends it.
        let has_restored = self.connection.restored.has_changed().unwrap_or_else(|_| {
            give_up("the client of the broker died of a bug; its panic tells more")
        });
        self.connection.restored.mark_unchanged();
        let unanswered = now.duration_since(self.answered);
        let said = self.connection.refusal_within(SLOWEST_BEAT);
        // Notices need no room at the broker.
        if said.is_some() || self.runs.values().any(|part| unanswered > part.lease() / 2) {
            self.tell_all(WorkerNews::Alive(said)).await;
        }
        for part in self.runs.values_mut() {
            part.seen = part.seen.max(*part.ordered.borrow());
            // If this process or the broker was stopped, no order has come, although the coordinators may be alive.
            let is_mute = unanswered > part.lease() / 2;
            if !is_connected || is_mute || has_restored || pause > part.lease() / 2 {
                part.seen = now;
            } else if now.duration_since(part.seen) > part.lease() {
                tracing::warn!("the coordinator of run {} is silent", part.key.run);
                part.ending.send_replace(PartEnding::Over);
            }
        }
        self.put_card(events).await;
    }

    /// Tells the coordinators of all runs.
    async fn tell_all(&self, news: WorkerNews) {
        for RunPart { key, .. } in self.runs.values() {
            let worker = self.card.worker.clone();
            let notice = Notice { epoch: key.epoch, worker, news: news.clone() };
            let subject = self.connection.names.notices(&key.run);
            let sent = self.connection.client.publish(subject, wire::encode(&notice).into());
            if let Err(error) = sent.await {
                tracing::debug!("not sent: {error}");
            }
        }
    }

    async fn put_card(&mut self, events: &UnboundedSender<WorkerEvent>) {
        let runs = self.runs.iter().map(|(run, part)| (run.clone(), part.number));
        self.card.runs = runs.collect();
        let (cards, card) = (self.cards.clone(), self.card.clone());
        let (connection, events) = (self.connection.clone(), events.clone());
        // Not waited for: without a broker it would take seconds.
        tokio::spawn(async move {
            match cards.put(&card.worker, wire::encode(&card).into()).await {
                Ok(_) => _ = events.send(WorkerEvent::Answered),
                Err(error) => {
                    connection.note_refusal(WithCauses(&error).to_string());
                    // The broker may have lost the bucket. The next card is put into it.
                    _ = connection.workers().await;
                }
            }
        });
    }
}

impl RunPart {
    fn lease(&self) -> Duration {
        Duration::from_millis(self.key.lease_millis)
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

async fn tick(period: Duration, events: UnboundedSender<WorkerEvent>) {
    let mut ticks = tokio::time::interval(period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    while events.send(WorkerEvent::Tick).is_ok() {
        ticks.tick().await;
    }
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

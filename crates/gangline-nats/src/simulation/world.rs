//! A whole cluster in virtual time: a broker, coordinators, workers, and what happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use gangline::backend::set_time_of_test;

use super::client::Moment;
use super::coordinator_host::CoordinatorHost;
use super::jetstream::{AnswerFault, Arrival, Content, Files, JetStream, Keeping, Refusal};
use super::pool::SimulatedPool;
use super::random::Random;
use super::worker_host::WorkerHost;

/// The wait of a client before it connects again.
const RECONNECT: Duration = Duration::from_millis(100);

/// Makes the worker that takes a place, with the number of the place.
pub(super) type MakeWorker<'a> = Box<dyn FnMut(&mut JetStream, Instant, usize) -> WorkerHost + 'a>;

/// Something that happens to a process or to the broker. A process has the number under which it was added.
#[derive(Debug, Clone)]
pub(super) enum Happening {
    /// Its code does not run for this time.
    Stop(usize, Duration),
    Kill(usize),
    /// It gets a SIGTERM.
    Terminate(usize),
    /// A worker is started in its place.
    Replace(usize),
    /// It has no network for this time.
    Cut(usize, Duration),
    /// Each of its connections lets only this number of messages through.
    Narrow(usize, u64),
    Answer(usize, AnswerFault),
    KillBroker(Files, Duration),
    /// The broker writes its files, for `Files::Copied`.
    CopyFiles,
    PauseBroker(Duration),
    /// The broker has no room for this time.
    Refuse(Duration),
    /// The user of a process may not send to these subjects any more.
    Deny(usize, &'static str),
    /// A stream is deleted at the broker.
    DeleteStream(&'static str),
    /// All consumers of a stream are deleted at the broker.
    DeleteConsumers(&'static str),
    /// The broker loses this number of messages of a stream, one after the other.
    LoseMessages(&'static str, usize),
    /// A message of a stream is damaged.
    DamageMessage(&'static str),
    /// A stream loses what it has, and what it confirms from now on.
    Forget(&'static str, Keeping),
    /// A stream answers nothing for this time.
    Stick(&'static str, Duration),
    /// The run in progress of a coordinator is cancelled.
    Cancel(usize),
    /// A coordinator has too few workers for its pool to be built.
    MissWorkers(usize),
    /// The password of the user of a process is changed, and its connection cut.
    LockOut(usize),
    // What ends one of the above.
    Resume(usize),
    Reconnect(usize),
    StartBroker(Files),
    EndRefusal,
    Unstick,
    /// A coordinator begins.
    Begin(usize),
}

/// A process of a cluster.
pub(super) enum Process<'a> {
    Coordinator(Box<CoordinatorHost<'a>>),
    Worker(Box<WorkerHost>),
}

struct Host<'a> {
    /// `None` once it was killed.
    process: Option<Process<'a>>,
    connection: usize,
    /// Its time in the list of the world.
    wakes: Option<Duration>,
    is_stopped: bool,
    /// What has arrived while it was stopped.
    buffered: Vec<Content>,
    /// It has no network before this time.
    cut_until: Duration,
    is_reconnecting: bool,
}

/// A cluster, at a time.
pub(super) struct World<'a> {
    pub(super) broker: JetStream,
    hosts: Vec<Host<'a>>,
    /// The processes by the times at which they want to go on.
    wakes: BTreeSet<(Duration, usize)>,
    /// The processes by their connections, of which each process has new ones.
    of_connection: Vec<usize>,
    happenings: BTreeMap<(Duration, u64), Happening>,
    count: u64,
    pub(super) now: Duration,
    base: Instant,
    random: Random,
    /// The last that has happened, if it is wanted.
    pub(super) trace: Option<Vec<String>>,
    replace: MakeWorker<'a>,
    steps: u64,
}

impl<'a> World<'a> {
    pub(super) fn new(base: Instant, random: Random, replace: MakeWorker<'a>) -> Self {
        World {
            broker: JetStream::new(),
            hosts: vec![],
            wakes: BTreeSet::new(),
            of_connection: vec![],
            happenings: BTreeMap::new(),
            count: 0,
            now: Duration::ZERO,
            base,
            random,
            trace: None,
            replace,
            steps: 0,
        }
    }

    /// Adds a process. Its number is that of those before it.
    pub(super) fn add(&mut self, process: Process<'a>) {
        let number = self.add_place();
        self.install(number, process);
    }

    /// Adds a place for a worker, which `Replace` starts. Returns its number.
    pub(super) fn add_place(&mut self) -> usize {
        self.hosts.push(Host {
            process: None,
            connection: usize::MAX,
            wakes: None,
            is_stopped: false,
            buffered: vec![],
            cut_until: Duration::ZERO,
            is_reconnecting: false,
        });
        self.hosts.len() - 1
    }

    fn install(&mut self, number: usize, process: Process<'a>) {
        let connection = process.connection();
        self.of_connection.resize(self.of_connection.len().max(connection + 1), usize::MAX);
        self.of_connection[connection] = number;
        (self.hosts[number].connection, self.hosts[number].process) = (connection, Some(process));
    }

    pub(super) fn later(&mut self, at: Duration, happening: Happening) {
        self.count += 1;
        self.happenings.insert((at, self.count), happening);
    }

    pub(super) fn processes(&self) -> impl Iterator<Item = &Process<'a>> {
        self.hosts.iter().filter_map(|host| host.process.as_ref())
    }

    /// Lets things happen until all coordinators are done. Fails if they are not at this time.
    pub(super) fn run(&mut self, limit: Duration) -> Result<(), String> {
        // Each process has steps of its own, such as its signs of life. 1,000 workers need 3,000 each.
        let most = 10_000 * (100 + self.hosts.len() as u64);
        let mut progress = 0;
        while !self.is_done() {
            let Some(next) = self.next_time().filter(|&next| next <= limit) else {
                return Err(format!("it is not over after {limit:?}: {}", self.pools()));
            };
            self.step(next);
            self.steps += 1;
            // Slow hooks and a small window take long.
            if self.steps > most
                && std::mem::replace(&mut progress, self.progress()) < self.progress()
            {
                self.steps = 0;
            }
            if self.steps > most {
                return Err(format!("it stands still at {:?}", self.now));
            }
        }
        Ok(())
    }

    /// The number of items that have an outcome.
    fn progress(&self) -> usize {
        let pools = self.processes().filter_map(|process| match process {
            Process::Coordinator(host) => host.pool.as_ref().map(SimulatedPool::progress),
            Process::Worker(_) => None,
        });
        pools.sum()
    }

    fn pools(&self) -> String {
        let pools = self.processes().filter_map(|process| match process {
            Process::Coordinator(host) => host.pool.as_ref().map(SimulatedPool::state),
            Process::Worker(_) => None,
        });
        pools.collect::<Vec<_>>().join("\n")
    }

    /// Lets things happen for this time.
    pub(super) fn run_for(&mut self, time: Duration) {
        let until = self.now + time;
        while let Some(next) = self.next_time().filter(|&next| next <= until) {
            self.step(next);
        }
        self.now = until;
    }

    /// The streams of items and results that have messages, and those that have consumers.
    pub(super) fn left_at_broker(&self) -> Vec<String> {
        let streams = self.broker.streams();
        let queues = streams.filter(|it| it.0.starts_with("s-"));
        let left = queues.filter(|(_, state, consumers)| state.messages > 0 || *consumers > 0);
        left.map(|it| format!("{it:?}")).collect()
    }

    fn is_done(&self) -> bool {
        let mut coordinators = self.processes().filter_map(|process| match process {
            Process::Coordinator(host) => Some(host.is_done),
            Process::Worker(_) => None,
        });
        coordinators.all(|is_done| is_done)
    }

    fn next_time(&self) -> Option<Duration> {
        let happening = self.happenings.first_key_value().map(|it| it.0.0);
        let wakes = self.wakes.first().map(|it| it.0);
        let times = [happening, wakes, self.broker.next_time()];
        times.into_iter().flatten().min().map(|it| it.max(self.now))
    }

    fn step(&mut self, now: Duration) {
        self.now = now;
        set_time_of_test(self.base + now);
        if self.broker.next_time().is_some_and(|next| next <= now) {
            if let Some(arrival) = self.broker.take(now) {
                self.arrive(arrival);
            }
            return;
        }
        if let Some(entry) = self.happenings.first_entry()
            && entry.key().0 <= now
        {
            let happening = entry.remove();
            return self.happen(happening);
        }
        if let Some(&(_, number)) = self.wakes.first() {
            self.with(number, |process, at| process.fire(at));
        }
    }

    fn arrive(&mut self, arrival: Arrival) {
        let Arrival { connection, content, .. } = arrival;
        let number = self.of_connection[connection];
        if self.hosts[number].connection != connection || self.hosts[number].process.is_none() {
            return;
        }
        self.note(|| format!("{number} gets {content:?}"));
        if content == Content::Disconnected {
            let host = &mut self.hosts[number];
            if !std::mem::replace(&mut host.is_reconnecting, true) {
                let at = (self.now + RECONNECT + self.random.time(RECONNECT)).max(host.cut_until);
                self.later(at, Happening::Reconnect(number));
            }
        }
        let host = &mut self.hosts[number];
        match host.is_stopped {
            true => host.buffered.push(content),
            false => self.with(number, |process, at| process.arrive(content, at)),
        }
    }

    fn happen(&mut self, happening: Happening) {
        self.note(|| format!("--- {happening:?}"));
        let now = self.now;
        match happening {
            Happening::Stop(number, time) => {
                if self.hosts[number].process.is_some() && !self.hosts[number].is_stopped {
                    self.hosts[number].is_stopped = true;
                    self.note_wake(number);
                    self.later(now + time, Happening::Resume(number));
                }
            }
            Happening::Resume(number) => {
                self.hosts[number].is_stopped = false;
                let buffered = std::mem::take(&mut self.hosts[number].buffered);
                for content in buffered {
                    self.with(number, |process, at| process.arrive(content, at));
                }
                self.note_wake(number);
            }
            Happening::Kill(number) => self.end(number),
            Happening::Terminate(number) => {
                if let Some(Process::Worker(_)) = &self.hosts[number].process {
                    self.with(number, |process, at| {
                        if let Process::Worker(worker) = process {
                            worker.terminate(at);
                        }
                    });
                }
            }
            Happening::Replace(number) => {
                if self.hosts[number].process.is_some() {
                    // One that was told to end finishes its items first.
                    self.later(now + Duration::from_secs(1), Happening::Replace(number));
                } else {
                    let instant = self.base + now;
                    let mut worker = (self.replace)(&mut self.broker, instant, number);
                    worker.client.health.is_connected =
                        self.broker.is_connected(worker.client.connection);
                    let is_connected = worker.client.health.is_connected;
                    if !is_connected {
                        self.later(now + RECONNECT, Happening::Reconnect(number));
                    }
                    let host = &mut self.hosts[number];
                    (host.is_stopped, host.is_reconnecting) = (false, !is_connected);
                    host.buffered.clear();
                    self.install(number, Process::Worker(Box::new(worker)));
                    self.with(number, |process, at| process.start(at));
                }
            }
            Happening::Cut(number, time) => {
                let host = &mut self.hosts[number];
                host.cut_until = host.cut_until.max(now + time);
                self.broker.cut(now, host.connection);
            }
            Happening::Narrow(number, most) => {
                self.broker.narrow(self.hosts[number].connection, most);
            }
            Happening::Reconnect(number) => self.reconnect(number),
            Happening::Answer(number, fault) => {
                self.broker.fault_next_answer(self.hosts[number].connection, fault);
            }
            Happening::KillBroker(files, time) => {
                self.broker.kill(now);
                self.later(now + time, Happening::StartBroker(files));
            }
            Happening::StartBroker(files) => self.broker.start(now, files),
            Happening::CopyFiles => self.broker.copy_files(),
            Happening::PauseBroker(time) => self.broker.pause(now, now + time),
            Happening::Refuse(time) => {
                let said = "insufficient resources".to_owned();
                self.broker.refuse(Some(Refusal { code: 10023, said }));
                self.later(now + time, Happening::EndRefusal);
            }
            Happening::EndRefusal => self.broker.refuse(None),
            Happening::Deny(number, subjects) => {
                self.broker.deny(self.hosts[number].connection, subjects);
            }
            Happening::LockOut(number) => {
                self.broker.lock_out(self.hosts[number].connection);
                self.broker.cut(now, self.hosts[number].connection);
            }
            Happening::DeleteStream(name) => self.broker.delete_stream(now, name),
            Happening::DeleteConsumers(stream) => self.broker.delete_consumers(now, stream),
            Happening::LoseMessages(stream, count) => {
                self.broker.lose_messages(stream, self.random.below(u64::MAX), count);
            }
            Happening::DamageMessage(stream) => {
                self.broker.damage_message(stream, self.random.below(u64::MAX));
            }
            Happening::Forget(stream, keeping) => self.broker.set_keeping(stream, keeping),
            Happening::Stick(stream, time) => {
                self.broker.set_stuck(Some(stream));
                self.later(now + time, Happening::Unstick);
            }
            Happening::Unstick => self.broker.set_stuck(None),
            Happening::Cancel(number) => self.with(number, |process, at| {
                if let Process::Coordinator(host) = process {
                    host.cancel(at);
                }
            }),
            Happening::MissWorkers(number) => self.with(number, |process, at| {
                if let Process::Coordinator(host) = process {
                    host.miss_workers(at);
                }
            }),
            Happening::Begin(number) => self.with(number, |process, at| process.start(at)),
        }
    }

    fn reconnect(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        if host.process.is_none() {
            return;
        }
        if self.now >= host.cut_until && self.broker.restore(self.now, host.connection) {
            host.is_reconnecting = false;
            // A stopped process finds the connection later.
            match host.is_stopped {
                true => host.is_reconnecting = true,
                false => return self.with(number, |process, at| process.restored(at)),
            }
        }
        if self.broker.is_locked_out(self.hosts[number].connection) {
            self.with(number, Process::lock_out);
        }
        let at = self.hosts[number].cut_until.max(self.now + RECONNECT * 2);
        self.later(at, Happening::Reconnect(number));
    }

    /// Calls a process, and removes it if it has ended.
    fn with(&mut self, number: usize, call: impl FnOnce(&mut Process<'a>, &mut Moment<'_>)) {
        let instant = self.base + self.now;
        set_time_of_test(instant);
        let mut at = Moment { broker: &mut self.broker, now: self.now, instant };
        let Some(process) = &mut self.hosts[number].process else { return };
        call(process, &mut at);
        if let Process::Worker(worker) = process
            && worker.is_over
        {
            self.note(|| format!("{number} ends"));
            return self.end(number);
        }
        self.note_wake(number);
    }

    /// Keeps the list of times.
    fn note_wake(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        let time = match &host.process {
            Some(process) if !host.is_stopped => process.next_time(),
            _ => None,
        };
        let before = std::mem::replace(&mut host.wakes, time);
        if before != time {
            before.into_iter().for_each(|it| _ = self.wakes.remove(&(it, number)));
            self.wakes.extend(time.map(|it| (it, number)));
        }
    }

    fn end(&mut self, number: usize) {
        let host = &mut self.hosts[number];
        if host.process.take().is_some() {
            self.broker.cut(self.now, host.connection);
        }
        self.note_wake(number);
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{now:?} {}", line()));
        }
    }
}

impl Process<'_> {
    fn connection(&self) -> usize {
        match self {
            Process::Coordinator(host) => host.client.connection,
            Process::Worker(host) => host.client.connection,
        }
    }

    fn next_time(&self) -> Option<Duration> {
        match self {
            Process::Coordinator(host) => host.client.next_time().filter(|_| !host.is_done),
            Process::Worker(host) => host.client.next_time(),
        }
    }

    fn start(&mut self, at: &mut Moment<'_>) {
        match self {
            Process::Coordinator(host) => host.start(at),
            Process::Worker(host) => host.start(at),
        }
    }

    fn arrive(&mut self, content: Content, at: &mut Moment<'_>) {
        match self {
            Process::Coordinator(host) => host.arrive(content, at),
            Process::Worker(host) => host.arrive(content, at),
        }
    }

    fn fire(&mut self, at: &mut Moment<'_>) {
        match self {
            Process::Coordinator(host) => host.fire(at),
            Process::Worker(host) => host.fire(at),
        }
    }

    fn lock_out(&mut self, at: &mut Moment<'_>) {
        let (said, instant) = ("authorization violation".to_owned(), at.instant);
        match self {
            Process::Coordinator(host) => host.client.note_locked_out(said, instant),
            Process::Worker(host) => host.client.note_locked_out(said, instant),
        }
    }

    fn restored(&mut self, at: &mut Moment<'_>) {
        match self {
            Process::Coordinator(host) => host.restored(at),
            Process::Worker(host) => host.restored(at),
        }
    }
}

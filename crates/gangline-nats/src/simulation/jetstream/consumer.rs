//! A consumer: which messages of a stream were delivered, and which pulls wait for more.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::messages::StoredMessages;
use super::network::{Network, Timer};
use super::operation::{
    Acknowledgement, ConnectionId, ConsumerConfig, ConsumerState, Content, Delivery, Place, Pull,
    PullStatus,
};

/// An unused consumer of a watch is removed after this time.
const WATCH_AGE: Duration = Duration::from_secs(5);
/// How long the client of a watch hears no heartbeat before it takes the watch for ended.
const WATCH_SILENCE: Duration = Duration::from_secs(10);
/// How late a broker removes an unused consumer: it takes between this time and a second.
const UNUSED_DELAY: Duration = Duration::from_millis(100);

#[derive(Debug, Clone)]
pub(super) struct StreamConsumer {
    pub(super) stream: Arc<str>,
    pub(super) config: ConsumerConfig,
    /// Tells it from others of the same name.
    pub(super) number: u64,
    target: Target,
    progress: Progress,
    /// The messages to deliver again.
    again: VecDeque<u64>,
    /// When a timer for acknowledgements is set for.
    checked_at: Option<Duration>,
    /// When a client last asked, or was sent something.
    used: Duration,
    pulls: u64,
    saved: Saved,
}

/// Where messages go.
#[derive(Debug, Clone)]
enum Target {
    /// To pulls, in their order.
    Pulls(VecDeque<WaitingPull>),
    /// To an inbox, and nothing is acknowledged.
    Inbox { connection: ConnectionId, subscription: u64 },
}

#[derive(Debug, Clone)]
struct WaitingPull {
    number: u64,
    connection: ConnectionId,
    subscription: u64,
    missing: u32,
    has_some: bool,
    no_wait: bool,
    expires: Option<Duration>,
    heartbeat: Option<Duration>,
    /// When the next heartbeat is due.
    beats: Duration,
}

/// What the broker keeps in a file.
#[derive(Debug, Clone, Default)]
struct Progress {
    /// The next message to look at.
    next: u64,
    /// The number of deliveries.
    deliveries: u64,
    /// All deliveries up to this one are acknowledged.
    floor: u64,
    pending: BTreeMap<u64, Pending>,
    /// How often messages were delivered again.
    redelivered: HashMap<u64, u64>,
}

#[derive(Debug, Clone, Copy)]
struct Pending {
    delivery: u64,
    due: Duration,
}

/// The progress in the file, which may be behind.
#[derive(Debug, Clone, Default)]
struct Saved {
    at: Duration,
    progress: Progress,
}

impl StreamConsumer {
    pub(super) fn new(
        stream: Arc<str>,
        config: ConsumerConfig,
        number: u64,
        network: &mut Network,
    ) -> Self {
        let progress = Progress { next: 1, ..Progress::default() };
        let consumer = StreamConsumer {
            stream,
            config,
            number,
            target: Target::Pulls(VecDeque::new()),
            checked_at: None,
            again: VecDeque::new(),
            used: network.now,
            pulls: 0,
            saved: Saved { at: network.now, progress: progress.clone() },
            progress,
        };
        consumer.watch_use(network);
        consumer
    }

    /// One that sends to an inbox.
    pub(super) fn watch(mut self, connection: ConnectionId, subscription: u64) -> Self {
        self.target = Target::Inbox { connection, subscription };
        self
    }

    pub(super) fn is_of(&self, client: ConnectionId) -> bool {
        matches!(self.target, Target::Inbox { connection, .. } if connection == client)
    }

    pub(super) fn is_durable(&self) -> bool {
        matches!(self.target, Target::Pulls(_))
    }

    /// Begins anew with what is in its file.
    pub(super) fn restart(&mut self, number: u64, is_behind: bool, network: &mut Network) {
        self.number = number;
        self.target = Target::Pulls(VecDeque::new());
        self.again.clear();
        (self.checked_at, self.used) = (None, network.now);
        if is_behind {
            self.progress = self.saved.progress.clone();
        }
        self.watch_use(network);
        let first = self.progress.pending.values().map(|it| it.due).min();
        if let Some(due) = first {
            // The broker looks at them soon after its start.
            let soon = network.now + self.config.ack_wait.min(Duration::from_millis(500));
            self.check_at(due.max(soon), network);
        }
    }

    /// Writes the file if it is older than this. Called before a change.
    pub(super) fn save(&mut self, age: Duration, now: Duration) {
        if !age.is_zero() && now >= self.saved.at + age {
            self.saved = Saved { at: now, progress: self.progress.clone() };
        }
    }

    pub(super) fn state(&self, messages: &StoredMessages) -> ConsumerState {
        let Progress { next, ref pending, .. } = self.progress;
        let waiting = match &self.target {
            Target::Pulls(waiting) => waiting.len(),
            Target::Inbox { .. } => 0,
        };
        ConsumerState {
            name: self.config.name.clone(),
            filter: self.config.filter.clone(),
            num_pending: messages.count_from(next, self.config.filter.as_deref()),
            num_ack_pending: pending.len() as u64,
            num_waiting: waiting as u64,
            delivered: next - 1,
        }
    }

    /// Takes a pull, or says why not.
    pub(super) fn pull(
        &mut self,
        connection: ConnectionId,
        pull: &Pull,
        messages: &StoredMessages,
        network: &mut Network,
    ) {
        self.used = network.now;
        let subscription = pull.subscription;
        if let Some(status) = self.refusal(pull, messages, network) {
            return network.send(connection, Content::Status { subscription, status });
        }
        self.pulls += 1;
        let number = self.pulls;
        let now = network.now;
        let expires = pull.expires.map(|time| now + time);
        let beats = pull.heartbeat.map(|time| now + time);
        let Target::Pulls(waiting) = &mut self.target else { return };
        waiting.push_back(WaitingPull {
            number,
            connection,
            subscription,
            missing: pull.batch,
            has_some: false,
            no_wait: pull.no_wait,
            expires,
            heartbeat: pull.heartbeat,
            beats: beats.unwrap_or_default(),
        });
        for at in [expires, beats].into_iter().flatten() {
            let (stream, consumer) = (self.stream.clone(), self.number);
            network.set(at, Timer::Pull { stream, consumer, pull: number });
        }
        self.deliver(messages, network);
        if pull.no_wait {
            self.end_pulls(network, |it, _| it.no_wait && it.has_some);
        }
    }

    fn refusal(
        &mut self,
        pull: &Pull,
        messages: &StoredMessages,
        network: &mut Network,
    ) -> Option<PullStatus> {
        if self.waiting().len() >= self.config.max_waiting {
            self.end_pulls(network, |_, _| false);
        }
        let most = self.config.max_waiting;
        if pull.no_wait {
            let filter = self.config.filter.as_deref();
            let there = messages.count_from(self.progress.next, filter) + self.again.len() as u64;
            let wanted: u64 = self.waiting().iter().map(|it| u64::from(it.missing)).sum();
            if there == 0 && pull.expires.is_none() {
                return Some(PullStatus::NoMessages);
            }
            if there > 0 && there < wanted {
                return Some(PullStatus::RequestsPending);
            }
        }
        (self.waiting().len() >= most).then_some(PullStatus::TooManyWaiting)
    }

    fn waiting(&mut self) -> &mut VecDeque<WaitingPull> {
        match &mut self.target {
            Target::Pulls(waiting) => waiting,
            Target::Inbox { .. } => unreachable!("a watch has no name that a pull could give"),
        }
    }

    /// Removes the pulls without a listener, and ends those that have expired or are over.
    fn end_pulls(
        &mut self,
        network: &mut Network,
        is_over: impl Fn(&WaitingPull, Duration) -> bool,
    ) {
        let Target::Pulls(waiting) = &mut self.target else { return };
        let now = network.now;
        waiting.retain(|it| {
            let WaitingPull { connection, subscription, .. } = *it;
            if it.expires.is_some_and(|at| at <= now) || is_over(it, now) {
                let status = PullStatus::Expired;
                network.send(connection, Content::Status { subscription, status });
                return false;
            }
            network.has_interest(connection, subscription)
        });
    }

    /// Ends a pull that has expired, or sends its heartbeat.
    pub(super) fn look_at_pull(&mut self, number: u64, network: &mut Network) {
        let Target::Pulls(waiting) = &mut self.target else { return };
        let Some(index) = waiting.iter().position(|it| it.number == number) else { return };
        let (now, it) = (network.now, &mut waiting[index]);
        let WaitingPull { connection, subscription, .. } = *it;
        if it.expires.is_some_and(|at| at <= now) {
            waiting.remove(index);
            let status = PullStatus::Expired;
            return network.send(connection, Content::Status { subscription, status });
        }
        let Some(heartbeat) = it.heartbeat else { return };
        if it.beats <= now {
            it.beats = now + heartbeat;
            let status = PullStatus::Heartbeat;
            network.send(connection, Content::Status { subscription, status });
        }
        let (at, stream, consumer) = (it.beats, self.stream.clone(), self.number);
        network.set(at, Timer::Pull { stream, consumer, pull: number });
    }

    /// Tells those that wait that this consumer is no more. The broker tells a watch nothing; its client misses the
    /// heartbeats.
    pub(super) fn end(self, network: &mut Network) {
        let status = PullStatus::ConsumerDeleted;
        match self.target {
            Target::Pulls(waiting) => {
                for WaitingPull { connection, subscription, .. } in waiting {
                    network.send(connection, Content::Status { subscription, status });
                }
            }
            Target::Inbox { connection, subscription } => {
                network.send_late(
                    WATCH_SILENCE,
                    connection,
                    Content::Status { subscription, status },
                );
            }
        }
    }

    /// Sends the messages to those that wait for them.
    pub(super) fn deliver(&mut self, messages: &StoredMessages, network: &mut Network) {
        loop {
            match &self.target {
                Target::Pulls(waiting) if waiting.is_empty() => return,
                Target::Inbox { connection, subscription }
                    if !network.has_interest(*connection, *subscription) =>
                {
                    return;
                }
                Target::Pulls(_) | Target::Inbox { .. } => {}
            }
            let Some((sequence, deliveries)) = self.next(messages) else { return };
            let Some((connection, subscription)) = self.next_listener(network) else {
                // As the broker does, also if the message comes again.
                self.progress.next -= 1;
                return;
            };
            self.progress.deliveries += 1;
            let delivery = self.progress.deliveries;
            if self.is_durable() {
                self.used = network.now;
                let due = network.now + self.config.ack_wait;
                let pending = Pending { delivery, due };
                self.progress.pending.entry(sequence).or_insert(pending).due = due;
                self.check_at(due, network);
            }
            let stored = messages.get(sequence).expect("`next` has found it");
            let place = Place {
                stream: self.stream.clone(),
                consumer: self.config.name.clone(),
                sequence,
                consumer_sequence: delivery,
                deliveries,
                stored_at: stored.at,
            };
            let (message, place) = (stored.message.clone(), Some(place));
            let message = Delivery { message, reply: None, place };
            network.send(connection, Content::Message { subscription, message });
        }
    }

    /// The next message to deliver, and the number of its deliveries. Like the broker, it stops at a message that is to
    /// come again and is gone, until something else happens.
    fn next(&mut self, messages: &StoredMessages) -> Option<(u64, u64)> {
        let progress = &mut self.progress;
        if let Some(sequence) = self.again.pop_front() {
            let count = progress.redelivered.entry(sequence).or_default();
            *count += 1;
            return messages.get(sequence).map(|_| (sequence, *count + 1));
        }
        if self.config.max_ack_pending.is_some_and(|most| progress.pending.len() >= most) {
            return None;
        }
        let found = messages.next_from(progress.next, self.config.filter.as_deref());
        progress.next = found.unwrap_or(messages.last()).max(progress.next - 1) + 1;
        found.map(|sequence| (sequence, 1))
    }

    fn next_listener(&mut self, network: &Network) -> Option<(ConnectionId, u64)> {
        let waiting = match &mut self.target {
            Target::Pulls(waiting) => waiting,
            Target::Inbox { connection, subscription } => {
                return Some((*connection, *subscription));
            }
        };
        loop {
            let mut pull = waiting.pop_front()?;
            let WaitingPull { connection, subscription, expires, .. } = pull;
            if expires.is_some_and(|at| at <= network.now)
                || !network.has_interest(connection, subscription)
            {
                continue;
            }
            pull.missing -= 1;
            pull.has_some = true;
            pull.beats = network.now + pull.heartbeat.unwrap_or_default();
            if pull.missing > 0 {
                waiting.push_back(pull);
            }
            return Some((connection, subscription));
        }
    }

    /// Takes an acknowledgement. Returns whether it is of a message that is done.
    pub(super) fn acknowledge(
        &mut self,
        place: &Place,
        kind: Acknowledgement,
        messages: &StoredMessages,
        network: &mut Network,
    ) -> bool {
        let Place { sequence, consumer_sequence, .. } = *place;
        let progress = &mut self.progress;
        let is_old = consumer_sequence <= progress.floor
            || consumer_sequence > progress.deliveries + 1
            || !progress.pending.contains_key(&sequence);
        match kind {
            Acknowledgement::Done => {
                self.conclude(sequence, consumer_sequence);
                return true;
            }
            Acknowledgement::Progress => {
                let due = network.now + self.config.ack_wait;
                progress.pending.entry(sequence).and_modify(|it| it.due = due);
            }
            Acknowledgement::Again(_) if is_old => {}
            Acknowledgement::Again(Some(delay)) => {
                let due = network.now + delay;
                progress.pending.entry(sequence).and_modify(|it| it.due = due);
                self.again.retain(|it| *it != sequence);
                self.check_at(due, network);
            }
            Acknowledgement::Again(None) => {
                if !self.again.contains(&sequence) {
                    self.again.push_back(sequence);
                }
                self.deliver(messages, network);
            }
        }
        false
    }

    /// Forgets a message that was removed from the stream.
    pub(super) fn forget(&mut self, sequence: u64) {
        if let Some(pending) = self.progress.pending.get(&sequence) {
            self.conclude(sequence, pending.delivery);
        }
    }

    fn conclude(&mut self, sequence: u64, delivery: u64) {
        let progress = &mut self.progress;
        let delivery = progress.pending.remove(&sequence).map_or(delivery, |it| it.delivery);
        if progress.pending.is_empty() {
            progress.floor = progress.deliveries;
        } else if delivery == progress.floor + 1 {
            let after = progress.pending.range(sequence + 1..).next();
            progress.floor = after.map_or(delivery, |(_, it)| it.delivery - 1);
        }
        progress.redelivered.remove(&sequence);
        self.again.retain(|it| *it != sequence);
    }

    /// Delivers again what was not acknowledged in time.
    pub(super) fn check(&mut self, messages: &StoredMessages, network: &mut Network) {
        let now = network.now;
        // Another timer was set since. A broker that was stopped is late.
        if self.checked_at.is_none_or(|at| at > now) {
            return;
        }
        self.checked_at = None;
        let (first, ack_wait) = (messages.first(), self.config.ack_wait);
        let gone = self.progress.pending.keys().take_while(|it| **it < first);
        for sequence in gone.copied().collect::<Vec<_>>() {
            self.progress.pending.remove(&sequence);
            self.progress.redelivered.remove(&sequence);
            self.again.retain(|it| *it != sequence);
        }
        for (sequence, pending) in &mut self.progress.pending {
            if pending.due <= now {
                pending.due = now + ack_wait;
                if !self.again.contains(sequence) {
                    self.again.push_back(*sequence);
                }
            }
        }
        if let Some(due) = self.progress.pending.values().map(|it| it.due).min() {
            self.check_at(due, network);
        }
        self.deliver(messages, network);
    }

    fn check_at(&mut self, due: Duration, network: &mut Network) {
        if self.checked_at.is_none_or(|at| due < at) {
            self.checked_at = Some(due);
            let (stream, consumer) = (self.stream.clone(), self.number);
            network.set(due, Timer::Acknowledgement { stream, consumer });
        }
    }

    /// Takes it that messages up to `next` were removed from the stream.
    pub(super) fn purge(&mut self, next: u64) {
        let progress = &mut self.progress;
        progress.next = progress.next.max(next);
        progress.floor = progress.deliveries;
        progress.pending.clear();
        self.again.retain(|it| *it >= progress.next);
    }

    /// Sees to it that the consumer is removed once it is unused for too long.
    pub(super) fn watch_use(&self, network: &mut Network) {
        let age = match &self.target {
            Target::Pulls(_) => self.config.inactive_threshold.map(|age| age + UNUSED_DELAY),
            Target::Inbox { .. } => Some(WATCH_AGE),
        };
        if let Some(age) = age {
            let at = network.now.max(self.used + age);
            let at = if self.is_durable() { at } else { network.now + age };
            let (stream, consumer) = (self.stream.clone(), self.number);
            network.set(at, Timer::Unused { stream, consumer });
        }
    }

    /// Whether it was unused for too long. Otherwise that is looked at again.
    pub(super) fn is_unused(&mut self, network: &mut Network) -> bool {
        if let Target::Inbox { connection, subscription } = self.target {
            return !network.has_interest(connection, subscription);
        }
        let Some(age) = self.config.inactive_threshold else { return false };
        if network.now.saturating_sub(self.used) > age {
            self.end_pulls(network, |_, _| false);
            if self.waiting().is_empty() {
                return true;
            }
            self.used = network.now;
        }
        self.watch_use(network);
        false
    }
}

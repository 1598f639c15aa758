//! A stream: its messages, the ids of those that it has had, and its consumers.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use super::consumer::StreamConsumer;
use super::messages::{StoredMessages, is_wide};
use super::network::{Network, Timer};
use super::operation::{
    Answer, ConnectionId, ConsumerConfig, Discard, Marker, Message, Refusal, Retention,
    StreamConfig, matches,
};

#[derive(Debug, Clone)]
pub(super) struct MessageStream {
    pub(super) config: StreamConfig,
    pub(super) messages: StoredMessages,
    ids: HashMap<Arc<str>, (u64, Duration)>,
    /// The ids by their times.
    id_times: VecDeque<(Duration, Arc<str>)>,
    pub(super) consumers: BTreeMap<u64, StreamConsumer>,
    names: BTreeMap<Arc<str>, u64>,
    by_filter: HashMap<Arc<str>, Vec<u64>>,
    /// The consumers of more than one subject.
    wide: Vec<u64>,
    /// How old the files of consumers get.
    pub(super) flush_age: Duration,
    /// Whether it keeps what it confirms.
    pub(super) keeping: Keeping,
}

/// Whether a stream keeps the messages that it confirms. One of nats-server 2.9 with a damaged file may not, until it is emptied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Keeping {
    All,
    /// Nothing until all is purged.
    OnceEmptied,
    Nothing,
}

impl MessageStream {
    pub(super) fn new(config: StreamConfig, flush_age: Duration) -> Self {
        MessageStream {
            config,
            messages: StoredMessages::default(),
            ids: HashMap::new(),
            id_times: VecDeque::new(),
            consumers: BTreeMap::new(),
            names: BTreeMap::new(),
            by_filter: HashMap::new(),
            wide: vec![],
            flush_age,
            keeping: Keeping::All,
        }
    }

    pub(super) fn has_subject(&self, subject: &str) -> bool {
        self.config.subjects.iter().any(|it| matches(it, subject))
    }

    /// Stores a message and delivers it to those that wait. `answer` is told first, as the broker does.
    pub(super) fn store(
        &mut self,
        message: Message,
        network: &mut Network,
        answer: impl FnOnce(&mut Network, Answer),
    ) {
        let subject = message.subject.clone();
        let rolls_up = message.headers.marker == Some(Marker::Purge);
        let sequence = match self.accepted(message, network) {
            Ok(sequence) => sequence,
            Err(refusal) => return answer(network, refusal),
        };
        if rolls_up {
            self.purge_before(&subject, sequence);
        }
        answer(network, Answer::Stored { sequence, is_duplicate: false });
        if self.keeping != Keeping::All {
            self.messages.remove(sequence);
            return;
        }
        let mut interested = self.by_filter.get(&subject).cloned().unwrap_or_default();
        interested.extend(&self.wide);
        for number in interested {
            let consumer = self.consumers.get_mut(&number).expect("its filter is known");
            consumer.save(self.flush_age, network.now);
            consumer.deliver(&self.messages, network);
        }
    }

    fn accepted(&mut self, message: Message, network: &mut Network) -> Result<u64, Answer> {
        let now = network.now;
        self.forget_ids(now);
        let id = message.headers.id.clone();
        if let Some((sequence, _)) = id.as_ref().and_then(|id| self.ids.get(id)) {
            return Err(Answer::Stored { sequence: *sequence, is_duplicate: true });
        }
        let of_subject = self.messages.of_subject(&message.subject);
        let last = of_subject.and_then(VecDeque::back).copied().unwrap_or(0);
        if message.headers.expected_last.is_some_and(|expected| expected != last) {
            return Err(refused(10071, format!("wrong last sequence: {last}")));
        }
        if message.headers.marker == Some(Marker::Purge) && !self.config.allow_rollup {
            return Err(refused(10111, "rollup failed: rollup not permitted"));
        }
        let most = self.config.max_messages_per_subject;
        let count = of_subject.map_or(0, VecDeque::len) as u64;
        let replaced = of_subject
            .and_then(VecDeque::front)
            .copied()
            .filter(|_| most.is_some_and(|most| count >= most));
        let bytes = message.headers.bytes() + message.payload.len() as u64;
        let is_full = |most| self.messages.bytes() + bytes >= most;
        let makes_room = replaced
            .and_then(|it| self.messages.get(it))
            .is_some_and(|it| it.message.stored_bytes() > bytes);
        if self.config.discard == Discard::New
            && self.config.max_bytes.is_some_and(is_full)
            && !makes_room
        {
            return Err(refused(10077, "maximum bytes exceeded"));
        }
        let sequence = self.messages.add(message, now);
        replaced.into_iter().for_each(|it| self.remove(it));
        while self.config.max_bytes.is_some_and(|most| self.messages.bytes() > most) {
            self.remove(self.messages.first());
        }
        if let Some(id) = id {
            self.ids.insert(id.clone(), (sequence, now));
            self.id_times.push_back((now, id));
        }
        if let Some(age) = self.config.max_age
            && self.messages.first() == sequence
        {
            network.set(now + age, Timer::Age { stream: self.config.name.clone() });
        }
        Ok(sequence)
    }

    fn forget_ids(&mut self, now: Duration) {
        let window = self.config.duplicate_window;
        while let Some((at, id)) = self.id_times.front() {
            if *at + window > now {
                return;
            }
            if self.ids.get(id).is_some_and(|it| it.1 == *at) {
                self.ids.remove(id);
            }
            self.id_times.pop_front();
        }
    }

    /// Removes messages that are too old.
    pub(super) fn age(&mut self, network: &mut Network) {
        let Some(age) = self.config.max_age else { return };
        while let Some((sequence, at)) = self.messages.oldest() {
            if at + age > network.now {
                return network.set(at + age, Timer::Age { stream: self.config.name.clone() });
            }
            self.remove(sequence);
        }
    }

    /// Removes a message, and has consumers forget it.
    pub(super) fn remove(&mut self, sequence: u64) {
        let Some(stored) = self.messages.get(sequence) else { return };
        let of_subject = self.by_filter.get(&stored.message.subject).into_iter().flatten();
        for number in of_subject.chain(&self.wide) {
            let consumer = self.consumers.get_mut(number);
            consumer.expect("its filter is known").forget(sequence);
        }
        self.messages.remove(sequence);
    }

    pub(super) fn delete(&mut self, sequence: u64) -> Answer {
        if self.config.deny_delete {
            return refused(10057, "message delete not permitted");
        }
        if self.messages.get(sequence).is_none() {
            return refused(10043, format!("sequence {sequence} not found"));
        }
        self.remove(sequence);
        Answer::Done
    }

    /// Removes the messages with a subject.
    pub(super) fn purge(&mut self, subject: &str) -> u64 {
        if self.keeping == Keeping::OnceEmptied
            && self.config.subjects.iter().any(|it| **it == *subject)
        {
            self.keeping = Keeping::All;
        }
        self.purge_before(subject, u64::MAX)
    }

    fn purge_before(&mut self, subject: &str, before: u64) -> u64 {
        let gone: Vec<u64> = if is_wide(subject) {
            let all = self.messages.iter().filter(|it| matches(subject, &it.1.message.subject));
            all.map(|it| it.0).collect()
        } else {
            self.messages.of_subject(subject).into_iter().flatten().copied().collect()
        };
        let gone: Vec<u64> = gone.into_iter().take_while(|it| *it < before).collect();
        for sequence in &gone {
            self.messages.remove(*sequence);
        }
        let next = self.messages.next_from(1, Some(subject)).unwrap_or(self.messages.last() + 1);
        for consumer in self.consumers.values_mut() {
            // A consumer of one of the subjects of a wider purge keeps what it has pending, as at the broker.
            if consumer.config.filter.as_ref().is_none_or(|it| matches(it, subject)) {
                consumer.purge(next);
            }
        }
        gone.len() as u64
    }

    /// Makes a durable consumer, or changes what may change of one.
    pub(super) fn make_consumer(
        &mut self,
        config: ConsumerConfig,
        number: u64,
        network: &mut Network,
    ) -> Answer {
        if let Some(there) = self.named(&config.name) {
            if there.config.max_waiting != config.max_waiting {
                return refused(10012, "max waiting can not be updated");
            }
            let number = there.number;
            let mut consumer = self.take(number).expect("it is there");
            let name = config.name.clone();
            consumer.config = config;
            consumer.watch_use(network);
            self.insert(consumer);
            return self.consumer_state(&name);
        }
        if self.config.retention == Retention::WorkQueue && !self.consumers.is_empty() {
            let Some(filter) = &config.filter else {
                let said = "multiple non-filtered consumers not allowed on workqueue stream";
                return refused(10099, said);
            };
            let mut others = self.consumers.values().map(|it| it.config.filter.as_deref());
            let overlaps =
                |it: Option<&str>| it.is_none_or(|it| matches(it, filter) || matches(filter, it));
            if others.any(overlaps) {
                return refused(10100, "filtered consumer not unique on workqueue stream");
            }
        }
        let name = config.name.clone();
        let stream = self.config.name.clone();
        self.insert(StreamConsumer::new(stream, config, number, network));
        self.consumer_state(&name)
    }

    /// Makes a consumer that sends all to an inbox.
    pub(super) fn watch(
        &mut self,
        subject: Arc<str>,
        (connection, subscription): (ConnectionId, u64),
        number: u64,
        network: &mut Network,
    ) -> Answer {
        let name: Arc<str> = format!("watch-{number}").into();
        let config = ConsumerConfig::new(&name, &subject, Duration::ZERO);
        let stream = self.config.name.clone();
        let consumer = StreamConsumer::new(stream, config, number, network);
        self.insert(consumer.watch(connection, subscription));
        self.consumer_state(&name)
    }

    /// Delivers what a consumer has, as after its creation.
    pub(super) fn deliver(&mut self, number: u64, network: &mut Network) {
        if let Some(consumer) = self.consumers.get_mut(&number) {
            consumer.deliver(&self.messages, network);
        }
    }

    fn insert(&mut self, consumer: StreamConsumer) {
        let number = consumer.number;
        self.names.insert(consumer.config.name.clone(), number);
        match &consumer.config.filter {
            Some(filter) if !is_wide(filter) => {
                self.by_filter.entry(filter.clone()).or_default().push(number);
            }
            _ => self.wide.push(number),
        }
        self.consumers.insert(number, consumer);
    }

    pub(super) fn delete_consumer(&mut self, name: &str, network: &mut Network) -> Answer {
        let number = self.names.get(name).copied();
        match number.and_then(|number| self.take(number)) {
            Some(consumer) => {
                consumer.end(network);
                Answer::Done
            }
            None => refused(10014, "consumer not found"),
        }
    }

    fn take(&mut self, number: u64) -> Option<StreamConsumer> {
        let consumer = self.consumers.remove(&number)?;
        self.names.remove(&consumer.config.name);
        self.wide.retain(|it| *it != number);
        if let Some(filter) = &consumer.config.filter
            && let Some(others) = self.by_filter.get_mut(filter)
        {
            others.retain(|it| *it != number);
            if others.is_empty() {
                self.by_filter.remove(filter);
            }
        }
        Some(consumer)
    }

    pub(super) fn named(&mut self, name: &str) -> Option<&mut StreamConsumer> {
        self.consumers.get_mut(self.names.get(name)?)
    }

    pub(super) fn consumer_state(&self, name: &str) -> Answer {
        let consumer = self.names.get(name).and_then(|number| self.consumers.get(number));
        let state = consumer.map(|it| Answer::Consumer(it.state(&self.messages)));
        state.unwrap_or_else(|| refused(10014, "consumer not found"))
    }

    pub(super) fn consumer_names(&self) -> Answer {
        Answer::Names(self.names.keys().cloned().collect())
    }

    /// Calls `work` with a consumer and the messages, unless the consumer is gone.
    pub(super) fn with<T>(
        &mut self,
        number: u64,
        network: &mut Network,
        work: impl FnOnce(&mut StreamConsumer, &StoredMessages, &mut Network) -> T,
    ) -> Option<T> {
        let consumer = self.consumers.get_mut(&number)?;
        consumer.save(self.flush_age, network.now);
        Some(work(consumer, &self.messages, network))
    }

    pub(super) fn remove_if_unused(&mut self, number: u64, network: &mut Network) {
        if self.consumers.get_mut(&number).is_some_and(|it| it.is_unused(network)) {
            self.take(number);
        }
    }

    /// The listeners of a client have come or gone: watches go on, or are removed later.
    pub(super) fn note_interest(&mut self, connection: ConnectionId, network: &mut Network) {
        for consumer in self.consumers.values_mut().filter(|it| it.is_of(connection)) {
            consumer.watch_use(network);
            consumer.deliver(&self.messages, network);
        }
    }

    /// Begins anew with what is in the files. `lost` messages and what is behind in consumers are not.
    pub(super) fn restart(
        &mut self,
        lost: u64,
        is_behind: bool,
        mut number: impl FnMut() -> u64,
        network: &mut Network,
    ) {
        self.messages.forget_last(lost);
        self.ids.clear();
        self.id_times.clear();
        for (sequence, stored) in self.messages.iter() {
            if let Some(id) = &stored.message.headers.id {
                self.ids.insert(id.clone(), (sequence, stored.at));
                self.id_times.push_back((stored.at, id.clone()));
            }
        }
        self.names.clear();
        self.by_filter.clear();
        self.wide.clear();
        for mut consumer in std::mem::take(&mut self.consumers).into_values() {
            if consumer.is_durable() {
                let is_behind = is_behind && !self.flush_age.is_zero();
                consumer.restart(number(), is_behind, network);
                self.insert(consumer);
            }
        }
        if let Some(age) = self.config.max_age
            && let Some((_, at)) = self.messages.oldest()
        {
            let at = network.now.max(at + age);
            network.set(at, Timer::Age { stream: self.config.name.clone() });
        }
    }
}

/// The answer that refuses a request.
pub(super) fn refused(code: u32, said: impl Into<String>) -> Answer {
    Answer::Refused(Refusal { code, said: said.into() })
}

//! The scripts on a real broker: a client that speaks NATS' protocol over a socket, without a client's own decisions.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::script::{Act, BrokerScript, expected, shown};
use super::scripts::scripts;
use super::{
    Acknowledgement, Answer, ConnectionId, ConsumerConfig, ConsumerState, Content, Delivery,
    Discard, Headers, Marker, Message, Operation, Place, Pull, PullStatus, Refusal, ReplyTo,
    Request, Retention, StreamConfig, StreamState,
};

/// How long an answer may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// A `nats-server` with a folder of its own.
struct Server {
    process: Child,
    port: u16,
    _folder: tempfile::TempDir,
}

struct Client {
    number: ConnectionId,
    port: u16,
    socket: BufReader<TcpStream>,
    /// With their subjects.
    subscriptions: BTreeMap<u64, String>,
    requests: BTreeMap<u64, Request>,
    flushes: VecDeque<u64>,
}

impl Server {
    fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let installed = Path::new("/usr/sbin/nats-server");
        let program = if installed.exists() { installed } else { Path::new("nats-server") };
        let mut command = Command::new(program);
        command.args(["-js", "-a", "127.0.0.1", "-p", "-1", "-sd"]).arg(folder.path());
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut process = command.spawn().expect("nats-server is installed");
        let mut log = BufReader::new(process.stderr.take().unwrap());
        let (mut port, mut line) = (0, String::new());
        while !line.contains("Server is ready") {
            line.clear();
            assert!(log.read_line(&mut line).unwrap() > 0, "nats-server ended at its start");
            if let Some((_, address)) = line.split_once("client connections on 127.0.0.1:") {
                port = address.trim().parse().unwrap();
            }
        }
        // What it says later is read, so that it never waits for that.
        std::thread::spawn(move || std::io::copy(&mut log, &mut std::io::sink()));
        Server { process, port, _folder: folder }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        _ = self.process.kill();
        _ = self.process.wait();
    }
}

impl Client {
    fn connect(number: ConnectionId, port: u16) -> Self {
        let socket = Client::open(number, port);
        let (subscriptions, requests) = (BTreeMap::new(), BTreeMap::new());
        Client { number, port, socket, subscriptions, requests, flushes: VecDeque::new() }
    }

    fn open(number: ConnectionId, port: u16) -> BufReader<TcpStream> {
        let socket = TcpStream::connect(("127.0.0.1", port)).unwrap();
        socket.set_nodelay(true).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut socket = BufReader::new(socket);
        let mut info = String::new();
        socket.read_line(&mut info).unwrap();
        assert!(info.starts_with("INFO"), "{info}");
        let options = json!({ "verbose": false, "headers": true, "no_responders": true,
            "lang": "rust", "version": "1", "protocol": 1 });
        let text = format!("CONNECT {options}\r\nSUB _INBOX.{number}.r.* 0\r\n");
        socket.get_mut().write_all(text.as_bytes()).unwrap();
        socket
    }

    fn reconnect(&mut self) {
        self.socket = Client::open(self.number, self.port);
        for (subscription, subject) in self.subscriptions.clone() {
            self.write(&format!("SUB {subject} {subscription}\r\n"));
        }
    }

    fn write(&mut self, text: &str) {
        self.socket.get_mut().write_all(text.as_bytes()).unwrap();
    }

    fn publish(&mut self, subject: &str, reply: &str, headers: &str, payload: &[u8]) {
        let size = payload.len();
        let line = match headers {
            "" => format!("PUB {subject} {reply} {size}\r\n"),
            _ => {
                let headers = format!("NATS/1.0\r\n{headers}\r\n");
                let (of, all) = (headers.len(), headers.len() + size);
                format!("HPUB {subject} {reply} {of} {all}\r\n{headers}")
            }
        };
        let bytes = [line.as_bytes(), payload, b"\r\n"].concat();
        self.socket.get_mut().write_all(&bytes).unwrap();
    }

    fn inbox(&self, subscription: u64) -> String {
        format!("_INBOX.{}.p.{subscription}", self.number)
    }

    fn call(&mut self, operation: &Operation) {
        match operation {
            Operation::Subscribe { subscription, subject } => {
                self.subscriptions.insert(*subscription, subject.to_string());
                self.write(&format!("SUB {subject} {subscription}\r\n"));
            }
            Operation::OpenInbox { subscription } => {
                let subject = self.inbox(*subscription);
                self.write(&format!("SUB {subject} {subscription}\r\n"));
                self.subscriptions.insert(*subscription, subject);
            }
            Operation::Unsubscribe { subscription } => {
                self.subscriptions.remove(subscription);
                self.write(&format!("UNSUB {subscription}\r\n"));
            }
            Operation::Publish(Message { subject, headers, payload }) => {
                self.publish(subject, "", &lines(headers), payload);
            }
            Operation::Reply { to: ReplyTo { connection, token }, payload } => {
                self.publish(&format!("_INBOX.{connection}.r.{token}"), "", "", payload);
            }
            Operation::Acknowledge { place, kind } => {
                let Place { stream, consumer, sequence, consumer_sequence, deliveries, .. } = place;
                let subject = format!(
                    "$JS.ACK.{stream}.{consumer}.{deliveries}.{sequence}.{consumer_sequence}.0.0"
                );
                let payload = match kind {
                    Acknowledgement::Done => "+ACK".to_owned(),
                    Acknowledgement::Progress => "+WPI".to_owned(),
                    Acknowledgement::Again(None) => "-NAK".to_owned(),
                    Acknowledgement::Again(Some(delay)) => {
                        format!("-NAK {{\"delay\":{}}}", delay.as_nanos())
                    }
                };
                self.publish(&subject, "", "", payload.as_bytes());
            }
            Operation::Pull(Pull {
                stream,
                consumer,
                subscription,
                batch,
                expires,
                heartbeat,
                no_wait,
            }) => {
                let subject = format!("$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}");
                let nanos = |time: &Option<Duration>| time.map_or(0, |it| it.as_nanos() as u64);
                let request = json!({ "batch": batch, "expires": nanos(expires),
                    "idle_heartbeat": nanos(heartbeat), "no_wait": no_wait });
                let inbox = self.inbox(*subscription);
                self.publish(&subject, &inbox, "", request.to_string().as_bytes());
            }
            Operation::Request { token, request } => self.ask(*token, request),
        }
    }

    fn ask(&mut self, token: u64, request: &Request) {
        self.requests.insert(token, request.clone());
        let api = |what: &str, payload: Value| (format!("$JS.API.{what}"), payload);
        let (subject, payload) = match request {
            Request::Flush => {
                self.flushes.push_back(token);
                return self.write("PING\r\n");
            }
            Request::Send(Message { subject, headers, payload }) => {
                let reply = format!("_INBOX.{}.r.{token}", self.number);
                return self.publish(subject, &reply, &lines(headers), payload);
            }
            Request::CreateStream(config) => {
                api(&format!("STREAM.CREATE.{}", config.name), stream_json(config))
            }
            Request::StreamInfo { stream } => api(&format!("STREAM.INFO.{stream}"), Value::Null),
            Request::Purge { stream, subject } => {
                api(&format!("STREAM.PURGE.{stream}"), json!({ "filter": &**subject }))
            }
            Request::DeleteMessage { stream, sequence } => {
                api(&format!("STREAM.MSG.DELETE.{stream}"), json!({ "seq": sequence }))
            }
            Request::GetMessage { stream, sequence } => {
                api(&format!("STREAM.MSG.GET.{stream}"), json!({ "seq": sequence }))
            }
            Request::GetLast { stream, subject } => {
                api(&format!("DIRECT.GET.{stream}.{subject}"), Value::Null)
            }
            Request::CreateConsumer { stream, config } => {
                let config = json!({ "stream_name": &**stream, "config": consumer_json(config) });
                let name = config["config"]["durable_name"].as_str().unwrap();
                api(&format!("CONSUMER.DURABLE.CREATE.{stream}.{name}"), config.clone())
            }
            Request::Watch { stream, subject, subscription } => {
                let config = json!({ "deliver_subject": self.inbox(*subscription),
                    "filter_subject": &**subject, "ack_policy": "none", "deliver_policy": "all",
                    "replay_policy": "instant", "mem_storage": true });
                let config = json!({ "stream_name": &**stream, "config": config });
                api(&format!("CONSUMER.CREATE.{stream}"), config)
            }
            Request::DeleteConsumer { stream, consumer } => {
                api(&format!("CONSUMER.DELETE.{stream}.{consumer}"), Value::Null)
            }
            Request::ConsumerInfo { stream, consumer } => {
                api(&format!("CONSUMER.INFO.{stream}.{consumer}"), Value::Null)
            }
            Request::ConsumerNames { stream } => {
                api(&format!("CONSUMER.NAMES.{stream}"), Value::Null)
            }
        };
        let payload = if payload.is_null() { String::new() } else { payload.to_string() };
        let reply = format!("_INBOX.{}.r.{token}", self.number);
        self.publish(&subject, &reply, "", payload.as_bytes());
    }

    /// Waits for the next thing that arrives.
    fn next(&mut self) -> Content {
        loop {
            let mut line = String::new();
            let read = self.socket.read_line(&mut line).expect("an answer comes in time");
            assert!(read > 0, "the broker has closed the connection");
            let parts: Vec<&str> = line.split_whitespace().collect();
            match parts[0] {
                "PING" => self.write("PONG\r\n"),
                "PONG" => {
                    let token = self.flushes.pop_front().expect("each is asked for");
                    return Content::Answer { token, answer: Answer::Done };
                }
                "MSG" | "HMSG" => return self.received(&parts),
                _ => assert!(!line.starts_with("-ERR"), "{line}"),
            }
        }
    }

    fn received(&mut self, parts: &[&str]) -> Content {
        let total: usize = parts.last().unwrap().parse().unwrap();
        let mut bytes = vec![0; total + 2];
        self.socket.read_exact(&mut bytes).unwrap();
        let has_headers = parts[0] == "HMSG";
        let size = if has_headers { parts[parts.len() - 2].parse().unwrap() } else { 0 };
        let (headers, payload) = bytes[..total].split_at(size);
        let headers = String::from_utf8(headers.to_vec()).unwrap();
        let reply = (parts.len() > 4 + usize::from(has_headers)).then(|| parts[3]);
        let status = headers.lines().next().unwrap_or_default();
        let status = status.strip_prefix("NATS/1.0").unwrap_or_default().trim();
        if parts[2] == "0" {
            let token = parts[1].rsplit_once('.').unwrap().1.parse().unwrap();
            let answer = self.answer(token, status, &headers, payload);
            return Content::Answer { token, answer };
        }
        let subscription = parts[2].parse().unwrap();
        if !status.is_empty() {
            let status = match status.split_at(3) {
                ("100", _) => PullStatus::Heartbeat,
                ("404", _) => PullStatus::NoMessages,
                ("408", " Requests Pending") => PullStatus::RequestsPending,
                ("408", _) => PullStatus::Expired,
                ("409", " Consumer Deleted") => PullStatus::ConsumerDeleted,
                ("409", " Exceeded MaxWaiting") => PullStatus::TooManyWaiting,
                ("503", _) => PullStatus::NoResponders,
                _ => panic!("{status}"),
            };
            return Content::Status { subscription, status };
        }
        let message = message(parts[1], &headers, payload);
        let place = reply.and_then(|it| it.strip_prefix("$JS.ACK.")).map(place);
        let reply = reply.filter(|_| place.is_none()).map(|it| {
            let parts: Vec<&str> = it.split('.').collect();
            ReplyTo { connection: parts[1].parse().unwrap(), token: parts[3].parse().unwrap() }
        });
        Content::Message { subscription, message: Delivery { message, reply, place } }
    }

    fn answer(&self, token: u64, status: &str, headers: &str, payload: &[u8]) -> Answer {
        if status.starts_with("503") {
            return Answer::NoResponders;
        }
        let request = &self.requests[&token];
        if let Request::GetLast { .. } = request {
            if status.starts_with("404") {
                return Answer::NotFound;
            }
            let (subject, sequence) =
                (field(headers, "Nats-Subject"), field(headers, "Nats-Sequence"));
            let message = message(subject.unwrap(), headers, payload);
            let sequence = sequence.unwrap().parse().unwrap();
            return Answer::Message { message, sequence, stored_at: Duration::ZERO };
        }
        let Ok(json) = serde_json::from_slice::<Value>(payload) else {
            return Answer::Reply(payload.to_vec().into());
        };
        if let Some(code) = json["error"]["err_code"].as_u64() {
            let said = json["error"]["description"].as_str().unwrap().to_owned();
            return Answer::Refused(Refusal { code: u32::try_from(code).unwrap(), said });
        }
        let number = |it: &Value| it.as_u64().unwrap_or(0);
        match request {
            Request::Send(_) => Answer::Stored {
                sequence: number(&json["seq"]),
                is_duplicate: json["duplicate"].as_bool().unwrap_or(false),
            },
            Request::CreateStream(_) | Request::StreamInfo { .. } => {
                let state = &json["state"];
                Answer::Stream(StreamState {
                    messages: number(&state["messages"]),
                    first_sequence: number(&state["first_seq"]),
                    last_sequence: number(&state["last_seq"]),
                })
            }
            Request::Purge { .. } => Answer::Purged(number(&json["purged"])),
            Request::GetMessage { .. } => {
                let subject = json["message"]["subject"].as_str().unwrap();
                let data = json["message"]["data"].as_str().unwrap_or_default();
                let sequence = number(&json["message"]["seq"]);
                let message = Message::new(subject, decoded(data));
                Answer::Message { message, sequence, stored_at: Duration::ZERO }
            }
            Request::CreateConsumer { .. }
            | Request::Watch { .. }
            | Request::ConsumerInfo { .. } => Answer::Consumer(ConsumerState {
                name: json["name"].as_str().unwrap().into(),
                filter: json["config"]["filter_subject"].as_str().map(Into::into),
                num_pending: number(&json["num_pending"]),
                num_ack_pending: number(&json["num_ack_pending"]),
                num_waiting: number(&json["num_waiting"]),
                delivered: number(&json["delivered"]["stream_seq"]),
            }),
            Request::ConsumerNames { .. } => {
                let names = json["consumers"].as_array().into_iter().flatten();
                Answer::Names(names.map(|it| it.as_str().unwrap().into()).collect())
            }
            _ => Answer::Done,
        }
    }
}

fn field<'a>(headers: &'a str, name: &str) -> Option<&'a str> {
    let mut values = headers.lines().filter_map(|line| line.split_once(':'));
    values.find(|it| it.0 == name).map(|it| it.1.trim())
}

fn message(subject: &str, headers: &str, payload: &[u8]) -> Message {
    let marker = field(headers, "KV-Operation").map(|it| match it {
        "DEL" => Marker::Delete,
        _ => Marker::Purge,
    });
    let id = field(headers, "Nats-Msg-Id").map(Into::into);
    let headers = Headers { id, expected_last: None, marker };
    Message { subject: subject.into(), headers, payload: payload.to_vec().into() }
}

/// A place by what follows `$JS.ACK.`: stream, consumer, deliveries, places, time, and what is pending.
fn place(text: &str) -> Place {
    let parts: Vec<&str> = text.split('.').collect();
    let number = |index: usize| parts[index].parse().unwrap();
    Place {
        stream: Arc::from(parts[0]),
        consumer: Arc::from(parts[1]),
        deliveries: number(2),
        sequence: number(3),
        consumer_sequence: number(4),
        stored_at: Duration::ZERO,
    }
}

fn lines(headers: &Headers) -> String {
    let mut lines = String::new();
    if let Some(id) = &headers.id {
        lines += &format!("Nats-Msg-Id: {id}\r\n");
    }
    if let Some(last) = headers.expected_last {
        lines += &format!("Nats-Expected-Last-Subject-Sequence: {last}\r\n");
    }
    lines += match headers.marker {
        None => "",
        Some(Marker::Delete) => "KV-Operation: DEL\r\n",
        Some(Marker::Purge) => "KV-Operation: PURGE\r\nNats-Rollup: sub\r\n",
    };
    lines
}

fn stream_json(config: &StreamConfig) -> Value {
    let retention = match config.retention {
        Retention::Limits => "limits",
        Retention::WorkQueue => "workqueue",
    };
    let discard = match config.discard {
        Discard::Old => "old",
        Discard::New => "new",
    };
    let subjects: Vec<&str> = config.subjects.iter().map(|it| &**it).collect();
    json!({
        "name": &*config.name, "subjects": subjects, "retention": retention,
        "discard": discard, "storage": "file", "num_replicas": 1, "max_consumers": -1,
        "max_msgs": -1, "max_msg_size": -1,
        "max_bytes": config.max_bytes.map_or(-1, |it| it as i64),
        "max_age": config.max_age.map_or(0, |it| it.as_nanos() as u64),
        "max_msgs_per_subject": config.max_messages_per_subject.map_or(-1, |it| it as i64),
        "allow_rollup_hdrs": config.allow_rollup, "deny_delete": config.deny_delete,
        "allow_direct": true, "duplicate_window": config.duplicate_window.as_nanos() as u64,
    })
}

fn consumer_json(config: &ConsumerConfig) -> Value {
    json!({
        "durable_name": &*config.name, "filter_subject": config.filter.as_deref(), "ack_policy": "explicit",
        "deliver_policy": "all", "replay_policy": "instant", "max_deliver": -1,
        "ack_wait": config.ack_wait.as_nanos() as u64, "max_waiting": config.max_waiting,
        "max_ack_pending": config.max_ack_pending.map_or(-1, |it| it as i64),
        "inactive_threshold": config.inactive_threshold.map_or(0, |it| it.as_nanos() as u64),
    })
}

/// Decodes base 64.
fn decoded(text: &str) -> Vec<u8> {
    const DIGITS: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let (mut bits, mut count, mut bytes) = (0_u32, 0, vec![]);
    for digit in text.bytes().filter_map(|byte| DIGITS.iter().position(|it| *it == byte)) {
        bits = bits << 6 | digit as u32;
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

/// How often a script is run on a broker before its answers count as wrong.
const MOST_TRIES: usize = 3;

/// Runs the acts of a script on a broker, and returns what arrives after each, by client.
fn run_on_server(script: &BrokerScript, port: u16) -> Vec<Vec<(ConnectionId, String)>> {
    let mut clients = [Client::connect(0, port), Client::connect(1, port)];
    let (mut places, mut replies): (Vec<Place>, Vec<ReplyTo>) = (vec![], vec![]);
    let mut seen = vec![];
    let take = |client: &mut Client, places: &mut Vec<Place>, replies: &mut Vec<ReplyTo>| {
        let content = client.next();
        if let Content::Message { message, .. } = &content {
            places.extend(message.place.clone());
            replies.extend(message.reply);
        }
        (client.number, shown(&content))
    };
    for (client, act, expected) in &script.steps {
        let mut arrived = vec![];
        let client = &mut clients[*client];
        match act {
            Act::Call(operation) => client.call(operation),
            Act::Acknowledge(index, kind) => {
                let place = places[*index].clone();
                client.call(&Operation::Acknowledge { place, kind: *kind });
            }
            Act::Reply(text) => {
                let to = replies.pop().expect("a request has come");
                client.call(&Operation::Reply { to, payload: (*text).into() });
            }
            Act::Reconnect => {
                client.reconnect();
                arrived.push((client.number, shown(&Content::Disconnected)));
            }
        }
        for client in &mut clients {
            let wanted = expected.iter().filter(|it| it.0 == client.number).count();
            while arrived.iter().filter(|it| it.0 == client.number).count() < wanted {
                arrived.push(take(client, &mut places, &mut replies));
            }
        }
        arrived.sort_by_key(|it| it.0);
        seen.push(arrived);
    }
    // Nothing else has arrived, and the next script finds no stream.
    let last = seen.last_mut().expect("a script has steps");
    for client in &mut clients {
        client.flushes.push_back(u64::MAX);
        client.write("PING\r\n");
        loop {
            let (number, text) = take(client, &mut places, &mut replies);
            if text == format!("{}: done", u64::MAX) {
                break;
            }
            last.push((number, text));
        }
    }
    let client = &mut clients[0];
    for stream in ["S", "KV_b"] {
        let token = u64::MAX;
        client.requests.insert(token, Request::StreamInfo { stream: stream.into() });
        let reply = format!("_INBOX.{}.r.{token}", client.number);
        client.publish(&format!("$JS.API.STREAM.DELETE.{stream}"), &reply, "", b"");
        client.next();
    }
    seen
}

#[test]
fn a_real_broker_does_what_the_scripts_say() {
    let server = Server::start();
    let mut found = vec![];
    for script in scripts() {
        let expected = expected(&script);
        // A busy machine may be late for the times of a script.
        let mut tries = (0..MOST_TRIES).map(|_| run_on_server(&script, server.port));
        let seen = tries.find_map(|seen| (seen == expected).then_some(seen));
        let seen = seen.unwrap_or_else(|| run_on_server(&script, server.port));
        for (index, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
            if seen != expected {
                let act = &script.steps[index].1;
                found.push(format!(
                    "{}, step {index}: {act:?}\n  {seen:?}\n  {expected:?}",
                    script.name
                ));
            }
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

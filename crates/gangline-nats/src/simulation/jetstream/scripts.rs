//! The scripts, by what they are about.

use std::time::Duration;

use super::script::{Act, BrokerScript, Step, expected, run_on_model};
use super::{
    Acknowledgement, ConnectionId, ConsumerConfig, Discard, Marker, Message, Operation, Pull,
    Request, Retention, StreamConfig,
};

fn call(operation: Operation) -> Act {
    Act::Call(operation)
}

fn ask(token: u64, request: Request) -> Act {
    call(Operation::Request { token, request })
}

fn send(token: u64, subject: &str, payload: &'static str) -> Act {
    ask(token, Request::Send(Message::new(subject, payload)))
}

fn pull(subscription: u64, consumer: &str, batch: u32, expires: u64) -> Act {
    let expires = (expires > 0).then(|| Duration::from_millis(expires));
    let consumer = consumer.into();
    let (heartbeat, no_wait, stream) = (None, expires.is_none(), "S".into());
    call(Operation::Pull(Pull {
        stream,
        consumer,
        subscription,
        batch,
        expires,
        heartbeat,
        no_wait,
    }))
}

fn inbox(subscription: u64) -> Act {
    call(Operation::OpenInbox { subscription })
}

fn queue() -> StreamConfig {
    StreamConfig::new("S", "s.>", Retention::WorkQueue)
}

fn consumer(name: &str, filter: &str, ack_wait: u64) -> Act {
    let config = ConsumerConfig::new(name, filter, Duration::from_millis(ack_wait));
    ask(90, Request::CreateConsumer { stream: "S".into(), config })
}

fn info(consumer: &str) -> Act {
    ask(91, Request::ConsumerInfo { stream: "S".into(), consumer: consumer.into() })
}

fn state() -> Act {
    ask(92, Request::StreamInfo { stream: "S".into() })
}

const NEW: &[(ConnectionId, &str)] = &[(0, "99: 0 messages 0..0")];
const MADE: &[(ConnectionId, &str)] =
    &[(0, "90: pending 0 unacknowledged 0 waiting 0 delivered 0")];

fn script(name: &'static str, config: StreamConfig, steps: Vec<Step>) -> BrokerScript {
    let made = (0, ask(99, Request::CreateStream(config)), NEW);
    BrokerScript { name, steps: std::iter::once(made).chain(steps).collect() }
}

pub(super) fn scripts() -> Vec<BrokerScript> {
    [core(), storing(), consuming(), acknowledging(), removing(), buckets()]
        .into_iter()
        .flatten()
        .collect()
}

fn core() -> Vec<BrokerScript> {
    let subscribe =
        |subject: &str| call(Operation::Subscribe { subscription: 5, subject: subject.into() });
    let flush = |token| ask(token, Request::Flush);
    vec![
        script(
            "publish reaches each subscriber",
            queue(),
            vec![
                (0, subscribe("c.a"), &[]),
                (0, flush(1), &[(0, "1: done")]),
                (1, subscribe("c.a"), &[]),
                (1, flush(1), &[(1, "1: done")]),
                (
                    1,
                    call(Operation::Publish(Message::new("c.a", "x"))),
                    &[(0, "5> c.a x"), (1, "5> c.a x")],
                ),
                (0, call(Operation::Unsubscribe { subscription: 5 }), &[]),
                (0, flush(2), &[(0, "2: done")]),
                (1, call(Operation::Publish(Message::new("c.a", "y"))), &[(1, "5> c.a y")]),
            ],
        ),
        script(
            "a request gets a reply",
            queue(),
            vec![
                (0, subscribe("c.b"), &[]),
                (0, flush(1), &[(0, "1: done")]),
                (1, send(7, "c.b", "q"), &[(0, "5> c.b q ?")]),
                (0, Act::Reply("a"), &[(1, "7: reply a")]),
            ],
        ),
        script(
            "a request without a responder",
            queue(),
            vec![(0, send(7, "c.nothing", "q"), &[(0, "7: no responders")])],
        ),
        script(
            "a client subscribes again after a cut",
            queue(),
            vec![
                (0, subscribe("c.d"), &[]),
                (0, flush(1), &[(0, "1: done")]),
                (0, Act::Reconnect, &[(0, "disconnected")]),
                (0, flush(2), &[(0, "2: done")]),
                (1, call(Operation::Publish(Message::new("c.d", "x"))), &[(0, "5> c.d x")]),
            ],
        ),
    ]
}

fn storing() -> Vec<BrokerScript> {
    let with_id = |token, id: &str| ask(token, Request::Send(Message::new("s.a", "x").with_id(id)));
    let limited = StreamConfig {
        max_messages_per_subject: Some(1),
        ..StreamConfig::new("S", "s.>", Retention::Limits)
    };
    let small = StreamConfig { max_bytes: Some(100), ..queue() };
    let short = StreamConfig {
        max_age: Some(Duration::from_millis(200)),
        ..StreamConfig::new("S", "s.>", Retention::Limits)
    };
    let short = StreamConfig { duplicate_window: Duration::from_millis(100), ..short };
    vec![
        script(
            "a message with a known id is stored once",
            queue(),
            vec![
                (0, with_id(1, "a"), &[(0, "1: stored 1")]),
                (1, with_id(2, "a"), &[(1, "2: duplicate 1")]),
                (0, with_id(3, "b"), &[(0, "3: stored 2")]),
                (0, state(), &[(0, "92: 2 messages 1..2")]),
            ],
        ),
        script(
            "one message per subject",
            limited,
            vec![
                (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
                (0, send(2, "s.a", "y"), &[(0, "2: stored 2")]),
                (0, send(3, "s.b", "z"), &[(0, "3: stored 3")]),
                (0, state(), &[(0, "92: 2 messages 2..3")]),
            ],
        ),
        script(
            "a full stream refuses",
            small.clone(),
            vec![
                (
                    0,
                    send(1, "s.a", "0123456789012345678901234567890123456789"),
                    &[(0, "1: stored 1")],
                ),
                (
                    0,
                    send(2, "s.a", "0123456789012345678901234567890123456789"),
                    &[(0, "2: 10077 maximum bytes exceeded")],
                ),
            ],
        ),
        script(
            "a full stream drops what is old",
            StreamConfig { discard: Discard::Old, ..small },
            vec![
                (
                    0,
                    send(1, "s.a", "0123456789012345678901234567890123456789"),
                    &[(0, "1: stored 1")],
                ),
                (
                    0,
                    send(2, "s.a", "0123456789012345678901234567890123456789"),
                    &[(0, "2: stored 2")],
                ),
                (0, state(), &[(0, "92: 1 messages 2..2")]),
            ],
        ),
        script(
            "messages get too old",
            short,
            vec![
                (0, consumer("c", "s.b", 5000), MADE),
                (0, inbox(4), &[]),
                (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
                (0, pull(4, "c", 1, 1500), &[(0, "4> Expired")]),
                (0, state(), &[(0, "92: 0 messages 2..1")]),
            ],
        ),
        script(
            "streams that differ or overlap",
            queue(),
            vec![
                (0, ask(1, Request::CreateStream(queue())), NEW_AGAIN),
                (
                    0,
                    ask(
                        2,
                        Request::CreateStream(StreamConfig { max_bytes: Some(5000), ..queue() }),
                    ),
                    &[(0, "2: 10058 stream name already in use with a different configuration")],
                ),
                (
                    0,
                    ask(3, Request::CreateStream(StreamConfig::new("T", "s.a", Retention::Limits))),
                    &[(0, "3: 10065 subjects overlap with an existing stream")],
                ),
                (
                    0,
                    ask(4, Request::StreamInfo { stream: "U".into() }),
                    &[(0, "4: 10059 stream not found")],
                ),
            ],
        ),
    ]
}

const NEW_AGAIN: &[(ConnectionId, &str)] = &[(0, "1: 0 messages 0..0")];

fn consuming() -> Vec<BrokerScript> {
    let delete = ask(93, Request::DeleteConsumer { stream: "S".into(), consumer: "c".into() });
    vec![
        script(
            "a pull gets what is there and what comes",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (0, inbox(4), &[]),
                (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
                (0, send(2, "s.b", "-"), &[(0, "2: stored 2")]),
                (0, pull(4, "c", 2, 5000), &[(0, "4> s.a x 1/1/1")]),
                (1, send(3, "s.a", "y"), &[(0, "4> s.a y 3/2/1"), (1, "3: stored 3")]),
                (0, info("c"), &[(0, "91: pending 0 unacknowledged 2 waiting 0 delivered 3")]),
            ],
        ),
        script(
            "pulls take turns",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (0, inbox(4), &[]),
                (1, inbox(4), &[]),
                (0, pull(4, "c", 2, 5000), &[]),
                (0, ask(8, Request::Flush), &[(0, "8: done")]),
                (1, pull(4, "c", 2, 5000), &[]),
                (1, ask(8, Request::Flush), &[(1, "8: done")]),
                (1, send(1, "s.a", "x"), &[(0, "4> s.a x 1/1/1"), (1, "1: stored 1")]),
                (0, send(1, "s.a", "y"), &[(1, "4> s.a y 2/2/1"), (0, "1: stored 2")]),
                (1, send(1, "s.a", "z"), &[(0, "4> s.a z 3/3/1"), (1, "1: stored 3")]),
            ],
        ),
        script(
            "a pull expires",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (0, inbox(4), &[]),
                (0, pull(4, "c", 2, 100), &[(0, "4> Expired")]),
            ],
        ),
        script(
            "a pull that does not wait",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (0, inbox(4), &[]),
                (0, pull(4, "c", 2, 0), &[(0, "4> NoMessages")]),
                (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
                (0, pull(4, "c", 2, 0), &[(0, "4> s.a x 1/1/1"), (0, "4> Expired")]),
            ],
        ),
        script(
            "a consumer is deleted while a pull waits",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (0, inbox(4), &[]),
                (0, pull(4, "c", 2, 5000), &[]),
                (0, delete.clone(), &[(0, "4> ConsumerDeleted"), (0, "93: done")]),
                (0, delete, &[(0, "93: 10014 consumer not found")]),
                (0, info("c"), &[(0, "91: 10014 consumer not found")]),
            ],
        ),
        script(
            "a consumer is made twice",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (0, consumer("c", "s.a", 5000), MADE),
                (
                    0,
                    consumer("d", "s.a", 5000),
                    &[(0, "90: 10100 filtered consumer not unique on workqueue stream")],
                ),
                (0, consumer("c", "s.b", 5000), MADE),
                (0, consumer("d", "s.a", 5000), MADE),
                (
                    0,
                    ask(1, Request::ConsumerNames { stream: "S".into() }),
                    &[(0, "1: consumers c d")],
                ),
            ],
        ),
        script(
            "a cut client loses its pull",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (1, inbox(4), &[]),
                (1, pull(4, "c", 2, 5000), &[]),
                (1, ask(8, Request::Flush), &[(1, "8: done")]),
                (1, call(Operation::Unsubscribe { subscription: 4 }), &[]),
                (1, Act::Reconnect, &[(1, "disconnected")]),
                (1, ask(8, Request::Flush), &[(1, "8: done")]),
                (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
                (0, inbox(4), &[]),
                (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/1/1")]),
            ],
        ),
    ]
}

fn acknowledging() -> Vec<BrokerScript> {
    let given = |ack_wait| -> Vec<Step> {
        vec![
            (0, consumer("c", "s.a", ack_wait), MADE),
            (0, inbox(4), &[]),
            (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
            (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/1/1")]),
        ]
    };
    let with = |ack_wait, more: Vec<Step>| [given(ack_wait), more].concat();
    let again = |kind| Act::Acknowledge(0, Acknowledgement::Again(kind));
    vec![
        script(
            "an acknowledged message is removed",
            queue(),
            with(
                5000,
                vec![
                    (0, Act::Acknowledge(0, Acknowledgement::Done), &[]),
                    (0, ask(8, Request::Flush), &[(0, "8: done")]),
                    (0, send(1, "s.a", "y"), &[(0, "1: stored 2")]),
                    (0, pull(4, "c", 1, 5000), &[(0, "4> s.a y 2/2/1")]),
                    (0, info("c"), &[(0, "91: pending 0 unacknowledged 1 waiting 0 delivered 2")]),
                    (0, state(), &[(0, "92: 1 messages 2..2")]),
                ],
            ),
        ),
        script(
            "without an acknowledgement it comes again",
            queue(),
            with(
                200,
                vec![
                    (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/2/2")]),
                    (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/3/3")]),
                ],
            ),
        ),
        script(
            "one that is handed back comes again at once",
            queue(),
            with(
                5000,
                vec![(0, again(None), &[]), (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/2/2")])],
            ),
        ),
        script(
            "one that is handed back for later",
            queue(),
            with(
                5000,
                vec![
                    (0, again(Some(Duration::from_millis(300))), &[]),
                    (0, pull(4, "c", 1, 100), &[(0, "4> Expired")]),
                    (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/2/2")]),
                ],
            ),
        ),
        script(
            "progress keeps a message",
            queue(),
            with(
                400,
                vec![
                    (0, pull(4, "c", 1, 250), &[(0, "4> Expired")]),
                    (0, Act::Acknowledge(0, Acknowledgement::Progress), &[]),
                    (0, pull(4, "c", 1, 250), &[(0, "4> Expired")]),
                    (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/2/2")]),
                ],
            ),
        ),
    ]
}

fn removing() -> Vec<BrokerScript> {
    let purge =
        |subject: &str| ask(1, Request::Purge { stream: "S".into(), subject: subject.into() });
    let delete = |sequence| ask(1, Request::DeleteMessage { stream: "S".into(), sequence });
    let get = |sequence| ask(1, Request::GetMessage { stream: "S".into(), sequence });
    let last =
        |subject: &str| ask(1, Request::GetLast { stream: "S".into(), subject: subject.into() });
    vec![
        script(
            "a purge by subject",
            queue(),
            vec![
                (0, send(1, "s.a.1", "x"), &[(0, "1: stored 1")]),
                (0, send(1, "s.b.1", "y"), &[(0, "1: stored 2")]),
                (0, send(1, "s.a.2", "z"), &[(0, "1: stored 3")]),
                (0, purge("s.a.>"), &[(0, "1: purged 2")]),
                (0, state(), &[(0, "92: 1 messages 2..3")]),
            ],
        ),
        script(
            "a purge of what is with a consumer",
            queue(),
            vec![
                (0, consumer("c", "s.a", 5000), MADE),
                (0, inbox(4), &[]),
                (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
                (0, pull(4, "c", 1, 5000), &[(0, "4> s.a x 1/1/1")]),
                (0, purge("s.a"), &[(0, "1: purged 1")]),
                (0, info("c"), &[(0, "91: pending 0 unacknowledged 0 waiting 0 delivered 1")]),
                (0, send(1, "s.a", "y"), &[(0, "1: stored 2")]),
                (0, pull(4, "c", 1, 5000), &[(0, "4> s.a y 2/2/1")]),
            ],
        ),
        script(
            "messages by their places",
            queue(),
            vec![
                (0, send(1, "s.a", "x"), &[(0, "1: stored 1")]),
                (0, send(1, "s.a", "y"), &[(0, "1: stored 2")]),
                (0, get(1), &[(0, "1: 1 s.a x")]),
                (0, last("s.a"), &[(0, "1: 2 s.a y")]),
                (0, delete(2), &[(0, "1: done")]),
                (0, get(2), &[(0, "1: 10037 no message found")]),
                (0, last("s.b"), &[(0, "1: not found")]),
                (0, delete(2), &[(0, "1: 10043 sequence 2 not found")]),
            ],
        ),
    ]
}

fn buckets() -> Vec<BrokerScript> {
    let put = |message: Message| ask(1, Request::Send(message));
    let key = |value: &'static str| Message::new("$KV.b.k", value);
    let watch = ask(
        3,
        Request::Watch { stream: "KV_b".into(), subject: "$KV.b.>".into(), subscription: 6 },
    );
    let bucket = || StreamConfig::bucket("b", Duration::from_secs(60));
    let last = ask(2, Request::GetLast { stream: "KV_b".into(), subject: "$KV.b.k".into() });
    vec![
        script(
            "a key changes by its revision",
            bucket(),
            vec![
                (0, put(key("a").after(0)), &[(0, "1: stored 1")]),
                (0, put(key("b").after(0)), &[(0, "1: 10071 wrong last sequence: 1")]),
                (0, put(key("c").after(1)), &[(0, "1: stored 2")]),
                (0, last.clone(), &[(0, "2: 2 $KV.b.k c")]),
                (
                    0,
                    put(key("").marked(Marker::Purge).after(1)),
                    &[(0, "1: 10071 wrong last sequence: 2")],
                ),
                (0, put(key("").marked(Marker::Purge).after(2)), &[(0, "1: stored 3")]),
                (0, last, &[(0, "2: 3 $KV.b.k  Purge")]),
                (0, put(key("d").after(3)), &[(0, "1: stored 4")]),
            ],
        ),
        script(
            "a watch sees what is there and what comes",
            bucket(),
            vec![
                (0, put(key("a")), &[(0, "1: stored 1")]),
                (1, inbox(6), &[]),
                (
                    1,
                    watch,
                    &[
                        (1, "3: pending 1 unacknowledged 0 waiting 0 delivered 0"),
                        (1, "6> $KV.b.k a 1/1/1"),
                    ],
                ),
                (0, put(key("b")), &[(0, "1: stored 2"), (1, "6> $KV.b.k b 2/2/1")]),
                (
                    0,
                    put(key("").marked(Marker::Delete)),
                    &[(0, "1: stored 3"), (1, "6> $KV.b.k  Delete 3/3/1")],
                ),
            ],
        ),
    ]
}

#[test]
fn the_model_does_what_the_scripts_say() {
    let scripts = scripts();
    assert!(scripts.len() >= 20, "{}", scripts.len());
    for script in scripts {
        let (seen, expected) = (run_on_model(&script), expected(&script));
        for (index, (seen, expected)) in seen.iter().zip(&expected).enumerate() {
            assert_eq!(
                seen, expected,
                "{}, step {index}: {:?}",
                script.name, script.steps[index].1
            );
        }
    }
}

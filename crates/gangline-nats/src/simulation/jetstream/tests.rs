//! Faults, and what the scripts do not reach.

use std::time::Duration;

use super::*;

const SECOND: Duration = Duration::from_secs(1);

struct World {
    broker: JetStream,
    now: Duration,
}

impl World {
    /// With the stream `S` and the consumer `c` of `s.a`, whose acknowledgements are due in 2 s.
    fn new() -> Self {
        let mut world = World { broker: JetStream::new(), now: Duration::ZERO };
        let client = world.broker.connect();
        let config = StreamConfig::new("S", "s.>", Retention::WorkQueue);
        world.ask(client, Request::CreateStream(config));
        world.make_consumer(None);
        world
    }

    fn make_consumer(&mut self, inactive_threshold: Option<Duration>) {
        let config = ConsumerConfig::new("c", "s.a", SECOND * 2);
        let config = ConsumerConfig { inactive_threshold, ..config };
        self.ask(0, Request::CreateConsumer { stream: "S".into(), config });
    }

    fn call(&mut self, connection: ConnectionId, operation: Operation) {
        self.broker.call(self.now, connection, operation);
    }

    /// What arrives within a time.
    fn wait(&mut self, time: Duration) -> Vec<Arrival> {
        let until = self.now + time;
        self.now = until;
        std::iter::from_fn(|| self.broker.take(until)).collect()
    }

    fn ask(&mut self, connection: ConnectionId, request: Request) -> Vec<Content> {
        self.call(connection, Operation::Request { token: 1, request });
        self.wait(Duration::ZERO).into_iter().map(|it| it.content).collect()
    }

    fn send(&mut self, id: &str) -> Vec<Answer> {
        let message = Message::new("s.a", "x").with_id(id);
        let answers = self.ask(0, Request::Send(message)).into_iter();
        answers
            .filter_map(|it| match it {
                Content::Answer { answer, .. } => Some(answer),
                _ => None,
            })
            .collect()
    }

    /// Pulls, and returns the places of what comes within a time.
    fn pull(&mut self, connection: ConnectionId, time: Duration) -> Vec<Place> {
        self.call(connection, Operation::OpenInbox { subscription: 1 });
        self.call(connection, Operation::Pull(pull(time)));
        places(&self.wait(time))
    }

    fn state(&mut self) -> Option<ConsumerState> {
        let request = Request::ConsumerInfo { stream: "S".into(), consumer: "c".into() };
        self.ask(0, request).into_iter().find_map(|it| match it {
            Content::Answer { answer: Answer::Consumer(state), .. } => Some(state),
            _ => None,
        })
    }
}

fn pull(expires: Duration) -> Pull {
    let (stream, consumer) = ("S".into(), "c".into());
    let expires = Some(expires);
    Pull { stream, consumer, subscription: 1, batch: 2, expires, heartbeat: None, no_wait: false }
}

fn places(arrivals: &[Arrival]) -> Vec<Place> {
    let of = |it: &Arrival| match &it.content {
        Content::Message { message, .. } => message.place.clone(),
        _ => None,
    };
    arrivals.iter().filter_map(of).collect()
}

fn stored(sequence: u64) -> Answer {
    Answer::Stored { sequence, is_duplicate: false }
}

#[test]
fn what_is_on_its_way_is_lost_with_the_connection() {
    let mut world = World::new();
    let delay = SECOND;
    world.broker.set_delays(0, Delays { to_broker: delay, to_client: delay });
    world
        .call(0, Operation::Request { token: 7, request: Request::Send(Message::new("s.a", "x")) });
    // The broker has stored it, and the answer is on its way.
    assert!(world.wait(SECOND * 3 / 2).is_empty());
    world.broker.cut(world.now, 0);
    world.broker.restore(world.now, 0);
    let arrived = world.wait(SECOND * 5);
    assert!(matches!(arrived[..], [Arrival { content: Content::Disconnected, .. }]), "{arrived:?}");
    world.broker.set_delays(0, Delays::default());
    assert_eq!(world.pull(0, SECOND).len(), 1);
}

#[test]
fn a_connection_keeps_the_order_of_what_it_carries() {
    let mut world = World::new();
    world.broker.set_delays(0, Delays { to_broker: SECOND, to_client: SECOND });
    world.call(0, Operation::Request { token: 1, request: Request::Flush });
    world.broker.set_delays(0, Delays::default());
    world.call(0, Operation::Request { token: 2, request: Request::Flush });
    let arrived = world.wait(SECOND * 3);
    let tokens: Vec<_> = arrived
        .iter()
        .map(|it| match it.content {
            Content::Answer { token, .. } => token,
            _ => 0,
        })
        .collect();
    assert_eq!(tokens, [1, 2]);
}

#[test]
fn an_answer_is_lost_or_comes_twice_or_late() {
    let mut world = World::new();
    world.broker.fault_next_answer(0, AnswerFault::Lost);
    assert_eq!(world.send("a"), []);
    assert_eq!(world.send("a"), [Answer::Stored { sequence: 1, is_duplicate: true }]);
    world.broker.fault_next_answer(0, AnswerFault::Twice);
    assert_eq!(world.send("b"), [stored(2), stored(2)]);
    world.broker.fault_next_answer(0, AnswerFault::Late(SECOND));
    assert_eq!(world.send("c"), []);
    assert_eq!(world.send("d"), [stored(4)]);
    assert_eq!(world.wait(SECOND).len(), 1);
}

#[test]
fn a_known_id_is_forgotten_in_time() {
    let mut world = World::new();
    assert_eq!(world.send("a"), [stored(1)]);
    world.wait(SECOND * 119);
    assert_eq!(world.send("a"), [Answer::Stored { sequence: 1, is_duplicate: true }]);
    world.wait(SECOND);
    assert_eq!(world.send("a"), [stored(2)]);
}

#[test]
fn a_broker_that_is_paused_does_all_later() {
    let mut world = World::new();
    let until = world.now + SECOND * 10;
    world.broker.pause(world.now, until);
    assert_eq!(world.send("a"), []);
    assert_eq!(world.send("b"), []);
    let arrived = world.wait(SECOND * 10);
    assert_eq!(arrived.len(), 2);
    assert!(arrived.iter().all(|it| it.at == until));
}

#[test]
fn a_broker_refuses_what_needs_room() {
    let mut world = World::new();
    let refusal = Refusal { code: 10077, said: "no space left on device".to_owned() };
    world.broker.refuse(Some(refusal.clone()));
    assert_eq!(world.send("a"), [Answer::Refused(refusal)]);
    world.broker.refuse(None);
    assert_eq!(world.send("a"), [stored(1)]);
}

#[test]
fn a_broker_restarts_with_its_files() {
    let mut world = World::new();
    world.send("a");
    world.send("b");
    let given = world.pull(0, SECOND);
    assert_eq!(given.len(), 2);
    let kind = Acknowledgement::Done;
    world.call(0, Operation::Acknowledge { place: given[0].clone(), kind });
    world.wait(Duration::ZERO);
    world.broker.kill(world.now);
    assert!(!world.broker.restore(world.now, 0));
    world.broker.start(world.now, Files::Kept);
    assert!(world.broker.restore(world.now, 0));
    // The id of a message that is gone is not known any more.
    assert_eq!(world.send("a"), [stored(3)]);
    assert_eq!(world.send("b"), [Answer::Stored { sequence: 2, is_duplicate: true }]);
    let again = world.pull(0, SECOND * 3);
    assert_eq!(
        again.iter().map(|it| (it.sequence, it.deliveries)).collect::<Vec<_>>(),
        [(3, 1), (2, 2)]
    );
}

#[test]
fn a_broker_restarts_without_its_files() {
    let mut world = World::new();
    world.broker.kill(world.now);
    world.broker.start(world.now, Files::Lost);
    world.broker.restore(world.now, 0);
    world.wait(Duration::ZERO);
    assert_eq!(world.send("a"), [Answer::NoResponders]);
    assert_eq!(world.state(), None);
}

#[test]
fn a_consumer_is_behind_after_a_kill() {
    let mut world = World::new();
    world.broker.set_flush_age(SECOND * 60);
    world.send("a");
    assert_eq!(world.pull(0, SECOND)[0].deliveries, 1);
    world.broker.kill(world.now);
    world.broker.start(world.now, Files::Behind { messages: 0 });
    world.broker.restore(world.now, 0);
    world.wait(Duration::ZERO);
    // It does not know that it has delivered the message.
    assert_eq!(world.pull(0, SECOND)[0].deliveries, 1);
}

#[test]
fn a_consumer_that_is_ahead_of_its_stream_delivers_nothing() {
    let mut world = World::new();
    world.send("a");
    assert_eq!(world.pull(0, SECOND).len(), 1);
    world.broker.kill(world.now);
    world.broker.start(world.now, Files::Behind { messages: 1 });
    world.broker.restore(world.now, 0);
    world.wait(Duration::ZERO);
    assert_eq!(world.send("b"), [stored(1)]);
    assert_eq!(world.state().unwrap().delivered, 1);
    assert_eq!(world.pull(0, SECOND), []);
}

#[test]
fn an_unused_consumer_is_removed() {
    let mut world = World::new();
    let request = Request::DeleteConsumer { stream: "S".into(), consumer: "c".into() };
    world.ask(0, request);
    world.make_consumer(Some(SECOND * 10));
    world.wait(SECOND * 9);
    world.pull(0, SECOND);
    world.wait(SECOND * 8);
    assert!(world.state().is_some());
    world.wait(SECOND * 5);
    assert!(world.state().is_none());
}

#[test]
fn a_cut_client_gets_no_item_and_a_watch_of_it_ends() {
    let mut world = World::new();
    let other = world.broker.connect();
    world.call(other, Operation::OpenInbox { subscription: 1 });
    world.call(other, Operation::Pull(pull(SECOND * 60)));
    world.ask(0, Request::CreateStream(StreamConfig::bucket("b", SECOND * 60)));
    let watch =
        Request::Watch { stream: "KV_b".into(), subject: "$KV.b.>".into(), subscription: 1 };
    world.ask(other, watch);
    world.broker.cut(world.now, other);
    world.send("a");
    assert_eq!(world.pull(0, SECOND).len(), 1);
    let names = |world: &mut World| world.ask(0, Request::ConsumerNames { stream: "KV_b".into() });
    let count = |it: &[Content]| match it {
        [Content::Answer { answer: Answer::Names(names), .. }] => names.len(),
        _ => panic!("{it:?}"),
    };
    assert_eq!(count(&names(&mut world)), 1);
    world.wait(SECOND * 6);
    assert_eq!(count(&names(&mut world)), 0);
}

/// Prints how many operations the model does in a second: `--ignored --nocapture`.
#[test]
#[ignore = "a measurement"]
fn speed() {
    const ROUNDS: u32 = 50_000;
    let mut world = World::new();
    let begun = std::time::Instant::now();
    world.call(0, Operation::OpenInbox { subscription: 1 });
    for _ in 0..ROUNDS {
        world.call(0, Operation::Pull(Pull { batch: 1, ..pull(SECOND) }));
        world.call(
            0,
            Operation::Request { token: 1, request: Request::Send(Message::new("s.a", "x")) },
        );
        let place = places(&world.wait(Duration::from_millis(1))).remove(0);
        world.call(0, Operation::Acknowledge { place, kind: Acknowledgement::Done });
    }
    let rate = f64::from(ROUNDS * 3) / begun.elapsed().as_secs_f64();
    println!("{rate:.0} operations a second");
}

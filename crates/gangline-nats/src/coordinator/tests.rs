//! Tests of a coordinator alone: events in, actions out, at times of our own.

use std::sync::Arc;
use std::time::{Duration, Instant};

use gangline::backend::{Bell, HandRules, LeaseDesk, run_by_hand};
use gangline_scheduler::batch::Size;
use gangline_scheduler::{Backoff, Lease, Meta, Next, Priority, Readiness};
use proptest::prelude::*;

use super::Coordinator;
use crate::board::LaneBoard;
use crate::delivery::{Acknowledgement, Delivered};
use crate::event::{CoordinatorAction, CoordinatorEvent, Fetched, KeyPurpose, KeyState};
use crate::health::{BrokerHealth, Fatal};
use crate::hook_times::HookTimes;
use crate::nats::Nats;
use crate::publication::Address;
use crate::wire;
use crate::wire::{
    Card, ClaimReply, Command, ItemResult, JoinReply, Joining, Notice, Object, ResultsHeader,
    RunKey, WorkerNews, WorkerOutcome,
};

const LEASE: Duration = Duration::from_secs(8);
const WAIT: Duration = Duration::from_secs(30);
const EPOCH: u64 = 7;

#[derive(Debug)]
struct NoBell;

impl Bell for NoBell {
    fn ring(&self) {}
}

/// A coordinator with its board, at a time that the test moves.
struct Desk {
    coordinator: Coordinator,
    board: Arc<LaneBoard>,
    now: Instant,
    is_connected: bool,
    /// Whether the broker answers to the requests for results.
    has_results: bool,
}

impl Desk {
    fn new(seats: usize) -> Self {
        let board = LaneBoard::new(seats);
        let nats = Nats::connect("nats://127.0.0.1").lease_time(LEASE).wait_for(WAIT);
        let now = Instant::now();
        let coordinator =
            Coordinator::new(board.clone(), nats, RunKey::of_test(EPOCH, LEASE, WAIT), 1, now);
        Desk { coordinator, board, now, is_connected: true, has_results: true }
    }

    fn handle(&mut self, event: CoordinatorEvent) -> Vec<CoordinatorAction> {
        let health = BrokerHealth { is_connected: self.is_connected, ..BrokerHealth::default() };
        self.coordinator.handle(event, self.now, health)
    }

    fn notice(&mut self, worker: &str, news: WorkerNews) -> Vec<CoordinatorAction> {
        let notice = Notice { epoch: EPOCH, worker: worker.to_owned(), news };
        let (payload, reply) = (wire::encode(&notice).into(), Some("inbox".to_owned()));
        self.handle(CoordinatorEvent::Notice { payload, reply })
    }

    /// A part of a worker asks for a seat.
    fn join(&mut self, worker: &str, part: u64) -> Vec<CoordinatorAction> {
        let joining = Joining {
            part,
            host: "host".to_owned(),
            pid: 1,
            capacity: 2,
            producers: 2,
            init: Duration::ZERO,
        };
        self.notice(worker, WorkerNews::Join(Box::new(joining)))
    }

    /// Seats a worker as the broker would have it.
    fn seat(&mut self, worker: &str, part: u64) -> JoinReply {
        let asked = self.join(worker, part);
        let Some(CoordinatorAction::MakeConsumer(worker, reply)) = asked.into_iter().next() else {
            return JoinReply::Banned;
        };
        let answered = self.handle(CoordinatorEvent::Seat(worker, reply));
        match answered.last() {
            Some(CoordinatorAction::Answer { payload, .. }) => wire::decode(payload).unwrap(),
            other => panic!("no answer but {other:?}"),
        }
    }

    /// A tick after this time, with the broker well.
    fn tick(&mut self, after: Duration) -> Vec<CoordinatorAction> {
        self.now += after;
        let actions = self.handle(CoordinatorEvent::Tick);
        if self.is_connected {
            let own = KeyState::Own { revision: 2 };
            self.handle(CoordinatorEvent::KeyPut(own, KeyPurpose::Refresh));
            if self.has_results {
                self.handle(CoordinatorEvent::NoResult);
            }
        }
        actions
    }
}

fn card(worker: &str, runs: Vec<(String, u64)>, parts: u64) -> Card {
    let RunKey { recipe, terms, .. } = RunKey::of_test(EPOCH, LEASE, WAIT);
    let (worker, host) = (worker.to_owned(), "host".to_owned());
    let recipes = vec![(recipe, terms)];
    Card { worker, host, pid: 1, devices: String::new(), recipes, started: 0, runs, parts }
}

fn results(epoch: u64, deliveries: u64, object: Option<Object>) -> CoordinatorEvent {
    let result = ItemResult {
        publication: 1,
        outcome: WorkerOutcome::Output,
        busy_nanos: 1,
        deliveries: 1,
        bytes: 0,
        object,
    };
    let (worker, times) = ("w".to_owned(), HookTimes::default());
    let header = ResultsHeader { epoch, worker, times, results: vec![result] };
    let payload = wire::encode(&header).into();
    CoordinatorEvent::Results(Delivered { reply: "ack".to_owned(), payload, place: 1, deliveries })
}

/// What became of the message `ack`.
fn acknowledged(actions: &[CoordinatorAction]) -> Vec<Acknowledgement> {
    let kinds = actions.iter().filter_map(|action| match action {
        CoordinatorAction::Acknowledge { kind, .. } => Some(*kind),
        _ => None,
    });
    kinds.collect()
}

/// The orders, each with the worker that it is for.
fn orders(actions: &[CoordinatorAction]) -> Vec<(Option<&str>, Command)> {
    let orders = actions.iter().filter_map(|action| match action {
        CoordinatorAction::Order { to, command } => Some((to.as_deref(), command.clone())),
        _ => None,
    });
    orders.collect()
}

#[test]
fn a_worker_gets_a_seat_once_its_consumer_is_there() {
    let mut desk = Desk::new(1);
    assert_eq!(desk.seat("w", 1), JoinReply::Seated);
    assert_eq!(desk.seat("other", 1), JoinReply::Full);
    assert_eq!(desk.seat("w", 2), JoinReply::Seated, "its next part takes its seat");
    assert_eq!(desk.board.part_of("w"), Some(2));
    desk.handle(CoordinatorEvent::Ban { lane: 0 });
    assert_eq!(desk.seat("w", 3), JoinReply::Banned);
}

/// A worker whose coordinator was suspended for a lease has left the run, and joins it again.
#[test]
fn the_consumer_of_a_part_that_joins_is_not_removed_with_the_part_before() {
    let mut desk = Desk::new(1);
    desk.seat("w", 1);
    let asked = desk.join("w", 2);
    let Some(CoordinatorAction::MakeConsumer(worker, reply)) = asked.into_iter().next() else {
        panic!("no consumer is made")
    };
    let (times, lost) = (HookTimes::default(), None);
    let leaving = WorkerNews::Leaving { times, lost, last_result: 0 };
    let is_removed = |actions: &[CoordinatorAction]| {
        actions.iter().any(|it| matches!(it, CoordinatorAction::RemoveConsumer(_)))
    };
    assert!(!is_removed(&desk.notice("w", leaving.clone())));
    assert_eq!(desk.board.part_of("w"), None, "the part before has left");
    desk.handle(CoordinatorEvent::Seat(worker, reply));
    assert_eq!(desk.board.part_of("w"), Some(2));
    assert!(is_removed(&desk.notice("w", leaving)), "nothing needs it any more");
}

#[test]
fn a_silent_worker_is_lost_after_a_lease_and_not_before() {
    let mut desk = Desk::new(1);
    desk.seat("w", 1);
    for _ in 0..4 {
        desk.tick(LEASE / 4);
    }
    assert_eq!(desk.board.seated(), ["w"]);
    let actions = desk.tick(LEASE / 4);
    assert!(desk.board.seated().is_empty());
    let removed = |it: &CoordinatorAction| matches!(it, CoordinatorAction::RemoveConsumer(worker) if worker == "w");
    assert!(actions.iter().any(removed), "{actions:?}");
}

#[test]
fn no_worker_is_blamed_for_a_pause_of_this_process_or_of_the_broker() {
    let mut desk = Desk::new(1);
    desk.seat("w", 1);
    desk.tick(LEASE * 20);
    assert_eq!(desk.board.seated(), ["w"], "this process was stopped");
    desk.is_connected = false;
    for _ in 0..10 {
        desk.tick(LEASE / 4);
    }
    assert_eq!(desk.board.seated(), ["w"], "the broker was away");
    assert!(desk.board.fatal().is_none());
    for _ in 0..8 {
        desk.tick(LEASE / 2);
    }
    assert!(matches!(desk.board.fatal(), Some(Fatal::BrokerGone)), "for longer than `wait_for`");
}

#[test]
fn a_run_ends_whose_results_the_broker_does_not_deliver() {
    let mut desk = Desk::new(1);
    desk.seat("w", 1);
    let run_for = |desk: &mut Desk, time: Duration| {
        for _ in 0..time.div_duration_f64(LEASE / 4) as u32 {
            desk.notice("w", WorkerNews::Alive(None));
            desk.tick(LEASE / 4);
        }
    };
    desk.board.enter(0, 1, Arc::new(NoBell));
    run_for(&mut desk, WAIT * 2);
    desk.has_results = false;
    run_for(&mut desk, WAIT);
    assert!(desk.board.fatal().is_none());
    // The key is still refreshed.
    run_for(&mut desk, LEASE);
    assert!(matches!(desk.board.fatal(), Some(Fatal::NoAnswer)), "{:?}", desk.board.fatal());
    desk.board.leave(0);
    run_for(&mut desk, WAIT * 2);
    desk.board.enter(0, 2, Arc::new(NoBell));
    run_for(&mut desk, WAIT);
    assert!(desk.board.fatal().is_none(), "the next run has its own time");
}

#[test]
fn a_pause_of_this_process_ends_no_run_without_workers() {
    let mut desk = Desk::new(1);
    desk.board.enter(0, 1, Arc::new(NoBell));
    desk.tick(LEASE / 4);
    desk.tick(WAIT * 10);
    desk.tick(LEASE / 4);
    assert!(desk.board.fatal().is_none());
    for _ in 0..16 {
        desk.tick(LEASE / 4);
    }
    assert!(matches!(desk.board.fatal(), Some(Fatal::NoWorkers)), "for longer than `wait_for`");
}

#[test]
fn workers_drain_once_the_items_are_removed() {
    let mut desk = Desk::new(2);
    desk.seat("a", 1);
    desk.seat("b", 1);
    // The board has no publication yet, so `upto` is in the future of both lanes.
    let first = desk.handle(CoordinatorEvent::Drain { lane: 0, upto: 9 });
    assert!(matches!(first[..], [CoordinatorAction::PurgeItems { upto: 9 }]), "{first:?}");
    let second = desk.handle(CoordinatorEvent::Drain { lane: 1, upto: 9 });
    assert!(second.is_empty(), "it was asked for already: {second:?}");
    let purged = desk.handle(CoordinatorEvent::Purged { upto: 9 });
    let drain = |worker| (Some(worker), Command::Drain(9));
    assert_eq!(orders(&purged), [drain("a"), drain("b")]);
    desk.notice("a", WorkerNews::Drained(9, HookTimes::default()));
    let repeated = desk.tick(LEASE / 4);
    assert_eq!(orders(&repeated), [drain("b")], "the order may be lost");
    // After a restored connection the lanes ask once more.
    desk.handle(CoordinatorEvent::Restored);
    let again = desk.handle(CoordinatorEvent::Drain { lane: 1, upto: 9 });
    assert!(matches!(again[..], [CoordinatorAction::PurgeItems { upto: 9 }]), "{again:?}");
}

#[test]
fn results_of_another_coordinator_are_returned_at_first() {
    let mut desk = Desk::new(1);
    for deliveries in 1..6 {
        let actions = desk.handle(results(EPOCH + 1, deliveries, None));
        let expected = match deliveries {
            1..4 => Acknowledgement::Return(LEASE / 4),
            _ => Acknowledgement::Done,
        };
        assert_eq!(acknowledged(&actions), [expected], "{deliveries}");
    }
    assert_eq!(acknowledged(&desk.handle(results(EPOCH, 1, None))), [Acknowledgement::Done]);
}

#[test]
fn a_large_result_is_acknowledged_once_its_output_was_read() {
    let mut desk = Desk::new(1);
    let object = Object { name: "output".to_owned(), bytes: 3, chunk: 1 };
    let mut actions = desk.handle(results(EPOCH, 1, Some(object)));
    assert!(acknowledged(&actions).is_empty());
    let Some(CoordinatorAction::Fetch { publication, object, reply, ack }) = actions.pop() else {
        panic!("{actions:?}")
    };
    let output = Ok(Some(vec![1, 2, 3]));
    let fetched = Box::new(Fetched { publication, object, reply, ack, output });
    let actions = desk.handle(CoordinatorEvent::Fetched(fetched));
    assert_eq!(acknowledged(&actions), [Acknowledgement::Done]);
    let removed = |it: &_| matches!(it, CoordinatorAction::RemoveOutput(name) if name == "output");
    assert!(actions.iter().any(removed), "{actions:?}");
}

#[test]
fn a_coordinator_that_was_replaced_reads_no_more_results() {
    let mut desk = Desk::new(1);
    let put = CoordinatorEvent::KeyPut(KeyState::OfAnother, KeyPurpose::Refresh);
    let actions = desk.handle(put);
    assert!(matches!(actions[..], [CoordinatorAction::StopReading]), "{actions:?}");
    assert!(matches!(desk.board.fatal(), Some(Fatal::Superseded)));
}

#[test]
fn too_few_workers_have_the_cause_that_the_broker_gives() {
    let full: Arc<str> = "no space left".into();
    for (state, is_right) in [
        (KeyState::Own { revision: 2 }, (|it| matches!(it, Fatal::NoWorkers)) as fn(&_) -> bool),
        (KeyState::Refused(full), |it| matches!(it, Fatal::Refused("the run's key", _))),
        (KeyState::Unanswered, |it| matches!(it, Fatal::NoAnswer)),
    ] {
        let mut desk = Desk::new(1);
        desk.now += LEASE;
        let actions = desk.handle(CoordinatorEvent::TooFew);
        assert!(matches!(actions[..], [CoordinatorAction::PutKey { revision: 1, .. }]));
        desk.handle(CoordinatorEvent::KeyPut(state.clone(), KeyPurpose::FindCause));
        let fatal = desk.board.fatal().expect("a cause was asked for");
        assert!(is_right(&fatal), "{state:?}: {fatal:?}");
    }
}

#[test]
fn what_a_worker_says_of_the_broker_is_the_cause() {
    let mut desk = Desk::new(1);
    desk.notice("w", WorkerNews::Alive(Some("disk full".to_owned())));
    // Later signs of life do not take it back.
    desk.notice("w", WorkerNews::Alive(None));
    desk.handle(CoordinatorEvent::NotStored { said: None });
    let fatal = desk.board.fatal();
    assert!(matches!(&fatal, Some(Fatal::Refused(_, said)) if &**said == "disk full"), "{fatal:?}");
}

#[test]
fn the_card_of_a_worker_tells_of_lost_notices() {
    let mut desk = Desk::new(1);
    let in_run = |part| vec![("run".to_owned(), part)];
    let actions = desk.handle(CoordinatorEvent::Card("w".to_owned(), Ok(card("w", in_run(1), 1))));
    assert_eq!(orders(&actions), [(Some("w"), Command::Rejoin)]);
    desk.seat("w", 2);
    // A card of before says nothing of this part; a later one without it does.
    desk.handle(CoordinatorEvent::Card("w".to_owned(), Ok(card("w", vec![], 1))));
    assert_eq!(desk.board.seated(), ["w"]);
    desk.handle(CoordinatorEvent::Card("w".to_owned(), Ok(card("w", vec![], 2))));
    assert!(desk.board.seated().is_empty());
}

/// The notice of a hook that begins may come after the lane of its worker has left the run, and before the last lane has.
#[test]
fn an_item_that_begins_late_goes_to_no_lane_of_another_run() {
    let mut desk = Desk::new(3);
    for (lane, worker) in ["a", "b", "c"].into_iter().enumerate() {
        assert_eq!(desk.seat(worker, 1), JoinReply::Seated);
        if lane < 2 {
            desk.board.enter(lane, 1, Arc::new(NoBell));
        }
    }
    let no_input = (0, |_| None);
    let publish = |lease| desk.board.publish(0, lease, Address::Any, no_input, desk.now);
    let [first, second] = leases().map(publish);
    desk.board.leave(1);
    let begun = desk.notice("b", WorkerNews::Begun(vec![first]));
    let cancelled = [(Some("b"), Command::Cancel(first))];
    assert_eq!(orders(&begun), cancelled, "its lane has left the run");
    desk.board.enter(1, 2, Arc::new(NoBell));
    let begun = desk.notice("b", WorkerNews::Begun(vec![first]));
    assert_eq!(orders(&begun), cancelled, "its lane is in the next run");
    assert_eq!((desk.board.held(0), desk.board.held(1)), (2, 0));
    let begun = desk.notice("c", WorkerNews::Begun(vec![second]));
    assert_eq!(orders(&begun), [], "its lane is still to enter the run");
    assert_eq!((desk.board.held(0), desk.board.held(2)), (1, 1));
    // Which worker has the other is not known.
    let cancelled = [first, second].map(|it| desk.handle(CoordinatorEvent::Cancel(it)));
    let [of_any, of_begun] = cancelled.each_ref().map(|actions| orders(actions));
    assert_eq!(of_any, [(None, Command::Cancel(first))]);
    assert_eq!(of_begun, [(Some("c"), Command::Cancel(second))]);
}

/// Two leases of a run.
fn leases() -> [Lease; 2] {
    let backoff = Backoff { first: Duration::ZERO, most: Duration::ZERO };
    let rules = HandRules { backoff, ..HandRules::default() };
    let run = run_by_hand::<u64, u64>(1, 2, rules);
    let desk = LeaseDesk::new(&run, 0, Readiness::NeedsInit);
    let lease = |index| {
        let next = desk.schedule(|scheduler, now| {
            let meta = Meta { size: Size::ONE, since: now, priority: Priority::Normal };
            scheduler.offer(index, meta, now);
            scheduler.lease(0, Readiness::NeedsInit, now)
        });
        let Next::Work(lease) = next else { panic!("an item waits: {next:?}") };
        lease
    };
    [lease(0), lease(1)]
}

#[test]
fn a_claim_without_a_seat_asks_to_join_again() {
    let mut desk = Desk::new(1);
    let reply_to = |actions: Vec<CoordinatorAction>| match &actions[..] {
        [CoordinatorAction::Answer { payload, .. }] => wire::decode::<ClaimReply>(payload).unwrap(),
        other => panic!("{other:?}"),
    };
    assert_eq!(reply_to(desk.notice("w", WorkerNews::Claim(5))), ClaimReply::Never);
    desk.seat("w", 1);
    assert_eq!(reply_to(desk.notice("w", WorkerNews::Claim(5))), ClaimReply::Never);
}

/// Something that happens to a coordinator.
#[derive(Debug, Clone)]
enum Happening {
    Join { worker: u8, part: u64 },
    Card { worker: u8, part: u64 },
    Leaving { worker: u8, last_result: u64 },
    Results { deliveries: u64, epoch: u64 },
    Tick { eighths: u32 },
    Connection(bool),
    Restored,
    Drain { lane: usize, upto: u64 },
    Purged { upto: u64 },
}

fn happening() -> impl Strategy<Value = Happening> {
    let (worker, part) = (0..4u8, 1..4u64);
    prop_oneof![
        (worker.clone(), part.clone()).prop_map(|(worker, part)| Happening::Join { worker, part }),
        (worker.clone(), part).prop_map(|(worker, part)| Happening::Card { worker, part }),
        (worker, 0..4u64)
            .prop_map(|(worker, last_result)| Happening::Leaving { worker, last_result }),
        (1..6u64, EPOCH..EPOCH + 2)
            .prop_map(|(deliveries, epoch)| Happening::Results { deliveries, epoch }),
        (0..12u32).prop_map(|eighths| Happening::Tick { eighths }),
        any::<bool>().prop_map(Happening::Connection),
        Just(Happening::Restored),
        (0..3usize, 1..6u64).prop_map(|(lane, upto)| Happening::Drain { lane, upto }),
        (1..6u64).prop_map(|upto| Happening::Purged { upto }),
    ]
}

proptest! {
    /// Whatever happens: each message with results is acknowledged once, no worker has two seats, only a seated worker is
    /// told to drain, and not before its items are removed.
    #[test]
    fn the_laws_of_a_coordinator(happenings in prop::collection::vec(happening(), 1..60)) {
        let mut desk = Desk::new(3);
        let mut purged = 0;
        for happening in happenings {
            let name = |worker: u8| format!("w{worker}");
            let before = desk.board.seated();
            let is_results = matches!(happening, Happening::Results { .. });
            let actions = match happening {
                Happening::Join { worker, part } => {
                    desk.seat(&name(worker), part);
                    vec![]
                }
                Happening::Card { worker, part } => {
                    let worker = name(worker);
                    let card = card(&worker, vec![("run".to_owned(), part)], part);
                    desk.handle(CoordinatorEvent::Card(worker, Ok(card)))
                }
                Happening::Leaving { worker, last_result } => {
                    let (times, lost) = (HookTimes::default(), None);
                    desk.notice(&name(worker), WorkerNews::Leaving { times, lost, last_result })
                }
                Happening::Results { deliveries, epoch } => {
                    desk.handle(results(epoch, deliveries, None))
                }
                Happening::Tick { eighths } => desk.tick(LEASE / 8 * eighths),
                Happening::Connection(is_connected) => {
                    desk.is_connected = is_connected;
                    vec![]
                }
                Happening::Restored => {
                    purged = 0;
                    desk.handle(CoordinatorEvent::Restored)
                }
                Happening::Drain { lane, upto } => {
                    desk.handle(CoordinatorEvent::Drain { lane, upto })
                }
                Happening::Purged { upto } => {
                    purged = purged.max(upto);
                    desk.handle(CoordinatorEvent::Purged { upto })
                }
            };
            prop_assert_eq!(acknowledged(&actions).len(), usize::from(is_results));
            let mut seated = desk.board.seated();
            for order in orders(&actions) {
                if let (to, Command::Drain(upto)) = order {
                    let mut known = before.iter().chain(&seated);
                    prop_assert!(known.any(|worker| to == Some(worker.as_str())));
                    prop_assert!(upto <= purged, "{} of {} removed", upto, purged);
                }
            }
            seated.sort_unstable();
            let count = seated.len();
            seated.dedup();
            prop_assert_eq!(seated.len(), count);
        }
    }
}
